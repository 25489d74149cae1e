#ifndef RADISH_CACHE_TREE_NODE_H
#define RADISH_CACHE_TREE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "cache/edge_table.h"
#include "cache/ghost_table.h"
#include "cache/prefix_tree.h"

/* Inside the prefix tree: its nodes, and the steps that change its shape. Each of them leaves every
 * law standing, so that prefix_tree.c and its neighbours only decide which to take. Nobody outside
 * cache/ sees this.
 *
 *        node 0: no node, and therefore the parent of all roots
 *        ┌────┴────┐
 *      root      root          no pages, never listed; edge (0, namespace); one space each
 *        │
 *     ┌──┴───┐                 page chain   first ─next─► … ─next─► last
 *     A      B                              first ◄─prev─ … ◄─prev─ last
 *   ┌─┴─┐                      siblings: the most recently used first
 *   C   D
 *                              space of the root, oldest first:   C ─► D ─► A ─► B
 *
 * Life of a node:   unused ──made──► locked ⇄ unlocked, in a list ──evicted, expired──► unused
 *                                       └───────────────┴────────────coalesced───────────┘
 */
struct tree_node {
    uint32_t first, last; /* pages of its positions; none in a root */
    uint32_t length : 29; /* how many, TREE_MAX_PAGES at most; 0 in a root */
    uint32_t is_run : 1;  /* they are consecutive numbers: no chain has to be followed */
    uint32_t gone : 1;    /* withdrawn, with all above it up to one that is cut; always locked */
    uint32_t cut : 1;     /* the edge to it is in the table no more */
    uint16_t locks;       /* handles that end here or below: a parent has at least its children's */
    uint16_t pins;        /* pins likewise; none on roots */
    node_id parent;       /* NODE_NONE: a root. While unused: the next unused node */
    node_id first_child, prev_sibling, next_sibling;
    node_id older, newer; /* neighbours in a recency list, while unlocked and not a root */
    uint64_t stamp;       /* the operation that touched it last: its time, and its own; a parent's
                           * is never smaller */
    uint32_t hits;
    uint32_t created; /* in units of 2^30 ns */
    uint32_t depth;   /* tokens from the root to its end */
    uint32_t space;   /* what belongs to its namespace */
};
_Static_assert(sizeof(struct tree_node) == 64, "a node is one cache line");

enum { NODE_CREATED_SHIFT = 30 };

/* Unlocked nodes in the order of their use. */
struct recency_list {
    node_id oldest, newest;
    uint32_t at; /* place in the heap of such lists, while it is not empty */
};

enum { UNPINNED, PINNED, RECENCY_LISTS };

/* What belongs to a root. An invalid namespace has one until its last page is free, beside the one
 * of a namespace that came to the same number since. */
struct tree_space {
    uint64_t ns;
    node_id root;
    bool is_valid;
    uint32_t n_pages, cap;
    uint32_t n_gone; /* of the pages: withdrawn */
    uint32_t n_pinned;
    struct recency_list lists[RECENCY_LISTS];
    uint64_t invalid_ns; /* when it became so */
};

/* Spaces whose list is not empty; the one with the least recently used node on top. */
struct space_heap {
    uint32_t *items;
    uint32_t count;
};

enum { TREE_MAX_PINS = 256, READ_AHEAD = 16 };

struct tree_pin {
    uint64_t until_ns;
    node_id node;
};

/* What a node has of a side: a chain of its pages in the order of their positions, in which some
 * may be missing.
 *
 *   node        p p p p p p p p p p p p p p p p p p p p        length 20, depth d
 *   its chain         w w w w       w w w w w w w w w          n 13, one gap
 *                     └─ interior ─┘└── d - tail ─► d ┘        what goes first is `first`
 *
 * Nodes with such pages, locked or not, are in one list in the order of their use: by stamp, and a
 * child before its parent. */
struct node_side {
    uint32_t first, last; /* in the side's pool, or PAGE_NONE */
    uint32_t n;
    uint32_t n_gaps; /* neighbours in the chain that are none as positions */
    node_id older, newer;
};

/* The side's pool keeps `position << 32 | page` of each page as its token, where the position
 * counts from 1 and the page is the one in group 0. The chains are in its links. */
struct tree_side {
    struct page_pool *pool;
    uint32_t before;         /* see prefix_tree.h */
    uint32_t tail;           /* the last positions of a node that are not interior */
    uint32_t *page;          /* [n_pages] of each position's page: its page here, or PAGE_NONE */
    struct node_side *nodes; /* [max_nodes + 1] */
    node_id oldest, newest;
    node_id next; /* the oldest that may have interior pages: those before it have none */
    /* The last node that lost interior pages, as it was then; of those before it they have gone. */
    uint64_t passed_stamp;
    uint32_t passed_depth;
};

/* Where a sequence goes on from a node's end beside others, that end is kept: the node stays one of
 * its own, with its tails, even when only one of them is left. */
struct node_end {
    uint64_t forked;      /* the stamp of the last that went on, or when it was halved */
    uint32_t n_forks;     /* so many went on from it, halved as time goes; 0: it is not kept */
    node_id older, newer; /* neighbours in the list of kept ends */
    uint32_t guard; /* of the node's last positions, how many must stay in the side that pages are
                     * evicted from; 0 at any other time */
};

/* The kept ends, by when they were last gone on from. Without sides there are none. */
struct tree_ends {
    struct node_end *nodes; /* [max_nodes + 1] */
    node_id oldest, newest;
};

/* The nodes that are likely to go next, in a ring. */
struct reading {
    node_id nodes[READ_AHEAD];
    uint32_t at, n;
};

struct prefix_tree {
    struct page_pool *pool;
    struct image_table *images;
    struct tree_node *nodes; /* [max_nodes + 1], each on a cache line of its own */
    uint32_t n_sides;        /* near: every operation looks whether there are any */
    uint32_t max_nodes;
    uint64_t now;     /* the stamp given last; never goes back, whatever the caller's clock does */
    uint64_t version; /* counts changes that may move a match: of shape, edges and side pages */
    uint32_t n_made;  /* nodes above this were never used, and their memory never touched */
    node_id unused;   /* those that were used and are no more */
    struct tree_space *spaces; /* [max_nodes + 1], from 1 on */
    uint32_t n_spaces_made, unused_space;
    struct space_heap heaps[RECENCY_LISTS];
    uint64_t *end_map;  /* a bit a page: a stored sequence ended here, whatever follows by now */
    uint64_t *seen_map; /* a bit a page, for prefix_tree_check alone */
    struct edge_table edges;
    struct tree_side sides[TREE_MAX_SIDES];
    struct tree_ends ends;
    uint32_t n_images; /* first positions of images in the tree, each of which holds its image */
    struct tree_pin pins[TREE_MAX_PINS]; /* stats.n_pins of them, in the order of their making */
    uint32_t max_pinned;
    uint32_t n_invalid_spaces;
    struct ghost_table *ghosts;
    struct reading reading;
    struct tree_stats stats;
    struct pressure_event events[PRESSURE_EVENTS];
    uint64_t n_events; /* so far; the last of them are kept */
};

/* Why and when pages go. */
struct going {
    enum miss_reason why;     /* EVICTED, EXPIRED, CLEARED, WINDOW */
    uint64_t now_ns, used_ns; /* now, and when they were used last */
    uint32_t side;            /* WINDOW: for whose pages */
};

/* Follows the tokens down from a node's end; ends where a sequence may be cut. */
struct tree_match tree_walk(const struct prefix_tree *t, node_id from, const uint64_t *tokens,
                            uint32_t n);
/* Walks from a root, and back up to a resume point. */
struct tree_match tree_find(const struct prefix_tree *t, node_id root, const uint64_t *tokens,
                            uint32_t n);

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
/* Found no more, but still there. */
static inline bool node_is_invalid(const struct prefix_tree *t, node_id node)
{
    return t->nodes[node].gone || !t->spaces[t->nodes[node].space].is_valid;
}
static inline uint32_t tree_unused_nodes(const struct prefix_tree *t)
{
    return t->max_nodes - t->stats.n_nodes;
}
static inline bool page_is_end(const struct prefix_tree *t, uint32_t page)
{
    return t->end_map[page / 64] >> page % 64 & 1;
}
/* The digest of a position: of the namespace and all tokens up to it. */
static inline uint64_t digest_next(uint64_t digest, uint64_t token)
{
    return hash_mix(digest ^ token);
}
static inline uint64_t space_digest(uint64_t ns)
{
    return hash_mix(~ns);
}
static inline uint64_t node_digest(const struct prefix_tree *t, node_id node)
{
    return node_is_root(t, node) ? space_digest(t->spaces[t->nodes[node].space].ns)
                                 : t->pool->digest[t->nodes[node].last];
}

/* ---- recency (tree_recency.c) ---- */

/* The next to go: the least recently used of what is invalid, else of the unpinned nodes, else of
 * the pinned ones. It is a leaf. Of one space, or of all. */
node_id space_oldest(const struct prefix_tree *t, uint32_t space);
node_id tree_oldest(const struct prefix_tree *t);
void recency_push(struct prefix_tree *t, node_id node); /* as the newest of its list */
void recency_remove(struct prefix_tree *t, node_id node);
/* Takes the node's place directly behind another of its list and stamp; pages are not counted. */
void recency_follow(struct prefix_tree *t, node_id node, node_id older);
void recency_unfollow(struct prefix_tree *t, node_id node);
/* The space has become invalid: what is in it goes first from now on. */
void recency_invalidate(struct prefix_tree *t, uint32_t space);

/* ---- shape (tree_node.c) ---- */

/* Both need an unused node. A root is made childless and unlocked: its maker locks it. A leaf is
 * made empty, with one lock, the maker's. */
node_id node_make_root(struct prefix_tree *t, uint64_t ns);
node_id node_make_leaf(struct prefix_tree *t, node_id parent, uint64_t first_token);
/* Puts pages at the end of a locked leaf; they are the tree's from here on. */
void node_append(struct prefix_tree *t, node_id leaf, const uint64_t *tokens, const uint32_t *pages,
                 uint32_t n);
/* Marks the end of a leaf as that of a stored sequence. */
void node_set_end(struct prefix_tree *t, node_id leaf);
/* Cuts a node before its last `beyond` positions, behind `page`. Needs an unused node. The lower
 * half keeps the index; the upper half is returned. */
node_id node_split(struct prefix_tree *t, node_id low, uint32_t page, uint32_t beyond);
/* Gives the last `n` positions of an unlocked leaf back to the pool; fewer than it has. */
void node_trim(struct prefix_tree *t, node_id leaf, uint32_t n, const struct going *going);
/* Frees an unlocked leaf, and its root with it when nothing else is there. Returns its pages. */
uint32_t node_remove(struct prefix_tree *t, node_id leaf, const struct going *going);
void root_remove_if_idle(struct prefix_tree *t, node_id root);
/* Puts a node and its only child into one where no handle and no pin can end between them and both
 * were used last by the same operation: then the child's index stays, and true is returned. */
bool node_coalesce(struct prefix_tree *t, node_id parent);

/* Remembers that a position, and what followed it, went. */
void leave_ghost(struct prefix_tree *t, uint64_t digest, const struct going *going);

/* ---- use (tree_node.c) ---- */

/* A stamp for the operation that begins: its time, or the next moment where that has been used. */
void tree_begin_touch(struct prefix_tree *t, uint64_t now_ns);
/* Stamps a node and puts it before its siblings. Whoever touches a path then tells the sides. */
void node_touch(struct prefix_tree *t, node_id node);
/* Makes one node of those on a path that has just been touched which nothing keeps apart. */
void path_coalesce(struct prefix_tree *t, node_id node);

/* ---- going (tree_evict.c) ---- */

/* Frees `need` positions of an unlocked leaf, all of it if it has no more, or some more where that
 * many would end inside an image or where nothing can be gone on with. How many it was. */
uint32_t leaf_free(struct prefix_tree *t, node_id leaf, uint32_t need, enum miss_reason why,
                   uint64_t now_ns);
/* Frees whole leaves in the order of eviction until that gave so many pages of a side. How many. */
uint32_t evict_leaves(struct prefix_tree *t, uint32_t side, uint32_t n_pages, uint64_t now_ns);
/* Evicts from a namespace that is over its cap. */
void space_keep_cap(struct prefix_tree *t, uint32_t space, uint64_t now_ns);

/* ---- side groups (tree_side.c) ---- */

static inline bool tree_has_sides(const struct prefix_tree *t)
{
    return __builtin_expect(t->n_sides > 0, 0);
}
/* The position of a side's page, counted from 1, and its page in group 0. */
static inline uint32_t side_position(const struct tree_side *s, uint32_t side_page)
{
    return (uint32_t)(s->pool->token[side_page] >> 32);
}
static inline uint32_t side_owner(const struct tree_side *s, uint32_t side_page)
{
    return (uint32_t)s->pool->token[side_page];
}
/* Each of these does it in all sides. */
int sides_open(struct prefix_tree *t, const struct prefix_tree_options *options, struct error *err);
void sides_close(struct prefix_tree *t);
void sides_begin_node(struct prefix_tree *t, node_id node); /* it has none */
/* What an inserter has for the last `n` positions up to a node's end; the last `n_new` of their
 * pages are the tree's only now. */
void sides_insert(struct prefix_tree *t, node_id node, const uint32_t *pages,
                  uint32_t *const side_pages[], uint32_t n, uint32_t n_new);
/* The positions of a node behind `depth` are about to go. */
void sides_forget(struct prefix_tree *t, node_id node, uint32_t depth, enum miss_reason why);
void sides_touch(struct prefix_tree *t, node_id node); /* its path was touched */
/* After a split behind `page`, and before the parent of two that become one is dropped. */
void sides_split(struct prefix_tree *t, node_id up, node_id low, uint32_t page);
void sides_coalesce(struct prefix_tree *t, node_id parent, node_id child);
/* Shortens a match, which was walked from a root, to where a sequence can go on: in one side, and
 * in all of them. */
void side_resume(const struct prefix_tree *t, uint32_t side, struct tree_match *m);
void sides_resume(const struct prefix_tree *t, struct tree_match *m);

/* ---- ends that are kept (tree_ends.c) ---- */

int ends_open(struct prefix_tree *t, struct error *err);
void ends_close(struct prefix_tree *t);
static inline bool end_is_kept(const struct prefix_tree *t, node_id node)
{
    return tree_has_sides(t) && t->ends.nodes[node].n_forks > 0;
}
void end_keep(struct prefix_tree *t, node_id node);   /* another sequence goes on from it */
void end_forget(struct prefix_tree *t, node_id node); /* what was there is no more */
/* Before a leaf goes for a side's pages: has one that was gone on from longer ago than the leaf was
 * used been kept long enough? If so its tails may become interior, and go; false: there is no such
 * end. */
bool end_age(struct prefix_tree *t, node_id leaf);

/* ---- pins (tree_pin.c): ending them ---- */

void pins_end_at(struct prefix_tree *t, node_id leaf, uint64_t now_ns); /* a pinned leaf */
void pins_end_in_space(struct prefix_tree *t, uint32_t space);
/* Of all that ends at or below the position `depth` of a node's path, which it has. */
void pins_end_below(struct prefix_tree *t, node_id node, uint32_t depth);
void pins_end_over(struct prefix_tree *t, uint64_t now_ns); /* whose time is over */

/* The node of a path that has the position `depth`. (tree_withdraw.c) */
node_id path_node_at(const struct prefix_tree *t, node_id node, uint32_t depth);

#endif
