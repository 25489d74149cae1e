#ifndef RADISH_CACHE_PREFIX_TREE_H
#define RADISH_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cache/cache_token.h"
#include "cache/image_table.h"
#include "cache/page_pool.h"

/* The prefix tree: which token sequences have their KV in which pages. It holds computed positions
 * only, and never asks whose they are.
 *
 *   pool   [0][1][2][3][4][5][6] ...             token[page], next[page], digest[page]
 *           ▲                 ▲
 *   ns ─┬─ "You are a helpful" ─┬─ " pirate"     node: first and last page, length, depth, locks,
 *       │                       └─ " chef"             pins, parent, children, recency
 *       └─ image 7 (729 pages, never cut) ── "what is this"
 *
 * A node is a chain of pages: it grows at its end, splits and coalesces without allocation. Edges
 * are found in one open-addressing table keyed by (node, first token). The unlocked nodes of a
 * namespace stand in recency lists in which a parent is always behind its children, so that a
 * list's head is always a leaf and always the least recently used: eviction and expiry take heads.
 *
 * A locked node, and every node above it, stays. A handle to a node means "the positions from the
 * root to this node's end"; that stays true when the node is split, because the lower half keeps
 * its index. Owned by the scheduler's thread.
 *
 * A page of `pool` stands for a position. What some layers keep of it lies in side groups, each
 * with a pool of its own, where a position has a page or none:
 *
 *   pages         [0][1][2][3][4][5][6][7][8]
 *   window pages   -  -  -  5  9  -  7  2  3     W = 4: a sequence can go on after 8, because 6, 7
 *                                                and 8 have pages; not after 4
 *   state copies   -  -  -  0  -  -  -  -  1     it can go on after 3 and after 8
 *
 * A side is described by one number: `before`, how many positions up to the last one must all have
 * its pages (or as many as there are from the root). A window of W has before = W - 1. A state has
 * before = 1, and pages at few positions. A position where this holds in every side is a resume
 * point, and so is the root. A match ends at the deepest resume point. */

typedef uint32_t node_id;
#define NODE_NONE 0 /* no node; real ones start at 1 */

/* What a lookup found. PREFIX: the match ends where a stored sequence ends (at a leaf's end, or
 * where one was unlocked before it grew on). Else SUPERSEQUENCE: the query is used up inside a
 * longer one. Else COMMON: both go on, differently. */
enum match_kind { MATCH_MISS, MATCH_COMMON, MATCH_SUPERSEQUENCE, MATCH_PREFIX, MATCH_KINDS };

enum { TREE_MAX_SIDES = 2, TREE_DEPTH_BUCKETS = 24, TREE_MAX_PAGES = (1 << 29) - 1 };

/* Pages of a side group that went: from inside nodes, because such pages were needed; with evicted
 * positions, or because nothing else was left; with expired and with cleared positions. */
struct side_stats {
    uint64_t evicted_interior, evicted_tails, expired, cleared;
};

/* Pages and nodes that went: for want of room, of age, cleared. What was invalid counts as cleared,
 * whoever freed it. */
struct tree_stats {
    uint64_t evicted_pages, expired_pages, cleared_pages;
    uint64_t evicted_nodes, expired_nodes, cleared_nodes;
    uint32_t n_nodes;      /* in use, of max_nodes; roots count */
    uint32_t n_namespaces; /* roots */
    uint32_t n_evictable;  /* pages that eviction could free now; pinned ones count */
    uint32_t n_pinned;     /* pages of pinned nodes */
    uint32_t n_pins;
    uint32_t n_invalid; /* pages that can be found no more, but are not free yet */
    uint32_t n_entries; /* pages where a stored sequence ended when it was unlocked */
    struct side_stats sides[TREE_MAX_SIDES];
    /* Entries whose depth in tokens has so many binary digits; the last one takes what is deeper.
     */
    uint32_t entries_by_depth[TREE_DEPTH_BUCKETS];
};

struct prefix_tree;

struct tree_side_options {
    struct page_pool *pool;
    uint32_t before; /* positions that it takes to go on: W - 1 for a window, 1 for a state */
};

struct prefix_tree_options {
    struct page_pool *pool;     /* of TREE_MAX_PAGES at most: a node counts no further */
    struct image_table *images; /* held while the tree has their positions; NULL: there are none */
    uint32_t max_nodes;
    uint32_t max_pinned; /* pages */
    struct tree_side_options sides[TREE_MAX_SIDES];
    uint32_t n_sides;
};

/* Memory that a tree with a node for every page takes for each of them; at most, once all have been
 * in use. Its pools' is not in it. */
uint32_t prefix_tree_page_bytes(uint32_t n_sides);

int prefix_tree_open(struct prefix_tree **out, const struct prefix_tree_options *options,
                     struct error *err);
void prefix_tree_close(struct prefix_tree *t); /* gives every page back */

/* What a lookup found. It serves prefix_tree_acquire and prefix_tree_explain for the same query.
 * They look up again if the tree has changed since; one of all zeros is always looked up again. */
struct tree_match {
    uint32_t length; /* tokens up to the deepest resume point, where a sequence may be cut */
    uint32_t walked; /* tokens that the tree has, whether or not a sequence can go on after them */
    /* The tree's own: where it began, and where the `length` tokens end. */
    node_id root;
    node_id node;     /* the deepest node that they enter */
    uint32_t page;    /* its last page that they match */
    uint32_t beyond;  /* its positions behind that page */
    uint64_t version; /* of the tree */
};

/* How much of the `n` tokens is cached in the namespace. Ends where a sequence may be cut, never
 * inside an image. Changes nothing. */
struct tree_match prefix_tree_match(const struct prefix_tree *t, uint64_t ns,
                                    const uint64_t *tokens, uint32_t n);

/* Locks the longest cached prefix of the tokens: splits a node if it ends inside one, touches the
 * path and counts a hit on it. `m` is what prefix_tree_match said, and then what was locked.
 * Returns the node that ends there (the namespace's root, made if need be, when nothing matches);
 * NODE_NONE when there are no nodes left, even after eviction. */
node_id prefix_tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens, uint32_t n,
                            uint64_t now_ns, struct tree_match *m, enum match_kind *kind);

/* Locks what is cached of the tokens, resume point or not: to withdraw it. NODE_NONE: there is
 * nothing, or no node to end there. */
node_id prefix_tree_lock_path(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                              uint32_t n, uint64_t now_ns);

/* In a tree with sides: what it takes to go on after a locked node's end is kept as if sequences
 * had parted there (tree_ends.c). */
void prefix_tree_keep_end(struct prefix_tree *t, node_id node);

/* Lays the runs of positions [0, depth of node) into `out`, at most `max`; returns how many
 * there are (more than `max`: `out` holds nothing of use, call again with more room). */
uint32_t prefix_tree_pages(const struct prefix_tree *t, node_id node, struct page_run *out,
                           uint32_t max);

/* A side's pages of the last `n` positions up to a locked node's end, in order; PAGE_NONE where
 * there is none. */
void prefix_tree_side_pages(const struct prefix_tree *t, uint32_t side, node_id node, uint32_t n,
                            uint32_t *out);

/* Adds `n` computed positions behind a locked node: their tokens, and their pages (private to the
 * caller). The last token must be whole (cache_token_is_whole). Positions that the tree already has
 * there are not claimed; the last `*claimed` of the `n` now belong to the tree. The lock moves from
 * `node` to the returned node, which ends at the last of the `n`. A leaf that only the caller locks
 * grows in place. NODE_NONE: no nodes left, nothing changed, the lock stays.
 *
 * `side_pages` has an array of `n` pages for each side (NULL: there are no sides), PAGE_NONE where
 * a position has none. All of these pages are the tree's from here on: those of positions that have
 * one already are given back to the pool, and what the tree has is written in their place. So the
 * arrays then say what the tree has. */
node_id prefix_tree_insert(struct prefix_tree *t, node_id node, const uint64_t *tokens,
                           const uint32_t *pages, uint32_t *const side_pages[], uint32_t n,
                           uint64_t now_ns, uint32_t *claimed);

/* One more lock on a node that is locked already; one unlock; each on the whole path. An underflow
 * asserts. Unlocking touches; a handle is worth nothing after its last unlock. */
void prefix_tree_lock(struct prefix_tree *t, node_id node);
void prefix_tree_unlock(struct prefix_tree *t, node_id node, uint64_t now_ns);

/* Pins the path of a locked node until then: its pages go only when nothing unpinned is left to go.
 * False when that would pin more than max_pinned pages, or more than half of the namespace's cap,
 * there are too many pins, or the path is invalid. A pin on a path that is pinned to the same node
 * already prolongs it. A pin ends when its time is over (prefix_tree_expire, the earliest first),
 * when the last of its pages goes, or becomes invalid; its end is a touch of what remains of the
 * path. */
bool prefix_tree_pin(struct prefix_tree *t, node_id node, uint64_t until_ns);

/* Each of these frees nodes, at most `max_nodes` of them, and says how many pages that gave. Their
 * cost does not depend on what is not freed. */

/* At least `n_pages` if that many can be freed: first what is invalid, then unpinned nodes, least
 * recently used first, then pinned ones. A text leaf is trimmed from its end, images go whole. */
uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages, uint32_t max_nodes,
                           uint64_t now_ns);
/* For pages of a side, `n_pages` of them if that many can be freed. Interior ones are not needed to
 * go on at a node's end: all but those of its last `before` + 1 positions, and some to spare. They
 * go without their positions, from locked nodes too: least recently used nodes first, and the first
 * positions of each first. */
uint32_t prefix_tree_evict_interior(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                    uint64_t now_ns);

/* What the holder of a lock still needs: a side's pages of the last `n` positions of the node. */
struct side_need {
    node_id node;
    uint32_t n;
};
/* When no interior ones are left: whole leaves, in the order of prefix_tree_evict. Without its last
 * pages in a side nothing can go on inside a leaf, and its other pages would be kept in vain. Ends
 * where sequences parted age with them: as if each were a leaf, last used when a sequence last went
 * on from there. Then pages of locked nodes, except what is needed: `needs` has every lock. */
uint32_t prefix_tree_evict_tails(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                 const struct side_need *needs, uint32_t n_needs, uint64_t now_ns);
/* What was last used before `before_ns`, and is not pinned. Ends pins whose time is over. */
uint32_t prefix_tree_expire(struct prefix_tree *t, uint64_t before_ns, uint32_t max_nodes,
                            uint64_t now_ns);
/* What is not in use, pinned or not, of one namespace or (NULL) of all. */
uint32_t prefix_tree_clear(struct prefix_tree *t, const uint64_t *ns, uint32_t max_nodes,
                           uint64_t now_ns);

/* From now on nothing of the namespace, or (NULL) of any, is found any more. What nobody locks goes
 * with the next evictions and expiries; what is locked follows once it is unlocked. */
void prefix_tree_invalidate(struct prefix_tree *t, const uint64_t *ns);
/* The same for the positions from `depth` on of the path of a locked node, and all that hangs on
 * them: what cannot be trusted leaves the tree at once. The lock stays with its owner. */
void prefix_tree_withdraw(struct prefix_tree *t, node_id node, uint32_t depth);

/* A namespace's pages stay within the cap: what goes beyond it is evicted from the namespace's own
 * least recently used. UINT32_MAX: no cap, which every namespace has at first. It is forgotten
 * when the namespace goes, and nothing is noted where there is none. */
void prefix_tree_set_cap(struct prefix_tree *t, uint64_t ns, uint32_t n_pages);

/* ---- looking in -------------------------------------------------------------------------- */

/* Why no more of a query is cached. */
enum miss_reason {
    MISS_NONE,       /* all of it is */
    MISS_NEVER_SEEN, /* the tree ends there, and never went on */
    MISS_DIVERGED,   /* the tree goes on with another token */
    MISS_EVICTED,    /* it was here: pages or nodes were needed, or the namespace was at its cap */
    MISS_EXPIRED,    /* it was here: nobody used it for too long */
    MISS_CLEARED,    /* it was here: cleared, invalidated or withdrawn */
    MISS_NAMESPACE,  /* it is here, in another namespace */
    MISS_WINDOW,     /* its pages of a side group were needed; or it went with them */
};

enum { MISS_MAX_TOKENS = 8 };

struct miss {
    enum miss_reason reason;
    uint32_t position;              /* of the first token that is not cached */
    uint64_t gone_ns, last_used_ns; /* EVICTED, EXPIRED, CLEARED, WINDOW; gone_ns 0: not known */
    uint32_t gone_length; /* ... of the query, tokens from there on that are known to have gone */
    uint64_t ns;          /* NAMESPACE: which, and how much of the query it has */
    uint32_t ns_length;
    uint64_t tokens[MISS_MAX_TOKENS]; /* DIVERGED: how the most recently used path goes on */
    uint32_t n_tokens;
    uint32_t side; /* WINDOW: whose pages are missing */
};

/* `m`: what prefix_tree_match said of the query. Changes nothing. `others`: also looks whether
 * another namespace has more. What has gone is remembered for a while only, and the earlier time
 * where it went twice. */
void prefix_tree_explain(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                         uint32_t n, const struct tree_match *m, bool others, struct miss *out);

enum { ENTRY_PREVIEW = 12, ENTRY_MAX_CHILDREN = 256 };

struct tree_entry {
    node_id node, parent;
    uint64_t ns;
    uint32_t depth, length; /* tokens up to its end, and of its own */
    uint32_t hits, locks, pins;
    uint32_t n_children;             /* ENTRY_MAX_CHILDREN: so many or more */
    uint32_t n_images;               /* in its own part */
    uint32_t n_side[TREE_MAX_SIDES]; /* pages of the sides in its own part */
    uint64_t created_ns, used_ns;    /* created: to about a second */
    uint64_t tokens[ENTRY_PREVIEW];  /* its first ones */
    uint32_t n_tokens;
    uint64_t last; /* and its last one; 0 of a root */
};

/* Nodes that end where a stored sequence ends (a leaf, or an end that was marked), in the order of
 * their index, from `*cursor` (0: the beginning) on. Fills in at most `max`, looks at no more than
 * `max_visits` nodes, and leaves in
 * `*cursor` where to go on; 0 when that was all. */
uint32_t prefix_tree_list(const struct prefix_tree *t, node_id *cursor, struct tree_entry *out,
                          uint32_t max, uint32_t max_visits);
/* The tree from its roots down to `max_level` (roots are level 0), level by level, siblings most
 * recently used first; at most `max`. How many. */
uint32_t prefix_tree_outline(const struct prefix_tree *t, uint32_t max_level,
                             struct tree_entry *out, uint32_t max);

/* What the last calls of prefix_tree_evict and prefix_tree_evict_tails took, newest first. What
 * goes to make room for a node or to keep a cap is counted, but is no event. */
enum { PRESSURE_EVENTS = 16, PRESSURE_NODES = 4 };

struct pressure_event {
    uint64_t at_ns;
    uint32_t group; /* whose pages were wanted, and are what `freed` counts: 0, or 1 + a side */
    uint32_t wanted, freed, n_nodes; /* pages, pages, nodes that went or were trimmed */
    struct {
        uint64_t digest; /* of the tokens up to its end: the same in every event about it */
        uint32_t depth, freed, hits;
        uint64_t used_ns;
    } nodes[PRESSURE_NODES]; /* the first of them */
};

uint32_t prefix_tree_events(const struct prefix_tree *t, struct pressure_event *out, uint32_t max);

uint32_t prefix_tree_depth(const struct prefix_tree *t, node_id node);
const struct tree_stats *prefix_tree_stats(const struct prefix_tree *t);
/* Recounts the tree and its pages from nothing; false (and a log line) on any contradiction. */
bool prefix_tree_check(const struct prefix_tree *t);

#endif
