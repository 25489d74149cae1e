/* The operations that change the tree's shape. Owned by the scheduler's thread.
 *
 * List order, stamps, edges, siblings, page chains, end marks and the counters (of the tree, of the
 * namespace, and n_owned in the pool) form one state: an operation updates all of them or none.
 * Every page of a listed node counts as evictable, because everything below it is unlocked too. */
#include "cache/tree_node.h"

#include <assert.h>

/* ---- siblings: the most recently used first ---- */

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

/* Puts another node in a child's place. */
static void child_replace(struct prefix_tree *t, node_id child, node_id by)
{
    const struct tree_node *c = &t->nodes[child];
    struct tree_node *b = &t->nodes[by];
    b->parent = c->parent;
    b->prev_sibling = c->prev_sibling;
    b->next_sibling = c->next_sibling;
    if (b->prev_sibling != NODE_NONE)
        t->nodes[b->prev_sibling].next_sibling = by;
    else
        t->nodes[b->parent].first_child = by;
    if (b->next_sibling != NODE_NONE)
        t->nodes[b->next_sibling].prev_sibling = by;
}

/* ---- nodes and spaces ---- */

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
    t->version++;
    if (tree_has_sides(t))
        sides_begin_node(t, node);
    return node;
}

static void node_drop(struct prefix_tree *t, node_id node)
{
    t->nodes[node] = (struct tree_node){.parent = t->unused};
    t->unused = node;
    t->version++;
    t->stats.n_nodes--;
}

node_id node_make_root(struct prefix_tree *t, uint64_t ns)
{
    node_id root = node_take(t);
    uint32_t space = t->unused_space;
    if (space)
        t->unused_space = t->spaces[space].root;
    else
        space = ++t->n_spaces_made;
    t->spaces[space] = (struct tree_space){
        .ns = ns, .root = root, .is_valid = true, .cap = UINT32_MAX};
    t->nodes[root].space = space;
    t->stats.n_namespaces++;
    child_link(t, NODE_NONE, root);
    edge_table_put(&t->edges, NODE_NONE, ns, root);
    return root;
}

void root_remove_if_idle(struct prefix_tree *t, node_id root)
{
    const struct tree_node *r = &t->nodes[root];
    if (r->locks > 0 || r->first_child != NODE_NONE)
        return;
    struct tree_space *space = &t->spaces[r->space];
    if (!r->cut)
        edge_table_remove(&t->edges, NODE_NONE, space->ns);
    t->n_invalid_spaces -= r->cut;
    *space = (struct tree_space){.root = t->unused_space};
    t->unused_space = r->space;
    t->stats.n_namespaces--;
    child_unlink(t, root);
    node_drop(t, root);
}

node_id node_make_leaf(struct prefix_tree *t, node_id parent, uint64_t first_token)
{
    assert(edge_table_find(&t->edges, parent, first_token) == NODE_NONE);
    node_id leaf = node_take(t);
    struct tree_node *x = &t->nodes[leaf];
    const struct tree_node *p = &t->nodes[parent];
    x->locks = 1;
    x->depth = p->depth;
    x->space = p->space;
    x->gone = p->gone;
    x->is_run = true;
    x->created = (uint32_t)(t->now >> NODE_CREATED_SHIFT);
    child_link(t, parent, leaf);
    edge_table_put(&t->edges, parent, first_token, leaf);
    return leaf;
}

/* ---- pages ---- */

/* Counts pages that a node gains, or loses if `n` is negative. */
static void count_pages(struct prefix_tree *t, const struct tree_node *x, int64_t n)
{
    struct tree_space *space = &t->spaces[x->space];
    uint32_t by = (uint32_t)n;
    t->pool->n_owned += by;
    space->n_pages += by;
    space->n_gone += x->gone ? by : 0;
    if (x->gone || !space->is_valid)
        t->stats.n_invalid += by;
}

/* Sets or clears a page's end mark. `depth` is the depth of its position. */
static void page_mark_end(struct prefix_tree *t, uint32_t page, uint32_t depth, bool end)
{
    uint32_t digits = 32 - (uint32_t)__builtin_clz(depth);
    uint32_t bucket = digits < TREE_DEPTH_BUCKETS ? digits : TREE_DEPTH_BUCKETS - 1;
    t->end_map[page / 64] ^= (uint64_t)1 << page % 64;
    t->stats.n_entries += end ? 1 : UINT32_MAX;
    t->stats.entries_by_depth[bucket] += end ? 1 : UINT32_MAX;
}

void node_set_end(struct prefix_tree *t, node_id leaf)
{
    const struct tree_node *x = &t->nodes[leaf];
    if (!page_is_end(t, x->last))
        page_mark_end(t, x->last, x->depth, true);
}

void node_append(struct prefix_tree *t, node_id leaf, const uint64_t *tokens, const uint32_t *pages,
                 uint32_t n)
{
    struct page_pool *pool = t->pool;
    struct tree_node *x = &t->nodes[leaf];
    assert(x->locks > 0 && x->pins == 0 && node_is_leaf(t, leaf));
    assert(n <= page_pool_private(pool));
    uint64_t digest = node_digest(t, x->length ? leaf : x->parent);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = pages[i];
        assert(!page_pool_is_free(pool, page) && !page_is_end(t, page));
        assert(cache_token_follows(tokens[i], i ? tokens[i - 1] : cache_token_text(0)));
        digest = digest_next(digest, tokens[i]);
        pool->token[page] = tokens[i];
        pool->digest[page] = digest;
        pool->prev[page] = x->last;
        pool->next[page] = PAGE_NONE;
        if (cache_token_image_begun(tokens[i]) == 1) {
            image_table_hold(t->images, cache_token_image_index(tokens[i]));
            t->n_images++;
        }
        if (x->last == PAGE_NONE) {
            x->first = page;
        } else {
            pool->next[x->last] = page;
            x->is_run &= page == x->last + 1;
        }
        x->last = page;
    }
    t->version++;
    x->length += n;
    x->depth += n;
    count_pages(t, x, n);
}

node_id node_split(struct prefix_tree *t, node_id low, uint32_t page, uint32_t beyond)
{
    struct page_pool *pool = t->pool;
    node_id up = node_take(t);
    struct tree_node *u = &t->nodes[up], *l = &t->nodes[low];
    assert(beyond > 0 && beyond < l->length && cache_token_is_whole(pool->token[page]));
    assert(!l->cut); /* no walk enters it */
    *u = *l;
    u->last = page;
    u->length = l->length - beyond;
    u->depth = l->depth - beyond;
    l->first = pool->next[page];
    l->length = beyond;
    pool->next[page] = PAGE_NONE;
    pool->prev[l->first] = PAGE_NONE;

    child_replace(t, low, up);
    u->first_child = NODE_NONE;
    child_link(t, up, low);
    edge_table_put(&t->edges, u->parent, pool->token[u->first], up);
    edge_table_put(&t->edges, up, pool->token[l->first], low);
    if (l->locks == 0)
        recency_follow(t, up, low);
    if (tree_has_sides(t))
        sides_split(t, up, low, page);
    return up;
}

void leave_ghost(struct prefix_tree *t, uint64_t digest, const struct going *going)
{
    *ghost_table_add(t->ghosts) = (struct ghost){digest, going->now_ns, going->used_ns, going->why,
                                                 going->side};
}

/* The last page of a run where a stored sequence ended, or PAGE_NONE. */
static uint32_t run_last_end(const struct prefix_tree *t, struct page_run run)
{
    uint32_t end = run.first + run.count;
    while (end > run.first) {
        uint32_t word = (end - 1) / 64;
        uint64_t bits = t->end_map[word] & UINT64_MAX >> (63 - (end - 1) % 64);
        if (word == run.first / 64)
            bits &= UINT64_MAX << run.first % 64;
        if (bits)
            return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
        end = word * 64;
    }
    return PAGE_NONE;
}

/* Removes end marks and image references from the last pages of a node, which are about to be
 * freed; before any were freed, the node ended at `node_end`. Stored ends leave ghosts, and so does
 * the position after each, so that when part of it comes back, it is still known that more
 * followed. Nodes that are already gone left their ghosts earlier. */
static void run_forget(struct prefix_tree *t, const struct tree_node *x, struct page_run run,
                       uint32_t node_end, const struct going *going)
{
    const struct page_pool *pool = t->pool;
    uint32_t last = run.first + run.count - 1, depth = x->depth;
    for (uint32_t i = 0; t->n_images > 0 && i < run.count; i++) {
        uint64_t token = pool->token[run.first + i];
        if (cache_token_image_begun(token) == 1) {
            image_table_release(t->images, cache_token_image_index(token));
            t->n_images--;
        }
    }
    for (uint32_t end; (end = run_last_end(t, run)) != PAGE_NONE; run.count = end - run.first) {
        page_mark_end(t, end, depth - (last - end), false);
        if (!x->gone)
            leave_ghost(t, pool->digest[end], going);
        if (!x->gone && end != node_end)
            leave_ghost(t, pool->digest[pool->next[end]], going);
    }
}

/* The last run of pages of a node, at most `n` long. */
static struct page_run last_run(const struct page_pool *pool, const struct tree_node *x, uint32_t n)
{
    if (x->is_run)
        return (struct page_run){x->last - n + 1, n};
    struct page_run run = {x->last, 1};
    while (run.count < n && pool->prev[run.first] + 1 == run.first) {
        run.first--;
        run.count++;
    }
    return run;
}

/* Gives back the last `n` pages of a node. The first of them leaves a ghost. */
static void chain_give(struct prefix_tree *t, node_id node, uint32_t n, const struct going *going)
{
    struct page_pool *pool = t->pool;
    struct tree_node *x = &t->nodes[node];
    uint32_t node_end = x->last;
    count_pages(t, x, -(int64_t)n);
    if (tree_has_sides(t))
        sides_forget(t, node, x->depth - n, going->why);
    while (n > 0) {
        struct page_run run = last_run(pool, x, n);
        run_forget(t, x, run, node_end, going);
        n -= run.count;
        x->length -= run.count;
        x->depth -= run.count;
        if (n == 0 && !x->gone) {
            /* If the whole node is freed, compute its first digest from the parent's: siblings
             * share that one, so it is more likely to be in the CPU's cache. */
            uint64_t token = pool->token[run.first];
            leave_ghost(t,
                        x->length ? pool->digest[run.first]
                                  : digest_next(node_digest(t, x->parent), token),
                        going);
        }
        x->last = x->length == 0 ? PAGE_NONE : x->is_run ? run.first - 1 : pool->prev[run.first];
        page_pool_give(pool, run);
    }
    if (x->length > 0)
        pool->next[x->last] = PAGE_NONE;
}

static void count_going(struct prefix_tree *t, uint32_t n_pages, uint32_t n_nodes,
                        const struct going *going)
{
    struct tree_stats *s = &t->stats;
    if (going->why == MISS_CLEARED) {
        s->cleared_pages += n_pages;
        s->cleared_nodes += n_nodes;
    } else if (going->why == MISS_EXPIRED) {
        s->expired_pages += n_pages;
        s->expired_nodes += n_nodes;
    } else {
        s->evicted_pages += n_pages;
        s->evicted_nodes += n_nodes;
    }
}

void node_trim(struct prefix_tree *t, node_id leaf, uint32_t n, const struct going *going)
{
    assert(node_is_leaf(t, leaf) && t->nodes[leaf].locks == 0 && t->nodes[leaf].pins == 0);
    assert(n < t->nodes[leaf].length);
    count_going(t, n, 0, going);
    t->version++;
    if (tree_has_sides(t))
        end_forget(t, leaf);
    chain_give(t, leaf, n, going);
    t->stats.n_evictable -= n;
}

uint32_t node_remove(struct prefix_tree *t, node_id leaf, const struct going *going)
{
    const struct tree_node *x = &t->nodes[leaf];
    assert(node_is_leaf(t, leaf) && x->locks == 0 && x->pins == 0);
    node_id parent = x->parent;
    uint32_t n = x->length;
    count_going(t, n, 1, going);
    if (!x->gone)
        recency_remove(t, leaf);
    if (!x->cut)
        edge_table_remove(&t->edges, parent, t->pool->token[x->first]);
    child_unlink(t, leaf);
    if (tree_has_sides(t))
        end_forget(t, leaf);
    chain_give(t, leaf, n, going);
    node_drop(t, leaf);
    if (node_is_root(t, parent))
        root_remove_if_idle(t, parent);
    return n;
}

bool node_coalesce(struct prefix_tree *t, node_id parent)
{
    struct page_pool *pool = t->pool;
    const struct tree_node *p = &t->nodes[parent];
    node_id child = p->first_child;
    struct tree_node *c = &t->nodes[child];
    if (node_is_root(t, parent) || child == NODE_NONE || c->next_sibling != NODE_NONE ||
        p->locks != c->locks || p->pins != c->pins || p->stamp != c->stamp || p->gone != c->gone ||
        end_is_kept(t, parent))
        return false;
    if (!c->cut)
        edge_table_remove(&t->edges, parent, pool->token[c->first]);
    c->is_run &= p->is_run && p->last + 1 == c->first;
    pool->next[p->last] = c->first;
    pool->prev[c->first] = p->last;
    c->first = p->first;
    c->length += p->length;
    c->hits = p->hits; /* every use of the child was one of the parent */
    c->cut = p->cut;
    child_replace(t, parent, child);
    if (!c->cut)
        edge_table_put(&t->edges, c->parent, pool->token[c->first], child);
    if (p->locks == 0)
        recency_unfollow(t, parent);
    if (tree_has_sides(t))
        sides_coalesce(t, parent, child);
    node_drop(t, parent);
    return true;
}

/* ---- use ---- */

void tree_begin_touch(struct prefix_tree *t, uint64_t now_ns)
{
    t->now = now_ns > t->now ? now_ns : t->now + 1;
}

void node_touch(struct prefix_tree *t, node_id node)
{
    struct tree_node *x = &t->nodes[node];
    x->stamp = t->now;
    if (x->prev_sibling == NODE_NONE)
        return;
    child_unlink(t, node);
    child_link(t, x->parent, node);
}

void path_coalesce(struct prefix_tree *t, node_id node)
{
    while (!node_is_root(t, node))
        if (!node_coalesce(t, t->nodes[node].parent))
            node = t->nodes[node].parent;
}
