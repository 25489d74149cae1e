/* The tensor types that radish reads, and the reference conversion of their blocks to floats. Every
 * product and sum here is rounded to float, in the order written: tests compare bit by bit with
 * tests/unit/data/quant_goldens.bin, so a mathematically equal formula is not good enough. Blocks
 * are read byte by byte, because a row of them may begin at any address. Any thread. */
#include "model/quant/quant.h"

#include <assert.h>
#include <string.h>

#include "model/quant/lattice.h"

enum { SMALL_BLOCK = 32, SUPER_BLOCK = 256 };

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t mantissa = half & 0x3ff;
    if (exponent == 0x1f) /* infinity, or a NaN, which becomes quiet */
        return float_from_bits(sign | 0x7f800000 | (mantissa ? 0x400000 | mantissa << 13 : 0));
    if (exponent == 0) {
        /* A subnormal is a count of 2^-24, and every such float is exact. */
        float magnitude = (float)mantissa * 0x1p-24f;
        return float_from_bits(sign | bits_from_float(magnitude));
    }
    return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits = bits_from_float(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (bits < 0x38800000) {
        /* Below 2^-14: adding 0.5 leaves the count of 2^-24, rounded to even, in the low bits. */
        float shifted = float_from_bits(bits) + 0.5f;
        return (uint16_t)(sign | (bits_from_float(shifted) - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1); /* a carry into the exponent rounds up correctly */
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

float bf16_to_f32(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t f32_to_bf16(float value)
{
    uint32_t bits = bits_from_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* E4M3 shifted into a half float: the exponents differ by 8, also for subnormal numbers. */
float f8_e4m3_to_f32(uint8_t bits)
{
    if ((bits & 0x7f) == 0x7f)
        return float_from_bits((uint32_t)(bits & 0x80) << 24 | 0x7fc00000);
    return f16_to_f32((uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256;
}

float f8_e5m2_to_f32(uint8_t bits)
{
    return f16_to_f32((uint16_t)(bits << 8));
}

float e8m0_to_f32(uint8_t exponent)
{
    uint32_t bits = exponent == 255 ? 0x7fc00000 : exponent ? (uint32_t)exponent << 23 : 0x400000;
    return float_from_bits(bits);
}

static uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t load_u32(const uint8_t *at)
{
    return load_u16(at) | (uint32_t)load_u16(at + 2) << 16;
}

static float load_f16(const uint8_t *at)
{
    return f16_to_f32(load_u16(at));
}

/* The small blocks: 32 values with one scale `d` (and one minimum `m`). In the 4- and 5-bit ones
 * the low nibbles are values 0..15 and the high nibbles values 16..31; `high` gives the 5th bits.
 *
 *   Q4_0  d:2 | nibbles:16                    (q - 8) * d
 *   Q4_1  d:2 | m:2 | nibbles:16              q * d + m
 *   Q5_0  d:2 | high:4 | nibbles:16           (q - 16) * d
 *   Q5_1  d:2 | m:2 | high:4 | nibbles:16     q * d + m
 *   Q8_0  d:2 | signed bytes:32               q * d
 *   IQ4_NL, MXFP4: below
 */
static int small_value(const uint8_t *nibbles, uint32_t high, int i)
{
    int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
    return low | (int)(high >> i & 1) << 4;
}

static void dequantize_q4_0(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)(small_value(block + 2, 0, i) - 8);
}

static void dequantize_q4_1(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)small_value(block + 4, 0, i) + m;
}

static void dequantize_q5_0(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    uint32_t high = load_u32(block + 2);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)(small_value(block + 6, high, i) - 16);
}

static void dequantize_q5_1(const uint8_t *block, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    uint32_t high = load_u32(block + 4);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)small_value(block + 8, high, i) + m;
}

static void dequantize_q8_0(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)(int8_t)block[2 + i];
}

/* IQ4_NL  d:2 | nibbles:16            value of q * d
 * MXFP4   exponent:1 | nibbles:16     value of q * 2^(exponent - 128)
 * MXFP4's values are twice those of its 4-bit floats; the exponent compensates. */
static void dequantize_iq4_nl(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)iq4_numbers[small_value(block + 2, 0, i)];
}

/* Twice the 4-bit floats. */
static const int8_t fp4_numbers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void dequantize_mxfp4(const uint8_t *block, float *out)
{
    uint32_t exponent = block[0]; /* 0 and 1 give subnormal numbers */
    float d = float_from_bits(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
    for (int i = 0; i < SMALL_BLOCK; i++)
        out[i] = d * (float)fp4_numbers[small_value(block + 1, 0, i)];
}

/* NVFP4  scales:4 | 4 x nibbles:8. A scale is half of an unsigned E4M3, for 16 values; the first
 * half of these is in the low nibbles. Here 0x7f is 0, and there is no NaN. */
static void dequantize_nvfp4(const uint8_t *block, float *out)
{
    for (int i = 0; i < 64; i++) {
        uint8_t scale = block[i / 16], byte = block[4 + i / 16 * 8 + i % 8];
        uint16_t half = (uint16_t)((scale & 0x7f) << 7);
        float d = scale == 0x7f ? 0 : f16_to_f32(half) * 128;
        out[i] = d * (float)fp4_numbers[i % 16 < 8 ? byte & 15 : byte >> 4];
    }
}

/* Q1_0  d:2 | bits:16       1 is d, 0 is -d
 * Q2_0  d:2 | 2-bit:16      (q - 1) * d */
static void dequantize_q1_0(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (int i = 0; i < 128; i++)
        out[i] = block[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

static void dequantize_q2_0(const uint8_t *block, float *out)
{
    float d = load_f16(block);
    for (int i = 0; i < 64; i++)
        out[i] = (float)((block[2 + i / 4] >> i % 4 * 2 & 3) - 1) * d;
}

/* Super-blocks: 256 values in sub-blocks of 16 or 32 with their own small scales, times a float
 * scale of the whole. Bit planes interleave by 32; value i is in
 *
 *   2-bit   byte (i / 128) * 32 + i % 32, bits 2 * (i / 32 % 4)     Q2_K, Q3_K, high bits of Q6_K
 *   4-bit   byte (i / 64) * 32 + i % 32, nibble i / 32 % 2          Q4_K, Q5_K
 *   1-bit   byte i % 32, bit i / 32                                 high bits of Q3_K, Q5_K */
static int two_bits(const uint8_t *plane, int i)
{
    return plane[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

static int four_bits(const uint8_t *plane, int i)
{
    return plane[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

static int one_bit(const uint8_t *plane, int i)
{
    return plane[i % 32] >> (i / 32) & 1;
}

/* scales:16 (low nibble scale, high nibble minimum) | 2-bit:64 | d:2 | dmin:2 */
static void dequantize_q2_k(const uint8_t *block, float *out)
{
    float d = load_f16(block + 80), dmin = load_f16(block + 82);
    for (int i = 0; i < SUPER_BLOCK; i++) {
        float scale = d * (float)(block[i / 16] & 15);
        float minimum = dmin * (float)(block[i / 16] >> 4);
        out[i] = scale * (float)two_bits(block + 16, i) - minimum;
    }
}

/* high bits:32 | 2-bit:64 | 6-bit scales:12 | d:2. A high bit that is clear subtracts 4.
 * Scale j: its low 4 bits are in nibble j / 8 of byte j % 8, its high 2 in byte 8 + j % 4. */
static void dequantize_q3_k(const uint8_t *block, float *out)
{
    const uint8_t *packed = block + 96;
    float d = load_f16(block + 108);
    for (int i = 0; i < SUPER_BLOCK; i++) {
        int j = i / 16;
        int low = packed[j % 8] >> (j / 8 * 4) & 15;
        int high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
        float scale = d * (float)((low | high << 4) - 32);
        out[i] = scale * (float)(two_bits(block + 32, i) - (one_bit(block, i) ? 0 : 4));
    }
}

/* The 12 bytes of eight 6-bit scales and eight 6-bit minimums of Q4_K and Q5_K. The first four of
 * each are the low 6 bits of bytes 0..3 and 4..7; the last four take their low 4 bits from the
 * nibbles of bytes 8..11 and their high 2 from the top of the bytes of the first four. */
static void unpack_scale_min(const uint8_t *packed, int j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

/* d:2 | dmin:2 | scales:12 | [Q5_K: high bits:32] | nibbles:128; `high` is NULL for Q4_K. */
static void dequantize_q45_k(const uint8_t *block, const uint8_t *high, const uint8_t *nibbles,
                             float *out)
{
    float d = load_f16(block), dmin = load_f16(block + 2);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        unpack_scale_min(block + 4, j, &scale, &minimum);
        float d_sub = d * (float)scale, m_sub = dmin * (float)minimum;
        for (int i = j * 32; i < (j + 1) * 32; i++) {
            int q = four_bits(nibbles, i) | (high ? one_bit(high, i) << 4 : 0);
            out[i] = d_sub * (float)q - m_sub;
        }
    }
}

static void dequantize_q4_k(const uint8_t *block, float *out)
{
    dequantize_q45_k(block, NULL, block + 16, out);
}

static void dequantize_q5_k(const uint8_t *block, float *out)
{
    dequantize_q45_k(block, block + 16, block + 48, out);
}

/* low nibbles:128 (interleaved by 64) | 2-bit high:64 | signed scales:16 | d:2 */
static void dequantize_q6_k(const uint8_t *block, float *out)
{
    float d = load_f16(block + 208);
    for (int i = 0; i < SUPER_BLOCK; i++) {
        int low = block[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        float scale = d * (float)(int8_t)block[192 + i / 16];
        out[i] = scale * (float)((low | two_bits(block + 128, i) << 4) - 32);
    }
}

/* Ternary: TQ1_0  five values a byte:48 | four values a byte:4 | d:2, TQ2_0  2-bit:64 | d:2. A byte
 * of TQ1_0 is a fraction of 256: multiplied by 3, the overflow is the next base-3 digit. The first
 * 32 bytes hold values i, i + 32, ..., the next 16 and the last 4 likewise. */
static void dequantize_tq1_0(const uint8_t *block, float *out)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    static const struct {
        int at, bytes, digits;
    } runs[3] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    float d = load_f16(block + 52);
    for (int r = 0; r < 3; r++)
        for (int digit = 0; digit < runs[r].digits; digit++)
            for (int i = 0; i < runs[r].bytes; i++) {
                uint8_t rest = (uint8_t)(block[runs[r].at + i] * powers[digit]);
                *out++ = d * (float)((rest * 3 >> 8) - 1);
            }
}

static void dequantize_tq2_0(const uint8_t *block, float *out)
{
    float d = load_f16(block + 64);
    for (int i = 0; i < SUPER_BLOCK; i++)
        out[i] = d * (float)(two_bits(block, i) - 1);
}

static void dequantize_lattice(enum tensor_type type, const uint8_t *block, float *out)
{
    const struct lattice *lattice = lattice_of(type);
    for (uint32_t p = 0; p < SUPER_BLOCK / LATTICE_PART; p++, out += LATTICE_PART) {
        struct lattice_part part;
        lattice->read(block, p, &part);
        float d = f16_to_f32(part.d) * lattice->unit;
        for (int i = 0; i < LATTICE_PART; i++)
            out[i] = d * (float)part.scale[i / 16] * (float)part.values[i];
    }
}

/* ---- types of directories ----------------------------------------------------------------- */

/* Values of `bits` bits one after the other, the lowest bit first. */
static void dequantize_bits(const uint8_t *block, int bits, float *out)
{
    uint32_t held = 0;
    int n_held = 0;
    for (int i = 0; i < SMALL_BLOCK; i++, held >>= bits, n_held -= bits) {
        for (; n_held < bits; n_held += 8)
            held |= (uint32_t)*block++ << n_held;
        out[i] = (float)(held & ((1u << bits) - 1));
    }
}

static void dequantize_fp4(const uint8_t *block, float *out)
{
    for (int i = 0; i < 2; i++) {
        int code = *block >> 4 * i & 15;
        float magnitude = (float)fp4_numbers[code & 7] / 2;
        out[i] = code < 8 ? magnitude : -magnitude; /* also of 0 */
    }
}

/* One number; the other types of one value a block are in dequantize. */
static float load_number(enum tensor_type type, const uint8_t *at)
{
    uint64_t bits = 0;
    double f64;
    memcpy(&bits, at, tensor_type_info(type)->block_bytes);
    switch (type) {
    case TENSOR_F8_E4M3: return f8_e4m3_to_f32((uint8_t)bits);
    case TENSOR_F8_E5M2: return f8_e5m2_to_f32((uint8_t)bits);
    case TENSOR_E8M0: return e8m0_to_f32((uint8_t)bits);
    case TENSOR_I8: return (float)(int8_t)bits;
    case TENSOR_I16: return (float)(int16_t)bits;
    case TENSOR_I32: return (float)(int32_t)bits;
    case TENSOR_I64: return (float)(int64_t)bits;
    case TENSOR_BOOL: return (float)(bits != 0);
    case TENSOR_F64: memcpy(&f64, &bits, sizeof f64); return (float)f64;
    default: return (float)bits;
    }
}

static void dequantize_affine(enum tensor_type type, const uint8_t *block, float *out)
{
    dequantize_bits(block, (int)tensor_type_info(type)->block_bytes / 4, out);
}

static void dequantize_number(enum tensor_type type, const uint8_t *block, float *out)
{
    *out = load_number(type, block);
}

static const struct format {
    struct tensor_type_info info;
    void (*dequantize_block)(const uint8_t *block, float *out);
    void (*dequantize_like)(enum tensor_type type, const uint8_t *block, float *out);
} formats[N_TENSOR_TYPES] = {
    [TENSOR_F32] = {{"F32", 1, 4}},
    [TENSOR_F16] = {{"F16", 1, 2}},
    [TENSOR_BF16] = {{"BF16", 1, 2}},
    [TENSOR_Q4_0] = {{"Q4_0", SMALL_BLOCK, 18}, dequantize_q4_0},
    [TENSOR_Q4_1] = {{"Q4_1", SMALL_BLOCK, 20}, dequantize_q4_1},
    [TENSOR_Q5_0] = {{"Q5_0", SMALL_BLOCK, 22}, dequantize_q5_0},
    [TENSOR_Q5_1] = {{"Q5_1", SMALL_BLOCK, 24}, dequantize_q5_1},
    [TENSOR_Q8_0] = {{"Q8_0", SMALL_BLOCK, 34}, dequantize_q8_0},
    [TENSOR_Q2_K] = {{"Q2_K", SUPER_BLOCK, 84}, dequantize_q2_k},
    [TENSOR_Q3_K] = {{"Q3_K", SUPER_BLOCK, 110}, dequantize_q3_k},
    [TENSOR_Q4_K] = {{"Q4_K", SUPER_BLOCK, 144}, dequantize_q4_k},
    [TENSOR_Q5_K] = {{"Q5_K", SUPER_BLOCK, 176}, dequantize_q5_k},
    [TENSOR_Q6_K] = {{"Q6_K", SUPER_BLOCK, 210}, dequantize_q6_k},
    [TENSOR_IQ1_S] = {{"IQ1_S", SUPER_BLOCK, 50}, NULL, dequantize_lattice},
    [TENSOR_IQ1_M] = {{"IQ1_M", SUPER_BLOCK, 56}, NULL, dequantize_lattice},
    [TENSOR_IQ2_XXS] = {{"IQ2_XXS", SUPER_BLOCK, 66}, NULL, dequantize_lattice},
    [TENSOR_IQ2_XS] = {{"IQ2_XS", SUPER_BLOCK, 74}, NULL, dequantize_lattice},
    [TENSOR_IQ2_S] = {{"IQ2_S", SUPER_BLOCK, 82}, NULL, dequantize_lattice},
    [TENSOR_IQ3_XXS] = {{"IQ3_XXS", SUPER_BLOCK, 98}, NULL, dequantize_lattice},
    [TENSOR_IQ3_S] = {{"IQ3_S", SUPER_BLOCK, 110}, NULL, dequantize_lattice},
    [TENSOR_IQ4_XS] = {{"IQ4_XS", SUPER_BLOCK, 136}, NULL, dequantize_lattice},
    [TENSOR_IQ4_NL] = {{"IQ4_NL", SMALL_BLOCK, 18}, dequantize_iq4_nl},
    [TENSOR_TQ1_0] = {{"TQ1_0", SUPER_BLOCK, 54}, dequantize_tq1_0},
    [TENSOR_TQ2_0] = {{"TQ2_0", SUPER_BLOCK, 66}, dequantize_tq2_0},
    [TENSOR_MXFP4] = {{"MXFP4", SMALL_BLOCK, 17}, dequantize_mxfp4},
    [TENSOR_NVFP4] = {{"NVFP4", 64, 36}, dequantize_nvfp4},
    [TENSOR_Q1_0] = {{"Q1_0", 128, 18}, dequantize_q1_0},
    [TENSOR_Q2_0] = {{"Q2_0", 64, 18}, dequantize_q2_0},
    [TENSOR_F8_E4M3] = {{"F8_E4M3", 1, 1}, NULL, dequantize_number},
    [TENSOR_F8_E5M2] = {{"F8_E5M2", 1, 1}, NULL, dequantize_number},
    [TENSOR_E8M0] = {{"E8M0", 1, 1}, NULL, dequantize_number},
    [TENSOR_FP4] = {{"FP4", 2, 1}, dequantize_fp4},
    [TENSOR_AFFINE_1] = {{"AFFINE_1", SMALL_BLOCK, 4}, NULL, dequantize_affine},
    [TENSOR_AFFINE_2] = {{"AFFINE_2", SMALL_BLOCK, 8}, NULL, dequantize_affine},
    [TENSOR_AFFINE_3] = {{"AFFINE_3", SMALL_BLOCK, 12}, NULL, dequantize_affine},
    [TENSOR_AFFINE_4] = {{"AFFINE_4", SMALL_BLOCK, 16}, NULL, dequantize_affine},
    [TENSOR_AFFINE_5] = {{"AFFINE_5", SMALL_BLOCK, 20}, NULL, dequantize_affine},
    [TENSOR_AFFINE_6] = {{"AFFINE_6", SMALL_BLOCK, 24}, NULL, dequantize_affine},
    [TENSOR_AFFINE_8] = {{"AFFINE_8", SMALL_BLOCK, 32}, NULL, dequantize_affine},
    [TENSOR_U8] = {{"U8", 1, 1}, NULL, dequantize_number},
    [TENSOR_I8] = {{"I8", 1, 1}, NULL, dequantize_number},
    [TENSOR_U16] = {{"U16", 1, 2}, NULL, dequantize_number},
    [TENSOR_I16] = {{"I16", 1, 2}, NULL, dequantize_number},
    [TENSOR_U32] = {{"U32", 1, 4}, NULL, dequantize_number},
    [TENSOR_I32] = {{"I32", 1, 4}, NULL, dequantize_number},
    [TENSOR_U64] = {{"U64", 1, 8}, NULL, dequantize_number},
    [TENSOR_I64] = {{"I64", 1, 8}, NULL, dequantize_number},
    [TENSOR_F64] = {{"F64", 1, 8}, NULL, dequantize_number},
    [TENSOR_BOOL] = {{"BOOL", 1, 1}, NULL, dequantize_number},
};

const struct tensor_type_info *tensor_type_info(uint32_t type)
{
    return type < N_TENSOR_TYPES && formats[type].info.name ? &formats[type].info : NULL;
}

void dequantize(enum tensor_type type, const void *blocks, float *out, size_t n)
{
    const uint8_t *at = blocks;
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    assert(info && n % info->block_len == 0);
    switch (type) {
    case TENSOR_F32: memcpy(out, at, n * sizeof *out); return;
    case TENSOR_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = load_f16(at + 2 * i);
        return;
    case TENSOR_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load_u16(at + 2 * i));
        return;
    default:
        for (size_t i = 0; i < n; i += info->block_len, at += info->block_bytes) {
            if (formats[type].dequantize_block)
                formats[type].dequantize_block(at, out + i);
            else
                formats[type].dequantize_like(type, at, out + i);
        }
    }
}
