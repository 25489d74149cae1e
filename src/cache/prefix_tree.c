/* The prefix tree's operations: match, lock, insert, evict. Owned by the scheduler's thread.
 *
 * Recency is exact: what is evicted is always the least recently used position that nobody locks
 * and nothing hangs on. That rests on a few rules which every change here must keep:
 *   - an operation touches one whole path, leaf first, and stamps it with a tick of its own;
 *   - locked nodes stand in no list; the last unlock puts them at its newest end, leaf first;
 *   - a match that ends inside a node splits it before it is touched, so that only what was used
 *     is marked as used;
 *   - nodes become one again where ticks and lock counts are equal, and only there. After every
 *     operation no such pair is left, so the number of nodes is the least there can be.
 *
 * What a newcomer gets wrong: making room for a node evicts, and may evict what a match has just
 * found, or make one node of two. make_room therefore takes the match along: it trims it from
 * behind, and keeps its place right. */
#include "cache/prefix_tree.h"

#include <assert.h>
#include <stdlib.h>

#include "cache/tree_node.h"

/* Where a walk down the tree ended. */
struct match {
    node_id node;    /* the deepest node that the tokens enter */
    uint32_t page;   /* its last page that they match */
    uint32_t beyond; /* its positions behind that page */
    uint32_t length; /* tokens matched on the walk */
};

int prefix_tree_open(struct prefix_tree **out, struct page_pool *pool, uint32_t max_nodes,
                     struct error *err)
{
    assert(max_nodes >= 2 && max_nodes < UINT32_MAX);
    uint32_t n_words = pool->n_pages / 64 + 1;
    struct prefix_tree *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, ERROR_MEMORY, "no memory for the prefix tree");
    t->pool = pool;
    t->max_nodes = max_nodes;
    t->nodes = aligned_alloc(sizeof *t->nodes, ((size_t)max_nodes + 1) * sizeof *t->nodes);
    t->end_map = calloc(n_words, sizeof *t->end_map);
    t->seen_map = calloc(n_words, sizeof *t->seen_map);
    if (!t->nodes || !t->end_map || !t->seen_map ||
        edge_table_open(&t->edges, max_nodes, err) != 0) {
        prefix_tree_close(t);
        return error_set(err, ERROR_MEMORY, "no memory for a prefix tree of %u nodes", max_nodes);
    }
    t->nodes[NODE_NONE] = (struct tree_node){.first = PAGE_NONE, .last = PAGE_NONE};
    *out = t;
    return 0;
}

void prefix_tree_close(struct prefix_tree *t)
{
    if (!t)
        return;
    for (node_id node = 1; node <= t->n_made; node++) {
        uint32_t page = t->nodes[node].last;
        for (uint32_t n = t->nodes[node].length; n > 0; n--) {
            t->pool->n_owned--;
            page_pool_give(t->pool, (struct page_run){page, 1});
            page = t->pool->prev[page];
        }
    }
    edge_table_close(&t->edges);
    free(t->nodes);
    free(t->end_map);
    free(t->seen_map);
    free(t);
}

/* Follows the tokens down from a node's end. */
static struct match walk(const struct prefix_tree *t, node_id from, const uint64_t *tokens,
                         uint32_t n)
{
    const struct page_pool *pool = t->pool;
    struct match m = {.node = from, .page = t->nodes[from].last};
    while (m.length < n && m.beyond == 0) {
        node_id child = edge_table_find(&t->edges, m.node, tokens[m.length]);
        if (child == NODE_NONE)
            break;
        const struct tree_node *x = &t->nodes[child];
        uint32_t most = x->length < n - m.length ? x->length : n - m.length;
        uint32_t page = x->first, matched = 1;
        for (; matched < most; matched++) {
            uint32_t next = pool->next[page];
            if (pool->token[next] != tokens[m.length + matched])
                break;
            page = next;
        }
        m.node = child;
        m.page = page;
        m.beyond = x->length - matched;
        m.length += matched;
    }
    return m;
}

uint32_t prefix_tree_peek(const struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                          uint32_t n)
{
    node_id root = edge_table_find(&t->edges, NODE_NONE, ns);
    return root == NODE_NONE ? 0 : walk(t, root, tokens, n).length;
}

/* Begins an operation that touches: its tick is its own. */
static void begin_touch(struct prefix_tree *t, uint64_t now_ns)
{
    t->tick++;
    if (now_ns > t->now_ns)
        t->now_ns = now_ns;
}

static void stamp(struct prefix_tree *t, node_id node)
{
    t->nodes[node].tick = t->tick;
    t->nodes[node].used_ns = t->now_ns;
}

/* Makes one node of those on a path that has just been touched which nothing keeps apart. */
static void coalesce_path(struct prefix_tree *t, node_id node)
{
    while (!node_is_root(t, node))
        if (!node_coalesce(t, t->nodes[node].parent))
            node = t->nodes[node].parent;
}

/* Touches a path that is locked, and so in no list. */
static void touch_path(struct prefix_tree *t, node_id node, uint64_t now_ns)
{
    begin_touch(t, now_ns);
    for (node_id x = node; x != NODE_NONE; x = t->nodes[x].parent)
        stamp(t, x);
    coalesce_path(t, node);
}

/* Adds a lock to the nodes from `node` up to, but not, `above`. */
static void lock_path(struct prefix_tree *t, node_id node, node_id above)
{
    for (; node != above; node = t->nodes[node].parent) {
        if (node_is_listed(t, node))
            recency_remove(t, node);
        t->nodes[node].locks++;
    }
}

/* A leaf that would be the caller's alone goes on growing, so that the chunks of a prompt, and the
 * turns of a conversation, are one node. The caller's own lock ends at `from`. */
static bool can_grow(const struct prefix_tree *t, node_id node, node_id from)
{
    return node_is_leaf(t, node) && t->nodes[node].locks == (node == from ? 1u : 0u);
}

/* Frees the oldest node. Its parent may have one child left, and become one with it: a match (or
 * NULL) that ends in the parent moves along. */
static uint32_t remove_oldest(struct prefix_tree *t, struct match *m)
{
    node_id oldest = tree_oldest(t), parent = t->nodes[oldest].parent;
    bool below_root = node_is_root(t, parent);
    uint32_t n = node_remove(t, oldest);
    if (below_root)
        return n;
    node_id child = t->nodes[parent].first_child;
    uint32_t child_length = t->nodes[child].length;
    if (node_coalesce(t, parent) && m && m->node == parent) {
        m->node = child;
        m->beyond += child_length;
    }
    return n;
}

/* Evicts until there are nodes enough to split at the match and, if `adds`, to go on from there.
 * When the oldest node is the one that the match ends in, what lies beyond the match is the very
 * oldest: it goes, and no split is needed. */
static bool make_room(struct prefix_tree *t, struct match *m, bool adds, node_id from)
{
    for (;;) {
        uint32_t need = m->beyond ? 1u + adds : adds && !can_grow(t, m->node, from);
        if (need <= tree_unused_nodes(t))
            return true;
        node_id oldest = tree_oldest(t);
        if (oldest == NODE_NONE)
            return false;
        if (oldest == m->node) {
            node_trim(t, oldest, m->beyond);
            t->stats.evicted_pages += m->beyond;
            m->beyond = 0;
        } else {
            t->stats.evicted_pages += remove_oldest(t, m);
        }
    }
}

/* The node that ends at the match, split off if need be. */
static node_id match_end(struct prefix_tree *t, const struct match *m)
{
    return m->beyond ? node_split(t, m->node, m->page, m->beyond) : m->node;
}

static enum match_kind match_classify(const struct prefix_tree *t, const struct match *m,
                                      uint32_t n)
{
    if (m->length == 0)
        return MATCH_MISS;
    if (page_is_end(t, m->page) || (m->beyond == 0 && node_is_leaf(t, m->node)))
        return MATCH_PREFIX;
    return m->length == n ? MATCH_SUPERSEQUENCE : MATCH_COMMON;
}

node_id prefix_tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens, uint32_t n,
                            uint64_t now_ns, uint32_t *length, enum match_kind *kind)
{
    node_id root = edge_table_find(&t->edges, NODE_NONE, ns);
    if (root == NODE_NONE) {
        while (tree_unused_nodes(t) == 0) {
            if (tree_oldest(t) == NODE_NONE)
                return NODE_NONE;
            t->stats.evicted_pages += remove_oldest(t, NULL);
        }
        root = node_make_root(t, ns);
    }
    struct match m = walk(t, root, tokens, n);
    enum match_kind found = match_classify(t, &m, n);
    if (!make_room(t, &m, false, NODE_NONE))
        return NODE_NONE;
    node_id node = match_end(t, &m);
    lock_path(t, node, NODE_NONE);
    touch_path(t, node, now_ns);
    *kind = found;
    *length = m.length;
    return node;
}

node_id prefix_tree_insert(struct prefix_tree *t, node_id node, const uint64_t *tokens,
                           const uint32_t *pages, uint32_t n, uint64_t now_ns, uint32_t *claimed)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    struct match m = walk(t, node, tokens, n);
    uint32_t rest = n - m.length;
    if (!make_room(t, &m, rest > 0, node))
        return NODE_NONE;
    bool grows = rest > 0 && m.beyond == 0 && can_grow(t, m.node, node);
    node_id end = match_end(t, &m);
    lock_path(t, end, node);
    if (rest > 0) {
        if (!grows)
            end = node_make_leaf(t, end, tokens[m.length]);
        node_append(t, end, tokens + m.length, pages + m.length, rest);
    }
    touch_path(t, end, now_ns);
    *claimed = rest;
    return end;
}

void prefix_tree_lock(struct prefix_tree *t, node_id node)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    lock_path(t, node, NODE_NONE);
}

void prefix_tree_unlock(struct prefix_tree *t, node_id node, uint64_t now_ns)
{
    assert(node != NODE_NONE && node <= t->n_made);
    begin_touch(t, now_ns);
    node_id root = NODE_NONE;
    for (node_id x = node; x != NODE_NONE; x = t->nodes[x].parent) {
        assert(t->nodes[x].locks > 0);
        t->nodes[x].locks--;
        stamp(t, x);
        if (node_is_listed(t, x))
            recency_push(t, x);
        root = x;
    }
    if (node_is_leaf(t, node))
        page_set_end(t, t->nodes[node].last, true);
    coalesce_path(t, node);
    root_remove_if_idle(t, root);
}

uint32_t prefix_tree_evict(struct prefix_tree *t, uint32_t n_pages)
{
    uint32_t freed = 0;
    while (freed < n_pages && tree_oldest(t) != NODE_NONE) {
        node_id oldest = tree_oldest(t);
        uint32_t need = n_pages - freed;
        if (t->nodes[oldest].length > need) {
            node_trim(t, oldest, need);
            freed += need;
        } else {
            freed += remove_oldest(t, NULL);
        }
    }
    t->stats.evicted_pages += freed;
    return freed;
}

uint32_t prefix_tree_expire(struct prefix_tree *t, uint64_t before_ns)
{
    uint32_t freed = 0;
    while (tree_oldest(t) != NODE_NONE && t->nodes[tree_oldest(t)].used_ns < before_ns)
        freed += remove_oldest(t, NULL);
    t->stats.expired_pages += freed;
    return freed;
}

/* Pages are met from the node's end upwards, so the runs are laid back to front and turned round.
 */
uint32_t prefix_tree_pages(const struct prefix_tree *t, node_id node, struct page_run *out,
                           uint32_t max)
{
    struct page_run run = {0, 0};
    uint32_t count = 0;
    for (; !node_is_root(t, node); node = t->nodes[node].parent) {
        for (uint32_t page = t->nodes[node].last; page != PAGE_NONE; page = t->pool->prev[page]) {
            if (run.count && page + 1 != run.first) {
                if (count < max)
                    out[count] = run;
                count++;
                run.count = 0;
            }
            run.first = page;
            run.count++;
        }
    }
    if (run.count) {
        if (count < max)
            out[count] = run;
        count++;
    }
    for (uint32_t i = 0; count <= max && i < count / 2; i++) {
        struct page_run swap = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = swap;
    }
    return count;
}

uint32_t prefix_tree_depth(const struct prefix_tree *t, node_id node)
{
    uint32_t depth = 0;
    for (; node != NODE_NONE; node = t->nodes[node].parent)
        depth += t->nodes[node].length;
    return depth;
}

struct tree_stats prefix_tree_stats(const struct prefix_tree *t)
{
    return t->stats;
}
