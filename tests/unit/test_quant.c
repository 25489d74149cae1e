/* The type table, half floats over their whole range, and every dequantizer against the goldens
 * of the reference implementation, bit by bit. */
#include "test.h"
#include "test_files.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/quant/quant.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A half as defined by IEEE 754, by arithmetic that shares nothing with the code under test. */
static double half_meaning(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude;
    if (exponent == 31)
        magnitude = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(mantissa, -24);
    else
        magnitude = ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

TEST(quant, every_half_widens_exactly)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        double want = half_meaning((uint16_t)h);
        float got = f16_to_f32((uint16_t)h);
        if (isnan(want))
            CHECK(isnan(got));
        else
            CHECK(got == want);
        CHECK_INT(!!signbit(got), h >> 15);
        if (isnan(want))
            CHECK((bits_of(got) & 0x400000) != 0); /* quiet */
    }
}

TEST(quant, every_half_survives_the_round_trip)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t back = f32_to_f16(f16_to_f32((uint16_t)h));
        if (isnan(half_meaning((uint16_t)h)))
            CHECK_INT(back, h | 0x200);
        else
            CHECK_INT(back, h);
    }
}

/* Between two neighbouring halves there is one tie, which rounds to the even one; its neighbours
 * round to the nearer one. That is all of rounding. */
TEST(quant, halves_round_to_nearest_even)
{
    for (uint16_t h = 0; h < 0x7c00; h++) {
        double above = h == 0x7bff ? 65536.0 : half_meaning((uint16_t)(h + 1));
        float tie = (float)((half_meaning(h) + above) / 2);
        uint16_t even = h & 1 ? (uint16_t)(h + 1) : h;
        for (int sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            uint16_t top = sign ? 0x8000 : 0;
            CHECK_INT(f32_to_f16(s * tie), even | top);
            CHECK_INT(f32_to_f16(s * nextafterf(tie, 0)), h | top);
            CHECK_INT(f32_to_f16(s * nextafterf(tie, INFINITY)), (h + 1) | top);
        }
    }
    CHECK_INT(f32_to_f16(INFINITY), 0x7c00);
    CHECK_INT(f32_to_f16(-INFINITY), 0xfc00);
    CHECK_INT(f32_to_f16(3.4e38f), 0x7c00);
    CHECK_INT(f32_to_f16(float_of(1)), 0); /* the smallest float */
    CHECK_INT(f32_to_f16(float_of(0x80000001)), 0x8000);
    CHECK_INT(f32_to_f16(float_of(0x7f800001)), 0x7e00); /* signalling NaN */
    CHECK_INT(f32_to_f16(float_of(0xffffffff)), 0xffff);
}

TEST(quant, bf16_rounds_to_nearest_even)
{
    for (uint32_t b = 0; b < 0x10000; b++) {
        float value = bf16_to_f32((uint16_t)b);
        CHECK_INT(bits_of(value), b << 16);
        if (isnan(value)) {
            CHECK_INT(f32_to_bf16(value), b | 0x40);
            continue;
        }
        CHECK_INT(f32_to_bf16(value), b);
        if (isinf(value))
            continue;
        CHECK_INT(f32_to_bf16(float_of((b << 16) + 0x7fff)), b);
        CHECK_INT(f32_to_bf16(float_of((b << 16) + 0x8000)), b + (b & 1));
        CHECK_INT(f32_to_bf16(float_of((b << 16) + 0x8001)), b + 1);
    }
    CHECK_INT(f32_to_bf16(float_of(0x7f800001)), 0x7fc0);
}

TEST(quant, the_table_knows_its_types_and_no_others)
{
    int known = 0;
    for (uint32_t type = 0; type < N_GGUF_TYPES; type++)
        known += tensor_type_info(type) != NULL;
    CHECK_INT(known, 28);
    for (uint32_t type = N_GGUF_TYPES; type < 300; type++)
        CHECK_INT(tensor_type_info(type) != NULL, type >= TENSOR_F8_E4M3 && type < N_TENSOR_TYPES);
    CHECK(!tensor_type_info(9));
    CHECK(!tensor_type_info(24));
    CHECK(!tensor_type_info(31));
    CHECK(!tensor_type_info(UINT32_MAX));
    CHECK_STR(tensor_type_info(TENSOR_Q4_1)->name, "Q4_1");
    CHECK_INT(tensor_type_info(TENSOR_Q4_1)->block_bytes, 20);
    CHECK_INT(tensor_type_info(TENSOR_Q6_K)->block_len, 256);
    CHECK_STR(tensor_type_info(20)->name, "IQ4_NL");
    CHECK_STR(tensor_type_info(39)->name, "MXFP4");
    CHECK_INT(tensor_type_info(39)->block_bytes, 17);
    CHECK_INT(tensor_type_info(TENSOR_AFFINE_3)->block_bytes, 12);
    CHECK_INT(tensor_type_info(TENSOR_FP4)->block_len, 2);
}

/* What the definition of a small float says, by arithmetic: exponent 0 has no leading one. */
static double small_meaning(uint8_t bits, int mantissa_bits, int bias)
{
    int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    double magnitude = exponent ? ldexp((1 << mantissa_bits) + mantissa, exponent - 1) : mantissa;
    magnitude = ldexp(magnitude, 1 - bias - mantissa_bits);
    return bits & 0x80 ? -magnitude : magnitude;
}

TEST(quant, every_small_float_widens_exactly)
{
    for (uint32_t b = 0; b < 256; b++) {
        float e4m3 = f8_e4m3_to_f32((uint8_t)b), e5m2 = f8_e5m2_to_f32((uint8_t)b);
        CHECK_INT(!!signbit(e4m3), b >> 7);
        CHECK_INT(!!signbit(e5m2), b >> 7);
        if ((b & 0x7f) == 0x7f)
            CHECK(isnan(e4m3));
        else
            CHECK(e4m3 == small_meaning((uint8_t)b, 3, 7));
        if ((b & 0x7f) > 0x7c)
            CHECK(isnan(e5m2));
        else if ((b & 0x7f) == 0x7c)
            CHECK(isinf(e5m2));
        else
            CHECK(e5m2 == small_meaning((uint8_t)b, 2, 15));
        CHECK(b == 255 ? isnan(e8m0_to_f32(255))
                       : e8m0_to_f32((uint8_t)b) == ldexp(1, (int)b - 127));
    }
}

/* Tensors that are no weights can still be read as vectors. */
TEST(quant, numbers_of_directories_become_floats)
{
    static const struct {
        enum tensor_type type;
        uint8_t bytes[8];
        float want;
    } cases[] = {
        {TENSOR_U8, {200}, 200},
        {TENSOR_I8, {200}, -56},
        {TENSOR_U16, {0, 0x80}, 32768},
        {TENSOR_I16, {0, 0x80}, -32768},
        {TENSOR_U32, {0, 0, 0, 0x80}, 0x1p31f},
        {TENSOR_I32, {0, 0, 0, 0x80}, -0x1p31f},
        {TENSOR_U64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 0x1p63f},
        {TENSOR_I64, {0, 0, 0, 0, 0, 0, 0, 0x80}, -0x1p63f},
        {TENSOR_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5f},
        {TENSOR_BOOL, {255}, 1},
        {TENSOR_BOOL, {0}, 0},
        {TENSOR_E8M0, {126}, 0.5f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got;
        dequantize(cases[i].type, cases[i].bytes, &got, 1);
        CHECK(got == cases[i].want);
    }
}

/* All bytes equal, for every byte and type, so that some scales are NaN or infinite: any value may
 * result, but no undefined behaviour. */
TEST(quant, hostile_blocks_do_no_harm)
{
    static const uint8_t bytes[] = {0x00, 0x7c, 0x7e, 0x7f, 0x80, 0xfc, 0xff};
    for (uint32_t type = 0; type < N_TENSOR_TYPES; type++)
        for (size_t i = 0; tensor_type_info(type) && i < sizeof bytes; i++) {
            uint8_t block[256];
            float values[256] = {0};
            memset(block, bytes[i], sizeof block);
            dequantize((enum tensor_type)type, block, values, tensor_type_info(type)->block_len);
            if (bytes[i] == 0)
                CHECK(values[0] <= 0 || type == TENSOR_E8M0);
        }
}

/* Also from an odd address into memory of the exact size, so that the sanitizer sees a byte too
 * many on either side and an aligned access that is not one. */
static void check_entry(uint32_t type, const uint8_t *blocks, uint32_t n_bytes, const float *want,
                        uint32_t n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    CHECK(info != NULL);
    CHECK_INT(n_bytes, n / info->block_len * info->block_bytes);
    uint8_t *odd = malloc(n_bytes + 1);
    float *got = malloc(n * sizeof *got);
    CHECK(odd && got);
    memcpy(odd + 1, blocks, n_bytes);
    dequantize((enum tensor_type)type, odd + 1, got, n);
    for (uint32_t i = 0; i < n; i++)
        if (bits_of(got[i]) != bits_of(want[i]))
            test_fail(__FILE__, __LINE__, "%s: value %u is %a, the reference says %a", info->name,
                      i, (double)got[i], (double)want[i]);
    free(odd);
    free(got);
}

TEST(quant, dequantizers_equal_the_reference_bit_by_bit)
{
    size_t len;
    uint8_t *file = test_file_read("tests/unit/data/quant_goldens.bin", &len);
    CHECK(len > 4 && memcmp(file, "RQG1", 4) == 0);
    bool seen[N_TENSOR_TYPES] = {false};
    int entries = 0;
    for (size_t at = 4; at < len; entries++) {
        uint32_t head[3];
        memcpy(head, file + at, sizeof head);
        CHECK(head[0] < N_TENSOR_TYPES);
        seen[head[0]] = true;
        at += sizeof head;
        float *want = malloc(head[1] * sizeof *want);
        CHECK(want != NULL);
        memcpy(want, file + at + head[2], head[1] * sizeof *want);
        check_entry(head[0], file + at, head[2], want, head[1]);
        free(want);
        at += head[2] + head[1] * sizeof *want;
    }
    CHECK_INT(entries, 28);
    for (uint32_t type = 0; type < N_GGUF_TYPES; type++)
        CHECK_INT(seen[type], tensor_type_info(type) != NULL);
    free(file);
}
