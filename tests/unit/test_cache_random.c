/* The tree and the pool against a naive model, with random operations and fixed seeds; `make soak`
 * goes on from here with fresh ones, for as long as asked. The worlds are in cache_world.c. */
#include "base/hash.h"
#include "cache_world.h"

#include "test.h"
#include "tree_lookup.h"

/* One world for a while. It must have seen everything that can happen in it. */
static void run(const char *name, uint64_t seed, uint32_t n_steps)
{
    const struct world_config *c = world_configs;
    while (strcmp(c->name, name) != 0)
        CHECK(++c < world_configs + n_world_configs);
    struct world_totals totals = {0};
    struct world *w = world_open(c, seed);
    for (uint32_t i = 0; i < n_steps && !world_is_old(w); i++)
        world_step(w);
    world_close(w, &totals);
    bool tight = c->max_nodes < c->n_pages;
    CHECK(tight == (totals.n_refused > 0));
    CHECK(totals.evicted > 0 && totals.expired > 0 && totals.cleared > 0);
    CHECK(totals.n_pinned > 0 && totals.n_withdrawn > 0);
    CHECK(c->n_namespaces == 1 || tight || totals.n_pins_taken > 0);
    CHECK(totals.n_forgotten * 10 < totals.n_explained);
    for (int reason = 0; reason <= MISS_NAMESPACE; reason++)
        CHECK(totals.misses[reason] > 0 || tight ||
              (reason == MISS_NAMESPACE && c->n_namespaces == 1));
    CHECK(totals.n_stale > 0);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        const struct world_side *side = &c->sides[i];
        CHECK((totals.interior[i] > 0) == (i < c->n_sides));
        CHECK((totals.tails[i] > 0) == (i < c->n_sides));
        CHECK((totals.lacking[i] > 0) == (side->before > 0));
        CHECK(!side->is_sparse || totals.n_adopted > 0);
    }
    for (int kind = 0; kind < MATCH_KINDS; kind++)
        CHECK(totals.lookups[kind] > 0);
}

TEST(cache_random, two_letters_in_a_small_pool)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        run("two letters in a small pool", seed, 40000);
}

TEST(cache_random, many_handles)
{
    run("many handles", 11, 40000);
}

TEST(cache_random, long_texts)
{
    run("long texts", 21, 8000);
}

TEST(cache_random, namespaces_come_and_go)
{
    run("namespaces come and go", 31, 60000);
}

TEST(cache_random, images)
{
    run("images", 41, 60000);
}

TEST(cache_random, caps)
{
    run("caps", 51, 60000);
}

TEST(cache_random, windows)
{
    for (uint64_t seed = 81; seed <= 84; seed++)
        run("a window", seed, 40000);
    run("a window, images and caps", 85, 40000);
    run("a long window", 86, 8000);
    run("a window of one", 87, 20000);
}

TEST(cache_random, two_windows)
{
    for (uint64_t seed = 91; seed <= 92; seed++)
        run("two windows", seed, 30000);
}

TEST(cache_random, states)
{
    run("a state", 101, 40000);
    run("a state with two copies", 102, 40000);
    run("a state with a copy for every position", 103, 30000);
    run("a window with holes", 104, 30000);
}

TEST(cache_random, states_beside_other_sides)
{
    run("a window and a state", 111, 30000);
    run("a state and a window, images and caps", 112, 60000);
    run("a long window and a state", 113, 8000);
    run("two states", 114, 30000);
}

TEST(cache_random, few_nodes)
{
    run("three nodes", 61, 40000);
    run("few nodes", 62, 40000);
}

TEST(cache_random, a_large_pool)
{
    run("a large pool", 71, 8000);
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
        CHECK_INT(prefix_tree_match(tree, 0, stored[s], n).length, best);
        node_id node = tree_acquire(tree, 0, stored[s], n, s, &got, &kind);
        CHECK_INT(got, best);
        for (uint32_t i = best; i < n; i++)
            pages[i] = page_pool_take(&pool, 1, PAGE_NONE).first;
        node = prefix_tree_insert(tree, node, stored[s] + best, pages + best, NULL, n - best, s,
                                  &claimed);
        CHECK_INT(claimed, n - best);
        prefix_tree_unlock(tree, node, s);
    }
    CHECK(prefix_tree_check(tree));
    for (uint32_t s = 0; s < N; s++)
        CHECK_INT(prefix_tree_match(tree, 0, stored[s], lengths[s]).length, lengths[s]);
    prefix_tree_close(tree);
    page_pool_close(&pool);
}
