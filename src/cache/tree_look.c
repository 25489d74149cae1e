/* Looking into the tree without changing it. Owned by the scheduler's thread, so whatever is done
 * here is done between two steps: each call is bounded by what it was asked for, not by the tree.
 */
#include "cache/tree_node.h"

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
    uint32_t page = x->first;
    for (; out->n_tokens < ENTRY_PREVIEW && out->n_tokens < x->length; page = t->pool->next[page])
        out->tokens[out->n_tokens++] = t->pool->token[page];
}

uint32_t prefix_tree_list(const struct prefix_tree *t, node_id *cursor, struct tree_entry *out,
                          uint32_t max, uint32_t max_visits)
{
    uint32_t n = 0;
    node_id node = *cursor ? *cursor : 1;
    for (; node <= t->n_made && n < max && max_visits > 0; node++, max_visits--) {
        /* What is not in use has no pages, like a root. */
        if (t->nodes[node].length == 0 || node_is_invalid(t, node))
            continue;
        if (node_is_leaf(t, node) || page_is_end(t, t->nodes[node].last))
            describe(t, node, &out[n++]);
    }
    *cursor = node <= t->n_made ? node : 0;
    return n;
}

/* Level by level: what has been written is also the queue of what to open. */
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
