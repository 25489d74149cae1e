/* The cache's tables when there is no memory for them: each open says so, keeps nothing, and works
 * when memory is back. The address sanitizer sees what is left behind. */
#include "cache/edge_table.h"
#include "cache/image_table.h"
#include "cache/page_pool.h"
#include "cache/prefix_tree.h"

#include "test.h"
#include "test_memory.h"
#include "tree_lookup.h"

/* Makes the first, the second, the third ... allocation of an open fail until none is left to fail;
 * returns how many there were. */
static uint32_t count_needed(int (*open)(struct error *err))
{
    for (uint32_t n = 0;; n++) {
        struct error err = {0};
        memory_ends_after(n);
        int result = open(&err);
        memory_is_back();
        if (result == 0)
            return n;
        CHECK_INT(result, -1);
        CHECK_INT(err.code, ERROR_MEMORY);
        CHECK(err.message[0] != 0);
    }
}

static int open_pool(struct error *err)
{
    struct page_pool pool;
    if (page_pool_open(&pool, 1000, err))
        return -1;
    page_pool_close(&pool);
    return 0;
}

static int open_edges(struct error *err)
{
    struct edge_table edges;
    if (edge_table_open(&edges, 1000, err))
        return -1;
    edge_table_close(&edges);
    return 0;
}

static int open_images(struct error *err)
{
    struct image_table *images;
    if (image_table_open(&images, 1000, err))
        return -1;
    image_table_close(images);
    return 0;
}

static struct page_pool tree_pool;

static int open_tree(struct error *err)
{
    struct prefix_tree *tree;
    struct prefix_tree_options options = {.pool = &tree_pool,
                                          .max_nodes = 100,
                                          .max_pinned = 100,
                                          .sides = {{&tree_pool, 3}, {&tree_pool, 1}},
                                          .n_sides = TREE_MAX_SIDES};
    if (prefix_tree_open(&tree, &options, err))
        return -1;
    uint64_t token = cache_token_text(1);
    uint32_t length;
    enum match_kind kind;
    node_id node = tree_acquire(tree, 0, &token, 1, 1, &length, &kind); /* it has what it needs */
    prefix_tree_unlock(tree, node, 1);
    prefix_tree_close(tree);
    return 0;
}

TEST(cache_memory, runs_out_at_every_allocation)
{
    struct error err;
    CHECK(count_needed(open_pool) > 3);
    CHECK(count_needed(open_edges) > 0);
    CHECK(count_needed(open_images) > 1);
    CHECK_INT(page_pool_open(&tree_pool, 1000, &err), 0);
    CHECK(count_needed(open_tree) > 4);
    CHECK_INT(tree_pool.n_free, 1000);
    page_pool_close(&tree_pool);
}

/* The bytes that --cache-size counts for a page besides its KV are what its tables take, and hardly
 * more. */
TEST(cache_memory, tables_take_what_is_counted)
{
    enum { PAGES = 1 << 18, WINDOW_PAGES = PAGES / 4, REST = 2 << 20 };
    for (uint32_t n_pages = PAGES / 2 + 1; n_pages <= PAGES; n_pages += PAGES / 2 - 1) {
        for (uint32_t n_sides = 0; n_sides <= TREE_MAX_SIDES; n_sides++) {
            struct page_pool pool, window_pool;
            struct prefix_tree *tree;
            struct error err;
            uint64_t before = memory_taken();
            CHECK_INT(page_pool_open(&pool, n_pages, &err), 0);
            CHECK_INT(page_pool_open(&window_pool, WINDOW_PAGES, &err), 0);
            struct prefix_tree_options options = {.pool = &pool,
                                                  .max_nodes = n_pages,
                                                  .sides = {{&window_pool, 511}, {&window_pool, 1}},
                                                  .n_sides = n_sides};
            CHECK_INT(prefix_tree_open(&tree, &options, &err), 0);
            uint64_t taken = memory_taken() - before, page = page_pool_page_bytes();
            uint64_t counted = n_pages * (page + prefix_tree_page_bytes(n_sides)) +
                               WINDOW_PAGES * page;
            CHECK(taken <= counted + REST);
            /* The table of edges has two to four slots for each. */
            CHECK(taken >= counted - (uint64_t)n_pages * 34);
            prefix_tree_close(tree);
            page_pool_close(&window_pool);
            page_pool_close(&pool);
        }
    }
}

TEST(cache_memory, closing_nothing_is_fine)
{
    prefix_tree_close(NULL);
    image_table_close(NULL);
}
