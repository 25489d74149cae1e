/* The prefix tree, case by case: match, insert, lock, evict, expire. */
#include "cache/prefix_tree.h"

#include "cache/tree_node.h"

#include "test.h"
#include "test_death.h"
#include "tree_fixture.h"

TEST(prefix_tree, empty)
{
    struct fixture f;
    setup(&f, 64, 16);
    CHECK_INT(peek(&f, "abc"), 0);
    CHECK_INT(n_nodes(&f), 0);
    node_id node = acquire(&f, "abc");
    CHECK(node != NODE_NONE);
    CHECK_INT(f.length, 0);
    CHECK_INT(f.kind, MATCH_MISS);
    CHECK_INT(prefix_tree_pages(f.tree, node, NULL, 0), 0);
    CHECK_INT(n_nodes(&f), 1);
    unlock(&f, node);
    CHECK_INT(n_nodes(&f), 0);
    CHECK_INT(evict(&f, 10), 0);
    CHECK_INT(expire(&f, UINT64_MAX), 0);
    teardown(&f);
}

TEST(prefix_tree, no_tokens_match_nothing)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abc");
    CHECK_INT(look(&f, ""), MATCH_MISS);
    node_id node = hold(&f, "abc");
    CHECK_INT(insert(&f, node, ""), node);
    CHECK_INT(f.claimed, 0);
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, exact)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "hello");
    CHECK_INT(f.claimed, 5);
    CHECK_INT(f.pool.n_owned, 5);
    CHECK_INT(peek(&f, "hello"), 5);
    node_id node = acquire(&f, "hello");
    CHECK_INT(f.length, 5);
    CHECK_INT(f.kind, MATCH_PREFIX);
    check_pages(&f, node, "hello");
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, stored_sequence_is_a_prefix)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "hello");
    CHECK_INT(peek(&f, "hello world"), 5);
    CHECK_INT(look(&f, "hello world"), MATCH_PREFIX);
    CHECK_INT(n_nodes(&f), 2);
    teardown(&f);
}

TEST(prefix_tree, supersequence)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "hello world");
    node_id node = acquire(&f, "hello");
    CHECK_INT(f.length, 5);
    CHECK_INT(f.kind, MATCH_SUPERSEQUENCE);
    check_pages(&f, node, "hello");
    unlock(&f, node);
    CHECK_INT(peek(&f, "hello world"), 11);
    teardown(&f);
}

TEST(prefix_tree, divergence)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "You are a chef");
    CHECK_INT(look(&f, "You are a pirate"), MATCH_COMMON);
    CHECK_INT(f.length, 10);
    store(&f, "You are a pirate");
    CHECK_INT(f.claimed, 6);
    CHECK_INT(f.pool.n_owned, 20);
    CHECK_INT(n_nodes(&f), 4);
    CHECK_INT(peek(&f, "You are a chef"), 14);
    CHECK_INT(peek(&f, "You are a pirate"), 16);
    CHECK_INT(peek(&f, "You are a "), 10);
    CHECK_INT(peek(&f, "You were"), 4);
    CHECK_INT(peek(&f, "x"), 0);
    teardown(&f);
}

TEST(prefix_tree, says_what_kind_of_match_it_is)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdef");                             /* miss */
    CHECK_INT(look(&f, "abcdef"), MATCH_PREFIX);     /* exactly it */
    CHECK_INT(look(&f, "abcdefg"), MATCH_PREFIX);    /* and more */
    CHECK_INT(look(&f, "abc"), MATCH_SUPERSEQUENCE); /* used up inside */
    CHECK_INT(look(&f, "abx"), MATCH_COMMON);
    CHECK_INT(look(&f, "x"), MATCH_MISS);
    teardown(&f);
}

TEST(prefix_tree, a_stored_end_is_kept_when_the_sequence_grows_on)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "turn1");
    store(&f, "turn1turn2");
    CHECK_INT(n_nodes(&f), 2); /* one node, grown in place */
    CHECK_INT(look(&f, "turn1other"), MATCH_PREFIX);
    CHECK_INT(look(&f, "turn1"), MATCH_PREFIX); /* split by now */
    CHECK_INT(look(&f, "turn1turn2"), MATCH_PREFIX);
    CHECK_INT(n_nodes(&f), 2); /* and one again */
    CHECK_INT(look(&f, "turn1"), MATCH_PREFIX);
    CHECK_INT(look(&f, "turn"), MATCH_SUPERSEQUENCE);
    teardown(&f);
}

TEST(prefix_tree, the_ends_of_chunks_are_not_stored_ends)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id node = hold(&f, "abc");
    node = insert(&f, node, "def");
    unlock(&f, node);
    CHECK_INT(look(&f, "abcx"), MATCH_COMMON);
    CHECK_INT(look(&f, "abc"), MATCH_SUPERSEQUENCE);
    teardown(&f);
}

TEST(prefix_tree, an_end_does_not_outlive_its_page)
{
    struct fixture f;
    setup(&f, 6, 16);
    store(&f, "abc");
    CHECK_INT(evict(&f, 3), 3);
    store(&f, "uvwxyz"); /* its third page is the one where "abc" ended */
    CHECK_INT(look(&f, "uvw"), MATCH_SUPERSEQUENCE);
    CHECK_INT(look(&f, "uvwxyy"), MATCH_COMMON);
    teardown(&f);
}

TEST(prefix_tree, split_keeps_handles_valid)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id whole = hold(&f, "abcdefgh");
    node_id half = acquire(&f, "abcd");
    node_id quarter = acquire(&f, "ab");
    CHECK(whole != half && half != quarter && whole != quarter);
    CHECK_INT(prefix_tree_depth(f.tree, whole), 8);
    CHECK_INT(prefix_tree_depth(f.tree, half), 4);
    CHECK_INT(prefix_tree_depth(f.tree, quarter), 2);
    check_pages(&f, whole, "abcdefgh");
    check_pages(&f, half, "abcd");
    check_pages(&f, quarter, "ab");
    CHECK_INT(evict(&f, 100), 0);
    unlock(&f, half);
    check_pages(&f, whole, "abcdefgh");
    check_pages(&f, quarter, "ab");
    unlock(&f, quarter);
    unlock(&f, whole);
    CHECK_INT(n_nodes(&f), 2);
    CHECK_INT(n_evictable(&f), 8);
    teardown(&f);
}

TEST(prefix_tree, insert_twice_claims_nothing)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id first = acquire(&f, "abcdef"), second = acquire(&f, "abcdef");
    CHECK_INT(first, second);
    first = insert(&f, first, "abcdef");
    CHECK_INT(f.claimed, 6);
    second = insert(&f, second, "abcdef");
    CHECK_INT(f.claimed, 0);
    CHECK_INT(first, second);
    CHECK_INT(f.pool.n_owned, 6);
    unlock(&f, first);
    CHECK_INT(n_evictable(&f), 0);
    unlock(&f, second);
    CHECK_INT(n_evictable(&f), 6);
    teardown(&f);
}

TEST(prefix_tree, insert_partially_present)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id a = acquire(&f, "abcdef"), b = acquire(&f, "abcxyz");
    a = insert(&f, a, "abcdef");
    b = insert(&f, b, "abcxyz");
    CHECK_INT(f.claimed, 3);
    check_pages(&f, a, "abcdef");
    check_pages(&f, b, "abcxyz");
    CHECK_INT(f.pool.n_owned, 9);
    /* Through a branch and beyond its end, which nobody locks any more: it grows in place. */
    unlock(&f, a);
    uint32_t before = n_nodes(&f);
    node_id c = acquire(&f, "");
    c = insert(&f, c, "abcdefghi");
    CHECK_INT(f.claimed, 3);
    CHECK_INT(n_nodes(&f), before);
    check_pages(&f, c, "abcdefghi");
    unlock(&f, b);
    unlock(&f, c);
    teardown(&f);
}

TEST(prefix_tree, insert_ends_inside_what_is_there)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id slow = acquire(&f, "abcdef");
    store(&f, "abcdef");
    slow = insert(&f, slow, "abc");
    CHECK_INT(f.claimed, 0);
    check_pages(&f, slow, "abc");
    CHECK_INT(n_evictable(&f), 3);
    slow = insert(&f, slow, "def");
    CHECK_INT(f.claimed, 0);
    check_pages(&f, slow, "abcdef");
    unlock(&f, slow);
    CHECK_INT(n_nodes(&f), 2); /* the split is undone */
    teardown(&f);
}

TEST(prefix_tree, long_text_is_one_node)
{
    struct fixture f;
    setup(&f, 256, 16);
    char text[151];
    for (int i = 0; i < 150; i++)
        text[i] = (char)('a' + i % 26);
    text[150] = '\0';
    store(&f, text);
    CHECK_INT(n_nodes(&f), 2); /* and the root */
    CHECK_INT(peek(&f, text), 150);
    node_id node = acquire(&f, text);
    struct page_run run;
    CHECK_INT(prefix_tree_pages(f.tree, node, &run, 1), 1);
    CHECK_INT(run.count, 150);
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, chunked_prefill_is_one_node)
{
    struct fixture f;
    setup(&f, 256, 16);
    node_id node = hold(&f, "abcdefgh"), first = node;
    for (int i = 0; i < 10; i++) {
        node = insert(&f, node, "ijklmnop");
        CHECK_INT(node, first);
        CHECK_INT(f.claimed, 8);
    }
    CHECK_INT(n_nodes(&f), 2);
    node = insert(&f, node, "answer");
    unlock(&f, node);
    CHECK_INT(n_nodes(&f), 2);
    teardown(&f);
}

TEST(prefix_tree, a_shared_leaf_does_not_grow)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id a = hold(&f, "prompt"), b = acquire(&f, "prompt");
    CHECK_INT(a, b);
    a = insert(&f, a, "-one");
    CHECK(a != b);
    CHECK_INT(prefix_tree_depth(f.tree, b), 6);
    b = insert(&f, b, "-two");
    check_pages(&f, a, "prompt-one");
    check_pages(&f, b, "prompt-two");
    CHECK_INT(n_nodes(&f), 4); /* the root, "prompt-", "one", "two" */
    unlock(&f, a);
    unlock(&f, b);
    teardown(&f);
}

TEST(prefix_tree, chunks_behind_a_passing_reader_become_one_node)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id a = hold(&f, "chunk1"), reader = acquire(&f, "chunk1");
    a = insert(&f, a, "chunk2"); /* the reader's handle ends between them */
    CHECK_INT(n_nodes(&f), 3);
    unlock(&f, reader);
    a = insert(&f, a, "chunk3");
    CHECK_INT(n_nodes(&f), 2);
    check_pages(&f, a, "chunk1chunk2chunk3");
    unlock(&f, a);
    teardown(&f);
}

TEST(prefix_tree, lock_protects_the_path)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdef");
    store(&f, "abcxyz");
    CHECK_INT(n_evictable(&f), 9);
    node_id node = acquire(&f, "abcdef");
    CHECK_INT(n_evictable(&f), 3);
    prefix_tree_lock(f.tree, node);
    CHECK_INT(evict(&f, 100), 3);
    CHECK_INT(peek(&f, "abcdef"), 6);
    CHECK_INT(peek(&f, "abcxyz"), 3);
    unlock(&f, node);
    CHECK_INT(evict(&f, 100), 0);
    CHECK_INT(expire(&f, UINT64_MAX), 0);
    unlock(&f, node);
    CHECK_INT(evict(&f, 100), 6);
    CHECK_INT(n_nodes(&f), 0);
    teardown(&f);
}

TEST(prefix_tree, a_handle_above_protects_nothing_below)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdef");
    node_id node = acquire(&f, "abc");
    CHECK_INT(n_evictable(&f), 3);
    CHECK_INT(evict(&f, 100), 3);
    CHECK_INT(peek(&f, "abcdef"), 3);
    check_pages(&f, node, "abc");
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, underflow_asserts)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdef");
    node_id node = acquire(&f, "abc"), other = acquire(&f, "abcdef");
    unlock(&f, other);
    CHECK_ABORTS(prefix_tree_unlock(f.tree, other, 99));
    CHECK_ABORTS(prefix_tree_lock(f.tree, other));
    CHECK_ABORTS(prefix_tree_unlock(f.tree, NODE_NONE, 99));
    CHECK_ABORTS(prefix_tree_unlock(f.tree, 12, 99));
    unlock(&f, node);
    CHECK_ABORTS(prefix_tree_unlock(f.tree, node, 99));
    uint64_t token = 1;
    uint32_t page = 50, claimed;
    CHECK_ABORTS(prefix_tree_insert(f.tree, node, &token, &page, NULL, 1, 99, &claimed));
    teardown(&f);
}

TEST(prefix_tree, more_locks_than_can_be_counted_assert)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id node = hold(&f, "abc");
    for (uint32_t i = 1; i < UINT16_MAX; i++)
        prefix_tree_lock(f.tree, node);
    check_laws(&f);
    CHECK_ABORTS(prefix_tree_lock(f.tree, node));
    for (uint32_t i = 1; i < UINT16_MAX; i++)
        prefix_tree_unlock(f.tree, node, 9);
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, inserting_a_free_page_asserts)
{
    struct fixture f;
    setup(&f, 64, 16);
    node_id node = acquire(&f, "");
    uint64_t token = 1;
    uint32_t claimed;
    struct page_run run = page_pool_take(&f.pool, 1, PAGE_NONE);
    uint32_t page = run.first + 1;
    CHECK_ABORTS(prefix_tree_insert(f.tree, node, &token, &page, NULL, 1, 99, &claimed));
    page_pool_give(&f.pool, run);
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, cascading_lru)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "aa1");
    store(&f, "aa2");
    store(&f, "bb1");
    look(&f, "aa1");
    /* Oldest first: 2 of aa2, then bb1, then 1 of aa1 and aa. */
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(peek(&f, "aa2"), 2);
    CHECK_INT(peek(&f, "bb1"), 3);
    CHECK_INT(evict(&f, 3), 3);
    CHECK_INT(peek(&f, "bb1"), 0);
    CHECK_INT(peek(&f, "aa1"), 3);
    CHECK_INT(evict(&f, 2), 2);
    CHECK_INT(peek(&f, "aa1"), 1);
    CHECK_INT(evict(&f, 9), 1);
    CHECK_INT(n_nodes(&f), 0);
    CHECK_INT(prefix_tree_stats(f.tree)->evicted_pages, 7);
    teardown(&f);
}

TEST(prefix_tree, parents_follow_children)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "system:one");
    store(&f, "system:two");
    store(&f, "other");
    /* Children may be old; a parent is as young as its youngest use. */
    look(&f, "system:");
    CHECK_INT(evict(&f, 6 + 5), 11);
    CHECK_INT(peek(&f, "system:one"), 7);
    CHECK_INT(peek(&f, "other"), 0);
    CHECK_INT(evict(&f, 100), 7);
    teardown(&f);
}

TEST(prefix_tree, eviction_makes_single_chains_one_node)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abc1");
    store(&f, "abc2");
    CHECK_INT(n_nodes(&f), 4);
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(n_nodes(&f), 2);
    CHECK_INT(peek(&f, "abc2"), 4);
    check_laws(&f);
    /* Not if the upper part is younger: it must outlive the lower. */
    store(&f, "abc3");
    look(&f, "abc");
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(n_nodes(&f), 3);
    store(&f, "z");
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(peek(&f, "abc3"), 3);
    teardown(&f);
}

TEST(prefix_tree, evict_trims_from_the_end)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdefghij");
    CHECK_INT(evict(&f, 3), 3);
    CHECK_INT(peek(&f, "abcdefghij"), 7);
    CHECK_INT(f.pool.n_owned, 7);
    CHECK_INT(n_evictable(&f), 7);
    CHECK_INT(look(&f, "abcdefghij"), MATCH_PREFIX); /* all that is stored of it */
    store(&f, "abcdefghij");
    CHECK_INT(f.claimed, 3);
    CHECK_INT(n_nodes(&f), 2);
    teardown(&f);
}

TEST(prefix_tree, expiry)
{
    struct fixture f;
    setup(&f, 64, 16);
    f.now_ns = 100;
    store(&f, "old");
    f.now_ns = 200;
    store(&f, "olive");
    f.now_ns = 300;
    CHECK_INT(expire(&f, 100), 0);
    CHECK_INT(expire(&f, 150), 1); /* the d; "ol" was used later */
    check_laws(&f);
    CHECK_INT(peek(&f, "old"), 2);
    CHECK_INT(peek(&f, "olive"), 5);
    node_id node = acquire(&f, "olive");
    CHECK_INT(expire(&f, 1000), 0);
    unlock(&f, node);
    CHECK_INT(expire(&f, f.now_ns), 0);
    CHECK_INT(expire(&f, f.now_ns + 1), 5);
    CHECK_INT(n_nodes(&f), 0);
    CHECK_INT(prefix_tree_stats(f.tree)->expired_pages, 6);
    CHECK_INT(prefix_tree_stats(f.tree)->evicted_pages, 0);
    teardown(&f);
}

TEST(prefix_tree, a_clock_that_goes_back_stands_still)
{
    struct fixture f;
    setup(&f, 64, 16);
    f.now_ns = 1000;
    store(&f, "first");
    f.now_ns = 10;
    store(&f, "second");
    CHECK_INT(expire(&f, 1000), 0);
    CHECK_INT(evict(&f, 5), 5);
    CHECK_INT(peek(&f, "first"), 0);
    CHECK_INT(peek(&f, "second"), 6);
    teardown(&f);
}

TEST(prefix_tree, peek_creates_nothing)
{
    struct fixture f;
    setup(&f, 64, 16);
    store_in(&f, 1, "abc");
    uint32_t before = n_nodes(&f);
    struct tree_stats stats = *prefix_tree_stats(f.tree);
    CHECK_INT(peek_in(&f, 2, "abc"), 0);
    CHECK_INT(peek_in(&f, 1, "ab"), 2);
    CHECK_INT(peek_in(&f, 1, "abx"), 2);
    CHECK_INT(n_nodes(&f), before);
    struct tree_stats after = *prefix_tree_stats(f.tree);
    CHECK(memcmp(&stats, &after, sizeof stats) == 0);
    teardown(&f);
}

TEST(prefix_tree, namespaces_are_isolated_and_roots_disappear)
{
    struct fixture f;
    setup(&f, 64, 16);
    store_in(&f, 7, "abc");
    store_in(&f, UINT64_MAX, "abcd");
    CHECK_INT(peek_in(&f, 7, "abcd"), 3);
    CHECK_INT(peek_in(&f, UINT64_MAX, "abcd"), 4);
    CHECK_INT(peek_in(&f, 0, "abcd"), 0);
    CHECK_INT(n_nodes(&f), 4);
    CHECK_INT(evict(&f, 3), 3);
    CHECK_INT(n_nodes(&f), 2);
    CHECK_INT(peek_in(&f, 7, "abcd"), 0);
    node_id root = acquire_in(&f, 7, "x");
    CHECK_INT(n_nodes(&f), 3);
    CHECK_INT(evict(&f, 4), 4);
    CHECK_INT(n_nodes(&f), 1);
    unlock(&f, root);
    CHECK_INT(n_nodes(&f), 0);
    teardown(&f);
}

TEST(prefix_tree, a_root_is_no_token)
{
    struct fixture f;
    setup(&f, 64, 16);
    /* Namespace numbers and tokens share the edge table, not their meaning. */
    store_in(&f, 'a', "abc");
    store_in(&f, 1, "a");
    CHECK_INT(peek_in(&f, 'a', "abc"), 3);
    CHECK_INT(peek_in(&f, 'b', "abc"), 0);
    CHECK_INT(peek_in(&f, 1, "abc"), 1);
    teardown(&f);
}

TEST(prefix_tree, pages_in_many_runs)
{
    struct fixture f;
    setup(&f, 64, 16);
    struct page_run all = page_pool_take(&f.pool, 64, PAGE_NONE);
    CHECK_INT(all.count, 64);
    for (uint32_t page = 0; page < 20; page += 2)
        page_pool_give(&f.pool, (struct page_run){page, 1});
    node_id node = hold(&f, "abcdefghij");
    struct page_run runs[10];
    CHECK_INT(prefix_tree_pages(f.tree, node, NULL, 0), 10);
    CHECK_INT(prefix_tree_pages(f.tree, node, runs, 3), 10);
    CHECK_INT(prefix_tree_pages(f.tree, node, runs, 10), 10);
    for (uint32_t i = 0; i < 10; i++)
        CHECK_INT(f.pool.token[runs[i].first], cache_token_text('a' + (int)i));
    check_pages(&f, node, "abcdefghij");
    unlock(&f, node);
    for (uint32_t page = 0; page < 64; page++)
        if (page >= 20 || page % 2)
            page_pool_give(&f.pool, (struct page_run){page, 1});
    teardown(&f);
}

TEST(prefix_tree, node_exhaustion_evicts)
{
    struct fixture f;
    setup(&f, 64, 4);
    store(&f, "aa");
    store(&f, "bb");
    store(&f, "cc");
    CHECK_INT(n_nodes(&f), 4);
    store(&f, "dd"); /* the oldest goes */
    CHECK_INT(n_nodes(&f), 4);
    CHECK_INT(peek(&f, "aa"), 0);
    CHECK_INT(peek(&f, "bb"), 2);
    CHECK_INT(prefix_tree_stats(f.tree)->evicted_pages, 2);
    store_in(&f, 9, "xx"); /* a root and a leaf: two more */
    CHECK_INT(peek(&f, "bb"), 0);
    CHECK_INT(peek(&f, "cc"), 0);
    CHECK_INT(peek(&f, "dd"), 2);
    CHECK_INT(peek_in(&f, 9, "xx"), 2);
    teardown(&f);
}

TEST(prefix_tree, node_exhaustion_cuts_instead_of_splitting)
{
    struct fixture f;
    setup(&f, 64, 2);
    store(&f, "abcdef");
    /* No node for a split, and the node to split is the oldest: its end is evicted. */
    node_id node = acquire(&f, "abcx");
    CHECK(node != NODE_NONE);
    CHECK_INT(f.length, 3);
    CHECK_INT(f.pool.n_owned, 3);
    node = insert(&f, node, "x");
    CHECK_INT(f.claimed, 1);
    check_pages(&f, node, "abcx");
    unlock(&f, node);
    /* The same when an insert meets it. */
    node = acquire(&f, "");
    node = insert(&f, node, "abyz");
    CHECK_INT(f.claimed, 2);
    check_pages(&f, node, "abyz");
    CHECK_INT(n_nodes(&f), 2);
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, no_nodes_left)
{
    struct fixture f;
    setup(&f, 64, 2);
    node_id node = hold(&f, "abcdef"), root = acquire(&f, "x");
    CHECK_INT(acquire(&f, "abc"), NODE_NONE);       /* cannot split */
    CHECK_INT(acquire_in(&f, 5, "abc"), NODE_NONE); /* no root */
    CHECK_INT(insert(&f, root, "xyz"), NODE_NONE);
    CHECK_INT(f.claimed, 0);
    CHECK_INT(insert(&f, root, "abcxyz"), NODE_NONE);
    CHECK_INT(insert(&f, root, "abc"), NODE_NONE);
    /* Nothing changed: both handles live on. */
    check_pages(&f, node, "abcdef");
    node_id again = acquire(&f, "abcdef");
    CHECK_INT(again, node);
    unlock(&f, again);
    unlock(&f, root);
    node = insert(&f, node, "ghi");
    check_pages(&f, node, "abcdefghi");
    unlock(&f, node);
    teardown(&f);
}

TEST(prefix_tree, pool_exhaustion)
{
    struct fixture f;
    setup(&f, 8, 16);
    store(&f, "abcde");
    node_id held = hold(&f, "xyz");
    CHECK_INT(f.pool.n_free, 0);
    CHECK_INT(page_pool_take(&f.pool, 1, PAGE_NONE).count, 0);
    /* As much as possible, not as much as requested. */
    CHECK_INT(n_evictable(&f), 5);
    CHECK_INT(evict(&f, 6), 5);
    CHECK_INT(evict(&f, 6), 0);
    held = insert(&f, held, "12345");
    CHECK_INT(f.pool.n_free, 0);
    check_pages(&f, held, "xyz12345");
    unlock(&f, held);
    teardown(&f);
}

TEST(prefix_tree, closing_gives_locked_pages_back)
{
    struct fixture f;
    setup(&f, 32, 16);
    hold(&f, "abcdef");
    hold(&f, "abcxyz");
    teardown(&f);
}

/* Tests every law by breaking it: changes a word of the tree and restores it. */
#define LIE(word, value)                                                                           \
    do {                                                                                           \
        __typeof__(word) truth_ = (word);                                                          \
        (word) = (value);                                                                          \
        CHECK_SAYS_NO(prefix_tree_check(t));                                                       \
        (word) = truth_;                                                                           \
    } while (0)

TEST(prefix_tree, check_finds_lies)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "abcdef");
    store(&f, "abcxyz");
    store_in(&f, 1, "other");
    node_id held = hold(&f, "abcdef"), node = held;
    CHECK(prefix_tree_pin(f.tree, held, 1000));
    struct prefix_tree *t = f.tree;
    struct tree_node *leaf = &t->nodes[node], *up = &t->nodes[leaf->parent];
    struct tree_space *space = &t->spaces[leaf->space];
    node_id xyz = leaf->next_sibling;
    CHECK(prefix_tree_check(t));
    LIE(f.pool.n_owned, f.pool.n_owned + 1);
    LIE(f.pool.token[leaf->first], 1); /* an edge that leads nowhere */
    LIE(f.pool.next[leaf->first], leaf->first);
    LIE(f.pool.next[leaf->first], PAGE_NONE);
    LIE(f.pool.next[leaf->last], 0);
    LIE(f.pool.prev[leaf->last], leaf->last);
    LIE(f.pool.digest[leaf->last], 0);
    LIE(f.pool.free_map[0], f.pool.free_map[0] ^ 2); /* an owned page that is free */
    LIE(leaf->first, 64);
    LIE(leaf->last, leaf->first);
    LIE(leaf->depth, leaf->depth + 1);
    LIE(leaf->depth, leaf->depth - 1);
    LIE(leaf->locks, 0);
    LIE(leaf->pins, 0);
    LIE(leaf->space, 0);
    LIE(leaf->stamp, t->now + 1);
    LIE(up->stamp, 0);
    LIE(up->locks, 0);
    LIE(up->pins, 2);
    LIE(leaf->parent, xyz);
    LIE(t->nodes[xyz].prev_sibling, NODE_NONE);
    LIE(t->nodes[xyz].stamp, leaf->stamp);
    LIE(t->nodes[xyz].older, node);
    LIE(space->root, node);
    LIE(space->n_pages, 0);
    LIE(space->n_gone, 1);
    LIE(space->cap, 2);
    LIE(space->is_valid, false);
    LIE(space->lists[UNPINNED].oldest, NODE_NONE);
    LIE(space->lists[UNPINNED].newest, NODE_NONE);
    LIE(space->lists[UNPINNED].at, 5);
    LIE(t->nodes[space->root].depth, 1);
    LIE(t->heaps[UNPINNED].count, 1);
    LIE(t->heaps[PINNED].count, 1);
    LIE(t->pins[0].node, xyz);
    LIE(t->pins[0].node, 99);
    LIE(t->pins[0].node, space->root);
    LIE(t->max_pinned, 1);
    LIE(t->n_made, t->n_made - 1);
    LIE(t->n_made, t->n_made + 1);
    LIE(t->unused, node);
    LIE(t->end_map[0], 0);
    LIE(t->n_images, 1);
    LIE(t->n_invalid_spaces, 1);
    LIE(t->stats.n_nodes, 1);
    LIE(t->stats.n_namespaces, 1);
    LIE(t->stats.n_evictable, 0);
    LIE(t->stats.n_pinned, 5);
    LIE(t->stats.n_pins, 0);
    LIE(t->stats.n_invalid, 1);
    LIE(t->stats.n_entries, 1);
    LIE(t->stats.entries_by_depth[3], 9);
    uint32_t first = t->heaps[UNPINNED].items[0], second = t->heaps[UNPINNED].items[1];
    t->heaps[UNPINNED].items[0] = second;
    t->heaps[UNPINNED].items[1] = first;
    CHECK_SAYS_NO(prefix_tree_check(t));
    t->spaces[second].lists[UNPINNED].at = 0;
    t->spaces[first].lists[UNPINNED].at = 1;
    CHECK_SAYS_NO(prefix_tree_check(t)); /* the younger one on top */
    t->heaps[UNPINNED].items[0] = first;
    t->heaps[UNPINNED].items[1] = second;
    t->spaces[first].lists[UNPINNED].at = 0;
    t->spaces[second].lists[UNPINNED].at = 1;
    leaf->is_run = !leaf->is_run;
    CHECK(!leaf->is_run && prefix_tree_check(t)); /* slower, but true */
    leaf->is_run = true;
    leaf->cut = true;
    CHECK_SAYS_NO(prefix_tree_check(t));
    leaf->gone = true;
    CHECK_SAYS_NO(prefix_tree_check(t));
    leaf->cut = leaf->gone = false;
    unlock(&f, held);
    teardown(&f);
}

TEST(prefix_tree, runs_are_told_from_chains)
{
    struct fixture f;
    setup(&f, 64, 16);
    CHECK_INT(page_pool_take(&f.pool, 8, PAGE_NONE).count, 8);
    uint64_t tokens[4];
    uint32_t pages[4] = {4, 5, 7, 6}, claimed, n = to_tokens("abcd", tokens);
    node_id node = acquire(&f, "");
    node = prefix_tree_insert(f.tree, node, tokens, pages, NULL, 2, 9, &claimed);
    CHECK(f.tree->nodes[node].is_run);
    node = prefix_tree_insert(f.tree, node, tokens + 2, pages + 2, NULL, n - 2, 9, &claimed);
    CHECK(!f.tree->nodes[node].is_run);
    page_pool_give(&f.pool, (struct page_run){0, 4});
    check_laws(&f);
    check_pages(&f, node, "abcd");
    f.tree->nodes[node].is_run = true;
    CHECK_SAYS_NO(prefix_tree_check(f.tree));
    f.tree->nodes[node].is_run = false;
    unlock(&f, node);
    CHECK_INT(look(&f, "abcx"), MATCH_COMMON);
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(peek(&f, "abcd"), 3);
    CHECK_INT(evict(&f, 9), 3);
    teardown(&f);
}

/* There is nothing to keep, so the node grows on. */
TEST(prefix_tree, without_sides_no_end_is_kept)
{
    struct fixture f;
    setup(&f, 32, 8);
    node_id node = hold(&f, "abc");
    prefix_tree_keep_end(f.tree, node);
    node = insert(&f, node, "def");
    CHECK_INT(n_nodes(&f), 2);
    unlock(&f, node);
    teardown(&f);
}
