#ifndef RADISH_TEST_TREE_LOOKUP_H
#define RADISH_TEST_TREE_LOOKUP_H

#include "cache/prefix_tree.h"

/* Lookups in one call, for tests that do not care about an earlier prefix_tree_match. */

static inline node_id tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                                   uint32_t n, uint64_t now_ns, uint32_t *length,
                                   enum match_kind *kind)
{
    struct tree_match m = {0};
    node_id node = prefix_tree_acquire(t, ns, tokens, n, now_ns, &m, kind);
    *length = m.length;
    return node;
}

static inline void tree_explain(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                                uint32_t n, bool others, struct miss *out)
{
    prefix_tree_explain(t, ns, tokens, n, &(struct tree_match){0}, others, out);
}

#endif
