/* Makes the masks of filters: what a grammar allows next. Owned by the scheduler's thread. Most
 * masks take microseconds, but a hostile grammar's takes tens of milliseconds. So masks are made
 * within a part of each step, and a sequence whose mask is not ready waits while the others move
 * on.
 *
 *   budget   [ a moment for each │ what is left, at least a quarter: the slow ones, one by one ]
 *
 * A mask depends on the tokens alone, so it can be made before the row that gives its token. An
 * asynchronous engine leaves time for it while it computes; if a mask takes longer, the row is
 * computed again once the mask is there, and this sequence's masks are made before its rows from
 * then on. */
#include "sched/state.h"
#include "base/minmax.h"

#include "base/clock.h"

enum {
    MOMENT_NS = 300000,       /* a mask that takes longer is slow */
    LEAST_BUDGET_NS = 500000, /* for the masks of a step, */
    BUDGET_PART = 4,          /* or this part of the time that its batch takes */
};

bool mask_is_missing(const struct sequence *seq)
{
    return seq->request->filter && seq->request->max_tokens > 0 && !seq->has_mask;
}

/* Whether the mask comes before the row. A row cannot be computed again if that changes a state, or
 * if it is part of an image. */
static bool comes_first(const struct scheduler *s, const struct sequence *seq)
{
    return !s->engine->info.is_async || s->free_slots || seq->was_slow ||
           !cache_token_is_text(seq->tokens[seq->n_tokens - 1]);
}

bool mask_allows_row(const struct scheduler *s, const struct sequence *seq)
{
    return !mask_is_missing(seq) || !comes_first(s, seq);
}

/* Works on a mask until then; true if it is made. */
static bool make(struct scheduler *s, struct sequence *seq, uint64_t until_ns)
{
    struct token_filter *f = seq->request->filter;
    const uint32_t n_left = seq->capacity - seq->n_tokens;
    enum filter_progress progress = FILTER_READY;
    if (f->ops->make)
        progress = f->ops->make(f, n_left, until_ns);
    if (s->paused == seq)
        s->paused = NULL;
    if (progress == FILTER_PAUSED)
        s->paused = seq;
    seq->has_mask = progress == FILTER_READY;
    seq->is_slow = !seq->has_mask;
    seq->was_slow |= seq->is_slow;
    if (!seq->has_mask)
        return false;
    seq->mask = f->ops->mask(f, n_left);
    seq->masked_at = ++s->n_masks;
    return true;
}

void mask_forget(struct scheduler *s, struct sequence *seq)
{
    struct token_filter *f = seq->request->filter;
    if (s->paused != seq)
        return;
    s->paused = NULL;
    if (f->ops->drop)
        f->ops->drop(f);
}

bool mask_make_now(struct scheduler *s, struct sequence *seq)
{
    if (!mask_is_missing(seq) || make(s, seq, clock_now_ns() + MOMENT_NS))
        return true;
    mask_forget(s, seq);
    return false;
}

static uint64_t budget_ns(const struct scheduler *s)
{
    const struct step_work rows = {s->n_running, 0};
    const uint64_t part = (uint64_t)step_cost_predict(&s->cost, &rows) / BUDGET_PART;
    const uint64_t most = (uint64_t)s->options.step_budget_ms * 1000000 / BUDGET_PART;
    return max_u64(min_u64(part, most), LEAST_BUDGET_NS);
}

/* The slow one that is due: the one that has paused, else the one that has waited longest. */
static struct sequence *next_slow(const struct scheduler *s)
{
    struct sequence *first = s->paused;
    for (uint32_t i = 0; !s->paused && i < s->n_running; i++) {
        struct sequence *seq = s->running[i];
        if (seq->is_slow && mask_is_missing(seq) && !sequence_is_parked(seq) &&
            (!first || seq->masked_at < first->masked_at))
            first = seq;
    }
    return first;
}

/* Starts each time with another one, for the time may not suffice for all. */
static void make_quick(struct scheduler *s, uint64_t end_ns)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sequence *seq = s->running[(s->stats.steps + i) % s->n_running];
        if (seq->is_slow || !mask_is_missing(seq) || !comes_first(s, seq) ||
            sequence_is_parked(seq))
            continue;
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns)
            return;
        make(s, seq, now_ns + MOMENT_NS);
    }
}

static void make_slow(struct scheduler *s, uint64_t end_ns)
{
    for (struct sequence *seq; (seq = next_slow(s));)
        if (!make(s, seq, end_ns))
            return;
}

bool scheduler_make_masks(struct scheduler *s)
{
    const uint64_t budget = budget_ns(s), begin_ns = clock_now_ns();
    bool any = false;
    make_quick(s, begin_ns + budget);
    if (next_slow(s))
        make_slow(s, max_u64(begin_ns + budget, clock_now_ns() + budget / 4));
    for (uint32_t i = 0; i < s->n_running; i++)
        any |= !mask_allows_row(s, s->running[i]) && !sequence_is_parked(s->running[i]);
    return any;
}

void scheduler_make_masks_meanwhile(struct scheduler *s)
{
    const uint64_t end_ns = s->submitted_ns + (uint64_t)step_cost_predict(&s->cost, &s->work);
    for (uint32_t i = 0; i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        const uint64_t now_ns = clock_now_ns();
        if (seq->n_computed + seq->n_rows < seq->n_tokens || !mask_is_missing(seq))
            continue;
        if (now_ns < max_u64(end_ns, s->submitted_ns + LEAST_BUDGET_NS))
            make(s, seq, now_ns + MOMENT_NS);
        else
            seq->was_slow = true;
    }
}
