/* Read-only queries on the tree. They run on the scheduler's thread, between two steps, so the cost
 * of each call is bounded by its arguments and not by the size of the tree. */
#include "cache/tree_node.h"

enum { EXPLAIN_MAX_POSITIONS = 1 << 14 };

static uint32_t count_children(const struct prefix_tree *t, node_id node)
{
    uint32_t n = 0;
    node_id child = t->nodes[node].first_child;
    for (; child != NODE_NONE && n < ENTRY_MAX_CHILDREN; child = t->nodes[child].next_sibling)
        n += !t->nodes[child].cut;
    return n;
}

static uint32_t count_images(const struct prefix_tree *t, node_id node)
{
    const struct tree_node *x = &t->nodes[node];
    uint32_t n = 0, page = x->first;
    for (uint32_t i = 0; t->n_images > 0 && i < x->length; i++, page = t->pool->next[page])
        n += cache_token_image_begun(t->pool->token[page]) == 1;
    return n;
}

static void describe(const struct prefix_tree *t, node_id node, struct tree_entry *out)
{
    const struct tree_node *x = &t->nodes[node];
    *out = (struct tree_entry){
        .node = node,
        .parent = x->parent,
        .ns = t->spaces[x->space].ns,
        .depth = x->depth,
        .length = x->length,
        .hits = x->hits,
        .locks = x->locks,
        .pins = x->pins,
        .n_children = count_children(t, node),
        .n_images = count_images(t, node),
        .created_ns = (uint64_t)x->created << NODE_CREATED_SHIFT,
        .used_ns = x->stamp,
    };
    for (uint32_t i = 0; i < t->n_sides; i++)
        out->n_side[i] = t->sides[i].nodes[node].n;
    uint32_t page = x->first;
    for (; out->n_tokens < ENTRY_PREVIEW && out->n_tokens < x->length; page = t->pool->next[page])
        out->tokens[out->n_tokens++] = t->pool->token[page];
    if (x->length > 0)
        out->last = t->pool->token[x->last];
}

static bool is_of(const struct prefix_tree *t, uint32_t tenant, const struct tree_node *x)
{
    return !tenant || cache_tenant(t->spaces[x->space].ns, t->pool->token[x->last]) == tenant;
}

uint32_t prefix_tree_list(const struct prefix_tree *t, uint32_t tenant, node_id *cursor,
                          struct tree_entry *out, uint32_t max, uint32_t max_visits)
{
    uint32_t n = 0;
    node_id node = *cursor ? *cursor : 1;
    for (; node <= t->n_made && n < max && max_visits > 0; node++, max_visits--) {
        /* Unused nodes have no pages, and neither do roots. */
        if (t->nodes[node].length == 0 || node_is_invalid(t, node))
            continue;
        if (!is_of(t, tenant, &t->nodes[node]))
            continue;
        if (node_is_leaf(t, node) || page_is_end(t, t->nodes[node].last))
            describe(t, node, &out[n++]);
    }
    *cursor = node <= t->n_made ? node : 0;
    return n;
}

/* Breadth first: the output doubles as the queue of nodes to open. */
uint32_t prefix_tree_outline(const struct prefix_tree *t, uint32_t max_level,
                             struct tree_entry *out, uint32_t max)
{
    uint32_t n = 0, opened = 0, level_end = 0;
    node_id parent = NODE_NONE;
    for (uint32_t level = 0;;) {
        node_id child = t->nodes[parent].first_child;
        for (; child != NODE_NONE && n < max; child = t->nodes[child].next_sibling)
            if (!t->nodes[child].cut)
                describe(t, child, &out[n++]);
        if (opened == level_end) {
            level_end = n;
            if (level++ == max_level)
                break;
        }
        if (opened == n)
            break;
        parent = out[opened++].node;
    }
    return n;
}

/* ---- why a match is not longer ---- */

/* Explains a miss by an earlier removal, if it is still remembered. Not every position leaves a
 * ghost, but stored ends do: if a later position of the query was once cached, so was the first
 * missing one. Time and reason come from the first ghost found, the length from the last. */
static bool explain_ghost(const struct prefix_tree *t, uint64_t digest, const uint64_t *tokens,
                          uint32_t n, struct miss *out)
{
    for (uint32_t i = out->position; i < n && i - out->position < EXPLAIN_MAX_POSITIONS; i++) {
        digest = digest_next(digest, tokens[i]);
        const struct ghost *ghost = ghost_table_find(t->ghosts, digest);
        if (!ghost)
            continue;
        if (out->gone_length == 0) {
            out->reason = (enum miss_reason)ghost->why;
            out->side = ghost->side;
            out->gone_ns = ghost->gone_ns;
            out->last_used_ns = ghost->last_used_ns;
        }
        out->gone_length = i + 1 - out->position;
    }
    return out->gone_length > 0;
}

/* The tree has more of the query, but no sequence can resume there. Names the side that limits it
 * most. */
static bool explain_sides(const struct prefix_tree *t, const struct tree_match *m,
                          const uint64_t *tokens, struct miss *out)
{
    if (m->walked == m->length)
        return false;
    struct tree_match walked = tree_walk(t, m->root, tokens, m->walked);
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < t->n_sides; i++) {
        struct tree_match alone = walked;
        side_resume(t, i, &alone);
        if (alone.length < least)
            out->side = i;
        least = alone.length < least ? alone.length : least;
    }
    out->reason = MISS_WINDOW;
    out->last_used_ns = t->nodes[walked.node].stamp;
    out->gone_length = m->walked - m->length;
    return true;
}

/* An invalid namespace with the same number that still has more of the query. */
static bool explain_invalid(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                            uint32_t n, struct miss *out)
{
    if (t->n_invalid_spaces == 0)
        return false;
    node_id root = t->nodes[NODE_NONE].first_child;
    for (; root != NODE_NONE; root = t->nodes[root].next_sibling) {
        const struct tree_space *space = &t->spaces[t->nodes[root].space];
        if (space->is_valid || space->ns != ns)
            continue;
        struct tree_match m = tree_find(t, root, tokens, n);
        if (m.length > out->position) {
            out->reason = MISS_CLEARED;
            out->gone_ns = space->invalid_ns;
            out->last_used_ns = t->nodes[m.node].stamp;
            out->gone_length = m.length - out->position;
            return true;
        }
    }
    return false;
}

/* The other namespace that has the most of the query; its own has no more than `position`. */
static bool explain_other(const struct prefix_tree *t, const uint64_t *tokens, uint32_t n,
                          struct miss *out)
{
    uint32_t best = out->position;
    node_id root = t->nodes[NODE_NONE].first_child;
    for (; root != NODE_NONE; root = t->nodes[root].next_sibling) {
        const struct tree_space *space = &t->spaces[t->nodes[root].space];
        uint32_t length = space->is_valid ? tree_find(t, root, tokens, n).length : 0;
        if (length > best) {
            out->reason = MISS_NAMESPACE;
            out->ns = space->ns;
            out->ns_length = best = length;
        }
    }
    return out->reason == MISS_NAMESPACE;
}

/* How the tree continues after the match: the rest of its node, then always the most recently used
 * child. */
static void explain_divergence(const struct prefix_tree *t, const struct tree_match *m,
                               struct miss *out)
{
    node_id node = m->node;
    uint32_t page = m->beyond ? t->pool->next[m->page] : PAGE_NONE;
    while (out->n_tokens < MISS_MAX_TOKENS) {
        if (page == PAGE_NONE) {
            node = t->nodes[node].first_child;
            while (t->nodes[node].cut)
                node = t->nodes[node].next_sibling;
            if (node == NODE_NONE)
                break;
            page = t->nodes[node].first;
        }
        out->tokens[out->n_tokens++] = t->pool->token[page];
        page = t->pool->next[page];
    }
    out->reason = out->n_tokens ? MISS_DIVERGED : MISS_NEVER_SEEN;
}

void prefix_tree_explain(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                         uint32_t n, const struct tree_match *match, bool others, struct miss *out)
{
    struct tree_match m = *match;
    if (m.version != t->version)
        m = prefix_tree_match(t, ns, tokens, n);
    /* An incomplete image at the end cannot be cached. */
    while (n > 0 && !cache_token_is_whole(tokens[n - 1]))
        n--;
    uint64_t digest = m.length > 0 ? t->pool->digest[m.page] : space_digest(ns);
    *out = (struct miss){.reason = MISS_NONE, .position = m.length};
    if (m.length == n || explain_sides(t, &m, tokens, out) ||
        explain_ghost(t, digest, tokens, n, out) || explain_invalid(t, ns, tokens, n, out) ||
        (others && explain_other(t, tokens, n, out)))
        return;
    if (m.root != NODE_NONE)
        explain_divergence(t, &m, out);
    else
        out->reason = MISS_NEVER_SEEN;
}
