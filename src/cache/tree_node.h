#ifndef RADISH_CACHE_TREE_NODE_H
#define RADISH_CACHE_TREE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "cache/edge_table.h"
#include "cache/ghost_table.h"
#include "cache/prefix_tree.h"

/* Internals of the prefix tree: its nodes, and the steps that change its shape. Each step keeps all
 * invariants, so that prefix_tree.c and its neighbours only decide which step to take. Private to
 * cache/.
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
    uint32_t length : 29; /* number of them, at most TREE_MAX_PAGES; 0 in a root */
    uint32_t is_run : 1;  /* they are consecutive numbers: no chain to follow */
    uint32_t gone : 1;    /* withdrawn, with all above it up to a cut node; always locked */
    uint32_t cut : 1;     /* the edge to it is no longer in the table */
    uint16_t locks;       /* handles that end here or below: a parent has at least its children's */
    uint16_t pins;        /* pins, counted in the same way; none on roots */
    node_id parent;       /* NODE_NONE: a root. While unused: the next unused node */
    node_id first_child, prev_sibling, next_sibling;
    node_id older, newer; /* neighbours in a recency list, while unlocked and not a root */
    uint64_t stamp;       /* time of the operation that touched it last, unique to it; never larger
                           * than the parent's */
    uint32_t hits;
    uint32_t created; /* in units of 2^30 ns */
    uint32_t depth;   /* tokens from the root to its end */
    uint32_t space;   /* index of its namespace's tree_space */
};
_Static_assert(sizeof(struct tree_node) == 64, "a node is one cache line");

enum { NODE_CREATED_SHIFT = 30 };

/* Unlocked nodes in order of use. */
struct recency_list {
    node_id oldest, newest;
    uint32_t at; /* index in the heap of such lists, while it is not empty */
};

enum { UNPINNED, PINNED, RECENCY_LISTS };

/* The data of a root. An invalid namespace keeps its space until its last page is free, beside that
 * of a newer namespace with the same number. */
struct tree_space {
    uint64_t ns;
    node_id root;
    bool is_valid;
    uint32_t n_pages, cap;
    uint32_t n_gone; /* pages that are withdrawn */
    uint32_t n_pinned;
    struct recency_list lists[RECENCY_LISTS];
    uint64_t invalid_ns; /* when it became invalid */
};

/* Spaces whose list is not empty; the one with the least recently used node is on top. */
struct space_heap {
    uint32_t *items;
    uint32_t count;
};

enum { TREE_MAX_PINS = 256, READ_AHEAD = 16 };

struct tree_pin {
    uint64_t until_ns;
    node_id node;
    uint32_t tenant; /* of the node's last token */
};

/* A node's pages in a side: a chain in order of position, with possible gaps.
 *
 *   node        p p p p p p p p p p p p p p p p p p p p        length 20, depth d
 *   its chain         w w w w       w w w w w w w w w          n 13, one gap
 *                     └─ interior ─┘└── d - tail ─► d ┘        `first` is evicted first
 *
 * Nodes with such pages, locked or not, are in one list in order of use: by stamp, a child before
 * its parent. */
struct node_side {
    uint32_t first, last; /* in the side's pool, or PAGE_NONE */
    uint32_t n;
    uint32_t n_gaps; /* neighbours in the chain whose positions are not adjacent */
    node_id older, newer;
};

/* The side's pool stores `position << 32 | page` as the token of each page, where the position
 * counts from 1 and `page` is the page in group 0. The pool's links form the chains. */
struct tree_side {
    struct page_pool *pool;
    uint32_t before;         /* see prefix_tree.h */
    uint32_t tail;           /* the last positions of a node that are not interior */
    uint32_t *page;          /* [n_pages] for each page of group 0: its page here, or PAGE_NONE */
    struct node_side *nodes; /* [max_nodes + 1] */
    node_id oldest, newest;
    node_id next; /* the oldest that may have interior pages; older ones have none */
    /* The last node that lost interior pages, as it was then; older nodes have lost theirs. */
    uint64_t passed_stamp;
    uint32_t passed_depth;
};

/* An end where several sequences diverge is kept: the node stays separate, with its tails, even
 * when only one of those sequences is left. */
struct node_end {
    uint64_t forked;      /* stamp of the last sequence that continued, or of the last halving */
    uint32_t n_forks;     /* number of sequences that continued, halved over time; 0: not kept */
    node_id older, newer; /* neighbours in the list of kept ends */
    uint32_t guard; /* during eviction from a side: number of the node's last positions that must
                     * stay; otherwise 0 */
};

/* The kept ends, by when a sequence last continued from them. Without sides there are none. */
struct tree_ends {
    struct node_end *nodes; /* [max_nodes + 1] */
    node_id oldest, newest;
};

/* The nodes that are likely to be evicted next, in a ring. */
struct reading {
    node_id nodes[READ_AHEAD];
    uint32_t at, n;
};

struct prefix_tree {
    struct page_pool *pool;
    struct image_table *images;
    struct tree_node *nodes; /* [max_nodes + 1], each on its own cache line */
    uint32_t n_sides;        /* kept close: every operation checks whether there are any */
    uint32_t max_nodes;
    uint64_t now;     /* the last stamp; never goes back, whatever the caller's clock does */
    uint64_t version; /* counts changes that may affect a match: shape, edges, side pages */
    uint32_t n_made;  /* nodes above this were never used or touched in memory */
    node_id unused;   /* list of nodes that are no longer used */
    struct tree_space *spaces; /* [max_nodes + 1], from 1 on */
    uint32_t n_spaces_made, unused_space;
    struct space_heap heaps[RECENCY_LISTS];
    uint64_t *end_map;  /* a bit per page: a stored sequence ended here, even if more follows */
    uint64_t *seen_map; /* a bit per page, only for prefix_tree_check */
    struct edge_table edges;
    struct tree_side sides[TREE_MAX_SIDES];
    struct tree_ends ends;
    uint32_t n_images; /* first positions of images in the tree; each holds its image */
    struct tree_pin pins[TREE_MAX_PINS]; /* stats.n_pins of them, in order of creation */
    uint32_t max_pinned;
    uint32_t n_invalid_spaces;
    struct ghost_table *ghosts;
    struct reading reading;
    struct tree_stats stats;
    struct pressure_event events[PRESSURE_EVENTS];
    uint64_t n_events; /* total; only the last ones are kept */
};

/* Why and when pages are removed. */
struct going {
    enum miss_reason why;     /* EVICTED, EXPIRED, CLEARED, WINDOW */
    uint64_t now_ns, used_ns; /* now, and when they were last used */
    uint32_t side;            /* WINDOW: the side whose pages are needed */
};

/* Follows the tokens down from a node's end; stops where a sequence may be cut. */
struct tree_match tree_walk(const struct prefix_tree *t, node_id from, const uint64_t *tokens,
                            uint32_t n);
/* Walks down from a root, then back up to a resume point. */
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
/* No longer found, but still there. */
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
/* The digest of a position covers the namespace and all tokens up to it. */
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

/* The next node to evict, of one space or of all: the least recently used invalid node, else
 * unpinned node, else pinned node. It is a leaf. */
node_id space_oldest(const struct prefix_tree *t, uint32_t space);
node_id tree_oldest(const struct prefix_tree *t);
void recency_push(struct prefix_tree *t, node_id node); /* as the newest of its list */
void recency_remove(struct prefix_tree *t, node_id node);
/* Inserts the node directly after another with the same list and stamp; does not count pages. */
void recency_follow(struct prefix_tree *t, node_id node, node_id older);
void recency_unfollow(struct prefix_tree *t, node_id node);
/* The space has become invalid: its nodes are evicted first from now on. */
void recency_invalidate(struct prefix_tree *t, uint32_t space);

/* ---- shape (tree_node.c) ---- */

/* Both need an unused node. A new root has no children and no lock: the caller locks it. A new leaf
 * is empty, with one lock, which the caller holds. */
node_id node_make_root(struct prefix_tree *t, uint64_t ns);
node_id node_make_leaf(struct prefix_tree *t, node_id parent, uint64_t first_token);
/* Appends pages to a locked leaf; the tree owns them from now on. */
void node_append(struct prefix_tree *t, node_id leaf, const uint64_t *tokens, const uint32_t *pages,
                 uint32_t n);
/* Marks the end of a leaf as the end of a stored sequence. */
void node_set_end(struct prefix_tree *t, node_id leaf);
/* Splits a node before its last `beyond` positions, after `page`. Needs an unused node. The lower
 * half keeps the index; returns the upper half. */
node_id node_split(struct prefix_tree *t, node_id low, uint32_t page, uint32_t beyond);
/* Returns the last `n` positions of an unlocked leaf to the pool; `n` is less than it has. */
void node_trim(struct prefix_tree *t, node_id leaf, uint32_t n, const struct going *going);
/* Frees an unlocked leaf, and its root if that has nothing else. Returns the number of its
 * pages. */
uint32_t node_remove(struct prefix_tree *t, node_id leaf, const struct going *going);
void root_remove_if_idle(struct prefix_tree *t, node_id root);
/* Merges a node with its only child if no handle or pin can end between them and the same operation
 * used both last. Then the child's index remains, and true is returned. */
bool node_coalesce(struct prefix_tree *t, node_id parent);

/* Records that a position, and what followed it, was removed. */
void leave_ghost(struct prefix_tree *t, uint64_t digest, const struct going *going);

/* ---- use (tree_node.c) ---- */

/* Makes a stamp for the operation that begins: its time, or the next free value if that is
 * taken. */
void tree_begin_touch(struct prefix_tree *t, uint64_t now_ns);
/* Stamps a node and moves it before its siblings. After touching a path, call sides_touch. */
void node_touch(struct prefix_tree *t, node_id node);
/* Merges the nodes of a path that was just touched, where nothing keeps them apart. */
void path_coalesce(struct prefix_tree *t, node_id node);

/* ---- going (tree_evict.c) ---- */

/* Frees `need` positions of an unlocked leaf, or all if it has no more; frees some more if it would
 * otherwise end inside an image or where no sequence can resume. Returns how many. */
uint32_t leaf_free(struct prefix_tree *t, node_id leaf, uint32_t need, enum miss_reason why,
                   uint64_t now_ns);
/* Frees whole leaves in eviction order until that freed `n_pages` pages of a side. Returns how
 * many. */
uint32_t evict_leaves(struct prefix_tree *t, uint32_t side, uint32_t n_pages, uint64_t now_ns);
/* Evicts from a namespace that exceeds its cap. */
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
/* Each of these works on all sides. */
int sides_open(struct prefix_tree *t, const struct prefix_tree_options *options, struct error *err);
void sides_close(struct prefix_tree *t);
void sides_begin_node(struct prefix_tree *t, node_id node); /* it has none */
/* Adds the inserted sequence's side pages for the last `n` positions up to a node's end; the tree
 * has just taken over the last `n_new` of their pages. */
void sides_insert(struct prefix_tree *t, node_id node, const uint32_t *pages,
                  uint32_t *const side_pages[], uint32_t n, uint32_t n_new);
/* The positions of a node after `depth` are about to be removed. */
void sides_forget(struct prefix_tree *t, node_id node, uint32_t depth, enum miss_reason why);
void sides_touch(struct prefix_tree *t, node_id node); /* its path was touched */
/* Called after a split after `page`; and before the parent is dropped when two nodes merge. */
void sides_split(struct prefix_tree *t, node_id up, node_id low, uint32_t page);
void sides_coalesce(struct prefix_tree *t, node_id parent, node_id child);
/* Shortens a match that was walked from a root to where a sequence can resume: in one side; in all
 * of them. */
void side_resume(const struct prefix_tree *t, uint32_t side, struct tree_match *m);
void sides_resume(const struct prefix_tree *t, struct tree_match *m);

/* ---- ends that are kept (tree_ends.c) ---- */

int ends_open(struct prefix_tree *t, struct error *err);
void ends_close(struct prefix_tree *t);
static inline bool end_is_kept(const struct prefix_tree *t, node_id node)
{
    return tree_has_sides(t) && t->ends.nodes[node].n_forks > 0;
}
void end_keep(struct prefix_tree *t, node_id node);   /* another sequence continues from it */
void end_forget(struct prefix_tree *t, node_id node); /* its end no longer exists */
/* Called before a leaf is evicted for a side's pages. If there is a kept end from which a sequence
 * last continued before the leaf was last used, ages it; once it has been kept long enough, its
 * tails may become interior, and be evicted. False: there is no such end. */
bool end_age(struct prefix_tree *t, node_id leaf);

/* ---- pins (tree_pin.c): ending them ---- */

void pins_end_at(struct prefix_tree *t, node_id leaf, uint64_t now_ns); /* a pinned leaf */
void pins_end_in_space(struct prefix_tree *t, uint32_t space);
/* Ends all pins at or below position `depth` of a node's path; the path must have that position. */
void pins_end_below(struct prefix_tree *t, node_id node, uint32_t depth);
void pins_end_over(struct prefix_tree *t, uint64_t now_ns); /* expired ones */

/* The node of a path that contains position `depth`. (tree_withdraw.c) */
node_id path_node_at(const struct prefix_tree *t, node_id node, uint32_t depth);

#endif
