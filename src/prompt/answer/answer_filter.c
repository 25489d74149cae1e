/* The phases of an answer; see answer_filter.h. Made on a worker, then the scheduler's alone until
 * the answer is done; nothing is allocated meanwhile. What a newcomer gets wrong: markers come as
 * one token or as many, so that phases end by bytes, never by a token's id alone. */
#include "prompt/answer/answer_filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum phase {
    PHASE_START,    /* thinking may begin, or not */
    PHASE_THINKING, /* until its end marker */
    PHASE_CLOSING,  /* the budget is spent: the end marker is being written */
    PHASE_TEXT,
    PHASE_GRAMMAR,
};

/* A marker that is looked for in the bytes as they come. */
struct marker {
    const char *text; /* NULL: nothing is looked for */
    size_t len;
    size_t matched;     /* of its first bytes stand at the end */
    uint16_t *fallback; /* [len] when byte i does not fit: how many still match */
    int32_t id;         /* the token that is the marker; -1: it has none */
};

struct answer_filter {
    struct token_filter base;
    struct answer_filter_options options;
    enum phase phase;
    struct marker begin, end; /* of thinking */
    struct marker trigger, forbidden;
    struct grammar_matcher *matcher; /* NULL: no grammar */
    int64_t thinking_left;           /* tokens; -1: any number */
    struct token_list closing;       /* the end marker's tokens, */
    size_t n_closed;                 /* and how many are written */
    uint64_t *mask;                  /* [n_words] what is made here */
    uint64_t *never;                 /* [n_words] tokens that have the forbidden text in them */
    struct token_list called;        /* the trigger's own tokens */
    uint32_t n_words;
};

/* ---- markers ---- */

static int marker_open(struct marker *m, const char *text, const struct tokenizer *t)
{
    *m = (struct marker){.text = text, .id = -1};
    if (!text)
        return 0;
    m->len = strlen(text);
    assert(m->len > 0 && m->len <= UINT16_MAX);
    m->id = tokenizer_find(t, text, m->len);
    m->fallback = calloc(m->len, sizeof *m->fallback);
    if (!m->fallback)
        return -1;
    for (size_t i = 1, k = 0; i < m->len; i++) {
        m->fallback[i] = (uint16_t)k;
        while (k && text[i] != text[k])
            k = m->fallback[k];
        k += text[i] == text[k];
    }
    return 0;
}

/* How many of the bytes it takes to complete the marker; 0: they do not. */
static size_t marker_feed(struct marker *m, const char *bytes, size_t len)
{
    for (size_t i = 0; m->text && i < len; i++) {
        while (m->matched && m->text[m->matched] != bytes[i])
            m->matched = m->fallback[m->matched];
        m->matched += m->text[m->matched] == bytes[i];
        if (m->matched == m->len) {
            m->matched = 0;
            return i + 1;
        }
    }
    return 0;
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
        if (memmem(bytes, len, f->forbidden.text, f->forbidden.len))
            set_bit(f->never, (int32_t)id);
    }
}

static enum phase text_phase(const struct answer_filter *f)
{
    return f->matcher && !f->options.trigger ? PHASE_GRAMMAR : PHASE_TEXT;
}

/* What is written for the model when it has thought enough: the marker on a line of its own, as
 * models write it themselves; in gpt-oss's channels the answer's own channel has to be opened too,
 * which a grammar does itself. */
static int closing_encode(struct answer_filter *f, struct error *err)
{
    const char *end = f->options.style->think_end;
    struct strbuf text = STRBUF_INIT;
    if (f->options.style->tools != TOOLS_HARMONY)
        strbuf_addf(&text, "\n%s\n\n", end);
    else
        strbuf_addf(
            &text, "%s%s", end,
            text_phase(f) == PHASE_GRAMMAR ? "" : "<|start|>assistant<|channel|>final<|message|>");
    int failed = text.failed ? error_set(err, ERROR_MEMORY, "no memory for an answer's filter")
                             : tokenizer_encode(f->options.tokenizer, strbuf_str(&text), text.len,
                                                TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES,
                                                &f->closing, err);
    strbuf_free(&text);
    return failed;
}

static enum phase first_phase(const struct answer_filter *f)
{
    if (f->options.begun && !f->options.starts_in_thinking)
        return text_phase(f);
    if (!f->options.style->think_begin || !f->options.style->think_end)
        return text_phase(f);
    if (!f->options.starts_in_thinking)
        return PHASE_START;
    return f->thinking_left == 0 ? PHASE_CLOSING : PHASE_THINKING;
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
    f->thinking_left = o->thinking_tokens;
    f->n_words = grammar_vocabulary_words(o->vocabulary);
    f->mask = calloc(f->n_words, sizeof *f->mask);
    f->never = calloc(f->n_words, sizeof *f->never);
    int failed = !f->mask || !f->never ||
                 marker_open(&f->begin, o->style->think_begin, o->tokenizer) ||
                 marker_open(&f->end, o->style->think_end, o->tokenizer) ||
                 marker_open(&f->trigger, o->trigger, o->tokenizer) ||
                 marker_open(&f->forbidden, o->forbidden, o->tokenizer);
    if (failed)
        error_set(err, ERROR_MEMORY, "no memory for an answer's filter");
    if (!failed && o->grammar)
        failed = grammar_matcher_open(&f->matcher, o->grammar, o->vocabulary, err);
    if (!failed && o->style->think_end && o->thinking_tokens >= 0)
        failed = closing_encode(f, err);
    if (!failed && o->trigger)
        failed = tokenizer_encode(o->tokenizer, o->trigger, f->trigger.len,
                                  TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES, &f->called, err);
    if (!failed && o->begun && f->matcher && !o->trigger &&
        !grammar_matcher_accept_bytes(f->matcher, o->begun, strlen(o->begun)))
        failed = error_set(err, ERROR_INPUT,
                           "the message that is to be continued does not fit what the answer must "
                           "be");
    if (failed) {
        answer_filter_close(f);
        return -1;
    }
    if (o->forbidden)
        never_fill(f);
    f->phase = first_phase(f);
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
    free(f->begin.fallback);
    free(f->end.fallback);
    free(f->trigger.fallback);
    free(f->forbidden.fallback);
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

/* All tokens but those that would complete the forbidden text. */
static const uint64_t *mask_without_forbidden(struct answer_filter *f)
{
    const struct marker *m = &f->forbidden;
    if (!m->text)
        return NULL;
    for (uint32_t i = 0; i < f->n_words; i++)
        f->mask[i] = ~f->never[i];
    const struct tokenizer *t = f->options.tokenizer;
    for (size_t k = m->matched; k; k = m->fallback[k]) {
        for (uint32_t id = 0; id < tokenizer_size(t); id++) {
            size_t len;
            const char *bytes = tokenizer_bytes(t, (int32_t)id, &len);
            if (len >= m->len - k && memcmp(bytes, m->text + k, m->len - k) == 0)
                f->mask[id / 64] &= ~(UINT64_C(1) << (id % 64));
        }
    }
    return f->mask;
}

/* An answer that has to have a form cannot end before that begins. */
static const uint64_t *mask_of_thinking(struct answer_filter *f)
{
    const uint64_t *ends = grammar_vocabulary_ends(f->options.vocabulary);
    if (text_phase(f) != PHASE_GRAMMAR)
        return NULL;
    for (uint32_t i = 0; i < f->n_words; i++)
        f->mask[i] = ~ends[i];
    return f->mask;
}

/* A call is never made up to be complete: half of one is better than a wrong one. */
static const uint64_t *mask_of_grammar(struct answer_filter *f, uint32_t n_left)
{
    return grammar_matcher_mask(f->matcher, f->options.ends_in_time ? n_left : UINT32_MAX);
}

/* The answer may begin with thinking, or with what the next phase takes. */
static const uint64_t *mask_at_start(struct answer_filter *f, uint32_t n_left)
{
    bool may_think = f->thinking_left != 0 && f->begin.id >= 0;
    if (text_phase(f) == PHASE_GRAMMAR) {
        const uint64_t *mask = mask_of_grammar(f, n_left);
        if (!may_think)
            return mask;
        memcpy(f->mask, mask, f->n_words * sizeof *f->mask);
        set_bit(f->mask, f->begin.id);
        return f->mask;
    }
    const uint64_t *mask = mask_without_forbidden(f);
    if (f->thinking_left != 0 || f->begin.id < 0)
        return mask;
    if (!mask)
        memset(f->mask, 0xff, f->n_words * sizeof *f->mask);
    f->mask[f->begin.id / 64] &= ~(UINT64_C(1) << (f->begin.id % 64));
    return f->mask;
}

static const uint64_t *filter_mask(struct token_filter *base, uint32_t n_left)
{
    struct answer_filter *f = (struct answer_filter *)base;
    switch (f->phase) {
    case PHASE_START: return mask_at_start(f, n_left);
    case PHASE_THINKING: return mask_of_thinking(f);
    case PHASE_CLOSING: return mask_of_one(f, f->closing.ids[f->n_closed]);
    case PHASE_TEXT: return mask_without_forbidden(f);
    case PHASE_GRAMMAR: return mask_of_grammar(f, n_left);
    }
    return NULL;
}

/* ---- what was chosen ---- */

static enum filter_verdict verdict(const struct answer_filter *f)
{
    bool is_over = f->phase == PHASE_GRAMMAR && grammar_matcher_must_end(f->matcher);
    return is_over ? FILTER_END : FILTER_GO_ON;
}

/* The grammar takes control tokens as tokens, and text as bytes. */
static bool take_as_it_is(struct answer_filter *f, int32_t token)
{
    const struct tokenizer *t = f->options.tokenizer;
    size_t len;
    const char *bytes = tokenizer_bytes(t, token, &len);
    return tokenizer_is_special(t, token) ? grammar_matcher_accept(f->matcher, token)
                                          : grammar_matcher_accept_bytes(f->matcher, bytes, len);
}

/* A call has begun: the grammar takes over, if what the last token has behind the trigger fits. */
static void take_trigger(struct answer_filter *f, const char *rest, size_t len)
{
    bool fits = true;
    grammar_matcher_reset(f->matcher);
    for (size_t i = 0; i < f->called.len && fits; i++)
        fits = take_as_it_is(f, f->called.ids[i]);
    if (fits && grammar_matcher_accept_bytes(f->matcher, rest, len))
        f->phase = PHASE_GRAMMAR;
}

static void take_text(struct answer_filter *f, const char *bytes, size_t len)
{
    marker_feed(&f->forbidden, bytes, len);
    size_t n = f->matcher ? marker_feed(&f->trigger, bytes, len) : 0;
    if (n)
        take_trigger(f, bytes + n, len - n);
}

/* Thinking is over; what of the token lies behind the marker is white space, or the next phase's.
 */
static void end_thinking(struct answer_filter *f, const char *rest, size_t len)
{
    f->phase = text_phase(f);
    while (len && strchr(" \t\r\n", *rest)) {
        rest++;
        len--;
    }
    if (f->phase == PHASE_TEXT)
        take_text(f, rest, len);
    else
        grammar_matcher_accept_bytes(f->matcher, rest, len);
}

static void take_thinking(struct answer_filter *f, const char *bytes, size_t len)
{
    size_t n = marker_feed(&f->end, bytes, len);
    if (n) {
        end_thinking(f, bytes + n, len - n);
        return;
    }
    if (f->thinking_left > 0 && --f->thinking_left == 0)
        f->phase = PHASE_CLOSING;
}

/* White space, then the marker, begins thinking; anything else is the next phase's already. */
static void take_start(struct answer_filter *f, int32_t token, const char *bytes, size_t len)
{
    size_t i = 0;
    while (i < len && f->begin.matched == 0 && strchr(" \t\r\n", bytes[i]))
        i++;
    while (i < len && f->begin.matched < f->begin.len &&
           bytes[i] == f->begin.text[f->begin.matched]) {
        f->begin.matched++;
        i++;
    }
    if (f->begin.matched == f->begin.len) {
        f->phase = f->thinking_left == 0 ? PHASE_CLOSING : PHASE_THINKING;
        return;
    }
    bool is_text = i < len;
    if (text_phase(f) == PHASE_GRAMMAR) {
        f->phase = PHASE_GRAMMAR;
        grammar_matcher_accept(f->matcher, token);
    } else {
        take_text(f, bytes, len);
        if (is_text && f->phase == PHASE_START)
            f->phase = PHASE_TEXT;
    }
}

static enum filter_verdict filter_accept(struct token_filter *base, int32_t token)
{
    struct answer_filter *f = (struct answer_filter *)base;
    size_t len;
    const char *bytes = tokenizer_bytes(f->options.tokenizer, token, &len);
    switch (f->phase) {
    case PHASE_START: take_start(f, token, bytes, len); break;
    case PHASE_THINKING: take_thinking(f, bytes, len); break;
    case PHASE_CLOSING:
        if (++f->n_closed == f->closing.len)
            f->phase = text_phase(f);
        return FILTER_WROTE;
    case PHASE_TEXT: take_text(f, bytes, len); break;
    case PHASE_GRAMMAR: grammar_matcher_accept(f->matcher, token); break;
    }
    return verdict(f);
}

static const uint64_t *filter_unhurried(struct token_filter *base)
{
    const struct answer_filter *f = (const struct answer_filter *)base;
    return f->phase == PHASE_GRAMMAR ? grammar_matcher_unhurried(f->matcher) : NULL;
}

static const struct token_filter_ops answer_filter_ops = {
    .mask = filter_mask, .unhurried = filter_unhurried, .accept = filter_accept};
