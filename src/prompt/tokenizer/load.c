/* Loads a tokenizer from GGUF metadata. All of it is untrusted until it is checked: each key for
 * its type, each array for its count, each id for its range. Errors name the file and the key.
 * Tokens are copied, so the tokenizer outlives the file. A token's spelling in the file is not its
 * bytes. Byte-level BPE writes each byte as a printable character, SentencePiece writes spaces as
 * U+2581, and both spell special tokens plainly. `spellings` below are the file's; `tokens` are
 * bytes; `texts` are whatever the merges see: bytes for byte-level BPE, spellings for
 * SentencePiece. */
#include "prompt/tokenizer/draft.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "prompt/tokenizer/families.h"

struct load {
    const struct gguf *gguf;
    struct error *err;
    struct tokenizer *t;
    struct chat_defaults chat;
    const struct byte_view *spellings; /* [n_tokens] */
    struct vocab_table by_spelling;
    const struct pre_family *family; /* NULL: SentencePiece's rules */
};

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

/* The array with that name, or NULL. `*status` is -1 if it exists but has the wrong type. */
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

/* The three functions below leave `out` unchanged if the key is missing. */
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

static int read_string(const struct load *l, const char *key, struct byte_view *out)
{
    if (gguf_find(l->gguf, key) && !gguf_get_string(l->gguf, key, out))
        return bad(l, key, "is not a string");
    return 0;
}

/* ---- tokens ---- */

static bool is_text(uint8_t type)
{
    return type == TOKEN_NORMAL || type == TOKEN_UNUSED || type == TOKEN_UNDEFINED ||
           type == TOKEN_BYTE;
}

/* Sets the text that becomes the token and the bytes it stands for. */
static int load_token(struct tokenizer *t, uint32_t id, struct byte_view spelling)
{
    bool text = is_text(t->types[id]);
    char *bytes = arena_alloc(&t->strings, spelling.len + 1);
    if (!bytes)
        return -1;
    /* Some converters do not mark byte tokens in models that merge characters by rank. */
    if (t->kind == TOKENIZER_CHAR_BPE && text && fallback_byte(spelling) >= 0)
        t->types[id] = TOKEN_BYTE;
    size_t len = spelling.len;
    memcpy(bytes, spelling.bytes, len);
    if (t->kind == TOKENIZER_BPE && text) {
        size_t n = bytes_from_alphabet(bytes, spelling.bytes, spelling.len);
        if (n == 0) /* not bytes: text never becomes it, it decodes to its spelling */
            memcpy(bytes, spelling.bytes, len);
        else
            t->texts[id] = (struct byte_view){bytes, len = n};
    } else if (t->types[id] == TOKEN_BYTE && fallback_byte(spelling) >= 0) {
        bytes[0] = (char)fallback_byte(spelling);
        t->byte_ids[(unsigned char)bytes[0]] = (int32_t)id;
        len = 1;
    } else if (text) {
        len = bytes_from_marks(bytes, spelling.bytes, spelling.len);
        if (t->types[id] != TOKEN_BYTE)
            t->texts[id] = tokenizer_keep(t, spelling.bytes, spelling.len);
    }
    t->tokens[id] = (struct byte_view){bytes, len};
    return t->strings.failed ? -1 : 0;
}

/* Converters fill unused ids with these. */
static bool is_padding(const struct tokenizer *t, uint32_t id, struct byte_view spelling)
{
    char text[24];
    int len = snprintf(text, sizeof text, "[PAD%u]", id);
    return t->types[id] == TOKEN_UNUSED && spelling.len == (size_t)len &&
           memcmp(spelling.bytes, text, (size_t)len) == 0;
}

static int load_tokens(struct load *l)
{
    struct tokenizer *t = l->t;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct byte_view spelling = l->spellings[id];
        if (spelling.len == 0 || is_padding(t, id, spelling))
            continue;
        int32_t other = vocab_table_add(&l->by_spelling, (int32_t)id);
        if (other >= 0)
            return bad(l, "tokenizer.ggml.tokens", "has \"%.*s\" twice, as %d and as %u",
                       SHOWN(spelling), other, id);
        if (load_token(t, id, spelling) != 0)
            return error_set(l->err, ERROR_MEMORY, "no memory for %u tokens", t->n_tokens);
        if (t->texts[id].len == 0)
            continue;
        vocab_table_add(&t->ordinary, (int32_t)id);
        if (t->texts[id].len > t->longest)
            t->longest = t->texts[id].len;
    }
    tokenizer_ready(t);
    return 0;
}

/* The tokens that are matched in text. */
/* GGUF cannot say that a token takes the white space after it. Phi 3's do, except for these. */
static bool takes_space_behind(const struct load *l, uint32_t id)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct byte_view arch, spelling = l->t->tokens[id];
    if (l->family || !gguf_get_string(l->gguf, "general.architecture", &arch) ||
        !byte_view_is(arch, "phi3"))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (byte_view_is(spelling, others[i]))
            return false;
    return true;
}

static int load_specials(struct load *l)
{
    struct tokenizer *t = l->t;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        bool special = tokenizer_is_special(t, (int32_t)id);
        if (!special && t->types[id] != TOKEN_USER_DEFINED)
            continue;
        struct added_token token = {t->tokens[id], (int32_t)id, special ? ADDED_SPECIAL : 0};
        if (takes_space_behind(l, id))
            token.flags |= ADDED_RSTRIP;
        if (special_list_add(&t->added, token, l->err) != 0)
            return -1;
    }
    special_list_ready(&t->added);
    special_list_ready(&t->normalized);
    return 0;
}

/* For a file without types: guesses special tokens from the ids it names and from their
 * spelling. */
static void guess_types(struct load *l)
{
    struct tokenizer *t = l->t;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->kind != TOKENIZER_BPE && fallback_byte(l->spellings[id]) >= 0)
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

static int load_merge(struct load *l, uint32_t rank, struct byte_view text, struct strbuf *both)
{
    static const char key[] = "tokenizer.ggml.merges";
    const char *space = text.len > 2 ? memchr(text.bytes + 1, ' ', text.len - 2) : NULL;
    if (!space)
        return bad(l, key, "has \"%.*s\" at %u, which is not two tokens", SHOWN(text), rank);
    struct byte_view left = {text.bytes, (size_t)(space - text.bytes)};
    struct byte_view right = {space + 1, text.len - left.len - 1};
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
    double *scores = malloc(t->n_tokens * sizeof *scores);
    if (!scores)
        status = error_set(l->err, ERROR_MEMORY, "no memory for %u scores", t->n_tokens);
    for (uint32_t i = 0; i < t->n_tokens && status == 0; i++) {
        scores[i] = (float)gguf_array_f64(array, i); /* as trained */
        if (isnan(scores[i]))
            status = bad(l, key, "has no number for token %u", i);
    }
    if (status == 0)
        status = tokenizer_rank_scores(t, scores, l->err);
    free(scores);
    return status;
}

/* ---- the whole ---- */

/* Reads BOS and the tokens that end a generation. */
static int load_ends(struct load *l)
{
    struct tokenizer *t = l->t;
    static const char *const end_keys[] = {
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
    };
    if (read_id(l, "tokenizer.ggml.bos_token_id", &t->bos) != 0 ||
        read_id(l, "tokenizer.ggml.eos_token_id", &t->eos) != 0)
        return -1;
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

static int load_ids(struct load *l)
{
    struct tokenizer *t = l->t;
    bool spm = t->kind == TOKENIZER_SPM;
    /* SentencePiece's trainer numbers them this way. */
    t->unknown = spm ? 0 : -1;
    t->bos = spm && t->n_tokens > 1 ? 1 : -1;
    t->eos = spm && t->n_tokens > 2 ? 2 : -1;
    return read_id(l, "tokenizer.ggml.unknown_token_id", &t->unknown) != 0 || load_ends(l) != 0 ? -1
                                                                                                : 0;
}

/* Finds the family that tokenizer.ggml.pre names. */
static int find_family(struct load *l, bool is_gemma)
{
    static const char key[] = "tokenizer.ggml.pre";
    struct byte_view name = {"default", 7};
    if (read_string(l, key, &name) != 0)
        return -1;
    if (is_gemma) /* known from the model's name */
        name = byte_view_of("gemma4");
    l->family = pre_family_find(name.bytes, name.len);
    if (!l->family)
        return bad(l, key,
                   "is \"%.*s\", and how that cuts text into words is not known here: a newer "
                   "radish may know it, and a directory with the model's tokenizer.json tells it "
                   "without a name",
                   SHOWN(name));
    if (l->family->options.is_guess)
        log_warn("%s does not say how its model cuts text into words (%s is %s): a guess is used, "
                 "and answers may be worse; a file that was converted lately would say it",
                 l->gguf->path, key, gguf_find(l->gguf, key) ? "\"default\"" : "missing");
    return 0;
}

static int load_pre(struct load *l)
{
    struct error cause = {0};
    if (pre_family_apply(l->family, l->t, &cause) != 0)
        return error_set(l->err, cause.code, "%s: %s", l->gguf->path, cause.message);
    return 0;
}

static int load_flags(struct load *l)
{
    struct tokenizer *t = l->t;
    bool spm = t->kind == TOKENIZER_SPM;
    bool add_bos = spm || l->family->options.add_bos, add_eos = false, space_prefix = spm;
    if (read_bool(l, "tokenizer.ggml.add_bos_token", &add_bos) != 0 ||
        read_bool(l, "tokenizer.ggml.add_eos_token", &add_eos) != 0 ||
        (spm && read_bool(l, "tokenizer.ggml.add_space_prefix", &space_prefix) != 0))
        return -1;
    if ((add_bos && t->bos >= 0 && !token_list_add(&t->before, t->bos)) ||
        (add_eos && t->eos >= 0 && !token_list_add(&t->after, t->eos)))
        return error_set(l->err, ERROR_MEMORY, "no memory for a tokenizer");
    if (t->kind != TOKENIZER_BPE)
        tokenizer_add_marks(t, space_prefix);
    if (space_prefix)
        t->lead = (struct decode_lead){" ", 1, 1, true};
    return 0;
}

static int load_template(struct load *l, const char *key, char **out, size_t *len)
{
    struct byte_view text = {NULL, 0};
    if (read_string(l, key, &text) != 0)
        return -1;
    if (!text.bytes)
        return 0;
    return chat_defaults_keep(out, len, text.bytes, text.len)
               ? 0
               : error_set(l->err, ERROR_MEMORY, "no memory for the chat template");
}

static int load_chat(struct load *l)
{
    struct chat_defaults *c = &l->chat;
    if (load_template(l, "tokenizer.chat_template", &c->chat_template, &c->chat_template_len) ||
        load_template(l, "tokenizer.chat_template.tool_use", &c->tool_template,
                      &c->tool_template_len))
        return -1;
    sampling_defaults_from_gguf(&c->sampling, l->gguf);
    return 0;
}

/* Fill-in-the-middle tokens; older files have the first three under other names. */
static int load_fim(struct load *l)
{
    struct fim_tokens fim = {-1, -1, -1, -1, -1};
    if (read_id(l, "tokenizer.ggml.prefix_token_id", &fim.prefix) ||
        read_id(l, "tokenizer.ggml.suffix_token_id", &fim.suffix) ||
        read_id(l, "tokenizer.ggml.middle_token_id", &fim.middle) ||
        read_id(l, "tokenizer.ggml.fim_pre_token_id", &fim.prefix) ||
        read_id(l, "tokenizer.ggml.fim_suf_token_id", &fim.suffix) ||
        read_id(l, "tokenizer.ggml.fim_mid_token_id", &fim.middle) ||
        read_id(l, "tokenizer.ggml.fim_rep_token_id", &fim.repository) ||
        read_id(l, "tokenizer.ggml.fim_sep_token_id", &fim.file))
        return -1;
    tokenizer_find_fim(l->t, &fim);
    return 0;
}

static int load_all(struct load *l)
{
    struct tokenizer *t = l->t;
    if (load_ids(l) != 0 || load_types(l) != 0 || load_tokens(l) != 0 ||
        (l->family && load_pre(l) != 0) || load_flags(l) != 0 ||
        (l->family ? load_merges(l) : load_scores(l)) != 0 || load_chat(l) != 0 ||
        load_specials(l) != 0)
        return -1;
    tokenizer_mark_ends(t);
    return load_fim(l);
}

/* The key overrides tokenizer.json's template. */
static int load_around(struct load *l, const char *key, int32_t id, struct token_list *list)
{
    bool flag = false;
    if (!gguf_find(l->gguf, key))
        return 0;
    if (read_bool(l, key, &flag) != 0)
        return -1;
    list->len = 0;
    return flag && id >= 0 && !token_list_add(list, id)
               ? error_set(l->err, ERROR_MEMORY, "no memory for a tokenizer")
               : 0;
}

/* For a file that embeds all of tokenizer.json: takes the steps from it and the rest from the
 * keys. */
static int load_json(struct load *l, struct byte_view json, uint32_t n_tokens)
{
    struct token_draft draft = {
        .path = l->gguf->path, .err = l->err, .n_vocab = n_tokens, .added_replace = true};
    strbuf_add(&draft.file, json.bytes, json.len);
    int failed = draft.file.failed ? draft_no_memory(&draft) : 0;
    if (!failed)
        failed = draft_read_json(&draft, NULL) || draft_finish(&draft);
    if (!failed) {
        l->t = draft.t;
        draft.t = NULL;
        failed = load_ends(l) ||
                 load_around(l, "tokenizer.ggml.add_bos_token", l->t->bos, &l->t->before) ||
                 load_around(l, "tokenizer.ggml.add_eos_token", l->t->eos, &l->t->after) ||
                 load_chat(l);
    }
    if (!failed)
        tokenizer_mark_ends(l->t);
    draft_close(&draft);
    return failed ? -1 : 0;
}

static int load_keys(struct load *l, struct byte_view model, const struct gguf_value *tokens)
{
    enum tokenizer_kind kind = TOKENIZER_SPM;
    bool spm = byte_view_is(model, "llama"), gemma = byte_view_is(model, "gemma4");
    if (!spm && !gemma && !byte_view_is(model, "gpt2"))
        return bad(l, "tokenizer.ggml.model", "is \"%.*s\"; known are gpt2, llama and gemma4",
                   SHOWN(model));
    if (!spm && find_family(l, gemma) != 0)
        return -1;
    if (l->family)
        kind = l->family->options.characters ? TOKENIZER_CHAR_BPE : TOKENIZER_BPE;
    if (!tokens || tokens->count == 0)
        return bad(l, "tokenizer.ggml.tokens", "is missing");
    uint32_t n = (uint32_t)tokens->count;
    l->t = tokenizer_new(kind, n, l->err);
    if (!l->t)
        return -1;
    l->spellings = tokens->strings;
    int status = vocab_table_open(&l->by_spelling, l->spellings, n, l->err);
    if (status == 0)
        status = load_all(l);
    vocab_table_close(&l->by_spelling);
    return status;
}

int tokenizer_open(struct tokenizer **out, struct chat_defaults *chat, const struct gguf *gguf,
                   struct error *err)
{
    struct load l = {.gguf = gguf, .err = err};
    struct byte_view model = {"", 0}, json = {NULL, 0};
    int status;
    if (read_string(&l, "tokenizer.ggml.model", &model) != 0 ||
        read_string(&l, "tokenizer.huggingface.json", &json) != 0)
        return -1;
    const struct gguf_value *tokens = find_array(&l, "tokenizer.ggml.tokens", true, &status);
    if (status != 0)
        return -1;
    status = json.bytes ? load_json(&l, json, tokens ? (uint32_t)tokens->count : 0)
                        : load_keys(&l, model, tokens);
    if (status != 0) {
        tokenizer_close(l.t);
        chat_defaults_free(&l.chat);
        return -1;
    }
    chat_defaults_move(chat, &l.chat);
    *out = l.t;
    return 0;
}
