/* How a budget is divided between two groups of KV. */
#include "engine/kv_sizes.h"

#include "test.h"

enum { CHUNK = 512 };

#define GIB ((uint64_t)1 << 30)

/* Gemma 3 27B, f16: 62 layers, 52 of them with a window of 1024; 16 KV heads of 128. */
static const struct kv_group gemma[KV_MAX_GROUPS] = {{KV_FULL, 10, 10 * 2 * 16 * 128 * 2},
                                                     {KV_WINDOW, 52, 52 * 2 * 16 * 128 * 2, 1024}};

static const struct kv_tables none;

static uint64_t bytes_of(const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_pages,
                         uint32_t n_window)
{
    return (uint64_t)n_pages * groups[0].page_bytes + (uint64_t)n_window * groups[1].page_bytes;
}

/* The pages of group 0 and, if it exists, of group 1. */
static void split(uint64_t budget, const struct kv_group *groups, const struct kv_tables *tables,
                  uint32_t max_seqs, uint32_t n_wanted, uint32_t *n, uint32_t *n_window)
{
    uint32_t n_pages[KV_MAX_GROUPS] = {7, 7, 7};
    struct kv_use use = {max_seqs, CHUNK, n_wanted};
    kv_split(budget, groups, groups[1].window ? 2 : 1, tables, &use, n_pages);
    *n = n_pages[0];
    *n_window = n_pages[1];
    CHECK_INT(n_pages[2], 0);
}

static uint32_t window_pages(uint32_t n_positions, uint32_t window)
{
    return kv_side_pages(&(struct kv_group){.kind = KV_WINDOW, .window = window}, n_positions,
                         &(struct kv_use){16, CHUNK, 0});
}

static uint64_t table_bytes(const struct kv_tables *tables, uint32_t n, uint32_t n_window)
{
    return kv_table_bytes(tables, (const uint32_t[KV_MAX_GROUPS]){n, n_window});
}

TEST(kv_sizes, one_group_gets_all)
{
    const struct kv_group groups[KV_MAX_GROUPS] = {{KV_FULL, 30, 23040}};
    uint32_t n, n_window = 9;
    split(GIB, groups, &none, 16, 0, &n, &n_window);
    CHECK_INT(n, GIB / 23040);
    CHECK_INT(n_window, 0);
    split(23039, groups, &none, 16, 0, &n, &n_window);
    CHECK_INT(n, 0);
    split(UINT64_MAX, groups, &none, 16, 0, &n, &n_window);
    CHECK_INT(n, UINT32_MAX);
}

/* Any budget is used up but not exceeded, and no group starves. */
TEST(kv_sizes, budgets_of_all_sizes)
{
    for (uint32_t window = 1; window <= 8192; window *= 2) {
        for (uint64_t budget = 1; budget < 4096 * GIB; budget = budget * 3 / 2 + 1) {
            for (uint32_t max_seqs = 1; max_seqs <= 64; max_seqs *= 4) {
                struct kv_group groups[KV_MAX_GROUPS] = {gemma[0], gemma[1]};
                uint32_t n, n_window;
                groups[1].window = window;
                split(budget, groups, &none, max_seqs, 0, &n, &n_window);
                CHECK(bytes_of(groups, n, n_window) <= budget);
                CHECK(bytes_of(groups, n + 1, n_window + 1) > budget);
                CHECK(n_window <= n);
                uint64_t one = window + CHUNK, all = one * max_seqs;
                uint64_t same = budget / bytes_of(groups, 1, 1);
                CHECK(n_window >= (one < same ? one : same));
                uint64_t half = budget / 2 / groups[1].page_bytes;
                if (same > one)
                    CHECK(n_window >= (all < half ? all : half) || n_window == same);
                if (n_window > one && n_window > all)
                    CHECK(n_window <= n / 4 + 1);
            }
        }
    }
}

TEST(kv_sizes, layers_that_all_have_windows)
{
    const struct kv_group groups[KV_MAX_GROUPS] = {{KV_FULL}, {KV_WINDOW, 32, 131072, 4096}};
    const struct kv_tables tables = {{200, 25}};
    uint32_t n, n_window;
    split(GIB, groups, &tables, 16, 0, &n, &n_window);
    CHECK_INT(n_window, GIB / (131072 + 25 + 4 * 200));
    CHECK(n >= 4 * n_window && n < 4 * n_window + 1000);
    CHECK_INT(window_pages(1 << 20, 4096), 1 << 18);
    CHECK_INT(window_pages(1 << 17, 4096), 16 * (4096 + CHUNK));
    CHECK_INT(window_pages(1 << 14, 4096), 1 << 14);
}

/* Tables come out of the budget too. In a large model they are negligible; in a tiny one, which
 * would have millions of pages, they are most of it. */
TEST(kv_sizes, tables_are_paid_for)
{
    const struct kv_tables tables = {{260, 25}};
    struct kv_group tiny[KV_MAX_GROUPS] = {{KV_FULL, 2, 256}};
    uint32_t n, n_window, without;
    split(GIB, tiny, &tables, 16, 0, &n, &n_window);
    CHECK_INT(n, GIB / (256 + 260));
    CHECK_INT(n_window, 0);
    for (uint64_t budget = 1; budget < 4096 * GIB; budget = budget * 3 / 2 + 1) {
        tiny[1] = (struct kv_group){KV_WINDOW, 10, 1280, 512};
        split(budget, tiny, &tables, 16, 0, &n, &n_window);
        CHECK(bytes_of(tiny, n, n_window) + table_bytes(&tables, n, n_window) <= budget);
        CHECK(n == UINT32_MAX ||
              bytes_of(tiny, n + 1, n_window + 1) + table_bytes(&tables, n + 1, n_window + 1) >
                  budget);
    }
    split(64 * GIB, gemma, &tables, 16, 0, &n, &n_window);
    split(64 * GIB, gemma, &none, 16, 0, &without, &n_window);
    CHECK(n < without && n > without - without / 100);
}

/* A sequence no longer than the window needs all its window pages. So if there are fewer of them
 * than the window, there are no more positions either, however much is left over. */
TEST(kv_sizes, what_is_left_over_makes_no_sequence_too_long)
{
    for (uint64_t budget = bytes_of(gemma, 2, 2); budget < 600 * bytes_of(gemma, 1, 1);
         budget += gemma[0].page_bytes) {
        uint32_t n, n_window;
        split(budget, gemma, &none, 16, 0, &n, &n_window);
        CHECK_INT(n, n_window);
    }
}

/* The budget that `radish info` names for a length is enough for that length. */
TEST(kv_sizes, the_length_that_is_asked_for_goes_first)
{
    const struct kv_tables tables = {{260, 25}};
    uint32_t n, n_window;
    for (uint32_t n_tokens = 100; n_tokens < 1 << 20; n_tokens *= 3) {
        uint64_t running = kv_running_pages(&gemma[1], 1, n_tokens, CHUNK);
        uint64_t budget = bytes_of(gemma, n_tokens, (uint32_t)running) +
                          table_bytes(&tables, n_tokens, (uint32_t)running);
        split(budget, gemma, &tables, 1, n_tokens, &n, &n_window);
        CHECK_INT(n, n_tokens);
        CHECK_INT(n_window, running);
        split(budget, gemma, &tables, 16, 0, &n, &n_window);
        CHECK(n <= n_tokens);
        split(2 * budget, gemma, &tables, 4, n_tokens, &n, &n_window);
        CHECK(n >= n_tokens && n_window > running);
    }
}

static void show(uint32_t n_tokens)
{
    struct kv_bytes b = kv_conversation_bytes(gemma, 2, n_tokens);
    printf("kv_sizes: %u tokens of Gemma 3 27B (f16) take %.2f GiB in the cache with one group, "
           "%.2f GiB with two: %.0f and %.0f bytes a token, %.1f times less\n",
           n_tokens, (double)b.most / GIB, (double)b.least / GIB, (double)b.most / n_tokens,
           (double)b.least / n_tokens, (double)b.most / (double)b.least);
}

TEST(kv_sizes, gemma_3_27b)
{
    struct kv_bytes b = kv_conversation_bytes(gemma, 2, 8192);
    CHECK_INT(b.most, (uint64_t)8192 * 507904);
    CHECK_INT(b.least, (uint64_t)8192 * 163840 + (uint64_t)1023 * 851968 - (uint64_t)8192 * 81920 -
                           (uint64_t)1023 * 425984);
    CHECK(b.most > 3 * b.least);
    b = kv_conversation_bytes(gemma, 2, 100); /* shorter than the window: nothing is saved */
    CHECK_INT(b.most, b.least);
    show(8192);
    show(32768);
}

/* ---- with a recurrent state ---- */

/* Like Qwen3-Next: 12 full layers of 2 KV heads of 256, and a state of 72 MiB. */
static const struct kv_group hybrid[KV_MAX_GROUPS] = {
    {KV_FULL, 12, 12 * 2 * 2 * 256 * 2},
    {.kind = KV_STATE, .n_layers = 36, .page_bytes = 72 << 20}};

static const struct kv_use sixteen = {16, CHUNK, 0};

TEST(kv_sizes, a_state_gets_a_quarter_of_the_bytes)
{
    const struct kv_tables tables = {{260, 25}};
    uint32_t n[KV_MAX_GROUPS];
    kv_split(64 * GIB, hybrid, 2, &tables, &sixteen, n);
    CHECK_INT(n[1], 16 * GIB / ((72 << 20) + 25));
    CHECK_INT(n[0], (64 * GIB - n[1] * ((uint64_t)(72 << 20) + 25)) / (24576 + 260));
    CHECK_INT(n[2], 0);
    for (uint64_t budget = 1; budget < 4096 * GIB; budget = budget * 3 / 2 + 1) {
        kv_split(budget, hybrid, 2, &tables, &sixteen, n);
        CHECK(n[1] <= n[0] && kv_all_bytes(hybrid, &tables, n) <= budget);
        CHECK(n[1] >= 2 || budget / 2 < (uint64_t)(72 << 20) + 25 + 24576 + 260);
    }
    struct kv_bytes b = kv_conversation_bytes(hybrid, 2, 1000);
    CHECK_INT(b.least, (uint64_t)1000 * 24576 + (72 << 20));
    CHECK_INT(b.most, (uint64_t)1000 * 24576 + 2 * (72 << 20));
    CHECK_INT(kv_running_pages(&hybrid[1], 3, 1000, CHUNK), 6);
    CHECK_INT(kv_running_pages(&hybrid[0], 3, 1000, CHUNK), 3000);
}

/* Tiny states, and nothing else that keeps KV: positions take no more than their tables. */
TEST(kv_sizes, a_model_of_states_alone)
{
    const struct kv_group groups[KV_MAX_GROUPS] = {
        {KV_FULL}, {.kind = KV_STATE, .n_layers = 24, .page_bytes = 1 << 20}};
    const struct kv_tables tables = {{200, 25}};
    uint32_t n[KV_MAX_GROUPS];
    kv_split(GIB, groups, 2, &tables, &sixteen, n);
    CHECK_INT(n[1], 3 * GIB / 4 / ((1 << 20) + 25));
    CHECK(n[0] > 1000 * n[1]);
    const struct kv_group tiny[KV_MAX_GROUPS] = {{KV_FULL, 1, 64},
                                                 {.kind = KV_STATE, .page_bytes = 4}};
    kv_split(GIB, tiny, 2, &none, &sixteen, n);
    CHECK(n[1] <= n[0]); /* never more copies than positions */
    const struct kv_group windowed[KV_MAX_GROUPS] = {
        {KV_FULL}, gemma[1], {.kind = KV_STATE, .page_bytes = 1 << 20}};
    kv_split(GIB, windowed, 3, &tables, &sixteen, n);
    CHECK_INT(n[2], GIB / 4 / (1 << 20)); /* windows keep KV, too */
    CHECK_INT(kv_side_pages(&groups[1], 1 << 20, &sixteen), 1 << 12);
    CHECK_INT(kv_side_pages(&groups[1], 1 << 10, &sixteen), 32);
    CHECK_INT(kv_side_pages(&groups[1], 10, &sixteen), 10);
}

/* With windows as well, the state gets its share first and the rest is divided as usual. */
TEST(kv_sizes, windows_and_a_state)
{
    const struct kv_group groups[KV_MAX_GROUPS] = {
        gemma[0], gemma[1], {.kind = KV_STATE, .page_bytes = 50 << 20}};
    uint32_t n[KV_MAX_GROUPS], without[KV_MAX_GROUPS];
    for (uint64_t budget = GIB; budget < 512 * GIB; budget *= 2) {
        kv_split(budget, groups, 3, &none, &sixteen, n);
        CHECK_INT(n[2], budget / 4 / (50 << 20));
        kv_split(budget - n[2] * (uint64_t)(50 << 20), gemma, 2, &none, &sixteen, without);
        CHECK_INT(n[0], without[0]);
        CHECK_INT(n[1], without[1]);
    }
    const struct kv_group two[KV_MAX_GROUPS] = {
        gemma[0], gemma[1], {.kind = KV_WINDOW, .page_bytes = 1000, .window = 128}};
    kv_split(GIB, two, 3, &none, &sixteen, n);
    CHECK_INT(n[1], n[2]);
    CHECK(kv_all_bytes(two, &none, n) <= GIB && n[1] >= 1024 + CHUNK);
}
