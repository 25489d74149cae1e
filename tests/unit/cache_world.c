/* Random operations on the tree and on the model; see cache_world.h.
 *
 * Tokens are drawn from a small alphabet in which kinds and payloads are mixed up on purpose, and
 * from images whose numbers come and go. Most queries begin like something that is stored, so that
 * paths branch, meet and end everywhere. */
#include "cache_world_parts.h"

#include <stdlib.h>

#include "cache/tree_node.h"

enum { CHECK_TREE_EVERY = 8, LOOK_EVERY = 16 };

/* Operations that empty the tree are rarer in a large one, or it would never be full. */
static bool rarely(struct world *w)
{
    return below(w, 16 + w->config->n_pages / 16) == 0;
}

static uint32_t most_nodes(struct world *w)
{
    return below(w, 2) ? UINT32_MAX : 1 + below(w, 3);
}

/* ---- queries ---- */

/* The words of the alphabet: the same payloads, as different kinds and of different owners. */
static uint64_t word(uint32_t letter)
{
    switch (letter % 4) {
    case 0: return cache_token_text((int32_t)(letter / 4));
    case 1: return cache_token_coordinate(letter / 4);
    case 2: return cache_token_owned(CACHE_TOKEN_TEXT, 1, letter / 4);
    default: return cache_token_size(0, (uint16_t)(letter / 4));
    }
}

static uint32_t image_length(uint32_t image)
{
    static const uint32_t lengths[MAX_IMAGES] = {3, 1, 2, 7, 4, 1, 5, 2};
    return lengths[image];
}

static void add_image(struct world *w, struct query *q, uint32_t room)
{
    uint32_t which = below(w, w->config->n_images), length = image_length(which);
    struct image_key key = {.sha256 = {(unsigned char)which}, .owner = which % 2};
    struct image_shape shape = {.length = length, .position_span = length};
    if (length > room)
        return;
    uint32_t image = image_table_intern(w->images, &key, &shape);
    CHECK(image != IMAGE_NONE);
    q->images[q->n_images++] = image;
    for (uint32_t i = 0; i < length; i++)
        q->tokens[q->n++] = cache_token_image(image, i, length);
}

static void add_random(struct world *w, struct query *q, uint32_t most)
{
    while (q->n < most)
        if (w->config->n_images && below(w, 8) == 0)
            add_image(w, q, w->config->max_query - q->n);
        else
            q->tokens[q->n++] = word(below(w, w->config->alphabet));
}

uint32_t path_of(struct world *w, int at)
{
    uint32_t depth = naive_is_root(&w->naive, at) ? 0 : w->naive.positions[at].depth, i = depth;
    for (; i > 0; at = w->naive.positions[at].parent)
        w->path[--i] = (uint32_t)at;
    return depth;
}

/* The beginning of something stored, all of it or cut anywhere. */
static void add_stored(struct world *w, struct query *q, int at)
{
    if (below(w, 2))
        while (w->naive.positions[at].first_child != NOWHERE)
            at = w->naive.positions[at].first_child;
    uint32_t depth = path_of(w, at);
    if (below(w, 2))
        depth = below(w, depth + 1);
    for (; q->n < depth && q->n < w->config->max_query; q->n++) {
        q->tokens[q->n] = w->naive.positions[w->path[q->n]].token;
        if (cache_token_image_begun(q->tokens[q->n]) == 1) {
            uint32_t image = cache_token_image_index(q->tokens[q->n]);
            image_table_hold(w->images, image);
            q->images[q->n_images++] = image;
        }
    }
}

static void cut_to_whole(struct query *q)
{
    while (q->n > 0 && !cache_token_is_whole(q->tokens[q->n - 1]))
        q->n--;
}

/* Each is a tenant's. */
static uint64_t draw_namespace(struct world *w)
{
    return cache_namespace(below(w, w->config->n_namespaces), -1, -1);
}

struct query *make_query(struct world *w, bool whole)
{
    struct query *q = &w->query;
    q->n = q->n_images = 0;
    q->ns = draw_namespace(w);
    int at = (int)below(w, w->config->n_pages);
    if (w->naive.positions[at].used && below(w, 8)) {
        if (below(w, 8)) /* otherwise: stored in one namespace, queried in another */
            q->ns = w->naive.positions[w->naive.positions[at].root].ns;
        add_stored(w, q, at);
    }
    uint32_t more = below(w, 3) ? below(w, w->config->max_query / 2) : 0;
    if (whole || below(w, 8))
        cut_to_whole(q);
    add_random(w, q, q->n + more < w->config->max_query ? q->n + more : w->config->max_query);
    if (!whole && q->n > 0 && below(w, 16) == 0)
        q->tokens[below(w, q->n)] = w->config->n_images && below(w, 2)
                                        ? cache_token_image(below(w, MAX_IMAGES), below(w, 2), 2)
                                        : word(below(w, 40));
    if (!whole && below(w, 8) == 0)
        q->n = below(w, q->n + 1);
    return q;
}

void query_end(struct world *w)
{
    while (w->query.n_images > 0)
        image_table_release(w->images, w->query.images[--w->query.n_images]);
}

/* ---- what both say ---- */

/* A handle's pages are those of its position's path, in order, in the fewest runs. */
static void check_handle(struct world *w, const struct handle *h)
{
    uint32_t depth = path_of(w, h->at), i = 0;
    struct page_run runs[MAX_QUERY];
    CHECK_INT(prefix_tree_depth(w->tree, h->node), depth);
    uint32_t n_runs = prefix_tree_pages(w->tree, h->node, runs, MAX_QUERY);
    if (n_runs > MAX_QUERY)
        return;
    for (uint32_t r = 0; r < n_runs; r++) {
        CHECK(r == 0 || runs[r - 1].first + runs[r - 1].count != runs[r].first);
        for (uint32_t k = 0; k < runs[r].count; k++, i++) {
            CHECK(i < depth);
            CHECK_INT(runs[r].first + k, w->path[i]);
        }
    }
    CHECK_INT(i, depth);
    for (uint32_t side = 0; side < w->config->n_sides; side++) {
        uint32_t pages[MAX_QUERY], n = depth < MAX_QUERY ? depth : MAX_QUERY;
        prefix_tree_side_pages(w->tree, side, h->node, n, pages);
        for (i = 1; i <= n; i++) {
            CHECK_INT(pages[n - i], w->naive.positions[w->path[depth - i]].side[side]);
            CHECK(i > h->needs[side] || pages[n - i] != PAGE_NONE); /* its holder can resume */
        }
    }
}

static void compare_stats(const struct world *w)
{
    struct tree_stats want, got = *prefix_tree_stats(w->tree);
    naive_count(&w->naive, &want);
    CHECK_INT(got.evicted_pages, want.evicted_pages);
    CHECK_INT(got.expired_pages, want.expired_pages);
    CHECK_INT(got.cleared_pages, want.cleared_pages);
    CHECK_INT(got.evicted_nodes, want.evicted_nodes);
    CHECK_INT(got.expired_nodes, want.expired_nodes);
    CHECK_INT(got.cleared_nodes, want.cleared_nodes);
    CHECK_INT(got.n_nodes, want.n_nodes);
    CHECK_INT(got.n_namespaces, want.n_namespaces);
    CHECK_INT(got.n_evictable, want.n_evictable);
    CHECK_INT(got.n_pinned, want.n_pinned);
    CHECK_INT(got.n_pins, want.n_pins);
    CHECK_INT(got.n_invalid, want.n_invalid);
    CHECK_INT(got.n_entries, want.n_entries);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        CHECK_INT(got.sides[i].evicted_interior, want.sides[i].evicted_interior);
        CHECK_INT(got.sides[i].evicted_tails, want.sides[i].evicted_tails);
        CHECK_INT(got.sides[i].expired, want.sides[i].expired);
        CHECK_INT(got.sides[i].cleared, want.sides[i].cleared);
    }
    for (int i = 0; i < TREE_DEPTH_BUCKETS; i++)
        CHECK_INT(got.entries_by_depth[i], want.entries_by_depth[i]);
}

static void compare(struct world *w)
{
    uint32_t images = 0;
    for (uint32_t page = 0; page < w->config->n_pages; page++) {
        const struct position *p = &w->naive.positions[page];
        CHECK(page_pool_is_free(&w->pool, page) == !p->used);
        CHECK(!p->used || w->pool.token[page] == p->token);
        if (p->used && cache_token_is_image(p->token))
            images |= 1u << cache_token_image_index(p->token);
        for (uint32_t i = 0; p->used && i < w->config->n_sides; i++)
            CHECK_INT(w->tree->sides[i].page[page], p->side[i]);
    }
    for (uint32_t i = 0; i < w->config->n_sides; i++) {
        const struct page_pool *pool = &w->side_pools[i];
        CHECK_INT(pool->n_owned, w->naive.sides[i].n);
        CHECK_INT(page_pool_private(pool), 0);
        CHECK_INT(pool->n_free + pool->n_owned, w->config->sides[i].n_pages);
    }
    CHECK_INT(image_table_count(w->images), __builtin_popcount(images));
    CHECK_INT(w->pool.n_owned, w->naive.n_used);
    CHECK_INT(page_pool_private(&w->pool), 0);
    CHECK_INT(w->pool.n_free + w->pool.n_owned, w->config->n_pages);
    compare_stats(w);
}

/* An operation that needs nodes evicts exactly the pages that the model would evict. */
static void follow_evictions(struct world *w)
{
    const struct tree_stats *tree = prefix_tree_stats(w->tree), *naive = &w->naive.went;
    uint64_t n = tree->evicted_pages + tree->cleared_pages - naive->evicted_pages -
                 naive->cleared_pages;
    CHECK(n == 0 || w->config->max_nodes < w->config->n_pages);
    CHECK_INT(naive_evict(&w->naive, (uint32_t)n, UINT32_MAX, w->now), n);
    /* If everything is pinned, breaking a pin may merge two nodes, which is enough. */
    if (w->naive.n_pins > prefix_tree_stats(w->tree)->n_pins)
        naive_break_pin(&w->naive, w->now);
}

static void refuse(struct world *w)
{
    CHECK_INT(prefix_tree_stats(w->tree)->n_evictable, 0);
    CHECK(prefix_tree_stats(w->tree)->n_nodes + 1 >= w->config->max_nodes);
    w->totals.n_refused++;
}

/* The digest of a path is the same each time, and not that of another. */
static void check_digest(struct world *w, uint64_t path, uint64_t digest)
{
    uint32_t i = (uint32_t)(path % N_DIGESTS);
    if (w->digests[i].path)
        CHECK((w->digests[i].path == path) == (w->digests[i].digest == digest));
    w->digests[i].path = path;
    w->digests[i].digest = digest;
}

/* The newest event tells what went. */
static void check_event(struct world *w)
{
    struct pressure_event got = {0}, *want = &w->naive.last;
    if (want->n_nodes == 0)
        return;
    CHECK_INT(prefix_tree_events(w->tree, &got, 1), 1);
    CHECK_INT(got.at_ns, want->at_ns);
    CHECK_INT(got.group, want->group);
    CHECK_INT(got.wanted, want->wanted);
    CHECK_INT(got.freed, want->freed);
    CHECK_INT(got.n_nodes, want->n_nodes);
    for (uint32_t i = 0; i < got.n_nodes && i < PRESSURE_NODES; i++) {
        CHECK_INT(got.nodes[i].depth, want->nodes[i].depth);
        CHECK_INT(got.nodes[i].freed, want->nodes[i].freed);
        CHECK_INT(got.nodes[i].used_ns, want->nodes[i].used_ns);
        check_digest(w, want->nodes[i].digest, got.nodes[i].digest);
    }
}

/* Evicts from both. */
static void evict_both(struct world *w, uint32_t n_pages, uint32_t max_nodes)
{
    uint32_t freed = naive_evict(&w->naive, n_pages, max_nodes, w->now);
    CHECK_INT(prefix_tree_evict(w->tree, n_pages, max_nodes, w->now), freed);
    check_event(w);
}

static void evict_interior(struct world *w, uint32_t side, uint32_t n_pages)
{
    uint32_t freed = naive_evict_interior(&w->naive, side, n_pages, w->now);
    CHECK_INT(prefix_tree_evict_interior(w->tree, side, n_pages, w->now), freed);
}

static void evict_tails(struct world *w, uint32_t side, uint32_t n_pages)
{
    struct side_need needs[MAX_HANDLES];
    struct naive_need naive_needs[MAX_HANDLES];
    for (uint32_t i = 0; i < w->n_handles; i++) {
        const struct handle *h = &w->handles[i];
        uint32_t depth = w->naive.positions[h->at].depth, n = h->needs[side];
        naive_needs[i] = (struct naive_need){h->at, n};
        needs[i] = (struct side_need){h->node, n < depth ? n : depth};
    }
    uint32_t freed = naive_evict_tails(&w->naive, side, n_pages, naive_needs, w->n_handles, w->now);
    CHECK_INT(prefix_tree_evict_tails(w->tree, side, n_pages, needs, w->n_handles, w->now), freed);
    check_event(w);
}

/* ---- operations ---- */

static void do_acquire(struct world *w)
{
    struct query *q = make_query(w, false);
    struct tree_match m = match_early(w, q);
    int root = naive_root(&w->naive, q->ns), at = root;
    uint32_t want = 0;
    enum match_kind kind = MATCH_KINDS, want_kind = MATCH_MISS;
    if (root != NOWHERE) {
        at = naive_find(&w->naive, root, q->tokens, q->n, &want);
        want_kind = naive_kind(&w->naive, at, want, q->n);
    }
    node_id node = prefix_tree_acquire(w->tree, q->ns, q->tokens, q->n, w->now, &m, &kind);
    follow_evictions(w);
    query_end(w);
    if (node == NODE_NONE) {
        refuse(w);
        return;
    }
    CHECK_INT(m.length, want);
    CHECK_INT(kind, want_kind);
    w->totals.lookups[kind]++;
    if (root == NOWHERE)
        at = naive_make_root(&w->naive, q->ns);
    naive_lock(&w->naive, at, 1);
    naive_touch(&w->naive, at, w->now);
    naive_hit(&w->naive, at);
    struct handle *h = &w->handles[w->n_handles++];
    *h = (struct handle){node, at, {0}};
    for (uint32_t i = 0; i < w->config->n_sides; i++)
        h->needs[i] = w->config->sides[i].before;
    check_handle(w, h);
}

/* Takes `n` pages, evicting if necessary; false if there are not enough. */
static bool take_pages(struct world *w, uint32_t n, uint32_t *pages)
{
    if (w->pool.n_free < n)
        evict_both(w, n - w->pool.n_free, UINT32_MAX);
    if (w->pool.n_free < n)
        return false;
    for (uint32_t got = 0; got < n;) {
        struct page_run run = page_pool_take(&w->pool, n - got, got ? pages[got - 1] : PAGE_NONE);
        CHECK(run.count > 0);
        for (uint32_t i = 0; i < run.count; i++)
            pages[got++] = run.first + i;
    }
    return true;
}

/* Selects which of a query's positions get pages of a side; returns how many. For a window, the
 * last ones: what is needed to resume after them, and perhaps more. For a state, a few where a
 * sequence may be cut. */
static uint32_t choose_positions(struct world *w, const struct world_side *side,
                                 const struct query *q, bool *chosen)
{
    uint32_t n = 0, from = q->n > side->before ? below(w, q->n - side->before + 1) : 0;
    for (uint32_t i = 0; i < q->n; i++) {
        if (side->is_sparse)
            chosen[i] = cache_token_is_whole(q->tokens[i]) &&
                        below(w, 8) < (i + 2 < q->n ? 1u : 5u);
        else
            chosen[i] = i >= from;
        n += chosen[i];
    }
    return n;
}

/* Takes pages of a side for a query's positions. A state manages with fewer, for the last
 * positions; for a window, takes none and returns false if there are not enough. */
static bool take_side(struct world *w, uint32_t side, const struct query *q, uint32_t *pages)
{
    struct page_pool *pool = &w->side_pools[side];
    const struct world_side *config = &w->config->sides[side];
    bool chosen[MAX_QUERY];
    uint32_t n = choose_positions(w, config, q, chosen);
    if (pool->n_free < n)
        evict_interior(w, side, n - pool->n_free);
    if (pool->n_free < n)
        evict_tails(w, side, n - pool->n_free);
    if (pool->n_free < n && !config->is_sparse)
        return false;
    for (uint32_t i = q->n; i-- > 0;) {
        pages[i] = PAGE_NONE;
        if (chosen[i] && pool->n_free > 0)
            pages[i] = page_pool_take(pool, 1, PAGE_NONE).first;
    }
    return true;
}

static void give_side(struct world *w, uint32_t side, const uint32_t *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (pages[i] != PAGE_NONE)
            page_pool_give(&w->side_pools[side], (struct page_run){pages[i], 1});
}

/* Takes everything that a query's positions need; if there is not enough, takes nothing and returns
 * false. */
static bool take_all(struct world *w, const struct query *q, uint32_t *pages,
                     uint32_t *const side_pages[])
{
    uint32_t n = 0;
    while (n < w->config->n_sides && take_side(w, n, q, side_pages[n]))
        n++;
    if (n == w->config->n_sides && take_pages(w, q->n, pages))
        return true;
    while (n-- > 0)
        give_side(w, n, side_pages[n], q->n);
    return false;
}

/* Checks what the tree did with the side pages of an insert whose path ends at `at`: it took the
 * given page where it had none, and the array says what it has. */
static void follow_side(struct world *w, uint32_t side, int at, const uint32_t *given,
                        const uint32_t *got, uint32_t n)
{
    for (; n > 0; n--, at = w->naive.positions[at].parent) {
        uint32_t *own = &w->naive.positions[at].side[side];
        if (*own == PAGE_NONE && given[n - 1] != PAGE_NONE) {
            *own = given[n - 1];
            w->naive.sides[side].n++;
        } else if (given[n - 1] == PAGE_NONE && *own != PAGE_NONE) {
            w->totals.n_adopted++;
        }
        CHECK_INT(got[n - 1], *own);
    }
}

/* The tree inserted a query after a handle, and claimed pages for the end of it. */
static void follow_insert(struct world *w, struct handle *h, node_id node, const struct query *q,
                          const uint32_t *pages, uint32_t claimed, uint32_t present, int at)
{
    if (w->naive.positions[h->at].gone && claimed < q->n - present)
        at = naive_walk_gone(&w->naive, h->at, q->tokens, q->n - claimed, true, &present);
    CHECK_INT(claimed, q->n - present);
    if (present < q->n)
        naive_fork(&w->naive, at);
    for (uint32_t i = present; i < q->n; i++)
        at = naive_add(&w->naive, at, q->tokens[i], pages[i]);
    naive_lock(&w->naive, at, 1);
    naive_lock(&w->naive, h->at, -1);
    h->node = node;
    h->at = at;
}

static void do_insert(struct world *w)
{
    struct handle *h = &w->handles[below(w, w->n_handles)];
    uint32_t pages[MAX_QUERY], sides[TREE_MAX_SIDES][MAX_QUERY], given[TREE_MAX_SIDES][MAX_QUERY];
    uint32_t present, claimed = 0, *const side_pages[TREE_MAX_SIDES] = {sides[0], sides[1]};
    struct query *q = make_query(w, true);
    if (!take_all(w, q, pages, side_pages)) {
        query_end(w);
        return;
    }
    memcpy(given, sides, sizeof given);
    int at = naive_walk(&w->naive, h->at, q->tokens, q->n, &present);
    node_id node = prefix_tree_insert(w->tree, h->node, q->tokens, pages, side_pages, q->n, w->now,
                                      &claimed);
    if (node == NODE_NONE || w->config->max_nodes < w->config->n_pages)
        follow_evictions(w);
    for (uint32_t i = 0; i < q->n - claimed; i++)
        page_pool_give(&w->pool, (struct page_run){pages[i], 1});
    query_end(w);
    if (node == NODE_NONE) {
        CHECK_INT(claimed, 0);
        refuse(w);
        return;
    }
    follow_insert(w, h, node, q, pages, claimed, present, at);
    for (uint32_t i = 0; i < w->config->n_sides; i++) {
        follow_side(w, i, h->at, given[i], sides[i], q->n);
        /* The holder of a live state does not need a copy. */
        if (w->config->sides[i].is_sparse && q->n > 0)
            h->needs[i] = sides[i][q->n - 1] != PAGE_NONE && below(w, 2);
    }
    naive_touch(&w->naive, h->at, w->now);
    naive_keep_cap(&w->naive, w->naive.positions[h->at].root, w->now);
    check_handle(w, h);
}

static void do_lock(struct world *w)
{
    struct handle h = w->handles[below(w, w->n_handles)];
    prefix_tree_lock(w->tree, h.node);
    naive_lock(&w->naive, h.at, 1);
    w->handles[w->n_handles++] = h;
}

static void do_unlock(struct world *w)
{
    uint32_t i = below(w, w->n_handles);
    struct handle h = w->handles[i];
    check_handle(w, &h);
    w->handles[i] = w->handles[--w->n_handles];
    prefix_tree_unlock(w->tree, h.node, w->now);
    naive_unlock(&w->naive, h.at, w->now);
}

static void do_evict(struct world *w)
{
    uint32_t n = below(w, 16) ? below(w, 8) : below(w, w->config->n_pages * 2);
    evict_both(w, n, most_nodes(w));
}

static void do_evict_side(struct world *w)
{
    if (w->config->n_sides == 0)
        return;
    uint32_t side = below(w, w->config->n_sides);
    uint32_t n = below(w, 16) ? below(w, 8) : below(w, w->config->sides[side].n_pages * 2);
    evict_interior(w, side, n);
    if (below(w, 4) == 0)
        evict_tails(w, side, n);
}

static void do_expire(struct world *w)
{
    uint64_t age = below(w, below(w, 8) ? 20000 : 300),
             before = w->naive.now > age ? w->naive.now - age : 0;
    uint32_t max_nodes = most_nodes(w);
    CHECK_INT(prefix_tree_expire(w->tree, before, max_nodes, w->now),
              naive_expire(&w->naive, before, max_nodes, w->now));
}

static void do_clear(struct world *w)
{
    if (!rarely(w))
        return;
    uint64_t ns = draw_namespace(w);
    const uint64_t *which = below(w, 2) ? &ns : NULL;
    uint32_t max_nodes = most_nodes(w);
    CHECK_INT(prefix_tree_clear(w->tree, which, max_nodes, w->now),
              naive_clear(&w->naive, which, max_nodes, w->now));
}

static void do_pin(struct world *w)
{
    struct handle h = w->handles[below(w, w->n_handles)];
    uint64_t until = w->now + below(w, 300);
    uint32_t before = w->naive.n_pins;
    uint64_t taken_before = w->naive.n_taken;
    CHECK_INT(prefix_tree_pin(w->tree, h.node, until), naive_pin(&w->naive, h.at, until));
    uint64_t n_taken = w->naive.n_taken - taken_before;
    w->totals.n_pinned += w->naive.n_pins + n_taken - before;
    w->totals.n_pins_taken += n_taken;
}

static void do_invalidate(struct world *w)
{
    uint64_t ns = draw_namespace(w);
    const uint64_t *which = below(w, 4) ? &ns : NULL;
    if (!rarely(w))
        return;
    prefix_tree_invalidate(w->tree, which);
    naive_invalidate(&w->naive, which);
}

static void do_withdraw(struct world *w)
{
    if (below(w, 8))
        return;
    struct handle h = w->handles[below(w, w->n_handles)];
    const struct position *p = &w->naive.positions[h.at];
    uint32_t depth = below(w, 4) ? p->depth - below(w, p->depth + 1) : below(w, p->depth + 2);
    int top = naive_withdraw_top(&w->naive, h.at, depth);
    bool is_tight = w->config->max_nodes < w->config->n_pages;
    if (is_tight && !w->naive.positions[p->root].valid)
        return; /* what stays could not be seen */
    bool was_full = prefix_tree_stats(w->tree)->n_nodes == w->config->max_nodes;
    prefix_tree_withdraw(w->tree, h.node, depth);
    if (top == NOWHERE) {
        check_handle(w, &h);
        return;
    }
    /* Without a node to split off the part that may stay, the whole node is withdrawn. */
    if (is_tight) {
        uint64_t tokens[MAX_QUERY];
        uint32_t n = path_of(w, top) - 1;
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = w->naive.positions[w->path[i]].token;
        uint32_t stays =
            prefix_tree_match(w->tree, w->naive.positions[p->root].ns, tokens, n).length;
        CHECK(stays == n || was_full);
        top = (int)w->path[stays];
    }
    naive_withdraw(&w->naive, top);
    check_handle(w, &h);
    w->totals.n_withdrawn++;
}

static void do_set_cap(struct world *w)
{
    if (!w->config->caps || below(w, 4))
        return;
    uint64_t ns = draw_namespace(w);
    uint32_t cap = below(w, 3) ? below(w, w->config->n_pages) : UINT32_MAX;
    int root = naive_root(&w->naive, ns);
    prefix_tree_set_cap(w->tree, ns, cap);
    if (root == NOWHERE)
        return;
    w->naive.positions[root].cap = cap;
    naive_keep_cap(&w->naive, root, w->naive.now);
}

/* ---- the world ---- */

/* An insert while another query is held. */
static void insert_meanwhile(struct world *w)
{
    struct query held = w->query;
    do_insert(w);
    w->query = held;
}

struct tree_match match_early(struct world *w, const struct query *q)
{
    static void (*const others[])(struct world * w) = {do_evict, do_evict_side, do_expire,
                                                       do_clear, do_invalidate, do_set_cap};
    static void (*const with_handle[])(struct world * w) = {do_unlock, do_pin, do_withdraw,
                                                            insert_meanwhile};
    struct tree_match m = prefix_tree_match(w->tree, q->ns, q->tokens, q->n);
    int root = naive_root(&w->naive, q->ns);
    uint32_t length = 0, walked = 0;
    if (root != NOWHERE) {
        naive_find(&w->naive, root, q->tokens, q->n, &length);
        naive_walk(&w->naive, root, q->tokens, q->n, &walked);
    }
    CHECK_INT(m.length, length);
    CHECK_INT(m.walked, walked);
    if (below(w, 4))
        return m;
    if (w->n_handles > 0 && below(w, 2))
        with_handle[below(w, sizeof with_handle / sizeof *with_handle)](w);
    else
        others[below(w, sizeof others / sizeof *others)](w);
    w->totals.n_stale += m.version != w->tree->version;
    return m;
}

/* Operations, with how often they are drawn, and on how many handles they can work. */
static const struct {
    void (*run)(struct world *w);
    uint32_t weight;
    bool needs_handle, makes_handle;
} operations[] = {
    {do_acquire, 8, false, true},     {do_insert, 8, true, false},
    {do_unlock, 8, true, false},      {do_lock, 2, true, true},
    {do_evict, 2, false, false},      {do_expire, 2, false, false},
    {do_clear, 2, false, false},      {do_invalidate, 1, false, false},
    {do_pin, 2, true, false},         {do_withdraw, 2, true, false},
    {do_set_cap, 2, false, false},    {do_explain, 4, false, false},
    {do_evict_side, 3, false, false},
};

static void operate(struct world *w)
{
    uint32_t sum = 0, i = 0;
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++)
        sum += operations[k].weight;
    for (uint32_t drawn = below(w, sum); drawn >= operations[i].weight; i++)
        drawn -= operations[i].weight;
    if (operations[i].needs_handle && w->n_handles == 0)
        do_acquire(w);
    else if (operations[i].makes_handle && w->n_handles == w->config->n_handles)
        do_unlock(w);
    else
        operations[i].run(w);
}

struct world *world_open(const struct world_config *config, uint64_t seed)
{
    struct error err;
    struct world *w = calloc(1, sizeof *w + config->n_pages * sizeof *w->path);
    CHECK(w && config->n_handles <= MAX_HANDLES && config->max_query <= MAX_QUERY);
    CHECK(config->n_images <= MAX_IMAGES);
    w->config = config;
    w->random = hash_mix(seed);
    CHECK_INT(page_pool_open(&w->pool, config->n_pages, &err), 0);
    CHECK_INT(image_table_open(&w->images, MAX_IMAGES, &err), 0);
    struct prefix_tree_options options = {.pool = &w->pool,
                                          .images = w->images,
                                          .max_nodes = config->max_nodes,
                                          .max_pinned = config->max_pinned,
                                          .n_sides = config->n_sides};
    uint32_t befores[TREE_MAX_SIDES];
    for (uint32_t i = 0; i < config->n_sides; i++) {
        const struct world_side *side = &config->sides[i];
        CHECK_INT(page_pool_open(&w->side_pools[i], side->n_pages, &err), 0);
        options.sides[i] = (struct tree_side_options){&w->side_pools[i], side->before};
        befores[i] = side->before;
    }
    CHECK_INT(prefix_tree_open(&w->tree, &options, &err), 0);
    naive_open(&w->naive, config->n_pages, config->max_pinned, config->n_sides, befores);
    return w;
}

static void check_laws(struct world *w)
{
    compare(w);
    if (below(w, LOOK_EVERY) == 0)
        check_list(w);
    if (below(w, LOOK_EVERY) == 0)
        check_outline(w);
    if (w->totals.n_steps % (CHECK_TREE_EVERY * w->config->check_every))
        return;
    check_evictable(w);
    CHECK(prefix_tree_check(w->tree));
    CHECK(page_pool_check(&w->pool));
    for (uint32_t i = 0; i < w->config->n_sides; i++)
        CHECK(page_pool_check(&w->side_pools[i]));
}

void world_step(struct world *w)
{
    /* Time usually advances, sometimes stands still, sometimes goes back. */
    w->now += below(w, 4) ? below(w, 20) : 0;
    if (below(w, 64) == 0 && w->now > 50)
        w->now -= below(w, 50);
    operate(w);
    if (++w->totals.n_steps % w->config->check_every == 0)
        check_laws(w);
}

void world_close(struct world *w, struct world_totals *totals)
{
    for (uint32_t i = 0; i < w->n_handles; i++)
        check_handle(w, &w->handles[i]);
    /* Sometimes the tree is closed as it is, with everything that is in use. */
    bool empties = below(w, 4) > 0;
    while (empties && w->n_handles > 0)
        do_unlock(w);
    if (empties) {
        evict_both(w, UINT32_MAX, UINT32_MAX);
        compare(w);
        CHECK_INT(w->pool.n_free, w->pool.n_pages);
        CHECK_INT(prefix_tree_stats(w->tree)->n_nodes, 0);
    }
    w->totals.evicted = w->naive.went.evicted_pages;
    w->totals.expired = w->naive.went.expired_pages;
    w->totals.cleared = w->naive.went.cleared_pages;
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        w->totals.interior[i] = w->naive.went.sides[i].evicted_interior;
        w->totals.tails[i] = w->naive.went.sides[i].evicted_tails;
    }
    for (size_t i = 0; i < sizeof *totals / sizeof(uint64_t); i++) /* it is all counters */
        ((uint64_t *)totals)[i] += ((const uint64_t *)&w->totals)[i];
    prefix_tree_close(w->tree);
    CHECK_INT(w->pool.n_free, w->pool.n_pages);
    CHECK(page_pool_check(&w->pool));
    CHECK_INT(image_table_count(w->images), 0);
    image_table_close(w->images);
    page_pool_close(&w->pool);
    for (uint32_t i = 0; i < w->config->n_sides; i++) {
        CHECK_INT(w->side_pools[i].n_free, w->side_pools[i].n_pages);
        CHECK(page_pool_check(&w->side_pools[i]));
        page_pool_close(&w->side_pools[i]);
    }
    naive_close(&w->naive);
    free(w);
}

bool world_is_old(const struct world *w)
{
    return naive_is_full(&w->naive);
}
