/* Window pages for the rows of a step. Owned by the scheduler's thread.
 *
 * Each running sequence is charged for what it always needs: the window before its next row, and a
 * run of pages for the next rows, or its longest region if that is more. A sequence is admitted
 * only if all charges fit into the pool, and everything else in the pool can be taken back. So a
 * row never waits for a window page, and nobody is preempted for one. Pages that prompts take
 * beyond the charge, to be computed in larger chunks, are interior or passed by the next step.
 *
 * Under pressure, pages are freed in this order: interior pages of the tree; pages that running
 * sequences have passed (which become interior too once they are in the tree, but are younger); the
 * tails of unused leaves, together with the leaves; finally, pages in the tree before the windows
 * of running sequences. */
#include "sched/state.h"
#include "base/minmax.h"

#include <assert.h>

static uint32_t charge(const struct scheduler *s, const struct sequence *seq, uint32_t side)
{
    const struct cache_side *x = &s->cache.sides[side];
    uint32_t rows = seq->regions.longest > x->run ? seq->regions.longest : x->run;
    return min_u32(seq->capacity, x->before + rows);
}

void window_charge(struct scheduler *s, const struct sequence *seq, bool is_over)
{
    for (uint32_t i = 0; i < s->cache.n_sides; i++) {
        if (!side_is_window(&s->cache, i))
            continue;
        uint32_t n = charge(s, seq, i);
        s->cache.sides[i].charged += is_over ? -n : n;
    }
}

bool window_has_room(const struct scheduler *s, const struct sequence *seq, bool without_yielding)
{
    for (uint32_t i = 0; i < s->cache.n_sides; i++) {
        uint32_t freed = 0;
        if (!side_is_window(&s->cache, i))
            continue;
        for (uint32_t k = 0; without_yielding && k < s->n_running; k++)
            if (s->running[k]->yields)
                freed += charge(s, s->running[k], i);
        const struct cache_side *x = &s->cache.sides[i];
        if (x->charged - freed + charge(s, seq, i) > x->pool.n_pages)
            return false;
    }
    return true;
}

/* What running sequences still need of the pages that they put into the tree. States are in their
 * slots, so none of those. */
uint32_t scheduler_list_needs(struct scheduler *s, uint32_t side)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sequence *seq = s->running[i];
        uint32_t need = side_is_window(&s->cache, side) ? seq_window_need(seq, &s->cache, side) : 0;
        if (seq->node != NODE_NONE)
            s->needs[n++] = (struct side_need){seq->node, need};
    }
    return n;
}

static void make_room(struct scheduler *s, uint32_t side, uint32_t n_pages)
{
    struct page_pool *pool = &s->cache.sides[side].pool;
    struct prefix_tree *tree = s->cache.tree;
    uint64_t start_ns = op_times_start(s->cache.times);
    prefix_tree_evict_interior(tree, side, n_pages - pool->n_free, s->now_ns);
    for (uint32_t i = 0; i < s->n_running && pool->n_free < n_pages; i++)
        seq_window_give_passed(s->running[i], &s->cache, side);
    if (pool->n_free < n_pages)
        prefix_tree_evict_tails(tree, side, n_pages - pool->n_free, s->needs,
                                scheduler_list_needs(s, side), s->now_ns);
    op_times_add(s->cache.times, OP_EVICT, op_times_since(s->cache.times, start_ns));
}

/* Takes window pages for rows before position `end`, as many as possible. */
static void reserve_to(struct scheduler *s, struct sequence *seq, uint32_t side, uint32_t end)
{
    uint32_t want = end - seq->sides[side].n_reserved;
    if (want > s->cache.sides[side].pool.n_free)
        make_room(s, side, want);
    seq_window_take(seq, &s->cache, side, want);
}

/* The rows that must be computed together next: one, or the next region. */
static uint32_t next_rows(const struct sequence *seq)
{
    const struct regions *r = &seq->regions;
    uint32_t next = regions_find(r, seq->n_computed);
    return next < r->n && r->spans[next].first == seq->n_computed ? r->spans[next].count : 1;
}

/* The most pages that a sequence may hold for future rows; it takes that many at a time. */
static uint32_t rows_ahead(const struct scheduler *s, const struct sequence *seq, uint32_t side)
{
    return min_u32(max_u32(s->cache.sides[side].run, next_rows(seq)),
                   seq->capacity - seq->n_computed);
}

static void reserve_side(struct scheduler *s, uint32_t side)
{
    /* Give back pages that were meant for a batch that failed. */
    for (uint32_t i = 0; i < s->n_running; i++)
        seq_window_give_spare(s->running[i], &s->cache, side, rows_ahead(s, s->running[i], side));
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sequence *seq = s->running[i];
        uint32_t least = seq->n_computed + next_rows(seq);
        if (seq->sides[side].n_reserved >= least || sequence_is_parked(seq))
            continue;
        reserve_to(s, seq, side, seq->n_computed + rows_ahead(s, seq, side));
        assert(seq->sides[side].n_reserved >= least);
    }
}

void scheduler_reserve_windows(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->cache.n_sides; i++)
        if (side_is_window(&s->cache, i))
            reserve_side(s, i);
}

/* Plans fewer rows if there are not enough pages, but never a part of a region: the sequence's
 * charge covers a region that comes first. */
static void reserve_rows(struct scheduler *s, struct sequence *seq, uint32_t side)
{
    const struct seq_side *x = &seq->sides[side];
    uint32_t end = seq->n_computed + seq->n_rows;
    if (end > x->n_reserved)
        reserve_to(s, seq, side, end);
    if (end <= x->n_reserved)
        return;
    seq->n_rows = regions_whole(&seq->regions, seq->n_computed, x->n_reserved - seq->n_computed);
    assert(seq->n_rows > 0);
}

void scheduler_reserve_rows(struct scheduler *s)
{
    for (uint32_t side = 0; side < s->cache.n_sides; side++)
        for (uint32_t i = 0; side_is_window(&s->cache, side) && i < s->n_planned; i++)
            reserve_rows(s, s->planned[i], side);
}
