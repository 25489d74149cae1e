/* Packed matrices: the scalar path against a float64 dot product of dequantised values, and every
 * other path that this CPU can run against the scalar one, bit for bit. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kernels/matmul_internal.h"
#include "engine/cpu/work_split.h"

enum { WHOLE = 1 << 20, N_OLD = 15 };

/* The types: where the f16 scales are in a block, or which groups they have besides the quants. */
static const struct type_case {
    enum tensor_type type;
    int f16_at[2]; /* -1: none */
    enum tensor_type scale_type;
    uint32_t group_rows, group_cols; /* 0: no groups */
    bool has_biases;
    float scale;
    uint32_t unit; /* columns are a multiple of it; 0: of a block */
} types[] = {
    /* N_OLD of them, whose packed form is as large as the file. */
    {TENSOR_F32, {-1, -1}},
    {TENSOR_F16, {-1, -1}},
    {TENSOR_BF16, {-1, -1}},
    {TENSOR_Q4_0, {0, -1}},
    {TENSOR_Q4_1, {0, 2}},
    {TENSOR_Q5_0, {0, -1}},
    {TENSOR_Q5_1, {0, 2}},
    {TENSOR_Q8_0, {0, -1}},
    {TENSOR_Q2_K, {80, 82}},
    {TENSOR_Q3_K, {108, -1}},
    {TENSOR_Q4_K, {0, 2}},
    {TENSOR_Q5_K, {0, 2}},
    {TENSOR_Q6_K, {208, -1}},
    {TENSOR_IQ4_NL, {0, -1}},
    {TENSOR_MXFP4, {-1, -1}},
    {TENSOR_IQ1_S, {0, -1}},
    {TENSOR_IQ1_M, {-1, -1}},
    {TENSOR_IQ2_XXS, {0, -1}},
    {TENSOR_IQ2_XS, {0, -1}},
    {TENSOR_IQ2_S, {0, -1}},
    {TENSOR_IQ3_XXS, {0, -1}},
    {TENSOR_IQ3_S, {0, -1}},
    {TENSOR_IQ4_XS, {0, -1}},
    {TENSOR_TQ1_0, {52, -1}},
    {TENSOR_TQ2_0, {64, -1}},
    {TENSOR_NVFP4, {-1, -1}, .scale = 0.3f},
    {TENSOR_Q1_0, {0, -1}},
    {TENSOR_Q2_0, {0, -1}},
    {TENSOR_FP4, {-1, -1}, TENSOR_E8M0, 1, 32, .unit = 32},
    {TENSOR_FP4, {-1, -1}, TENSOR_F8_E4M3, 1, 16, .unit = 16},
    {TENSOR_FP4, {-1, -1}, TENSOR_F8_E4M3, 1, 16, .unit = 16, .scale = 0.003f},
    {TENSOR_FP4, {-1, -1}, TENSOR_BF16, 1, 8}, /* as floats */
    {TENSOR_F8_E4M3, {-1, -1}},
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_F32, 128, 128},
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_BF16, 1, WHOLE, .scale = 2.5f},
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_F32, WHOLE, WHOLE},
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_E8M0, 1, 32},
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_F16, 3, 24}, /* as floats */
    {TENSOR_F8_E4M3, {-1, -1}, TENSOR_F32, 1, 1},  /* as floats */
    {TENSOR_F8_E5M2, {-1, -1}, TENSOR_F32, 7, 64},
    {TENSOR_AFFINE_1, {-1, -1}, TENSOR_BF16, 1, 128, true},
    {TENSOR_AFFINE_2, {-1, -1}, TENSOR_F16, 1, 64, true},
    {TENSOR_AFFINE_3, {-1, -1}, TENSOR_BF16, 1, 32, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_BF16, 1, 32, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_BF16, 1, 64, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_BF16, 1, 128, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_F16, 1, 64, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_F32, 1, 64, true},
    {TENSOR_AFFINE_4, {-1, -1}, TENSOR_F32, 2, WHOLE, false, 0.7f},
    {TENSOR_AFFINE_5, {-1, -1}, TENSOR_F16, 1, 128, true},
    {TENSOR_AFFINE_6, {-1, -1}, TENSOR_BF16, 1, 64, true},
    {TENSOR_AFFINE_6, {-1, -1}, TENSOR_F32, 1, 128, true},
    {TENSOR_AFFINE_8, {-1, -1}, TENSOR_BF16, 1, 64, true},
    {TENSOR_AFFINE_8, {-1, -1}, TENSOR_F32, 1, 32, true},
    {TENSOR_AFFINE_8, {-1, -1}, TENSOR_F16, 1, 64, true, 0.7f}, /* as floats */
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static uint32_t unit_of(const struct type_case *t)
{
    return t->unit ? t->unit : tensor_type_info(t->type)->block_len;
}

/* Is this byte of a block part of a scale? MXFP4's is an exponent in the first byte. */
static bool is_scale(const struct type_case *t, int at)
{
    return t->type == TENSOR_MXFP4   ? at == 0
           : t->type == TENSOR_NVFP4 ? at < 4
           : t->type == TENSOR_IQ1_M ? at >= 48
                                     : at / 2 * 2 == t->f16_at[0] || at / 2 * 2 == t->f16_at[1];
}

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

static void put_float(enum tensor_type type, float value, uint8_t *to)
{
    uint16_t f16 = f32_to_f16(value), bf16 = f32_to_bf16(value);
    if (type == TENSOR_F32)
        memcpy(to, &value, 4);
    else
        memcpy(to, type == TENSOR_F16 ? &f16 : &bf16, 2);
}

/* One finite number of an 8-bit type, of an ordinary size if it is a power of two. */
static uint8_t random_byte(enum tensor_type type)
{
    uint8_t byte = (uint8_t)random_u32();
    if (type == TENSOR_E8M0)
        return (uint8_t)(116 + random_below(12));
    if (type == TENSOR_F8_E4M3 && (byte & 0x7f) == 0x7f)
        return byte ^ 1;
    return type == TENSOR_F8_E5M2 && (byte & 0x7c) == 0x7c ? byte ^ 4 : byte;
}

static void random_block(const struct type_case *t, uint8_t *block)
{
    const struct tensor_type_info *info = tensor_type_info(t->type);
    if (tensor_type_is_float(t->type)) {
        put_float(t->type, random_float(), block);
        return;
    }
    for (uint32_t i = 0; i < info->block_bytes; i++)
        block[i] = random_byte(t->type);
    for (int i = 0; i < 2; i++)
        if (t->f16_at[i] >= 0)
            put_float(TENSOR_F16, random_float() / 16, block + t->f16_at[i]);
    if (t->type == TENSOR_MXFP4)
        block[0] = random_byte(TENSOR_E8M0);
    uint16_t d = f32_to_f16(random_float() / 16); /* in the top 4 bits of four numbers */
    for (int i = 0; t->type == TENSOR_IQ1_M && i < 4; i++)
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
}

static void *random_numbers(enum tensor_type type, size_t n)
{
    size_t bytes = tensor_type_info(type)->block_bytes;
    uint8_t *numbers = allocate(n * bytes);
    for (size_t i = 0; i < n; i++)
        if (bytes == 1)
            numbers[i] = random_byte(type);
        else
            put_float(type, random_float() / 16, numbers + i * bytes);
    return numbers;
}

/* A matrix and what it is a slice of. */
struct random_weight {
    struct weight w;
    void *data, *scales, *biases;
};

/* Random blocks: every bit of the quants is used, the scales are ordinary numbers. Every second one
 * is a slice of a larger one. */
static struct random_weight random_weight(const struct type_case *t, uint32_t rows, uint32_t cols)
{
    const struct tensor_type_info *info = tensor_type_info(t->type);
    bool is_slice = random_below(2);
    uint32_t first = is_slice ? random_below(9) : 0, step = is_slice ? 1 + random_below(3) : 1;
    uint32_t all_rows = first + (rows - 1) * step + 1;
    size_t n_blocks = (size_t)all_rows * cols / info->block_len;
    uint8_t *data = allocate(n_blocks * info->block_bytes);
    for (size_t b = 0; b < n_blocks; b++)
        random_block(t, data + b * info->block_bytes);
    struct random_weight r = {weight_make(t->type, all_rows, cols, data), data, NULL, NULL};
    r.w.groups.scale = t->scale;
    if (t->group_cols) {
        uint32_t per_row = (cols + t->group_cols - 1) / t->group_cols;
        size_t n = (size_t)per_row * ((all_rows + t->group_rows - 1) / t->group_rows);
        r.scales = random_numbers(t->scale_type, n);
        r.biases = t->has_biases ? random_numbers(t->scale_type, n) : NULL;
        r.w.groups = (struct weight_groups){.scales = r.scales,
                                            .biases = r.biases,
                                            .scale_type = t->scale_type,
                                            .scale = t->scale,
                                            .rows = t->group_rows,
                                            .cols = t->group_cols,
                                            .per_row = per_row,
                                            .row_step = 1};
    }
    r.w = weight_slice(&r.w, first, step, rows);
    return r;
}

static void weight_drop(struct random_weight *r)
{
    free(r->data);
    free(r->scales);
    free(r->biases);
}

/* Rows of floats, some blocks of which are large, small or zero. */
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
    if (kind != ACT_F32) {
        struct act_block *q8 = allocate(activations_bytes(kind, n_rows, cols));
        for (uint32_t r = 0; r < n_rows; r++)
            activations_quantize(k, kind, x + (size_t)r * cols, cols, r, q8);
        a.q8 = q8;
    }
    return a;
}

static void activations_drop(struct activations *a)
{
    free((void *)a->q8);
}

static double quant_value(const struct activations *a, uint32_t row, uint32_t col)
{
    const struct act_block *block =
        &a->q8[row / ROW_TILE * (size_t)act_blocks(a->cols) + col / ACT_BLOCK];
    return (double)block->quants[row % ROW_TILE][col % ACT_BLOCK] * block->scale[row % ROW_TILE];
}

/* The value of an activation as the kernels see it. */
static double activation_value(const struct activations *a, uint32_t row, uint32_t col)
{
    return a->kind == ACT_F32  ? a->f32[(size_t)row * a->cols + col]
           : a->kind == ACT_Q8 ? quant_value(a, row, col)
                               : quant_value(a, 2 * row, col) + quant_value(a, 2 * row + 1, col);
}

/* How far an activation of 16 bits may be from the float: the largest of its block has 127 steps,
 * each of them has 254, and half of one is what rounding takes. Floats that are too small for a
 * scale are zeros. */
static double activation_slack(const struct activations *a, uint32_t row, uint32_t col)
{
    const float *block = a->f32 + (size_t)row * a->cols + col / ACT_BLOCK * ACT_BLOCK;
    uint32_t left = a->cols - col / ACT_BLOCK * ACT_BLOCK;
    float largest = 0;
    for (uint32_t i = 0; i < left && i < ACT_BLOCK; i++)
        largest = fmaxf(largest, fabsf(block[i]));
    return largest / (127.0 * 254 * 2) * 1.0001 + 127 * FLT_MIN;
}

/* ACT_Q8: against the activations as they were rounded. ACT_Q16: against the floats themselves. */
static void check_against_float64(const struct type_case *t, enum act_kind quantized_kind,
                                  uint32_t rows, uint32_t cols)
{
    enum { N_ROWS = 3 };
    struct random_weight w = random_weight(t, rows, cols);
    float *values = allocate((size_t)rows * cols * sizeof *values);
    for (uint32_t o = 0; o < rows; o++)
        weight_floats(&w.w, o, 0, cols, values + (size_t)o * cols);
    struct packed_matrix *m = matrix_pack(&w.w, NULL);
    CHECK(m);
    CHECK_INT(matrix_rows(m), rows);
    CHECK_INT(matrix_panels(m), (rows + PANEL - 1) / PANEL);
    float *x = random_rows(N_ROWS, cols), *out = allocate(N_ROWS * rows * sizeof *out);
    enum act_kind kind = matrix_act_kind(m) == ACT_F32 ? ACT_F32 : quantized_kind;
    struct activations a = activations_make(&matmul_kernels_ref, kind, x, N_ROWS, cols);
    matrix_multiply(&matmul_kernels_ref, m, &a, 0, matrix_panels(m), out, rows);
    for (uint32_t r = 0; r < N_ROWS; r++)
        for (uint32_t o = 0; o < rows; o++) {
            double want = 0, magnitude = 0, slack = 0;
            for (uint32_t c = 0; c < cols; c++) {
                double value = values[(size_t)o * cols + c];
                double with = kind == ACT_Q16 ? a.f32[r * cols + c] : activation_value(&a, r, c);
                want += value * with;
                magnitude += fabs(value * with);
                if (kind == ACT_Q16)
                    slack += fabs(value) * activation_slack(&a, r, c);
            }
            if (!(fabs(out[r * rows + o] - want) <= 2e-6 * magnitude + slack))
                test_fail(__FILE__, __LINE__, "%s [%u x %u] row %u output %u: %.9g, expected %.9g",
                          tensor_type_info(t->type)->name, rows, cols, r, o, out[r * rows + o],
                          want);
        }
    activations_drop(&a);
    free(out);
    free(x);
    matrix_free(m);
    free(values);
    weight_drop(&w);
}

static void check_types_against_float64(enum act_kind quantized_kind)
{
    random_state = 1;
    for (int t = 0; t < N_TYPES; t++) {
        check_against_float64(&types[t], quantized_kind, 16, 256);
        check_against_float64(&types[t], quantized_kind, 37, 768);
    }
    for (int t = 0; t < N_TYPES; t++) {
        if (unit_of(&types[t]) == 1) {
            check_against_float64(&types[t], quantized_kind, 1, 172);
            check_against_float64(&types[t], quantized_kind, 17, 1);
        }
        if (unit_of(&types[t]) <= ACT_BLOCK)
            check_against_float64(&types[t], quantized_kind, 5, ACT_BLOCK * 3);
        if (unit_of(&types[t]) <= ACT_BLOCK / 2)
            check_against_float64(&types[t], quantized_kind, 9, ACT_BLOCK * 2 + 16);
    }
}

TEST(matmul, agrees_with_float64)
{
    check_types_against_float64(ACT_Q8);
}

TEST(matmul, of_16_bits_agrees_with_floats)
{
    check_types_against_float64(ACT_Q16);
}

TEST(matmul, packed_size_is_that_of_the_file)
{
    random_state = 2;
    for (int t = 0; t < N_OLD; t++) {
        enum { ROWS = 64, COLS = 1536 };
        const struct tensor_type_info *info = tensor_type_info(types[t].type);
        size_t file_bytes = (size_t)ROWS * COLS / info->block_len * info->block_bytes;
        struct random_weight w = random_weight(&types[t], ROWS, COLS);
        struct packed_matrix *m = matrix_pack(&w.w, NULL);
        bool same = info->block_len <= ACT_BLOCK && types[t].type != TENSOR_MXFP4;
        CHECK(matrix_bytes(m) >= file_bytes || types[t].type == TENSOR_Q2_K);
        CHECK(same ? matrix_bytes(m) == file_bytes : matrix_bytes(m) < file_bytes * 2);
        matrix_free(m);
        weight_drop(&w);
    }
}

/* Quants of 4, 6 or 8 bits and scales that take little more than in the file. */
TEST(matmul, packed_size_is_near_the_quants)
{
    random_state = 12;
    for (int t = N_OLD; t < N_TYPES; t++) {
        enum { ROWS = 64, COLS = 1536 };
        const struct tensor_type_info *info = tensor_type_info(types[t].type);
        struct random_weight w = random_weight(&types[t], ROWS, COLS);
        struct packed_matrix *m = matrix_pack(&w.w, NULL);
        double weights = ROWS * COLS;
        double quant_bits = info->block_bytes * 8.0 / info->block_len;
        double scale_bits = (double)weight_bytes(&w.w) * 8 / weights - quant_bits;
        double bits = quant_bits < 5 ? 4 : quant_bits < 7 ? 6 : 8;
        double slack = bits == 8 ? 1 : 0.63;
        if (m->format != PACKED_f32 && (double)matrix_bytes(m) * 8 / weights >
                                           bits + (scale_bits > slack ? scale_bits : slack))
            test_fail(__FILE__, __LINE__, "%s of case %d takes %.3f bits a weight", info->name, t,
                      (double)matrix_bytes(m) * 8 / weights);
        matrix_free(m);
        weight_drop(&w);
    }
}

TEST(matmul, quantize_is_as_defined)
{
    float x[64] = {0};
    struct act_block *q8 = allocate(activations_bytes(ACT_Q8, 1, 64));
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

static void check_path(const struct kernels *path, const struct type_case *t,
                       const struct packed_matrix *m, enum act_kind kind, const float *x,
                       uint32_t n_rows, uint32_t stride, const float *want)
{
    uint32_t n_panels = matrix_panels(m);
    size_t n_out = (size_t)(n_rows - 1) * stride + m->rows;
    float *got = malloc(n_out * sizeof *got);
    memset(got, 0x5a, n_out * sizeof *got);
    struct activations all = activations_make(path->matmul, kind, x, n_rows, m->cols);
    uint32_t cut = n_rows > ROW_UNIT ? random_below(2) * ROW_UNIT : 0;
    for (uint32_t begin = 0, end; begin < n_panels; begin = end) {
        struct activations first = activations_rows(&all, 0, cut ? cut : n_rows);
        end = begin + 1 + random_below(n_panels - begin);
        matrix_multiply(path->matmul, m, &first, begin, end, got + begin * PANEL, stride);
        if (!cut)
            continue;
        struct activations rest = activations_rows(&all, cut, n_rows);
        matrix_multiply(path->matmul, m, &rest, begin, end, got + cut * stride + begin * PANEL,
                        stride);
    }
    if (memcmp(want, got, n_out * sizeof *want) != 0) {
        size_t i = 0;
        while (memcmp(&want[i], &got[i], sizeof *want) == 0)
            i++;
        test_fail(__FILE__, __LINE__,
                  "%s %s (case %td) [%u x %u], %u rows: row %zu output %zu is %a, not %a",
                  path->name, tensor_type_info(t->type)->name, t - types, m->rows, m->cols, n_rows,
                  i / stride, i % stride, got[i], want[i]);
    }
    activations_drop(&all);
    free(got);
}

/* The outputs of every path must equal those of the scalar one for any number of rows and any split
 * of rows and panels, and nothing else may be written. */
static void check_paths(const struct type_case *t, enum act_kind quantized_kind, uint32_t rows,
                        uint32_t cols, uint32_t n_rows)
{
    struct random_weight w = random_weight(t, rows, cols);
    struct packed_matrix *m = matrix_pack(&w.w, NULL);
    CHECK(m);
    enum act_kind kind = matrix_act_kind(m) == ACT_F32 ? ACT_F32 : quantized_kind;
    uint32_t stride = rows + random_below(20);
    size_t n_out = (size_t)(n_rows - 1) * stride + rows;
    float *x = random_rows(n_rows, cols), *want = malloc(n_out * sizeof *want);
    memset(want, 0x5a, n_out * sizeof *want);
    /* One row at a time, all panels at once. */
    for (uint32_t r = 0; r < n_rows; r++) {
        struct activations one = activations_make(&matmul_kernels_ref, kind, x + (size_t)r * cols,
                                                  1, cols);
        matrix_multiply(&matmul_kernels_ref, m, &one, 0, matrix_panels(m),
                        want + (size_t)r * stride, stride);
        activations_drop(&one);
    }
    for (unsigned i = 0; kernels_at(i); i++)
        check_path(kernels_at(i), t, m, kind, x, n_rows, stride, want);
    free(want);
    free(x);
    matrix_free(m);
    weight_drop(&w);
}

TEST(matmul, every_path_gives_the_same_bits)
{
    random_state = 3;
    for (int t = 0; t < N_TYPES; t++) {
        /* Those of directories differ in a few ways that do not depend on the rows. */
        uint32_t unit = unit_of(&types[t]), step = types[t].group_cols ? 4 : 1;
        for (uint32_t n_rows = 1 + (uint32_t)t % step; n_rows <= 33; n_rows += step)
            check_paths(&types[t], ACT_Q8, 1 + random_below(50),
                        unit * (1 + random_below(unit == 1 ? 172 : 256 / unit)), n_rows);
    }
}

TEST(matmul, every_path_gives_the_same_bits_of_16_bits)
{
    static const uint32_t counts[] = {1, 2, 5, 13, 25, 50};
    random_state = 14;
    for (int t = 0; t < N_TYPES; t++) {
        uint32_t unit = unit_of(&types[t]);
        for (size_t n = (size_t)t % 2; n < sizeof counts / sizeof *counts; n += 2)
            check_paths(&types[t], ACT_Q16, 1 + random_below(50),
                        unit == 1 ? 1 + random_below(100) : (256 + unit - 1) / unit * unit,
                        counts[n]);
    }
}

/* More columns and more rows than a path takes at a time. */
TEST(matmul, large_products_give_the_same_bits)
{
    random_state = 4;
    for (int t = 0; t < N_TYPES; t++)
        check_paths(&types[t], ACT_Q8, 17, 1792,
                    types[t].type == TENSOR_Q4_1 ? 170
                    : t < N_OLD                  ? 37
                                                 : 25);
    check_paths(&types[4], ACT_Q16, 17, 1792, 110);
}

/* The largest quants of both sides: nothing may saturate or overflow on the way. */
static void check_extreme(const struct kernels *path, const struct type_case *t, uint8_t byte)
{
    enum { ROWS = 16, COLS = 256 };
    random_state = 4;
    struct random_weight w = random_weight(t, ROWS, COLS);
    const struct tensor_type_info *info = tensor_type_info(t->type);
    uint8_t *data = (uint8_t *)w.w.data;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t b = 0; b < COLS / info->block_len; b++)
            for (int at = 0; at < (int)info->block_bytes; at++)
                if (!is_scale(t, at))
                    data[r * w.w.row_bytes + b * info->block_bytes + at] = byte;
    struct packed_matrix *m = matrix_pack(&w.w, NULL);
    float x[COLS], want[ROWS], got[ROWS];
    for (int c = 0; c < COLS; c++)
        x[c] = c % 64 < 32 ? -1 : 1;
    struct activations a = activations_make(&matmul_kernels_ref, matrix_act_kind(m), x, 1, COLS);
    matmul_kernels_ref.matmul(m, &a, 0, 1, want, ROWS);
    path->matmul->matmul(m, &a, 0, 1, got, ROWS);
    CHECK(memcmp(want, got, sizeof want) == 0);
    activations_drop(&a);
    matrix_free(m);
    weight_drop(&w);
}

TEST(matmul, extreme_quants_do_not_saturate)
{
    static const uint8_t bytes[] = {0x00, 0xff, 0x80, 0x7f, 0x77};
    for (unsigned i = 0; kernels_at(i); i++)
        for (int t = 3; t < N_TYPES; t++)
            for (int pattern = 0; pattern < 5; pattern++)
                if (types[t].type != TENSOR_F8_E4M3 && types[t].type != TENSOR_F8_E5M2)
                    check_extreme(kernels_at(i), &types[t], bytes[pattern]);
}

/* MXFP4's scales reach beyond the range of float16, down to subnormal floats. */
TEST(matmul, any_exponent_of_mxfp4)
{
    enum { ROWS = 16, COLS = 64, BLOCK_BYTES = 17 };
    static const uint8_t exponents[] = {0, 1, 2, 3, 64, 127, 128, 200, 230};
    const struct type_case mxfp4 = {TENSOR_MXFP4, {-1, -1}};
    random_state = 7;
    for (unsigned i = 0; kernels_at(i); i++)
        for (size_t e = 0; e < sizeof exponents; e++) {
            struct random_weight w = random_weight(&mxfp4, ROWS, COLS);
            float values[ROWS * COLS], x[COLS] = {[5] = 127, [40] = -1}, got[ROWS];
            for (uint32_t o = 0; o < ROWS; o++) {
                for (int b = 0; b < COLS / ACT_BLOCK; b++)
                    ((uint8_t *)w.w.data)[o * w.w.row_bytes + b * BLOCK_BYTES] = exponents[e];
                weight_floats(&w.w, o, 0, COLS, values + o * COLS);
            }
            struct packed_matrix *m = matrix_pack(&w.w, NULL);
            struct activations a = activations_make(&matmul_kernels_ref, ACT_Q8, x, 1, COLS);
            kernels_at(i)->matmul->matmul(m, &a, 0, 1, got, ROWS);
            for (int o = 0; o < ROWS; o++) /* exact: 3 bits times a power of two */
                CHECK(got[o] == values[o * COLS + 5] * 127 - values[o * COLS + 40]);
            activations_drop(&a);
            matrix_free(m);
            weight_drop(&w);
        }
}

/* Floats in which there is now and then one of those. */
static float *odd_rows(uint32_t n_rows, uint32_t cols, const float *odd, uint32_t n_odd)
{
    float *x = random_rows(n_rows, cols);
    for (int k = 0; k < 20; k++)
        x[random_below(n_rows * cols)] = odd[random_below(n_odd)];
    return x;
}

static const float odd_floats[] = {-0.0f,  1e-45f,   1e-40f,   1e-36f,    3e38f,
                                   3e-36f, -3.4e38f, INFINITY, -INFINITY, NAN};
enum { N_FINITE = 7, N_ODD = 10 };

TEST(matmul, quantize_is_the_same_in_every_path)
{
    enum { ROWS = 25, MAX_COLS = 200 };
    random_state = 5;
    for (unsigned i = 0; kernels_at(i); i++)
        for (int round = 0; round < 50; round++) {
            uint32_t cols = 1 + random_below(MAX_COLS);
            enum act_kind kind = round % 2 ? ACT_Q16 : ACT_Q8;
            float *x = odd_rows(ROWS, cols, odd_floats, N_ODD);
            size_t bytes = activations_bytes(kind, ROWS, cols);
            void *want = allocate(bytes), *got = allocate(bytes);
            memset(want, 0x5a, bytes);
            memset(got, 0x5a, bytes);
            for (uint32_t r = 0; r < ROWS; r++) {
                activations_quantize(&matmul_kernels_ref, kind, x + r * cols, cols, r, want);
                activations_quantize(kernels_at(i)->matmul, kind, x + r * cols, cols, r, got);
            }
            CHECK(memcmp(want, got, bytes) == 0);
            free(got);
            free(want);
            free(x);
        }
}

TEST(matmul, of_16_bits_is_near_the_floats)
{
    enum { ROWS = 25, MAX_COLS = 200 };
    random_state = 15;
    for (int round = 0; round < 50; round++) {
        uint32_t cols = 1 + random_below(MAX_COLS);
        float *x = odd_rows(ROWS, cols, odd_floats, N_FINITE);
        struct activations a = activations_make(&matmul_kernels_ref, ACT_Q16, x, ROWS, cols);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t c = 0; c < cols; c++) {
                double value = activation_value(&a, r, c), want = x[r * cols + c];
                if (!(fabs(value - want) <= activation_slack(&a, r, c)))
                    test_fail(__FILE__, __LINE__, "%g became %g", want, value);
            }
        activations_drop(&a);
        free(x);
    }
}

/* A NaN or an infinity must come out as NaN, in its own row only. */
TEST(matmul, nan_and_infinity_show)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    random_state = 6;
    for (unsigned i = 0; kernels_at(i); i++)
        for (int round = 0; round < 6; round++) {
            const struct matmul_kernels *k = kernels_at(i)->matmul;
            struct random_weight w = random_weight(&types[4], 16, 64);
            struct packed_matrix *m = matrix_pack(&w.w, NULL);
            float x[2 * 64] = {[3] = 1, [70] = 1}, out[32];
            x[40] = bad[round % 3];
            struct activations a = activations_make(k, round < 3 ? ACT_Q8 : ACT_Q16, x, 2, 64);
            matrix_multiply(k, m, &a, 0, 1, out, 16);
            for (int o = 0; o < 16; o++) {
                CHECK(isnan(out[o]));
                CHECK(isfinite(out[16 + o]));
            }
            activations_drop(&a);
            matrix_free(m);
            weight_drop(&w);
        }
}

/* Where row 2 has its fifth number, its second scale, its second bias. */
static uint8_t *row_two(struct random_weight *r)
{
    return (uint8_t *)r->w.data + 2 * r->w.row_bytes + 5;
}

static uint8_t *scale_two(struct random_weight *r)
{
    size_t bytes = tensor_type_info(r->w.groups.scale_type)->block_bytes;
    return (uint8_t *)r->scales + weight_group(&r->w, 2, 32) * bytes;
}

static uint8_t *bias_two(struct random_weight *r)
{
    size_t bytes = tensor_type_info(r->w.groups.scale_type)->block_bytes;
    return (uint8_t *)r->biases + weight_group(&r->w, 2, 32) * bytes;
}

/* A weight or a scale that is NaN makes its own output NaN, in every path, and no other. */
TEST(matmul, weights_that_are_no_numbers_show)
{
    static const struct {
        enum tensor_type type, scale_type;
        uint32_t group_cols;
        uint8_t *(*where)(struct random_weight *r);
        uint8_t bytes[4];
    } cases[] = {
        {TENSOR_F8_E4M3, TENSOR_F32, 32, row_two, {0x7f}},
        {TENSOR_F8_E4M3, TENSOR_F32, 32, row_two, {0xff}},
        {TENSOR_F8_E4M3, TENSOR_E8M0, 32, scale_two, {0xff}},
        {TENSOR_F8_E5M2, TENSOR_F32, 32, row_two, {0x7d}},
        {TENSOR_FP4, TENSOR_E8M0, 32, scale_two, {0xff}},
        {TENSOR_FP4, TENSOR_F8_E4M3, 16, scale_two, {0x7f}},
        {TENSOR_FP4, TENSOR_F8_E4M3, 16, scale_two, {0xff}},
        {TENSOR_AFFINE_4, TENSOR_F16, 32, scale_two, {0, 0x7e}},
        {TENSOR_AFFINE_4, TENSOR_BF16, 32, scale_two, {0xc0, 0x7f}},
        {TENSOR_AFFINE_8, TENSOR_F32, 32, bias_two, {0, 0, 0xc0, 0x7f}},
    };
    random_state = 13;
    for (unsigned i = 0; kernels_at(i); i++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            const struct matmul_kernels *k = kernels_at(i)->matmul;
            struct type_case t = {cases[c].type,       {-1, -1}, cases[c].scale_type, 1,
                                  cases[c].group_cols, true};
            t.has_biases = cases[c].where == bias_two;
            struct random_weight w = random_weight(&t, 16, 64);
            size_t n = cases[c].where == row_two
                           ? 1
                           : tensor_type_info(cases[c].scale_type)->block_bytes;
            memcpy(cases[c].where(&w), cases[c].bytes, n);
            struct packed_matrix *m = matrix_pack(&w.w, NULL);
            float x[64], out[16];
            for (int col = 0; col < 64; col++)
                x[col] = 1;
            struct activations a = activations_make(k, matrix_act_kind(m), x, 1, 64);
            k->matmul(m, &a, 0, 1, out, 16);
            for (int o = 0; o < 16; o++)
                CHECK_INT(isnan(out[o]), o == 2);
            activations_drop(&a);
            matrix_free(m);
            weight_drop(&w);
        }
}

/* A matrix with w[o][c] = o + c has the product (o * cols + sum of c) with a row of ones. */
static bool counts_right(const struct packed_matrix *m, uint32_t rows, uint32_t cols)
{
    float *ones = allocate(cols * sizeof *ones), *out = allocate(rows * sizeof *out);
    for (uint32_t c = 0; c < cols; c++)
        ones[c] = 1;
    struct activations a = {.kind = ACT_F32, .n_rows = 1, .cols = cols, .f32 = ones};
    kernels_select(NULL)->matmul->matmul(m, &a, 0, matrix_panels(m), out, rows);
    bool right = true;
    for (uint32_t o = 0; o < rows; o++)
        right = right && out[o] == (float)(o * cols + cols * (cols - 1) / 2);
    free(out);
    free(ones);
    return right;
}

static struct weight counting_weight(uint32_t rows, uint32_t cols)
{
    float *data = allocate((size_t)rows * cols * sizeof *data);
    for (uint32_t o = 0; o < rows; o++)
        for (uint32_t c = 0; c < cols; c++)
            data[(size_t)o * cols + c] = (float)(o + c);
    return weight_make(TENSOR_F32, rows, cols, data);
}

/* Matrices share memory, one of them larger than a shared block; each must outlive the others. */
TEST(matmul, matrices_survive_each_other)
{
    enum { SMALL = 40, LARGE_ROWS = 100000, COLS = 100 };
    struct weight small = counting_weight(SMALL, COLS), large = counting_weight(LARGE_ROWS, COLS);
    for (int order = 0; order < 6; order++) {
        static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        struct packed_matrix *m[3] = {matrix_pack(&small, NULL), matrix_pack(&large, NULL),
                                      matrix_pack(&small, NULL)};
        for (int i = 0; i < 3; i++) {
            int k = orders[order][i];
            CHECK(counts_right(m[k], k == 1 ? LARGE_ROWS : SMALL, COLS));
            matrix_free(m[k]);
        }
    }
    free((void *)small.data);
    free((void *)large.data);
}

/* Experts: as many small matrices as a large model has share few pieces of memory. */
TEST(matmul, many_small_matrices)
{
    enum { N = 18432, ROWS = 16, COLS = 32 };
    struct weight w = counting_weight(ROWS, COLS);
    struct packed_matrix **all = allocate(N * sizeof *all);
    for (int i = 0; i < N; i++) {
        all[i] = matrix_new(&w, NULL);
        CHECK(all[i]);
    }
    for (int i = 0; i < N; i += N / 7)
        matrix_fill(all[i], &w, 0, 1, all[i]->data, NULL);
    for (int i = 0; i < N; i += N / 7)
        CHECK(counts_right(all[i], ROWS, COLS));
    for (int i = 0; i < N; i++)
        matrix_free(all[i]);
    free(all);
    free((void *)w.data);
}

static void *pack_often(void *context)
{
    enum { ROUNDS = 50, HELD = 5 };
    const struct weight *w = context;
    struct packed_matrix *held[HELD] = {NULL};
    bool right = true;
    for (int i = 0; i < ROUNDS; i++) {
        matrix_free(held[i % HELD]);
        held[i % HELD] = matrix_pack(w, NULL);
        right = right && counts_right(held[(i * 3) % HELD] ? held[(i * 3) % HELD] : held[0],
                                      w->rows, w->cols);
    }
    for (int i = 0; i < HELD; i++)
        matrix_free(held[i]);
    return right ? context : NULL;
}

TEST(matmul, threads_pack_at_once)
{
    enum { THREADS = 4 };
    struct weight w = counting_weight(333, 64);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, pack_often, &w), 0);
    bool right = true;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        right = right && result;
    }
    CHECK(right);
    free((void *)w.data);
}
