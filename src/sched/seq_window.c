/* A sequence's pages in a group of windowed layers; see sequence.h. Owned by the scheduler's
 * thread. Pages that a sequence inserts belong to the tree at once and are needed here only for the
 * length of the window. So its own pages are always the last ones, after those that were inserted.
 */
#include <assert.h>

#include "sched/sequence.h"

uint32_t seq_window_first(const struct sequence *seq, const struct cache *cache, uint32_t side)
{
    uint32_t before = cache->sides[side].before;
    return seq->n_computed > before ? seq->n_computed - before : 0;
}

uint32_t seq_window_need(const struct sequence *seq, const struct cache *cache, uint32_t side)
{
    uint32_t first = seq_window_first(seq, cache, side);
    return first < seq->n_inserted ? seq->n_inserted - first : 0;
}

void seq_window_begin(struct sequence *seq, const struct cache *cache, uint32_t side)
{
    struct seq_side *w = &seq->sides[side];
    uint32_t n = seq_window_need(seq, cache, side);
    if (n > 0)
        prefix_tree_side_pages(cache->tree, side, seq->node, n, w->pages + seq->n_matched - n);
    for (uint32_t i = 1; i <= n; i++)
        assert(w->pages[seq->n_matched - i] != PAGE_NONE);
    w->private_from = w->n_reserved = seq->n_matched;
    w->from = w->to = w->first_run = w->end_run = 0;
}

uint32_t seq_window_take(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t want)
{
    struct seq_side *w = &seq->sides[side];
    uint32_t got = 0;
    assert(want <= seq->capacity - w->n_reserved);
    while (got < want) {
        /* The page before may belong to the tree, or be gone; then any page will do. */
        uint32_t after = w->n_reserved > w->private_from ? w->pages[w->n_reserved - 1] : PAGE_NONE;
        struct page_run run = page_pool_take(&cache->sides[side].pool, want - got, after);
        if (run.count == 0)
            break;
        for (uint32_t i = 0; i < run.count; i++)
            w->pages[w->n_reserved++] = run.first + i;
        got += run.count;
    }
    return got;
}

/* Gives back the pages of positions [from, to), which are its own. */
static void give(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t from,
                 uint32_t to)
{
    struct page_run run = {0, 0};
    for (uint32_t i = from; i < to; i++) {
        uint32_t page = seq->sides[side].pages[i];
        seq->sides[side].pages[i] = PAGE_NONE;
        if (run.count && run.first + run.count == page) {
            run.count++;
            continue;
        }
        page_pool_give(&cache->sides[side].pool, run);
        run = (struct page_run){page, 1};
    }
    page_pool_give(&cache->sides[side].pool, run);
}

void seq_window_give_passed(struct sequence *seq, struct cache *cache, uint32_t side)
{
    uint32_t first = seq_window_first(seq, cache, side);
    if (first <= seq->sides[side].private_from)
        return;
    give(seq, cache, side, seq->sides[side].private_from, first);
    seq->sides[side].private_from = first;
}

void seq_window_give_spare(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t keep)
{
    uint32_t end = seq->n_computed + keep;
    if (seq->sides[side].n_reserved <= end)
        return;
    give(seq, cache, side, end, seq->sides[side].n_reserved);
    seq->sides[side].n_reserved = end;
}

void seq_window_set_runs(struct sequence *seq, const struct cache *cache, uint32_t side,
                         uint32_t length)
{
    struct seq_side *w = &seq->sides[side];
    uint32_t first = seq_window_first(seq, cache, side);
    assert(length <= w->n_reserved);
    if (w->from > first || w->to < first || w->to > length) { /* to > length: a batch failed */
        w->from = w->to = first;
        w->first_run = w->end_run = 0;
    }
    while (w->from < first) {
        struct page_run *run = &w->runs[w->first_run];
        uint32_t cut = first - w->from < run->count ? first - w->from : run->count;
        run->first += cut;
        run->count -= cut;
        w->from += cut;
        w->first_run += run->count == 0;
    }
    for (; w->to < length; w->to++) {
        uint32_t page = w->pages[w->to];
        struct page_run *run = w->end_run > w->first_run ? &w->runs[w->end_run - 1] : NULL;
        if (run && run->first + run->count == page)
            run->count++;
        else
            w->runs[w->end_run++] = (struct page_run){page, 1};
    }
}

void seq_window_inserted(struct sequence *seq, uint32_t side)
{
    struct seq_side *w = &seq->sides[side];
    w->private_from = seq->n_computed;
    w->from = w->to = w->first_run = w->end_run = 0; /* the tree may have replaced pages */
}

void seq_window_release(struct sequence *seq, struct cache *cache, uint32_t side)
{
    struct seq_side *w = &seq->sides[side];
    give(seq, cache, side, w->private_from, w->n_reserved);
}
