/* Sequences of a model whose layers keep a state. Owned by the scheduler's thread.
 *
 * A running sequence has its live state in a slot of the engine. The tree has copies of states, at
 * the few positions where they are most useful:
 *
 *   prompt  [ system prompt │ question          . ] answer ...  ]
 *                           ▲                   ▲               ▲
 *             where sequences diverged   before its last   where it ended
 *                                        token
 *
 * An identical prompt resumes before its last token, because that token must be computed for its
 * logits. Copies at intervals are made only if there is room; the others may evict older copies,
 * and the leaves that those belong to. A copy is never required: without one, the sequence is
 * computed from an earlier copy, or from its start.
 *
 * A batch that fails leaves its slots undefined. Its sequences start over from what the tree has.
 */
#include "sched/state.h"

#include <assert.h>

#include "base/log.h"

static struct page_pool *copy_pool(struct scheduler *s)
{
    return &s->cache.sides[s->state_side].pool;
}

/* A page for a copy, or PAGE_NONE. `pushes`: it may evict an older copy, starting with those that
 * no sequence resumes from. */
static uint32_t take_page(struct scheduler *s, bool pushes)
{
    struct page_pool *pool = copy_pool(s);
    if (pool->n_free == 0 && pushes)
        prefix_tree_evict_interior(s->cache.tree, s->state_side, 1, s->now_ns);
    if (pool->n_free == 0 && pushes)
        prefix_tree_evict_tails(s->cache.tree, s->state_side, 1, s->needs,
                                scheduler_list_needs(s, s->state_side), s->now_ns);
    struct page_run run = page_pool_take(pool, 1, PAGE_NONE);
    return run.count ? run.first : PAGE_NONE;
}

static int copy_state(struct scheduler *s, enum state_place from_place, uint32_t from,
                      enum state_place to_place, uint32_t to, struct error *err)
{
    struct state_copy copy = {from_place, to_place, from, to};
    if (engine_copy_states(s->engine, &copy, 1, err) == 0)
        return 0;
    s->is_lost |= err->code == ERROR_DEVICE;
    return -1;
}

void state_begin(struct scheduler *s, struct sequence *seq, const struct sequence *leader)
{
    struct error *err = &seq->request->error;
    uint32_t page = PAGE_NONE;
    int rc;
    if (!s->free_slots)
        return;
    assert(s->n_free_slots > 0 && seq->slot == SLOT_NONE);
    seq->slot = s->free_slots[--s->n_free_slots];
    if (leader) {
        assert(leader->has_state);
        rc = copy_state(s, STATE_SLOT, leader->slot, STATE_SLOT, seq->slot, err);
    } else if (seq->n_matched == 0) {
        rc = copy_state(s, STATE_ZERO, 0, STATE_SLOT, seq->slot, err);
    } else {
        prefix_tree_side_pages(s->cache.tree, s->state_side, seq->node, 1, &page);
        assert(page != PAGE_NONE);
        rc = copy_state(s, STATE_PAGE, page, STATE_SLOT, seq->slot, err);
    }
    seq->has_state = rc == 0;
}

void scheduler_end_stateless(struct scheduler *s)
{
    for (uint32_t i = s->n_running; s->free_slots && !s->is_lost && i-- > 0;) {
        if (s->running[i]->has_state)
            continue;
        log_warn("the state of a request of %u tokens could not be loaded: %s",
                 s->running[i]->n_tokens, s->running[i]->request->error.message);
        scheduler_finish(s, s->running[i], FINISH_ERROR);
    }
}

/* Saves a copy where the sequence ended, unless there is one. */
static void save_end(struct scheduler *s, struct sequence *seq)
{
    struct error err;
    uint32_t at = seq->n_computed - 1;
    if (!seq->has_state || seq->node == NODE_NONE || seq->n_computed == seq->n_inserted ||
        seq->sides[s->state_side].pages[at] != PAGE_NONE)
        return;
    uint32_t page = take_page(s, true);
    if (page == PAGE_NONE)
        return;
    if (copy_state(s, STATE_SLOT, seq->slot, STATE_PAGE, page, &err) == 0)
        seq_state_add(seq, s->state_side, at, page);
    else
        page_pool_give(copy_pool(s), (struct page_run){page, 1});
}

void state_end(struct scheduler *s, struct sequence *seq)
{
    if (!s->free_slots)
        return;
    save_end(s, seq);
    s->free_slots[s->n_free_slots++] = seq->slot;
    seq->slot = SLOT_NONE;
    seq->has_state = false;
}

/* Whether a copy after `n_tokens` tokens could be used. */
static bool is_useful(const struct sequence *seq, uint32_t n_tokens)
{
    return n_tokens > seq->n_computed && n_tokens <= seq->prefill_end &&
           cache_token_is_whole(seq->tokens[n_tokens - 1]);
}

static void plan_copy(struct scheduler *s, struct sequence *seq, uint32_t n_tokens, bool pushes)
{
    uint32_t end = seq->n_computed + seq->n_rows, grain = s->cache.sides[s->state_side].grain;
    if (!is_useful(seq, n_tokens) || n_tokens > end || (n_tokens % grain && n_tokens != end) ||
        seq->sides[s->state_side].pages[n_tokens - 1] != PAGE_NONE)
        return;
    uint32_t page = take_page(s, pushes);
    if (page != PAGE_NONE)
        seq_state_add(seq, s->state_side, n_tokens - 1, page);
}

void scheduler_plan_copies(struct scheduler *s)
{
    uint32_t interval = s->options.state_interval;
    for (uint32_t i = 0; s->free_slots && i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        uint32_t end = seq->n_computed + seq->n_rows;
        if (seq->node == NODE_NONE)
            continue;
        plan_copy(s, seq, seq->prefill_end - 1, true);
        plan_copy(s, seq, seq->fork_point, true);
        for (uint32_t n = interval ? seq->n_computed / interval * interval + interval : end + 1;
             n <= end && n <= seq->prefill_end; n += interval)
            plan_copy(s, seq, n, false);
    }
}

uint32_t state_cut(const struct scheduler *s, const struct sequence *seq, uint32_t from, uint32_t n)
{
    if (!s->free_slots || seq->node == NODE_NONE)
        return n;
    uint32_t ends[] = {seq->prefill_end - 1, seq->fork_point};
    for (int i = 0; i < 2; i++)
        if (ends[i] >= from && ends[i] < from + n && is_useful(seq, ends[i]) &&
            ends[i] % s->cache.sides[s->state_side].grain)
            n = ends[i] - from; /* 0: the rows planned so far end there */
    return n;
}
