/* The steps that change the tree's shape. Owned by the scheduler's thread.
 *
 * What a newcomer gets wrong: list order, stamps, edges, siblings, page chains and the counters
 * (n_evictable here, n_owned in the pool) are one state. A step moves all of them or none, and
 * every page of a listed node counts as evictable, because what is below it is unlocked too. */
#include "cache/tree_node.h"

#include <assert.h>

static void recency_link(struct prefix_tree *t, node_id node, node_id older)
{
    struct tree_node *nodes = t->nodes;
    node_id newer = nodes[older].newer;
    nodes[node].older = older;
    nodes[node].newer = newer;
    nodes[older].newer = node;
    nodes[newer].older = node;
}

static void recency_unlink(struct prefix_tree *t, node_id node)
{
    struct tree_node *nodes = t->nodes;
    nodes[nodes[node].older].newer = nodes[node].newer;
    nodes[nodes[node].newer].older = nodes[node].older;
}

void recency_push(struct prefix_tree *t, node_id node)
{
    recency_link(t, node, t->nodes[NODE_NONE].older);
    t->stats.n_evictable += t->nodes[node].length;
}

void recency_remove(struct prefix_tree *t, node_id node)
{
    recency_unlink(t, node);
    t->stats.n_evictable -= t->nodes[node].length;
}

static node_id node_take(struct prefix_tree *t)
{
    assert(tree_unused_nodes(t) > 0);
    node_id node = t->unused;
    if (node != NODE_NONE)
        t->unused = t->nodes[node].parent;
    else
        node = ++t->n_made;
    t->stats.n_nodes++;
    t->nodes[node] = (struct tree_node){.first = PAGE_NONE, .last = PAGE_NONE};
    return node;
}

static void node_drop(struct prefix_tree *t, node_id node)
{
    t->nodes[node] = (struct tree_node){.parent = t->unused};
    t->unused = node;
    t->stats.n_nodes--;
}

static void child_link(struct prefix_tree *t, node_id parent, node_id child)
{
    node_id next = t->nodes[parent].first_child;
    t->nodes[child].parent = parent;
    t->nodes[child].prev_sibling = NODE_NONE;
    t->nodes[child].next_sibling = next;
    t->nodes[parent].first_child = child;
    if (next != NODE_NONE)
        t->nodes[next].prev_sibling = child;
}

static void child_unlink(struct prefix_tree *t, node_id child)
{
    const struct tree_node *c = &t->nodes[child];
    if (c->prev_sibling != NODE_NONE)
        t->nodes[c->prev_sibling].next_sibling = c->next_sibling;
    else
        t->nodes[c->parent].first_child = c->next_sibling;
    if (c->next_sibling != NODE_NONE)
        t->nodes[c->next_sibling].prev_sibling = c->prev_sibling;
}

node_id node_make_root(struct prefix_tree *t, uint64_t ns)
{
    node_id root = node_take(t);
    t->nodes[root].ns = ns;
    child_link(t, NODE_NONE, root);
    edge_table_put(&t->edges, NODE_NONE, ns, root);
    return root;
}

node_id node_make_leaf(struct prefix_tree *t, node_id parent, uint64_t first_token)
{
    node_id leaf = node_take(t);
    t->nodes[leaf].locks = 1;
    child_link(t, parent, leaf);
    edge_table_put(&t->edges, parent, first_token, leaf);
    return leaf;
}

void node_append(struct prefix_tree *t, node_id leaf, const uint64_t *tokens, const uint32_t *pages,
                 uint32_t n)
{
    struct page_pool *pool = t->pool;
    struct tree_node *x = &t->nodes[leaf];
    assert(x->locks > 0 && node_is_leaf(t, leaf) && n <= page_pool_private(pool));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = pages[i];
        assert(!page_pool_is_free(pool, page));
        pool->token[page] = tokens[i];
        pool->prev[page] = x->last;
        pool->next[page] = PAGE_NONE;
        page_set_end(t, page, false);
        if (x->last == PAGE_NONE)
            x->first = page;
        else
            pool->next[x->last] = page;
        x->last = page;
    }
    x->length += n;
    pool->n_owned += n;
}

node_id node_split(struct prefix_tree *t, node_id low, uint32_t page, uint32_t beyond)
{
    struct page_pool *pool = t->pool;
    node_id up = node_take(t);
    struct tree_node *u = &t->nodes[up], *l = &t->nodes[low];
    assert(beyond > 0 && beyond < l->length);
    u->first = l->first;
    u->last = page;
    u->length = l->length - beyond;
    u->locks = l->locks;
    u->tick = l->tick;
    u->used_ns = l->used_ns;
    l->first = pool->next[page];
    l->length = beyond;
    pool->next[page] = PAGE_NONE;
    pool->prev[l->first] = PAGE_NONE;

    node_id parent = l->parent;
    child_unlink(t, low);
    child_link(t, parent, up);
    child_link(t, up, low);
    edge_table_put(&t->edges, parent, pool->token[u->first], up);
    edge_table_put(&t->edges, up, pool->token[l->first], low);
    if (l->locks == 0)
        recency_link(t, up, low);
    return up;
}

/* Gives the last `n` pages of a node back, in runs. */
static void chain_give(struct prefix_tree *t, node_id node, uint32_t n)
{
    struct page_pool *pool = t->pool;
    struct tree_node *x = &t->nodes[node];
    struct page_run run = {0, 0};
    uint32_t page = x->last;
    pool->n_owned -= n;
    x->length -= n;
    for (; n > 0; n--, page = pool->prev[page]) {
        if (run.count && page + 1 != run.first) {
            page_pool_give(pool, run);
            run.count = 0;
        }
        run.first = page;
        run.count++;
    }
    page_pool_give(pool, run);
    x->last = page;
    if (page != PAGE_NONE)
        pool->next[page] = PAGE_NONE;
}

void node_trim(struct prefix_tree *t, node_id leaf, uint32_t n)
{
    assert(node_is_leaf(t, leaf) && t->nodes[leaf].locks == 0 && n < t->nodes[leaf].length);
    chain_give(t, leaf, n);
    t->stats.n_evictable -= n;
}

uint32_t node_remove(struct prefix_tree *t, node_id leaf)
{
    const struct tree_node *x = &t->nodes[leaf];
    assert(node_is_leaf(t, leaf) && x->locks == 0);
    node_id parent = x->parent;
    uint32_t n = x->length;
    recency_remove(t, leaf);
    edge_table_remove(&t->edges, parent, t->pool->token[x->first]);
    child_unlink(t, leaf);
    chain_give(t, leaf, n);
    node_drop(t, leaf);
    if (node_is_root(t, parent))
        root_remove_if_idle(t, parent);
    return n;
}

void root_remove_if_idle(struct prefix_tree *t, node_id root)
{
    const struct tree_node *r = &t->nodes[root];
    if (r->locks > 0 || r->first_child != NODE_NONE)
        return;
    edge_table_remove(&t->edges, NODE_NONE, r->ns);
    child_unlink(t, root);
    node_drop(t, root);
}

bool node_coalesce(struct prefix_tree *t, node_id parent)
{
    struct page_pool *pool = t->pool;
    const struct tree_node *p = &t->nodes[parent];
    node_id child = p->first_child;
    struct tree_node *c = &t->nodes[child];
    if (node_is_root(t, parent) || child == NODE_NONE || c->next_sibling != NODE_NONE ||
        p->locks != c->locks || p->tick != c->tick)
        return false;
    edge_table_remove(&t->edges, parent, pool->token[c->first]);
    pool->next[p->last] = c->first;
    pool->prev[c->first] = p->last;
    c->first = p->first;
    c->length += p->length;
    node_id above = p->parent;
    child_unlink(t, parent);
    child_link(t, above, child);
    edge_table_put(&t->edges, above, pool->token[c->first], child);
    if (p->locks == 0)
        recency_unlink(t, parent);
    node_drop(t, parent);
    return true;
}
