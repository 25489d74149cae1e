/* The pool of pages: extents, the wish to continue a run, conservation. */
#include "cache/page_pool.h"

#include <stdlib.h>

#include "test.h"
#include "test_death.h"

static struct page_pool pool_make(uint32_t n_pages)
{
    struct page_pool pool;
    struct error err;
    CHECK_INT(page_pool_open(&pool, n_pages, &err), 0);
    CHECK(page_pool_check(&pool));
    return pool;
}

#define CHECK_RUN(run_, first_, count_)                                                            \
    do {                                                                                           \
        struct page_run run__ = (run_);                                                            \
        CHECK_INT(run__.first, first_);                                                            \
        CHECK_INT(run__.count, count_);                                                            \
    } while (0)

TEST(page_pool, takes_in_order_and_in_extents)
{
    struct page_pool pool = pool_make(200);
    CHECK_RUN(page_pool_take(&pool, 10, PAGE_NONE), 0, 10);
    CHECK_RUN(page_pool_take(&pool, 100, PAGE_NONE), 10, 100);
    CHECK_INT(pool.n_free, 90);
    CHECK_INT(pool.end, 110);
    CHECK_INT(page_pool_private(&pool), 110);
    CHECK(!page_pool_is_free(&pool, 109) && page_pool_is_free(&pool, 110));
    CHECK_RUN(page_pool_take(&pool, 1000, PAGE_NONE), 110, 90);
    CHECK_RUN(page_pool_take(&pool, 1, PAGE_NONE), 0, 0);
    CHECK(page_pool_check(&pool));
    page_pool_give(&pool, (struct page_run){0, 200});
    CHECK_INT(pool.n_free, 200);
    CHECK_RUN(page_pool_take(&pool, 10, PAGE_NONE), 0, 10);
    CHECK_INT(pool.end, 200); /* it does not sink again */
    CHECK(page_pool_check(&pool));
    page_pool_close(&pool);
}

TEST(page_pool, wants_nothing_gets_nothing)
{
    struct page_pool pool = pool_make(3);
    CHECK_RUN(page_pool_take(&pool, 0, PAGE_NONE), 0, 0);
    CHECK_INT(pool.n_free, 3);
    page_pool_give(&pool, (struct page_run){1, 0});
    CHECK_INT(pool.n_free, 3);
    page_pool_close(&pool);
}

TEST(page_pool, goes_on_after_a_page_when_it_can)
{
    struct page_pool pool = pool_make(128);
    CHECK_RUN(page_pool_take(&pool, 8, PAGE_NONE), 0, 8);
    CHECK_RUN(page_pool_take(&pool, 8, PAGE_NONE), 8, 8);
    page_pool_give(&pool, (struct page_run){8, 4});
    /* The wish is followed although the run after it is short. */
    CHECK_RUN(page_pool_take(&pool, 8, 7), 8, 4);
    /* The next page is taken: anywhere, as long as the run can be. */
    struct page_run run = page_pool_take(&pool, 8, 7);
    CHECK_INT(run.count, 8);
    CHECK(run.first >= 16);
    /* Nothing follows the last page. */
    CHECK_RUN(page_pool_take(&pool, 100, 23), 24, 100);
    CHECK_INT(page_pool_take(&pool, 2, 127).count, 2);
    CHECK(page_pool_check(&pool));
    page_pool_close(&pool);
}

TEST(page_pool, prefers_a_run_that_is_long_enough)
{
    struct page_pool pool = pool_make(256);
    CHECK_RUN(page_pool_take(&pool, 256, PAGE_NONE), 0, 256);
    page_pool_give(&pool, (struct page_run){3, 2});
    page_pool_give(&pool, (struct page_run){60, 70}); /* over two word borders */
    page_pool_give(&pool, (struct page_run){200, 9});
    CHECK_RUN(page_pool_take(&pool, 70, PAGE_NONE), 60, 70);
    /* None is long enough: the longest. */
    CHECK_RUN(page_pool_take(&pool, 70, PAGE_NONE), 200, 9);
    CHECK_RUN(page_pool_take(&pool, 70, PAGE_NONE), 3, 2);
    CHECK_INT(pool.n_free, 0);
    page_pool_close(&pool);
}

TEST(page_pool, what_was_given_back_last_is_taken_first)
{
    struct page_pool pool = pool_make(1000);
    page_pool_take(&pool, 10, PAGE_NONE);
    for (int i = 0; i < 500; i++) {
        struct page_run run = page_pool_take(&pool, 64, PAGE_NONE);
        CHECK_RUN(run, 10, 64);
        page_pool_give(&pool, run);
    }
    page_pool_close(&pool);
}

TEST(page_pool, searches_round_the_end)
{
    struct page_pool pool = pool_make(100);
    page_pool_take(&pool, 100, PAGE_NONE);
    page_pool_give(&pool, (struct page_run){90, 10});
    CHECK_RUN(page_pool_take(&pool, 5, PAGE_NONE), 90, 5);
    page_pool_give(&pool, (struct page_run){20, 6});
    CHECK_RUN(page_pool_take(&pool, 6, PAGE_NONE), 20, 6);
    CHECK_RUN(page_pool_take(&pool, 6, PAGE_NONE), 95, 5);
    CHECK_RUN(page_pool_take(&pool, 6, PAGE_NONE), 0, 0);
    page_pool_close(&pool);
}

TEST(page_pool, giving_twice_asserts)
{
    struct page_pool pool = pool_make(70);
    struct page_run run = page_pool_take(&pool, 66, PAGE_NONE);
    page_pool_give(&pool, run);
    page_pool_take(&pool, 65, PAGE_NONE);
    CHECK_ABORTS(page_pool_give(&pool, run));
    CHECK_ABORTS(page_pool_give(&pool, (struct page_run){60, 11}));
    page_pool_close(&pool);
}

TEST(page_pool, check_finds_lies)
{
    struct page_pool pool = pool_make(70);
    page_pool_take(&pool, 5, PAGE_NONE);
    pool.n_free--;
    CHECK_SAYS_NO(page_pool_check(&pool));
    pool.n_free++;
    pool.n_owned = 6;
    CHECK_SAYS_NO(page_pool_check(&pool));
    pool.n_owned = 5;
    CHECK(page_pool_check(&pool));
    pool.any_map[0] ^= 2;
    CHECK_SAYS_NO(page_pool_check(&pool));
    pool.any_map[0] ^= 2;
    CHECK(page_pool_check(&pool));
    pool.free_map[1] ^= (uint64_t)1 << 60 | 1;
    CHECK_SAYS_NO(page_pool_check(&pool));
    page_pool_close(&pool);
}

/* In a large, nearly full pool, the search skips taken pages. */
TEST(page_pool, finds_the_one_free_page_of_many)
{
    enum { MANY = 64 * 64 * 5 + 7 };
    static const uint32_t places[] = {0, 63, 64, 4095, 4096, 12345, 64 * 64 * 4, MANY - 1};
    struct page_pool pool = pool_make(MANY);
    CHECK_INT(page_pool_take(&pool, MANY, PAGE_NONE).count, MANY);
    for (size_t from = 0; from < sizeof places / sizeof *places; from++) {
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            page_pool_give(&pool, (struct page_run){places[i], 1});
            pool.cursor = places[from];
            struct page_run run = page_pool_take(&pool, 10, PAGE_NONE);
            CHECK_INT(run.first, places[i]);
            CHECK_INT(run.count, 1);
            CHECK(page_pool_check(&pool));
        }
    }
    CHECK_INT(page_pool_take(&pool, 1, PAGE_NONE).count, 0);
    page_pool_close(&pool);
}

/* Against an array of flags: every size round the words of the map. */
TEST(page_pool, random_against_flags)
{
    uint64_t state = 42;
    for (uint32_t n_pages = 1; n_pages < 200; n_pages += 3) {
        struct page_pool pool = pool_make(n_pages);
        bool taken[200] = {false};
        uint32_t n_taken = 0;
        for (int op = 0; op < 400; op++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t r = (uint32_t)(state >> 33);
            if (r & 1) {
                uint32_t after = r & 2 ? PAGE_NONE : (r >> 2) % n_pages, want = 1 + (r >> 12) % 90;
                bool wish = after != PAGE_NONE && after + 1 < n_pages && !taken[after + 1];
                struct page_run run = page_pool_take(&pool, want, after);
                CHECK(run.count <= want && run.first + run.count <= n_pages);
                CHECK((run.count == 0) == (n_taken == n_pages));
                CHECK(!wish || run.first == after + 1);
                /* A run ends at its size, at the end, or at a page that is not free. */
                CHECK(run.count == want || run.first + run.count == n_pages || run.count == 0 ||
                      taken[run.first + run.count]);
                for (uint32_t i = 0; i < run.count; i++, n_taken++) {
                    CHECK(!taken[run.first + i]);
                    taken[run.first + i] = true;
                }
            } else {
                uint32_t first = (r >> 2) % n_pages, count = 0, most = 1 + (r >> 12) % 90;
                while (first + count < n_pages && taken[first + count] && count < most)
                    taken[first + count++] = false;
                page_pool_give(&pool, (struct page_run){first, count});
                n_taken -= count;
            }
            CHECK_INT(pool.n_free, n_pages - n_taken);
            CHECK(page_pool_check(&pool));
            CHECK_INT(page_pool_is_free(&pool, r % n_pages), !taken[r % n_pages]);
        }
        page_pool_close(&pool);
    }
}

/* In a fragmented pool, only the first few runs are examined, however many there are. */
TEST(page_pool, searches_a_bounded_way)
{
    enum { PIECES = 64 };
    struct page_pool pool;
    struct error err;
    CHECK_INT(page_pool_open(&pool, 2 * PIECES + 20, &err), 0);
    CHECK_INT(page_pool_take(&pool, 2 * PIECES + 20, PAGE_NONE).count, 2 * PIECES + 20);
    for (uint32_t i = 0; i < PIECES; i++)
        page_pool_give(&pool, (struct page_run){2 * i, 1});
    page_pool_give(&pool, (struct page_run){2 * PIECES, 10}); /* the best one, too far away */
    struct page_run run = page_pool_take(&pool, 10, PAGE_NONE);
    CHECK_INT(run.count, 1);
    CHECK_INT(run.first, 0);
    run = page_pool_take(&pool, 10, PAGE_NONE); /* and now near enough */
    CHECK_INT(run.count, 10);
    CHECK_INT(run.first, 2 * PIECES);
    page_pool_close(&pool);
}
