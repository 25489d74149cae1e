/* Where images are in a sequence: rope positions, and what may be computed at once. */
#include "sched/regions.h"

#include "cache/cache_token.h"
#include "test.h"

enum { N = 17 };

/* a b [ 2 x 3 ] c [ 4 in a row ] [ 1 ] d e f */
static const struct image_shape shapes[] = {{6, 3, 2, 3}, {4, 4, 0, 0}, {1, 1, 1, 1}};

static const struct image_shape *shape_of(const void *context, uint32_t index)
{
    (void)context;
    return &shapes[index];
}

static void open_regions(struct regions *r)
{
    uint64_t tokens[N] = {0};
    static const uint32_t first[] = {2, 9, 13};
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < shapes[k].length; i++)
            tokens[first[k] + i] = cache_token_image(k, i, shapes[k].length);
    CHECK(regions_open(r, tokens, N, shape_of, NULL) == 0);
    CHECK_INT(r->n, 3);
    CHECK_INT(r->longest, 6);
}

static void set_encoded(struct regions *r, bool a, bool b, bool c)
{
    r->images[0].state = a ? REGION_ENCODED : REGION_RAW;
    r->images[1].state = b ? REGION_ENCODED : REGION_ENCODING;
    r->images[2].state = c ? REGION_ENCODED : REGION_RAW;
}

TEST(regions, a_grid_gives_rope_positions_of_its_own)
{
    /* time, row, column; text after an image continues after its span, on all axes */
    static const uint32_t want[N + 2][3] = {
        {0, 0, 0},    {1, 1, 1},    {2, 2, 2},    {2, 2, 3},    {2, 2, 4},
        {2, 3, 2},    {2, 3, 3},    {2, 3, 4},    {5, 5, 5},    {6, 6, 6},
        {7, 7, 7},    {8, 8, 8},    {9, 9, 9},    {10, 10, 10}, {11, 11, 11},
        {12, 12, 12}, {13, 13, 13}, {14, 14, 14}, {15, 15, 15},
    };
    struct regions r;
    open_regions(&r);
    for (uint32_t p = 0; p < N + 2; p++) { /* an answer follows */
        uint32_t rope[ROPE_AXES];
        regions_rope(&r, p, rope);
        for (uint32_t axis = 0; axis < 3; axis++)
            CHECK_INT(rope[axis], want[p][axis]);
        CHECK_INT(rope[3], want[p][0]);
    }
    regions_close(&r);
}

TEST(regions, text_alone_has_its_position_on_every_axis)
{
    uint64_t tokens[3] = {0};
    uint32_t rope[ROPE_AXES];
    struct regions r;
    CHECK(regions_open(&r, tokens, 3, shape_of, NULL) == 0);
    CHECK_INT(r.n + r.longest, 0);
    regions_rope(&r, 7, rope);
    for (uint32_t axis = 0; axis < ROPE_AXES; axis++)
        CHECK_INT(rope[axis], 7);
    CHECK_INT(regions_whole(&r, 1, 100), 100);
    CHECK_INT(regions_least(&r, 1), 1);
    CHECK_INT(regions_find(&r, 0), 0);
    regions_close(&r);
}

TEST(regions, the_region_of_a_position_is_the_first_that_ends_after_it)
{
    static const uint32_t want[N] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 3, 3};
    struct regions r;
    open_regions(&r);
    for (uint32_t p = 0; p < N; p++)
        CHECK_INT(regions_find(&r, p), want[p]);
    regions_close(&r);
}

/* Rows from `from` on: up to a region that would be cut, which is excluded. */
TEST(regions, rows_never_end_inside_a_region)
{
    struct regions r;
    open_regions(&r);
    set_encoded(&r, true, true, true);
    for (uint32_t from = 0; from < N; from++) {
        if ((from > 2 && from < 8) || (from > 9 && from < 13))
            continue; /* no sequence is ever there */
        for (uint32_t n = 0; from + n <= N; n++) {
            uint32_t end = from + n;
            if (end > 2 && end < 8)
                end = 2;
            if (end > 9 && end < 13)
                end = 9;
            CHECK_INT(regions_whole(&r, from, n), end - from);
        }
        CHECK_INT(regions_least(&r, from), from == 2 ? 6 : from == 9 ? 4 : 1);
    }
    regions_close(&r);
}

TEST(regions, rows_end_before_a_region_that_is_not_encoded)
{
    struct regions r;
    open_regions(&r);
    set_encoded(&r, false, false, false);
    CHECK_INT(regions_whole(&r, 0, N), 2);
    CHECK_INT(regions_whole(&r, 0, 2), 2);
    CHECK_INT(regions_whole(&r, 2, N - 2), 0);
    CHECK_INT(regions_least(&r, 1), 1);
    CHECK_INT(regions_least(&r, 2), 0);
    set_encoded(&r, true, false, true); /* one that is being encoded */
    CHECK_INT(regions_whole(&r, 0, N), 9);
    CHECK_INT(regions_least(&r, 9), 0);
    set_encoded(&r, false, true, false);
    CHECK_INT(regions_whole(&r, 8, N - 8), 5); /* the one before it no longer matters */
    CHECK_INT(regions_least(&r, 13), 0);
    regions_close(&r);
}
