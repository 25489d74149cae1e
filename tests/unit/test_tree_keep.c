/* What stays longer or is removed earlier than its use alone implies: pins, caps, namespaces that
 * become invalid, positions that are withdrawn, images that are freed whole. */
#include "cache/prefix_tree.h"

#include "cache/tree_node.h"

#include "test.h"
#include "tree_lookup.h"
#include "test_death.h"
#include "tree_fixture.h"

static const struct tree_stats *stats(const struct fixture *f)
{
    return prefix_tree_stats(f->tree);
}

static bool pin(struct fixture *f, node_id node, uint64_t until_ns)
{
    bool pinned = prefix_tree_pin(f->tree, node, until_ns);
    check_laws(f);
    return pinned;
}

static void pin_text(struct fixture *f, const char *text, uint64_t until_ns)
{
    node_id node = hold(f, text);
    CHECK(pin(f, node, until_ns));
    unlock(f, node);
}

static void withdraw(struct fixture *f, node_id node, uint32_t depth)
{
    prefix_tree_withdraw(f->tree, node, depth);
    check_laws(f);
}

static void invalidate(struct fixture *f, uint64_t ns)
{
    prefix_tree_invalidate(f->tree, &ns);
    check_laws(f);
}

/* ---- pins ---- */

TEST(tree_pin, pins_take_half_of_a_cap_at_most)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abcdefgh");
    prefix_tree_set_cap(f.tree, 0, 12);
    node_id whole = hold(&f, "abcdefgh"), part = hold(&f, "abcd"), other = hold(&f, "xyz");
    CHECK(!pin(&f, whole, 1000));
    CHECK(pin(&f, part, 1000));
    CHECK(!pin(&f, other, 1000)); /* 4 and 3 are more than 6 */
    CHECK_INT(stats(&f)->n_pinned, 4);
    unlock(&f, whole);
    unlock(&f, part);
    unlock(&f, other);
    CHECK_INT(expire(&f, 0), 0);
    teardown(&f);
}

TEST(tree_pin, pinned_pages_go_last)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "pinned", 1000);
    store(&f, "pine");
    store(&f, "other");
    CHECK_INT(stats(&f)->n_pins, 1);
    CHECK_INT(stats(&f)->n_pinned, 6);
    CHECK_INT(n_evictable(&f), 12);
    CHECK_INT(evict(&f, 6), 6); /* the end of "pine", "other" */
    CHECK_INT(peek(&f, "pinned"), 6);
    CHECK_INT(n_evictable(&f), 6);
    CHECK_INT(expire(&f, 999), 0);
    CHECK_INT(evict(&f, 2), 2); /* nothing else is left */
    CHECK_INT(peek(&f, "pinned"), 4);
    CHECK_INT(stats(&f)->n_pins + stats(&f)->n_pinned, 0);
    CHECK_INT(evict(&f, 100), 4);
    teardown(&f);
}

TEST(tree_pin, time_ends_it_and_that_is_a_touch)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "pinned", 100);
    store(&f, "other");
    CHECK_INT(expire(&f, 0), 0);
    CHECK_INT(stats(&f)->n_pins, 1);
    f.now_ns = 99;
    CHECK_INT(expire(&f, 90), 5);
    CHECK_INT(stats(&f)->n_pins, 1);
    f.now_ns = 100;
    CHECK_INT(expire(&f, 90), 0); /* not pinned any more, but just used */
    CHECK_INT(stats(&f)->n_pins + stats(&f)->n_pinned, 0);
    CHECK_INT(n_evictable(&f), 6);
    store(&f, "third");
    CHECK_INT(expire(&f, 101), 6);
    CHECK_INT(peek(&f, "third"), 5);
    teardown(&f);
}

TEST(tree_pin, pins_end_in_the_order_of_their_times)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "a", 70);
    pin_text(&f, "b", 50);
    pin_text(&f, "c", 60);
    pin_text(&f, "d", 80);
    f.now_ns = 75;
    CHECK_INT(expire(&f, 0), 0);
    CHECK_INT(stats(&f)->n_pins, 1);
    const char *const order[] = {"b", "c", "a", "d"};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(peek(&f, order[i]), 1);
        CHECK_INT(evict(&f, 1), 1);
        CHECK_INT(peek(&f, order[i]), 0);
    }
    teardown(&f);
}

TEST(tree_pin, a_pin_on_the_same_node_prolongs)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "abc");
    CHECK(pin(&f, node, 100));
    CHECK(pin(&f, node, 200));
    CHECK(pin(&f, node, 150)); /* never shortens */
    CHECK_INT(stats(&f)->n_pins, 1);
    unlock(&f, node);
    f.now_ns = 199;
    expire(&f, 0);
    CHECK_INT(stats(&f)->n_pins, 1);
    f.now_ns = 200;
    expire(&f, 0);
    CHECK_INT(stats(&f)->n_pins, 0);
    teardown(&f);
}

TEST(tree_pin, paths_share_pins)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "shared:one", 100);
    pin_text(&f, "shared:two", 200);
    CHECK_INT(stats(&f)->n_pinned, 13); /* the common part once */
    f.now_ns = 150;
    CHECK_INT(expire(&f, 0), 0);
    CHECK_INT(stats(&f)->n_pinned, 10);
    CHECK_INT(evict(&f, 3), 3);
    CHECK_INT(peek(&f, "shared:one"), 7);
    CHECK_INT(peek(&f, "shared:two"), 10);
    CHECK_INT(evict(&f, 100), 10);
    CHECK_INT(stats(&f)->n_pins, 0);
    teardown(&f);
}

TEST(tree_pin, a_pin_above_a_pin)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "abcd", 100);
    pin_text(&f, "ab", 200);
    CHECK_INT(stats(&f)->n_pins, 2);
    CHECK_INT(stats(&f)->n_pinned, 4);
    CHECK_INT(evict(&f, 1), 1); /* ends the lower one; "c" is unpinned now */
    CHECK_INT(stats(&f)->n_pins, 1);
    CHECK_INT(stats(&f)->n_pinned, 2);
    store(&f, "x");
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(peek(&f, "abcd"), 2);
    CHECK_INT(peek(&f, "x"), 1);
    teardown(&f);
}

TEST(tree_pin, the_budget_is_kept)
{
    struct fixture f;
    setup(&f, 64, 32);                                        /* max_pinned: 32 */
    node_id a = hold(&f, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"); /* 32 */
    node_id b = hold(&f, "b");
    CHECK(pin(&f, a, 100));
    CHECK(!pin(&f, b, 100));
    CHECK(pin(&f, a, 200)); /* takes no more */
    CHECK_INT(stats(&f)->n_pinned, 32);
    CHECK_INT(stats(&f)->n_pins, 1);
    f.now_ns = 200;
    expire(&f, 0);
    CHECK(pin(&f, b, 300));
    CHECK(!pin(&f, a, 300));
    unlock(&f, a);
    unlock(&f, b);
    teardown(&f);
}

static bool pin_of(struct fixture *f, uint32_t tenant, const char *text, uint64_t until_ns)
{
    node_id node = hold_in(f, cache_namespace(tenant, -1, -1), text);
    bool pinned = pin(f, node, until_ns);
    unlock(f, node);
    return pinned;
}

TEST(tree_pin, a_tenant_gets_its_share_of_the_budget)
{
    struct fixture f;
    setup(&f, 200, 100);
    f.tree->max_pinned = 12;
    CHECK(pin_of(&f, 1, "aaaa", 100));
    CHECK(pin_of(&f, 1, "bbbb", 50));
    CHECK(pin_of(&f, 1, "cccc", 60));
    CHECK(!pin_of(&f, 1, "d", 100));      /* nobody else pins, but there is no more */
    CHECK(!pin_of(&f, 2, "0123456", 99)); /* more than half of it */
    CHECK_INT(stats(&f)->n_pinned, 12);
    CHECK(pin_of(&f, 2, "012", 99)); /* takes the pin of tenant 1 that is over first */
    CHECK_INT(stats(&f)->n_pinned, 11);
    CHECK(pin_of(&f, 2, "345", 98));
    CHECK_INT(stats(&f)->n_pins, 3); /* the first and two of tenant 2 */
    CHECK_INT(stats(&f)->n_pinned, 10);
    CHECK(!pin_of(&f, 2, "xyz", 99)); /* tenant 1 has less than its share */
    CHECK(pin_of(&f, 3, "wxyz", 99)); /* a third of it */
    CHECK_INT(stats(&f)->n_pins, 3);
    teardown(&f);
}

TEST(tree_pin, pages_of_several_pins_count_in_parts)
{
    struct fixture f;
    setup(&f, 200, 100);
    f.tree->max_pinned = 20;
    CHECK(pin_of(&f, 1, "sharedA", 100));
    CHECK(pin_of(&f, 1, "sharedB", 100));
    CHECK(pin_of(&f, 1, "sharedC", 100));
    CHECK(pin_of(&f, 2, "0123456789.", 100));
    CHECK_INT(stats(&f)->n_pinned, 20);
    CHECK(pin_of(&f, 1, "sharedD", 100)); /* the tenth page of tenant 1 */
    CHECK_INT(stats(&f)->n_pinned, 10);
    teardown(&f);
}

/* After a shared prompt, tokens say whose they are. */
TEST(tree_pin, tenants_in_one_namespace_have_shares_of_their_own)
{
    struct fixture f;
    setup(&f, 200, 100);
    f.tree->max_pinned = 12;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t tokens[4];
        uint32_t pages[4], tenant = i < 3 ? 1 : 2;
        for (uint32_t k = 0; k < 4; k++)
            tokens[k] = cache_token_owned(CACHE_TOKEN_TEXT, tenant, 10 * i + k);
        struct tree_match m = {0};
        enum match_kind kind;
        node_id node = prefix_tree_acquire(f.tree, 0, tokens, 4, f.now_ns, &m, &kind);
        struct page_run run = page_pool_take(&f.pool, 4, PAGE_NONE);
        CHECK_INT(run.count, 4);
        for (uint32_t k = 0; k < 4; k++)
            pages[k] = run.first + k;
        uint32_t claimed;
        node = prefix_tree_insert(f.tree, node, tokens, pages, NULL, 4, f.now_ns, &claimed);
        CHECK(pin(&f, node, 100 + i));
        unlock(&f, node);
    }
    CHECK_INT(stats(&f)->n_pins, 3);
    CHECK_INT(f.tree->pins[2].tenant, 2);
    teardown(&f);
}

TEST(tree_pin, a_tenant_gets_its_share_of_the_pins)
{
    struct fixture f;
    setup(&f, 1000, 1000);
    char text[3] = "";
    for (uint32_t n = 0; n < 256; n++) {
        text[0] = (char)(1 + n % 200);
        text[1] = (char)(1 + n / 200);
        CHECK(pin_of(&f, 1, text, 1000));
    }
    CHECK(!pin_of(&f, 1, "one more", 1000));
    text[1] = '\0';
    for (uint32_t n = 0; n < 128; n++) {
        text[0] = (char)(1 + n);
        CHECK(pin_of(&f, 2, text, 1000));
    }
    CHECK(!pin_of(&f, 2, "one more", 1000));
    CHECK_INT(stats(&f)->n_pins, 256);
    teardown(&f);
}

TEST(tree_pin, there_are_so_many_pins)
{
    struct fixture f;
    setup(&f, 1000, 1000);
    uint32_t n = 0;
    char text[3] = "";
    for (; n < 600; n++) {
        text[0] = (char)(1 + n % 200);
        text[1] = (char)(1 + n / 200);
        node_id node = hold(&f, text);
        bool pinned = pin(&f, node, 1000000 + n);
        unlock(&f, node);
        if (!pinned)
            break;
    }
    CHECK_INT(n, 256);
    CHECK_INT(stats(&f)->n_pins, 256);
    f.now_ns = 2000000;
    expire(&f, 0);
    CHECK_INT(stats(&f)->n_pins, 0);
    teardown(&f);
}

TEST(tree_pin, what_is_pinned_does_not_grow)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "prompt");
    CHECK(pin(&f, node, 100));
    node = insert(&f, node, "-answer");
    CHECK_INT(n_nodes(&f), 3);
    CHECK_INT(stats(&f)->n_pinned, 6);
    unlock(&f, node);
    CHECK_INT(evict(&f, 7), 7);
    CHECK_INT(peek(&f, "prompt-answer"), 6);
    teardown(&f);
}

TEST(tree_pin, a_root_needs_no_pin)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id root = acquire(&f, "x");
    CHECK(pin(&f, root, 100));
    CHECK_INT(stats(&f)->n_pins, 0);
    unlock(&f, root);
    CHECK_INT(n_nodes(&f), 0);
    CHECK_ABORTS(prefix_tree_pin(f.tree, root, 100));
    teardown(&f);
}

TEST(tree_pin, clear_takes_pinned_ones_too)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "abc", 1000);
    store(&f, "abd");
    CHECK_INT(prefix_tree_clear(f.tree, NULL, UINT32_MAX, 50), 4);
    CHECK_INT(stats(&f)->n_pins + stats(&f)->n_pinned + stats(&f)->n_nodes, 0);
    teardown(&f);
}

/* Without a spare node, pins end before anything that was just found is evicted. */
TEST(tree_pin, want_of_nodes_ends_pins)
{
    struct fixture f;
    setup(&f, 64, 2);
    pin_text(&f, "abcdef", 1000);
    node_id node = acquire(&f, "abcx");
    CHECK_INT(f.length, 3);
    CHECK_INT(stats(&f)->n_pins, 0);
    unlock(&f, node);
    pin_text(&f, "abc", 1000);
    node = acquire(&f, "");
    node = insert(&f, node, "abcdef"); /* through the pinned leaf and on */
    CHECK(node != NODE_NONE);
    CHECK_INT(f.claimed, 3);
    CHECK_INT(n_nodes(&f), 2);
    unlock(&f, node);
    teardown(&f);
}

/* ---- caps ---- */

TEST(tree_cap, a_namespace_evicts_its_own)
{
    struct fixture f;
    setup(&f, 64, 32);
    store_in(&f, 2, "old"); /* older than anything of namespace 1 */
    node_id root = acquire_in(&f, 1, "");
    prefix_tree_set_cap(f.tree, 1, 10);
    unlock(&f, root);
    store_in(&f, 1, "lost"); /* the cap went with the empty namespace */
    prefix_tree_set_cap(f.tree, 1, 10);
    store_in(&f, 1, "first");
    CHECK_INT(peek_in(&f, 1, "lost"), 4);
    store_in(&f, 1, "second");
    CHECK_INT(peek_in(&f, 1, "lost"), 0);
    CHECK_INT(peek_in(&f, 1, "first"), 4); /* a part of it was enough */
    CHECK_INT(peek_in(&f, 1, "second"), 6);
    CHECK_INT(peek_in(&f, 2, "old"), 3);
    CHECK_INT(stats(&f)->evicted_pages, 5);
    teardown(&f);
}

TEST(tree_cap, what_is_locked_goes_when_it_is_unlocked)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "abcdefghij");
    prefix_tree_set_cap(f.tree, 0, 4);
    check_laws(&f);
    CHECK_INT(peek(&f, "abcdefghij"), 10);
    node = insert(&f, node, "klm");
    CHECK_INT(peek(&f, "abcdefghijklm"), 13);
    unlock(&f, node);
    CHECK_INT(peek(&f, "abcdefghij"), 4);
    prefix_tree_set_cap(f.tree, 0, UINT32_MAX);
    store(&f, "abcdefghij");
    CHECK_INT(peek(&f, "abcdefghij"), 10);
    prefix_tree_set_cap(f.tree, 0, 2); /* at once */
    check_laws(&f);
    CHECK_INT(peek(&f, "abcdefghij"), 2);
    prefix_tree_set_cap(f.tree, 0, 0);
    CHECK_INT(n_nodes(&f), 0);
    prefix_tree_set_cap(f.tree, 7, 0); /* nobody is there */
    CHECK_INT(n_nodes(&f), 0);
    teardown(&f);
}

TEST(tree_cap, pinned_ones_go_last_here_too)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "pin", 1000);
    prefix_tree_set_cap(f.tree, 0, 5);
    store(&f, "ab");
    store(&f, "cd");
    CHECK_INT(peek(&f, "ab"), 0);
    CHECK_INT(peek(&f, "pin"), 3);
    node_id node = hold(&f, "efgh");
    CHECK_INT(peek(&f, "cd"), 0);
    CHECK_INT(peek(&f, "pin"), 1);
    CHECK_INT(stats(&f)->n_pins, 0);
    unlock(&f, node);
    teardown(&f);
}

/* ---- invalid namespaces ---- */

TEST(tree_invalid, nothing_is_found_any_more)
{
    struct fixture f;
    setup(&f, 64, 32);
    store_in(&f, 1, "abc");
    store_in(&f, 2, "abc");
    invalidate(&f, 3); /* nobody is there */
    invalidate(&f, 1);
    CHECK_INT(peek_in(&f, 1, "abc"), 0);
    CHECK_INT(peek_in(&f, 2, "abc"), 3);
    CHECK_INT(stats(&f)->n_invalid, 3);
    CHECK_INT(n_evictable(&f), 6);
    store_in(&f, 1, "abcd"); /* the same number anew */
    CHECK_INT(f.claimed, 4);
    CHECK_INT(stats(&f)->n_namespaces, 3);
    CHECK_INT(evict(&f, 3), 3); /* before what is older, but valid */
    CHECK_INT(stats(&f)->n_invalid, 0);
    CHECK_INT(stats(&f)->n_namespaces, 2);
    CHECK_INT(stats(&f)->cleared_pages, 3);
    CHECK_INT(stats(&f)->evicted_pages, 0);
    CHECK_INT(peek_in(&f, 1, "abcd"), 4);
    teardown(&f);
}

TEST(tree_invalid, what_is_locked_stays_usable_and_goes_when_it_is_unlocked)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id a = hold(&f, "abc"), root = acquire(&f, "x");
    invalidate(&f, 0);
    a = insert(&f, a, "def");
    check_pages(&f, a, "abcdef");
    CHECK_INT(stats(&f)->n_invalid, 6);
    CHECK_INT(peek(&f, "abcdef"), 0);
    CHECK(!pin(&f, a, 1000) && !pin(&f, root, 1000));
    root = insert(&f, root, "x");
    unlock(&f, root);
    CHECK_INT(expire(&f, 0), 1); /* whatever its age */
    unlock(&f, a);
    CHECK_INT(n_evictable(&f), 6);
    CHECK_INT(stats(&f)->n_invalid, 6);
    CHECK_INT(expire(&f, 0), 6);
    CHECK_INT(stats(&f)->n_nodes + stats(&f)->n_namespaces + stats(&f)->n_invalid, 0);
    CHECK_INT(stats(&f)->cleared_pages, 7);
    teardown(&f);
}

TEST(tree_invalid, all_namespaces_at_once)
{
    struct fixture f;
    setup(&f, 64, 32);
    for (uint64_t ns = 0; ns < 5; ns++)
        store_in(&f, ns, "abc");
    node_id node = hold(&f, "pinned");
    CHECK(pin(&f, node, 1000));
    invalidate(&f, 3);
    prefix_tree_invalidate(f.tree, NULL);
    check_laws(&f);
    CHECK_INT(stats(&f)->n_invalid, 21);
    CHECK_INT(stats(&f)->n_pins + stats(&f)->n_pinned, 0);
    for (uint64_t ns = 0; ns < 5; ns++)
        CHECK_INT(peek_in(&f, ns, "abc"), 0);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, UINT32_MAX, 50), 15);
    unlock(&f, node);
    CHECK_INT(prefix_tree_evict(f.tree, 1, 1, 50), 1);
    CHECK_INT(prefix_tree_expire(f.tree, 0, 1, 50), 5);
    prefix_tree_invalidate(f.tree, NULL); /* of an empty tree */
    teardown(&f);
}

TEST(tree_invalid, a_root_that_is_locked_alone)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id root = acquire(&f, "x");
    invalidate(&f, 0);
    CHECK_INT(n_nodes(&f), 1);
    node_id other = acquire(&f, "x");
    CHECK(other != root);
    unlock(&f, root);
    CHECK_INT(n_nodes(&f), 1);
    unlock(&f, other);
    CHECK_INT(n_nodes(&f), 0);
    teardown(&f);
}

/* ---- withdrawn positions ---- */

TEST(tree_withdraw, positions_leave_at_once)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "abcdef");
    withdraw(&f, node, 4);
    CHECK_INT(peek(&f, "abcdef"), 4);
    CHECK_INT(stats(&f)->n_invalid, 2);
    check_pages(&f, node, "abcdef"); /* its owner has it still */
    node = insert(&f, node, "gh");
    check_pages(&f, node, "abcdefgh");
    CHECK_INT(peek(&f, "abcdefgh"), 4);
    CHECK_INT(stats(&f)->n_invalid, 4);
    CHECK(!pin(&f, node, 1000));
    CHECK_INT(evict(&f, 100), 0);
    unlock(&f, node);
    CHECK_INT(stats(&f)->n_invalid, 0);
    CHECK_INT(f.pool.n_owned, 4);
    CHECK_INT(stats(&f)->cleared_pages, 4);
    CHECK_INT(n_nodes(&f), 2);
    teardown(&f);
}

TEST(tree_withdraw, another_may_come_in_its_place)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id bad = hold(&f, "abcdef");
    withdraw(&f, bad, 3);
    node_id good = hold(&f, "abcdef");
    CHECK_INT(f.length, 3);
    CHECK_INT(f.claimed, 3);
    CHECK_INT(peek(&f, "abcdef"), 6);
    /* Both are withdrawn from further up, and one of them for the second time. */
    withdraw(&f, good, 2);
    withdraw(&f, good, 2);
    withdraw(&f, bad, 4);
    CHECK_INT(peek(&f, "abcdef"), 2);
    CHECK_INT(stats(&f)->n_invalid, 7);
    check_pages(&f, bad, "abcdef");
    check_pages(&f, good, "abcdef");
    unlock(&f, bad);
    check_pages(&f, good, "abcdef");
    unlock(&f, good);
    CHECK_INT(f.pool.n_owned, 2);
    teardown(&f);
}

TEST(tree_withdraw, what_hangs_on_it_goes_too)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "ab1x");
    store(&f, "ab1y");
    store(&f, "ab2");
    store(&f, "ac");
    node_id reader = acquire(&f, "ab1y"), owner = acquire(&f, "ab");
    withdraw(&f, owner, 1);
    CHECK_INT(peek(&f, "ab1x"), 1);
    CHECK_INT(peek(&f, "ac"), 2);
    CHECK_INT(f.pool.n_owned, 5); /* a, c, and b1y for those who hold it */
    CHECK_INT(stats(&f)->n_invalid, 3);
    check_pages(&f, reader, "ab1y");
    check_pages(&f, owner, "ab");
    unlock(&f, owner);
    check_pages(&f, reader, "ab1y");
    unlock(&f, reader);
    CHECK_INT(f.pool.n_owned, 2);
    CHECK_INT(n_evictable(&f), 2);
    teardown(&f);
}

TEST(tree_withdraw, ends_pins)
{
    struct fixture f;
    setup(&f, 64, 32);
    pin_text(&f, "abcdef", 1000);
    pin_text(&f, "abcxyz", 1000);
    pin_text(&f, "ab", 1000);
    node_id node = hold(&f, "abcd");
    withdraw(&f, node, 3);
    CHECK_INT(stats(&f)->n_pins, 2);
    CHECK_INT(stats(&f)->n_pinned, 6);
    withdraw(&f, node, 2);
    CHECK_INT(stats(&f)->n_pins, 1);
    CHECK_INT(stats(&f)->n_pinned, 2);
    CHECK_INT(peek(&f, "abcxyz"), 2);
    unlock(&f, node);
    teardown(&f);
}

TEST(tree_withdraw, nothing_to_do)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "abc"), root = acquire(&f, "x");
    withdraw(&f, node, 3);
    withdraw(&f, node, 99);
    withdraw(&f, root, 0);
    CHECK_INT(peek(&f, "abc"), 3);
    CHECK_INT(stats(&f)->n_invalid, 0);
    withdraw(&f, node, 0);
    CHECK_INT(peek(&f, "abc"), 0);
    unlock(&f, node);
    unlock(&f, root);
    CHECK_INT(n_nodes(&f), 0);
    CHECK_ABORTS(prefix_tree_withdraw(f.tree, node, 0));
    teardown(&f);
}

TEST(tree_withdraw, without_a_node_the_whole_node_goes)
{
    struct fixture f;
    setup(&f, 64, 2);
    node_id node = hold(&f, "abcdef");
    withdraw(&f, node, 4);
    CHECK_INT(peek(&f, "abcdef"), 0);
    CHECK_INT(stats(&f)->n_invalid, 6);
    unlock(&f, node);
    CHECK_INT(n_nodes(&f), 0);
    teardown(&f);
}

TEST(tree_withdraw, in_an_invalid_namespace)
{
    struct fixture f;
    setup(&f, 64, 32);
    node_id node = hold(&f, "abcdef");
    invalidate(&f, 0);
    withdraw(&f, node, 3);
    CHECK_INT(stats(&f)->n_invalid, 6);
    unlock(&f, node);
    CHECK_INT(stats(&f)->n_invalid, 3);
    CHECK_INT(evict(&f, 100), 3);
    CHECK_INT(stats(&f)->n_invalid + stats(&f)->n_nodes, 0);
    /* And the other way round. */
    node = hold(&f, "abcdef");
    withdraw(&f, node, 3);
    invalidate(&f, 0);
    CHECK_INT(stats(&f)->n_invalid, 6);
    unlock(&f, node);
    CHECK_INT(evict(&f, 100), 3);
    teardown(&f);
}

/* ---- images ---- */

/* Capital letters are images of four positions: A is image 0. */
static uint32_t to_image_tokens(const char *text, uint64_t *tokens)
{
    uint32_t n = 0;
    for (; *text; text++) {
        if (*text >= 'A' && *text <= 'Z')
            for (uint32_t i = 0; i < 4; i++)
                tokens[n++] = cache_token_image((uint32_t)(*text - 'A'), i, 4);
        else
            tokens[n++] = cache_token_text(*text);
    }
    return n;
}

struct image_fixture {
    struct fixture f;
    struct image_table *images;
};

static void setup_images(struct image_fixture *x, uint32_t n_pages, uint32_t max_nodes)
{
    struct error err;
    x->f = (struct fixture){0};
    CHECK_INT(image_table_open(&x->images, 26, &err), 0);
    for (uint32_t i = 0; i < 26; i++) {
        struct image_key key = {.owner = i};
        CHECK_INT(image_table_intern(x->images, &key, &(struct image_shape){.length = 4}), i);
    }
    CHECK_INT(page_pool_open(&x->f.pool, n_pages, &err), 0);
    struct prefix_tree_options options = {
        .pool = &x->f.pool, .images = x->images, .max_nodes = max_nodes, .max_pinned = 32};
    CHECK_INT(prefix_tree_open(&x->f.tree, &options, &err), 0);
}

static void teardown_images(struct image_fixture *x)
{
    teardown(&x->f);
    for (uint32_t i = 0; i < 26; i++)
        image_table_release(x->images, i);
    CHECK_INT(image_table_count(x->images), 0); /* the tree let go of all of them */
    image_table_close(x->images);
}

static node_id hold_images(struct image_fixture *x, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_image_tokens(text, tokens), length, pages[MAX_TEXT], got = 0;
    node_id node = tree_acquire(x->f.tree, 0, tokens, n, ++x->f.now_ns, &length, &x->f.kind);
    CHECK(node != NODE_NONE);
    x->f.length = length;
    while (got < n - length) {
        struct page_run run = page_pool_take(&x->f.pool, n - length - got, PAGE_NONE);
        CHECK(run.count > 0);
        for (uint32_t i = 0; i < run.count; i++)
            pages[got++] = run.first + i;
    }
    node = prefix_tree_insert(x->f.tree, node, tokens + length, pages, NULL, got, ++x->f.now_ns,
                              &x->f.claimed);
    check_laws(&x->f);
    return node;
}

static void store_images(struct image_fixture *x, const char *text)
{
    unlock(&x->f, hold_images(x, text));
}

/* How much of the text, without its last `less` positions, is cached. */
static uint32_t peek_images(struct image_fixture *x, const char *text, uint32_t less)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_image_tokens(text, tokens);
    return prefix_tree_match(x->f.tree, 0, tokens, n - less).length;
}

TEST(tree_image, shared_up_to_and_through_it)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    store_images(&x, "look at A: what is it");
    CHECK_INT(peek_images(&x, "look at A: where is it", 0), 8 + 4 + 4);
    CHECK_INT(peek_images(&x, "look at B: what is it", 0), 8);
    store_images(&x, "look at A: where is it");
    CHECK_INT(x.f.length, 16);
    store_images(&x, "look at B: what is it");
    CHECK_INT(x.f.length, 8);
    teardown_images(&x);
}

TEST(tree_image, a_match_never_ends_inside)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    store_images(&x, "xAB");
    CHECK_INT(peek_images(&x, "xAB", 0), 9);
    for (uint32_t less = 1; less <= 4; less++)
        CHECK_INT(peek_images(&x, "xAB", less), 5);
    for (uint32_t less = 5; less <= 8; less++)
        CHECK_INT(peek_images(&x, "xAB", less), 1);
    CHECK_INT(peek_images(&x, "xAB", 9), 0);
    /* The same if a node begins with it, and if the root is above it. */
    store_images(&x, "xC");
    for (uint32_t less = 1; less <= 4; less++)
        CHECK_INT(peek_images(&x, "xC", less), 1);
    store_images(&x, "D");
    CHECK_INT(peek_images(&x, "D", 1), 0);
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_image_tokens("xAB", tokens), length;
    enum match_kind kind;
    node_id node = tree_acquire(x.f.tree, 0, tokens, n - 2, 100, &length, &kind);
    CHECK_INT(length, 5);
    CHECK_INT(kind, MATCH_COMMON);
    check_laws(&x.f);
    unlock(&x.f, node);
    teardown_images(&x);
}

TEST(tree_image, goes_whole)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    store_images(&x, "abAcdB");
    CHECK_INT(evict(&x.f, 1), 4);
    CHECK_INT(peek_images(&x, "abAcdB", 0), 8);
    CHECK_INT(evict(&x.f, 1), 1);
    CHECK_INT(evict(&x.f, 1), 1);
    CHECK_INT(evict(&x.f, 2), 4);
    CHECK_INT(peek_images(&x, "abAcdB", 0), 2);
    CHECK_INT(evict(&x.f, 9), 2);
    store_images(&x, "A"); /* nothing is before it: the node goes */
    CHECK_INT(evict(&x.f, 3), 4);
    CHECK_INT(n_nodes(&x.f), 0);
    teardown_images(&x);
}

TEST(tree_image, is_held_once_for_each_place)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    store_images(&x, "aA");
    store_images(&x, "bA");
    for (uint32_t i = 0; i < 26; i++)
        image_table_release(x.images, i); /* from here on the tree alone has it */
    CHECK_INT(image_table_count(x.images), 1);
    CHECK_INT(evict(&x.f, 5), 5);
    CHECK_INT(image_table_count(x.images), 1);
    CHECK_INT(evict(&x.f, 1), 4);
    CHECK_INT(image_table_count(x.images), 0);
    prefix_tree_close(x.f.tree);
    image_table_close(x.images);
    page_pool_close(&x.f.pool);
}

TEST(tree_image, is_let_go_when_the_tree_closes)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    hold_images(&x, "aAbAcB");
    teardown_images(&x);
}

TEST(tree_image, is_withdrawn_whole)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    node_id node = hold_images(&x, "abAcd");
    withdraw(&x.f, node, 7);
    CHECK_INT(peek_images(&x, "abAcd", 0), 7);
    withdraw(&x.f, node, 5); /* inside it */
    CHECK_INT(peek_images(&x, "abAcd", 0), 2);
    unlock(&x.f, node);
    node = hold_images(&x, "C");
    withdraw(&x.f, node, 2);
    CHECK_INT(peek_images(&x, "C", 0), 0);
    unlock(&x.f, node);
    teardown_images(&x);
}

TEST(tree_image, must_be_inserted_whole_and_in_order)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_image_tokens("aA", tokens), pages[5], claimed;
    node_id node = acquire(&x.f, "");
    for (uint32_t i = 0; i < n; i++)
        pages[i] = page_pool_take(&x.f.pool, 1, PAGE_NONE).first;
    CHECK_ABORTS(prefix_tree_insert(x.f.tree, node, tokens, pages, NULL, n - 1, 9, &claimed));
    CHECK_ABORTS(prefix_tree_insert(x.f.tree, node, tokens + 2, pages, NULL, n - 2, 9, &claimed));
    tokens[2] = tokens[3];
    CHECK_ABORTS(prefix_tree_insert(x.f.tree, node, tokens, pages, NULL, n, 9, &claimed));
    for (uint32_t i = 0; i < n; i++)
        page_pool_give(&x.f.pool, (struct page_run){pages[i], 1});
    unlock(&x.f, node);
    teardown_images(&x);
}

TEST(tree_image, is_counted_in_entries)
{
    struct image_fixture x;
    setup_images(&x, 64, 32);
    store_images(&x, "aAbBcA");
    struct tree_entry e;
    node_id cursor = 0;
    CHECK_INT(prefix_tree_list(x.f.tree, 0, &cursor, &e, 1, 9), 1);
    CHECK_INT(e.n_images, 3);
    CHECK_INT(e.length, 15);
    teardown_images(&x);
}
