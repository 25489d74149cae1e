/* The phases of an answer; see answer_filter.h. Made on a worker, then owned by the scheduler until
 * the answer is done; nothing is allocated meanwhile. An answer_cursor decides where phases start
 * and end, as in the parser, so both always agree.
 *
 * A marker may be one token or several, and its last token may contain text after it. */
#include "prompt/answer/answer_filter.h"

#include <stdlib.h>
#include <string.h>

#include "base/byte_matcher.h"
#include "prompt/answer/answer_internal.h"

enum phase {
    PHASE_THINKING, /* until its end marker */
    PHASE_CLOSING,  /* the budget is spent: the end marker is being written */
    PHASE_TEXT,
    PHASE_GRAMMAR,
};

struct answer_filter {
    struct token_filter base;
    struct answer_filter_options options;
    enum phase phase;
    bool has_begun;                  /* a token was accepted */
    struct answer_cursor cursor;     /* stops once a call or the grammar's text has started */
    struct call_marker trigger[2];   /* for the cursor; ended by a marker without text */
    int32_t begin_id;                /* the token of the mark that starts thinking; -1: none */
    struct byte_matcher forbidden;   /* no pattern: nothing is forbidden */
    uint32_t *fallback;              /* ... its table */
    struct grammar_matcher *matcher; /* NULL: no grammar */
    int64_t thinking_left;           /* tokens; -1: no limit */
    struct token_list closing;       /* the end marker's tokens, */
    size_t n_closed;                 /* and how many have been written */
    uint64_t *mask;                  /* [n_words] for masks made here */
    uint64_t *never;                 /* [n_words] tokens that contain the forbidden text */
    struct token_list called;        /* the trigger's own tokens */
    uint32_t n_words;
};

static int forbidden_open(struct answer_filter *f)
{
    if (!f->options.forbidden)
        return 0;
    const struct byte_view pattern = byte_view_of(f->options.forbidden);
    f->fallback = calloc(pattern.len, sizeof *f->fallback);
    if (!f->fallback)
        return -1;
    byte_matcher_init(&f->forbidden, pattern, f->fallback);
    return 0;
}

static void forbidden_feed(struct answer_filter *f, const char *bytes, size_t len)
{
    for (size_t i = 0; f->options.forbidden && i < len; i++)
        if (byte_matcher_add(&f->forbidden, bytes[i]))
            f->forbidden.matched = 0;
}

/* ---- open and close ---- */

bool answer_filter_is_needed(const struct answer_filter_options *o)
{
    bool thinks = o->style->think_end && o->thinking_tokens >= 0;
    return o->grammar || o->forbidden || thinks;
}

static void set_bit(uint64_t *mask, int32_t id)
{
    mask[id / 64] |= UINT64_C(1) << (id % 64);
}

static void never_fill(struct answer_filter *f)
{
    const struct tokenizer *t = f->options.tokenizer;
    for (uint32_t id = 0; id < tokenizer_size(t); id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, (int32_t)id, &len);
        if (memmem(bytes, len, f->forbidden.pattern.bytes, f->forbidden.pattern.len))
            set_bit(f->never, (int32_t)id);
    }
}

static enum phase text_phase(const struct answer_filter *f)
{
    return f->matcher && !f->options.trigger ? PHASE_GRAMMAR : PHASE_TEXT;
}

/* What is written for the model when its thinking budget is spent: the marker on its own line, as
 * models write it. With gpt-oss's channels the answer's channel must be opened too, unless a
 * grammar does that. */
static int closing_encode(struct answer_filter *f, struct error *err)
{
    const char *end = f->options.style->think_end;
    struct strbuf text = STRBUF_INIT;
    if (f->options.style->tools != TOOLS_HARMONY)
        strbuf_addf(&text, "\n%s\n\n", end);
    else
        strbuf_addf(&text, "%s%s", end,
                    text_phase(f) == PHASE_GRAMMAR ? "" : HARMONY_ROLE HARMONY_FINAL);
    int failed = text.failed ? error_set(err, ERROR_MEMORY, "no memory for an answer's filter")
                             : tokenizer_encode(f->options.tokenizer, strbuf_str(&text), text.len,
                                                TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES,
                                                &f->closing, err);
    strbuf_free(&text);
    return failed;
}

/* Starts the grammar and feeds it the existing start of the answer. */
static bool grammar_begin(struct answer_filter *f)
{
    const char *begun = f->options.begun;
    grammar_matcher_reset(f->matcher);
    return !begun || f->options.trigger ||
           grammar_matcher_accept_bytes(f->matcher, begun, strlen(begun));
}

static void cursor_open(struct answer_filter *f)
{
    const struct answer_filter_options *o = &f->options;
    bool waits = f->matcher && o->trigger;
    f->trigger[0] = (struct call_marker){
        .text = waits ? o->trigger : NULL,
        .place = o->style->tools == TOOLS_HARMONY ? MARKER_IN_HEADER : MARKER_ANYWHERE};
    answer_cursor_open(&f->cursor, o->style, f->trigger, o->starts_in_thinking);
    f->phase = text_phase(f);
    if (answer_cursor_thinks(&f->cursor))
        f->phase = f->thinking_left == 0 ? PHASE_CLOSING : PHASE_THINKING;
}

static const struct token_filter_ops answer_filter_ops;

int answer_filter_open(struct answer_filter **out, const struct answer_filter_options *o,
                       struct error *err)
{
    struct answer_filter *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, ERROR_MEMORY, "no memory for an answer's filter");
    f->base.ops = &answer_filter_ops;
    f->options = *o;
    f->thinking_left = o->style->think_end ? o->thinking_tokens : -1;
    f->n_words = grammar_vocabulary_words(o->vocabulary);
    f->mask = calloc(f->n_words, sizeof *f->mask);
    f->never = calloc(f->n_words, sizeof *f->never);
    int failed = !f->mask || !f->never || forbidden_open(f);
    if (failed)
        error_set(err, ERROR_MEMORY, "no memory for an answer's filter");
    if (!failed && o->grammar)
        failed = grammar_matcher_open(&f->matcher, o->grammar, o->vocabulary, err);
    if (!failed && o->style->think_end && o->thinking_tokens >= 0)
        failed = closing_encode(f, err);
    if (!failed && o->trigger)
        failed = tokenizer_encode(o->tokenizer, o->trigger, strlen(o->trigger),
                                  TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES, &f->called, err);
    if (!failed && f->matcher && !grammar_begin(f))
        failed = error_set(
            err, ERROR_INPUT,
            "the message to be continued does not match the grammar or schema of the "
            "answer");
    if (failed) {
        answer_filter_close(f);
        return -1;
    }
    if (o->forbidden)
        never_fill(f);
    const char *begin = o->style->think_begin;
    f->begin_id = begin ? tokenizer_find(o->tokenizer, begin, strlen(begin)) : -1;
    cursor_open(f);
    *out = f;
    return 0;
}

void answer_filter_close(struct answer_filter *f)
{
    if (!f)
        return;
    grammar_matcher_close(f->matcher);
    token_list_free(&f->closing);
    token_list_free(&f->called);
    free(f->fallback);
    free(f->mask);
    free(f->never);
    free(f);
}

struct token_filter *answer_filter_base(struct answer_filter *f)
{
    return f ? &f->base : NULL;
}

/* ---- masks ---- */

static const uint64_t *mask_of_one(struct answer_filter *f, int32_t id)
{
    memset(f->mask, 0, f->n_words * sizeof *f->mask);
    set_bit(f->mask, id);
    return f->mask;
}

/* All tokens except those that would complete the forbidden text. */
static const uint64_t *mask_without_forbidden(struct answer_filter *f)
{
    const struct byte_matcher *m = &f->forbidden;
    if (!f->options.forbidden)
        return NULL;
    for (uint32_t i = 0; i < f->n_words; i++)
        f->mask[i] = ~f->never[i];
    const struct tokenizer *t = f->options.tokenizer;
    for (size_t k = m->matched; k; k = m->fallback[k]) {
        const struct byte_view rest = {m->pattern.bytes + k, m->pattern.len - k};
        for (uint32_t id = 0; id < tokenizer_size(t); id++) {
            struct byte_view token;
            token.bytes = tokenizer_bytes(t, (int32_t)id, &token.len);
            if (byte_view_starts(token, rest))
                f->mask[id / 64] &= ~(UINT64_C(1) << (id % 64));
        }
    }
    return f->mask;
}

/* An answer with a required form cannot end before the form starts. */
static const uint64_t *mask_of_thinking(struct answer_filter *f)
{
    const uint64_t *ends = grammar_vocabulary_ends(f->options.vocabulary);
    if (text_phase(f) != PHASE_GRAMMAR)
        return NULL;
    for (uint32_t i = 0; i < f->n_words; i++)
        f->mask[i] = ~ends[i];
    return f->mask;
}

/* True if thinking may still start: there was only white space so far. A grammar's text starts with
 * its first token, whatever that is, and a continued answer has already started. */
static bool is_at_start(const struct answer_filter *f)
{
    return f->begin_id >= 0 && f->cursor.region == REGION_START && !f->options.begun &&
           (f->phase == PHASE_TEXT || !f->has_begun);
}

static const uint64_t *mask_of_text(struct answer_filter *f)
{
    const uint64_t *mask = mask_without_forbidden(f);
    if (f->thinking_left != 0 || !is_at_start(f))
        return mask;
    if (!mask)
        memset(f->mask, 0xff, f->n_words * sizeof *f->mask);
    f->mask[f->begin_id / 64] &= ~(UINT64_C(1) << (f->begin_id % 64));
    return f->mask;
}

/* Calls are never completed for the model: an incomplete call is better than a wrong one. */
static uint32_t grammar_left(const struct answer_filter *f, uint32_t n_left)
{
    return f->options.ends_in_time ? n_left : UINT32_MAX;
}

static const uint64_t *mask_of_grammar(struct answer_filter *f, uint32_t n_left)
{
    const uint64_t *mask = grammar_matcher_mask(f->matcher, grammar_left(f, n_left));
    if (f->thinking_left == 0 || !is_at_start(f))
        return mask;
    memcpy(f->mask, mask, f->n_words * sizeof *f->mask);
    set_bit(f->mask, f->begin_id);
    return f->mask;
}

static const uint64_t *filter_mask(struct token_filter *base, uint32_t n_left)
{
    struct answer_filter *f = (struct answer_filter *)base;
    switch (f->phase) {
    case PHASE_THINKING: return mask_of_thinking(f);
    case PHASE_CLOSING: return mask_of_one(f, f->closing.ids[f->n_closed]);
    case PHASE_TEXT: return mask_of_text(f);
    case PHASE_GRAMMAR: return mask_of_grammar(f, n_left);
    }
    return NULL;
}

static enum filter_progress filter_make(struct token_filter *base, uint32_t n_left,
                                        uint64_t until_ns)
{
    struct answer_filter *f = (struct answer_filter *)base;
    if (f->phase != PHASE_GRAMMAR)
        return FILTER_READY;
    switch (grammar_matcher_make(f->matcher, grammar_left(f, n_left), until_ns)) {
    case GRAMMAR_READY: break;
    case GRAMMAR_PAUSED: return FILTER_PAUSED;
    case GRAMMAR_BUSY: return FILTER_BUSY;
    }
    return FILTER_READY;
}

static void filter_drop(struct token_filter *base)
{
    struct answer_filter *f = (struct answer_filter *)base;
    if (f->matcher)
        grammar_matcher_drop(f->matcher);
}

/* ---- accepting tokens ---- */

static enum filter_verdict verdict(const struct answer_filter *f)
{
    bool is_over = f->phase == PHASE_GRAMMAR && grammar_matcher_must_end(f->matcher);
    return is_over ? FILTER_END : FILTER_GO_ON;
}

/* The grammar accepts control tokens as tokens, and text as bytes. */
static bool take_as_it_is(struct answer_filter *f, int32_t token)
{
    const struct tokenizer *t = f->options.tokenizer;
    size_t len;
    const char *bytes = tokenizer_bytes(t, token, &len);
    return tokenizer_is_special(t, token) ? grammar_matcher_accept(f->matcher, token)
                                          : grammar_matcher_accept_bytes(f->matcher, bytes, len);
}

/* A call has started: the grammar takes over, if the rest of the last token after the trigger
 * fits. */
static void take_trigger(struct answer_filter *f, const char *rest, size_t len)
{
    bool fits = true;
    grammar_matcher_reset(f->matcher);
    for (size_t i = 0; i < f->called.len && fits; i++)
        fits = take_as_it_is(f, f->called.ids[i]);
    if (fits && grammar_matcher_accept_bytes(f->matcher, rest, len))
        f->phase = PHASE_GRAMMAR;
}

/* Thinking is over: the rest of the token after the marker is white space or belongs to the
 * grammar. So does a held mark that starts gpt-oss's next message. */
static void grammar_take_rest(struct answer_filter *f, int32_t token, const char *rest, size_t len)
{
    f->phase = PHASE_GRAMMAR;
    if (f->cursor.n_held && tokenizer_is_special(f->options.tokenizer, token)) {
        grammar_matcher_accept(f->matcher, token);
        return;
    }
    while (len && answer_is_space(*rest)) {
        rest++;
        len--;
    }
    if (grammar_matcher_accept_bytes(f->matcher, f->cursor.held, f->cursor.n_held))
        grammar_matcher_accept_bytes(f->matcher, rest, len);
}

/* Moves the cursor over a token's bytes and updates the phase. */
static void take_bytes(struct answer_filter *f, int32_t token, const char *bytes, size_t len)
{
    enum answer_event event;
    size_t used = 0;
    do {
        bool thought = answer_cursor_thinks(&f->cursor);
        size_t begin = used;
        event = answer_cursor_read(&f->cursor, bytes, len, &used);
        bool thinks = answer_cursor_thinks(&f->cursor);
        if (!thought)
            forbidden_feed(f, bytes + begin, used - begin);
        if (thinks && !thought) {
            f->phase = PHASE_THINKING;
            f->forbidden.matched = 0;
            if (f->matcher)
                grammar_begin(f);
        } else if (thought && !thinks) {
            f->phase = text_phase(f);
            if (f->phase == PHASE_GRAMMAR) {
                grammar_take_rest(f, token, bytes + used, len - used);
                return;
            }
        } else if (event == EVENT_CALL) {
            take_trigger(f, bytes + used, len - used);
        }
    } while (event && f->phase != PHASE_GRAMMAR);
}

/* A grammar's text may still turn out to be the mark that starts thinking, which is not part of
 * it. */
static void take_grammar(struct answer_filter *f, int32_t token, const char *bytes, size_t len)
{
    if (!f->options.trigger && f->cursor.region == REGION_START)
        take_bytes(f, token, bytes, len);
    if (f->phase == PHASE_GRAMMAR)
        grammar_matcher_accept(f->matcher, token);
}

/* The cursor also sees what is written for the model. */
static void take_closing(struct answer_filter *f, const char *bytes, size_t len)
{
    for (size_t used = 0; answer_cursor_read(&f->cursor, bytes, len, &used);)
        continue;
    if (++f->n_closed < f->closing.len)
        return;
    f->phase = text_phase(f);
    if (answer_cursor_thinks(&f->cursor)) /* the vocabulary cannot spell the mark */
        answer_cursor_go(&f->cursor, REGION_OPENING);
}

/* The budget counts whole tokens, except the one that starts the thinking. */
static void count_thinking(struct answer_filter *f, bool thought)
{
    if (f->phase != PHASE_THINKING)
        return;
    if (thought && f->thinking_left > 0)
        f->thinking_left--;
    if (f->thinking_left == 0) {
        f->phase = PHASE_CLOSING;
        f->n_closed = 0;
    }
}

/* The bytes that a token adds to the answer, as in token_table_make. */
static const char *shown_bytes(const struct answer_filter *f, int32_t token, size_t *len)
{
    const char *bytes = tokenizer_bytes(f->options.tokenizer, token, len);
    if (tokenizer_is_special(f->options.tokenizer, token) &&
        !answer_style_is_marker(f->options.style, bytes, *len))
        *len = 0;
    return bytes;
}

static enum filter_verdict filter_accept(struct token_filter *base, int32_t token)
{
    struct answer_filter *f = (struct answer_filter *)base;
    size_t len;
    const char *bytes = shown_bytes(f, token, &len);
    bool thought = f->phase == PHASE_THINKING;
    switch (f->phase) {
    case PHASE_THINKING:
    case PHASE_TEXT: take_bytes(f, token, bytes, len); break;
    case PHASE_GRAMMAR: take_grammar(f, token, bytes, len); break;
    case PHASE_CLOSING: take_closing(f, bytes, len); return FILTER_WROTE;
    }
    count_thinking(f, thought);
    f->has_begun = true;
    return verdict(f);
}

static const uint64_t *filter_unhurried(struct token_filter *base)
{
    const struct answer_filter *f = (const struct answer_filter *)base;
    return f->phase == PHASE_GRAMMAR ? grammar_matcher_unhurried(f->matcher) : NULL;
}

static const struct token_filter_ops answer_filter_ops = {.make = filter_make,
                                                          .drop = filter_drop,
                                                          .mask = filter_mask,
                                                          .unhurried = filter_unhurried,
                                                          .accept = filter_accept};
