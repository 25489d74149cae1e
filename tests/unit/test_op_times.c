#include "sched/op_times.h"

#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

static struct op_times *times_make(void)
{
    struct op_times *t = calloc(1, sizeof *t);
    CHECK(t);
    return t;
}

TEST(op_times, nothing_is_measured_without_a_recorder)
{
    CHECK_INT(op_times_start(NULL), 0);
    CHECK_INT(op_times_since(NULL, 0), 0);
    op_times_add(NULL, OP_EVICT, 1);
    op_times_end_step(NULL);
}

TEST(op_times, counts_sums_and_keeps_the_largest)
{
    struct op_times *t = times_make();
    op_times_add(t, OP_MATCH, 100);
    op_times_add(t, OP_MATCH, 50);
    op_times_add(t, OP_INSERT, 7);
    CHECK_INT(t->kinds[OP_MATCH].count, 2);
    CHECK_INT(t->kinds[OP_MATCH].total_ns, 150);
    CHECK_INT(t->kinds[OP_MATCH].max_ns, 100);
    CHECK_INT(t->kinds[OP_INSERT].max_ns, 7);
    CHECK_INT(t->kinds[OP_EVICT].count, 0);
    CHECK_INT(op_histogram_percentile(&t->kinds[OP_EVICT], 0.99), 0);
    free(t);
}

TEST(op_times, a_percentile_is_above_by_a_sixteenth_at_most)
{
    for (int digits = 0; digits < 64; digits++) {
        uint64_t low = (uint64_t)1 << digits;
        for (int i = 0; i < 200; i++) {
            struct op_times *t = times_make();
            uint64_t ns = low + hash_pair((uint64_t)digits, (uint64_t)i) % low;
            op_times_add(t, OP_MATCH, ns);
            op_times_add(t, OP_MATCH, UINT64_MAX);
            uint64_t half_ns = op_histogram_percentile(&t->kinds[OP_MATCH], 0.5);
            CHECK(half_ns >= ns && half_ns - ns <= ns / 16);
            CHECK(op_histogram_percentile(&t->kinds[OP_MATCH], 1) == UINT64_MAX);
            free(t);
        }
    }
}

TEST(op_times, percentiles_of_a_hundred)
{
    struct op_times *t = times_make();
    for (uint64_t ns = 0; ns < 100; ns++)
        op_times_add(t, OP_INSERT, ns == 99 ? 5000 : ns / 10);
    const struct op_histogram *h = &t->kinds[OP_INSERT];
    CHECK_INT(op_histogram_percentile(h, 0.1), 0);
    CHECK_INT(op_histogram_percentile(h, 0.11), 1);
    CHECK_INT(op_histogram_percentile(h, 0.99), 9);
    CHECK_INT(op_histogram_percentile(h, 1), 5000); /* never more than the largest */
    free(t);
}

TEST(op_times, eviction_adds_up_over_a_step)
{
    struct op_times *t = times_make();
    op_times_add(t, OP_EVICT, 30);
    op_times_add(t, OP_EVICT, 40);
    op_times_add(t, OP_MATCH, 1000);
    op_times_end_step(t);
    op_times_add(t, OP_EVICT, 60);
    op_times_end_step(t);
    op_times_end_step(t);
    CHECK_INT(t->max_step_evict_ns, 70);
    CHECK_INT(t->step_evict_ns, 0);
    free(t);
}

TEST(op_times, time_passes)
{
    struct op_times *t = times_make();
    uint64_t start_ns = op_times_start(t);
    CHECK(start_ns > 0);
    CHECK(op_times_since(t, start_ns) < UINT64_C(60) * 1000 * 1000 * 1000);
    free(t);
}
