/* The tokenizer's entry points: opening and closing, encoding a text run by run, and decoding. An
 * open tokenizer never changes, except for its pool of encoders: everything an encoding modifies is
 * in the encoder it took. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

bool token_list_reserve(struct token_list *list, size_t extra)
{
    if (extra <= list->capacity - list->len)
        return true;
    size_t capacity = list->capacity ? list->capacity : 64;
    while (capacity - list->len < extra)
        capacity *= 2;
    int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
    if (!ids)
        return false;
    list->ids = ids;
    list->capacity = capacity;
    return true;
}

bool token_list_add(struct token_list *list, int32_t id)
{
    if (list->len == list->capacity && !token_list_reserve(list, 1))
        return false;
    list->ids[list->len++] = id;
    return true;
}

int encoder_add(struct encoder *e, int32_t id)
{
    if (token_list_add(e->out, id))
        return 0;
    return error_set(e->err, ERROR_MEMORY, "no memory for %zu tokens", e->out->len + 1);
}

/* How many bytes of the text are valid UTF-8; checks eight ASCII bytes at a time. */
static size_t valid_prefix(const char *text, size_t len)
{
    size_t at = 0, width;
    for (;;) {
        uint64_t eight = 0;
        if (len - at >= sizeof eight)
            memcpy(&eight, text + at, sizeof eight);
        if (len - at >= sizeof eight && !(eight & 0x8080808080808080u))
            at += sizeof eight;
        else if (at < len && (width = utf8_valid_prefix(text + at, len - at)) > 0)
            at += width;
        else
            return at;
    }
}

static int encode_normalized(struct encoder *e, const char *text, size_t len, enum text_place place)
{
    return encode_pieces(e, 0, text, len, place);
}

static int encode_valid(struct encoder *e, const char *text, size_t len, enum text_place place)
{
    if (e->t->n_normal > 0 && normalize(e, &text, &len, &place) != 0)
        return -1;
    return encode_between(e, &e->t->normalized, text, len, place, encode_normalized);
}

static int encode_bytes(struct encoder *e, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (encoder_add(e, e->t->byte_ids[(unsigned char)text[i]]) != 0)
            return -1;
    return 0;
}

/* Valid UTF-8 goes through all steps; a run of invalid bytes is one word. */
int encode_run(struct encoder *e, const char *text, size_t len, enum text_place place)
{
    if (e->t->kind == TOKENIZER_BYTES)
        return encode_bytes(e, text, len);
    while (len > 0) {
        size_t valid = valid_prefix(text, len), end = valid;
        if (valid > 0 && encode_valid(e, text, valid, place) != 0)
            return -1;
        while (end < len && utf8_valid_prefix(text + end, len - end) == 0)
            end++;
        if (end > valid && encode_word(e, text + valid, end - valid) != 0)
            return -1;
        text += end;
        len -= end;
        place = PLACE_CONTINUES;
    }
    return 0;
}

static int add_all(struct encoder *e, const struct token_list *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        if (encoder_add(e, ids->ids[i]) != 0)
            return -1;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags,
                     struct token_list *out, struct error *err)
{
    if (len > MAX_TEXT_BYTES)
        return error_set(err, ERROR_LIMIT, "a text of %zu bytes is too long; the limit is %d", len,
                         MAX_TEXT_BYTES);
    struct encoder *e = encoder_take(t->encoders);
    if (!e)
        return error_set(err, ERROR_MEMORY, "no memory for a text of %zu bytes", len);
    e->t = t;
    e->out = out;
    e->err = err;
    e->parse_special = flags & TOKENIZE_PARSE_SPECIAL;
    size_t before = out->len;
    int status = 0;
    enum text_place place = flags & TOKENIZE_CONTINUES ? PLACE_CONTINUES : PLACE_FIRST;
    if (flags & TOKENIZE_ADD_SPECIAL)
        status = add_all(e, &t->before);
    if (status == 0)
        status = encode_between(e, &t->added, text, len, place, encode_run);
    if (status == 0 && flags & TOKENIZE_ADD_SPECIAL)
        status = add_all(e, &t->after);
    if (status != 0)
        out->len = before;
    encoder_leave(t->encoders, e);
    return status;
}

uint32_t tokenizer_size(const struct tokenizer *t)
{
    return t->n_tokens;
}

static bool in_range(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->n_tokens;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = in_range(t, id) ? t->tokens[id].len : 0;
    return in_range(t, id) ? t->tokens[id].bytes : "";
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN);
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->ends[id];
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_space(const struct tokenizer *t)
{
    return t->add_space_prefix;
}

/* The token for text with these bytes; character models write spaces as marks. */
static int32_t find_ordinary(const struct tokenizer *t, const char *bytes, size_t len)
{
    if (t->kind == TOKENIZER_BPE || !memchr(bytes, ' ', len))
        return vocab_table_find(&t->ordinary, bytes, len);
    struct strbuf marked = STRBUF_INIT;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == ' ')
            strbuf_add(&marked, SPACE_MARK, SPACE_MARK_LEN);
        else
            strbuf_addc(&marked, bytes[i]);
    }
    int32_t id = marked.failed ? -1 : vocab_table_find(&t->ordinary, marked.data, marked.len);
    strbuf_free(&marked);
    return id;
}

static const struct added_token *find_added(const struct tokenizer *t, const char *text, size_t len)
{
    const struct added_token *raw = special_list_match(&t->added, text, len);
    const struct added_token *normalized = special_list_match(&t->normalized, text, len);
    return raw && (!normalized || raw->text.len >= normalized->text.len) ? raw : normalized;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, size_t len)
{
    if (len == 0)
        return -1;
    const struct added_token *added = find_added(t, bytes, len);
    if (added && added->text.len == len)
        return added->id;
    int32_t id = find_ordinary(t, bytes, len);
    return id < 0 && len == 1 ? t->byte_ids[(unsigned char)bytes[0]] : id;
}

int32_t tokenizer_special_at(const struct tokenizer *t, const char *text, size_t len)
{
    const struct added_token *added = len ? find_added(t, text, len) : NULL;
    return added ? added->id : -1;
}

const char *tokenizer_kind_name(const struct tokenizer *t)
{
    static const char *const names[] = {
        [TOKENIZER_BYTES] = "bytes",     [TOKENIZER_BPE] = "BPE",
        [TOKENIZER_CHAR_BPE] = "BPE",    [TOKENIZER_SPM] = "SentencePiece BPE",
        [TOKENIZER_UNIGRAM] = "unigram",
    };
    return names[t->kind];
}

struct tokenizer *tokenizer_new(enum tokenizer_kind kind, uint32_t n, struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (t) {
        t->kind = kind;
        t->n_tokens = n;
        t->bos = t->eos = t->unknown = t->unknown_byte = -1;
        memset(t->byte_ids, 0xff, sizeof t->byte_ids);
        t->texts = calloc(n, sizeof *t->texts);
        t->tokens = calloc(n, sizeof *t->tokens);
        t->decoded = t->tokens;
        t->types = calloc(n, 1);
        t->ends = calloc(n, 1);
        t->whole = calloc(n, sizeof *t->whole);
        t->encoders = calloc(1, sizeof *t->encoders);
        if (t->texts && t->tokens && t->types && t->ends && t->whole && t->encoders &&
            vocab_table_open(&t->ordinary, t->texts, n, err) == 0)
            return t;
    }
    tokenizer_close(t);
    error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %u tokens", n);
    return NULL;
}

struct byte_view tokenizer_keep(struct tokenizer *t, const char *bytes, size_t len)
{
    char *copy = arena_copy(&t->strings, bytes, len);
    return (struct byte_view){copy, copy ? len : 0};
}

void tokenizer_add_marks(struct tokenizer *t, bool space_prefix)
{
    const struct byte_view mark = {SPACE_MARK, SPACE_MARK_LEN};
    t->add_space_prefix = space_prefix;
    if (space_prefix)
        t->normal[t->n_normal++] = (struct normal_step){.kind = NORMAL_PREPEND, .to = mark};
    t->normal[t->n_normal++] = (struct normal_step){
        .kind = NORMAL_REPLACE, .from = {" ", 1}, .to = mark};
}

/* True if a mark follows another character. */
static bool has_mark_inside(struct byte_view text)
{
    const char *at = text.bytes, *end = text.bytes + text.len, *mark;
    while ((mark = memmem(at, (size_t)(end - at), SPACE_MARK, SPACE_MARK_LEN))) {
        if (mark > at)
            return true;
        at = mark + SPACE_MARK_LEN;
    }
    return false;
}

void tokenizer_ready(struct tokenizer *t)
{
    if (t->kind == TOKENIZER_BPE) {
        for (int i = 0; i < 256; i++)
            t->byte_ids[i] = vocab_table_find(&t->ordinary, (char[]){(char)i}, 1);
        return;
    }
    t->splits_at_marks = t->kind != TOKENIZER_UNIGRAM && /* sums would round differently */
                         vocab_table_find(&t->ordinary, SPACE_MARK, SPACE_MARK_LEN) >= 0;
    for (uint32_t id = 0; id < t->n_tokens && t->splits_at_marks; id++)
        if (t->texts[id].len > 0 && has_mark_inside(t->texts[id]))
            t->splits_at_marks = false;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_table_close(&t->ordinary);
    special_list_close(&t->added);
    special_list_close(&t->normalized);
    merge_table_close(&t->merges);
    unigram_close(t->unigram);
    for (size_t i = 0; i < t->n_normal; i++)
        normal_step_close(&t->normal[i]);
    for (size_t i = 0; i < t->n_pre; i++)
        pre_step_close(&t->pre[i]);
    encoders_free(t->encoders);
    token_list_free(&t->before);
    token_list_free(&t->after);
    if (t->decoded != t->tokens)
        free(t->decoded);
    free(t->texts);
    free(t->tokens);
    free(t->firsts);
    free(t->types);
    free(t->ends);
    free(t->whole);
    free(t->ranks);
    arena_free(&t->strings);
    free(t);
}
