/* The work of a step besides its batch: expires old entries, answers cache queries, publishes
 * statistics. Owned by the scheduler's thread. All of it is cut into pieces that take well under a
 * millisecond, because streams wait for the step. */
#include "sched/state.h"

#include <string.h>

#include "base/clock.h"

enum {
    LIST_VISITS = 4096, /* nodes that listing the entries may visit */
    FREE_NODES = 16,    /* nodes freed between two looks at the clock */
};

#define MS_NS         UINT64_C(1000000)
#define FREE_NS       (MS_NS / 4) /* how long a step may spend on freeing */
#define EXPIRE_MIN_NS (10 * MS_NS)
#define EXPIRE_MAX_NS (10000 * MS_NS)

static uint64_t expire_interval_ns(const struct scheduler *s)
{
    uint64_t ttl_ns = s->options.cache_ttl_ns, interval_ns = ttl_ns / 8;
    if (interval_ns < EXPIRE_MIN_NS)
        interval_ns = EXPIRE_MIN_NS;
    return ttl_ns && interval_ns < EXPIRE_MAX_NS ? interval_ns : EXPIRE_MAX_NS;
}

/* This also ends pins, so it runs even if entries never expire. */
bool scheduler_expire(struct scheduler *s)
{
    uint64_t ttl_ns = s->options.cache_ttl_ns;
    if (s->now_ns < s->expire_at_ns)
        return false;
    uint64_t before_ns = ttl_ns && s->now_ns > ttl_ns ? s->now_ns - ttl_ns : 0;
    uint32_t n_pins = prefix_tree_stats(s->cache.tree)->n_pins, freed, any = 0;
    uint64_t end_ns = clock_now_ns() + FREE_NS;
    do {
        freed = prefix_tree_expire(s->cache.tree, before_ns, FREE_NODES, s->now_ns);
        any |= freed;
    } while (freed > 0 && clock_now_ns() < end_ns);
    if (freed == 0) /* otherwise there may be more: continue in the next step */
        s->expire_at_ns = s->now_ns + expire_interval_ns(s);
    return any || prefix_tree_stats(s->cache.tree)->n_pins != n_pins;
}

uint64_t scheduler_idle_ns(const struct scheduler *s)
{
    if (s->cache.pool.n_owned == 0 ||
        (s->options.cache_ttl_ns == 0 && prefix_tree_stats(s->cache.tree)->n_pins == 0))
        return 0;
    return s->expire_at_ns > s->now_ns + MS_NS ? s->expire_at_ns - s->now_ns : MS_NS;
}

bool scheduler_pin(struct scheduler *s, node_id node, uint64_t for_ns)
{
    uint64_t until_ns = s->now_ns + for_ns;
    if (!prefix_tree_pin(s->cache.tree, node, until_ns))
        return false;
    if (until_ns < s->expire_at_ns)
        s->expire_at_ns = until_ns;
    return true;
}

static void query_end(struct scheduler *s, struct cache_query *q)
{
    atomic_store_explicit(&q->is_done, true, memory_order_release); /* belongs to the asker again */
    s->has_events = true;
}

static void query_look(struct scheduler *s, struct cache_query *q)
{
    const struct prefix_tree *tree = s->cache.tree;
    if (q->type == QUERY_OUTLINE) {
        q->n_entries = prefix_tree_outline(tree, q->max_level, q->entries, q->max_entries);
    } else {
        q->n_entries = prefix_tree_list(tree, q->tenant, &q->cursor, q->entries, q->max_entries,
                                        LIST_VISITS);
        q->n_events = prefix_tree_events(tree, q->events, PRESSURE_EVENTS);
    }
    query_end(s, q);
}

/* Clears a part of the cache; true if nothing was left. */
static bool query_clear(struct scheduler *s, struct cache_query *q)
{
    const uint64_t *ns = q->in_one_namespace ? &q->ns : NULL;
    uint64_t end_ns = clock_now_ns() + FREE_NS;
    const struct tree_stats *stats = prefix_tree_stats(s->cache.tree);
    const struct tree_stats before = *stats;
    uint32_t freed;
    do {
        freed = prefix_tree_clear(s->cache.tree, ns, FREE_NODES, s->now_ns);
        q->n_cleared += freed;
    } while (freed > 0 && clock_now_ns() < end_ns);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++)
        q->n_cleared_side[i] += (uint32_t)(stats->sides[i].cleared - before.sides[i].cleared);
    return freed == 0;
}

/* One query per step: each is limited to what a step can afford, but several would be too much. */
bool scheduler_answer_queries(struct scheduler *s)
{
    struct cache_query *q = s->clearing ? s->clearing : queue_pop(&s->queries);
    if (!q)
        return false;
    if (q->type != QUERY_CLEAR) {
        query_look(s, q);
        return true;
    }
    bool is_clear = query_clear(s, q);
    s->clearing = is_clear ? NULL : q;
    if (is_clear)
        query_end(s, q);
    return true;
}

bool scheduler_query(struct scheduler *s, struct cache_query *q)
{
    atomic_init(&q->is_done, false);
    q->n_entries = q->n_events = q->n_cleared = 0;
    memset(q->n_cleared_side, 0, sizeof q->n_cleared_side);
    if (!queue_push(&s->queries, q))
        return false;
    wake_raise(&s->wake);
    return true;
}

void scheduler_publish(struct scheduler *s)
{
    const struct page_pool *pool = &s->cache.pool;
    s->stats.n_running = s->n_running;
    s->stats.n_waiting = s->waiting.n;
    s->stats.n_pages = pool->n_pages;
    s->stats.n_free = pool->n_free;
    s->stats.n_owned = pool->n_owned;
    s->stats.n_private = page_pool_private(pool);
    for (uint32_t i = 0; i < s->cache.n_sides; i++) {
        const struct page_pool *side = &s->cache.sides[i].pool;
        s->stats.sides[i] = (struct pool_stats){side->n_pages, side->n_free, side->n_owned,
                                                page_pool_private(side)};
    }
    s->stats.tree = *prefix_tree_stats(s->cache.tree);
    stats_board_write(&s->board, &s->stats);
}

void scheduler_read_stats(struct scheduler *s, struct scheduler_stats *out)
{
    stats_board_read(&s->board, out);
}
