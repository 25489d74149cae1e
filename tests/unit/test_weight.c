/* Views of matrices: values with separate scales against the goldens of mlx, groups of every shape,
 * slices. */
#include "test.h"
#include "test_files.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/quant/weight.h"

struct golden {
    uint32_t type, scale_type, group_cols, rows, cols;
    uint32_t data_bytes, scale_bytes, bias_bytes;
};

/* Memory of the exact size at an odd address, so that the sanitizer sees a byte too many. */
static uint8_t *odd_copy(const uint8_t *from, size_t n)
{
    uint8_t *copy = malloc(n + 1);
    CHECK(copy != NULL);
    memcpy(copy + 1, from, n);
    return copy;
}

static void check_row(const struct weight *w, uint32_t row, const uint8_t *want)
{
    float got[2048];
    for (uint32_t begin = 0; begin < w->cols; begin += 96) {
        uint32_t n = w->cols - begin < 96 ? w->cols - begin : 96;
        weight_floats(w, row, begin, n, got + begin);
    }
    for (uint32_t c = 0; c < w->cols; c++)
        if (memcmp(&got[c], want + c * sizeof *got, sizeof *got) != 0) {
            float value;
            memcpy(&value, want + c * sizeof value, sizeof value);
            test_fail(__FILE__, __LINE__, "%s, groups of %u x %s: [%u][%u] is %a, mlx says %a",
                      tensor_type_info(w->type)->name, w->groups.cols,
                      tensor_type_info(w->groups.scale_type)->name, row, c, (double)got[c],
                      (double)value);
        }
}

static size_t check_golden(const uint8_t *at)
{
    struct golden g;
    memcpy(&g, at, sizeof g);
    const uint8_t *from = at + sizeof g;
    uint8_t *data = odd_copy(from, g.data_bytes);
    uint8_t *scales = odd_copy(from += g.data_bytes, g.scale_bytes);
    uint8_t *biases = g.bias_bytes ? odd_copy(from + g.scale_bytes, g.bias_bytes) : NULL;
    struct weight w = weight_make((enum tensor_type)g.type, g.rows, g.cols, data + 1);
    CHECK_INT(w.row_bytes * g.rows, g.data_bytes);
    w.groups = (struct weight_groups){.scales = scales + 1,
                                      .biases = biases ? biases + 1 : NULL,
                                      .scale_type = (enum tensor_type)g.scale_type,
                                      .rows = 1,
                                      .cols = g.group_cols,
                                      .per_row = g.cols / g.group_cols,
                                      .row_step = 1};
    from += g.scale_bytes + g.bias_bytes;
    for (uint32_t r = 0; r < g.rows; r++)
        check_row(&w, r, from + (size_t)r * g.cols * sizeof(float));
    CHECK_INT(weight_bytes(&w), g.data_bytes + g.scale_bytes + g.bias_bytes);
    CHECK_INT(weight_extent(&w).data_bytes, g.data_bytes);
    CHECK_INT(weight_extent(&w).scale_bytes, g.scale_bytes);
    for (uint32_t r = 0; r < g.rows; r++) { /* backwards, by slices of one row */
        struct weight slice = weight_slice(&w, g.rows - 1 - r, 1, 1);
        check_row(&slice, 0, from + (size_t)(g.rows - 1 - r) * g.cols * sizeof(float));
    }
    free(data);
    free(scales);
    free(biases);
    return (size_t)(from - at) + (size_t)g.rows * g.cols * sizeof(float);
}

TEST(weight, scales_beside_the_quants_equal_mlx_bit_by_bit)
{
    size_t len;
    uint8_t *file = test_file_read("tests/unit/data/weight_goldens.bin", &len);
    CHECK(len > 4 && memcmp(file, "RWG1", 4) == 0);
    int entries = 0;
    for (size_t at = 4; at < len; entries++)
        at += check_golden(file + at);
    CHECK_INT(entries, 7 * 3 * 3 + 3);
    free(file);
}

enum { ROWS = 12, COLS = 80 };

/* One times the scale of its group. */
static struct weight ones(const uint8_t *data, const float *scales, uint32_t rows, uint32_t cols)
{
    struct weight w = weight_make(TENSOR_F8_E4M3, ROWS, COLS, data);
    w.groups = (struct weight_groups){.scales = scales,
                                      .scale_type = TENSOR_F32,
                                      .rows = rows,
                                      .cols = cols,
                                      .per_row = (COLS + cols - 1) / cols,
                                      .row_step = 1};
    return w;
}

TEST(weight, groups_of_every_shape)
{
    static const uint32_t sizes[] = {1, 3, 16, 32, 64, 128};
    uint8_t data[ROWS * COLS];
    float scales[ROWS * COLS], got[COLS];
    memset(data, 0x38, sizeof data); /* 1 */
    for (int i = 0; i < ROWS * COLS; i++)
        scales[i] = (float)i;
    for (size_t i = 0; i < 36; i++) {
        uint32_t rows = sizes[i / 6], cols = sizes[i % 6];
        struct weight w = ones(data, scales, rows, cols);
        /* Every third row from the second on, and of these every second from the second on. */
        struct weight third = weight_slice(&w, 1, 3, 4), sixth = weight_slice(&third, 1, 2, 2);
        for (uint32_t r = 0; r < ROWS; r++) {
            weight_floats(&w, r, 0, COLS, got);
            for (uint32_t c = 0; c < COLS; c++)
                CHECK(got[c] == (float)(r / rows * w.groups.per_row + c / cols));
        }
        for (uint32_t r = 0; r < 2; r++) {
            weight_floats(&sixth, r, 32, COLS - 32, got);
            for (uint32_t c = 32; c < COLS; c++)
                CHECK(got[c - 32] == (float)((4 + 6 * r) / rows * w.groups.per_row + c / cols));
        }
        uint64_t group_rows = 10 / rows - 4 / rows + 1 < 2 ? 1 : 2;
        CHECK_INT(weight_bytes(&sixth), 2 * COLS + group_rows * w.groups.per_row * 4);
    }
}

TEST(weight, a_scale_of_the_whole)
{
    uint8_t data[ROWS * COLS];
    float scales[1] = {3}, got[COLS];
    memset(data, 0x38, sizeof data);
    struct weight w = ones(data, scales, 128, 128);
    w.groups.scale = 0.5f;
    weight_floats(&w, 5, 0, COLS, got);
    CHECK(got[0] == 1.5f && got[COLS - 1] == 1.5f);
    w.groups.scales = NULL;
    weight_floats(&w, 5, 0, COLS, got);
    CHECK(got[0] == 0.5f && got[COLS - 1] == 0.5f);
    w.groups.scale = 0;
    weight_floats(&w, 5, 0, COLS, got);
    CHECK(got[0] == 1 && got[COLS - 1] == 1);
    CHECK_INT(weight_bytes(&w), ROWS * COLS);
}

/* NaN scales give NaN values, and affect nothing else. */
TEST(weight, scales_that_are_no_numbers)
{
    static const struct {
        enum tensor_type type;
        uint8_t bytes[4];
        bool is_nan;
    } cases[] = {
        {TENSOR_E8M0, {255}, true},
        {TENSOR_F8_E4M3, {0x7f}, true},
        {TENSOR_F8_E4M3, {0xff}, true},
        {TENSOR_F32, {0, 0, 0x80, 0x7f}, false}, /* infinity */
        {TENSOR_F32, {1, 0, 0x80, 0x7f}, true},
        {TENSOR_F16, {0, 0xfc}, false},
        {TENSOR_BF16, {0xc0, 0xff}, true},
    };
    uint8_t data[16];
    memset(data, 0x22, sizeof data); /* ones of 4 bits */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weight w = weight_make(TENSOR_FP4, 1, 32, data);
        w.groups = (struct weight_groups){cases[i].bytes, NULL,         cases[i].type, .rows = 1,
                                          .cols = 32,     .per_row = 1, .row_step = 1};
        float got[32];
        weight_floats(&w, 0, 0, 32, got);
        CHECK(cases[i].is_nan ? isnan(got[31]) : isinf(got[31]));
    }
}
