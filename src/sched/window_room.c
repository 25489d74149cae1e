/* Window pages for the rows of a step. Owned by the scheduler's thread.
 *
 * Each running sequence is charged for what it can never do without: the window before its next row
 * and a run of pages for the rows to come. It is only admitted where all charges fit into the pool,
 * and everything else in the pool can be taken, so a row never waits for a window page and nobody
 * is preempted for one. What prompts take beyond the charge, to be computed in larger chunks, is
 * interior or passed by the next step.
 *
 * Under pressure go, in this order: interior pages of the tree, pages that running sequences have
 * passed (interior too, once they are in the tree, but younger), the tails of leaves that nobody
 * uses, with the leaves, and at last what is in the tree above the windows of those who run. */
#include "sched/state.h"

#include <assert.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t window_charge(const struct scheduler *s, const struct sequence *seq)
{
    if (s->cache.window == 0)
        return 0;
    return min_u32(seq->capacity, s->cache.window - 1 + s->window_run);
}

bool window_has_room(const struct scheduler *s, const struct sequence *seq, uint32_t freed)
{
    return s->window_charged - freed + window_charge(s, seq) <= s->cache.window_pool.n_pages;
}

/* What all who run need of what they have put into the tree. */
static uint32_t list_needs(struct scheduler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sequence *seq = s->running[i];
        if (seq->node != NODE_NONE)
            s->needs[n++] = (struct side_need){seq->node, seq_window_need(seq, &s->cache)};
    }
    return n;
}

static void make_room(struct scheduler *s, uint32_t n_pages)
{
    struct page_pool *pool = &s->cache.window_pool;
    struct prefix_tree *tree = s->cache.tree;
    uint64_t start_ns = op_times_start(s->cache.times);
    prefix_tree_evict_interior(tree, 0, n_pages - pool->n_free, s->now_ns);
    for (uint32_t i = 0; i < s->n_running && pool->n_free < n_pages; i++)
        seq_window_give_passed(s->running[i], &s->cache);
    if (pool->n_free < n_pages)
        prefix_tree_evict_tails(tree, 0, n_pages - pool->n_free, s->needs, list_needs(s),
                                s->now_ns);
    op_times_add(s->cache.times, OP_EVICT, op_times_since(s->cache.times, start_ns));
}

/* Takes window pages for rows up to, and without, the position `end`, as many as there can be. */
static void reserve_to(struct scheduler *s, struct sequence *seq, uint32_t end)
{
    uint32_t want = end - seq->window.n_reserved;
    if (want > s->cache.window_pool.n_free)
        make_room(s, want);
    seq_window_take(seq, &s->cache, want);
}

void scheduler_reserve_window(struct scheduler *s)
{
    if (s->cache.window == 0)
        return;
    /* What a batch that failed was to fill. */
    for (uint32_t i = 0; i < s->n_running; i++)
        seq_window_give_spare(s->running[i], &s->cache, s->window_run);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sequence *seq = s->running[i];
        if (seq->window.n_reserved > seq->n_computed || sequence_is_parked(seq))
            continue;
        reserve_to(s, seq,
                   seq->n_computed + min_u32(seq->capacity - seq->n_computed, s->window_run));
        assert(seq->window.n_reserved > seq->n_computed);
    }
}

void scheduler_reserve_rows(struct scheduler *s)
{
    for (uint32_t i = 0; s->cache.window > 0 && i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        uint32_t end = seq->n_computed + seq->n_rows;
        if (end > seq->window.n_reserved)
            reserve_to(s, seq, end);
        seq->n_rows = min_u32(seq->n_rows, seq->window.n_reserved - seq->n_computed);
    }
}
