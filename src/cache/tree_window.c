/* The second group of KV: which positions have a window page, where a sequence can go on, and which
 * window pages go when there are not enough. Owned by the scheduler's thread.
 *
 * A node's end is where sequences branch, end and go on, so its last positions are worth most: its
 * tail is W of them (the end, and one before it, where the last token of a prompt that comes again
 * is computed) and an eighth of W to spare (a prompt that comes back a few tokens shorter). What
 * is before that is interior. What nodes below need of this one is in its tail as well, because
 * they end deeper.
 *
 * An end where sequences parted is worth as much when only one of them is left (a system prompt, of
 * whose conversations one goes on), but would then be interior of that one's node. So it is kept a
 * node for a while: as long as a leaf would be that was last used when the last of them parted, and
 * again if there were several, half as many each time.
 *
 * What a newcomer gets wrong: interior pages are taken from locked nodes too. A lock keeps a
 * position; that its holder can go on is kept by the tail, and when tails go, by `needs`. */
#include <assert.h>
#include <stdlib.h>

#include "cache/tree_node.h"

enum { TAIL_SPARE = 8 }; /* a part of the window */

int window_open(struct prefix_tree *t, struct page_pool *pool, uint32_t size, struct error *err)
{
    struct tree_window *w = &t->window;
    assert(size > 0);
    w->page = malloc((size_t)t->pool->n_pages * sizeof *w->page); /* set when a page is claimed */
    w->nodes = malloc(((size_t)t->max_nodes + 1) * sizeof *w->nodes);
    if (!w->page || !w->nodes)
        return error_set(err, ERROR_MEMORY, "no memory for the window pages of %u positions",
                         t->pool->n_pages);
    w->pool = pool;
    w->size = size;
    w->tail = size < UINT32_MAX / 2 ? size + size / TAIL_SPARE : size;
    return 0;
}

void window_close(struct prefix_tree *t)
{
    free(t->window.page);
    free(t->window.nodes);
}

/* ---- the list of nodes that have window pages ---- */

static void list_push(struct tree_window *w, node_id node)
{
    w->nodes[node].older = w->newest;
    w->nodes[node].newer = NODE_NONE;
    *(w->newest ? &w->nodes[w->newest].newer : &w->oldest) = node;
    w->newest = node;
    if (w->next == NODE_NONE)
        w->next = node;
}

static void list_remove(struct tree_window *w, node_id node)
{
    const struct node_window *x = &w->nodes[node];
    *(x->older ? &w->nodes[x->older].newer : &w->oldest) = x->newer;
    *(x->newer ? &w->nodes[x->newer].older : &w->newest) = x->older;
    if (w->next == node)
        w->next = x->newer;
}

/* Directly behind another, which was used just before it. */
static void list_follow(struct tree_window *w, node_id node, node_id older)
{
    struct node_window *x = &w->nodes[node], *o = &w->nodes[older];
    x->older = older;
    x->newer = o->newer;
    *(x->newer ? &w->nodes[x->newer].older : &w->newest) = node;
    o->newer = node;
}

/* Another node in one's place. */
static void list_replace(struct tree_window *w, node_id node, node_id by)
{
    const struct node_window *x = &w->nodes[node];
    w->nodes[by].older = x->older;
    w->nodes[by].newer = x->newer;
    *(x->older ? &w->nodes[x->older].newer : &w->oldest) = by;
    *(x->newer ? &w->nodes[x->newer].older : &w->newest) = by;
    if (w->next == node)
        w->next = by;
}

void window_touch(struct prefix_tree *t, node_id node)
{
    if (t->window.nodes[node].n == 0)
        return;
    list_remove(&t->window, node);
    list_push(&t->window, node);
}

/* Whether a node of the list has been passed by those who look for interior pages. */
static bool is_passed(const struct prefix_tree *t, node_id node)
{
    node_id next = t->window.next;
    const struct tree_node *x = &t->nodes[node], *n = &t->nodes[next];
    if (next == NODE_NONE || next == node)
        return next == NODE_NONE;
    return x->stamp < n->stamp || (x->stamp == n->stamp && x->depth > n->depth);
}

/* ---- the chain of a node ---- */

void window_begin_node(struct prefix_tree *t, node_id node)
{
    t->window.nodes[node] = (struct node_window){.first = PAGE_NONE, .last = PAGE_NONE};
}

static bool is_gap(const struct prefix_tree *t, uint32_t page, uint32_t next)
{
    return page != PAGE_NONE && next != PAGE_NONE &&
           window_position(t, page) + 1 != window_position(t, next);
}

void window_add(struct prefix_tree *t, node_id node, uint32_t after, uint32_t page,
                uint32_t position, uint32_t window_page)
{
    struct page_pool *pool = t->window.pool;
    struct node_window *x = &t->window.nodes[node];
    assert(!page_pool_is_free(pool, window_page) && page_pool_private(pool) > 0);
    uint32_t next = after == PAGE_NONE ? x->first : pool->next[after];
    pool->token[window_page] = (uint64_t)position << 32 | page;
    pool->prev[window_page] = after;
    pool->next[window_page] = next;
    *(after == PAGE_NONE ? &x->first : &pool->next[after]) = window_page;
    *(next == PAGE_NONE ? &x->last : &pool->prev[next]) = window_page;
    /* What lies between two of them was missing: there was a gap. */
    x->n_gaps += (uint32_t)is_gap(t, after, window_page) + is_gap(t, window_page, next) -
                 (after != PAGE_NONE && next != PAGE_NONE);
    t->window.page[page] = window_page;
    pool->n_owned++;
    if (x->n++ == 0)
        list_push(&t->window, node);
}

/* Gives back the first or the last page of a chain. */
static void drop_end(struct prefix_tree *t, node_id node, bool is_first)
{
    struct page_pool *pool = t->window.pool;
    struct node_window *x = &t->window.nodes[node];
    uint32_t page = is_first ? x->first : x->last;
    uint32_t other = is_first ? pool->next[page] : pool->prev[page];
    x->n_gaps -= is_first ? is_gap(t, page, other) : is_gap(t, other, page);
    if (is_first)
        x->first = other;
    else
        x->last = other;
    if (other == PAGE_NONE)
        x->first = x->last = PAGE_NONE;
    else
        *(is_first ? &pool->prev[other] : &pool->next[other]) = PAGE_NONE;
    t->window.page[window_owner(t, page)] = PAGE_NONE;
    if (--x->n == 0)
        list_remove(&t->window, node);
    pool->n_owned--;
    page_pool_give(pool, (struct page_run){page, 1});
}

uint32_t window_forget(struct prefix_tree *t, node_id node, struct page_run run)
{
    uint32_t before = t->window.nodes[node].n;
    for (uint32_t i = run.count; i > 0 && t->window.nodes[node].n > 0; i--) {
        uint32_t window_page = t->window.page[run.first + i - 1];
        assert(window_page == PAGE_NONE || window_page == t->window.nodes[node].last);
        if (window_page != PAGE_NONE)
            drop_end(t, node, false);
    }
    return before - t->window.nodes[node].n;
}

/* The last of a node's chain at or before `page`, behind which it was split. */
static uint32_t last_up_to(const struct prefix_tree *t, uint32_t page)
{
    while (t->window.page[page] == PAGE_NONE)
        page = t->pool->prev[page];
    return t->window.page[page];
}

void window_split(struct prefix_tree *t, node_id up, node_id low, uint32_t page)
{
    struct page_pool *pool = t->window.pool;
    struct node_window *u = &t->window.nodes[up], *l = &t->window.nodes[low];
    uint32_t depth = t->nodes[up].depth;
    if (l->n == 0 || window_position(t, l->first) > depth)
        return;
    list_follow(&t->window, up, low);
    uint32_t last = last_up_to(t, page), next = pool->next[last], gaps = l->n_gaps;
    u->first = l->first;
    u->last = last;
    /* Without gaps there is nothing to count; else no more than was just matched. */
    u->n = window_position(t, last) - window_position(t, l->first) + 1;
    for (uint32_t w = l->first; gaps > 0 && w != last; w = pool->next[w]) {
        u->n_gaps += is_gap(t, w, pool->next[w]);
        if (is_gap(t, w, pool->next[w]))
            u->n -= window_position(t, pool->next[w]) - window_position(t, w) - 1;
    }
    l->n -= u->n;
    l->n_gaps -= u->n_gaps + is_gap(t, last, next);
    l->first = next;
    pool->next[last] = PAGE_NONE;
    if (next != PAGE_NONE) {
        pool->prev[next] = PAGE_NONE;
        return;
    }
    l->last = PAGE_NONE;
    list_remove(&t->window, low);
}

static bool has_interior(const struct prefix_tree *t, node_id node)
{
    const struct node_window *x = &t->window.nodes[node];
    return x->n > 0 &&
           (uint64_t)window_position(t, x->first) + t->window.tail <= t->nodes[node].depth;
}

/* Where two nodes become one, the tail of the upper one becomes interior. If interior pages of
 * nodes that were used later have gone already, it follows them. */
void window_coalesce(struct prefix_tree *t, node_id parent, node_id child)
{
    struct tree_window *w = &t->window;
    struct node_window *p = &w->nodes[parent], *c = &w->nodes[child];
    if (p->n == 0)
        return;
    if (c->n == 0) {
        list_replace(w, parent, child);
        c->first = p->first;
        c->last = p->last;
        c->n = p->n;
        c->n_gaps = p->n_gaps;
    } else {
        bool is_next = w->next == parent;
        list_remove(w, parent);
        if (is_next)
            w->next = child;
        c->n_gaps += p->n_gaps + is_gap(t, p->last, c->first);
        w->pool->next[p->last] = c->first;
        w->pool->prev[c->first] = p->last;
        c->first = p->first;
        c->n += p->n;
    }
    p->n = 0;
    while (has_interior(t, child) && is_passed(t, child)) {
        drop_end(t, child, true);
        t->stats.evicted_interior++;
    }
}

/* ---- ends that are kept ---- */

static void ends_push(struct tree_window *w, node_id node, uint64_t now)
{
    struct node_window *x = &w->nodes[node];
    x->forked = now;
    x->older_end = w->newest_end;
    x->newer_end = NODE_NONE;
    *(w->newest_end ? &w->nodes[w->newest_end].newer_end : &w->oldest_end) = node;
    w->newest_end = node;
}

static void ends_remove(struct tree_window *w, node_id node)
{
    const struct node_window *x = &w->nodes[node];
    *(x->older_end ? &w->nodes[x->older_end].newer_end : &w->oldest_end) = x->newer_end;
    *(x->newer_end ? &w->nodes[x->newer_end].older_end : &w->newest_end) = x->older_end;
}

void window_keep_end(struct prefix_tree *t, node_id node)
{
    if (t->window.nodes[node].n_forks++ > 0)
        ends_remove(&t->window, node);
    ends_push(&t->window, node, t->now);
}

void window_forget_end(struct prefix_tree *t, node_id node)
{
    if (t->window.nodes[node].n_forks == 0)
        return;
    ends_remove(&t->window, node);
    t->window.nodes[node].n_forks = 0;
}

bool window_age_end(struct prefix_tree *t, node_id leaf)
{
    struct tree_window *w = &t->window;
    node_id end = w->oldest_end;
    if (end == NODE_NONE || node_is_invalid(t, leaf) ||
        (t->nodes[leaf].pins == 0 && t->nodes[leaf].stamp <= w->nodes[end].forked))
        return false;
    ends_remove(w, end);
    w->nodes[end].n_forks /= 2;
    if (w->nodes[end].n_forks > 0)
        ends_push(w, end, t->now);
    else
        node_coalesce(t, end);
    return true;
}

/* The part of window_adopt that is one node's. */
static void adopt_node(struct prefix_tree *t, node_id node, uint32_t *window_pages)
{
    const struct page_pool *pool = t->pool;
    const struct tree_node *x = &t->nodes[node];
    uint32_t page = x->first, last = PAGE_NONE, position = x->depth - x->length + 1;
    for (uint32_t i = 0; i < x->length; i++, page = pool->next[page]) {
        uint32_t own = t->window.page[page];
        if (own == PAGE_NONE && window_pages[i] != PAGE_NONE) {
            window_add(t, node, last, page, position + i, window_pages[i]);
            own = window_pages[i];
        } else if (window_pages[i] != PAGE_NONE) {
            page_pool_give(t->window.pool, (struct page_run){window_pages[i], 1});
        }
        window_pages[i] = own;
        last = own != PAGE_NONE ? own : last;
    }
}

void window_adopt(struct prefix_tree *t, node_id above, node_id node, uint32_t *window_pages)
{
    uint32_t from = t->nodes[above].depth;
    for (; node != above; node = t->nodes[node].parent)
        adopt_node(t, node, window_pages + (t->nodes[t->nodes[node].parent].depth - from));
}

void prefix_tree_window_pages(const struct prefix_tree *t, node_id node, uint32_t n, uint32_t *out)
{
    assert(n <= t->nodes[node].depth);
    for (; n > 0; node = t->nodes[node].parent)
        for (uint32_t page = t->nodes[node].last; n > 0 && page != PAGE_NONE;
             page = t->pool->prev[page])
            out[--n] = t->window.page[page];
}

/* ---- where to go on ---- */

/* A position of a path: the last of a match that ends there. */
struct place {
    node_id node;
    uint32_t page;
    uint32_t position; /* from 1; 0: the root */
};

static struct place node_end(const struct prefix_tree *t, node_id node)
{
    return (struct place){node, t->nodes[node].last, t->nodes[node].depth};
}

static struct place place_before(const struct prefix_tree *t, struct place at)
{
    uint32_t page = t->pool->prev[at.page];
    if (page == PAGE_NONE)
        return node_end(t, t->nodes[at.node].parent);
    return (struct place){at.node, page, at.position - 1};
}

/* The nearest place above one that has no window page where there may be one. */
static struct place leave_gap(const struct prefix_tree *t, struct place at)
{
    const struct node_window *x = &t->window.nodes[at.node];
    if (x->n == 0 || at.position < window_position(t, x->first))
        return node_end(t, t->nodes[at.node].parent);
    if (at.position > window_position(t, x->last))
        return (struct place){at.node, window_owner(t, x->last), window_position(t, x->last)};
    return place_before(t, at);
}

/* Steps over positions that have window pages, one at least; how many they were. Most nodes have
 * no gaps, and then it is all at once. */
static uint32_t pass_present(const struct prefix_tree *t, struct place *at)
{
    const struct node_window *x = &t->window.nodes[at->node];
    if (x->n_gaps > 0) {
        *at = place_before(t, *at);
        return 1;
    }
    uint32_t n = at->position - window_position(t, x->first) + 1;
    at->page = window_owner(t, x->first);
    at->position = window_position(t, x->first);
    *at = place_before(t, *at);
    return n;
}

static bool is_cuttable(const struct prefix_tree *t, struct place at)
{
    return at.position == 0 || cache_token_is_whole(t->pool->token[at.page]);
}

struct match window_resume(const struct prefix_tree *t, struct match m)
{
    uint32_t before = t->window.size - 1, depth = t->nodes[m.node].depth - m.beyond;
    struct place end = {m.node, m.page, depth}, at = end;
    for (uint32_t present = 0; present < before && at.position > 0;) {
        if (t->window.page[at.page] != PAGE_NONE) {
            present += pass_present(t, &at);
            continue;
        }
        present = 0;
        end = leave_gap(t, at);
        while (!is_cuttable(t, end))
            end = place_before(t, end);
        at = end;
    }
    return (struct match){end.node, end.page, t->nodes[end.node].depth - end.position,
                          m.length - (depth - end.position)};
}

/* ---- what goes ---- */

uint32_t prefix_tree_evict_interior(struct prefix_tree *t, uint32_t n_pages, uint64_t now_ns)
{
    struct tree_window *w = &t->window;
    uint32_t before = w->pool->n_owned;
    while (before - w->pool->n_owned < n_pages && t->n_invalid_spaces > 0) {
        node_id oldest = tree_oldest(t);
        if (oldest == NODE_NONE || !node_is_invalid(t, oldest))
            break;
        leaf_free(t, oldest, UINT32_MAX, MISS_CLEARED, now_ns);
    }
    uint32_t freed = before - w->pool->n_owned;
    while (freed < n_pages && w->next != NODE_NONE) {
        if (!has_interior(t, w->next)) {
            w->next = w->nodes[w->next].newer;
            continue;
        }
        drop_end(t, w->next, true);
        t->stats.evicted_interior++;
        freed++;
    }
    return freed;
}

/* Sets how many of the last positions of nodes must stay, or forgets it. */
static void guard(struct prefix_tree *t, const struct window_need *needs, uint32_t n_needs,
                  bool forgets)
{
    for (uint32_t i = 0; i < n_needs; i++) {
        uint32_t n = needs[i].n;
        for (node_id node = needs[i].node; n > 0; node = t->nodes[node].parent) {
            struct node_window *x = &t->window.nodes[node];
            uint32_t own = n < t->nodes[node].length ? n : t->nodes[node].length;
            x->guard = forgets ? 0 : own > x->guard ? own : x->guard;
            n -= own;
        }
    }
}

/* Takes from the paths of locked nodes what is not needed. Nobody hangs on it: everything that is
 * not locked has gone. */
static uint32_t evict_locked(struct prefix_tree *t, uint32_t n_pages,
                             const struct window_need *needs, uint32_t n_needs)
{
    uint32_t freed = 0;
    guard(t, needs, n_needs, false);
    for (uint32_t i = 0; i < n_needs; i++) {
        for (node_id node = needs[i].node; !node_is_root(t, node); node = t->nodes[node].parent) {
            const struct node_window *x = &t->window.nodes[node];
            for (; freed < n_pages && x->n > 0; freed++) {
                if (window_position(t, x->first) > t->nodes[node].depth - x->guard)
                    break;
                drop_end(t, node, true);
                t->stats.evicted_tails++;
            }
        }
    }
    guard(t, needs, n_needs, true);
    return freed;
}

uint32_t prefix_tree_evict_tails(struct prefix_tree *t, uint32_t n_pages,
                                 const struct window_need *needs, uint32_t n_needs, uint64_t now_ns)
{
    uint32_t freed = evict_leaves(t, n_pages, now_ns);
    return freed < n_pages ? freed + evict_locked(t, n_pages - freed, needs, n_needs) : freed;
}
