/* The prefix tree's operations: match, lock, insert. Owned by the scheduler's thread.
 *
 * Recency is exact: eviction always takes the least recently used position that nobody locks and
 * that has nothing below it. Every change here must keep these rules:
 *   - an operation touches one whole path, leaf first, with its own stamp;
 *   - locked nodes are in no list; the last unlock puts them at its newest end, leaf first;
 *   - a match that ends inside a node splits it before it is touched, so that only the positions
 *     that were used are marked as used;
 *   - nodes are merged if and only if their stamps, locks and pins are equal and no end is kept
 *     between them (tree_ends.c). No operation leaves such a pair behind, so there are never more
 *     nodes than necessary.
 *
 * Careful: making room for a node evicts. That may evict positions beyond a match that was just
 * found, or merge two nodes. make_room therefore updates the match before it returns. */
#include "cache/prefix_tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/huge_pages.h"
#include "cache/tree_node.h"

uint32_t prefix_tree_page_bytes(uint32_t n_sides)
{
    const struct prefix_tree *t = NULL;
    size_t bytes = sizeof *t->nodes + sizeof *t->spaces + RECENCY_LISTS * sizeof *t->heaps->items +
                   EDGE_MOST_BYTES + 1; /* for its bits */
    size_t side = sizeof *t->sides->page + sizeof *t->sides->nodes;
    return (uint32_t)(bytes + n_sides * side + (n_sides ? sizeof *t->ends.nodes : 0));
}

static int tree_allocate(struct prefix_tree *t, uint32_t n_pages, struct error *err)
{
    size_t n_nodes = (size_t)t->max_nodes + 1, n_words = n_pages / 64 + 1;
    t->nodes = aligned_alloc(sizeof *t->nodes, n_nodes * sizeof *t->nodes);
    t->spaces = calloc(n_nodes, sizeof *t->spaces);
    for (int i = 0; i < RECENCY_LISTS; i++)
        t->heaps[i].items = calloc(n_nodes, sizeof *t->heaps[i].items);
    t->end_map = calloc(n_words, sizeof *t->end_map);
    t->seen_map = calloc(n_words, sizeof *t->seen_map);
    if (!t->nodes || !t->spaces || !t->heaps[UNPINNED].items || !t->heaps[PINNED].items ||
        !t->end_map || !t->seen_map || edge_table_open(&t->edges, t->max_nodes, err) != 0 ||
        ghost_table_open(&t->ghosts, err) != 0)
        return error_set(err, ERROR_MEMORY, "no memory for a prefix tree of %u nodes",
                         t->max_nodes);
    huge_pages_wish(t->nodes, n_nodes * sizeof *t->nodes);
    return 0;
}

int prefix_tree_open(struct prefix_tree **out, const struct prefix_tree_options *options,
                     struct error *err)
{
    assert(options->max_nodes >= 2 && options->max_nodes < UINT32_MAX);
    assert(options->pool->n_pages <= TREE_MAX_PAGES);
    struct prefix_tree *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, ERROR_MEMORY, "no memory for the prefix tree");
    t->pool = options->pool;
    t->images = options->images;
    t->max_nodes = options->max_nodes;
    t->max_pinned = options->max_pinned;
    if (tree_allocate(t, t->pool->n_pages, err) != 0 ||
        (options->n_sides > 0 && (sides_open(t, options, err) != 0 || ends_open(t, err) != 0))) {
        prefix_tree_close(t);
        return -1;
    }
    t->nodes[NODE_NONE] = (struct tree_node){.first = PAGE_NONE, .last = PAGE_NONE};
    t->version = 1; /* a match of all zeros never has the current version */
    *out = t;
    return 0;
}

void prefix_tree_close(struct prefix_tree *t)
{
    if (!t)
        return;
    for (node_id node = 1; node <= t->n_made; node++) {
        if (t->nodes[node].length > 0)
            sides_forget(t, node, 0, MISS_CLEARED);
        uint32_t page = t->nodes[node].last;
        for (uint32_t n = t->nodes[node].length; n > 0; n--) {
            uint64_t token = t->pool->token[page];
            if (cache_token_image_begun(token) == 1)
                image_table_release(t->images, cache_token_image_index(token));
            t->pool->n_owned--;
            page_pool_give(t->pool, (struct page_run){page, 1});
            page = t->pool->prev[page];
        }
    }
    sides_close(t);
    ends_close(t);
    edge_table_close(&t->edges);
    ghost_table_close(t->ghosts);
    for (int i = 0; i < RECENCY_LISTS; i++)
        free(t->heaps[i].items);
    free(t->spaces);
    free(t->nodes);
    free(t->end_map);
    free(t->seen_map);
    free(t);
}

/* Moves a match that ended inside an image back to before it. Nodes contain only whole images. */
static void leave_image(const struct prefix_tree *t, struct tree_match *m, uint32_t begun)
{
    const struct tree_node *x = &t->nodes[m->node];
    m->length -= begun;
    m->beyond += begun;
    if (m->beyond == x->length) {
        m->node = x->parent;
        m->page = t->nodes[x->parent].last;
        m->beyond = 0;
        return;
    }
    for (; begun > 0; begun--)
        m->page = t->pool->prev[m->page];
}

/* How many of the tokens a node begins with; the first is known to match. `*page` is the last page
 * that matches. */
static uint32_t node_compare(const struct page_pool *pool, const struct tree_node *x,
                             const uint64_t *tokens, uint32_t n, uint32_t *page)
{
    enum { BLOCK = 16 };
    uint32_t most = x->length < n ? x->length : n, same = 1;
    *page = x->first;
    if (x->is_run) {
        const uint64_t *own = &pool->token[x->first];
        while (same + BLOCK <= most && memcmp(own + same, tokens + same, BLOCK * sizeof *own) == 0)
            same += BLOCK;
        while (same < most && own[same] == tokens[same])
            same++;
        *page += same - 1;
        return same;
    }
    for (; same < most; same++) {
        uint32_t next = pool->next[*page];
        if (pool->token[next] != tokens[same])
            break;
        *page = next;
    }
    return same;
}

struct tree_match tree_walk(const struct prefix_tree *t, node_id from, const uint64_t *tokens,
                            uint32_t n)
{
    struct tree_match m = {
        .root = from, .node = from, .page = t->nodes[from].last, .version = t->version};
    while (m.length < n && m.beyond == 0) {
        node_id child = edge_table_find(&t->edges, m.node, tokens[m.length]);
        if (child == NODE_NONE)
            break;
        const struct tree_node *x = &t->nodes[child];
        uint32_t same = node_compare(t->pool, x, tokens + m.length, n - m.length, &m.page);
        m.node = child;
        m.beyond = x->length - same;
        m.length += same;
    }
    if (m.length > 0 && !cache_token_is_whole(tokens[m.length - 1]))
        leave_image(t, &m, cache_token_image_begun(tokens[m.length - 1]));
    m.walked = m.length;
    return m;
}

struct tree_match tree_find(const struct prefix_tree *t, node_id root, const uint64_t *tokens,
                            uint32_t n)
{
    if (!tree_has_sides(t))
        return tree_walk(t, root, tokens, n);
    struct tree_match m = tree_walk(t, root, tokens, n);
    sides_resume(t, &m);
    return m;
}

struct tree_match prefix_tree_match(const struct prefix_tree *t, uint64_t ns,
                                    const uint64_t *tokens, uint32_t n)
{
    node_id root = edge_table_find(&t->edges, NODE_NONE, ns);
    if (root == NODE_NONE)
        return (struct tree_match){.version = t->version};
    return tree_find(t, root, tokens, n);
}

/* Touches a path that is locked, so none of it is in a list. */
static void touch_path(struct prefix_tree *t, node_id node, uint64_t now_ns)
{
    tree_begin_touch(t, now_ns);
    for (node_id x = node; x != NODE_NONE; x = t->nodes[x].parent)
        node_touch(t, x);
    if (tree_has_sides(t))
        sides_touch(t, node);
    path_coalesce(t, node);
}

/* Adds a lock to the nodes from `node` up to, but excluding, `above`. */
static void lock_path(struct prefix_tree *t, node_id node, node_id above)
{
    for (; node != above; node = t->nodes[node].parent) {
        if (node_is_listed(t, node))
            recency_remove(t, node);
        assert(t->nodes[node].locks < UINT16_MAX);
        t->nodes[node].locks++;
    }
}

/* A leaf that only the caller would use keeps growing, so that the chunks of a prompt and the turns
 * of a conversation become one node. The caller's own lock ends at `from`. */
static bool can_grow(const struct prefix_tree *t, node_id node, node_id from)
{
    const struct tree_node *x = &t->nodes[node];
    return node_is_leaf(t, node) && x->pins == 0 && x->locks == (node == from ? 1u : 0u) &&
           !end_is_kept(t, node);
}

/* Whether a sequence that continues from a node's end diverges there from others, even if those are
 * gone by now. */
static bool is_fork(const struct prefix_tree *t, node_id node)
{
    const struct tree_node *x = &t->nodes[node];
    return tree_has_sides(t) && !node_is_root(t, node) && !x->gone &&
           (x->first_child != NODE_NONE || end_is_kept(t, node));
}

/* An operation on a path of tokens. */
struct query {
    node_id from; /* where the tokens begin; locked by the caller, or a root */
    const uint64_t *tokens;
    uint32_t n;
    bool adds;    /* it will insert after the match */
    bool resumes; /* ... or will later: the match must end at a resume point */
    uint64_t now_ns;
};

/* Evicts until there are enough nodes to split at the match and, if the query adds, to continue
 * from there. If the oldest node is the one that the match ends in, then the positions beyond the
 * match are the oldest of all: they are evicted, and no split is needed. Merging nodes may move the
 * match. */
static bool make_room(struct prefix_tree *t, const struct query *q, struct tree_match *m)
{
    for (;;) {
        uint32_t need = m->beyond ? 1u + q->adds : q->adds && !can_grow(t, m->node, q->from);
        if (need <= tree_unused_nodes(t))
            return true;
        node_id oldest = tree_oldest(t);
        if (oldest == NODE_NONE)
            return false;
        if (t->nodes[oldest].pins > 0) /* it may merge with the matched node */
            pins_end_at(t, oldest, q->now_ns);
        else
            leaf_free(t, oldest, oldest == m->node ? m->beyond : UINT32_MAX, MISS_EVICTED,
                      q->now_ns);
        *m = tree_walk(t, q->from, q->tokens, q->n);
        if (q->resumes && tree_has_sides(t))
            sides_resume(t, m);
    }
}

/* The node that ends at the match, split off if necessary. */
static node_id match_end(struct prefix_tree *t, const struct tree_match *m)
{
    return m->beyond ? node_split(t, m->node, m->page, m->beyond) : m->node;
}

static enum match_kind match_classify(const struct prefix_tree *t, const struct tree_match *m,
                                      uint32_t n)
{
    if (m->length == 0)
        return MATCH_MISS;
    if (page_is_end(t, m->page) || (m->beyond == 0 && node_is_leaf(t, m->node)))
        return MATCH_PREFIX;
    return m->length == n ? MATCH_SUPERSEQUENCE : MATCH_COMMON;
}

/* Creates the root of a namespace that has none; NODE_NONE if there is no node for it. */
static node_id take_root(struct prefix_tree *t, uint64_t ns, uint64_t now_ns)
{
    while (tree_unused_nodes(t) == 0) {
        node_id oldest = tree_oldest(t);
        if (oldest == NODE_NONE)
            return NODE_NONE;
        leaf_free(t, oldest, UINT32_MAX, MISS_EVICTED, now_ns);
    }
    return node_make_root(t, ns);
}

/* Locks the node that ends at the longest match, splitting it off if necessary; `*m` is the match.
 */
static node_id lock_match(struct prefix_tree *t, const struct query *q, struct tree_match *m)
{
    if (!make_room(t, q, m))
        return NODE_NONE;
    node_id node = match_end(t, m);
    lock_path(t, node, NODE_NONE);
    return node;
}

node_id prefix_tree_acquire(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens, uint32_t n,
                            uint64_t now_ns, struct tree_match *m, enum match_kind *kind)
{
    if (m->version != t->version)
        *m = prefix_tree_match(t, ns, tokens, n);
    if (m->root == NODE_NONE) {
        m->root = m->node = take_root(t, ns, now_ns);
        m->page = PAGE_NONE;
        if (m->root == NODE_NONE)
            return NODE_NONE;
    }
    struct query q = {m->root, tokens, n, false, true, now_ns};
    enum match_kind found = match_classify(t, m, n);
    node_id node = lock_match(t, &q, m);
    if (node == NODE_NONE)
        return NODE_NONE;
    for (node_id x = node; m->length > 0 && x != NODE_NONE; x = t->nodes[x].parent)
        t->nodes[x].hits++;
    touch_path(t, node, now_ns);
    *kind = found;
    return node;
}

node_id prefix_tree_lock_path(struct prefix_tree *t, uint64_t ns, const uint64_t *tokens,
                              uint32_t n, uint64_t now_ns)
{
    node_id root = edge_table_find(&t->edges, NODE_NONE, ns);
    if (root == NODE_NONE)
        return NODE_NONE;
    struct query q = {root, tokens, n, false, false, now_ns};
    struct tree_match m = tree_walk(t, root, tokens, n);
    return m.length > 0 ? lock_match(t, &q, &m) : NODE_NONE;
}

node_id prefix_tree_insert(struct prefix_tree *t, node_id node, const uint64_t *tokens,
                           const uint32_t *pages, uint32_t *const side_pages[], uint32_t n,
                           uint64_t now_ns, uint32_t *claimed)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    assert(n == 0 || cache_token_is_whole(tokens[n - 1]));
    struct tree_match m = tree_walk(t, node, tokens, n);
    struct query q = {node, tokens, n, m.length < n, false, now_ns};
    if (!make_room(t, &q, &m))
        return NODE_NONE;
    uint32_t rest = n - m.length;
    bool grows = m.beyond == 0 && can_grow(t, m.node, node);
    node_id end = match_end(t, &m);
    lock_path(t, end, node);
    if (rest > 0) {
        if (!grows && is_fork(t, end))
            end_keep(t, end);
        if (!grows)
            end = node_make_leaf(t, end, tokens[m.length]);
        node_append(t, end, tokens + m.length, pages + m.length, rest);
    }
    if (tree_has_sides(t))
        sides_insert(t, end, pages, side_pages, n, rest);
    touch_path(t, end, now_ns);
    space_keep_cap(t, t->nodes[end].space, now_ns);
    *claimed = rest;
    return end;
}

void prefix_tree_lock(struct prefix_tree *t, node_id node)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    lock_path(t, node, NODE_NONE);
}

/* What several locks share is counted only once the last of them is gone, so it takes real counts.
 * The nodes stay out of the lists meanwhile, and nobody else looks. */
uint32_t prefix_tree_evictable_without(struct prefix_tree *t, const node_id *nodes, uint32_t n,
                                       const struct tree_match *kept)
{
    uint32_t n_pages = t->stats.n_evictable, beyond = kept->beyond;
    assert(kept->length == 0 || kept->version == t->version);
    for (uint32_t i = 0; i < n; i++) {
        for (node_id x = nodes[i]; !node_is_root(t, x); x = t->nodes[x].parent) {
            assert(t->nodes[x].locks > 0);
            t->nodes[x].locks--;
            n_pages += t->nodes[x].locks == 0 ? t->nodes[x].length : 0;
        }
    }
    for (node_id x = kept->node; !node_is_root(t, x); x = t->nodes[x].parent, beyond = 0)
        n_pages -= t->nodes[x].locks == 0 ? t->nodes[x].length - beyond : 0;
    for (uint32_t i = 0; i < n; i++)
        for (node_id x = nodes[i]; !node_is_root(t, x); x = t->nodes[x].parent)
            t->nodes[x].locks++;
    return n_pages;
}

void prefix_tree_unlock(struct prefix_tree *t, node_id node, uint64_t now_ns)
{
    assert(node != NODE_NONE && node <= t->n_made && t->nodes[node].locks > 0);
    uint32_t space = t->nodes[node].space;
    node_id left = NODE_NONE; /* the lowest node of the path that stays */
    if (node_is_leaf(t, node))
        node_set_end(t, node);
    tree_begin_touch(t, now_ns);
    for (node_id x = node, up; x != NODE_NONE; x = up) {
        up = t->nodes[x].parent;
        assert(t->nodes[x].locks > 0);
        uint16_t locks = --t->nodes[x].locks;
        if (locks == 0 && t->nodes[x].gone) {
            node_remove(t, x, &(struct going){MISS_CLEARED, now_ns, now_ns});
            continue;
        }
        node_touch(t, x);
        if (node_is_listed(t, x))
            recency_push(t, x);
        if (left == NODE_NONE)
            left = x;
    }
    if (tree_has_sides(t))
        sides_touch(t, left);
    path_coalesce(t, left);
    root_remove_if_idle(t, t->spaces[space].root);
    space_keep_cap(t, space, now_ns);
}

/* Fills an array with runs, back to front. */
struct run_layer {
    struct page_run *out;
    uint32_t max, count;
    struct page_run run; /* still growing */
};

static void layer_end_run(struct run_layer *l)
{
    if (l->run.count == 0)
        return;
    if (l->count < l->max)
        l->out[l->count] = l->run;
    l->count++;
    l->run.count = 0;
}

/* Adds pages that come directly before everything added so far. */
static void layer_add(struct run_layer *l, struct page_run run)
{
    if (run.first + run.count != l->run.first)
        layer_end_run(l);
    l->run = (struct page_run){run.first, l->run.count + run.count};
}

uint32_t prefix_tree_pages(const struct prefix_tree *t, node_id node, struct page_run *out,
                           uint32_t max)
{
    struct run_layer l = {.out = out, .max = max};
    for (; !node_is_root(t, node); node = t->nodes[node].parent) {
        const struct tree_node *x = &t->nodes[node];
        if (x->is_run) {
            layer_add(&l, (struct page_run){x->first, x->length});
            continue;
        }
        for (uint32_t page = x->last; page != PAGE_NONE; page = t->pool->prev[page])
            layer_add(&l, (struct page_run){page, 1});
    }
    layer_end_run(&l);
    for (uint32_t i = 0; l.count <= max && i < l.count / 2; i++) {
        struct page_run swap = out[i];
        out[i] = out[l.count - 1 - i];
        out[l.count - 1 - i] = swap;
    }
    return l.count;
}

uint32_t prefix_tree_depth(const struct prefix_tree *t, node_id node)
{
    return t->nodes[node].depth;
}

const struct tree_stats *prefix_tree_stats(const struct prefix_tree *t)
{
    return &t->stats;
}
