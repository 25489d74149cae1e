/* Packed matrices: the scalar path against a float64 dot product of dequantised values, and every
 * other path that this CPU can run against the scalar one, bit for bit. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/matmul_internal.h"

/* The types, and where the f16 scales lie in a block. */
static const struct type_case {
    enum tensor_type type;
    int f16_at[2]; /* -1: none */
} types[] = {
    {TENSOR_F32, {-1, -1}},   {TENSOR_F16, {-1, -1}}, {TENSOR_BF16, {-1, -1}},
    {TENSOR_Q4_0, {0, -1}},   {TENSOR_Q4_1, {0, 2}},  {TENSOR_Q5_0, {0, -1}},
    {TENSOR_Q5_1, {0, 2}},    {TENSOR_Q8_0, {0, -1}}, {TENSOR_Q2_K, {80, 82}},
    {TENSOR_Q3_K, {108, -1}}, {TENSOR_Q4_K, {0, 2}},  {TENSOR_Q5_K, {0, 2}},
    {TENSOR_Q6_K, {208, -1}},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static uint64_t random_state;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 21);
}

static uint32_t random_below(uint32_t n)
{
    return random_u32() % n;
}

static float random_float(void) /* -1 .. 1 */
{
    return (float)((int)random_below(2000001) - 1000000) / 1000000;
}

static void *allocate(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64 + 64);
    CHECK(p);
    return p;
}

/* A matrix of random blocks; every bit of the quants is used, the scales are ordinary numbers. */
static struct weight random_weight(const struct type_case *t, uint32_t rows, uint32_t cols)
{
    const struct tensor_type_info *info = tensor_type_info(t->type);
    size_t n_blocks = (size_t)rows * cols / info->block_len;
    uint8_t *data = allocate(n_blocks * info->block_bytes);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *block = data + b * info->block_bytes;
        float value = random_float();
        uint16_t f16 = f32_to_f16(value), bf16 = f32_to_bf16(value);
        if (t->type == TENSOR_F32)
            memcpy(block, &value, 4);
        else if (t->type == TENSOR_F16)
            memcpy(block, &f16, 2);
        else if (t->type == TENSOR_BF16)
            memcpy(block, &bf16, 2);
        else
            for (uint32_t i = 0; i < info->block_bytes; i++)
                block[i] = (uint8_t)random_u32();
        for (int i = 0; i < 2; i++) {
            f16 = f32_to_f16(random_float() / 16);
            if (t->f16_at[i] >= 0)
                memcpy(block + t->f16_at[i], &f16, 2);
        }
    }
    return (struct weight){.type = t->type, .rows = rows, .cols = cols, .data = data};
}

/* Rows of floats of which some blocks are large, small or zero. */
static float *random_rows(uint32_t n_rows, uint32_t cols)
{
    float *x = allocate((size_t)n_rows * cols * sizeof *x);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            static const float sizes[] = {1, 1, 1, 100, 0.001f, 0};
            float size = sizes[(r * 7 + c / ACT_BLOCK * 5) % 6];
            x[(size_t)r * cols + c] = random_float() * size;
        }
    return x;
}

static struct activations activations_make(const struct matmul_kernels *k, enum act_kind kind,
                                           const float *x, uint32_t n_rows, uint32_t cols)
{
    struct activations a = {.kind = kind, .n_rows = n_rows, .cols = cols, .f32 = x};
    if (kind == ACT_Q8) {
        struct act_block *q8 = allocate(activations_bytes(n_rows, cols));
        for (uint32_t r = 0; r < n_rows; r++)
            k->quantize_row(x + (size_t)r * cols, cols, r, q8);
        a.q8 = q8;
    }
    return a;
}

static void activations_drop(struct activations *a)
{
    free((void *)a->q8);
}

/* The value of an activation as the kernels see it. */
static double activation_value(const struct activations *a, uint32_t row, uint32_t col)
{
    if (a->kind == ACT_F32)
        return a->f32[(size_t)row * a->cols + col];
    const struct act_block *block =
        &a->q8[row / ROW_TILE * (size_t)act_blocks(a->cols) + col / ACT_BLOCK];
    return (double)block->quants[row % ROW_TILE][col % ACT_BLOCK] * block->scale[row % ROW_TILE];
}

static void check_against_float64(const struct type_case *t, uint32_t rows, uint32_t cols)
{
    enum { N_ROWS = 3 };
    struct weight w = random_weight(t, rows, cols);
    float *values = allocate((size_t)rows * cols * sizeof *values);
    dequantize(t->type, w.data, values, (size_t)rows * cols);
    struct packed_matrix *m = matrix_pack(&w, NULL);
    CHECK(m);
    CHECK_INT(matrix_rows(m), rows);
    CHECK_INT(matrix_panels(m), (rows + PANEL - 1) / PANEL);
    float *x = random_rows(N_ROWS, cols), *out = allocate(N_ROWS * rows * sizeof *out);
    struct activations a = activations_make(&matmul_kernels_ref, matrix_act_kind(m), x, N_ROWS,
                                            cols);
    matmul_kernels_ref.matmul(m, &a, 0, matrix_panels(m), out, rows);
    for (uint32_t r = 0; r < N_ROWS; r++)
        for (uint32_t o = 0; o < rows; o++) {
            double want = 0, magnitude = 0;
            for (uint32_t c = 0; c < cols; c++) {
                double term = values[(size_t)o * cols + c] * activation_value(&a, r, c);
                want += term;
                magnitude += fabs(term);
            }
            if (!(fabs(out[r * rows + o] - want) <= 2e-6 * magnitude))
                test_fail(__FILE__, __LINE__, "%s [%u x %u] row %u output %u: %.9g, expected %.9g",
                          tensor_type_info(t->type)->name, rows, cols, r, o, out[r * rows + o],
                          want);
        }
    activations_drop(&a);
    free(out);
    free(x);
    matrix_free(m);
    free(values);
    free((void *)w.data);
}

TEST(matmul, agrees_with_float64)
{
    random_state = 1;
    for (int t = 0; t < N_TYPES; t++) {
        check_against_float64(&types[t], 16, 256);
        check_against_float64(&types[t], 37, 768);
    }
    for (int t = 0; t < 3; t++) {
        check_against_float64(&types[t], 1, 172);
        check_against_float64(&types[t], 17, 1);
    }
    for (int t = 3; t < 8; t++)
        check_against_float64(&types[t], 5, 32 * 3);
}

TEST(matmul, packed_size_is_that_of_the_file)
{
    random_state = 2;
    for (int t = 0; t < N_TYPES; t++) {
        enum { ROWS = 64, COLS = 1536 };
        const struct tensor_type_info *info = tensor_type_info(types[t].type);
        size_t file_bytes = (size_t)ROWS * COLS / info->block_len * info->block_bytes;
        struct weight w = random_weight(&types[t], ROWS, COLS);
        struct packed_matrix *m = matrix_pack(&w, NULL);
        bool same = types[t].type == TENSOR_Q4_1 || types[t].type == TENSOR_Q8_0 ||
                    types[t].type == TENSOR_Q4_0 || t < 3;
        CHECK(matrix_bytes(m) >= file_bytes || types[t].type == TENSOR_Q2_K);
        CHECK(same ? matrix_bytes(m) == file_bytes : matrix_bytes(m) < file_bytes * 2);
        matrix_free(m);
        free((void *)w.data);
    }
}

TEST(matmul, quantize_is_as_defined)
{
    float x[64] = {0};
    struct act_block *q8 = allocate(activations_bytes(1, 64));
    x[0] = -127, x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[20] = 126.51f;
    matmul_kernels_ref.quantize_row(x, 64, 0, q8);
    CHECK(q8[0].scale[0] == 1);
    CHECK_INT(q8[0].quants[0][0], -127);
    CHECK_INT(q8[0].quants[0][1], 0); /* ties go to the even number */
    CHECK_INT(q8[0].quants[0][2], 2);
    CHECK_INT(q8[0].quants[0][3], 2);
    CHECK_INT(q8[0].quants[0][4], 0);
    CHECK_INT(q8[0].quants[0][20], 127);
    CHECK(q8[0].sum[0] == 4 && q8[0].half_sum[0][0] == -123 && q8[0].half_sum[1][0] == 127);
    CHECK(q8[1].scale[0] == 0 && q8[1].sum[0] == 0);
    free(q8);
}
