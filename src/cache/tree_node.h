#ifndef RADISH_CACHE_TREE_NODE_H
#define RADISH_CACHE_TREE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/edge_table.h"
#include "cache/prefix_tree.h"

/* Inside the prefix tree: its nodes, and the steps that change its shape. Each of them leaves every
 * law standing, so that prefix_tree.c only decides which to take. Nobody outside cache/ sees this.
 *
 *        node 0: no node, and therefore: the parent of all roots, both ends of the recency list
 *        ┌────┴────┐
 *      root      root          no pages, never listed; edge (0, namespace)
 *        │
 *     ┌──┴───┐                 page chain   first ─next─► … ─next─► last
 *     A      B                              first ◄─prev─ … ◄─prev─ last
 *   ┌─┴─┐
 *   C   D    recency, oldest first:   0 ─► C ─► D ─► A ─► B ─► 0
 *
 * Life of a node:   unused ──made──► locked ⇄ unlocked, in the list ──evicted, expired──► unused
 *                                       └───────────────┴─────────────coalesced─────────────┘
 */
struct tree_node {
    uint32_t first, last; /* pages of its positions; none in a root */
    uint32_t length;      /* how many; 0 in a root */
    uint32_t locks;       /* handles that end here or below: a parent has at least its children's */
    node_id parent;       /* NODE_NONE: a root. While unused: the next unused node */
    node_id first_child, prev_sibling, next_sibling;
    node_id older, newer; /* neighbours in the recency list, while unlocked and not a root */
    uint64_t tick;        /* the operation that touched it last; a parent's is never smaller */
    uint64_t used_ns;     /* when that was */
    uint64_t ns;          /* of a root */
};
_Static_assert(sizeof(struct tree_node) == 64, "a node is one cache line");

struct prefix_tree {
    struct page_pool *pool;
    struct tree_node *nodes; /* [max_nodes + 1], each on a cache line of its own */
    uint32_t max_nodes;
    uint32_t n_made;    /* nodes above this were never used, and their memory never touched */
    node_id unused;     /* those that were used and are no more */
    uint64_t *end_map;  /* a bit a page: a stored sequence ended here, whatever follows by now */
    uint64_t *seen_map; /* a bit a page, for prefix_tree_check alone */
    struct edge_table edges;
    uint64_t tick;
    uint64_t now_ns; /* never goes back, whatever the caller's clock does */
    struct tree_stats stats;
};

static inline bool node_is_root(const struct prefix_tree *t, node_id node)
{
    return t->nodes[node].parent == NODE_NONE;
}
static inline bool node_is_leaf(const struct prefix_tree *t, node_id node)
{
    return t->nodes[node].first_child == NODE_NONE && !node_is_root(t, node);
}
static inline bool node_is_listed(const struct prefix_tree *t, node_id node)
{
    return t->nodes[node].locks == 0 && !node_is_root(t, node);
}
static inline uint32_t tree_unused_nodes(const struct prefix_tree *t)
{
    return t->max_nodes - t->stats.n_nodes;
}
/* The least recently used node; always a leaf. */
static inline node_id tree_oldest(const struct prefix_tree *t)
{
    return t->nodes[NODE_NONE].newer;
}
static inline bool page_is_end(const struct prefix_tree *t, uint32_t page)
{
    return t->end_map[page / 64] >> page % 64 & 1;
}
static inline void page_set_end(struct prefix_tree *t, uint32_t page, bool end)
{
    uint64_t bit = (uint64_t)1 << page % 64;
    t->end_map[page / 64] = end ? t->end_map[page / 64] | bit : t->end_map[page / 64] & ~bit;
}

void recency_push(struct prefix_tree *t, node_id node); /* as the newest */
void recency_remove(struct prefix_tree *t, node_id node);

/* Both need an unused node. A root is made childless and unlocked: its maker locks it. A leaf is
 * made empty, with one lock, the maker's. */
node_id node_make_root(struct prefix_tree *t, uint64_t ns);
node_id node_make_leaf(struct prefix_tree *t, node_id parent, uint64_t first_token);
/* Puts pages at the end of a locked leaf; they are the tree's from here on. */
void node_append(struct prefix_tree *t, node_id leaf, const uint64_t *tokens, const uint32_t *pages,
                 uint32_t n);
/* Cuts a node before its last `beyond` positions, behind `page`. Needs an unused node. The lower
 * half keeps the index; the upper half is returned. */
node_id node_split(struct prefix_tree *t, node_id low, uint32_t page, uint32_t beyond);
/* Gives the last `n` positions of an unlocked leaf back to the pool; fewer than it has. */
void node_trim(struct prefix_tree *t, node_id leaf, uint32_t n);
/* Frees an unlocked leaf, and its root with it when nothing else is there. Returns its pages. */
uint32_t node_remove(struct prefix_tree *t, node_id leaf);
void root_remove_if_idle(struct prefix_tree *t, node_id root);
/* Puts a node and its only child into one where no handle can end between them and both were used
 * last by the same operation: then the child's index stays, and true is returned. */
bool node_coalesce(struct prefix_tree *t, node_id parent);

#endif
