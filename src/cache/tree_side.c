/* Side groups: which positions have a page in them, where a sequence can resume, and which pages
 * are evicted when they run out. Owned by the scheduler's thread.
 *
 * Sequences branch, end and continue at a node's end, so its last positions are the most valuable.
 * Its tail is the last `before` + 1 of them (what is needed to resume at the end, and at the
 * position before it, where the last token of a repeated prompt is computed) plus an eighth to
 * spare (for a prompt that comes back a few tokens shorter). For a state that is two positions.
 * Everything before the tail is interior. What nodes below need of this one is in its tail as well,
 * because they end deeper.
 *
 * Careful: interior pages are evicted from locked nodes too. A lock keeps a position; whether its
 * holder can resume depends on the tail and, once tails are evicted, on `needs`. */
#include <assert.h>
#include <stdlib.h>

#include "cache/tree_node.h"

enum { TAIL_SPARE = 8 }; /* the tail has (before + 1) / 8 more positions */

static int side_open(const struct prefix_tree *t, struct tree_side *s,
                     const struct tree_side_options *options, struct error *err)
{
    uint64_t size = (uint64_t)options->before + 1, tail = size + size / TAIL_SPARE;
    s->page = malloc((size_t)t->pool->n_pages * sizeof *s->page); /* set when a page is claimed */
    s->nodes = malloc(((size_t)t->max_nodes + 1) * sizeof *s->nodes);
    if (!s->page || !s->nodes)
        return error_set(err, ERROR_MEMORY, "no memory for the side pages of %u positions",
                         t->pool->n_pages);
    s->pool = options->pool;
    s->before = options->before;
    s->tail = tail < UINT32_MAX ? (uint32_t)tail : UINT32_MAX;
    return 0;
}

int sides_open(struct prefix_tree *t, const struct prefix_tree_options *options, struct error *err)
{
    assert(options->n_sides <= TREE_MAX_SIDES);
    for (uint32_t i = 0; i < options->n_sides; i++)
        if (side_open(t, &t->sides[i], &options->sides[i], err) != 0)
            return -1;
    t->n_sides = options->n_sides;
    return 0;
}

void sides_close(struct prefix_tree *t)
{
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        free(t->sides[i].page);
        free(t->sides[i].nodes);
    }
}

/* ---- the list of nodes that have pages of a side ---- */

static void list_push(struct tree_side *s, node_id node)
{
    s->nodes[node].older = s->newest;
    s->nodes[node].newer = NODE_NONE;
    *(s->newest ? &s->nodes[s->newest].newer : &s->oldest) = node;
    s->newest = node;
    if (s->next == NODE_NONE)
        s->next = node;
}

static void list_remove(struct tree_side *s, node_id node)
{
    const struct node_side *x = &s->nodes[node];
    *(x->older ? &s->nodes[x->older].newer : &s->oldest) = x->newer;
    *(x->newer ? &s->nodes[x->newer].older : &s->newest) = x->older;
    if (s->next == node)
        s->next = x->newer;
}

/* Inserts a node directly after another, which was used just before it. */
static void list_follow(struct tree_side *s, node_id node, node_id older)
{
    struct node_side *x = &s->nodes[node], *o = &s->nodes[older];
    x->older = older;
    x->newer = o->newer;
    *(x->newer ? &s->nodes[x->newer].older : &s->newest) = node;
    o->newer = node;
}

/* Puts another node in a node's place. */
static void list_replace(struct tree_side *s, node_id node, node_id by)
{
    const struct node_side *x = &s->nodes[node];
    s->nodes[by].older = x->older;
    s->nodes[by].newer = x->newer;
    *(x->older ? &s->nodes[x->older].newer : &s->oldest) = by;
    *(x->newer ? &s->nodes[x->newer].older : &s->newest) = by;
    if (s->next == node)
        s->next = by;
}

void sides_touch(struct prefix_tree *t, node_id node)
{
    for (uint32_t i = 0; i < t->n_sides; i++) {
        struct tree_side *s = &t->sides[i];
        for (node_id x = node; x != NODE_NONE; x = t->nodes[x].parent) {
            if (s->nodes[x].n == 0)
                continue;
            list_remove(s, x);
            list_push(s, x);
        }
    }
}

/* Whether interior eviction has passed a node: it was used before the last node that lost interior
 * pages, or by the same operation and begins deeper. */
static bool is_passed(const struct prefix_tree *t, const struct tree_side *s, node_id node)
{
    const struct tree_node *x = &t->nodes[node];
    return x->stamp < s->passed_stamp ||
           (x->stamp == s->passed_stamp && x->depth - x->length >= s->passed_depth);
}

/* Whether a node comes before another in the list; NODE_NONE is its end. */
static bool is_before(const struct prefix_tree *t, node_id node, node_id other)
{
    const struct tree_node *x = &t->nodes[node], *o = &t->nodes[other];
    return other == NODE_NONE || x->stamp < o->stamp ||
           (x->stamp == o->stamp && x->depth > o->depth);
}

/* ---- the chain of a node ---- */

void sides_begin_node(struct prefix_tree *t, node_id node)
{
    for (uint32_t i = 0; i < t->n_sides; i++)
        t->sides[i].nodes[node] = (struct node_side){.first = PAGE_NONE, .last = PAGE_NONE};
    t->ends.nodes[node] = (struct node_end){0};
}

static bool is_gap(const struct tree_side *s, uint32_t page, uint32_t next)
{
    return page != PAGE_NONE && next != PAGE_NONE &&
           side_position(s, page) + 1 != side_position(s, next);
}

/* Adds a position's page to the chain after `after` (PAGE_NONE: at the front). */
static void chain_add(struct prefix_tree *t, struct tree_side *s, node_id node, uint32_t after,
                      uint32_t page, uint32_t position, uint32_t side_page)
{
    struct page_pool *pool = s->pool;
    struct node_side *x = &s->nodes[node];
    assert(!page_pool_is_free(pool, side_page) && page_pool_private(pool) > 0);
    uint32_t next = after == PAGE_NONE ? x->first : pool->next[after];
    pool->token[side_page] = (uint64_t)position << 32 | page;
    pool->prev[side_page] = after;
    pool->next[side_page] = next;
    *(after == PAGE_NONE ? &x->first : &pool->next[after]) = side_page;
    *(next == PAGE_NONE ? &x->last : &pool->prev[next]) = side_page;
    /* Two neighbours in the chain always had a gap between them. */
    x->n_gaps += (uint32_t)is_gap(s, after, side_page) + is_gap(s, side_page, next) -
                 (after != PAGE_NONE && next != PAGE_NONE);
    s->page[page] = side_page;
    pool->n_owned++;
    t->version++;
    if (x->n++ == 0)
        list_push(s, node);
}

/* Gives back the first or last page of a chain. */
static void drop_end(struct prefix_tree *t, struct tree_side *s, node_id node, bool is_first)
{
    struct page_pool *pool = s->pool;
    struct node_side *x = &s->nodes[node];
    uint32_t page = is_first ? x->first : x->last;
    uint32_t other = is_first ? pool->next[page] : pool->prev[page];
    x->n_gaps -= is_first ? is_gap(s, page, other) : is_gap(s, other, page);
    if (is_first)
        x->first = other;
    else
        x->last = other;
    if (other == PAGE_NONE)
        x->first = x->last = PAGE_NONE;
    else
        *(is_first ? &pool->prev[other] : &pool->next[other]) = PAGE_NONE;
    s->page[side_owner(s, page)] = PAGE_NONE;
    if (--x->n == 0)
        list_remove(s, node);
    pool->n_owned--;
    t->version++;
    page_pool_give(pool, (struct page_run){page, 1});
}

void sides_forget(struct prefix_tree *t, node_id node, uint32_t depth, enum miss_reason why)
{
    for (uint32_t i = 0; i < t->n_sides; i++) {
        struct tree_side *s = &t->sides[i];
        struct side_stats *stats = &t->stats.sides[i];
        uint64_t *count = why == MISS_CLEARED   ? &stats->cleared
                          : why == MISS_EXPIRED ? &stats->expired
                                                : &stats->evicted_tails;
        for (; s->nodes[node].n > 0 && side_position(s, s->nodes[node].last) > depth; ++*count)
            drop_end(t, s, node, false);
    }
}

/* The last page of a node's chain at or before a position, whose page in group 0 is `page`; there
 * must be one. Walks the chain and the positions at the same time: the chain is faster over a long
 * gap, the positions over a short one. */
static uint32_t chain_find(const struct prefix_tree *t, const struct tree_side *s, node_id node,
                           uint32_t page, uint32_t position)
{
    uint32_t last = s->nodes[node].last;
    while (s->page[page] == PAGE_NONE && side_position(s, last) > position) {
        page = t->pool->prev[page];
        position--;
        last = s->pool->prev[last];
    }
    return s->page[page] != PAGE_NONE ? s->page[page] : last;
}

static void side_split(struct prefix_tree *t, struct tree_side *s, node_id up, node_id low,
                       uint32_t page)
{
    struct page_pool *pool = s->pool;
    struct node_side *u = &s->nodes[up], *l = &s->nodes[low];
    uint32_t depth = t->nodes[up].depth;
    if (l->n == 0 || side_position(s, l->first) > depth)
        return;
    list_follow(s, up, low);
    uint32_t last = chain_find(t, s, low, page, depth), next = pool->next[last], gaps = l->n_gaps;
    u->first = l->first;
    u->last = last;
    /* Without gaps there is nothing to count; otherwise the loop is no longer than the match that
     * led to this split. */
    u->n = side_position(s, last) - side_position(s, l->first) + 1;
    for (uint32_t p = l->first; gaps > 0 && p != last; p = pool->next[p]) {
        u->n_gaps += is_gap(s, p, pool->next[p]);
        if (is_gap(s, p, pool->next[p]))
            u->n -= side_position(s, pool->next[p]) - side_position(s, p) - 1;
    }
    l->n -= u->n;
    l->n_gaps -= u->n_gaps + is_gap(s, last, next);
    l->first = next;
    pool->next[last] = PAGE_NONE;
    if (next != PAGE_NONE) {
        pool->prev[next] = PAGE_NONE;
        return;
    }
    l->last = PAGE_NONE;
    list_remove(s, low);
}

void sides_split(struct prefix_tree *t, node_id up, node_id low, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_sides; i++)
        side_split(t, &t->sides[i], up, low, page);
}

static bool has_interior(const struct prefix_tree *t, const struct tree_side *s, node_id node)
{
    const struct node_side *x = &s->nodes[node];
    return x->n > 0 && (uint64_t)side_position(s, x->first) + s->tail <= t->nodes[node].depth;
}

/* When two nodes merge, the tail of the upper one becomes interior. If interior eviction has
 * already passed the merged node, those pages are evicted at once. */
static void side_coalesce(struct prefix_tree *t, uint32_t side, node_id parent, node_id child)
{
    struct tree_side *s = &t->sides[side];
    struct node_side *p = &s->nodes[parent], *c = &s->nodes[child];
    if (p->n == 0)
        return;
    if (c->n == 0) {
        list_replace(s, parent, child);
        c->first = p->first;
        c->last = p->last;
        c->n = p->n;
        c->n_gaps = p->n_gaps;
    } else {
        bool is_next = s->next == parent;
        list_remove(s, parent);
        if (is_next)
            s->next = child;
        c->n_gaps += p->n_gaps + is_gap(s, p->last, c->first);
        s->pool->next[p->last] = c->first;
        s->pool->prev[c->first] = p->last;
        c->first = p->first;
        c->n += p->n;
    }
    p->n = 0;
    for (bool passed = is_passed(t, s, child); passed && has_interior(t, s, child);) {
        drop_end(t, s, child, true);
        t->stats.sides[side].evicted_interior++;
    }
    if (has_interior(t, s, child) && is_before(t, child, s->next))
        s->next = child;
}

void sides_coalesce(struct prefix_tree *t, node_id parent, node_id child)
{
    for (uint32_t i = 0; i < t->n_sides; i++)
        side_coalesce(t, i, parent, child);
}

/* ---- inserting ---- */

/* Does sides_insert for one node: its last `n` positions. If the node has more, it is a leaf that
 * has just grown by these, and they have no side pages yet. */
static void insert_node(struct prefix_tree *t, struct tree_side *s, node_id node,
                        uint32_t *side_pages, uint32_t n)
{
    const struct page_pool *pool = t->pool;
    const struct tree_node *x = &t->nodes[node];
    uint32_t page = x->first, last = PAGE_NONE, position = x->depth - n + 1;
    if (n < x->length) {
        last = s->nodes[node].last;
        page = x->last;
        for (uint32_t i = 1; i < n; i++)
            page = pool->prev[page];
    }
    for (uint32_t i = 0; i < n; i++, page = pool->next[page]) {
        uint32_t own = s->page[page];
        if (own == PAGE_NONE && side_pages[i] != PAGE_NONE) {
            chain_add(t, s, node, last, page, position + i, side_pages[i]);
            own = side_pages[i];
        } else if (side_pages[i] != PAGE_NONE) {
            page_pool_give(s->pool, (struct page_run){side_pages[i], 1});
        }
        side_pages[i] = own;
        last = own != PAGE_NONE ? own : last;
    }
}

void sides_insert(struct prefix_tree *t, node_id node, const uint32_t *pages,
                  uint32_t *const side_pages[], uint32_t n, uint32_t n_new)
{
    for (uint32_t side = 0; side < t->n_sides; side++) {
        struct tree_side *s = &t->sides[side];
        uint32_t left = n;
        for (uint32_t i = n - n_new; i < n; i++)
            s->page[pages[i]] = PAGE_NONE;
        for (node_id x = node; left > 0; x = t->nodes[x].parent) {
            uint32_t own = left < t->nodes[x].length ? left : t->nodes[x].length;
            left -= own;
            insert_node(t, s, x, side_pages[side] + left, own);
        }
    }
}

void prefix_tree_side_pages(const struct prefix_tree *t, uint32_t side, node_id node, uint32_t n,
                            uint32_t *out)
{
    assert(side < t->n_sides && n <= t->nodes[node].depth);
    for (; n > 0; node = t->nodes[node].parent)
        for (uint32_t page = t->nodes[node].last; n > 0 && page != PAGE_NONE;
             page = t->pool->prev[page])
            out[--n] = t->sides[side].page[page];
}

/* ---- resuming ---- */

/* A position on a path: the last one of a match that ends there. */
struct place {
    node_id node;
    uint32_t page;
    uint32_t position; /* counted from 1; 0: the root */
};

static struct place end_place(const struct prefix_tree *t, node_id node)
{
    return (struct place){node, t->nodes[node].last, t->nodes[node].depth};
}

static struct place place_before(const struct prefix_tree *t, struct place at)
{
    uint32_t page = t->pool->prev[at.page];
    if (page == PAGE_NONE)
        return end_place(t, t->nodes[at.node].parent);
    return (struct place){at.node, page, at.position - 1};
}

/* From a place without a page of the side, goes up to the nearest place that may have one. */
static struct place leave_gap(const struct prefix_tree *t, const struct tree_side *s,
                              struct place at)
{
    const struct node_side *x = &s->nodes[at.node];
    if (x->n == 0 || at.position < side_position(s, x->first))
        return end_place(t, t->nodes[at.node].parent);
    uint32_t found = chain_find(t, s, at.node, at.page, at.position);
    return (struct place){at.node, side_owner(s, found), side_position(s, found)};
}

/* Steps over at least one position that has a page of the side; returns over how many. Most nodes
 * have no gaps in a window, so this usually takes one step. */
static uint32_t pass_present(const struct prefix_tree *t, const struct tree_side *s,
                             struct place *at)
{
    const struct node_side *x = &s->nodes[at->node];
    if (x->n_gaps > 0) {
        *at = place_before(t, *at);
        return 1;
    }
    uint32_t n = at->position - side_position(s, x->first) + 1;
    at->page = side_owner(s, x->first);
    at->position = side_position(s, x->first);
    *at = place_before(t, *at);
    return n;
}

static bool is_cuttable(const struct prefix_tree *t, struct place at)
{
    return at.position == 0 || cache_token_is_whole(t->pool->token[at.page]);
}

void side_resume(const struct prefix_tree *t, uint32_t side, struct tree_match *m)
{
    const struct tree_side *s = &t->sides[side];
    uint32_t depth = t->nodes[m->node].depth - m->beyond;
    struct place end = {m->node, m->page, depth}, at = end;
    for (uint32_t present = 0; present < s->before && at.position > 0;) {
        if (s->page[at.page] != PAGE_NONE) {
            present += pass_present(t, s, &at);
            continue;
        }
        present = 0;
        end = leave_gap(t, s, at);
        while (!is_cuttable(t, end))
            end = place_before(t, end);
        at = end;
    }
    m->node = end.node;
    m->page = end.page;
    m->beyond = t->nodes[end.node].depth - end.position;
    m->length -= depth - end.position;
}

/* After one side shortens the match, another may be unable to resume there, so repeat until nothing
 * changes. */
void sides_resume(const struct prefix_tree *t, struct tree_match *m)
{
    uint32_t length;
    do {
        length = m->length;
        for (uint32_t i = 0; i < t->n_sides; i++)
            side_resume(t, i, m);
    } while (m->length != length && t->n_sides > 1);
}

/* ---- eviction ---- */

uint32_t prefix_tree_evict_interior(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                    uint64_t now_ns)
{
    assert(side < t->n_sides);
    struct tree_side *s = &t->sides[side];
    uint32_t before = s->pool->n_owned;
    while (before - s->pool->n_owned < n_pages && t->n_invalid_spaces > 0) {
        node_id oldest = tree_oldest(t);
        if (oldest == NODE_NONE || !node_is_invalid(t, oldest))
            break;
        leaf_free(t, oldest, UINT32_MAX, MISS_CLEARED, now_ns);
    }
    uint32_t freed = before - s->pool->n_owned;
    while (freed < n_pages && s->next != NODE_NONE) {
        node_id node = s->next;
        if (!has_interior(t, s, node)) {
            s->next = s->nodes[node].newer;
            continue;
        }
        s->passed_stamp = t->nodes[node].stamp;
        s->passed_depth = t->nodes[node].depth;
        drop_end(t, s, node, true);
        t->stats.sides[side].evicted_interior++;
        freed++;
    }
    if (freed < n_pages) { /* no interior pages are left */
        s->passed_stamp = t->now;
        s->passed_depth = 0;
    }
    return freed;
}

/* Sets how many of each node's last positions must stay, or resets it. */
static void guard(struct prefix_tree *t, const struct side_need *needs, uint32_t n_needs,
                  bool forgets)
{
    for (uint32_t i = 0; i < n_needs; i++) {
        uint32_t n = needs[i].n;
        for (node_id node = needs[i].node; n > 0; node = t->nodes[node].parent) {
            struct node_end *x = &t->ends.nodes[node];
            uint32_t own = n < t->nodes[node].length ? n : t->nodes[node].length;
            x->guard = forgets ? 0 : own > x->guard ? own : x->guard;
            n -= own;
        }
    }
}

/* Frees pages on the paths of locked nodes that are not needed. By then everything unlocked has
 * been evicted, so nothing else depends on them. */
static uint32_t evict_locked(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                             const struct side_need *needs, uint32_t n_needs)
{
    struct tree_side *s = &t->sides[side];
    uint32_t freed = 0;
    guard(t, needs, n_needs, false);
    for (uint32_t i = 0; i < n_needs; i++) {
        for (node_id node = needs[i].node; !node_is_root(t, node); node = t->nodes[node].parent) {
            uint32_t passed = t->nodes[node].depth - t->ends.nodes[node].guard;
            for (; freed < n_pages && s->nodes[node].n > 0; freed++) {
                if (side_position(s, s->nodes[node].first) > passed)
                    break;
                drop_end(t, s, node, true);
                t->stats.sides[side].evicted_tails++;
            }
        }
    }
    guard(t, needs, n_needs, true);
    return freed;
}

uint32_t prefix_tree_evict_tails(struct prefix_tree *t, uint32_t side, uint32_t n_pages,
                                 const struct side_need *needs, uint32_t n_needs, uint64_t now_ns)
{
    assert(side < t->n_sides);
    uint32_t freed = evict_leaves(t, side, n_pages, now_ns);
    return freed < n_pages ? freed + evict_locked(t, side, n_pages - freed, needs, n_needs) : freed;
}
