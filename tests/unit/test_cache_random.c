/* The tree and the pool against a naive model, with random operations.
 *
 * The model is a trie of single positions, each with a page, lock count, stamp and end mark of its
 * own. It evicts by looking at every position for the unlocked one that nothing hangs on and that
 * was used longest ago. After every operation, the pages that the tree owns must be the model's,
 * and the number of nodes must be the least that the model's lock counts and stamps allow.
 *
 * For a longer run: CFLAGS=-DCACHE_RANDOM_ROUNDS=100 make BUILD=build-long unit T=cache_random */
#include <stdlib.h>

#include "base/hash.h"
#include "cache/page_pool.h"
#include "cache/prefix_tree.h"

#include "test.h"

#ifndef CACHE_RANDOM_ROUNDS
#define CACHE_RANDOM_ROUNDS 1
#endif

enum {
    MAX_PAGES = 512,
    MAX_ALPHABET = 8,
    MAX_NAMESPACES = 4,
    MAX_HANDLES = 16,
    MAX_QUERY = 96,
    ROOTS = MAX_PAGES, /* model positions from here on are roots of namespaces */
    NOWHERE = -1,
};

struct config {
    uint64_t seed;
    uint32_t n_pages, max_nodes;
    uint32_t alphabet, n_namespaces, n_handles, max_query;
    uint32_t n_operations;
};

/* A position is known by its page. */
struct position {
    bool used;
    int parent; /* a position or a root */
    int child[MAX_ALPHABET];
    uint32_t n_children, token, locks;
    uint64_t tick, time;
    bool end;
};

struct handle {
    node_id node;
    int position;
};

struct world {
    const struct config *config;
    struct page_pool pool;
    struct prefix_tree *tree;
    struct position positions[MAX_PAGES + MAX_NAMESPACES];
    uint32_t n_used;
    struct handle handles[MAX_HANDLES];
    uint32_t n_handles;
    uint64_t random, tick, time, now;
    uint64_t evicted, expired, lookups[MATCH_KINDS];
    uint32_t n_refused; /* operations that found no node */
};

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)(hash_mix(w->random++) >> 32) % n;
}

/* ---- the model ---- */

static void position_clear(struct position *p)
{
    *p = (struct position){.parent = NOWHERE};
    for (int i = 0; i < MAX_ALPHABET; i++)
        p->child[i] = NOWHERE;
}

static int model_walk(const struct world *w, int at, const uint32_t *tokens, uint32_t n,
                      uint32_t *length)
{
    for (*length = 0; *length < n; ++*length) {
        int child = w->positions[at].child[tokens[*length]];
        if (child == NOWHERE)
            break;
        at = child;
    }
    return at;
}

static void model_lock(struct world *w, int at, int by)
{
    for (; at != NOWHERE; at = w->positions[at].parent)
        w->positions[at].locks += (uint32_t)by;
}

static void model_touch(struct world *w, int at)
{
    w->tick++;
    w->time = w->now > w->time ? w->now : w->time + 1;
    for (; at != NOWHERE; at = w->positions[at].parent) {
        w->positions[at].tick = w->tick;
        w->positions[at].time = w->time;
    }
}

static int model_oldest(const struct world *w)
{
    int oldest = NOWHERE;
    for (int i = 0; i < (int)w->config->n_pages; i++) {
        const struct position *p = &w->positions[i];
        if (p->used && p->locks == 0 && p->n_children == 0 &&
            (oldest == NOWHERE || p->tick < w->positions[oldest].tick))
            oldest = i;
    }
    return oldest;
}

static void model_remove(struct world *w, int at)
{
    struct position *p = &w->positions[at], *parent = &w->positions[p->parent];
    parent->child[p->token] = NOWHERE;
    parent->n_children--;
    position_clear(p);
    w->n_used--;
}

static uint32_t model_evict(struct world *w, uint32_t n)
{
    uint32_t freed = 0;
    for (int at; freed < n && (at = model_oldest(w)) != NOWHERE; freed++)
        model_remove(w, at);
    w->evicted += freed;
    return freed;
}

static uint32_t model_expire(struct world *w, uint64_t before)
{
    uint32_t freed = 0;
    for (int at; (at = model_oldest(w)) != NOWHERE && w->positions[at].time < before; freed++)
        model_remove(w, at);
    w->expired += freed;
    return freed;
}

static int model_add(struct world *w, int parent, uint32_t token, uint32_t page)
{
    struct position *p = &w->positions[page];
    CHECK(!p->used);
    position_clear(p);
    p->used = true;
    p->parent = parent;
    p->token = token;
    w->positions[parent].child[token] = (int)page;
    w->positions[parent].n_children++;
    w->n_used++;
    return (int)page;
}

static enum match_kind model_kind(const struct world *w, int at, uint32_t length, uint32_t n)
{
    if (length == 0)
        return MATCH_MISS;
    if (w->positions[at].end || w->positions[at].n_children == 0)
        return MATCH_PREFIX;
    return length == n ? MATCH_SUPERSEQUENCE : MATCH_COMMON;
}

/* A node must end at a leaf, at a branch, and where the next position was locked or used
 * otherwise; nowhere else. */
static uint32_t model_nodes(const struct world *w)
{
    uint32_t n = 0;
    for (int i = 0; i < MAX_PAGES + MAX_NAMESPACES; i++) {
        const struct position *p = &w->positions[i];
        if (i >= ROOTS) {
            n += p->locks > 0 || p->n_children > 0;
        } else if (p->used) {
            int child = NOWHERE;
            for (int c = 0; c < MAX_ALPHABET; c++)
                if (p->child[c] != NOWHERE)
                    child = p->child[c];
            n += p->n_children != 1 || w->positions[child].locks != p->locks ||
                 w->positions[child].tick != p->tick;
        }
    }
    return n;
}

/* ---- both, side by side ---- */

static void world_open(struct world *w, const struct config *config, uint64_t round)
{
    struct error err;
    *w = (struct world){.config = config, .random = (config->seed + round * 1000) << 40};
    CHECK(config->n_pages <= MAX_PAGES && config->alphabet <= MAX_ALPHABET);
    CHECK(config->n_namespaces <= MAX_NAMESPACES && config->n_handles <= MAX_HANDLES);
    CHECK(config->max_query <= MAX_QUERY);
    for (int i = 0; i < MAX_PAGES + MAX_NAMESPACES; i++)
        position_clear(&w->positions[i]);
    CHECK_INT(page_pool_open(&w->pool, config->n_pages, &err), 0);
    struct prefix_tree_options options = {.pool = &w->pool, .max_nodes = config->max_nodes};
    CHECK_INT(prefix_tree_open(&w->tree, &options, &err), 0);
}

static void world_close(struct world *w)
{
    prefix_tree_close(w->tree);
    CHECK_INT(w->pool.n_free, w->pool.n_pages);
    CHECK(page_pool_check(&w->pool));
    page_pool_close(&w->pool);
}

static void compare(struct world *w)
{
    struct tree_stats stats = *prefix_tree_stats(w->tree);
    uint32_t n_evictable = 0;
    for (uint32_t page = 0; page < w->config->n_pages; page++) {
        const struct position *p = &w->positions[page];
        CHECK(page_pool_is_free(&w->pool, page) == !p->used);
        CHECK(!p->used || w->pool.token[page] == cache_token_text((int32_t)p->token));
        n_evictable += p->used && p->locks == 0;
    }
    CHECK_INT(w->pool.n_owned, w->n_used);
    CHECK_INT(page_pool_private(&w->pool), 0);
    CHECK_INT(w->pool.n_free + w->pool.n_owned, w->config->n_pages);
    CHECK_INT(stats.n_evictable, n_evictable);
    CHECK_INT(stats.n_nodes, model_nodes(w));
    CHECK_INT(stats.evicted_pages, w->evicted);
    CHECK_INT(stats.expired_pages, w->expired);
}

static void to_cache_tokens(const uint32_t *tokens, uint32_t n, uint64_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = cache_token_text((int32_t)tokens[i]);
}

static uint32_t path_of(const struct world *w, int at, uint32_t *pages)
{
    uint32_t depth = 0;
    for (int p = at; p < ROOTS; p = w->positions[p].parent)
        depth++;
    uint32_t i = depth;
    for (int p = at; p < ROOTS; p = w->positions[p].parent)
        pages[--i] = (uint32_t)p;
    return depth;
}

/* A handle's pages are those of its position's path, in order, in the fewest runs. */
static void check_handle(const struct world *w, node_id node, int at)
{
    uint32_t pages[MAX_PAGES], depth = path_of(w, at, pages), i = 0;
    struct page_run runs[MAX_PAGES];
    CHECK_INT(prefix_tree_depth(w->tree, node), depth);
    uint32_t n_runs = prefix_tree_pages(w->tree, node, runs, MAX_PAGES);
    for (uint32_t r = 0; r < n_runs; r++) {
        CHECK(r == 0 || runs[r - 1].first + runs[r - 1].count != runs[r].first);
        for (uint32_t k = 0; k < runs[r].count; k++, i++) {
            CHECK(i < depth);
            CHECK_INT(runs[r].first + k, pages[i]);
        }
    }
    CHECK_INT(i, depth);
}

/* Random tokens; mostly the path of something stored, cut or changed somewhere, and some more. */
static uint32_t make_query(struct world *w, uint32_t *ns, uint32_t *tokens)
{
    uint32_t n = 0, pages[MAX_PAGES];
    *ns = below(w, w->config->n_namespaces);
    int at = (int)below(w, w->config->n_pages);
    if (w->positions[at].used && below(w, 8)) {
        uint32_t depth = path_of(w, at, pages);
        for (; n < depth && n < w->config->max_query; n++)
            tokens[n] = w->positions[pages[n]].token;
        *ns = (uint32_t)(w->positions[pages[0]].parent - ROOTS);
        if (below(w, 2) == 0)
            n = below(w, n + 1);
    }
    uint32_t more = below(w, 3) ? below(w, w->config->max_query / 2) : 0;
    for (; more > 0 && n < w->config->max_query; more--)
        tokens[n++] = below(w, w->config->alphabet);
    return n;
}

/* What an operation evicted to get nodes is, page for page, what the model would evict. */
static void follow_evictions(struct world *w)
{
    uint32_t n = (uint32_t)(prefix_tree_stats(w->tree)->evicted_pages - w->evicted);
    CHECK_INT(model_evict(w, n), n);
}

static void refuse(struct world *w)
{
    CHECK_INT(prefix_tree_stats(w->tree)->n_evictable, 0);
    CHECK(prefix_tree_stats(w->tree)->n_nodes + 1 >= w->config->max_nodes);
    w->n_refused++;
}

static void do_acquire(struct world *w)
{
    if (w->n_handles == w->config->n_handles)
        return;
    uint32_t ns, tokens[MAX_QUERY], n = make_query(w, &ns, tokens), want, got = 0;
    uint64_t cache_tokens[MAX_QUERY];
    to_cache_tokens(tokens, n, cache_tokens);
    int at = model_walk(w, ROOTS + (int)ns, tokens, n, &want);
    CHECK_INT(prefix_tree_peek(w->tree, ns, cache_tokens, n), want);
    enum match_kind kind = MATCH_KINDS, want_kind = model_kind(w, at, want, n);
    node_id node = prefix_tree_acquire(w->tree, ns, cache_tokens, n, w->now, &got, &kind);
    follow_evictions(w);
    if (node == NODE_NONE) {
        refuse(w);
        return;
    }
    CHECK_INT(got, want);
    CHECK_INT(kind, want_kind);
    w->lookups[kind]++;
    model_lock(w, at, 1);
    model_touch(w, at);
    check_handle(w, node, at);
    w->handles[w->n_handles++] = (struct handle){node, at};
}

/* Takes `n` pages, after evicting for them; false when there are not so many. */
static bool take_pages(struct world *w, uint32_t n, uint32_t *pages)
{
    if (w->pool.n_free < n) {
        uint32_t need = n - w->pool.n_free;
        CHECK_INT(prefix_tree_evict(w->tree, need, UINT32_MAX, w->now), model_evict(w, need));
    }
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

static void do_insert(struct world *w)
{
    if (w->n_handles == 0)
        return;
    struct handle *h = &w->handles[below(w, w->n_handles)];
    uint32_t ns, tokens[MAX_QUERY], n = make_query(w, &ns, tokens), pages[MAX_QUERY];
    uint64_t cache_tokens[MAX_QUERY];
    to_cache_tokens(tokens, n, cache_tokens);
    if (!take_pages(w, n, pages))
        return;
    uint32_t present, claimed = 0;
    int at = model_walk(w, h->position, tokens, n, &present);
    node_id node = prefix_tree_insert(w->tree, h->node, cache_tokens, pages, n, w->now, &claimed);
    follow_evictions(w);
    for (uint32_t i = 0; i < n - claimed; i++)
        page_pool_give(&w->pool, (struct page_run){pages[i], 1});
    if (node == NODE_NONE) {
        CHECK_INT(claimed, 0);
        refuse(w);
        return;
    }
    CHECK_INT(claimed, n - present);
    for (uint32_t i = present; i < n; i++)
        at = model_add(w, at, tokens[i], pages[i]);
    model_lock(w, at, 1);
    model_lock(w, h->position, -1);
    model_touch(w, at);
    *h = (struct handle){node, at};
    check_handle(w, node, at);
}

static void do_lock(struct world *w)
{
    if (w->n_handles == 0 || w->n_handles == w->config->n_handles)
        return;
    struct handle h = w->handles[below(w, w->n_handles)];
    prefix_tree_lock(w->tree, h.node);
    model_lock(w, h.position, 1);
    w->handles[w->n_handles++] = h;
}

static void do_unlock(struct world *w)
{
    if (w->n_handles == 0)
        return;
    uint32_t i = below(w, w->n_handles);
    struct handle h = w->handles[i];
    check_handle(w, h.node, h.position);
    w->handles[i] = w->handles[--w->n_handles];
    prefix_tree_unlock(w->tree, h.node, w->now);
    model_lock(w, h.position, -1);
    model_touch(w, h.position);
    if (h.position < ROOTS && w->positions[h.position].n_children == 0)
        w->positions[h.position].end = true;
}

static void do_evict(struct world *w)
{
    uint32_t n = below(w, 16) ? below(w, 8) : below(w, w->config->n_pages * 2);
    CHECK_INT(prefix_tree_evict(w->tree, n, UINT32_MAX, w->now), model_evict(w, n));
}

static void do_expire(struct world *w)
{
    uint64_t age = below(w, 2000), before = w->time > age ? w->time - age : 0;
    CHECK_INT(prefix_tree_expire(w->tree, before, UINT32_MAX, w->now), model_expire(w, before));
}

static void step(struct world *w)
{
    /* Time mostly moves, sometimes stands, sometimes goes back. */
    w->now += below(w, 4) ? below(w, 20) : 0;
    if (below(w, 64) == 0 && w->now > 50)
        w->now -= below(w, 50);
    switch (below(w, 16)) {
    case 0:
    case 1:
    case 2:
    case 3: do_acquire(w); break;
    case 4:
    case 5:
    case 6:
    case 7: do_insert(w); break;
    case 8: do_lock(w); break;
    case 9:
    case 10:
    case 11:
    case 12: do_unlock(w); break;
    case 13:
    case 14: do_evict(w); break;
    default: do_expire(w); break;
    }
}

static struct world world;

/* Returns how many operations found no node. */
static uint32_t run(const struct config *config)
{
    uint32_t n_refused = 0;
    for (uint64_t round = 0; round < CACHE_RANDOM_ROUNDS; round++) {
        struct world *w = &world;
        world_open(w, config, round);
        for (uint32_t i = 0; i < config->n_operations; i++) {
            step(w);
            compare(w);
            if (i % 8 == 0) {
                CHECK(prefix_tree_check(w->tree));
                CHECK(page_pool_check(&w->pool));
            }
        }
        for (uint32_t i = 0; i < w->n_handles; i++)
            check_handle(w, w->handles[i].node, w->handles[i].position);
        bool tight = config->max_nodes < config->n_pages;
        CHECK(tight || w->n_refused == 0);
        n_refused += w->n_refused;
        CHECK(w->evicted > 0 && (tight || w->expired > 0));
        for (int kind = 0; kind < MATCH_KINDS; kind++)
            CHECK(w->lookups[kind] > 0);
        while (w->n_handles > 0)
            do_unlock(w);
        CHECK_INT(prefix_tree_evict(w->tree, UINT32_MAX, UINT32_MAX, w->now),
                  model_evict(w, UINT32_MAX));
        compare(w);
        CHECK_INT(prefix_tree_stats(w->tree)->n_nodes, 0);
        world_close(w);
    }
    return n_refused;
}

TEST(cache_random, two_letters_in_a_small_pool)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        run(&(struct config){.seed = seed,
                             .n_pages = 24,
                             .max_nodes = 100,
                             .alphabet = 2,
                             .n_namespaces = 1,
                             .n_handles = 3,
                             .max_query = 10,
                             .n_operations = 150000});
}

TEST(cache_random, many_handles)
{
    for (uint64_t seed = 11; seed <= 13; seed++)
        run(&(struct config){.seed = seed,
                             .n_pages = 100,
                             .max_nodes = 200,
                             .alphabet = 3,
                             .n_namespaces = 2,
                             .n_handles = 16,
                             .max_query = 24,
                             .n_operations = 40000});
}

TEST(cache_random, long_texts)
{
    run(&(struct config){.seed = 21,
                         .n_pages = 500,
                         .max_nodes = 600,
                         .alphabet = 2,
                         .n_namespaces = 1,
                         .n_handles = 6,
                         .max_query = 96,
                         .n_operations = 10000});
}

TEST(cache_random, namespaces_come_and_go)
{
    run(&(struct config){.seed = 31,
                         .n_pages = 40,
                         .max_nodes = 200,
                         .alphabet = 8,
                         .n_namespaces = 4,
                         .n_handles = 2,
                         .max_query = 6,
                         .n_operations = 150000});
}

TEST(cache_random, few_nodes)
{
    uint32_t n_refused = 0;
    for (uint32_t max_nodes = 2; max_nodes <= 12; max_nodes += 2)
        n_refused += run(&(struct config){.seed = 40 + max_nodes,
                                          .n_pages = 64,
                                          .max_nodes = max_nodes,
                                          .alphabet = 2,
                                          .n_namespaces = 2,
                                          .n_handles = 4,
                                          .max_query = 16,
                                          .n_operations = 40000});
    CHECK(n_refused > 100);
}

/* While nothing is evicted, every stored sequence counts: a match is exactly as long as the longest
 * common prefix with any of them. */
TEST(cache_random, match_is_the_longest_common_prefix)
{
    enum { N = 400, LENGTH = 24 };
    static uint64_t stored[N][LENGTH];
    static uint32_t lengths[N];
    struct page_pool pool;
    struct prefix_tree *tree;
    struct error err;
    uint64_t random = 77;
    CHECK_INT(page_pool_open(&pool, N * LENGTH, &err), 0);
    struct prefix_tree_options options = {.pool = &pool, .max_nodes = 2 * N + 2};
    CHECK_INT(prefix_tree_open(&tree, &options, &err), 0);
    for (uint32_t s = 0; s < N; s++) {
        uint32_t n = lengths[s] = (uint32_t)(hash_mix(random++) % (LENGTH + 1)), best = 0, got;
        uint32_t pages[LENGTH], claimed;
        enum match_kind kind;
        for (uint32_t i = 0; i < n; i++)
            stored[s][i] = hash_mix(random++) % 8 ? 1 : hash_mix(random++) % 3;
        for (uint32_t other = 0; other < s; other++) {
            uint32_t i = 0;
            while (i < n && i < lengths[other] && stored[s][i] == stored[other][i])
                i++;
            best = i > best ? i : best;
        }
        CHECK_INT(prefix_tree_peek(tree, 0, stored[s], n), best);
        node_id node = prefix_tree_acquire(tree, 0, stored[s], n, s, &got, &kind);
        CHECK_INT(got, best);
        for (uint32_t i = best; i < n; i++)
            pages[i] = page_pool_take(&pool, 1, PAGE_NONE).first;
        node = prefix_tree_insert(tree, node, stored[s] + best, pages + best, n - best, s,
                                  &claimed);
        CHECK_INT(claimed, n - best);
        prefix_tree_unlock(tree, node, s);
    }
    CHECK(prefix_tree_check(tree));
    for (uint32_t s = 0; s < N; s++)
        CHECK_INT(prefix_tree_peek(tree, 0, stored[s], lengths[s]), lengths[s]);
    prefix_tree_close(tree);
    page_pool_close(&pool);
}
