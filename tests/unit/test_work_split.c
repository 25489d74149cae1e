/* The outputs of a product among threads: each exactly once, in fair shares. */
#include "test.h"

#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/work_split.h"

enum { MAX_PANELS = 70, MAX_ROWS = 130, MAX_THREADS = 33 };

static uint8_t times[MAX_ROWS][MAX_PANELS];

static uint32_t part_mark(const struct work_part *part, uint32_t n_panels, uint32_t n_rows)
{
    CHECK(part->rows.begin < part->rows.end && part->rows.end <= n_rows);
    CHECK(part->panels.begin < part->panels.end && part->panels.end <= n_panels);
    CHECK_INT(part->rows.begin % ROW_UNIT, 0);
    for (uint32_t r = part->rows.begin; r < part->rows.end; r++)
        for (uint32_t p = part->panels.begin; p < part->panels.end; p++)
            times[r][p]++;
    return (part->rows.end - part->rows.begin) * (part->panels.end - part->panels.begin);
}

/* Threads take turns at random, as they would. Returns the largest share. */
static uint32_t split_check(uint32_t n_panels, uint32_t n_rows, uint32_t n_threads, uint64_t seed)
{
    struct work work[MAX_THREADS];
    bool is_done[MAX_THREADS] = {false};
    uint32_t made[MAX_THREADS] = {0}, n_done = 0, most = 0;
    atomic_uint taken = 0;
    memset(times, 0, sizeof times);
    for (uint32_t t = 0; t < n_threads; t++)
        work[t] = work_begin(n_panels, n_rows, t, n_threads, &taken);
    for (uint64_t i = 0; n_done < n_threads; i++) {
        uint32_t t = (uint32_t)(hash_pair(seed, i) % n_threads);
        struct work_part part;
        if (is_done[t])
            continue;
        if (work_next(&work[t], &part))
            made[t] += part_mark(&part, n_panels, n_rows);
        else
            n_done += is_done[t] = true;
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t p = 0; p < n_panels; p++)
            CHECK_INT(times[r][p], 1);
    for (uint32_t t = 0; t < n_threads; t++)
        most = made[t] > most ? made[t] : most;
    return most;
}

TEST(work_split, every_output_once)
{
    for (uint64_t i = 0; i < 3000; i++) {
        uint32_t n_panels = 1 + (uint32_t)(hash_pair(i, 1) % MAX_PANELS);
        uint32_t n_rows = 1 + (uint32_t)(hash_pair(i, 2) % MAX_ROWS);
        uint32_t n_threads = 1 + (uint32_t)(hash_pair(i, 3) % MAX_THREADS);
        split_check(n_panels, n_rows, n_threads, i);
    }
}

TEST(work_split, one_unit_of_rows_is_shared_by_panels)
{
    CHECK_INT(split_check(60, 1, 16, 0), 4);
    CHECK_INT(split_check(60, 1, 2, 0), 30);
    CHECK_INT(split_check(36, ROW_UNIT, 16, 0), 3 * ROW_UNIT);
    CHECK_INT(split_check(3, 1, 16, 0), 1);
}

TEST(work_split, who_is_alone_makes_it_all)
{
    struct work_part part;
    atomic_uint taken = 0;
    struct work work = work_begin(36, MAX_ROWS, 5, 16, &taken);
    uint32_t made = 0;
    memset(times, 0, sizeof times);
    while (work_next(&work, &part))
        made += part_mark(&part, 36, MAX_ROWS);
    CHECK_INT(made, 36 * MAX_ROWS);
    work = work_begin(36, MAX_ROWS, 0, 16, &taken); /* who comes late finds nothing */
    CHECK(!work_next(&work, &part));
}

TEST(work_split, pieces_are_equal_to_a_unit)
{
    struct work_part part;
    atomic_uint taken = 0;
    enum { N_UNITS = 5, N_ROWS = N_UNITS * ROW_UNIT, PIECES = 4 * 16 };
    for (uint32_t piece = 0; piece < PIECES; piece++) { /* 36 * 5 pairs: 2 or 3 each */
        atomic_store(&taken, piece);
        struct work work = work_begin(36, N_ROWS, 0, 16, &taken);
        uint32_t made = 0;
        do {
            CHECK(work_next(&work, &part));
            made += (part.rows.end - part.rows.begin) * (part.panels.end - part.panels.begin);
        } while (work.at < work.end);
        CHECK(made >= 2 * ROW_UNIT && made <= 3 * ROW_UNIT);
    }
}
