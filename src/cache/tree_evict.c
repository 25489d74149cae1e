/* What goes, and when: eviction for want of pages, expiry, clearing, caps. Owned by the scheduler's
 * thread.
 *
 * All of them take the oldest leaf, again and again; they differ in which lists they look at, when
 * they stop, and in what is said of it later. What a newcomer gets wrong: pins that end in a leaf
 * end before it goes, which touches what remains of their path. */
#include <assert.h>

#include "cache/tree_node.h"

/* How many of the last positions of a leaf go so that `need` do: more where it would be cut inside
 * an image. */
static uint32_t whole_cut(const struct prefix_tree *t, node_id leaf, uint32_t need)
{
    const struct page_pool *pool = t->pool;
    const struct tree_node *x = &t->nodes[leaf];
    if (need >= x->length)
        return x->length;
    uint32_t page = x->last;
    for (uint32_t i = 0; i < need; i++)
        page = pool->prev[page];
    uint64_t token = pool->token[page];
    return cache_token_is_whole(token) ? need : need + cache_token_image_begun(token);
}

uint32_t leaf_free(struct prefix_tree *t, node_id leaf, uint32_t need, enum miss_reason why,
                   uint64_t now_ns)
{
    /* What was invalid was cleared, whoever frees it. */
    struct going going = {node_is_invalid(t, leaf) ? MISS_CLEARED : why, now_ns,
                          t->nodes[leaf].stamp};
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

/* ---- pressure events ---- */

static void note_victim(const struct prefix_tree *t, struct pressure_event *e, node_id leaf)
{
    const struct tree_node *x = &t->nodes[leaf];
    if (e->n_nodes < PRESSURE_NODES) {
        e->nodes[e->n_nodes].digest = node_digest(t, leaf);
        e->nodes[e->n_nodes].depth = x->depth;
        e->nodes[e->n_nodes].hits = x->hits;
        e->nodes[e->n_nodes].used_ns = x->stamp;
    }
}

static void note_freed(struct pressure_event *e, uint32_t n)
{
    if (e->n_nodes < PRESSURE_NODES)
        e->nodes[e->n_nodes].freed = n;
    e->n_nodes++;
    e->freed += n;
}

uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages, uint32_t max_nodes,
                           uint64_t now_ns)
{
    struct pressure_event *e = &t->events[t->n_events % PRESSURE_EVENTS];
    node_id oldest = tree_oldest(t);
    if (n_pages == 0 || max_nodes == 0 || oldest == NODE_NONE)
        return 0;
    *e = (struct pressure_event){.at_ns = now_ns, .wanted = n_pages};
    while (e->freed < n_pages && e->n_nodes < max_nodes && oldest != NODE_NONE) {
        note_victim(t, e, oldest);
        note_freed(e, leaf_free(t, oldest, n_pages - e->freed, MISS_EVICTED, now_ns));
        oldest = tree_oldest(t);
    }
    t->n_events++;
    return e->freed;
}

uint32_t prefix_tree_events(const struct prefix_tree *t, struct pressure_event *out, uint32_t max)
{
    uint32_t n = 0;
    for (; n < max && n < PRESSURE_EVENTS && n < t->n_events; n++)
        out[n] = t->events[(t->n_events - 1 - n) % PRESSURE_EVENTS];
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
        /* The namespace goes with its last node, so it is looked for each time. */
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
