#ifndef RADISH_CACHE_PREFIX_TREE_H
#define RADISH_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cache/cache_token.h"
#include "cache/image_table.h"
#include "cache/page_pool.h"

/* The prefix tree maps token sequences to the pages that hold their KV. It contains computed
 * positions only, and does not know which request they came from.
 *
 *   pool   [0][1][2][3][4][5][6] ...             token[page], next[page], digest[page]
 *           ▲                 ▲
 *   ns ─┬─ "You are a helpful" ─┬─ " pirate"     node: first and last page, length, depth, locks,
 *       │                       └─ " chef"             pins, parent, children, recency
 *       └─ image 7 (729 pages, never cut) ── "what is this"
 *
 * A node is a chain of pages: it grows at its end, splits and merges without allocation. Edges are
 * found in one open-addressing table keyed by (node, first token). The unlocked nodes of a
 * namespace are in recency lists where a parent always comes after its children, so a list's head
 * is always a leaf and always the least recently used: eviction and expiry take heads.
 *
 * A locked node, and every node above it, stays in the tree. A handle to a node means "the
 * positions from the root to this node's end"; that stays true when the node is split, because the
 * lower half keeps its index. Owned by the scheduler's thread.
 *
 * A page of `pool` stands for a position. Some layers keep their part in side groups, each with
 * its own pool, where a position may or may not have a page:
 *
 *   pages         [0][1][2][3][4][5][6][7][8]
 *   window pages   -  -  -  5  9  -  7  2  3     W = 4: a sequence can resume after 8, because 6,
 *                                                7 and 8 have pages; not after 4
 *   state copies   -  -  -  0  -  -  -  -  1     it can resume after 3 and after 8
 *
 * A side is described by one number: `before`, how many positions up to the last one must all have
 * its pages (or as many as there are from the root). A window of W has before = W - 1. A state has
 * before = 1, and pages at few positions. A position where this holds for every side is a resume
 * point, and so is the root. A match ends at the deepest resume point. */

typedef uint32_t node_id;
#define NODE_NONE 0 /* no node; real ones start at 1 */

/* What a lookup found. PREFIX: the match ends where a stored sequence ends (at a leaf's end, or
 * where one was unlocked before it grew further). Else SUPERSEQUENCE: the whole query is the
 * beginning of a longer one. Else COMMON: they have a common prefix and then diverge. */
enum match_kind { MATCH_MISS, MATCH_COMMON, MATCH_SUPERSEQUENCE, MATCH_PREFIX, MATCH_KINDS };

enum { TREE_MAX_SIDES = 2, TREE_DEPTH_BUCKETS = 24, TREE_MAX_PAGES = (1 << 29) - 1 };

/* Pages of a side group that were freed: interior pages, because the side's pages were needed; with
 * evicted positions, or because nothing else was left; with expired and with cleared positions. */
struct side_stats {
    uint64_t evicted_interior, evicted_tails, expired, cleared;
};

/* Pages and nodes that were evicted, expired or cleared. Invalid ones count as cleared, whoever
 * freed them. */
struct tree_stats {
    uint64_t evicted_pages, expired_pages, cleared_pages;
    uint64_t evicted_nodes, expired_nodes, cleared_nodes;
    uint32_t n_nodes;      /* in use, of max_nodes; roots count */
    uint32_t n_namespaces; /* roots */
    uint32_t n_evictable;  /* pages that eviction could free now; pinned ones count */
    uint32_t n_pinned;     /* pages of pinned nodes */
    uint32_t n_pins;
    uint32_t n_invalid; /* pages that can no longer be found, but are not free yet */
    uint32_t n_entries; /* pages where a stored sequence ended when it was unlocked */
    struct side_stats sides[TREE_MAX_SIDES];
    /* Entries by the number of binary digits of their depth in tokens; the last bucket also has all
     * deeper ones. */
    uint32_t entries_by_depth[TREE_DEPTH_BUCKETS];
};

struct prefix_tree;

struct tree_side_options {
    struct page_pool *pool;
    uint32_t before; /* positions needed to resume: W - 1 for a window, 1 for a state */
};

struct prefix_tree_options {
    struct page_pool *pool;     /* of TREE_MAX_PAGES at most: a node counts no further */
    struct image_table *images; /* held while the tree has their positions; NULL: there are none */
    uint32_t max_nodes;
    uint32_t max_pinned; /* pages */
    struct tree_side_options sides[TREE_MAX_SIDES];
    uint32_t n_sides;
};

/* The most memory per page that a tree with one node per page can take, once all pages have been
 * in use. The pools' own memory is not included. */
uint32_t prefix_tree_page_bytes(uint32_t n_sides);

int prefix_tree_open(struct prefix_tree **out, const struct prefix_tree_options *options,
                     struct error *err);
void prefix_tree_close(struct prefix_tree *t); /* gives every page back */

/* What a lookup found. Pass it to prefix_tree_acquire and prefix_tree_explain with the same query.
 * They look up again if the tree has changed since, or if it is all zeros. */
struct tree_match {
    uint32_t length; /* tokens up to the deepest resume point, where a sequence may be cut */
    uint32_t walked; /* tokens that the tree has, whether or not a sequence can resume after them */
    /* The tree's own: where it began, and where the `length` tokens end. */
    node_id root;
    node_id node;     /* the deepest node that they enter */
    uint32_t page;    /* its last page that they match */
    uint32_t beyond;  /* its positions after that page */
    uint64_t version; /* of the tree */
};

/* How much of the `n` tokens is cached in the namespace. The match ends at a resume point, never
 * inside an image. Changes nothing. */
struct tree_match prefix_tree_match(const struct prefix_tree *t, uint64_t ns,
                                    const uint64_t *tokens, uint32_t n);

/* Locks the longest cached prefix of the tokens: splits a node if it ends inside one, touches the
 * path and counts a hit on it. `m` is the result of prefix_tree_match, and is updated to what was
 * locked. Returns the node that ends there (if nothing matches, the namespace's root, created if
 * necessary), or NODE_NONE if there are no nodes left, even after eviction. */
node_id prefix_tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens, uint32_t n,
                            uint64_t now_ns, struct tree_match *m, enum match_kind *kind);

/* Locks the cached part of the tokens, resume point or not, in order to withdraw it. NODE_NONE:
 * nothing is cached, or there is no node left to end there. */
node_id prefix_tree_lock_path(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                              uint32_t n, uint64_t now_ns);

/* In a tree with sides: keeps what is needed to resume after a locked node's end, as if sequences
 * had split there (tree_ends.c). */
void prefix_tree_keep_end(struct prefix_tree *t, node_id node);

/* Writes the runs of positions [0, depth of node) to `out`, at most `max`; returns how many there
 * are. If that is more than `max`, `out` is unusable: call again with more room. */
uint32_t prefix_tree_pages(const struct prefix_tree *t, node_id node, struct page_run *out,
                           uint32_t max);

/* A side's pages of the last `n` positions up to a locked node's end, in order; PAGE_NONE where
 * there is none. */
void prefix_tree_side_pages(const struct prefix_tree *t, uint32_t side, node_id node, uint32_t n,
                            uint32_t *out);

/* Adds `n` computed positions after a locked node: their tokens, and their pages (private to the
 * caller). The last token must be whole (cache_token_is_whole). Positions that the tree already
 * has are not claimed; the last `*claimed` of the `n` now belong to the tree. The lock moves from
 * `node` to the returned node, which ends at the last of the `n`. A leaf that only the caller
 * locks grows in place. NODE_NONE: no nodes left, nothing changed, the lock stays.
 *
 * `side_pages` has an array of `n` pages for each side (NULL: there are no sides), PAGE_NONE where
 * a position has none. All of these pages now belong to the tree. Pages of positions that already
 * have one go back to the pool, and the array gets the tree's page instead, so afterwards the
 * arrays say what the tree has. */
node_id prefix_tree_insert(struct prefix_tree *t, node_id node, const uint64_t *tokens,
                           const uint32_t *pages, uint32_t *const side_pages[], uint32_t n,
                           uint64_t now_ns, uint32_t *claimed);

/* Adds a lock to a node that is already locked, or removes one; both apply to the whole path. An
 * underflow asserts. Unlocking counts as use. A handle is invalid after its last unlock. */
void prefix_tree_lock(struct prefix_tree *t, node_id node);
void prefix_tree_unlock(struct prefix_tree *t, node_id node, uint64_t now_ns);

/* The pages that eviction could free if these `n` locks were removed together and the match, which
 * must be up to date, were locked. A node may be there several times, once for each lock. Leaves
 * the locks as they were. */
uint32_t prefix_tree_evictable_without(struct prefix_tree *t, const node_id *nodes, uint32_t n,
                                       const struct tree_match *kept);

/* Pins the path of a locked node until `until_ns`: its pages are evicted only when nothing
 * unpinned is left. Tenants have equal shares of max_pinned pages and of the number of pins, and
 * may use more while nobody else wants it. False if that is not enough, if it would pin more than
 * half of the namespace's cap, or if the path is invalid. Pinning the same node again extends its
 * pin. A pin ends when its time is over (prefix_tree_expire, the earliest first), when the last of
 * its pages is evicted or becomes invalid, or when another tenant claims its share. Ending a pin
 * counts as use of the rest of the path. */
bool prefix_tree_pin(struct prefix_tree *t, node_id node, uint64_t until_ns);

/* Each of these frees at most `max_nodes` nodes and returns how many pages that freed. The cost
 * depends only on what is freed. */

/* Frees at least `n_pages` if possible: first invalid nodes, then unpinned ones, least recently
 * used first, then pinned ones. A text leaf is trimmed from its end; images are freed whole. */
uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages, uint32_t max_nodes,
                           uint64_t now_ns);
/* Frees `n_pages` interior pages of a side if possible. Interior pages are not needed to resume at
 * a node's end: all except those of its last `before` + 1 positions, and some to spare. Their
 * positions stay. They are taken from locked nodes too: least recently used nodes first, and the
 * first positions of each first. */
uint32_t prefix_tree_evict_interior(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                    uint64_t now_ns);

/* What the holder of a lock still needs: a side's pages of the last `n` positions of the node. */
struct side_need {
    node_id node;
    uint32_t n;
};
/* When no interior pages are left: frees whole leaves, in the order of prefix_tree_evict. Without
 * its last pages in a side, nothing can resume inside a leaf, so keeping its other pages would be
 * useless. Ends where sequences split age like leaves, last used when a sequence last resumed
 * there. After that come pages of locked nodes that are not needed: `needs` lists every lock. */
uint32_t prefix_tree_evict_tails(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                 const struct side_need *needs, uint32_t n_needs, uint64_t now_ns);
/* Frees what was last used before `before_ns` and is not pinned. Ends pins whose time is over. */
uint32_t prefix_tree_expire(struct prefix_tree *t, uint64_t before_ns, uint32_t max_nodes,
                            uint64_t now_ns);
/* Frees everything not in use, pinned or not, in one namespace or (NULL) in all. */
uint32_t prefix_tree_clear(struct prefix_tree *t, const uint64_t *ns, uint32_t max_nodes,
                           uint64_t now_ns);

/* From now on nothing in the namespace, or (NULL) in any, can be found. Unlocked nodes are freed
 * by the next evictions and expiries, locked ones once they are unlocked. */
void prefix_tree_invalidate(struct prefix_tree *t, const uint64_t *ns);
/* The same for the positions from `depth` on in the path of a locked node, and everything below
 * them: data that cannot be trusted leaves the tree at once. The owner keeps the lock. */
void prefix_tree_withdraw(struct prefix_tree *t, node_id node, uint32_t depth);

/* Limits the pages of a namespace: beyond the cap, its own least recently used pages are evicted.
 * UINT32_MAX, the default, means no cap. The cap is forgotten when the namespace is freed; without
 * a namespace this does nothing. */
void prefix_tree_set_cap(struct prefix_tree *t, uint64_t ns, uint32_t n_pages);

/* ---- inspecting -------------------------------------------------------------------------- */

/* Why a query was not cached further. */
enum miss_reason {
    MISS_NONE,       /* all of it is */
    MISS_NEVER_SEEN, /* the tree ends there, and never continued */
    MISS_DIVERGED,   /* the tree continues with another token */
    MISS_EVICTED,    /* it was here: pages or nodes were needed, or the namespace was at its cap */
    MISS_EXPIRED,    /* it was here: unused for too long */
    MISS_CLEARED,    /* it was here: cleared, invalidated or withdrawn */
    MISS_NAMESPACE,  /* it is here, in another namespace */
    MISS_WINDOW,     /* its pages of a side group were needed, or it was freed with them */
};

enum { MISS_MAX_TOKENS = 8 };

struct miss {
    enum miss_reason reason;
    uint32_t position;              /* of the first token that is not cached */
    uint64_t gone_ns, last_used_ns; /* EVICTED, EXPIRED, CLEARED, WINDOW; gone_ns 0: not known */
    uint32_t gone_length; /* ... tokens of the query from there on that are known to be gone */
    uint64_t ns;          /* NAMESPACE: which, and how much of the query it has */
    uint32_t ns_length;
    uint64_t tokens[MISS_MAX_TOKENS]; /* DIVERGED: how the most recently used path continues */
    uint32_t n_tokens;
    uint32_t side; /* WINDOW: whose pages are missing */
};

/* `m` is the result of prefix_tree_match for the query. Changes nothing. `others`: also checks
 * whether another namespace has more. Freed entries are remembered only for a while; for those
 * freed twice, the earlier time is. */
void prefix_tree_explain(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                         uint32_t n, const struct tree_match *m, bool others, struct miss *out);

enum { ENTRY_PREVIEW = 12, ENTRY_MAX_CHILDREN = 256 };

struct tree_entry {
    node_id node, parent;
    uint64_t ns;
    uint32_t depth, length; /* tokens up to its end, and of its own */
    uint32_t hits, locks, pins;
    uint32_t n_children;             /* ENTRY_MAX_CHILDREN: that many or more */
    uint32_t n_images;               /* in its own part */
    uint32_t n_side[TREE_MAX_SIDES]; /* pages of the sides in its own part */
    uint64_t created_ns, used_ns;    /* created: to about a second */
    uint64_t tokens[ENTRY_PREVIEW];  /* its first ones */
    uint32_t n_tokens;
    uint64_t last; /* and its last one; 0 of a root */
};

/* Lists nodes that end where a stored sequence ends (a leaf, or a marked end), of one tenant (0: of
 * all), in the order of their index, starting at `*cursor` (0: the beginning). Fills in at most
 * `max`, visits at most `max_visits` nodes, and sets `*cursor` to where to continue; 0 at the end.
 */
uint32_t prefix_tree_list(const struct prefix_tree *t, uint32_t tenant, node_id *cursor,
                          struct tree_entry *out, uint32_t max, uint32_t max_visits);
/* The tree from its roots down to `max_level` (roots are level 0), level by level, siblings most
 * recently used first; at most `max`. Returns how many. */
uint32_t prefix_tree_outline(const struct prefix_tree *t, uint32_t max_level,
                             struct tree_entry *out, uint32_t max);

/* What the last calls of prefix_tree_evict and prefix_tree_evict_tails freed, newest first.
 * Evictions to make room for a node or to keep a cap are counted, but are not events. */
enum { PRESSURE_EVENTS = 16, PRESSURE_NODES = 4 };

struct pressure_event {
    uint64_t at_ns;
    uint32_t group; /* whose pages were wanted, and are what `freed` counts: 0, or 1 + a side */
    uint32_t wanted, freed, n_nodes; /* pages, pages, nodes that were freed or trimmed */
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
