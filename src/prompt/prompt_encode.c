/* Turns a rendering, its special tokens and its replayed spans (prompt_internal.h) into ids, and
 * into the map of each token's source. A piece of text is encoded as a whole, whatever its sources,
 * because words are split from the joined text.
 *
 * After a span the text continues in the middle, so SentencePiece must not insert the space that
 * it puts before the first word after a special token. */
#include "prompt/prompt_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { TYPICAL_TOKEN_BYTES = 4 }; /* if it is less, the list of tokens grows once more */

void *prompt_grow(void *items, size_t item_size, size_t n, size_t *capacity)
{
    if (n < *capacity)
        return items;
    size_t grown = *capacity ? 2 * *capacity : 16;
    items = realloc(items, grown * item_size);
    if (items)
        *capacity = grown;
    return items;
}

static bool special_add(struct prompt_draft *d, struct prompt_special special)
{
    struct prompt_special *grown = prompt_grow(d->specials, sizeof *grown, d->n_specials,
                                               &d->specials_capacity);
    if (!grown)
        return false;
    d->specials = grown;
    d->specials[d->n_specials++] = special;
    return true;
}

int prompt_find_specials(struct prompt_draft *d, struct error *err)
{
    const struct rendering *r = &d->rendering;
    const char *text = strbuf_str(&r->text);
    size_t at = 0;
    for (size_t i = 0; i < r->n_segments; i++) {
        size_t end = r->segments[i].end;
        if (r->segments[i].source != RENDER_TEMPLATE)
            at = end;
        while (at < end) {
            int32_t id = tokenizer_special_at(d->tokenizer, text + at, end - at);
            size_t len = 1;
            if (id >= 0)
                tokenizer_bytes(d->tokenizer, id, &len);
            if (id >= 0 && tokenizer_is_special(d->tokenizer, id) && /* others match in any text */
                !special_add(d, (struct prompt_special){at, at + len, id}))
                return error_set(err, ERROR_MEMORY, "no memory for a conversation's tokens");
            at += len;
        }
    }
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

struct mapper {
    const struct prompt_draft *d;
    struct prompt *out;
    size_t capacity, segment;
};

static bool map_source(struct mapper *m, size_t token, int32_t source)
{
    struct prompt *out = m->out;
    if (out->n_map == 0 || out->map[out->n_map - 1].source != source) {
        struct prompt_run *grown = prompt_grow(out->map, sizeof *grown, out->n_map, &m->capacity);
        if (!grown)
            return false;
        out->map = grown;
        out->map[out->n_map++].source = source;
    }
    out->map[out->n_map - 1].token_end = token + 1;
    return true;
}

/* Adds the token that starts at this byte; called in order. */
static bool map_add(struct mapper *m, size_t token, size_t at)
{
    const struct rendering *r = &m->d->rendering;
    while (r->segments[m->segment].end <= at)
        m->segment++;
    return map_source(m, token, r->segments[m->segment].source);
}

/* Where the text continues after a token. A token's bytes may differ from the text it was made
 * from: a space may have been added before it, U+2581 is a space, a run of characters that the
 * vocabulary lacks is one unknown token, and a byte that it lacks is dropped. */
static size_t token_end(const struct tokenizer *t, const char *text, size_t at, size_t end,
                        int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    if (tokenizer_is_special(t, id)) {
        size_t width = 0;
        do {
            at += width;
            width = at < end ? utf8_valid_prefix(text + at, end - at) : 0;
        } while (width && tokenizer_find(t, text + at, width) < 0);
        return at;
    }
    for (size_t i = 0; i < len && at < end; i++) {
        while (end - at > 1 && text[at] != bytes[i] && tokenizer_find(t, text + at, 1) < 0 &&
               utf8_valid_prefix(text + at, end - at) <= 1)
            at++;
        if (text[at] == bytes[i])
            at++;
        else if (bytes[i] == ' ' && end - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0)
            at += 3;
    }
    return at;
}

/* Maps the tokens from `first` on, which were made from text[at .. end). */
static bool map_piece(struct mapper *m, size_t first, size_t at, size_t end)
{
    const char *text = strbuf_str(&m->d->rendering.text);
    for (size_t i = first; i < m->out->tokens.len; i++) {
        if (!map_add(m, i, at < end ? at : end - 1))
            return false;
        at = token_end(m->d->tokenizer, text, at, end, m->out->tokens.ids[i]);
    }
    return true;
}

static bool map_span(struct mapper *m, const struct prompt_span *span)
{
    size_t at = span->begin, len;
    for (size_t i = span->first_token; i < m->out->tokens.len; i++) {
        if (!map_add(m, i, at))
            return false;
        tokenizer_bytes(m->d->tokenizer, m->out->tokens.ids[i], &len);
        at += len - (i == span->first_token && span->leads_with_space);
    }
    return true;
}

/* ---- the tokens ------------------------------------------------------------------------------ */

static int no_memory(const struct prompt *out, struct error *err)
{
    return error_set(err, ERROR_MEMORY, "no memory for %zu tokens", out->tokens.len + 1);
}

/* After a control or user-defined token a new text starts. */
static int flags_after(const struct tokenizer *t, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    return tokenizer_special_at(t, bytes, len) == id ? 0 : TOKENIZE_CONTINUES;
}

static int piece_encode(struct mapper *m, bool want_map, size_t begin, size_t end, int flags,
                        struct error *err)
{
    struct prompt *out = m->out;
    const char *text = strbuf_str(&m->d->rendering.text);
    size_t first = out->tokens.len;
    if (tokenizer_encode(m->d->tokenizer, text + begin, end - begin, flags, &out->tokens, err))
        return -1;
    return want_map && !map_piece(m, first, begin, end) ? no_memory(out, err) : 0;
}

static int span_put(struct mapper *m, bool want_map, struct prompt_span *span, struct error *err)
{
    struct prompt *out = m->out;
    size_t n;
    const int32_t *ids = replay_answer_ids(span->answer, &n);
    span->first_token = out->tokens.len;
    if (!token_list_reserve(&out->tokens, span->n_ids))
        return no_memory(out, err);
    memcpy(out->tokens.ids + out->tokens.len, ids, span->n_ids * sizeof *ids);
    out->tokens.len += span->n_ids;
    out->n_replayed += span->n_ids;
    return want_map && !map_span(m, span) ? no_memory(out, err) : 0;
}

static int special_put(struct mapper *m, bool want_map, const struct prompt_special *special,
                       struct error *err)
{
    struct prompt *out = m->out;
    if (!token_list_add(&out->tokens, special->id) ||
        (want_map && !map_add(m, out->tokens.len - 1, special->begin)))
        return no_memory(out, err);
    return 0;
}

int prompt_encode(struct prompt_draft *d, bool want_map, struct prompt *out, struct error *err)
{
    struct mapper m = {.d = d, .out = out};
    struct prompt_span *span = d->spans, *spans_end = span + d->n_spans;
    const struct prompt_special *special = d->specials, *specials_end = special + d->n_specials;
    size_t at = 0, len = d->rendering.text.len;
    int flags = 0;
    if (!token_list_reserve(&out->tokens, len / TYPICAL_TOKEN_BYTES))
        return no_memory(out, err);
    if (want_map && out->tokens.len && !map_source(&m, out->tokens.len - 1, RENDER_TEMPLATE))
        return no_memory(out, err);
    while (at < len) {
        while (span < spans_end && span->n_ids == 0)
            span++;
        while (special < specials_end && special->begin < at) /* inside the span */
            special++;
        size_t end = special < specials_end ? special->begin : len;
        bool is_span = span < spans_end && span->begin <= end;
        if (is_span)
            end = span->begin;
        if (end > at && piece_encode(&m, want_map, at, end, flags, err))
            return -1;
        at = end;
        if (is_span) {
            if (span_put(&m, want_map, span, err))
                return -1;
            flags = flags_after(d->tokenizer, out->tokens.ids[out->tokens.len - 1]);
            at = span++->end;
        } else if (at < len) {
            if (special_put(&m, want_map, special, err))
                return -1;
            flags = 0;
            at = special++->end;
        }
    }
    return 0;
}
