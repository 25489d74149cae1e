/* Reads blocks of each tensor type into codes and scales; see cuda_pack_internal.h. Any thread.
 * Quants are never decoded to floats and encoded again where a format can hold them. The loops over
 * bytes are written so that the compiler vectorizes them. */
#include <math.h>
#include <string.h>

#include "engine/cuda/cuda_pack_internal.h"
#include "model/quant/lattice.h"

enum { BLOCK = 32 };
#define F16_MAX 65504.0f

static const uint8_t *row_blocks(const struct weight *w, uint32_t row, uint32_t begin)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    return (const uint8_t *)w->data + row * w->row_bytes +
           (size_t)begin / type->block_len * type->block_bytes;
}

static float load_f16(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return f16_to_f32(bits);
}

/* Rounded, and at most F16_MAX / `factor`, which is what the device multiplies it by at most. */
static uint16_t clamped_f16(float value, float factor)
{
    float limit = F16_MAX / factor;
    value = value > limit ? limit : value < -limit ? -limit : value;
    return f32_to_f16(value);
}

/* ---- floats ------------------------------------------------------------------------------- */

static void read_halves(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                        struct strip_row *out)
{
    memcpy(out->halves, row_blocks(w, row, begin), n * sizeof *out->halves);
}

/* As clamped_f16(values, 1), without branches, so that the compiler vectorizes it. */
static void clamp_values(const float *restrict values, uint32_t n, uint16_t *restrict out)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits, largest = 0x477fe000, small;
        memcpy(&bits, &values[i], sizeof bits);
        uint32_t sign = bits >> 16 & 0x8000, all = bits & 0x7fffffff;
        uint32_t size = all < largest ? all : largest;
        uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
        float shifted; /* below 2^-14: see f32_to_f16 */
        memcpy(&shifted, &size, sizeof shifted);
        shifted += 0.5f;
        memcpy(&small, &shifted, sizeof small);
        uint32_t half = size < 0x38800000 ? small - 0x3f000000 : normal;
        out[i] = (uint16_t)(sign | (all > 0x7f800000 ? 0x7e00 : half));
    }
}

/* FP8 as floats: the bits moved to the places that they have there, and the exponent put right by a
 * product, which also makes normal numbers of those that are not. */
static void expand_f8(enum tensor_type type, const uint8_t *restrict from, uint32_t n,
                      float *restrict out)
{
    bool is_e4m3 = type == TENSOR_F8_E4M3;
    uint32_t shift = is_e4m3 ? 20 : 21, last = is_e4m3 ? 0x7e : 0x7c;
    float unit = is_e4m3 ? 0x1p120f : 0x1p112f;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = from[i] & 0x7f, bits = (from[i] & 0x80u) << 24 | size << shift;
        float value;
        memcpy(&value, &bits, sizeof value);
        value *= unit;
        out[i] = size > last ? NAN : value;
    }
}

/* As weight_floats, but fast for FP8, where infinity is the next number, 65536. */
static void read_floats(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                        float *values)
{
    const struct weight_groups *g = &w->groups;
    bool is_f8 = w->type == TENSOR_F8_E4M3 || w->type == TENSOR_F8_E5M2;
    if (!is_f8 || g->biases) {
        weight_floats(w, row, begin, n, values);
        return;
    }
    expand_f8(w->type, row_blocks(w, row, begin), n, values);
    for (uint32_t i = 0, end; i < n && (g->scales || g->scale != 0); i = end) {
        float bias, scale = weight_scale(w, row, begin + i, &bias);
        uint32_t left = g->scales ? g->cols - (begin + i) % g->cols : n;
        end = n - i < left ? n : i + left;
        scale *= g->scale != 0 ? g->scale : 1;
        for (uint32_t k = i; k < end; k++)
            values[k] *= scale;
    }
}

static void read_as_f16(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                        struct strip_row *out)
{
    float values[STRIP_COLUMNS];
    read_floats(w, row, begin, n, values);
    clamp_values(values, n, out->halves);
}

static void read_as_bf16(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                         struct strip_row *out)
{
    float values[STRIP_COLUMNS];
    read_floats(w, row, begin, n, values);
    for (uint32_t i = 0; i < n; i++)
        out->halves[i] = f32_to_bf16(values[i]);
}

/* ---- small blocks, described in quant.c --------------------------------------------------- */

/* The low halves of 16 bytes are codes 0 .. 15, the high halves 16 .. 31. */
static void split_nibbles(const uint8_t *restrict from, uint8_t *restrict codes)
{
    for (int i = 0; i < 16; i++) {
        codes[i] = from[i] & 15;
        codes[16 + i] = from[i] >> 4;
    }
}

static void add_fifth_bits(const uint8_t *from, uint8_t *restrict codes)
{
    uint32_t high;
    memcpy(&high, from, sizeof high);
    for (int i = 0; i < BLOCK; i++)
        codes[i] |= (uint8_t)((high >> i & 1) << 4);
}

static void read_q4_0(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 18) {
        out->scales[b] = clamped_f16(load_f16(block), 8);
        split_nibbles(block + 2, out->codes + b * BLOCK);
    }
}

static void read_q4_1(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 20) {
        out->scales[b] = clamped_f16(load_f16(block), 16);
        out->minimums[b] = clamped_f16(load_f16(block + 2), 1);
        split_nibbles(block + 4, out->codes + b * BLOCK);
    }
}

static void read_q5_0(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 22) {
        out->scales[b] = clamped_f16(load_f16(block), 32);
        out->minimums[b] = f32_to_f16(-16 * f16_to_f32(out->scales[b]));
        split_nibbles(block + 6, out->codes + b * BLOCK);
        add_fifth_bits(block + 2, out->codes + b * BLOCK);
    }
}

static void read_q5_1(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 24) {
        out->scales[b] = clamped_f16(load_f16(block), 32);
        out->minimums[b] = clamped_f16(load_f16(block + 2), 1);
        split_nibbles(block + 8, out->codes + b * BLOCK);
        add_fifth_bits(block + 4, out->codes + b * BLOCK);
    }
}

static void read_q8_0(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 34) {
        uint8_t *restrict codes = out->codes + b * BLOCK;
        out->scales[b] = clamped_f16(load_f16(block), 128);
        for (int i = 0; i < BLOCK; i++)
            codes[i] = block[2 + i] ^ 0x80; /* q + 128 */
    }
}

/* 2^(exponent - 127) as BF16. */
static uint16_t power_bf16(uint8_t exponent)
{
    return exponent ? (uint16_t)(exponent << 7) : 0x40;
}

/* GGUF's quants are doubled and its exponent is one less, so that 255 is a number there. */
static void read_mxfp4(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                       struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 17) {
        out->scales[b] = power_bf16(block[0] < 254 ? block[0] : 254);
        split_nibbles(block + 1, out->codes + b * BLOCK);
    }
}

/* ---- super-blocks ------------------------------------------------------------------------- */

/* Scale and minimum `j` of the 12 bytes of Q4_K and Q5_K; see unpack_scale_min in quant.c. */
static void read_scale_min(const uint8_t *block, int j, float factor, struct strip_row *out)
{
    const uint8_t *packed = block + 4;
    int scale = packed[j] & 63, minimum = packed[j + 4] & 63;
    if (j >= 4) {
        scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
    out->scales[j] = clamped_f16(load_f16(block) * (float)scale, factor);
    out->minimums[j] = clamped_f16(-load_f16(block + 2) * (float)minimum, 1);
}

/* 32 bytes hold 64 codes. */
static void split_super_nibbles(const uint8_t *restrict from, uint8_t *restrict codes)
{
    for (int k = 0; k < 4; k++, from += 32, codes += 64)
        for (int i = 0; i < 32; i++) {
            codes[i] = from[i] & 15;
            codes[32 + i] = from[i] >> 4;
        }
}

static void read_q4_k(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    (void)n;
    for (int j = 0; j < 8; j++)
        read_scale_min(block, j, 16, out);
    split_super_nibbles(block + 16, out->codes);
}

static void read_q5_k(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin), *high = block + 16;
    (void)n;
    for (int j = 0; j < 8; j++)
        read_scale_min(block, j, 32, out);
    split_super_nibbles(block + 48, out->codes);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++)
            out->codes[j * 32 + i] |= (uint8_t)((high[i] >> j & 1) << 4);
}

static void read_q6_k(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    float d = load_f16(block + 208);
    (void)n;
    for (int j = 0; j < 16; j++)
        out->scales[j] = clamped_f16(d * (float)(int8_t)block[192 + j], 32);
    for (int k = 0; k < 8; k++) { /* 32 codes */
        const uint8_t *low = block + k / 4 * 64 + k % 2 * 32, *high = block + 128 + k / 4 * 32;
        uint8_t *restrict codes = out->codes + k * 32;
        int low_shift = k / 2 % 2 * 4, high_shift = k % 4 * 2;
        for (int i = 0; i < 32; i++)
            codes[i] = (uint8_t)((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    }
}

static void read_q3_k(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                      struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin), *packed = block + 96;
    float d = load_f16(block + 108);
    (void)n;
    for (int j = 0; j < 16; j++) {
        int low = packed[j % 8] >> (j / 8 * 4) & 15, high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
        out->scales[j] = clamped_f16(d * (float)((low | high << 4) - 32), 32);
    }
    for (int k = 0; k < 8; k++) { /* 32 codes: -4 .. 3, and Q6's 32 */
        const uint8_t *low = block + 32 + k / 4 * 32;
        uint8_t *restrict codes = out->codes + k * 32;
        for (int i = 0; i < 32; i++)
            codes[i] = (uint8_t)(28 + (low[i] >> (k % 4 * 2) & 3) + (block[i] >> k & 1) * 4);
    }
}

/* Values from a table, which 8 bits hold. */
static void read_iq4_nl(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                        struct strip_row *out)
{
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t b = 0; b < n / BLOCK; b++, block += 18) {
        uint8_t *codes = out->codes + b * BLOCK;
        out->scales[b] = clamped_f16(load_f16(block), 128);
        split_nibbles(block + 2, codes);
        for (int i = 0; i < BLOCK; i++)
            codes[i] = (uint8_t)(128 + iq4_numbers[codes[i]]);
    }
}

/* Types of lattice.h with one scale for 32 values. */
static void read_lattice(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                         struct strip_row *out)
{
    const struct lattice *lattice = lattice_of(w->type);
    const uint8_t *block = row_blocks(w, row, begin);
    for (uint32_t p = 0; p < n / LATTICE_PART; p++) {
        struct lattice_part part;
        uint8_t *codes = out->codes + p * LATTICE_PART;
        lattice->read(block, p, &part);
        float d = f16_to_f32(part.d) * lattice->unit;
        out->scales[p] = clamped_f16(d * (float)part.scale[0], 128);
        for (int i = 0; i < LATTICE_PART; i++)
            codes[i] = (uint8_t)(128 + part.values[i]);
    }
}

/* ---- types of directories ----------------------------------------------------------------- */

/* A byte is two neighbours, the low half first. */
static void split_pairs(const uint8_t *restrict from, uint32_t n, uint8_t *restrict codes)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        codes[2 * i] = from[i] & 15;
        codes[2 * i + 1] = from[i] >> 4;
    }
}

static void read_fp4(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                     struct strip_row *out)
{
    split_pairs(row_blocks(w, row, begin), n, out->codes);
    for (uint32_t b = 0; b < n / BLOCK; b++) {
        size_t group = weight_group(w, row, begin + b * BLOCK);
        uint8_t exponent = ((const uint8_t *)w->groups.scales)[group];
        out->scales[b] = exponent < 255 ? power_bf16(exponent) : 0x7fc0;
    }
}

static float group_factor(const struct weight_groups *g)
{
    return g->scale != 0 ? g->scale : 1;
}

static void read_affine(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                        struct strip_row *out)
{
    const uint8_t *blocks = row_blocks(w, row, begin);
    float values[STRIP_COLUMNS];
    if (w->type == TENSOR_AFFINE_4) {
        split_pairs(blocks, n, out->codes);
    } else {
        dequantize(w->type, blocks, values, n);
        for (uint32_t i = 0; i < n; i++)
            out->codes[i] = (uint8_t)values[i];
    }
    for (uint32_t b = 0; b < n / BLOCK; b++) {
        float bias, scale = weight_scale(w, row, begin + b * BLOCK, &bias);
        out->scales[b] = clamped_f16(scale * group_factor(&w->groups), 32);
        out->minimums[b] = clamped_f16(bias, 1);
    }
}

/* ---- the choice --------------------------------------------------------------------------- */

/* The largest of the numbers that the weight's rows use, without sign; NaN counts for nothing. */
static float largest_number(const struct weight *w, const void *numbers)
{
    const struct weight_groups *g = &w->groups;
    size_t bytes = tensor_type_info(g->scale_type)->block_bytes;
    float largest = 0;
    for (uint32_t row = 0; row < w->rows; row++) {
        size_t first = weight_group(w, row, 0);
        if (row > 0 && first == weight_group(w, row - 1, 0))
            continue;
        for (uint32_t i = 0; i < g->per_row; i++) {
            float value;
            dequantize(g->scale_type, (const uint8_t *)numbers + (first + i) * bytes, &value, 1);
            largest = fmaxf(largest, fabsf(value));
        }
    }
    return largest;
}

static float largest_quant(enum tensor_type type)
{
    switch (type) {
    case TENSOR_F8_E4M3: return 448;
    case TENSOR_F8_E5M2: return 57344;
    case TENSOR_FP4: return 6;
    case TENSOR_AFFINE_1:
    case TENSOR_AFFINE_2:
    case TENSOR_AFFINE_3:
    case TENSOR_AFFINE_4: return 16;
    case TENSOR_AFFINE_5: return 32; /* as the clamping of scales has it */
    case TENSOR_AFFINE_6: return 63;
    case TENSOR_AFFINE_8: return 255;
    default: return INFINITY;
    }
}

/* Whether scales beside the quants cannot take a value beyond F16's range. */
static bool fits_f16(const struct weight *w)
{
    const struct weight_groups *g = &w->groups;
    if (!g->scales && g->scale == 0)
        return true;
    float scale = fabsf(group_factor(g)) * (g->scales ? largest_number(w, g->scales) : 1);
    float bias = g->scales && g->biases ? largest_number(w, g->biases) : 0;
    return scale * largest_quant(w->type) + bias <= F16_MAX;
}

static bool has_block_groups(const struct weight_groups *g)
{
    return g->scales && g->cols % BLOCK == 0;
}

static const struct direct {
    enum tensor_type type;
    enum cuda_format format;
    read_strip read;
} direct_types[] = {
    {TENSOR_BF16, FORMAT_BF16, read_halves},   {TENSOR_F16, FORMAT_F16, read_halves},
    {TENSOR_Q8_0, FORMAT_Q8, read_q8_0},       {TENSOR_Q6_K, FORMAT_Q6, read_q6_k},
    {TENSOR_Q5_0, FORMAT_Q5, read_q5_0},       {TENSOR_Q5_1, FORMAT_Q5, read_q5_1},
    {TENSOR_Q5_K, FORMAT_Q5, read_q5_k},       {TENSOR_Q4_1, FORMAT_Q4, read_q4_1},
    {TENSOR_Q4_K, FORMAT_Q4, read_q4_k},       {TENSOR_Q4_0, FORMAT_Q4Z, read_q4_0},
    {TENSOR_MXFP4, FORMAT_MXFP4, read_mxfp4},  {TENSOR_Q3_K, FORMAT_Q6, read_q3_k},
    {TENSOR_IQ4_NL, FORMAT_Q8, read_iq4_nl},   {TENSOR_IQ4_XS, FORMAT_Q8, read_lattice},
    {TENSOR_IQ3_S, FORMAT_Q8, read_lattice},   {TENSOR_IQ3_XXS, FORMAT_Q8, read_lattice},
    {TENSOR_IQ2_XXS, FORMAT_Q8, read_lattice}, {TENSOR_F32, FORMAT_F32, NULL},
};

static bool is_grouped(const struct weight *w)
{
    return w->groups.scales || w->groups.scale != 0;
}

/* NULL: it goes by floats, or has scales beside its quants. */
static const struct direct *direct_of(const struct weight *w)
{
    for (size_t i = 0; i < sizeof direct_types / sizeof *direct_types && !is_grouped(w); i++)
        if (direct_types[i].type == w->type)
            return &direct_types[i];
    return NULL;
}

enum cuda_format pack_format(const struct weight *w)
{
    const struct weight_groups *g = &w->groups;
    const struct direct *direct = direct_of(w);
    if (direct)
        return direct->format;
    if (w->type == TENSOR_FP4 && has_block_groups(g) && !g->biases && g->scale == 0 &&
        g->scale_type == TENSOR_E8M0 && w->cols % BLOCK == 0)
        return FORMAT_MXFP4;
    if (!fits_f16(w))
        return FORMAT_BF16;
    if (w->type < TENSOR_AFFINE_1 || w->type > TENSOR_AFFINE_5 || !has_block_groups(g))
        return FORMAT_F16;
    return w->type == TENSOR_AFFINE_5 ? FORMAT_Q5 : FORMAT_Q4;
}

read_strip pack_reader(const struct weight *w, enum cuda_format format)
{
    const struct direct *direct = direct_of(w);
    if (direct)
        return direct->read;
    switch (format) {
    case FORMAT_MXFP4: return read_fp4;
    case FORMAT_Q4:
    case FORMAT_Q5: return read_affine;
    case FORMAT_BF16: return read_as_bf16;
    default: return read_as_f16;
    }
}
