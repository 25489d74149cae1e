/* Packing of matrices for the device: every type against the reference, and the places of values
 * against what cuda_format.h says, computed here once more from its text. */
#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cuda/cuda_pack.h"
#include "model/quant/quantize.h"

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = hash_mix(seed + 1);
    return (uint32_t)((seed >> 32) * n >> 32);
}

/* ---- random matrices ---------------------------------------------------------------------- */

/* A block type, and where its blocks have numbers in F16 (-1: none). */
struct block_type {
    enum tensor_type type;
    enum cuda_format format;
    int d, dmin;
};

static const struct block_type block_types[] = {
    {TENSOR_F32, FORMAT_F32, -1, -1},     {TENSOR_F16, FORMAT_F16, 0, -1},
    {TENSOR_BF16, FORMAT_BF16, -1, -1},   {TENSOR_Q8_0, FORMAT_Q8, 0, -1},
    {TENSOR_Q6_K, FORMAT_Q6, 208, -1},    {TENSOR_Q5_0, FORMAT_Q5, 0, -1},
    {TENSOR_Q5_1, FORMAT_Q5, 0, 2},       {TENSOR_Q5_K, FORMAT_Q5, 0, 2},
    {TENSOR_Q4_1, FORMAT_Q4, 0, 2},       {TENSOR_Q4_K, FORMAT_Q4, 0, 2},
    {TENSOR_Q4_0, FORMAT_Q4Z, 0, -1},     {TENSOR_MXFP4, FORMAT_MXFP4, -1, -1},
    {TENSOR_Q3_K, FORMAT_Q6, 108, -1},    {TENSOR_IQ4_NL, FORMAT_Q8, 0, -1},
    {TENSOR_IQ4_XS, FORMAT_Q8, 0, -1},    {TENSOR_IQ3_S, FORMAT_Q8, 0, -1},
    {TENSOR_IQ3_XXS, FORMAT_Q8, 0, -1},   {TENSOR_IQ2_XXS, FORMAT_Q8, 0, -1},
    {TENSOR_IQ2_XS, FORMAT_F16, 0, -1},   {TENSOR_IQ2_S, FORMAT_F16, 0, -1},
    {TENSOR_IQ1_S, FORMAT_F16, 0, -1},    {TENSOR_Q2_K, FORMAT_F16, 80, 82},
    {TENSOR_TQ1_0, FORMAT_F16, 52, -1},   {TENSOR_TQ2_0, FORMAT_F16, 64, -1},
    {TENSOR_NVFP4, FORMAT_F16, -1, -1},   {TENSOR_Q1_0, FORMAT_F16, 0, -1},
    {TENSOR_Q2_0, FORMAT_F16, 0, -1},     {TENSOR_F8_E4M3, FORMAT_F16, -1, -1},
    {TENSOR_F8_E5M2, FORMAT_F16, -1, -1},
};

enum { N_BLOCK_TYPES = sizeof block_types / sizeof *block_types };

/* A random number: a power of two near 2^-4 if `is_exact`. */
static uint16_t random_f16(bool is_exact)
{
    float value = ldexpf(1, -2 - (int)below(5));
    if (!is_exact)
        value *= 1 + (float)below(1000) / 1000;
    return f32_to_f16(below(2) ? value : -value);
}

static void fill_block(const struct block_type *b, uint8_t *block, bool is_exact)
{
    uint32_t bytes = tensor_type_info(b->type)->block_bytes;
    for (uint32_t i = 0; i < bytes; i++)
        block[i] = (uint8_t)below(256);
    int places[2] = {b->d, b->dmin};
    for (int i = 0; i < 2; i++) {
        uint16_t half = random_f16(is_exact);
        if (places[i] >= 0)
            memcpy(block + places[i], &half, sizeof half);
    }
    float value = ldexpf((float)below(4096) - 2048, -12);
    uint16_t bf16 = f32_to_bf16(value);
    switch (b->type) {
    case TENSOR_F32: memcpy(block, &value, sizeof value); break;
    case TENSOR_BF16: memcpy(block, &bf16, sizeof bf16); break;
    case TENSOR_F8_E4M3: block[0] &= 0xf7; break;
    case TENSOR_F8_E5M2: block[0] &= 0xbf; break;
    case TENSOR_MXFP4: block[0] = (uint8_t)(110 + below(20)); break;
    case TENSOR_NVFP4:
        for (int i = 0; i < 4; i++)
            block[i] &= 0x77;
        break;
    default: break;
    }
}

/* At an odd address, so that the sanitizer sees reads that are aligned or too long. */
struct matrix {
    struct weight weight;
    uint8_t *memory, *scales, *biases;
};

static struct matrix matrix_random(const struct block_type *b, uint32_t rows, uint32_t cols,
                                   bool is_exact)
{
    const struct tensor_type_info *info = tensor_type_info(b->type);
    struct matrix m = {0};
    size_t row_bytes = (size_t)cols / info->block_len * info->block_bytes;
    m.memory = malloc(1 + rows * row_bytes);
    CHECK(m.memory != NULL);
    for (size_t at = 0; at < rows * row_bytes; at += info->block_bytes)
        fill_block(b, m.memory + 1 + at, is_exact);
    m.weight = weight_make(b->type, rows, cols, m.memory + 1);
    return m;
}

static void matrix_free_all(struct matrix *m)
{
    free(m->memory);
    free(m->scales);
    free(m->biases);
}

/* Scales of a type, all `value` times 1 .. 2. */
static uint8_t *random_numbers(enum tensor_type type, size_t n, float value, bool is_exact)
{
    size_t bytes = tensor_type_info(type)->block_bytes;
    uint8_t *numbers = malloc(1 + n * bytes);
    CHECK(numbers != NULL);
    for (size_t i = 0; i < n; i++) {
        float number = value * (is_exact ? (float)(1 << below(2)) : 1 + (float)below(100) / 100);
        uint16_t half = type == TENSOR_F16 ? f32_to_f16(number) : f32_to_bf16(number);
        uint8_t power = (uint8_t)(127 + ilogbf(value) + (int)below(3));
        memcpy(numbers + 1 + i * bytes,
               type == TENSOR_F32    ? (void *)&number
               : type == TENSOR_E8M0 ? (void *)&power
                                     : (void *)&half,
               bytes);
    }
    return numbers;
}

struct group_case {
    enum tensor_type type, scale_type;
    uint32_t rows, cols; /* of a group */
    bool has_biases;
    float scale, factor; /* about; of all */
    enum cuda_format format;
};

static struct matrix matrix_grouped(const struct group_case *c, uint32_t rows, uint32_t cols,
                                    bool is_exact)
{
    struct block_type b = {c->type, c->format, -1, -1};
    struct matrix m = matrix_random(&b, rows, cols, is_exact);
    struct weight_groups *g = &m.weight.groups;
    *g = (struct weight_groups){.scale_type = c->scale_type,
                                .scale = c->factor,
                                .rows = c->rows,
                                .cols = c->cols,
                                .per_row = (cols + c->cols - 1) / c->cols,
                                .row_step = 1};
    size_t n = (size_t)((rows + c->rows - 1) / c->rows) * g->per_row;
    m.scales = random_numbers(c->scale_type, n, c->scale, is_exact);
    m.biases = c->has_biases ? random_numbers(c->scale_type, n, -4 * c->scale, is_exact) : NULL;
    g->scales = m.scales + 1;
    g->biases = m.biases ? m.biases + 1 : NULL;
    return m;
}

/* ---- packed matrices ---------------------------------------------------------------------- */

struct packed {
    struct cuda_shape shape;
    uint8_t *data, *scales;
};

/* In ranges of at most `step` tiles, last first. The memory is full of other bits before. */
static struct packed pack_ranges(const struct weight *w, uint32_t step)
{
    struct packed p = {.shape = cuda_pack_shape(w)};
    const struct cuda_shape *s = &p.shape;
    size_t tile_data = (size_t)s->col_tiles * format_tile_bytes(s->format);
    size_t tile_scales = (size_t)s->col_tiles * format_scale_bytes(s->format);
    if (s->format == FORMAT_F32)
        tile_data = (size_t)TILE_OUTPUTS * s->cols * sizeof(float);
    p.data = malloc(s->data_bytes);
    p.scales = malloc(s->scale_bytes);
    CHECK(p.data && (p.scales || s->scale_bytes == 0));
    memset(p.data, 0xa5, s->data_bytes);
    if (s->scale_bytes)
        memset(p.scales, 0xa5, s->scale_bytes);
    for (uint32_t end = s->out_tiles; end > 0;) {
        uint32_t begin = end > step ? end - step : 0;
        cuda_pack(w, s, begin, end, p.data + begin * tile_data,
                  p.scales ? p.scales + begin * tile_scales : NULL);
        end = begin;
    }
    return p;
}

static void packed_free(struct packed *p)
{
    free(p->data);
    free(p->scales);
}

static void check_same(const struct packed *a, const struct packed *b)
{
    CHECK_INT(a->shape.format, b->shape.format);
    CHECK_INT(a->shape.data_bytes, b->shape.data_bytes);
    CHECK_INT(a->shape.scale_bytes, b->shape.scale_bytes);
    CHECK(memcmp(a->data, b->data, a->shape.data_bytes) == 0);
    CHECK(a->shape.scale_bytes == 0 || memcmp(a->scales, b->scales, a->shape.scale_bytes) == 0);
}

static float rounded(enum cuda_format format, float value)
{
    return format == FORMAT_F32                              ? value
           : format == FORMAT_BF16 || format == FORMAT_MXFP4 ? bf16_to_f32(f32_to_bf16(value))
                                                             : f16_to_f32(f32_to_f16(value));
}

/* A value against the file's. Not exact: within what rounding of scale, minimum and value gives. */
static void check_value(const struct packed *p, const struct weight *w, uint32_t row, uint32_t col,
                        const float *values, bool is_exact)
{
    float got = cuda_unpack(&p->shape, p->data, p->scales, row, col);
    float want = rounded(p->shape.format, values[col]), largest = 0;
    for (uint32_t i = col / 32 * 32; i < w->cols && i < col / 32 * 32 + 32; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    if (is_exact ? got == want : fabsf(got - want) <= ldexpf(largest, -9))
        return;
    test_fail(__FILE__, __LINE__, "%s, %u x %u: [%u][%u] is %a, expected %a",
              tensor_type_info(w->type)->name, w->rows, w->cols, row, col, (double)got,
              (double)want);
}

static void check_weight(const struct weight *w, enum cuda_format format, bool is_exact)
{
    struct packed p = pack_ranges(w, UINT32_MAX), ranges = pack_ranges(w, 1 + below(3));
    float *values = malloc(w->cols * sizeof *values);
    CHECK(values != NULL);
    CHECK_INT(p.shape.format, format);
    CHECK_INT(p.shape.rows, w->rows);
    CHECK_INT(p.shape.cols, w->cols);
    for (uint32_t row = 0; row < w->rows; row++) {
        weight_floats(w, row, 0, w->cols, values);
        for (uint32_t col = 0; col < w->cols; col++)
            check_value(&p, w, row, col, values, is_exact);
    }
    for (uint32_t row = 0; row < p.shape.out_tiles * 16 && format != FORMAT_F32; row++)
        for (uint32_t col = row < w->rows ? w->cols : 0; col < p.shape.col_tiles * 64; col++)
            CHECK(cuda_unpack(&p.shape, p.data, p.scales, row, col) == 0);
    check_same(&p, &ranges);
    packed_free(&p);
    packed_free(&ranges);
    free(values);
}

static uint32_t random_cols(enum tensor_type type)
{
    uint32_t block = tensor_type_info(type)->block_len;
    return block == 1 ? 1 + below(700) : block * (1 + below(block < 256 ? 700 / block : 3));
}

TEST(cuda_pack, every_type_equals_the_reference)
{
    for (uint32_t i = 0; i < N_BLOCK_TYPES; i++)
        for (uint32_t n = 0; n < 8; n++) {
            const struct block_type *b = &block_types[i];
            bool is_exact = n % 2 == 0;
            seed = i * 100 + n;
            struct matrix m = matrix_random(b, 1 + below(50), random_cols(b->type), is_exact);
            check_weight(&m.weight, b->format,
                         is_exact || format_scale_bytes(b->format) == 0 || b->type == TENSOR_Q8_0 ||
                             b->type == TENSOR_Q4_0 || b->type == TENSOR_Q5_0 ||
                             b->type == TENSOR_MXFP4);
            matrix_free_all(&m);
        }
}

TEST(cuda_pack, slices_equal_the_reference)
{
    for (uint32_t i = 0; i < N_BLOCK_TYPES; i++)
        for (uint32_t n = 0; n < 4; n++) {
            const struct block_type *b = &block_types[i];
            seed = i * 100 + n + 50;
            struct matrix m = matrix_random(b, 90, random_cols(b->type), true);
            uint32_t first = below(20), step = 1 + below(3);
            struct weight slice = weight_slice(&m.weight, first, step, (89 - first) / step - 1);
            struct weight part = weight_slice(&slice, below(4), 1, 17 + below(3));
            check_weight(&slice, b->format, true);
            check_weight(&part, b->format, true);
            matrix_free_all(&m);
        }
}

static const struct group_case group_cases[] = {
    {TENSOR_AFFINE_4, TENSOR_BF16, 1, 64, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_4, TENSOR_F16, 1, 32, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_4, TENSOR_F32, 1, 128, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_4, TENSOR_BF16, 1, 64, false, 0.125f, 0.5f, FORMAT_Q4},
    {TENSOR_AFFINE_2, TENSOR_BF16, 1, 32, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_1, TENSOR_BF16, 1, 64, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_3, TENSOR_BF16, 1, 64, true, 0.125f, 0, FORMAT_Q4},
    {TENSOR_AFFINE_5, TENSOR_BF16, 1, 64, true, 0.125f, 0, FORMAT_Q5},
    {TENSOR_AFFINE_6, TENSOR_BF16, 1, 64, true, 0.125f, 0, FORMAT_F16},
    {TENSOR_AFFINE_8, TENSOR_BF16, 1, 32, true, 0.125f, 0, FORMAT_F16},
    {TENSOR_AFFINE_8, TENSOR_F32, 1, 32, true, 400, 0, FORMAT_BF16},
    {TENSOR_AFFINE_4, TENSOR_F32, 1, 32, true, 8192, 0, FORMAT_BF16},
    {TENSOR_FP4, TENSOR_E8M0, 1, 32, false, 0.125f, 0, FORMAT_MXFP4},
    {TENSOR_FP4, TENSOR_E8M0, 3, 64, false, 0.125f, 0, FORMAT_MXFP4},
    {TENSOR_FP4, TENSOR_E8M0, 1, 16, false, 0.125f, 0, FORMAT_F16},
    {TENSOR_FP4, TENSOR_E8M0, 1, 32, false, 0.125f, 2, FORMAT_F16},
    {TENSOR_FP4, TENSOR_BF16, 1, 32, false, 0.125f, 0, FORMAT_F16},
    {TENSOR_F8_E4M3, TENSOR_F32, 128, 128, false, 0.001f, 0, FORMAT_F16},
    {TENSOR_F8_E4M3, TENSOR_BF16, 5, 32, false, 0.001f, 0.25f, FORMAT_F16},
    {TENSOR_F8_E4M3, TENSOR_F32, 16, 128, false, 150, 0, FORMAT_BF16},
    {TENSOR_F8_E5M2, TENSOR_F32, 16, 128, false, 2, 0, FORMAT_BF16},
    {TENSOR_BF16, TENSOR_F32, 1, 128, false, 2, 0, FORMAT_BF16},
};

TEST(cuda_pack, scales_beside_the_quants)
{
    for (uint32_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++)
        for (uint32_t n = 0; n < 4; n++) {
            const struct group_case *c = &group_cases[i];
            bool is_exact = n % 2 == 0;
            seed = i * 100 + n;
            struct matrix m = matrix_grouped(c, 60, 32 * (1 + below(20)), is_exact);
            struct weight slice = weight_slice(&m.weight, below(9), 1 + below(2), 25);
            bool has_rounded_scale = c->format == FORMAT_Q4 || c->format == FORMAT_Q5;
            check_weight(&m.weight, c->format, is_exact || !has_rounded_scale);
            check_weight(&slice, c->format, is_exact || !has_rounded_scale);
            matrix_free_all(&m);
        }
}

TEST(cuda_pack, converts_as_the_cpu_engine_does)
{
    static const enum tensor_type types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q8_0,
                                             TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1,
                                             TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K};
    static const enum tensor_type from[] = {TENSOR_F32, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_K};
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t k = 0; k < sizeof from / sizeof *from; k++) {
            seed = i * 10 + k;
            struct block_type b = {from[k], 0,
                                   from[k] >= TENSOR_Q8_0 && from[k] != TENSOR_BF16 ? 0 : -1,
                                   from[k] == TENSOR_Q4_K ? 2 : -1};
            uint32_t block = tensor_type_info(types[i])->block_len;
            uint32_t unit = from[k] == TENSOR_Q4_K || block == 256 ? 256 : 32;
            uint32_t rows = 1 + below(40), cols = unit * (1 + below(600 / unit));
            struct matrix m = matrix_random(&b, rows, cols, false);
            struct weight to = weight_make(types[i], rows, cols, NULL);
            uint8_t *blocks = malloc(rows * to.row_bytes);
            float *values = malloc(cols * sizeof *values);
            CHECK(blocks && values);
            for (uint32_t r = 0; r < rows; r++) {
                weight_floats(&m.weight, r, 0, cols, values);
                quantize(types[i], values, blocks + r * to.row_bytes, cols);
            }
            to.data = blocks;
            m.weight.is_converted = true;
            m.weight.converted_type = types[i];
            struct packed a = pack_ranges(&m.weight, 2), want = pack_ranges(&to, UINT32_MAX);
            check_same(&a, &want);
            packed_free(&a);
            packed_free(&want);
            free(blocks);
            free(values);
            matrix_free_all(&m);
        }
}

/* ---- places ------------------------------------------------------------------------------- */

/* The bits of a value in a tile, from the header's table of bytes. */
static uint32_t bits_at(enum cuda_format f, const uint8_t *tile, uint32_t lane, uint32_t j,
                        uint32_t p, uint32_t h)
{
    const uint16_t *halves = (const uint16_t *)tile;
    const uint32_t *words = (const uint32_t *)tile;
    const uint32_t *more = words + 128;
    switch (f) {
    case FORMAT_F16:
    case FORMAT_BF16: return halves[((j * 32 + lane) * 4 + p) * 2 + h];
    case FORMAT_Q8: return tile[(((j / 2 * 32 + lane) * 2 + j % 2) * 4 + p) * 2 + h];
    case FORMAT_Q5:
        return (words[lane * 4 + j] >> (h ? 16 + 4 * p : 4 * p) & 15) |
               (more[lane] >> (h ? 16 + 4 * j + p : 4 * j + p) & 1) << 4;
    case FORMAT_Q6:
        return (words[lane * 4 + j] >> (h ? 16 + 4 * p : 4 * p) & 15) |
               (more[lane * 2 + j / 2] >> (8 * (j % 2) + 2 * p + 16 * h) & 3) << 4;
    default: return words[lane * 4 + j] >> (h ? 16 + 4 * p : 4 * p) & 15;
    }
}

/* What these bits and the scales at the lane's place stand for. */
static float value_of(enum cuda_format f, uint32_t bits, const uint16_t *scales, uint32_t g,
                      uint32_t p, uint32_t in_tile)
{
    static const float fp4[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint32_t width = f == FORMAT_Q6 ? 16 : 32, n = 64 / width;
    uint32_t at = (g * 2 + p % 2) * n + in_tile / width;
    float q = (float)bits;
    switch (f) {
    case FORMAT_F16: return f16_to_f32((uint16_t)bits);
    case FORMAT_BF16: return bf16_to_f32((uint16_t)bits);
    case FORMAT_Q8: return (q - 128) * f16_to_f32(scales[at]);
    case FORMAT_Q6: return (q - 32) * f16_to_f32(scales[at]);
    case FORMAT_Q4Z: return (q - 8) * f16_to_f32(scales[at]);
    case FORMAT_MXFP4: return (bits & 8 ? -1 : 1) * fp4[bits & 7] * bf16_to_f32(scales[at]);
    default: return q * f16_to_f32(scales[2 * at]) + f16_to_f32(scales[2 * at + 1]);
    }
}

static void check_tile(const struct packed *p, const struct weight *w, uint32_t out_tile,
                       uint32_t c, uint8_t *times)
{
    enum cuda_format f = p->shape.format;
    size_t tile = (size_t)out_tile * p->shape.col_tiles + c;
    const uint8_t *data = p->data + tile * format_tile_bytes(f);
    const uint16_t *scales = (const uint16_t *)(p->scales + tile * format_scale_bytes(f));
    float values[64];
    for (uint32_t i = 0; i < 32 * 4 * 4 * 2; i++) {
        uint32_t lane = i / 32, j = i / 8 % 4, pair = i / 2 % 4, h = i % 2;
        uint32_t g = lane / 4, t = lane % 4;
        uint32_t row = 16 * out_tile + g + 8 * (pair % 2);
        uint32_t in_tile = 16 * t + 4 * j + 2 * (pair / 2) + h, col = 64 * c + in_tile;
        if (row >= w->rows || col >= w->cols)
            continue;
        weight_floats(w, row, col / 32 * 32, 32, values);
        float got = value_of(f, bits_at(f, data, lane, j, pair, h), scales, g, pair, in_tile);
        if (got != values[col % 32])
            test_fail(__FILE__, __LINE__,
                      "format %d, lane %u step %u pair %u h %u: %a, expected %a", f, lane, j, pair,
                      h, (double)got, (double)values[col % 32]);
        times[row * w->cols + col]++;
    }
}

TEST(cuda_pack, each_value_is_where_the_header_says)
{
    for (uint32_t i = 0; i < N_BLOCK_TYPES; i++) {
        const struct block_type *b = &block_types[i];
        if (b->format == FORMAT_F32 || tensor_type_info(b->type)->block_len > 32)
            continue;
        seed = i;
        struct matrix m = matrix_random(b, 41, 352, true);
        struct packed p = pack_ranges(&m.weight, UINT32_MAX);
        uint8_t *times = calloc(41 * 352, 1);
        CHECK(times != NULL);
        for (uint32_t tile = 0; tile < p.shape.out_tiles * p.shape.col_tiles; tile++)
            check_tile(&p, &m.weight, tile / p.shape.col_tiles, tile % p.shape.col_tiles, times);
        for (uint32_t at = 0; at < 41 * 352; at++)
            CHECK_INT(times[at], 1);
        free(times);
        packed_free(&p);
        matrix_free_all(&m);
    }
}

/* ---- the ends of the ranges --------------------------------------------------------------- */

static float packed_value(const struct weight *w)
{
    struct packed p = pack_ranges(w, UINT32_MAX);
    float value = cuda_unpack(&p.shape, p.data, p.scales, 0, 0);
    packed_free(&p);
    return value;
}

TEST(cuda_pack, clamps_what_f16_cannot_hold)
{
    uint8_t block[256] = {0};
    uint16_t largest = 0x7bff; /* 65504 */
    memcpy(block, &largest, 2);
    block[2] = 0x80; /* -128, in Q8_0 */
    struct weight w = weight_make(TENSOR_Q8_0, 1, 32, block);
    CHECK(fabsf(packed_value(&w)) <= 65504 && packed_value(&w) < -65000);
    block[2] = 0xff; /* 15 - 8, in Q4_0 */
    w = weight_make(TENSOR_Q4_0, 1, 32, block);
    CHECK(packed_value(&w) == 57312); /* 7 * 65504 / 8, rounded */
    memcpy(block + 208, &largest, 2);
    block[192] = 127;
    w = weight_make(TENSOR_Q6_K, 1, 256, block);
    CHECK(isfinite(packed_value(&w)));
    float value = 1e9f;
    w = weight_make(TENSOR_F32, 1, 1, &value);
    w.is_converted = true;
    w.converted_type = TENSOR_BF16;
    CHECK(packed_value(&w) == bf16_to_f32(f32_to_bf16(1e9f)));
}

/* Every FP8 number, and all floats near F16's, as the reference converts them. */
TEST(cuda_pack, values_that_go_by_floats)
{
    static const enum tensor_type types[] = {TENSOR_F8_E4M3, TENSOR_F8_E5M2};
    uint8_t codes[256];
    float values[256];
    for (uint32_t i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (uint32_t t = 0; t < 2; t++) {
        struct weight w = weight_make(types[t], 1, 256, codes);
        struct packed p = pack_ranges(&w, 1);
        weight_floats(&w, 0, 0, 256, values);
        for (uint32_t i = 0; i < 256; i++) {
            float got = cuda_unpack(&p.shape, p.data, p.scales, 0, i);
            float want = isinf(values[i]) ? copysignf(65504, values[i]) : values[i];
            CHECK(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want));
        }
        packed_free(&p);
    }
    struct weight w = weight_make(TENSOR_F32, 1, 256, values);
    w.groups.scale = 1;
    for (uint32_t round = 0; round < 2000; round++) {
        float rounded_values[256];
        struct cuda_shape s = {FORMAT_F16, 1, 256, 1, 4, 4 * 2048, 0};
        uint8_t data[4 * 2048];
        for (uint32_t i = 0; i < 256; i++) {
            seed = hash_pair(round, i);
            uint32_t bits = (below(32) + 96) << 23 | below(1 << 23) | (uint32_t)(seed & 1) << 31;
            memcpy(&values[i], &bits, sizeof bits);
            float most = fminf(fmaxf(values[i], -65504), 65504);
            rounded_values[i] = f16_to_f32(f32_to_f16(most));
        }
        cuda_pack(&w, &s, 0, 1, data, NULL);
        for (uint32_t i = 0; i < 256; i++)
            CHECK(cuda_unpack(&s, data, NULL, 0, i) == rounded_values[i]);
    }
}

TEST(cuda_pack, the_ends_of_mxfp4)
{
    uint8_t block[17] = {0, 0x02}; /* 1 */
    struct weight w = weight_make(TENSOR_MXFP4, 1, 32, block);
    CHECK(packed_value(&w) == 0x1p-127f);
    block[0] = 255;
    CHECK(packed_value(&w) == 0x1p127f);
    block[0] = 254;
    CHECK(packed_value(&w) == 0x1p127f);
    uint8_t code = 2, exponents[1] = {255}, codes[16] = {0};
    codes[0] = code;
    w = weight_make(TENSOR_FP4, 1, 32, codes);
    w.groups = (struct weight_groups){.scales = exponents,
                                      .scale_type = TENSOR_E8M0,
                                      .rows = 1,
                                      .cols = 32,
                                      .per_row = 1,
                                      .row_step = 1};
    CHECK(isnan(packed_value(&w)));
    exponents[0] = 0;
    CHECK(packed_value(&w) == 0x1p-127f);
}
