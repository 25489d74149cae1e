/* Why no more of a query is cached, and the table of recent removals behind that. */
#include "cache/ghost_table.h"
#include "cache/prefix_tree.h"

#include "base/hash.h"

#include "test.h"
#include "tree_lookup.h"
#include "tree_fixture.h"

static struct miss explain_in(const struct fixture *f, uint64_t ns, const char *text, bool others)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_tokens(text, tokens);
    struct miss miss;
    tree_explain(f->tree, ns, tokens, n, others, &miss);
    CHECK_INT(miss.position, prefix_tree_match(f->tree, ns, tokens, n).length);
    return miss;
}

static struct miss explain(const struct fixture *f, const char *text)
{
    return explain_in(f, 0, text, false);
}

static void check_way(const struct miss *miss, const char *text)
{
    CHECK_INT(miss->reason, MISS_DIVERGED);
    CHECK_INT(miss->n_tokens, strlen(text));
    for (uint32_t i = 0; i < miss->n_tokens; i++)
        CHECK(miss->tokens[i] == cache_token_text(text[i]));
}

TEST(tree_explain, nothing_is_missing)
{
    struct fixture f;
    setup(&f, 64, 32);
    CHECK_INT(explain(&f, "").reason, MISS_NONE);
    store(&f, "abc");
    CHECK_INT(explain(&f, "abc").reason, MISS_NONE);
    CHECK_INT(explain(&f, "abc").position, 3);
    CHECK_INT(explain(&f, "ab").reason, MISS_NONE);
    CHECK_INT(explain(&f, "").reason, MISS_NONE);
    teardown(&f);
}

TEST(tree_explain, never_seen)
{
    struct fixture f;
    setup(&f, 64, 32);
    CHECK_INT(explain(&f, "abc").reason, MISS_NEVER_SEEN);
    store(&f, "abc");
    struct miss miss = explain(&f, "abcdef");
    CHECK_INT(miss.reason, MISS_NEVER_SEEN);
    CHECK_INT(miss.position, 3);
    CHECK_INT(explain_in(&f, 1, "abc", false).reason, MISS_NEVER_SEEN);
    CHECK_INT(explain_in(&f, 1, "abc", false).ns_length, 0);
    teardown(&f);
}

TEST(tree_explain, diverged)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "It is Monday");
    store(&f, "It was Tuesday");
    struct miss miss = explain(&f, "It is Friday");
    CHECK_INT(miss.position, 6);
    check_way(&miss, "Monday");
    /* At a branch, the path that was used last; through nodes, until there are enough tokens. */
    miss = explain(&f, "It has");
    CHECK_INT(miss.position, 3);
    check_way(&miss, "was Tues");
    look(&f, "It is Mon");
    miss = explain(&f, "It has");
    check_way(&miss, "is Monda");
    miss = explain(&f, "x");
    CHECK_INT(miss.position, 0);
    check_way(&miss, "It is Mo");
    /* Nothing of what was withdrawn. */
    node_id node = acquire(&f, "It is");
    prefix_tree_withdraw(f.tree, node, 3);
    check_laws(&f);
    miss = explain(&f, "It has");
    check_way(&miss, "was Tues");
    unlock(&f, node);
    node = acquire(&f, "It was");
    prefix_tree_withdraw(f.tree, node, 3);
    miss = explain(&f, "It has");
    CHECK_INT(miss.reason, MISS_NEVER_SEEN);
    unlock(&f, node);
    teardown(&f);
}

TEST(tree_explain, evicted)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abcdef");
    uint64_t used_ns = f.now_ns;
    CHECK_INT(prefix_tree_evict(f.tree, 2, UINT32_MAX, 500), 2);
    struct miss miss = explain(&f, "abcdef");
    CHECK_INT(miss.reason, MISS_EVICTED);
    CHECK_INT(miss.position, 4);
    CHECK_INT(miss.gone_ns, 500);
    CHECK_INT(miss.last_used_ns, used_ns);
    CHECK_INT(miss.gone_length, 2);
    CHECK_INT(explain(&f, "abcdexx").gone_length, 1); /* the rest never was */
    CHECK_INT(explain(&f, "abcdxx").reason, MISS_NEVER_SEEN);
    CHECK_INT(prefix_tree_evict(f.tree, 9, UINT32_MAX, 600), 4);
    CHECK_INT(n_nodes(&f), 0); /* the namespace is gone, and remembered */
    miss = explain(&f, "abcdef");
    CHECK_INT(miss.reason, MISS_EVICTED);
    CHECK_INT(miss.position, 0);
    CHECK_INT(miss.gone_ns, 600);
    CHECK_INT(explain_in(&f, 1, "abcdef", true).reason, MISS_NEVER_SEEN);
    teardown(&f);
}

TEST(tree_explain, comes_back_and_goes_another_way)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "turn1");
    store(&f, "turn1turn2");
    CHECK_INT(prefix_tree_evict(f.tree, 10, UINT32_MAX, 500), 10); /* as one node */
    store(&f, "turn1");
    CHECK_INT(explain(&f, "turn1").reason, MISS_NONE);
    /* It went on from there once: the stored end is remembered with it. */
    struct miss miss = explain(&f, "turn1turn2");
    CHECK_INT(miss.reason, MISS_EVICTED);
    CHECK_INT(miss.position, 5);
    CHECK_INT(miss.gone_ns, 500);
    /* A different way from there never was. */
    CHECK_INT(explain(&f, "turn1other").reason, MISS_NEVER_SEEN);
    store(&f, "turn1third");
    miss = explain(&f, "turn1other");
    check_way(&miss, "third");
    /* The other way has its first token: what is behind it is remembered by its end. */
    miss = explain(&f, "turn1turn2 and on");
    CHECK_INT(miss.reason, MISS_EVICTED);
    CHECK_INT(miss.position, 6);
    /* Back again, it is found, and removed for another reason. */
    store(&f, "turn1turn2");
    CHECK_INT(explain(&f, "turn1turn2").reason, MISS_NONE);
    f.now_ns = 1000;
    look(&f, "turn1third");
    CHECK_INT(expire(&f, 900), 4); /* "urn2" */
    miss = explain(&f, "turn1turn2");
    CHECK_INT(miss.reason, MISS_EXPIRED);
    CHECK_INT(miss.gone_ns, 1002);
    teardown(&f);
}

TEST(tree_explain, expired_and_cleared)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abc");
    CHECK_INT(prefix_tree_expire(f.tree, UINT64_MAX, 1, 500), 3);
    struct miss miss = explain(&f, "abc");
    CHECK_INT(miss.reason, MISS_EXPIRED);
    CHECK_INT(miss.gone_ns, 500);
    store(&f, "abc");
    CHECK_INT(prefix_tree_clear(f.tree, NULL, 1, 700), 3);
    miss = explain(&f, "abc");
    CHECK_INT(miss.reason, MISS_CLEARED);
    CHECK_INT(miss.gone_ns, 700);
    CHECK_INT(miss.last_used_ns, f.now_ns);
    teardown(&f);
}

TEST(tree_explain, invalid_is_cleared_from_the_first_moment)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abc");
    store_in(&f, 1, "xyz");
    uint64_t ns = 0, other = 1;
    f.now_ns = 50;
    look(&f, "abc");
    prefix_tree_invalidate(f.tree, &ns);
    prefix_tree_invalidate(f.tree, &other);
    struct miss miss = explain(&f, "abcd");
    CHECK_INT(miss.reason, MISS_CLEARED);
    CHECK_INT(miss.gone_ns, 52);
    CHECK_INT(miss.last_used_ns, 52);
    CHECK_INT(explain(&f, "xyz").reason, MISS_NEVER_SEEN);
    store(&f, "ab");
    miss = explain(&f, "abc");
    CHECK_INT(miss.reason, MISS_CLEARED);
    CHECK_INT(miss.position, 2);
    CHECK_INT(explain(&f, "abx").reason, MISS_NEVER_SEEN);
    CHECK_INT(prefix_tree_evict(f.tree, 6, UINT32_MAX, 900), 6);
    CHECK_INT(explain_in(&f, 1, "xyz", false).reason, MISS_CLEARED); /* not evicted */
    CHECK_INT(explain_in(&f, 1, "xyz", false).gone_ns, 900);
    teardown(&f);
}

TEST(tree_explain, withdrawn_is_cleared)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abcdef");
    node_id node = hold(&f, "abcxyz");
    prefix_tree_withdraw(f.tree, node, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(explain(&f, "abcxyz").reason, MISS_CLEARED);
        CHECK_INT(explain(&f, "abcdef").reason, MISS_CLEARED);
        CHECK_INT(explain(&f, "abx").reason, MISS_NEVER_SEEN);
        if (i == 0)
            unlock(&f, node);
    }
    /* Back up to the branch, both ways on are remembered. */
    store(&f, "abc");
    CHECK_INT(explain(&f, "abcxyz").reason, MISS_CLEARED);
    CHECK_INT(explain(&f, "abcdef").reason, MISS_CLEARED);
    teardown(&f);
}

TEST(tree_explain, another_namespace_has_more)
{
    struct fixture f;
    setup(&f, 64, 32);
    store_in(&f, 1, "abcd");
    store_in(&f, 2, "abcdef");
    store_in(&f, 3, "abcdef");
    store_in(&f, 0, "abx");
    uint64_t three = 3;
    prefix_tree_invalidate(f.tree, &three);
    struct miss miss = explain_in(&f, 0, "abcdefgh", true);
    CHECK_INT(miss.reason, MISS_NAMESPACE);
    CHECK_INT(miss.position, 2);
    CHECK_INT(miss.ns, 2);
    CHECK_INT(miss.ns_length, 6);
    miss = explain_in(&f, 0, "abcdefgh", false);
    check_way(&miss, "x");
    miss = explain_in(&f, 0, "aby", true); /* no other has more */
    check_way(&miss, "x");
    CHECK_INT(miss.ns_length, 0);
    miss = explain_in(&f, 9, "abcdefgh", true); /* its own is not there at all */
    CHECK_INT(miss.reason, MISS_NAMESPACE);
    CHECK_INT(miss.ns, 2);
    teardown(&f);
}

TEST(tree_explain, half_an_image_is_not_asked_for)
{
    struct error err;
    struct fixture f = {0};
    struct image_table *images;
    struct image_key key = {.owner = 0};
    struct image_shape shape = {.length = 3};
    CHECK_INT(image_table_open(&images, 4, &err), 0);
    CHECK_INT(image_table_intern(images, &key, &shape), 0);
    CHECK_INT(page_pool_open(&f.pool, 64, &err), 0);
    struct prefix_tree_options options = {.pool = &f.pool, .images = images, .max_nodes = 8};
    CHECK_INT(prefix_tree_open(&f.tree, &options, &err), 0);
    uint64_t tokens[4] = {cache_token_text('a'), cache_token_image(0, 0, 3),
                          cache_token_image(0, 1, 3), cache_token_image(0, 2, 3)};
    uint32_t length, claimed, pages[4];
    enum match_kind kind;
    struct miss miss;
    node_id node = tree_acquire(f.tree, 0, tokens, 4, 1, &length, &kind);
    for (int i = 0; i < 4; i++)
        pages[i] = page_pool_take(&f.pool, 1, PAGE_NONE).first;
    node = prefix_tree_insert(f.tree, node, tokens, pages, NULL, 4, 2, &claimed);
    prefix_tree_unlock(f.tree, node, 3);
    tree_explain(f.tree, 0, tokens, 3, false, &miss);
    CHECK_INT(miss.reason, MISS_NONE);
    CHECK_INT(miss.position, 1);
    CHECK_INT(prefix_tree_evict(f.tree, 1, 9, 4), 3);
    tree_explain(f.tree, 0, tokens, 4, false, &miss);
    CHECK_INT(miss.reason, MISS_EVICTED);
    CHECK_INT(miss.position, 1);
    teardown(&f);
    image_table_close(images);
}

/* The search for a removal after the match is limited: a long prompt is not hashed whole. */
TEST(tree_explain, looks_ahead_a_bounded_way)
{
    enum { LOOKED_AT = 1 << 14, N = LOOKED_AT + 100 };
    static uint64_t tokens[N];
    static uint32_t pages[N];
    struct fixture f;
    struct miss miss;
    uint32_t length, claimed;
    setup(&f, N, 32);
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = cache_token_text((int32_t)i);
    node_id node = tree_acquire(f.tree, 0, tokens, N, 1, &length, &f.kind);
    for (uint32_t i = 0; i < N; i++)
        pages[i] = page_pool_take(&f.pool, 1, PAGE_NONE).first;
    node = prefix_tree_insert(f.tree, node, tokens, pages, NULL, N, 1, &claimed);
    prefix_tree_unlock(f.tree, node, 1);
    CHECK_INT(prefix_tree_evict(f.tree, 10, 1, 2), 10);       /* noted where it went */
    CHECK_INT(prefix_tree_clear(f.tree, NULL, 1, 3), N - 10); /* noted at the beginning */
    tree_explain(f.tree, 0, tokens, N, false, &miss);
    CHECK_INT(miss.reason, MISS_CLEARED);
    tokens[0] = cache_token_text(-1); /* another prompt: all of it was never here */
    tree_explain(f.tree, 0, tokens, N, false, &miss);
    CHECK_INT(miss.reason, MISS_NEVER_SEEN);
    teardown(&f);
}
