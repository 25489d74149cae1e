/* Finds the stored answers in a conversation. An assistant's message starts where the generation
 * prompt ended when it was sampled: somewhere in the template's text directly before it. So the
 * digest at each of those bytes is looked up in the store:
 *
 *   ... Hi<|im_end|>\n<|im_start|>assistant\n<think>\nHm, ...
 *         ▲         ▲▲            ▲▲▲▲▲▲▲▲▲▲▲▲▲▲▲▲▲▲              candidates
 *   [ 0 ][ template                               ][ message 1
 *
 * The ids that are found are compared with the text from the candidate on: special ids match where
 * the template wrote them, others where their bytes are. A match may extend over the template's
 * text and the message's own, never into another message or other data.
 *
 * Equal bytes are not enough for a special token: an answer that spells <|im_end|> was sampled as
 * text, and must not match the template's <|im_end|>. */
#include "prompt/prompt_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_LEAD_BYTES = 4096, /* of the template's text before a message that are searched */
    MAX_NEEDLE_BYTES = 32, /* of the rendering, to see how an answer was changed */
};

/* The part of the text that an answer may match. */
struct field {
    struct prompt_draft *d;
    int32_t message;
    size_t lead;    /* the first candidate */
    size_t own;     /* where the message's own text starts: the last candidate */
    size_t own_end; /* where it ends */
    size_t end;     /* where another source's text starts, or the rendering ends */
    const struct prompt_special *special; /* the first that ends after the candidate */
};

static struct field field_find(struct prompt_draft *d, size_t segment, size_t taken)
{
    const struct rendering *r = &d->rendering;
    const struct render_segment *s = r->segments;
    struct field f = {.d = d, .message = s[segment].source};
    f.own = segment ? s[segment - 1].end : 0;
    f.lead = f.own;
    if (segment && s[segment - 1].source == RENDER_TEMPLATE)
        f.lead = segment > 1 ? s[segment - 2].end : 0;
    if (f.own - f.lead > MAX_LEAD_BYTES)
        f.lead = f.own - MAX_LEAD_BYTES;
    if (f.lead < taken)
        f.lead = taken;
    for (size_t i = segment; i < r->n_segments; i++) {
        if (s[i].source != RENDER_TEMPLATE && s[i].source != f.message)
            break;
        f.end = s[i].end;
        if (s[i].source == f.message)
            f.own_end = f.end;
    }
    return f;
}

static const struct prompt_special *specials_end(const struct prompt_draft *d)
{
    return d->specials + d->n_specials;
}

/* Compares the answer's ids with the text from a candidate on. */
static struct prompt_span answer_walk(const struct field *f, size_t begin,
                                      struct replay_answer *answer)
{
    const struct tokenizer *t = f->d->tokenizer;
    const char *text = strbuf_str(&f->d->rendering.text);
    const struct prompt_special *special = f->special, *last = specials_end(f->d);
    struct prompt_span span = {
        .begin = begin, .end = begin, .answer = answer, .message = f->message};
    size_t n;
    const int32_t *ids = replay_answer_ids(answer, &n);
    bool is_after_special = begin == 0 || (special > f->d->specials && special[-1].end == begin);
    for (; span.n_ids < n; span.n_ids++) {
        int32_t id = ids[span.n_ids];
        size_t len, at = span.end;
        const char *bytes = tokenizer_bytes(t, id, &len);
        if (tokenizer_is_special(t, id)) {
            if (special == last || special->begin != at || special->id != id)
                break;
            span.end = special++->end;
            continue;
        }
        if (len == 0) /* no bytes to compare: padding, or not a token */
            break;
        bool leads = span.n_ids == 0 && is_after_special && tokenizer_adds_space(t) &&
                     bytes[0] == ' ' && text[at] != ' ';
        size_t end = at + len - leads;
        if (end > f->end || memcmp(text + at, bytes + leads, len - leads) != 0 ||
            (special < last && special->begin < end))
            break;
        span.end = end;
        span.leads_with_space |= leads;
    }
    return span;
}

/* ---- why it ended ---------------------------------------------------------------------------- */

/* The answer's text from the first mismatching id on, without special tokens. Returns how much of
 * it comes before the first special token. */
static size_t rest_spell(const struct tokenizer *t, const struct prompt_span *span,
                         struct strbuf *out)
{
    size_t n, len, run = SIZE_MAX;
    const int32_t *ids = replay_answer_ids(span->answer, &n);
    for (size_t i = span->n_ids; i < n; i++) {
        const char *bytes = tokenizer_bytes(t, ids[i], &len);
        if (!tokenizer_is_special(t, ids[i]))
            strbuf_add(out, bytes, len);
        else if (run == SIZE_MAX)
            run = out->len;
    }
    return run < out->len ? run : out->len;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* True if one of the two is a prefix of the other. An empty needle only matches empty text. */
static bool is_found_at(const char *sampled, size_t len, const char *needle, size_t needle_len)
{
    size_t common = len < needle_len ? len : needle_len;
    return len == 0 || (common && memcmp(sampled, needle, common) == 0);
}

/* True if the message continues later in the answer. `at_once`: also at its start, which happens if
 * a token without text was dropped. */
static bool is_found_later(const char *sampled, size_t len, const char *needle, size_t needle_len,
                           bool at_once)
{
    const char *found = memmem(sampled, len, needle, needle_len);
    return found && (found > sampled || at_once);
}

/* The number of leading bytes in which the first mismatching id matches. */
static size_t agreement_in_part(const struct field *f, const struct prompt_span *span)
{
    size_t n, len, common = 0;
    const int32_t *ids = replay_answer_ids(span->answer, &n);
    const char *bytes = tokenizer_bytes(f->d->tokenizer, ids[span->n_ids], &len);
    const char *text = strbuf_str(&f->d->rendering.text) + span->end;
    if (tokenizer_is_special(f->d->tokenizer, ids[span->n_ids]))
        return 0;
    while (common < len && span->end + common < f->end && bytes[common] == text[common])
        common++;
    return common;
}

static enum replay_stop stop_find(const struct field *f, const struct prompt_span *span)
{
    size_t n;
    replay_answer_ids(span->answer, &n);
    if (span->n_ids == n)
        return REPLAY_COMPLETE;
    struct strbuf *rest = &f->d->rest;
    strbuf_clear(rest);
    size_t run = rest_spell(f->d->tokenizer, span, rest);
    if (rest->failed) /* the prompt is correct anyway */
        return REPLAY_REWRITTEN;
    size_t common = agreement_in_part(f, span), at = span->end + common;
    const char *text = strbuf_str(&f->d->rendering.text);
    const char *sampled = strbuf_str(rest) + common;
    size_t spaces = 0, from = at > f->own ? at : f->own;
    while (spaces < run - common && is_space(sampled[spaces]))
        spaces++;
    size_t needle = from < f->own_end ? f->own_end - from : 0;
    if (needle > MAX_NEEDLE_BYTES)
        needle = MAX_NEEDLE_BYTES;
    if (spaces && is_found_at(sampled + spaces, run - common - spaces, text + from, needle))
        return REPLAY_TRIMMED;
    if (at >= f->own_end)
        return rest->len ? REPLAY_SHORTENED : REPLAY_ENDED;
    if (is_found_later(sampled, rest->len - common, text + from, needle, at == from))
        return REPLAY_STRIPPED;
    return REPLAY_REWRITTEN;
}

const char *replay_stop_name(enum replay_stop stop)
{
    static const char *const names[] = {"complete", "ended",     "trimmed",
                                        "stripped", "shortened", "rewritten"};
    return names[stop];
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The answer that matches furthest; in a tie, the one that starts first, then the newest. If no id
 * of any answer matches, one is still returned, so that it can be reported. */
static struct prompt_span span_search(struct field *f, const struct prompt_input *in,
                                      struct prefix_digest *digest)
{
    const char *text = strbuf_str(&f->d->rendering.text);
    struct prompt_span best = {0};
    for (size_t at = f->lead; at <= f->own; at++) {
        while (f->special < specials_end(f->d) && f->special->end <= at)
            f->special++;
        if (f->special < specials_end(f->d) && f->special->begin < at)
            continue;
        struct replay_answer *answers[REPLAY_MAX_ANSWERS];
        size_t n = replay_store_find(in->replay, in->ns, prefix_digest_at(digest, text, at),
                                     answers);
        for (size_t i = 0; i < n; i++) {
            struct prompt_span span = answer_walk(f, at, answers[i]);
            bool is_better = !best.answer || (span.n_ids && (!best.n_ids || span.end > best.end));
            replay_answer_release(is_better ? best.answer : answers[i]);
            if (is_better)
                best = span;
        }
    }
    if (best.answer)
        best.stop = stop_find(f, &best);
    return best;
}

static bool span_add(struct prompt_draft *d, const struct prompt_span *span)
{
    struct prompt_span *grown = prompt_grow(d->spans, sizeof *grown, d->n_spans,
                                            &d->spans_capacity);
    if (!grown)
        return false;
    d->spans = grown;
    d->spans[d->n_spans++] = *span;
    return true;
}

/* Finds the assistant's messages; false: out of memory. */
static bool assistants_find(const struct json *messages, struct strbuf *out)
{
    strbuf_clear(out);
    json_each (message, messages)
        strbuf_addc(out, json_equals(json_get(message, "role"), "assistant"));
    return !out->failed;
}

int prompt_find_spans(struct prompt_draft *d, const struct prompt_input *in,
                      struct prompt_digest *whole, struct error *err)
{
    const struct rendering *r = &d->rendering;
    struct prefix_digest digest;
    if (!assistants_find(in->messages, &d->assistants))
        return error_set(err, ERROR_MEMORY, "no memory for a conversation");
    prefix_digest_open(&digest, in->replay);
    int32_t before = RENDER_TEMPLATE; /* the last source other than the template */
    size_t taken = 0;                 /* the text up to here is covered by spans */
    const struct prompt_special *special = d->specials;
    int failed = 0;
    for (size_t i = 0; i < r->n_segments && !failed; i++) {
        int32_t source = r->segments[i].source;
        if (source == RENDER_TEMPLATE)
            continue;
        if (source != before && source >= 0 && (size_t)source < in->messages->count &&
            d->assistants.data[source]) {
            struct field f = field_find(d, i, taken);
            f.special = special;
            struct prompt_span span = span_search(&f, in, &digest);
            special = f.special;
            taken = span.answer ? span.end : taken;
            if (span.answer && !span_add(d, &span)) {
                replay_answer_release(span.answer);
                failed = error_set(err, ERROR_MEMORY, "no memory for a conversation");
            }
        }
        before = source;
    }
    *whole = prefix_digest_at(&digest, strbuf_str(&r->text), r->text.len);
    return failed;
}
