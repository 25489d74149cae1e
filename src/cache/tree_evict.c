/* Removal: eviction when pages run out, expiry, clearing, caps. Owned by the scheduler's thread.
 *
 * Each of them repeatedly takes the oldest leaf. They differ in which lists they take it from, when
 * they stop, and which reason they record. Careful: pins that end in a leaf are dropped before the
 * leaf is freed, and that touches the rest of their path. */
#include <assert.h>

#include "cache/tree_node.h"

/* The page before the last `n` of a node, which has more than `n`. */
static uint32_t page_before(const struct prefix_tree *t, node_id node, uint32_t n)
{
    const struct tree_node *x = &t->nodes[node];
    uint32_t page = x->last;
    if (x->is_run)
        return page - n;
    for (uint32_t i = 0; i < n; i++)
        page = t->pool->prev[page];
    return page;
}

/* How many of a leaf's last positions to free in order to free `need`: more if that would cut an
 * image, and also everything after the last resume point, because nothing can use it. */
static uint32_t whole_cut(const struct prefix_tree *t, node_id leaf, uint32_t need)
{
    const struct tree_node *x = &t->nodes[leaf];
    if (need >= x->length)
        return x->length;
    if (t->n_images > 0) {
        uint64_t token = t->pool->token[page_before(t, leaf, need)];
        need += cache_token_is_whole(token) ? 0 : cache_token_image_begun(token);
    }
    if (!tree_has_sides(t) || need >= x->length)
        return need;
    struct tree_match m = {.length = x->depth - need,
                           .node = leaf,
                           .page = page_before(t, leaf, need),
                           .beyond = need};
    sides_resume(t, &m);
    return m.node == leaf ? m.beyond : x->length;
}

/* The nodes that are freed next are scattered in memory, and the list leads from one to the next
 * only. So the list is read ahead: a node is prefetched as soon as its number is known; its pages
 * and neighbours some steps later, when the node itself has arrived; its edge when its token has.
 * These are only hints: if a node has been reused by then, the prefetch was wasted. */
static void read_ahead(struct prefix_tree *t, node_id leaf)
{
    enum { PAGES = READ_AHEAD / 2, EDGE = READ_AHEAD / 4 }; /* steps before it is freed */
    const struct page_pool *pool = t->pool;
    struct reading *r = &t->reading;
    if (r->n > 0 && r->nodes[r->at % READ_AHEAD] == leaf) {
        r->at++;
        r->n--;
    } else {
        r->n = 0;
    }
    node_id node = r->n ? r->nodes[(r->at + r->n - 1) % READ_AHEAD] : leaf;
    for (int step = 0; step < 2 && r->n < READ_AHEAD; step++) {
        node = t->nodes[node].newer;
        __builtin_prefetch(&t->nodes[node], 1);
        r->nodes[(r->at + r->n++) % READ_AHEAD] = node;
    }
    const struct tree_node *x = &t->nodes[r->nodes[(r->at + PAGES) % READ_AHEAD]];
    if (x->length > 0) {
        __builtin_prefetch(&pool->token[x->first]);
        __builtin_prefetch(&pool->digest[x->last]);
        __builtin_prefetch(&pool->free_map[x->last / 64], 1);
        __builtin_prefetch(&t->end_map[x->last / 64], 1);
        __builtin_prefetch(&t->nodes[x->prev_sibling], 1);
    }
    x = &t->nodes[r->nodes[(r->at + EDGE) % READ_AHEAD]];
    if (x->length > 0)
        edge_table_prefetch(&t->edges, x->parent, pool->token[x->first]);
}

/* leaf_free for a given reason; `side` is the side whose pages are wanted, if any. */
static uint32_t leaf_free_for(struct prefix_tree *t, node_id leaf, uint32_t need,
                              enum miss_reason why, uint32_t side, uint64_t now_ns)
{
    /* Invalid nodes count as cleared, whoever frees them. */
    struct going going = {node_is_invalid(t, leaf) ? MISS_CLEARED : why, now_ns,
                          t->nodes[leaf].stamp, side};
    read_ahead(t, leaf);
    if (t->nodes[leaf].pins > 0)
        pins_end_at(t, leaf, now_ns);
    uint32_t n = whole_cut(t, leaf, need);
    if (n < t->nodes[leaf].length) {
        node_trim(t, leaf, n, &going);
        return n;
    }
    node_id parent = t->nodes[leaf].parent;
    bool below_root = node_is_root(t, parent);
    node_remove(t, leaf, &going);
    if (!below_root)
        node_coalesce(t, parent);
    return n;
}

uint32_t leaf_free(struct prefix_tree *t, node_id leaf, uint32_t need, enum miss_reason why,
                   uint64_t now_ns)
{
    return leaf_free_for(t, leaf, need, why, 0, now_ns);
}

/* ---- eviction and its events ---- */

/* Frees pages of a leaf and records that in the event. */
static void evict_leaf(struct prefix_tree *t, struct pressure_event *e, node_id leaf)
{
    const struct tree_node *x = &t->nodes[leaf];
    uint64_t digest = t->pool->digest[x->last], used_ns = x->stamp;
    uint32_t depth = x->depth, hits = x->hits, freed;
    if (e->group > 0) {
        const struct page_pool *pool = t->sides[e->group - 1].pool;
        freed = pool->n_owned;
        leaf_free_for(t, leaf, UINT32_MAX, MISS_WINDOW, e->group - 1, e->at_ns);
        freed -= pool->n_owned;
    } else {
        freed = leaf_free(t, leaf, e->wanted - e->freed, MISS_EVICTED, e->at_ns);
    }
    if (e->n_nodes < PRESSURE_NODES) {
        e->nodes[e->n_nodes].digest = digest;
        e->nodes[e->n_nodes].used_ns = used_ns;
        e->nodes[e->n_nodes].depth = depth;
        e->nodes[e->n_nodes].hits = hits;
        e->nodes[e->n_nodes].freed = freed;
    }
    e->n_nodes++;
    e->freed += freed;
}

/* Evicts for a group: 0, or 1 + a side. */
static uint32_t evict(struct prefix_tree *t, uint32_t group, uint32_t n_pages, uint32_t max_nodes,
                      uint64_t now_ns)
{
    struct pressure_event *e = &t->events[t->n_events % PRESSURE_EVENTS];
    const struct page_pool *pool = group ? t->sides[group - 1].pool : t->pool;
    node_id oldest = tree_oldest(t);
    if (n_pages == 0 || max_nodes == 0 || oldest == NODE_NONE)
        return 0;
    e->at_ns = now_ns;
    e->group = group;
    e->wanted = n_pages;
    e->freed = e->n_nodes = 0;
    for (; e->freed < n_pages && e->n_nodes < max_nodes && oldest; oldest = tree_oldest(t)) {
        uint32_t n_owned = pool->n_owned;
        if (group > 0 && end_age(t, oldest))
            e->freed += n_owned - pool->n_owned;
        else
            evict_leaf(t, e, oldest);
    }
    t->n_events++;
    return e->freed;
}

uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages, uint32_t max_nodes,
                           uint64_t now_ns)
{
    return evict(t, 0, n_pages, max_nodes, now_ns);
}

uint32_t evict_leaves(struct prefix_tree *t, uint32_t side, uint32_t n_pages, uint64_t now_ns)
{
    return evict(t, 1 + side, n_pages, UINT32_MAX, now_ns);
}

uint32_t prefix_tree_events(const struct prefix_tree *t, struct pressure_event *out, uint32_t max)
{
    uint32_t n = 0;
    for (; n < max && n < PRESSURE_EVENTS && n < t->n_events; n++) {
        const struct pressure_event *e = &t->events[(t->n_events - 1 - n) % PRESSURE_EVENTS];
        out[n] = (struct pressure_event){e->at_ns, e->group,   e->wanted,
                                         e->freed, e->n_nodes, {{0}}};
        for (uint32_t i = 0; i < e->n_nodes && i < PRESSURE_NODES; i++)
            out[n].nodes[i] = e->nodes[i];
    }
    return n;
}

/* ---- expiry, clearing, caps ---- */

uint32_t prefix_tree_expire(struct prefix_tree *t, uint64_t before_ns, uint32_t max_nodes,
                            uint64_t now_ns)
{
    const struct space_heap *heap = &t->heaps[UNPINNED];
    uint32_t freed = 0;
    pins_end_over(t, now_ns);
    for (; max_nodes > 0 && heap->count > 0; max_nodes--) {
        const struct tree_space *space = &t->spaces[heap->items[0]];
        node_id oldest = space->lists[UNPINNED].oldest;
        if (space->is_valid && t->nodes[oldest].stamp >= before_ns)
            break;
        freed += leaf_free(t, oldest, UINT32_MAX, MISS_EXPIRED, now_ns);
    }
    return freed;
}

uint32_t prefix_tree_clear(struct prefix_tree *t, const uint64_t *ns, uint32_t max_nodes,
                           uint64_t now_ns)
{
    uint32_t freed = 0;
    for (; max_nodes > 0; max_nodes--) {
        /* The namespace is freed with its last node, so look it up each time. */
        node_id root = ns ? edge_table_find(&t->edges, NODE_NONE, *ns) : NODE_NONE;
        node_id oldest = ns ? space_oldest(t, t->nodes[root].space) : tree_oldest(t);
        if (oldest == NODE_NONE)
            break;
        freed += leaf_free(t, oldest, UINT32_MAX, MISS_CLEARED, now_ns);
    }
    return freed;
}

void space_keep_cap(struct prefix_tree *t, uint32_t space, uint64_t now_ns)
{
    const struct tree_space *s = &t->spaces[space];
    while (s->n_pages > s->cap) {
        node_id oldest = space_oldest(t, space);
        if (oldest == NODE_NONE)
            break;
        leaf_free(t, oldest, s->n_pages - s->cap, MISS_EVICTED, now_ns);
    }
}

void prefix_tree_set_cap(struct prefix_tree *t, uint64_t ns, uint32_t n_pages)
{
    node_id root = edge_table_find(&t->edges, NODE_NONE, ns);
    if (root == NODE_NONE)
        return;
    t->spaces[t->nodes[root].space].cap = n_pages;
    space_keep_cap(t, t->nodes[root].space, t->now);
}
