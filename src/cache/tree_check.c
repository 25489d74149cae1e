/* prefix_tree_check: recounts the tree from nothing and compares. For tests and debug builds; it
 * allocates nothing, so that it may run between any two steps. It trusts no link before it has
 * checked it, and walks no further than there are nodes and pages. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "cache/tree_node.h"

/* What a walk over the whole tree adds up to. */
struct recount {
    uint32_t n_nodes, n_listed, n_evictable, n_pages;
};

#define EXPECT(condition, node)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            log_error("prefix tree: node %u breaks \"%s\"", (node), #condition);                   \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool check_chain(const struct prefix_tree *t, node_id node)
{
    const struct page_pool *pool = t->pool;
    const struct tree_node *x = &t->nodes[node];
    EXPECT(x->length > 0 && x->length <= pool->n_pages, node);
    EXPECT(x->first < pool->n_pages && pool->prev[x->first] == PAGE_NONE, node);
    uint32_t page = x->first;
    for (uint32_t i = 1;; i++) {
        uint64_t bit = (uint64_t)1 << page % 64;
        EXPECT(!page_pool_is_free(pool, page), node);
        EXPECT(!(t->seen_map[page / 64] & bit), node);
        t->seen_map[page / 64] |= bit;
        uint32_t next = pool->next[page];
        if (i == x->length)
            break;
        EXPECT(next < pool->n_pages && pool->prev[next] == page, node);
        page = next;
    }
    EXPECT(page == x->last && pool->next[page] == PAGE_NONE, node);
    return true;
}

static bool check_node(const struct prefix_tree *t, node_id node, struct recount *count)
{
    const struct tree_node *x = &t->nodes[node], *parent = &t->nodes[x->parent];
    bool root = node_is_root(t, node);
    EXPECT(++count->n_nodes <= t->stats.n_nodes && node <= t->n_made, node);
    if (root) {
        EXPECT(x->length == 0, node);
        EXPECT(x->locks > 0 || x->first_child != NODE_NONE, node);
    } else {
        if (!check_chain(t, node))
            return false;
        EXPECT(parent->tick >= x->tick && parent->used_ns >= x->used_ns, node);
    }
    uint64_t key = root ? x->ns : t->pool->token[x->first];
    EXPECT(edge_table_find(&t->edges, x->parent, key) == node, node);
    uint64_t below = 0;
    node_id prev = NODE_NONE;
    for (node_id c = x->first_child; c != NODE_NONE; prev = c, c = t->nodes[c].next_sibling) {
        EXPECT(c <= t->n_made && t->nodes[c].parent == node, node);
        EXPECT(t->nodes[c].prev_sibling == prev, node);
        below += t->nodes[c].locks;
    }
    EXPECT(below <= x->locks, node);
    count->n_pages += x->length;
    if (node_is_listed(t, node)) {
        count->n_listed++;
        count->n_evictable += x->length;
    }
    return true;
}

static bool check_all_nodes(const struct prefix_tree *t, struct recount *count)
{
    node_id node = t->nodes[NODE_NONE].first_child;
    while (node != NODE_NONE) {
        if (!check_node(t, node, count))
            return false;
        if (t->nodes[node].first_child != NODE_NONE) {
            node = t->nodes[node].first_child;
            continue;
        }
        while (node != NODE_NONE && t->nodes[node].next_sibling == NODE_NONE)
            node = t->nodes[node].parent;
        node = t->nodes[node].next_sibling;
    }
    return true;
}

/* Ticks never fall along the list, and nodes of one tick are one path upwards: together with
 * "a parent's tick is never smaller" this puts every parent behind its children. */
static bool check_recency(const struct prefix_tree *t, uint32_t n_listed)
{
    node_id node = tree_oldest(t), older = NODE_NONE;
    for (; node != NODE_NONE; older = node, node = t->nodes[node].newer) {
        const struct tree_node *x = &t->nodes[node];
        EXPECT(n_listed-- > 0, node);
        EXPECT(node_is_listed(t, node) && x->older == older, node);
        if (older != NODE_NONE) {
            const struct tree_node *o = &t->nodes[older];
            EXPECT(o->tick < x->tick || (o->tick == x->tick && o->parent == node), node);
            EXPECT(o->used_ns <= x->used_ns, node);
        }
    }
    EXPECT(t->nodes[NODE_NONE].older == older, NODE_NONE);
    EXPECT(n_listed == 0, NODE_NONE);
    return true;
}

bool prefix_tree_check(const struct prefix_tree *t)
{
    struct recount count = {0};
    memset(t->seen_map, 0, ((size_t)t->pool->n_pages / 64 + 1) * sizeof *t->seen_map);
    if (!check_all_nodes(t, &count) || !check_recency(t, count.n_listed))
        return false;
    uint32_t n_unused = 0;
    for (node_id node = t->unused; node != NODE_NONE; node = t->nodes[node].parent) {
        EXPECT(n_unused < t->n_made, node);
        n_unused++;
    }
    EXPECT(n_unused + count.n_nodes == t->n_made && t->n_made <= t->max_nodes, NODE_NONE);
    if (count.n_nodes != t->stats.n_nodes || count.n_nodes != t->edges.count ||
        count.n_evictable != t->stats.n_evictable || count.n_pages != t->pool->n_owned) {
        log_error("prefix tree: counted %u nodes, %u evictable pages, %u pages; noted are %u nodes,"
                  " %u edges, %u evictable, %u owned",
                  count.n_nodes, count.n_evictable, count.n_pages, t->stats.n_nodes, t->edges.count,
                  t->stats.n_evictable, t->pool->n_owned);
        return false;
    }
    return true;
}
