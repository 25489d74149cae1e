/* A sequence's copies of its state; see sequence.h. Owned by the scheduler's thread. */
#include <assert.h>

#include "sched/sequence.h"

void seq_state_add(struct sequence *seq, uint32_t side, uint32_t at, uint32_t page)
{
    assert(at >= seq->n_inserted && seq->sides[side].pages[at] == PAGE_NONE);
    seq->sides[side].pages[at] = page;
    seq->sides[side].n_copies++;
}

void seq_state_inserted(struct sequence *seq, uint32_t side)
{
    seq->sides[side].n_copies = 0;
}

void seq_state_release(struct sequence *seq, struct cache *cache, uint32_t side)
{
    struct seq_side *x = &seq->sides[side];
    for (uint32_t i = 0; i < seq->n_reserved; i++) {
        if (i >= seq->n_inserted && x->pages[i] != PAGE_NONE) {
            page_pool_give(&cache->sides[side].pool, (struct page_run){x->pages[i], 1});
            x->n_copies--;
        }
        x->pages[i] = PAGE_NONE;
    }
    assert(x->n_copies == 0);
}
