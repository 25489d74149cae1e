/* Random operations on the tree and on the model; see cache_world.h.
 *
 * Tokens are drawn from a small alphabet in which kinds and payloads are mixed up on purpose, and
 * from images whose numbers come and go. Most queries begin like something that is stored, so that
 * paths branch, meet and end everywhere. */
#include "cache_world.h"

#include <stdlib.h>

#include "base/hash.h"
#include "cache/tree_node.h"
#include "test.h"

enum { N_DIGESTS = 1 << 12 };
enum {
    MAX_HANDLES = 16,
    MAX_QUERY = 256,
    MAX_IMAGES = 8,
    CHECK_TREE_EVERY = 8,
    LOOK_EVERY = 16,
    NEVER_FORGOTTEN = 100
};

struct handle {
    node_id node;
    int at;
};

struct query {
    uint64_t ns, tokens[MAX_QUERY];
    uint32_t n;
    uint32_t images[MAX_QUERY], n_images; /* held while the query lives */
};

struct world {
    const struct world_config *config;
    struct page_pool pool, window_pool;
    struct image_table *images;
    struct prefix_tree *tree;
    struct naive naive;
    struct handle handles[MAX_HANDLES];
    uint32_t n_handles;
    uint64_t random, now;
    struct world_totals totals;
    struct query query;
    /* Digests of paths as events gave them, some of the last. */
    struct {
        uint64_t path, digest;
    } digests[N_DIGESTS];
    uint32_t path[/* n_pages */];
};

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)((hash_mix(w->random++) >> 32) * n >> 32);
}

/* What empties the tree happens less often in a large one, or it would never be full. */
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

static uint32_t path_of(struct world *w, int at)
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

/* Held until query_end. A `whole` one may be inserted. */
static struct query *make_query(struct world *w, bool whole)
{
    struct query *q = &w->query;
    q->n = q->n_images = 0;
    q->ns = below(w, w->config->n_namespaces);
    int at = (int)below(w, w->config->n_pages);
    if (w->naive.positions[at].used && below(w, 8)) {
        if (below(w, 8)) /* else: what is stored here, asked for there */
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

static void query_end(struct world *w)
{
    while (w->query.n_images > 0)
        image_table_release(w->images, w->query.images[--w->query.n_images]);
}

/* ---- what both say ---- */

/* A handle's pages are those of its position's path, in order, in the fewest runs. */
static void check_handle(struct world *w, node_id node, int at)
{
    uint32_t depth = path_of(w, at), i = 0;
    struct page_run runs[MAX_QUERY];
    CHECK_INT(prefix_tree_depth(w->tree, node), depth);
    uint32_t n_runs = prefix_tree_pages(w->tree, node, runs, MAX_QUERY);
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
    if (w->config->window == 0)
        return;
    uint32_t windows[MAX_QUERY], before = w->config->window - 1, n = depth;
    for (n = n < MAX_QUERY ? n : MAX_QUERY, i = 0; i < n; i++)
        windows[i] = w->path[i]; /* to be overwritten */
    prefix_tree_side_pages(w->tree, 0, node, n, windows);
    for (i = 1; i <= n; i++) {
        CHECK_INT(windows[n - i], w->naive.positions[w->path[depth - i]].window);
        CHECK(i > before || windows[n - i] != PAGE_NONE); /* its holder can go on */
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
    CHECK_INT(got.sides[0].evicted_interior, want.sides[0].evicted_interior);
    CHECK_INT(got.sides[0].evicted_tails, want.sides[0].evicted_tails);
    CHECK_INT(got.sides[0].expired, want.sides[0].expired);
    CHECK_INT(got.sides[0].cleared, want.sides[0].cleared);
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
        if (p->used && w->config->window)
            CHECK_INT(w->tree->sides[0].page[page], p->window);
    }
    CHECK_INT(w->window_pool.n_owned, w->naive.n_window);
    CHECK_INT(page_pool_private(&w->window_pool), 0);
    CHECK_INT(image_table_count(w->images), __builtin_popcount(images));
    CHECK_INT(w->pool.n_owned, w->naive.n_used);
    CHECK_INT(page_pool_private(&w->pool), 0);
    CHECK_INT(w->pool.n_free + w->pool.n_owned, w->config->n_pages);
    compare_stats(w);
}

/* An entry tells the truth about the node that ends at a position. */
static void check_entry(struct world *w, const struct tree_entry *e, int at)
{
    const struct naive *m = &w->naive;
    const struct position *p = &m->positions[at];
    bool root = naive_is_root(m, at);
    uint32_t length = 0, n_images = 0, n_children = 0, n_window = 0;
    for (int c = p->first_child; c != NOWHERE; c = m->positions[c].next_sibling)
        n_children += !m->positions[c].cut;
    if (!root) {
        uint32_t depth = path_of(w, at),
                 from = (uint32_t)m->positions[naive_node_begin(m, at)].depth;
        length = depth - from + 1;
        for (uint32_t i = from - 1; i < depth; i++) {
            n_images += cache_token_image_begun(m->positions[w->path[i]].token) == 1;
            n_window += w->config->window && m->positions[w->path[i]].window != PAGE_NONE;
        }
        CHECK_INT(e->n_tokens, length < ENTRY_PREVIEW ? length : ENTRY_PREVIEW);
        for (uint32_t i = 0; i < e->n_tokens; i++)
            CHECK(e->tokens[i] == m->positions[w->path[from - 1 + i]].token);
    }
    CHECK_INT(e->depth, p->depth);
    CHECK_INT(e->length, length);
    CHECK_INT(e->n_images, n_images);
    CHECK_INT(e->n_side[0], n_window);
    CHECK_INT(e->n_children, n_children);
    CHECK_INT(e->ns, m->positions[p->root].ns);
    CHECK_INT(e->locks, p->locks);
    CHECK_INT(e->pins, p->pins);
    CHECK_INT(e->used_ns, p->stamp);
    /* A node takes its hits along when it grows or is split, so they are a bound, not a count. */
    CHECK(e->hits <= m->positions[root ? at : (int)w->path[0]].hits);
    CHECK(e->created_ns <= e->used_ns);
}

/* The position at which a node ends, as its pages tell. */
static int end_of(struct world *w, const struct tree_entry *e)
{
    struct page_run runs[MAX_QUERY];
    uint32_t n = prefix_tree_pages(w->tree, e->node, runs, MAX_QUERY);
    if (n == 0)
        return naive_root(&w->naive, e->ns);
    CHECK(n <= MAX_QUERY);
    return (int)(runs[n - 1].first + runs[n - 1].count - 1);
}

/* Every end of a stored sequence at which a node ends is listed, once, in pages of any size. */
static void check_list(struct world *w)
{
    const struct naive *m = &w->naive;
    struct tree_entry entries[8];
    uint32_t want = 0, got = 0, calls = 0;
    node_id cursor = 0, last = 0;
    for (int i = 0; i < (int)m->n_pages; i++)
        want += m->positions[i].used && naive_is_found(m, i) && naive_ends_node(m, i) &&
                (m->positions[i].end || m->positions[i].n_children == 0);
    do {
        uint32_t max = 1 + below(w, 8), visits = 1 + below(w, 30);
        uint32_t n = prefix_tree_list(w->tree, &cursor, entries, max, visits);
        CHECK(n <= max && n <= visits && ++calls <= w->config->max_nodes + 1);
        for (uint32_t i = 0; i < n; i++) {
            int at = end_of(w, &entries[i]);
            CHECK(entries[i].node > last);
            last = entries[i].node;
            CHECK(!naive_is_root(m, at) && naive_is_found(m, at) && naive_ends_node(m, at));
            CHECK(m->positions[at].end || m->positions[at].n_children == 0);
            check_entry(w, &entries[i], at);
        }
        got += n;
    } while (cursor);
    CHECK_INT(got, want);
}

/* The outline has every node that can be found down to its level, a level after the other, and the
 * most recently used of siblings first. */
static void check_outline(struct world *w)
{
    enum { MAX = 64 };
    const struct naive *m = &w->naive;
    static struct tree_entry entries[MAX];
    uint32_t levels[MAX], max_level = below(w, 5), max = 1 + below(w, MAX), want = 0;
    uint32_t n = prefix_tree_outline(w->tree, max_level, entries, max);
    CHECK(n <= max);
    for (uint32_t i = 0; i < n; i++) {
        const struct tree_entry *e = &entries[i];
        int at = end_of(w, e);
        CHECK(at != NOWHERE && naive_is_found(m, at));
        CHECK(naive_is_root(m, at) || naive_ends_node(m, at));
        check_entry(w, e, at);
        levels[i] = 0;
        for (uint32_t k = 0; k < i; k++) {
            CHECK(entries[k].node != e->node);
            if (entries[k].node == e->parent)
                levels[i] = levels[k] + 1;
        }
        CHECK(levels[i] > 0 || naive_is_root(m, at));
        CHECK(levels[i] <= max_level && (i == 0 || levels[i] >= levels[i - 1]));
        if (i > 0 && entries[i - 1].parent == e->parent)
            CHECK(entries[i - 1].used_ns > e->used_ns);
    }
    if (n == max)
        return;
    for (int i = 0; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++) {
        if (!m->positions[i].used || !naive_is_found(m, i))
            continue;
        if (!naive_is_root(m, i) && !naive_ends_node(m, i))
            continue;
        uint32_t level = 0;
        for (int at = i; !naive_is_root(m, at); level++)
            at = m->positions[naive_node_begin(m, at)].parent;
        want += level <= max_level;
    }
    CHECK_INT(n, want);
}

/* What an operation evicted to get nodes is, page for page, what the model would evict. */
static void follow_evictions(struct world *w)
{
    const struct tree_stats *tree = prefix_tree_stats(w->tree), *naive = &w->naive.went;
    uint64_t n = tree->evicted_pages + tree->cleared_pages - naive->evicted_pages -
                 naive->cleared_pages;
    CHECK(n == 0 || w->config->max_nodes < w->config->n_pages);
    CHECK_INT(naive_evict(&w->naive, (uint32_t)n, UINT32_MAX, w->now), n);
    /* Where everything is pinned, a pin that is broken may make one node of two, which is enough.
     */
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

static void evict_interior(struct world *w, uint32_t n_pages)
{
    uint32_t freed = naive_evict_interior(&w->naive, n_pages, w->now);
    CHECK_INT(prefix_tree_evict_interior(w->tree, 0, n_pages, w->now), freed);
}

/* Each handle's holder is about to go on there. */
static void evict_tails(struct world *w, uint32_t n_pages)
{
    struct side_need needs[MAX_HANDLES];
    int ends[MAX_HANDLES];
    for (uint32_t i = 0; i < w->n_handles; i++) {
        uint32_t depth = w->naive.positions[w->handles[i].at].depth, n = w->config->window - 1;
        ends[i] = w->handles[i].at;
        needs[i] = (struct side_need){w->handles[i].node, n < depth ? n : depth};
    }
    uint32_t freed = naive_evict_tails(&w->naive, n_pages, ends, w->n_handles, w->now);
    CHECK_INT(prefix_tree_evict_tails(w->tree, 0, n_pages, needs, w->n_handles, w->now), freed);
    check_event(w);
}

/* ---- operations ---- */

static void do_acquire(struct world *w)
{
    struct query *q = make_query(w, false);
    int root = naive_root(&w->naive, q->ns), at = root;
    uint32_t want = 0;
    enum match_kind kind = MATCH_KINDS, want_kind = MATCH_MISS;
    if (root != NOWHERE) {
        at = naive_find(&w->naive, root, q->tokens, q->n, &want);
        want_kind = naive_kind(&w->naive, at, want, q->n);
    }
    struct tree_match m = prefix_tree_match(w->tree, q->ns, q->tokens, q->n);
    CHECK_INT(m.length, want);
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
    check_handle(w, node, at);
    w->handles[w->n_handles++] = (struct handle){node, at};
}

/* Takes `n` pages, after evicting for them; false when there are not so many. */
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

/* Takes window pages for the last of `n` positions, all that go on behind them need and perhaps
 * more; false when there are not so many. */
static bool take_windows(struct world *w, uint32_t n, uint32_t *windows)
{
    struct page_pool *pool = &w->window_pool;
    uint32_t before = w->config->window ? w->config->window - 1 : 0;
    if (w->config->window == 0)
        return true;
    uint32_t from = n > before ? below(w, n - before + 1) : 0;
    if (pool->n_free < n - from)
        evict_interior(w, n - from - pool->n_free);
    if (pool->n_free < n - from)
        evict_tails(w, n - from - pool->n_free);
    if (pool->n_free < n - from)
        return false;
    for (uint32_t i = 0; i < n; i++)
        windows[i] = i < from ? PAGE_NONE : page_pool_take(pool, 1, PAGE_NONE).first;
    return true;
}

/* What the tree did with the window pages of an insert whose path ends at `at`: where it had none
 * it took those that were given, and it has said what it has. */
static void follow_windows(struct world *w, int at, const uint32_t *given, const uint32_t *got,
                           uint32_t n)
{
    for (; w->config->window && n > 0; n--, at = w->naive.positions[at].parent) {
        struct position *p = &w->naive.positions[at];
        if (p->window == PAGE_NONE && given[n - 1] != PAGE_NONE) {
            p->window = given[n - 1];
            w->naive.n_window++;
        }
        CHECK_INT(got[n - 1], p->window);
    }
}

static void do_insert(struct world *w)
{
    struct handle *h = &w->handles[below(w, w->n_handles)];
    uint32_t pages[MAX_QUERY], windows[MAX_QUERY], given[MAX_QUERY], present, claimed = 0;
    struct query *q = make_query(w, true);
    if (take_windows(w, q->n, windows)) {
        memcpy(given, windows, sizeof given);
        if (!take_pages(w, q->n, pages)) {
            for (uint32_t i = 0; w->config->window && i < q->n; i++)
                if (windows[i] != PAGE_NONE)
                    page_pool_give(&w->window_pool, (struct page_run){windows[i], 1});
            query_end(w);
            return;
        }
        int at = naive_walk(&w->naive, h->at, q->tokens, q->n, &present);
        node_id node = prefix_tree_insert(w->tree, h->node, q->tokens, pages,
                                          (uint32_t *const[]){windows}, q->n, w->now, &claimed);
        if (node == NODE_NONE || w->config->max_nodes < w->config->n_pages)
            follow_evictions(w);
        for (uint32_t i = 0; i < q->n - claimed; i++)
            page_pool_give(&w->pool, (struct page_run){pages[i], 1});
        if (node == NODE_NONE) {
            CHECK_INT(claimed, 0);
            refuse(w);
        } else {
            if (w->naive.positions[h->at].gone && claimed < q->n - present)
                at = naive_walk_gone(&w->naive, h->at, q->tokens, q->n - claimed, true, &present);
            CHECK_INT(claimed, q->n - present);
            if (present < q->n)
                naive_fork(&w->naive, at);
            for (uint32_t i = present; i < q->n; i++)
                at = naive_add(&w->naive, at, q->tokens[i], pages[i]);
            follow_windows(w, at, given, windows, q->n);
            naive_lock(&w->naive, at, 1);
            naive_lock(&w->naive, h->at, -1);
            naive_touch(&w->naive, at, w->now);
            naive_keep_cap(&w->naive, w->naive.positions[at].root, w->now);
            *h = (struct handle){node, at};
            check_handle(w, node, at);
        }
    }
    query_end(w);
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
    check_handle(w, h.node, h.at);
    w->handles[i] = w->handles[--w->n_handles];
    prefix_tree_unlock(w->tree, h.node, w->now);
    naive_unlock(&w->naive, h.at, w->now);
}

static void do_evict(struct world *w)
{
    uint32_t n = below(w, 16) ? below(w, 8) : below(w, w->config->n_pages * 2);
    evict_both(w, n, most_nodes(w));
}

static void do_evict_window(struct world *w)
{
    if (w->config->window == 0)
        return;
    uint32_t n = below(w, 16) ? below(w, 8) : below(w, w->config->n_window_pages * 2);
    evict_interior(w, n);
    if (below(w, 4) == 0)
        evict_tails(w, n);
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
    uint64_t ns = below(w, w->config->n_namespaces);
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
    CHECK_INT(prefix_tree_pin(w->tree, h.node, until), naive_pin(&w->naive, h.at, until));
    w->totals.n_pinned += w->naive.n_pins - before;
}

static void do_invalidate(struct world *w)
{
    uint64_t ns = below(w, w->config->n_namespaces);
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
        check_handle(w, h.node, h.at);
        return;
    }
    /* Without a node to split off what may stay, all of the node goes. */
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
    check_handle(w, h.node, h.at);
    w->totals.n_withdrawn++;
}

static void do_set_cap(struct world *w)
{
    if (!w->config->caps || below(w, 4))
        return;
    uint64_t ns = below(w, w->config->n_namespaces);
    uint32_t cap = below(w, 3) ? below(w, w->config->n_pages) : UINT32_MAX;
    int root = naive_root(&w->naive, ns);
    prefix_tree_set_cap(w->tree, ns, cap);
    if (root == NOWHERE)
        return;
    w->naive.positions[root].cap = cap;
    naive_keep_cap(&w->naive, root, w->naive.now);
}

/* ---- explanations ---- */

/* How the most recently used path goes on behind a position. */
static uint32_t way_on(const struct naive *m, int at, uint64_t *tokens)
{
    uint32_t n = 0;
    while (n < MISS_MAX_TOKENS) {
        int newest = NOWHERE;
        for (int c = m->positions[at].first_child; c != NOWHERE; c = m->positions[c].next_sibling)
            if (!m->positions[c].cut &&
                (newest == NOWHERE || m->positions[c].stamp > m->positions[newest].stamp))
                newest = c;
        if (newest == NOWHERE)
            break;
        at = newest;
        tokens[n++] = m->positions[at].token;
    }
    return n;
}

/* The most that any namespace has of a query. */
static uint32_t longest_anywhere(const struct naive *m, const struct query *q, uint32_t n)
{
    uint32_t longest = 0, length;
    for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++)
        if (m->positions[i].used && m->positions[i].valid) {
            naive_find(m, i, q->tokens, n, &length);
            longest = length > longest ? length : longest;
        }
    return longest;
}

/* Whether an invalid namespace of this number has more of the query, and became so then. */
static bool has_invalid(const struct naive *m, const struct query *q, uint32_t n, uint32_t than,
                        const uint64_t *invalid_ns)
{
    uint32_t length;
    for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++) {
        const struct position *r = &m->positions[i];
        if (!r->used || r->valid || r->ns != q->ns || (invalid_ns && r->invalid_ns != *invalid_ns))
            continue;
        naive_find(m, i, q->tokens, n, &length);
        if (length > than)
            return true;
    }
    return false;
}

/* What the model knows of what went, of the query behind the match: the first that the tree must
 * have noted, and whether anything of it went as the tree says. */
struct losses {
    const struct gone *sure;
    bool as_told;
};

static struct losses find_losses(const struct world *w, const struct query *q, uint32_t n,
                                 uint64_t path, const struct miss *miss)
{
    bool is_tight = w->config->max_nodes < w->config->n_pages;
    struct losses found = {0};
    for (uint32_t i = miss->position; i < n; i++) {
        path = hash_pair(path, q->tokens[i]);
        const struct gone *gone = naive_gone(&w->naive, path);
        if (!gone)
            continue;
        found.as_told |= !gone->sure; /* may have gone twice, and be known by the first time */
        /* Used later than the model thinks: where a pin was broken to get a node, a touch. */
        found.as_told |= gone->why == miss->reason && gone->gone_ns == miss->gone_ns &&
                         (is_tight ? gone->used_ns <= miss->last_used_ns
                                   : gone->used_ns == miss->last_used_ns);
        if (!found.sure && gone->sure)
            found.sure = gone;
    }
    return found;
}

/* It went, as the tree says: then it was here. The tree's memory is small and may have lost what
 * the model knows; while little went that must not happen. */
static void check_gone(struct world *w, const struct query *q, uint32_t n, uint64_t path,
                       const struct miss *miss)
{
    struct losses losses = find_losses(w, q, n, path, miss);
    if (miss->reason == MISS_EVICTED || miss->reason == MISS_EXPIRED ||
        miss->reason == MISS_CLEARED || miss->reason == MISS_WINDOW) {
        w->totals.n_explained++;
        CHECK(miss->gone_length > 0 && miss->gone_length <= n - miss->position);
        CHECK(losses.as_told || (miss->reason == MISS_CLEARED &&
                                 has_invalid(&w->naive, q, n, miss->position, &miss->gone_ns)));
        return;
    }
    CHECK(!has_invalid(&w->naive, q, n, miss->position, NULL));
    w->totals.n_forgotten += losses.sure != NULL;
    CHECK(!losses.sure || w->naive.n_gone > NEVER_FORGOTTEN);
}

static void do_explain(struct world *w)
{
    struct query *q = make_query(w, false);
    const struct naive *m = &w->naive;
    bool others = below(w, 2);
    uint32_t n = q->n, length = 0, walked = 0, n_tokens = 0;
    uint64_t path = hash_pair(17, q->ns), tokens[MISS_MAX_TOKENS];
    int root = naive_root(m, q->ns);
    struct miss miss;
    struct tree_match found = prefix_tree_match(w->tree, q->ns, q->tokens, q->n);
    prefix_tree_explain(w->tree, q->ns, q->tokens, q->n, &found, others, &miss);
    while (n > 0 && !cache_token_is_whole(q->tokens[n - 1]))
        n--;
    if (root != NOWHERE) {
        int at = naive_walk(m, root, q->tokens, n, &walked);
        length = walked;
        at = naive_resume(m, at, &length);
        path = m->positions[at].path;
        n_tokens = way_on(m, at, tokens);
    }
    w->totals.misses[miss.reason]++;
    CHECK_INT(miss.position, length);
    CHECK((miss.reason == MISS_NONE) == (length == n));
    if (length < walked) {
        CHECK_INT(miss.reason, MISS_WINDOW);
        CHECK_INT(miss.gone_length, walked - length);
        CHECK_INT(miss.gone_ns, 0);
    } else if (length < n) {
        uint32_t longest = others ? longest_anywhere(m, q, n) : length;
        check_gone(w, q, n, path, &miss);
        if (miss.reason == MISS_NAMESPACE) {
            uint32_t there = 0;
            CHECK(others && miss.ns != q->ns && naive_root(m, miss.ns) != NOWHERE);
            naive_find(m, naive_root(m, miss.ns), q->tokens, n, &there);
            CHECK(there == longest && there > length && there == miss.ns_length);
        }
        if (miss.reason == MISS_DIVERGED) {
            CHECK(n_tokens > 0 && n_tokens == miss.n_tokens);
            CHECK(memcmp(tokens, miss.tokens, n_tokens * sizeof *tokens) == 0);
        }
        CHECK(miss.reason != MISS_NEVER_SEEN || n_tokens == 0);
        CHECK((miss.reason != MISS_NEVER_SEEN && miss.reason != MISS_DIVERGED) ||
              longest <= length);
    }
    query_end(w);
}

/* ---- the world ---- */

/* Operations, with how often they are drawn, and on how many handles they can work. */
static const struct {
    void (*run)(struct world *w);
    uint32_t weight;
    bool needs_handle, makes_handle;
} operations[] = {
    {do_acquire, 8, false, true},       {do_insert, 8, true, false},
    {do_unlock, 8, true, false},        {do_lock, 2, true, true},
    {do_evict, 2, false, false},        {do_expire, 2, false, false},
    {do_clear, 2, false, false},        {do_invalidate, 1, false, false},
    {do_pin, 2, true, false},           {do_withdraw, 2, true, false},
    {do_set_cap, 2, false, false},      {do_explain, 4, false, false},
    {do_evict_window, 3, false, false},
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
                                          .n_sides = config->window > 0};
    if (config->window) {
        CHECK_INT(page_pool_open(&w->window_pool, config->n_window_pages, &err), 0);
        options.sides[0] = (struct tree_side_options){&w->window_pool, config->window - 1};
    }
    CHECK_INT(prefix_tree_open(&w->tree, &options, &err), 0);
    naive_open(&w->naive, config->n_pages, config->max_pinned, config->window);
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
    CHECK(prefix_tree_check(w->tree));
    CHECK(page_pool_check(&w->pool));
    CHECK(w->config->window == 0 || page_pool_check(&w->window_pool));
}

void world_step(struct world *w)
{
    /* Time mostly moves, sometimes stands, sometimes goes back. */
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
        check_handle(w, w->handles[i].node, w->handles[i].at);
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
    w->totals.interior = w->naive.went.sides[0].evicted_interior;
    w->totals.tails = w->naive.went.sides[0].evicted_tails;
    for (size_t i = 0; i < sizeof *totals / sizeof(uint64_t); i++) /* it is all counters */
        ((uint64_t *)totals)[i] += ((const uint64_t *)&w->totals)[i];
    prefix_tree_close(w->tree);
    CHECK_INT(w->pool.n_free, w->pool.n_pages);
    CHECK(page_pool_check(&w->pool));
    CHECK_INT(image_table_count(w->images), 0);
    image_table_close(w->images);
    page_pool_close(&w->pool);
    if (w->config->window) {
        CHECK_INT(w->window_pool.n_free, w->window_pool.n_pages);
        CHECK(page_pool_check(&w->window_pool));
        page_pool_close(&w->window_pool);
    }
    naive_close(&w->naive);
    free(w);
}

bool world_is_old(const struct world *w)
{
    return naive_is_full(&w->naive);
}
