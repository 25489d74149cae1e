/* Data that must no longer be found: invalid namespaces, and positions that cannot be trusted.
 * Owned by the scheduler's thread.
 *
 *   invalidate   removes the root's edge from the table; the space's lists are evicted first
 *
 *   withdraw       A            A              removes the edge to the top from the table. Unlocked
 *                 ┌┴─┐         ┌┴╌┐            nodes below it are freed; locked ones become `gone`
 *                 B  C   ──►   B  C gone       and are freed when they are unlocked. Meanwhile
 *                   ┌┴┐           └ D gone     another C may be inserted beside it.
 *                   D E */
#include <assert.h>

#include "cache/tree_node.h"

static void space_invalidate(struct prefix_tree *t, uint32_t space)
{
    struct tree_space *s = &t->spaces[space];
    pins_end_in_space(t, space);
    edge_table_remove(&t->edges, NODE_NONE, s->ns);
    t->version++;
    t->nodes[s->root].cut = true;
    s->is_valid = false;
    s->cap = UINT32_MAX;
    s->invalid_ns = t->now;
    t->stats.n_invalid += s->n_pages - s->n_gone;
    t->n_invalid_spaces++;
    recency_invalidate(t, space);
}

void prefix_tree_invalidate(struct prefix_tree *t, const uint64_t *ns)
{
    node_id root = ns ? edge_table_find(&t->edges, NODE_NONE, *ns) : NODE_NONE;
    if (root != NODE_NONE)
        space_invalidate(t, t->nodes[root].space);
    node_id next = ns ? NODE_NONE : t->nodes[NODE_NONE].first_child;
    while ((root = next) != NODE_NONE) {
        next = t->nodes[root].next_sibling;
        if (!t->nodes[root].cut)
            space_invalidate(t, t->nodes[root].space);
    }
}

node_id path_node_at(const struct prefix_tree *t, node_id node, uint32_t depth)
{
    while (t->nodes[t->nodes[node].parent].depth > depth)
        node = t->nodes[node].parent;
    return node;
}

/* Splits off the positions before `depth` into a node of their own. If there is no free node, they
 * are withdrawn with the rest. */
static void split_before(struct prefix_tree *t, node_id node, uint32_t depth)
{
    const struct page_pool *pool = t->pool;
    uint32_t beyond = t->nodes[node].depth - depth, page = t->nodes[node].last;
    for (uint32_t i = 0; i < beyond; i++)
        page = pool->prev[page];
    for (; page != PAGE_NONE && !cache_token_is_whole(pool->token[page]); beyond++)
        page = pool->prev[page];
    if (page != PAGE_NONE && tree_unused_nodes(t) > 0)
        node_split(t, node, page, beyond);
}

/* The first node of a subtree in post-order. */
static node_id first_below(const struct prefix_tree *t, node_id node)
{
    while (t->nodes[node].first_child != NODE_NONE)
        node = t->nodes[node].first_child;
    return node;
}

static void node_withdraw(struct prefix_tree *t, node_id node)
{
    struct tree_node *x = &t->nodes[node];
    struct going going = {MISS_CLEARED, t->now, x->stamp};
    if (x->locks == 0) {
        node_remove(t, node, &going);
        return;
    }
    if (!node_is_invalid(t, node))
        t->stats.n_invalid += x->length;
    if (!x->gone) {
        t->spaces[x->space].n_gone += x->length;
        leave_ghost(t, t->pool->digest[x->first], &going);
    }
    x->gone = true;
    if (tree_has_sides(t))
        end_forget(t, node);
    node_coalesce(t, node);
}

void prefix_tree_withdraw(struct prefix_tree *t, node_id node, uint32_t depth)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    if (depth >= t->nodes[node].depth || t->nodes[path_node_at(t, node, depth)].gone)
        return;
    pins_end_below(t, node, depth);
    node_id top = path_node_at(t, node, depth);
    split_before(t, top, depth);
    edge_table_remove(&t->edges, t->nodes[top].parent, t->pool->token[t->nodes[top].first]);
    t->version++;
    t->nodes[top].cut = true;
    for (node_id x = first_below(t, top), next; x != NODE_NONE; x = next) {
        const struct tree_node *at = &t->nodes[x];
        next = at->next_sibling != NODE_NONE ? first_below(t, at->next_sibling) : at->parent;
        if (x == top)
            next = NODE_NONE;
        node_withdraw(t, x);
    }
}
