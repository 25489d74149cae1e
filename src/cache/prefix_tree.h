#ifndef RADISH_CACHE_PREFIX_TREE_H
#define RADISH_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cache/page_pool.h"

/* The prefix tree: which token sequences have their KV in which pages. It holds computed positions
 * only, and never asks whose they are.
 *
 *   pool   [0][1][2][3][4][5][6] ...             token[page], next[page]
 *           ▲                 ▲
 *   ns ─┬─ "You are a helpful" ─┬─ " pirate"     node: first and last page, length, lock count,
 *       │                       └─ " chef"             parent, first child, siblings, recency
 *       └─ ...
 *
 * A node is a chain of pages: it grows at its end, splits and coalesces without allocation. Edges
 * are found in one open-addressing table keyed by (node, first token). Unlocked nodes stand in one
 * recency list in which a parent is always behind its children, so that its head is always a leaf
 * and always the least recently used: eviction and expiry take the head.
 *
 * A locked node, and every node above it, stays. A handle to a node means "the positions from the
 * root to this node's end"; that stays true when the node is split, because the lower half keeps
 * its index. Owned by the scheduler's thread. */

/* A cache token: a kind and a payload in 64 bits. */
enum cache_token_kind { CACHE_TOKEN_TEXT = 0 };
static inline uint64_t cache_token_text(int32_t id)
{
    return (uint64_t)CACHE_TOKEN_TEXT << 56 | (uint32_t)id;
}

typedef uint32_t node_id;
#define NODE_NONE 0 /* no node; real ones start at 1 */

/* What a lookup found. PREFIX: the match ends where a stored sequence ends (at a leaf's end, or
 * where one was unlocked before it grew on). Else SUPERSEQUENCE: the query is used up inside a
 * longer one. Else COMMON: both go on, differently. */
enum match_kind { MATCH_MISS, MATCH_COMMON, MATCH_SUPERSEQUENCE, MATCH_PREFIX, MATCH_KINDS };

struct tree_stats {
    uint64_t evicted_pages, expired_pages;
    uint32_t n_nodes;     /* in use, of max_nodes; roots count */
    uint32_t n_evictable; /* pages that eviction could free now */
};

struct prefix_tree;

int prefix_tree_open(struct prefix_tree **out, struct page_pool *pool, uint32_t max_nodes,
                     struct error *err);
void prefix_tree_close(struct prefix_tree *t); /* gives every page back */

/* How many of the `n` tokens are cached in the namespace. Changes nothing. */
uint32_t prefix_tree_peek(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                          uint32_t n);

/* Finds the longest cached prefix of the tokens, splits a node if it ends inside one, touches the
 * path and locks it. Returns the node that ends there (the namespace's root, made if need be, when
 * nothing matches) and its depth in tokens; NODE_NONE when there are no nodes left, even after
 * eviction. */
node_id prefix_tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens, uint32_t n,
                            uint64_t now_ns, uint32_t *length, enum match_kind *kind);

/* Lays the runs of positions [0, depth of node) into `out`, at most `max`; returns how many
 * there are (more than `max`: `out` holds nothing of use, call again with more room). */
uint32_t prefix_tree_pages(const struct prefix_tree *t, node_id node, struct page_run *out,
                           uint32_t max);

/* Adds `n` computed positions behind a locked node: their tokens, and their pages (private to the
 * caller). Positions that the tree already has there are not claimed; the last `*claimed` of the
 * `n` now belong to the tree. The lock moves from `node` to the returned node, which ends at the
 * last of the `n`. A leaf that only the caller locks grows in place. NODE_NONE: no nodes left,
 * nothing changed, the lock stays. */
node_id prefix_tree_insert(struct prefix_tree *t, node_id node, const uint64_t *tokens,
                           const uint32_t *pages, uint32_t n, uint64_t now_ns, uint32_t *claimed);

/* One more lock on a node that is locked already; one unlock; each on the whole path. An underflow
 * asserts. Unlocking touches; a handle is worth nothing after its last unlock. */
void prefix_tree_lock(struct prefix_tree *t, node_id node);
void prefix_tree_unlock(struct prefix_tree *t, node_id node, uint64_t now_ns);

/* Frees at least `n_pages` if that many can be freed, least recently used first; how many it was.
 */
uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages);
/* Frees what was last used before `before_ns`. */
uint32_t prefix_tree_expire(struct prefix_tree *t, uint64_t before_ns);

uint32_t prefix_tree_depth(const struct prefix_tree *t, node_id node);
struct tree_stats prefix_tree_stats(const struct prefix_tree *t);
/* Recounts the tree and its pages from nothing; false (and a log line) on any contradiction. */
bool prefix_tree_check(const struct prefix_tree *t);

#endif
