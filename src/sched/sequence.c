/* One request's tokens, pages and position in the tree; see sequence.h. Owned by the scheduler's
 * thread, but created by the thread that submits, so that a step need not allocate. A computed
 * position's page may be private even when the tree has the position, because another sequence
 * inserted its own copy first. */
#include "sched/sequence.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sequence_list_add(struct sequence_list *list, struct sequence *seq)
{
    struct sequence *after = list->tail;
    while (after && after->age > seq->age)
        after = after->prev;
    seq->prev = after;
    seq->next = after ? after->next : list->head;
    *(seq->next ? &seq->next->prev : &list->tail) = seq;
    *(after ? &after->next : &list->head) = seq;
    list->n++;
}

void sequence_list_remove(struct sequence_list *list, struct sequence *seq)
{
    *(seq->prev ? &seq->prev->next : &list->head) = seq->next;
    *(seq->next ? &seq->next->prev : &list->tail) = seq->prev;
    seq->prev = seq->next = NULL;
    list->n--;
}

uint64_t sequence_token(const struct sequence *seq, uint32_t position, uint64_t token)
{
    const struct request *r = seq->request;
    if (cache_token_is_image(token))
        return token; /* the image's number already depends on its owner */
    return cache_token_owned(cache_token_kind(token), position < r->n_public ? 0 : r->owner,
                             (uint32_t)token);
}

static const struct image_shape *shape_of(const void *context, uint32_t index)
{
    const struct request *r = context;
    return &r->images[index].shape;
}

/* Allocates the tables of the side groups. */
static bool sides_open(struct sequence *seq, const struct cache *cache)
{
    for (uint32_t i = 0; i < cache->n_sides; i++) {
        struct seq_side *x = &seq->sides[i];
        x->pages = malloc(seq->capacity * sizeof *x->pages);
        if (!x->pages)
            return false;
        if (side_is_window(cache, i)) {
            x->runs = malloc(seq->capacity * sizeof *x->runs);
            if (!x->runs)
                return false;
            continue;
        }
        for (uint32_t k = 0; k < seq->capacity; k++)
            x->pages[k] = PAGE_NONE;
    }
    return true;
}

static bool arrays_open(struct sequence *seq)
{
    const struct request *r = seq->request;
    uint32_t capacity = seq->capacity;
    seq->tokens = malloc(capacity * sizeof *seq->tokens);
    seq->runs = malloc(capacity * sizeof *seq->runs);
    seq->pages = malloc(capacity * sizeof *seq->pages);
    seq->generated = malloc((capacity - r->n_tokens + 1) * sizeof *seq->generated);
    seq->is_private = malloc(capacity * sizeof *seq->is_private);
    return seq->tokens && seq->runs && seq->pages && seq->generated && seq->is_private &&
           regions_open(&seq->regions, r->tokens, r->n_tokens, shape_of, r) == 0;
}

struct sequence *sequence_make(struct request *r, uint32_t limit, const struct cache *cache,
                               struct error *err)
{
    uint64_t most = (uint64_t)r->n_tokens + r->max_tokens;
    uint32_t capacity = most < limit ? (uint32_t)most : limit;
    assert(r->n_tokens <= capacity);
    struct sequence *seq = calloc(1, sizeof *seq);
    if (!seq)
        goto no_memory;
    *seq = (struct sequence){.request = r,
                             .capacity = capacity,
                             .ns = r->ns,
                             .n_tokens = r->n_tokens,
                             .refused_at = UINT64_MAX,
                             .n_found = UINT32_MAX,
                             .n_scored = r->n_tokens,
                             .slot = SLOT_NONE};
    if (!arrays_open(seq) || !sides_open(seq, cache))
        goto no_memory;
    if (stop_matcher_open(&seq->stops, r->stops, r->n_stops, err))
        goto fail;
    if (r->prompt_logprobs) {
        r->prompt_logprobs[0] = (struct token_logprobs){.logprob = NAN};
        seq->n_scored = 1;
    }
    for (uint32_t i = 0; i < r->n_tokens; i++)
        seq->tokens[i] = sequence_token(seq, i, r->tokens[i]);
    return seq;
no_memory:
    error_set(err, ERROR_MEMORY, "no memory for a sequence of %u tokens", capacity);
fail:
    sequence_free(seq);
    return NULL;
}

void sequence_free(struct sequence *seq)
{
    if (!seq)
        return;
    stop_matcher_close(&seq->stops);
    regions_close(&seq->regions);
    free(seq->tokens);
    free(seq->runs);
    free(seq->pages);
    free(seq->generated);
    free(seq->is_private);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        free(seq->sides[i].pages);
        free(seq->sides[i].runs);
    }
    free(seq);
}

void sequence_begin(struct sequence *seq, const struct cache *cache, node_id node, uint32_t matched)
{
    assert(seq->n_private == 0 && matched <= seq->n_tokens);
    seq->node = node;
    seq->n_matched = seq->n_inserted = seq->n_computed = seq->n_ready = matched;
    seq->n_reserved = seq->runs_length = matched;
    seq->n_runs = 0;
    seq->prefill_end = seq->n_tokens;
    if (matched)
        seq->n_runs = prefix_tree_pages(cache->tree, node, seq->runs, seq->capacity);
    assert(seq->n_runs <= seq->capacity);
    for (uint32_t i = 0; i < cache->n_sides; i++)
        if (side_is_window(cache, i))
            seq_window_begin(seq, cache, i);
}

/* The page of its last position, or PAGE_NONE at the start: new pages should follow it. */
static uint32_t last_page(const struct sequence *seq)
{
    if (seq->n_reserved > seq->n_matched)
        return seq->pages[seq->n_reserved - 1];
    if (seq->n_runs == 0)
        return PAGE_NONE;
    const struct page_run *run = &seq->runs[seq->n_runs - 1];
    return run->first + run->count - 1;
}

uint32_t cache_evict(struct cache *cache, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns)
{
    uint64_t start_ns = op_times_start(cache->times);
    uint32_t freed = prefix_tree_evict(cache->tree, n_pages, max_nodes, now_ns);
    op_times_add(cache->times, OP_EVICT, op_times_since(cache->times, start_ns));
    return freed;
}

uint32_t sequence_reserve(struct sequence *seq, struct cache *cache, uint32_t want, uint64_t now_ns)
{
    assert(want <= seq->capacity - seq->n_reserved);
    if (want > cache->pool.n_free)
        cache_evict(cache, want - cache->pool.n_free, UINT32_MAX, now_ns);
    uint32_t got = 0;
    while (got < want) {
        struct page_run run = page_pool_take(&cache->pool, want - got, last_page(seq));
        if (run.count == 0)
            break;
        for (uint32_t i = 0; i < run.count; i++) {
            seq->pages[seq->n_reserved] = run.first + i;
            seq->is_private[seq->n_reserved++] = true;
        }
        got += run.count;
    }
    seq->n_private += got;
    return got;
}

void sequence_set_runs(struct sequence *seq, uint32_t length)
{
    assert(length >= seq->n_matched && length <= seq->n_reserved);
    while (seq->runs_length > length) {
        struct page_run *run = &seq->runs[seq->n_runs - 1];
        uint32_t cut = seq->runs_length - length < run->count ? seq->runs_length - length
                                                              : run->count;
        run->count -= cut;
        seq->runs_length -= cut;
        seq->n_runs -= run->count == 0;
    }
    for (; seq->runs_length < length; seq->runs_length++) {
        uint32_t page = seq->pages[seq->runs_length];
        struct page_run *run = seq->n_runs ? &seq->runs[seq->n_runs - 1] : NULL;
        if (run && run->first + run->count == page)
            run->count++;
        else
            seq->runs[seq->n_runs++] = (struct page_run){page, 1};
    }
}

void sequence_insert(struct sequence *seq, struct cache *cache, uint64_t now_ns)
{
    uint32_t n = seq->n_computed - seq->n_inserted, claimed = 0;
    if (seq->node == NODE_NONE || n == 0)
        return;
    uint32_t *sides[TREE_MAX_SIDES];
    for (uint32_t i = 0; i < cache->n_sides; i++)
        sides[i] = seq->sides[i].pages + seq->n_inserted;
    uint64_t start_ns = op_times_start(cache->times);
    node_id node = prefix_tree_insert(cache->tree, seq->node, seq->tokens + seq->n_inserted,
                                      seq->pages + seq->n_inserted, sides, n, now_ns, &claimed);
    op_times_add(cache->times, OP_INSERT, op_times_since(cache->times, start_ns));
    if (node == NODE_NONE)
        return; /* no nodes left: the positions stay private, to be inserted later if possible */
    memset(seq->is_private + seq->n_computed - claimed, false, claimed);
    seq->n_private -= claimed;
    seq->node = node;
    seq->n_inserted = seq->n_ready = seq->n_computed;
    for (uint32_t i = 0; i < cache->n_sides; i++) {
        if (side_is_window(cache, i))
            seq_window_inserted(seq, i);
        else
            seq_state_inserted(seq, i);
    }
}

void sequence_release(struct sequence *seq, struct cache *cache, uint64_t now_ns)
{
    sequence_insert(seq, cache, now_ns);
    struct page_run run = {0, 0};
    for (uint32_t i = seq->n_matched; i < seq->n_reserved; i++) {
        if (!seq->is_private[i])
            continue;
        if (run.count && run.first + run.count == seq->pages[i]) {
            run.count++;
            continue;
        }
        if (run.count)
            page_pool_give(&cache->pool, run);
        run = (struct page_run){seq->pages[i], 1};
    }
    if (run.count)
        page_pool_give(&cache->pool, run);
    for (uint32_t i = 0; i < cache->n_sides; i++) {
        if (side_is_window(cache, i))
            seq_window_release(seq, cache, i);
        else
            seq_state_release(seq, cache, i);
    }
    if (seq->node != NODE_NONE)
        prefix_tree_unlock(cache->tree, seq->node, now_ns);
    seq->node = NODE_NONE;
    seq->n_matched = seq->n_inserted = seq->n_computed = seq->n_ready = 0;
    seq->n_reserved = seq->n_private = seq->n_runs = seq->runs_length = 0;
    seq->n_rows = 0;
}

uint32_t sequence_side_private(const struct sequence *seq, const struct cache *cache, uint32_t side)
{
    const struct seq_side *x = &seq->sides[side];
    return side_is_window(cache, side) ? x->n_reserved - x->private_from : x->n_copies;
}
