/* Every operation of the tree in random order, images, pins, caps and all, with the whole tree
 * recounted after each. What is found is compared with what was stored: a prefix of a text that is
 * found has its pages in order, with the text's tokens. */
#include <stdlib.h>

#include "base/hash.h"
#include "cache/prefix_tree.h"

#include "test.h"
#include "tree_lookup.h"

enum { N_PAGES = 160, MAX_NODES = 60, N_IMAGES = 4, MAX_TOKENS = 40, MAX_HELD = 8, N_NAMES = 3 };

/* A side of the tree: a window, whose last positions all have pages, or a state. */
struct side {
    uint32_t before, n_pages;
    bool is_state;
};

struct held {
    node_id node;
    uint32_t n;
    uint32_t needs[TREE_MAX_SIDES]; /* of the last positions */
    uint64_t tokens[MAX_TOKENS * 4];
};

struct stress {
    uint64_t random, now_ns;
    struct page_pool pool, side_pools[TREE_MAX_SIDES];
    const struct side *sides;
    uint32_t n_sides;
    struct image_table *images;
    struct prefix_tree *tree;
    uint32_t image_lengths[N_IMAGES];
    struct held held[MAX_HELD];
    uint32_t n_held;
};

/* How often what happened, over all runs. */
static struct {
    uint64_t pinned, withdrawn, invalidated, refused, images, reasons[MISS_WINDOW + 1];
} seen;

static uint32_t below(struct stress *s, uint32_t n)
{
    return (uint32_t)(hash_mix(s->random++) >> 32) % n;
}

/* Letters from a small alphabet, and images now and then. */
static uint32_t make_tokens(struct stress *s, uint64_t *tokens)
{
    uint32_t n = 0, want = below(s, MAX_TOKENS / 2);
    while (n < want) {
        if (below(s, 6)) {
            tokens[n++] = cache_token_text((int32_t)below(s, 2));
            continue;
        }
        uint32_t image = below(s, N_IMAGES), length = s->image_lengths[image];
        for (uint32_t i = 0; i < length; i++)
            tokens[n++] = cache_token_image(image, i, length);
        seen.images++;
    }
    return n;
}

static void check_held(const struct stress *s, const struct held *h)
{
    struct page_run runs[N_PAGES];
    uint32_t n_runs = prefix_tree_pages(s->tree, h->node, runs, N_PAGES), at = 0;
    CHECK_INT(prefix_tree_depth(s->tree, h->node), h->n);
    for (uint32_t r = 0; r < n_runs; r++)
        for (uint32_t i = 0; i < runs[r].count; i++)
            CHECK(s->pool.token[runs[r].first + i] == h->tokens[at++]);
    CHECK_INT(at, h->n);
    for (uint32_t side = 0; side < s->n_sides; side++) {
        uint32_t pages[MAX_TOKENS * 4];
        prefix_tree_side_pages(s->tree, side, h->node, h->n, pages);
        for (uint32_t i = 1; i <= h->needs[side]; i++)
            CHECK(pages[h->n - i] < s->sides[side].n_pages);
    }
}

/* How many of `n` positions get pages of a side, at least: the last ones. */
static uint32_t choose(struct stress *s, const struct side *side, uint32_t n)
{
    if (side->is_state)
        return n > 0 ? below(s, 2) : 0;
    return n <= side->before ? n : side->before + 1 + below(s, n - side->before);
}

/* Takes pages of a side for some of `n` positions; what every handle needs stays. False: there are
 * not enough. A state may do without. */
static bool take_side(struct stress *s, uint32_t side, const uint64_t *tokens, uint32_t n,
                      uint32_t *pages)
{
    struct page_pool *pool = &s->side_pools[side];
    struct side_need needs[MAX_HELD];
    bool is_state = s->sides[side].is_state;
    uint32_t want = choose(s, &s->sides[side], n);
    for (uint32_t i = 0; i < s->n_held; i++)
        needs[i] = (struct side_need){s->held[i].node, s->held[i].needs[side]};
    if (pool->n_free < want)
        prefix_tree_evict_interior(s->tree, side, want - pool->n_free, s->now_ns);
    if (pool->n_free < want)
        prefix_tree_evict_tails(s->tree, side, want - pool->n_free, needs, s->n_held, s->now_ns);
    if (pool->n_free < want && !is_state)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool wants = i + want >= n || (is_state && cache_token_is_whole(tokens[i]) && !below(s, 6));
        pages[i] = wants && pool->n_free ? page_pool_take(pool, 1, PAGE_NONE).first : PAGE_NONE;
    }
    return true;
}

static void give_side(struct stress *s, uint32_t side, const uint32_t *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (pages[i] != PAGE_NONE)
            page_pool_give(&s->side_pools[side], (struct page_run){pages[i], 1});
}

static bool take_sides(struct stress *s, const uint64_t *tokens, uint32_t n,
                       uint32_t *const side_pages[])
{
    for (uint32_t side = 0; side < s->n_sides; side++) {
        if (take_side(s, side, tokens, n, side_pages[side]))
            continue;
        while (side-- > 0)
            give_side(s, side, side_pages[side], n);
        return false;
    }
    return true;
}

static void do_acquire(struct stress *s)
{
    if (s->n_held == MAX_HELD)
        return;
    struct held *h = &s->held[s->n_held];
    struct miss miss;
    enum match_kind kind;
    uint64_t ns = below(s, N_NAMES);
    uint32_t n = make_tokens(s, h->tokens), cut = below(s, 4) ? n : below(s, n + 1), length;
    tree_explain(s->tree, ns, h->tokens, cut, below(s, 2), &miss);
    CHECK_INT(miss.position, prefix_tree_match(s->tree, ns, h->tokens, cut).length);
    seen.reasons[miss.reason]++;
    h->node = tree_acquire(s->tree, ns, h->tokens, cut, s->now_ns, &length, &kind);
    if (h->node == NODE_NONE) {
        seen.refused++;
        return;
    }
    CHECK_INT(length, miss.position);
    CHECK(length == 0 || cache_token_is_whole(h->tokens[length - 1]));
    h->n = length;
    for (uint32_t i = 0; i < s->n_sides; i++)
        h->needs[i] = length < s->sides[i].before ? length : s->sides[i].before;
    s->n_held++;
}

static void do_insert(struct stress *s)
{
    if (s->n_held == 0)
        return;
    struct held *h = &s->held[below(s, s->n_held)];
    uint32_t pages[MAX_TOKENS * 2], sides[TREE_MAX_SIDES][MAX_TOKENS * 2], claimed = 0, got = 0;
    uint32_t *const side_pages[TREE_MAX_SIDES] = {sides[0], sides[1]};
    uint64_t *tokens = h->tokens + h->n;
    if (h->n > MAX_TOKENS)
        return;
    uint32_t n = make_tokens(s, tokens);
    if (s->pool.n_free < n)
        prefix_tree_evict(s->tree, n - s->pool.n_free, UINT32_MAX, s->now_ns);
    if (s->pool.n_free < n || !take_sides(s, tokens, n, side_pages))
        return;
    while (got < n) {
        struct page_run run = page_pool_take(&s->pool, n - got, got ? pages[got - 1] : PAGE_NONE);
        for (uint32_t i = 0; i < run.count; i++)
            pages[got++] = run.first + i;
    }
    node_id node = prefix_tree_insert(s->tree, h->node, tokens, pages, side_pages, n, s->now_ns,
                                      &claimed);
    for (uint32_t i = 0; i < n - claimed; i++)
        page_pool_give(&s->pool, (struct page_run){pages[i], 1});
    if (node == NODE_NONE) {
        for (uint32_t i = 0; i < s->n_sides; i++)
            give_side(s, i, sides[i], n);
        seen.refused++;
        return;
    }
    h->node = node;
    h->n += n;
    for (uint32_t i = 0; i < s->n_sides && n > 0; i++) {
        uint32_t before = s->sides[i].before;
        h->needs[i] = h->n < before ? h->n : before;
        if (s->sides[i].is_state)
            h->needs[i] = sides[i][n - 1] != PAGE_NONE;
    }
}

static void do_unlock(struct stress *s)
{
    if (s->n_held == 0)
        return;
    struct held *h = &s->held[below(s, s->n_held)];
    prefix_tree_unlock(s->tree, h->node, s->now_ns);
    *h = s->held[--s->n_held];
}

static void do_rare(struct stress *s)
{
    struct held *h = s->n_held ? &s->held[below(s, s->n_held)] : NULL;
    uint64_t ns = below(s, N_NAMES);
    switch (below(s, 8)) {
    case 0:
    case 1:
    case 2:
        if (h)
            seen.pinned += prefix_tree_pin(s->tree, h->node, s->now_ns + below(s, 500));
        break;
    case 3:
        if (h && h->n) {
            prefix_tree_withdraw(s->tree, h->node, below(s, h->n));
            seen.withdrawn++;
        }
        break;
    case 4:
        prefix_tree_invalidate(s->tree, below(s, 4) ? &ns : NULL);
        seen.invalidated++;
        break;
    case 5: prefix_tree_set_cap(s->tree, ns, below(s, 2) ? UINT32_MAX : below(s, N_PAGES)); break;
    case 6: prefix_tree_clear(s->tree, below(s, 4) ? &ns : NULL, below(s, 20), s->now_ns); break;
    default:
        if (h && s->n_held < MAX_HELD) {
            prefix_tree_lock(s->tree, h->node);
            s->held[s->n_held++] = *h;
        }
    }
}

static void step(struct stress *s)
{
    s->now_ns += below(s, 20);
    switch (below(s, 10)) {
    case 0:
    case 1: do_acquire(s); break;
    case 2:
    case 3:
    case 4: do_insert(s); break;
    case 5:
    case 6: do_unlock(s); break;
    case 7: prefix_tree_evict(s->tree, below(s, 12), 1 + below(s, 4), s->now_ns); break;
    case 8:
        if (below(s, 4) == 0)
            prefix_tree_expire(s->tree, s->now_ns - below(s, 600), 1 + below(s, 8), s->now_ns);
        break;
    default: do_rare(s); break;
    }
}

static struct stress stress;

static void open_stress(struct stress *s, uint64_t seed, const struct side *sides, uint32_t n_sides)
{
    struct error err;
    *s = (struct stress){.random = seed << 40, .now_ns = 1000, .sides = sides, .n_sides = n_sides};
    CHECK_INT(page_pool_open(&s->pool, N_PAGES, &err), 0);
    CHECK_INT(image_table_open(&s->images, N_IMAGES, &err), 0);
    for (uint32_t i = 0; i < N_IMAGES; i++) {
        struct image_key key = {.sha256 = {(unsigned char)i}};
        s->image_lengths[i] = 1 + 3 * i;
        struct image_shape shape = {.length = s->image_lengths[i]};
        CHECK_INT(image_table_intern(s->images, &key, &shape), i);
    }
    struct prefix_tree_options options = {.pool = &s->pool,
                                          .images = s->images,
                                          .max_nodes = MAX_NODES - (uint32_t)seed % 2 * 50,
                                          .max_pinned = N_PAGES / 2,
                                          .n_sides = n_sides};
    for (uint32_t i = 0; i < n_sides; i++) {
        CHECK_INT(page_pool_open(&s->side_pools[i], sides[i].n_pages, &err), 0);
        options.sides[i] = (struct tree_side_options){&s->side_pools[i], sides[i].before};
    }
    CHECK_INT(prefix_tree_open(&s->tree, &options, &err), 0);
}

static void run(const struct side *sides, uint32_t n_sides)
{
    struct stress *s = &stress;
    memset(&seen, 0, sizeof seen);
    for (uint64_t seed = 0; seed < 4; seed++) {
        open_stress(s, seed, sides, n_sides);
        for (uint32_t i = 0; i < 20000; i++) {
            step(s);
            CHECK(prefix_tree_check(s->tree));
            CHECK(page_pool_check(&s->pool));
            for (uint32_t k = 0; k < n_sides; k++)
                CHECK(page_pool_check(&s->side_pools[k]) &&
                      page_pool_private(&s->side_pools[k]) == 0);
            for (uint32_t k = 0; k < s->n_held; k++)
                check_held(s, &s->held[k]);
        }
        while (s->n_held)
            do_unlock(s);
        prefix_tree_clear(s->tree, NULL, UINT32_MAX, s->now_ns);
        CHECK(prefix_tree_check(s->tree));
        const struct tree_stats *stats = prefix_tree_stats(s->tree);
        CHECK_INT(stats->n_nodes, 0);
        CHECK_INT(stats->n_namespaces + stats->n_invalid + stats->n_pins + stats->n_pinned, 0);
        CHECK_INT(stats->n_entries + stats->n_evictable + s->pool.n_owned, 0);
        for (uint32_t i = 0; i < N_IMAGES; i++)
            image_table_release(s->images, i); /* the tree's holds are gone: this is the last */
        CHECK_INT(image_table_count(s->images), 0);
        prefix_tree_close(s->tree);
        image_table_close(s->images);
        page_pool_close(&s->pool);
        for (uint32_t i = 0; i < n_sides; i++) {
            CHECK_INT(s->side_pools[i].n_free, sides[i].n_pages);
            page_pool_close(&s->side_pools[i]);
        }
    }
    CHECK(seen.pinned && seen.withdrawn && seen.invalidated && seen.refused && seen.images);
    for (int i = 0; i <= MISS_NAMESPACE; i++)
        CHECK(seen.reasons[i] > 0);
    CHECK((seen.reasons[MISS_WINDOW] > 0) == (n_sides > 0));
}

TEST(tree_stress, everything_at_random)
{
    run(NULL, 0);
}

/* Also with few nodes, which no world with sides has. */
TEST(tree_stress, everything_at_random_with_a_window)
{
    run(&(struct side){4, 110, false}, 1);
}

TEST(tree_stress, everything_at_random_with_a_state)
{
    run(&(struct side){1, 12, true}, 1);
}

TEST(tree_stress, everything_at_random_with_a_state_and_a_window)
{
    run((struct side[]){{1, 60, true}, {3, 130, false}}, 2);
}
