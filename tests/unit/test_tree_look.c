/* Inspecting the tree: statistics, the list of entries, the outline, pressure events; and its
 * memory use. */
#include "cache/prefix_tree.h"

#include "cache/tree_node.h"

#include "test.h"
#include "tree_lookup.h"
#include "tree_fixture.h"

static const struct tree_stats *stats(const struct fixture *f)
{
    return prefix_tree_stats(f->tree);
}

TEST(tree_look, entries_are_counted_by_depth)
{
    struct fixture f;
    setup(&f, 64, 16);
    store(&f, "a");        /* 1 digit */
    store(&f, "abc");      /* 2 */
    store(&f, "abcdefgh"); /* 4 */
    store(&f, "abcdefgh"); /* again: no more */
    node_id node = hold(&f, "abcdefgh12");
    CHECK_INT(stats(&f)->n_entries, 3);
    unlock(&f, node);
    CHECK_INT(stats(&f)->n_entries, 4);
    CHECK_INT(stats(&f)->entries_by_depth[0], 0);
    CHECK_INT(stats(&f)->entries_by_depth[1], 1);
    CHECK_INT(stats(&f)->entries_by_depth[2], 1);
    CHECK_INT(stats(&f)->entries_by_depth[3], 0);
    CHECK_INT(stats(&f)->entries_by_depth[4], 2);
    CHECK_INT(evict(&f, 1), 1); /* the end goes, and with it the entry */
    CHECK_INT(stats(&f)->n_entries, 3);
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(stats(&f)->n_entries, 3);
    CHECK_INT(evict(&f, 1), 1);
    CHECK_INT(stats(&f)->entries_by_depth[4], 0);
    CHECK_INT(evict(&f, 100), 7);
    CHECK_INT(stats(&f)->n_entries, 0);
    CHECK_INT(stats(&f)->n_namespaces, 0);
    teardown(&f);
}

TEST(tree_look, the_deepest_entries_share_a_bucket)
{
    enum { N = (1 << 23) + 5 };
    struct page_pool pool;
    struct prefix_tree *tree;
    struct error err;
    uint64_t *tokens = calloc(N, sizeof *tokens);
    uint32_t *pages = calloc(N, sizeof *pages), claimed, length;
    enum match_kind kind;
    CHECK(tokens && pages);
    CHECK_INT(page_pool_open(&pool, N, &err), 0);
    struct prefix_tree_options options = {.pool = &pool, .max_nodes = 4};
    CHECK_INT(prefix_tree_open(&tree, &options, &err), 0);
    CHECK_INT(page_pool_take(&pool, N, PAGE_NONE).count, N);
    for (uint32_t i = 0; i < N; i++)
        pages[i] = i;
    node_id node = tree_acquire(tree, 0, NULL, 0, 1, &length, &kind);
    node = prefix_tree_insert(tree, node, tokens, pages, NULL, N, 2, &claimed);
    prefix_tree_unlock(tree, node, 3);
    CHECK_INT(prefix_tree_stats(tree)->entries_by_depth[TREE_DEPTH_BUCKETS - 1], 1);
    CHECK(prefix_tree_check(tree));
    prefix_tree_close(tree);
    page_pool_close(&pool);
    free(tokens);
    free(pages);
}

TEST(tree_look, calls_are_bounded_by_nodes)
{
    struct fixture f;
    setup(&f, 64, 16);
    for (const char *text = "a\0b\0c\0d\0e\0"; *text; text += 2)
        store(&f, text);
    CHECK_INT(prefix_tree_evict(f.tree, 5, 0, 50), 0);
    CHECK_INT(prefix_tree_evict(f.tree, 5, 2, 50), 2);
    CHECK_INT(prefix_tree_expire(f.tree, UINT64_MAX, 0, 50), 0);
    CHECK_INT(prefix_tree_expire(f.tree, UINT64_MAX, 1, 50), 1);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, 0, 50), 0);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, 1, 50), 1);
    check_laws(&f);
    CHECK_INT(peek(&f, "d"), 0);
    CHECK_INT(peek(&f, "e"), 1);
    CHECK_INT(stats(&f)->evicted_nodes, 2);
    CHECK_INT(stats(&f)->expired_nodes, 1);
    CHECK_INT(stats(&f)->cleared_nodes, 1);
    CHECK_INT(stats(&f)->cleared_pages, 1);
    teardown(&f);
}

TEST(tree_look, clear_takes_one_namespace_or_all)
{
    struct fixture f;
    setup(&f, 64, 16);
    store_in(&f, 1, "abc");
    store_in(&f, 1, "abd");
    store_in(&f, 2, "abc");
    node_id node = hold_in(&f, 2, "xyz");
    uint64_t one = 1, two = 2, three = 3;
    CHECK_INT(stats(&f)->n_namespaces, 2);
    CHECK_INT(prefix_tree_clear(f.tree, &three, UINT32_MAX, 50), 0);
    CHECK_INT(prefix_tree_clear(f.tree, &one, UINT32_MAX, 50), 4);
    check_laws(&f);
    CHECK_INT(stats(&f)->n_namespaces, 1);
    CHECK_INT(peek_in(&f, 2, "abc"), 3);
    CHECK_INT(prefix_tree_clear(f.tree, &two, UINT32_MAX, 50), 3);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, UINT32_MAX, 50), 0);
    unlock(&f, node);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, UINT32_MAX, 50), 3);
    CHECK_INT(stats(&f)->cleared_pages, 10);
    teardown(&f);
}

/* The least recently used node of several namespaces is evicted first, whichever it is in. */
TEST(tree_look, eviction_goes_round_the_namespaces)
{
    struct fixture f;
    setup(&f, 64, 40);
    for (uint64_t i = 0; i < 15; i++)
        store_in(&f, i * 7 % 5, (char[]){(char)('a' + i), 0});
    for (uint64_t i = 0; i < 15; i++) {
        CHECK_INT(peek_in(&f, i * 7 % 5, (char[]){(char)('a' + i), 0}), 1);
        CHECK_INT(evict(&f, 1), 1);
        CHECK_INT(peek_in(&f, i * 7 % 5, (char[]){(char)('a' + i), 0}), 0);
    }
    teardown(&f);
}

TEST(tree_look, lists_entries)
{
    struct fixture f;
    setup(&f, 64, 32);
    f.now_ns = (uint64_t)10 << 30;
    store_in(&f, 5, "system prompt:one");
    f.now_ns = (uint64_t)20 << 30;
    store_in(&f, 5, "system prompt:two");
    node_id held = hold_in(&f, 6, "x");
    uint32_t n_nodes_before = n_nodes(&f);
    struct tree_entry e[8];
    node_id cursor = 0;
    CHECK_INT(prefix_tree_list(f.tree, 0, &cursor, e, 8, 100), 3);
    CHECK_INT(cursor, 0);
    CHECK_INT(n_nodes(&f), n_nodes_before);
    CHECK(e[0].node < e[1].node && e[1].node < e[2].node);
    const struct tree_entry *one = &e[0], *two = &e[1], *x = &e[2];
    for (int i = 0; i < 3; i++) {
        if (e[i].depth == 17 && e[i].tokens[0] == cache_token_text('o'))
            one = &e[i];
        if (e[i].depth == 17 && e[i].tokens[0] == cache_token_text('t'))
            two = &e[i];
        if (e[i].ns == 6)
            x = &e[i];
    }
    CHECK_INT(one->length, 3);
    CHECK_INT(one->n_tokens, 3);
    CHECK_INT(one->hits, 0);
    CHECK_INT(one->ns, 5);
    CHECK(one->created_ns == (uint64_t)10 << 30);
    CHECK(one->used_ns > (uint64_t)10 << 30 && one->used_ns < two->used_ns);
    CHECK(two->created_ns == (uint64_t)20 << 30);
    CHECK_INT(two->parent, one->parent);
    CHECK_INT(x->locks, 1);
    CHECK_INT(x->node, held);
    CHECK_INT(x->n_children + x->n_images + x->pins, 0);

    /* In small steps it is the same list. */
    uint32_t n = 0;
    for (uint32_t calls = 0; calls == 0 || cursor; calls++) {
        struct tree_entry step[1];
        uint32_t got = prefix_tree_list(f.tree, 0, &cursor, step, 1, 2);
        CHECK(calls < 10 && n + got <= 3);
        if (got)
            CHECK_INT(step[0].node, e[n++].node);
    }
    CHECK_INT(n, 3);
    /* The place where one was unlocked before it grew further is an entry too, once a node ends
     * there. */
    store_in(&f, 7, "turn1");
    store_in(&f, 7, "turn1turn2");
    CHECK_INT(prefix_tree_list(f.tree, 0, &cursor, e, 8, 100), 4);
    store_in(&f, 7, "turn1other");
    CHECK_INT(prefix_tree_list(f.tree, 0, &cursor, e, 8, 100), 6);
    /* What became invalid is none. */
    prefix_tree_invalidate(f.tree, &(uint64_t){7});
    CHECK_INT(prefix_tree_list(f.tree, 0, &cursor, e, 8, 100), 3);
    cursor = 1000; /* past the end is the end */
    CHECK_INT(prefix_tree_list(f.tree, 0, &cursor, e, 8, 100), 0);
    CHECK_INT(cursor, 0);
    unlock(&f, held);
    teardown(&f);
}

TEST(tree_look, hits_count_what_was_found)
{
    struct fixture f;
    setup(&f, 64, 32);
    store(&f, "abcdef");
    look(&f, "abcdef");
    look(&f, "abcdef");
    look(&f, "abc"); /* split: the lower half keeps what it had */
    look(&f, "zzz");
    struct tree_entry e[4];
    CHECK_INT(prefix_tree_outline(f.tree, 9, e, 4), 3);
    CHECK_INT(e[0].hits, 3);
    CHECK_INT(e[1].hits, 3);
    CHECK_INT(e[1].depth, 3);
    CHECK_INT(e[2].hits, 2);
    CHECK_INT(e[2].depth, 6);
    teardown(&f);
}

TEST(tree_look, outlines_level_by_level)
{
    struct fixture f;
    setup(&f, 64, 32);
    struct tree_entry e[16];
    CHECK_INT(prefix_tree_outline(f.tree, 9, e, 16), 0);
    store_in(&f, 1, "aa1");
    store_in(&f, 1, "aa2x");
    store_in(&f, 1, "aa2y");
    store_in(&f, 1, "b");
    store_in(&f, 2, "c");
    look(&f, ""); /* namespace 0 comes and goes */
    acquire_in(&f, 1, "aa1");
    CHECK_INT(prefix_tree_outline(f.tree, 0, e, 16), 2);
    CHECK_INT(e[0].ns, 1);
    CHECK_INT(e[1].ns, 2);
    CHECK_INT(e[0].n_children, 2);
    CHECK_INT(e[0].length + e[0].depth + e[0].n_tokens + e[0].parent, 0);
    CHECK_INT(prefix_tree_outline(f.tree, 1, e, 16), 5);
    CHECK_INT(e[2].parent, e[0].node);
    CHECK(e[2].tokens[0] == cache_token_text('a')); /* used after b */
    CHECK(e[3].tokens[0] == cache_token_text('b'));
    CHECK_INT(e[4].parent, e[1].node);
    CHECK_INT(prefix_tree_outline(f.tree, 2, e, 16), 7);
    CHECK(e[5].tokens[0] == cache_token_text('1'));
    CHECK(e[6].tokens[0] == cache_token_text('2'));
    CHECK_INT(prefix_tree_outline(f.tree, 100, e, 16), 9);
    CHECK(e[7].tokens[0] == cache_token_text('y'));
    CHECK(e[8].tokens[0] == cache_token_text('x'));
    for (uint32_t max = 0; max < 9; max++)
        CHECK_INT(prefix_tree_outline(f.tree, 100, e, max), max);
    check_laws(&f);
    prefix_tree_close(f.tree);
    page_pool_close(&f.pool);
}

TEST(tree_look, many_children_are_counted_up_to_a_limit)
{
    struct fixture f;
    setup(&f, 1000, 1000);
    struct tree_entry e;
    for (uint32_t i = 1; i <= ENTRY_MAX_CHILDREN + 5; i++) {
        uint64_t token = i;
        uint32_t page = page_pool_take(&f.pool, 1, PAGE_NONE).first, length, claimed;
        enum match_kind kind;
        node_id node = tree_acquire(f.tree, 0, &token, 1, ++f.now_ns, &length, &kind);
        node = prefix_tree_insert(f.tree, node, &token, &page, NULL, 1, ++f.now_ns, &claimed);
        prefix_tree_unlock(f.tree, node, ++f.now_ns);
        CHECK_INT(prefix_tree_outline(f.tree, 0, &e, 1), 1);
        CHECK_INT(e.n_children, i < ENTRY_MAX_CHILDREN ? i : ENTRY_MAX_CHILDREN);
    }
    teardown(&f);
}

TEST(tree_look, pressure_events)
{
    struct fixture f;
    setup(&f, 64, 32);
    struct pressure_event e[PRESSURE_EVENTS + 1];
    CHECK_INT(prefix_tree_events(f.tree, e, 4), 0);
    CHECK_INT(prefix_tree_evict(f.tree, 4, UINT32_MAX, 7), 0); /* took nothing: no event */
    CHECK_INT(prefix_tree_events(f.tree, e, 4), 0);
    f.now_ns = 100;
    store(&f, "aa");
    look(&f, "aa");
    store(&f, "bbbb");
    CHECK_INT(prefix_tree_evict(f.tree, 3, UINT32_MAX, 777), 3);
    CHECK_INT(prefix_tree_events(f.tree, e, 4), 1);
    CHECK_INT(e[0].at_ns, 777);
    CHECK_INT(e[0].wanted, 3);
    CHECK_INT(e[0].freed, 3);
    CHECK_INT(e[0].n_nodes, 2);
    CHECK_INT(e[0].nodes[0].depth, 2);
    CHECK_INT(e[0].nodes[0].freed, 2);
    CHECK_INT(e[0].nodes[0].hits, 1);
    CHECK_INT(e[0].nodes[0].used_ns, 105);
    CHECK_INT(e[0].nodes[1].depth, 4);
    CHECK_INT(e[0].nodes[1].freed, 1);
    CHECK_INT(e[0].nodes[1].hits, 0);
    uint64_t digest = e[0].nodes[0].digest;
    /* The same sequence has the same digest again; the ring keeps the newest. */
    store(&f, "aa");
    CHECK_INT(evict(&f, 3), 3);
    for (int i = 0; i < PRESSURE_EVENTS + 3; i++) {
        CHECK_INT(prefix_tree_events(f.tree, e, PRESSURE_EVENTS + 1),
                  i + 2 < PRESSURE_EVENTS ? i + 2 : PRESSURE_EVENTS);
        store(&f, "aa");
        CHECK_INT(prefix_tree_evict(f.tree, 9, UINT32_MAX, (uint64_t)i), 2);
        CHECK_INT(prefix_tree_events(f.tree, e, 1), 1);
        CHECK_INT(e[0].at_ns, i);
        CHECK_INT(e[0].wanted, 9);
        CHECK(e[0].nodes[0].digest == digest);
    }
    store_in(&f, 1, "aa"); /* not the same: another namespace */
    for (char c = 'a'; c < 'h'; c++)
        store(&f, (char[]){c, 0});
    CHECK_INT(evict(&f, 8), 8);
    CHECK_INT(prefix_tree_events(f.tree, e, 1), 1);
    CHECK(e[0].nodes[0].digest != digest);
    CHECK_INT(e[0].n_nodes, 7); /* more than are kept one by one */
    teardown(&f);
}

/* What docs/design.md says about memory: 24 bytes and three bits a page, 64 bytes a node and two to
 * four edge slots of 16. */
TEST(tree_look, memory_for_a_node_and_a_page)
{
    struct page_pool pool;
    struct edge_table edges;
    struct error err;
    CHECK_INT(sizeof(struct tree_node), 64);
    CHECK_INT(sizeof(struct edge), 16);
    CHECK_INT(sizeof(struct tree_space), 64);
    CHECK_INT(sizeof *pool.token + sizeof *pool.digest + sizeof *pool.next + sizeof *pool.prev, 24);
    for (uint32_t max_nodes = 4; max_nodes < 3000000; max_nodes = max_nodes * 3 / 2) {
        CHECK_INT(edge_table_open(&edges, max_nodes, &err), 0);
        CHECK(edges.mask + 1 >= 2 * (uint64_t)max_nodes &&
              edges.mask + 1 <= 4 * (uint64_t)max_nodes);
        edge_table_close(&edges);
    }
}
