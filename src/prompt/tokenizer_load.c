/* A tokenizer from GGUF metadata. Everything in it is hostile until it is checked: each key for
 * its type, each array for its count, each id for its range. An error names the file and the key.
 * Tokens are copied, so that the tokenizer outlives the file.
 * What a newcomer gets wrong: a token's spelling in the file is not its bytes. Byte-level BPE
 * writes each byte as a printable character, SentencePiece writes spaces as U+2581, and both spell
 * special tokens plainly. `spellings` below are the file's; `tokens` are bytes. */
#include "prompt/tokenizer_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_TOKENS = 1 << 24 };

struct load {
    const struct gguf *gguf;
    struct error *err;
    struct tokenizer *t;
    const struct gguf_string *spellings; /* [n_tokens] */
    struct vocab_table by_spelling;
};

#define SHOWN(string) (int)((string).len < 64 ? (string).len : 64), (string).bytes

__attribute__((format(printf, 3, 4))) static int bad(const struct load *l, const char *key,
                                                     const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(l->err, ERROR_FORMAT, "%s: %s %s", l->gguf->path, key, what);
}

/* The array of that name, or NULL; `*status` is -1 if it is there but is no such array. */
static const struct gguf_value *find_array(const struct load *l, const char *key, bool strings,
                                           int *status)
{
    const struct gguf_value *value = gguf_find(l->gguf, key);
    *status = 0;
    if (!value)
        return NULL;
    bool is_strings = value->item_type == GGUF_STRING;
    bool is_numbers = !is_strings && value->item_type != GGUF_ARRAY &&
                      value->item_type != GGUF_BOOL;
    if (value->type != GGUF_ARRAY || (strings ? !is_strings : !is_numbers))
        *status = bad(l, key, "is not an array of %s", strings ? "strings" : "numbers");
    else if (value->count > MAX_TOKENS)
        *status = bad(l, key, "has %llu items; the limit is %d", (unsigned long long)value->count,
                      MAX_TOKENS);
    return *status == 0 ? value : NULL;
}

/* The three below leave `out` alone when the key is not there. */
static int read_bool(const struct load *l, const char *key, bool *out)
{
    if (gguf_find(l->gguf, key) && !gguf_get_bool(l->gguf, key, out))
        return bad(l, key, "is not a boolean");
    return 0;
}

static int read_id(const struct load *l, const char *key, int32_t *out)
{
    uint64_t id;
    if (!gguf_find(l->gguf, key))
        return 0;
    if (!gguf_get_u64(l->gguf, key, &id))
        return bad(l, key, "is not a token id");
    if (id >= l->t->n_tokens)
        return bad(l, key, "is %llu, but there are %u tokens", (unsigned long long)id,
                   l->t->n_tokens);
    *out = (int32_t)id;
    return 0;
}

static int read_string(const struct load *l, const char *key, struct gguf_string *out)
{
    if (gguf_find(l->gguf, key) && !gguf_get_string(l->gguf, key, out))
        return bad(l, key, "is not a string");
    return 0;
}

/* ---- tokens ---- */

/* GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes in order
 * for the code points from 256 on. The byte, or -1. */
static int alphabet_byte(uint32_t code)
{
    static const unsigned char gaps[][2] = {{0, 32}, {127, 160}, {173, 173}};
    uint32_t at = 256;
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        uint32_t first = gaps[i][0], last = gaps[i][1];
        if (code >= at && code <= at + last - first)
            return (int)(first + code - at);
        if (code >= first && code <= last)
            return -1;
        at += last - first + 1;
    }
    return code < 256 ? (int)code : -1;
}

/* Writes the bytes that a byte-level token stands for and gives their number, or gives 0 when a
 * character is no byte: then the token is out of reach of text, and stands for its spelling. */
static size_t bytes_from_alphabet(char *to, struct gguf_string from)
{
    size_t n = 0, width;
    for (size_t i = 0; i < from.len; i += width) {
        width = utf8_valid_prefix(from.bytes + i, from.len - i);
        int byte = width ? alphabet_byte(utf8_decode(from.bytes + i, width)) : -1;
        if (byte < 0)
            return 0;
        to[n++] = (char)byte;
    }
    return n;
}

static size_t bytes_from_escapes(char *to, struct gguf_string from)
{
    size_t n = 0;
    for (size_t i = 0; i < from.len;) {
        bool escape = from.len - i >= 3 && memcmp(from.bytes + i, "\xe2\x96\x81", 3) == 0;
        to[n++] = escape ? ' ' : from.bytes[i];
        i += escape ? 3 : 1;
    }
    return n;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The byte of a token spelled <0xNN>, or -1. */
static int fallback_byte(struct gguf_string spelling)
{
    const char *s = spelling.bytes;
    if (spelling.len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

static bool is_text(uint8_t type)
{
    return type == TOKEN_NORMAL || type == TOKEN_UNUSED || type == TOKEN_UNDEFINED ||
           type == TOKEN_BYTE;
}

/* Writes the token's bytes to `to` and gives their number; `*ordinary`: text can merge into it. */
static size_t load_token(struct tokenizer *t, uint32_t id, struct gguf_string spelling, char *to,
                         bool *ordinary)
{
    *ordinary = false;
    if (spelling.len == 0)
        return 0;
    if (t->kind == TOKENIZER_BPE && is_text(t->types[id])) {
        size_t n = bytes_from_alphabet(to, spelling);
        *ordinary = n > 0;
        if (n > 0)
            return n;
    } else if (t->types[id] == TOKEN_BYTE && fallback_byte(spelling) >= 0) {
        to[0] = (char)fallback_byte(spelling);
        t->byte_ids[(unsigned char)to[0]] = (int32_t)id;
        return 1;
    } else if (is_text(t->types[id])) {
        *ordinary = t->types[id] != TOKEN_BYTE && !memchr(spelling.bytes, ' ', spelling.len);
        return bytes_from_escapes(to, spelling);
    }
    memcpy(to, spelling.bytes, spelling.len);
    return spelling.len;
}

/* Fills tokens, the table of ordinary ones and, for SentencePiece, where words part. */
static int load_tokens(struct load *l)
{
    struct tokenizer *t = l->t;
    char *at = t->blob;
    t->splits_at_spaces = true;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct gguf_string spelling = l->spellings[id];
        int32_t other = spelling.len > 0 ? vocab_table_add(&l->by_spelling, (int32_t)id) : -1;
        if (other >= 0)
            return bad(l, "tokenizer.ggml.tokens", "has \"%.*s\" twice, as %d and as %u",
                       SHOWN(spelling), other, id);
        bool ordinary;
        size_t len = load_token(t, id, spelling, at, &ordinary);
        t->tokens[id] = (struct gguf_string){at, len};
        at += len;
        if (!ordinary)
            continue;
        vocab_table_add(&t->ordinary, (int32_t)id);
        t->longest = len > t->longest ? len : t->longest;
        for (size_t i = 1; i < len; i++)
            if (t->tokens[id].bytes[i] == ' ' && t->tokens[id].bytes[i - 1] != ' ')
                t->splits_at_spaces = false;
    }
    if (t->kind == TOKENIZER_BPE)
        for (int i = 0; i < 256; i++)
            t->byte_ids[i] = vocab_table_find(&t->ordinary, (char[]){(char)i}, 1);
    return 0;
}

/* A file without types: the tokens that it names, and those that look it, are what they seem. */
static void guess_types(struct load *l)
{
    struct tokenizer *t = l->t;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->kind == TOKENIZER_SPM && fallback_byte(l->spellings[id]) >= 0)
            t->types[id] = TOKEN_BYTE;
        else if (tokenizer_known_end(l->spellings[id]))
            t->types[id] = TOKEN_CONTROL;
    if (t->unknown >= 0)
        t->types[t->unknown] = TOKEN_UNKNOWN;
    if (t->bos >= 0)
        t->types[t->bos] = TOKEN_CONTROL;
    if (t->eos >= 0)
        t->types[t->eos] = TOKEN_CONTROL;
}

static int load_types(struct load *l)
{
    static const char key[] = "tokenizer.ggml.token_type";
    struct tokenizer *t = l->t;
    int status;
    const struct gguf_value *types = find_array(l, key, false, &status);
    if (status != 0)
        return -1;
    if (types && types->count != t->n_tokens)
        return bad(l, key, "has %llu items for %u tokens", (unsigned long long)types->count,
                   t->n_tokens);
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        int64_t type = types ? gguf_array_i64(types, id) : TOKEN_NORMAL;
        if (type < 0 || type >= TOKEN_TYPE_COUNT)
            return bad(l, key, "has %lld for token %u; types are 0 to %d", (long long)type, id,
                       TOKEN_TYPE_COUNT - 1);
        t->types[id] = (uint8_t)type;
    }
    if (!types)
        guess_types(l);
    return 0;
}

/* ---- merges and scores ---- */

static int load_merge(struct load *l, uint32_t rank, struct gguf_string text, struct strbuf *both)
{
    static const char key[] = "tokenizer.ggml.merges";
    const char *space = text.len > 2 ? memchr(text.bytes + 1, ' ', text.len - 2) : NULL;
    if (!space)
        return bad(l, key, "has \"%.*s\" at %u, which is not two tokens", SHOWN(text), rank);
    struct gguf_string left = {text.bytes, (size_t)(space - text.bytes)};
    struct gguf_string right = {space + 1, text.len - left.len - 1};
    strbuf_clear(both);
    strbuf_add(both, left.bytes, left.len);
    strbuf_add(both, right.bytes, right.len);
    if (both->failed)
        return error_set(l->err, ERROR_MEMORY, "no memory for a merge");
    int32_t left_id = vocab_table_find(&l->by_spelling, left.bytes, left.len);
    int32_t right_id = vocab_table_find(&l->by_spelling, right.bytes, right.len);
    int32_t id = vocab_table_find(&l->by_spelling, both->data, both->len);
    if (left_id < 0 || right_id < 0 || id < 0)
        return bad(l, key, "has \"%.*s\" at %u: the two or what they make is no token", SHOWN(text),
                   rank);
    merge_table_add(&l->t->merges, left_id, right_id, rank, id);
    return 0;
}

static int load_merges(struct load *l)
{
    static const char key[] = "tokenizer.ggml.merges";
    int status;
    const struct gguf_value *merges = find_array(l, key, true, &status);
    if (!merges)
        return status != 0 ? -1 : bad(l, key, "is missing");
    if (merge_table_open(&l->t->merges, (uint32_t)merges->count, l->err) != 0)
        return -1;
    struct strbuf both = STRBUF_INIT;
    for (uint32_t i = 0; i < merges->count && status == 0; i++)
        status = load_merge(l, i, merges->strings[i], &both);
    strbuf_free(&both);
    return status;
}

static int compare_scores(const void *a, const void *b, void *context)
{
    const float *scores = context;
    float x = scores[*(const uint32_t *)a], y = scores[*(const uint32_t *)b];
    return (x < y) - (x > y);
}

/* Ranks instead of scores, so that both kinds of model merge with the same code. */
static void rank_scores(struct tokenizer *t, float *scores, uint32_t *order)
{
    for (uint32_t i = 0; i < t->n_tokens; i++)
        order[i] = i;
    qsort_r(order, t->n_tokens, sizeof *order, compare_scores, scores);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        rank += i > 0 && scores[order[i]] != scores[order[i - 1]];
        t->ranks[order[i]] = rank;
    }
}

static int load_scores(struct load *l)
{
    static const char key[] = "tokenizer.ggml.scores";
    struct tokenizer *t = l->t;
    int status;
    const struct gguf_value *array = find_array(l, key, false, &status);
    if (!array)
        return status != 0 ? -1 : bad(l, key, "is missing");
    if (array->count != t->n_tokens)
        return bad(l, key, "has %llu items for %u tokens", (unsigned long long)array->count,
                   t->n_tokens);
    float *scores = malloc(t->n_tokens * sizeof *scores);
    uint32_t *order = malloc(t->n_tokens * sizeof *order);
    t->ranks = malloc(t->n_tokens * sizeof *t->ranks);
    if (!scores || !order || !t->ranks)
        status = error_set(l->err, ERROR_MEMORY, "no memory for %u scores", t->n_tokens);
    for (uint32_t i = 0; i < t->n_tokens && status == 0; i++) {
        scores[i] = (float)gguf_array_f64(array, i);
        if (isnan(scores[i]))
            status = bad(l, key, "has no number for token %u", i);
    }
    if (status == 0)
        rank_scores(t, scores, order);
    free(scores);
    free(order);
    return status;
}

/* ---- the whole ---- */

static int load_ids(struct load *l)
{
    struct tokenizer *t = l->t;
    bool spm = t->kind == TOKENIZER_SPM;
    /* What SentencePiece's own trainer numbers so. */
    t->unknown = spm ? 0 : -1;
    t->bos = spm && t->n_tokens > 1 ? 1 : -1;
    t->eos = spm && t->n_tokens > 2 ? 2 : -1;
    if (read_id(l, "tokenizer.ggml.unknown_token_id", &t->unknown) != 0 ||
        read_id(l, "tokenizer.ggml.bos_token_id", &t->bos) != 0 ||
        read_id(l, "tokenizer.ggml.eos_token_id", &t->eos) != 0)
        return -1;
    static const char *const end_keys[] = {
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
    };
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id = -1;
        if (read_id(l, end_keys[i], &id) != 0)
            return -1;
        if (id >= 0)
            t->ends[id] = 1;
    }
    if (t->eos >= 0)
        t->ends[t->eos] = 1;
    return 0;
}

static int load_pre(struct load *l, struct pre_options *options)
{
    struct gguf_string name = {"default", 7};
    if (read_string(l, "tokenizer.ggml.pre", &name) != 0)
        return -1;
    return pre_tokenizer_open(&l->t->pre, name, l->gguf->path, options, l->err);
}

static int load_flags(struct load *l, const struct pre_options *options)
{
    struct tokenizer *t = l->t;
    bool spm = t->kind == TOKENIZER_SPM;
    t->add_bos = spm || options->add_bos;
    if (read_bool(l, "tokenizer.ggml.add_bos_token", &t->add_bos) != 0 ||
        read_bool(l, "tokenizer.ggml.add_eos_token", &t->add_eos) != 0)
        return -1;
    t->add_space_prefix = spm;
    return spm ? read_bool(l, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix) : 0;
}

static int load_template(struct load *l)
{
    struct gguf_string text = {NULL, 0};
    if (read_string(l, "tokenizer.chat_template", &text) != 0)
        return -1;
    if (!text.bytes)
        return 0;
    l->t->chat_template = malloc(text.len + 1);
    if (!l->t->chat_template)
        return error_set(l->err, ERROR_MEMORY, "no memory for the chat template");
    memcpy(l->t->chat_template, text.bytes, text.len);
    l->t->chat_template[text.len] = '\0';
    l->t->chat_template_len = text.len;
    return 0;
}

static int load_all(struct load *l)
{
    struct tokenizer *t = l->t;
    struct pre_options options = {false, false};
    bool bpe = t->kind == TOKENIZER_BPE;
    if (load_ids(l) != 0 || load_types(l) != 0 || load_tokens(l) != 0 ||
        (bpe && load_pre(l, &options) != 0) || load_flags(l, &options) != 0 ||
        (bpe ? load_merges(l) : load_scores(l)) != 0 || load_template(l) != 0 ||
        tokenizer_list_specials(t, l->err) != 0)
        return -1;
    tokenizer_mark_ends(t);
    if (!options.ignore_merges)
        return tokenizer_mark_whole(t, l->err);
    memset(t->whole, 1, t->n_tokens);
    return 0;
}

int tokenizer_open(struct tokenizer **out, const struct gguf *gguf, struct error *err)
{
    struct load l = {.gguf = gguf, .err = err};
    struct gguf_string model = {"", 0};
    int status;
    if (read_string(&l, "tokenizer.ggml.model", &model) != 0)
        return -1;
    bool bpe = model.len == 4 && memcmp(model.bytes, "gpt2", 4) == 0;
    bool spm = model.len == 5 && memcmp(model.bytes, "llama", 5) == 0;
    if (!bpe && !spm)
        return bad(&l, "tokenizer.ggml.model", "is \"%.*s\"; known are gpt2 and llama",
                   SHOWN(model));
    const struct gguf_value *tokens = find_array(&l, "tokenizer.ggml.tokens", true, &status);
    if (!tokens || tokens->count == 0)
        return status != 0 ? -1 : bad(&l, "tokenizer.ggml.tokens", "is missing");
    size_t n_bytes = 0;
    for (uint64_t i = 0; i < tokens->count; i++)
        n_bytes += tokens->strings[i].len;
    uint32_t n = (uint32_t)tokens->count;
    l.t = tokenizer_new(bpe ? TOKENIZER_BPE : TOKENIZER_SPM, n, n_bytes, err);
    if (!l.t)
        return -1;
    l.spellings = tokens->strings;
    status = vocab_table_open(&l.by_spelling, l.spellings, n, err);
    if (status == 0)
        status = load_all(&l);
    vocab_table_close(&l.by_spelling);
    if (status == 0)
        *out = l.t;
    else
        tokenizer_close(l.t);
    return status;
}
