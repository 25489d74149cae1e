/* The tokenizer's front: opening and closing, encoding a text run by run, and the way back.
 * A tokenizer never changes once it is open, but for the encoders that it keeps: what an encoding
 * changes lives in the one that it took. */
#include "prompt/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Symbols and heap entries count bytes of a run in 32 bits. */
enum { MAX_TEXT_BYTES = 1 << 30 };

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

/* How many bytes of the text are valid UTF-8; eight of ASCII at a time. */
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

/* Valid UTF-8 is cut into words by the pre-tokeniser; a row of bytes that are not is one word. */
int encode_bpe(struct encoder *e, const char *text, size_t len)
{
    while (len > 0) {
        size_t valid = valid_prefix(text, len);
        for (size_t at = 0, end; at < valid; at = end) {
            end = pre_tokenizer_word(e->t->pre, text, valid, at);
            if (encode_word(e, text + at, end - at) != 0)
                return -1;
        }
        size_t end = valid;
        while (end < len && utf8_valid_prefix(text + end, len - end) == 0)
            end++;
        if (end > valid && encode_word(e, text + valid, end - valid) != 0)
            return -1;
        text += end;
        len -= end;
    }
    return 0;
}

static int encode_bytes(struct encoder *e, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (encoder_add(e, e->t->byte_ids[(unsigned char)text[i]]) != 0)
            return -1;
    return 0;
}

static int encode_run(struct encoder *e, const char *text, size_t len, bool after_special)
{
    switch (e->t->kind) {
    case TOKENIZER_BPE: return encode_bpe(e, text, len);
    case TOKENIZER_SPM: return encode_spm(e, text, len, after_special);
    case TOKENIZER_BYTES: break;
    }
    return encode_bytes(e, text, len);
}

static int encode_text(struct encoder *e, const char *text, size_t len, int flags)
{
    const struct special_list *list = flags & TOKENIZE_PARSE_SPECIAL ? &e->t->control : &e->t->user;
    size_t run = 0; /* where the text begins that is not encoded yet */
    bool after_special = !(flags & TOKENIZE_CONTINUES);
    for (size_t at = 0; (at += special_list_skip(list, text + at, len - at)) < len;) {
        int32_t id = special_list_match(list, e->t, text + at, len - at);
        if (id < 0) {
            at++;
            continue;
        }
        if (at > run && encode_run(e, text + run, at - run, after_special) != 0)
            return -1;
        if (encoder_add(e, id) != 0)
            return -1;
        at += e->t->tokens[id].len;
        run = at;
        after_special = true;
    }
    return len > run ? encode_run(e, text + run, len - run, after_special) : 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags,
                     struct token_list *out, struct error *err)
{
    if (len > MAX_TEXT_BYTES)
        return error_set(err, ERROR_LIMIT, "a text of %zu bytes is too long: at most %d", len,
                         MAX_TEXT_BYTES);
    struct encoder *e = encoder_take(t->encoders);
    if (!e)
        return error_set(err, ERROR_MEMORY, "no memory for a text of %zu bytes", len);
    e->t = t;
    e->out = out;
    e->err = err;
    size_t before = out->len;
    int status = 0;
    if (flags & TOKENIZE_ADD_SPECIAL && t->add_bos && t->bos >= 0)
        status = encoder_add(e, t->bos);
    if (status == 0)
        status = encode_text(e, text, len, flags);
    if (status == 0 && flags & TOKENIZE_ADD_SPECIAL && t->add_eos && t->eos >= 0)
        status = encoder_add(e, t->eos);
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

int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, size_t len)
{
    if (len == 0)
        return -1;
    int32_t id = special_list_match(&t->control, t, bytes, len);
    if (id >= 0 && t->tokens[id].len == len)
        return id;
    id = vocab_table_find(&t->ordinary, bytes, len);
    return id < 0 && len == 1 ? t->byte_ids[(unsigned char)bytes[0]] : id;
}

int32_t tokenizer_special_at(const struct tokenizer *t, const char *text, size_t len)
{
    return len ? special_list_match(&t->control, t, text, len) : -1;
}

const char *tokenizer_chat_template(const struct tokenizer *t, size_t *len)
{
    *len = t->chat_template_len;
    return t->chat_template;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                      struct strbuf *out)
{
    bool drop_space = t->add_space_prefix;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], &len);
        if (tokenizer_is_special(t, ids[i])) {
            if (special)
                strbuf_add(out, bytes, len);
            continue;
        }
        size_t skip = drop_space && len > 0 && bytes[0] == ' ';
        strbuf_add(out, bytes + skip, len - skip);
        drop_space = drop_space && len == 0;
    }
}

int tokenizer_list_specials(struct tokenizer *t, struct error *err)
{
    unsigned user = 1u << TOKEN_USER_DEFINED;
    unsigned control = user | 1u << TOKEN_CONTROL | 1u << TOKEN_UNKNOWN;
    if (special_list_open(&t->user, t, user, err) != 0)
        return -1;
    return special_list_open(&t->control, t, control, err);
}

struct tokenizer *tokenizer_new(enum tokenizer_kind kind, uint32_t n, size_t n_bytes,
                                struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (t) {
        t->kind = kind;
        t->n_tokens = n;
        t->bos = t->eos = t->unknown = -1;
        memset(t->byte_ids, 0xff, sizeof t->byte_ids);
        t->tokens = calloc(n, sizeof *t->tokens);
        t->types = calloc(n, 1);
        t->ends = calloc(n, 1);
        t->whole = calloc(n, 1);
        t->blob = malloc(n_bytes + 1);
        t->encoders = calloc(1, sizeof *t->encoders);
        if (t->tokens && t->types && t->ends && t->whole && t->blob && t->encoders &&
            vocab_table_open(&t->ordinary, t->tokens, n, err) == 0)
            return t;
    }
    tokenizer_close(t);
    error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %u tokens", n);
    return NULL;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_table_close(&t->ordinary);
    special_list_close(&t->control);
    special_list_close(&t->user);
    merge_table_close(&t->merges);
    pre_tokenizer_close(t->pre);
    encoders_free(t->encoders);
    free(t->tokens);
    free(t->blob);
    free(t->types);
    free(t->ends);
    free(t->whole);
    free(t->ranks);
    free(t->chat_template);
    free(t);
}
