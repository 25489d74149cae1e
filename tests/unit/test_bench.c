/* `radish bench`: the work that a row always needs, and the speed that the machine allows. The
 * figures are for a machine and a model that can be computed by hand. */
#include "test.h"

#include "cli/bench.h"

static const struct engine_info info = {
    .n_groups = 1,
    .groups = {{.n_layers = 1, .page_bytes = 10}},
    .cost = {.layer_bytes = 1000,
             .head_bytes = 500,
             .layer_macs = {100, 20},
             .head_macs = {50, 5},
             .position_macs = 2},
};

static struct bench_row row_of(enum bench_test test, uint32_t tokens, uint32_t depth,
                               uint32_t streams)
{
    struct bench_row row = {.test = test, .tokens = tokens, .depth = depth, .streams = streams};
    row.work = bench_work_of(&row, &info, 4);
    return row;
}

TEST(bench, work_of_a_prompt)
{
    /* 4 rows, then 2, the last of which gives logits; they see 1 + 2 + ... + 6 positions. */
    struct bench_work w = row_of(BENCH_PREFILL, 6, 0, 1).work;
    CHECK_INT(w.n_batches, 2);
    CHECK(w.bytes == 2 * 1000 + 500 + 10 * (4 + 6));
    CHECK(w.int8_macs == 6 * 100 + 50 && w.attention_macs == 2 * 21);
    CHECK(w.float_macs == 6 * 20 + 5 + w.attention_macs);
    w = row_of(BENCH_PREFILL, 1, 9, 1).work;
    CHECK(w.n_batches == 1 && w.bytes == 1500 + 100 && w.attention_macs == 20);
}

TEST(bench, work_of_decoding)
{
    struct bench_work w = row_of(BENCH_DECODE, 3, 7, 2).work;
    CHECK_INT(w.n_batches, 3);
    CHECK(w.bytes == 3 * 1500 + 10 * 2 * (8 + 9 + 10));
    CHECK(w.int8_macs == 6 * 150 && w.attention_macs == 2 * 2 * (8 + 9 + 10));
    CHECK(w.float_macs == 6 * 25 + w.attention_macs);
}

TEST(bench, work_that_is_not_known)
{
    struct engine_info nothing = {0};
    struct bench_row row = row_of(BENCH_DECODE, 3, 7, 2);
    row.work = bench_work_of(&row, &nothing, 4);
    CHECK(row.work.n_batches == 0 && row.work.bytes == 0);
    row.limits = (struct machine_limits){1, 1, 1, 0};
    CHECK(bench_limit_of(&row).tokens_per_s == 0);
}

TEST(bench, limit_is_that_of_the_slower)
{
    struct bench_row row = row_of(BENCH_DECODE, 1, 0, 1); /* 1510 bytes, 150 int8, 27 floats */
    row.best = 5;
    row.times = (struct engine_times){.products_ns = 500000000, .attention_ns = 4000000};
    row.limits = (struct machine_limits){15100, 1500, 1000, 0};
    struct bench_limit l = bench_limit_of(&row); /* reads 0.1 s, computes 0.127 s */
    CHECK(!l.is_memory && l.tokens_per_s > 7.87 && l.tokens_per_s < 7.88);
    CHECK(l.reached > 0.634 && l.reached < 0.636);
    CHECK(l.attention > 0.499 && l.attention < 0.501); /* 2 of 1000 a second, in 4 ms */
    CHECK(l.products > 0.249 && l.products < 0.251);   /* 0.125 s in half a second */
    row.limits.read_bytes_per_s = 7550;
    l = bench_limit_of(&row);
    CHECK(l.is_memory && l.tokens_per_s > 4.99 && l.tokens_per_s < 5.01 && l.reached > 0.99);
}

TEST(bench, what_fits_in_the_cache_is_not_read_from_memory)
{
    struct bench_row row = row_of(BENCH_DECODE, 2, 0, 1); /* 1510 and 1520 bytes a batch */
    row.limits = (struct machine_limits){1, 1000, 1000, 4 * 1515};
    CHECK(!bench_limit_of(&row).is_memory);
    row.limits.cache_bytes = 4 * 1515 - 1;
    CHECK(bench_limit_of(&row).is_memory);
}

TEST(bench, limit_without_figures)
{
    struct bench_row row = row_of(BENCH_DECODE, 1, 0, 1);
    struct bench_limit l = bench_limit_of(&row);
    CHECK(l.tokens_per_s == 0 && l.reached == 0 && l.attention == 0);
}
