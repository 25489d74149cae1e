/* Products of packed matrices with AVX2, FMA and F16C: the operations that matmul_tile.h needs, for
 * 256-bit registers. A register is half a panel: 8 outputs. Also quantises activations for all x86
 * paths; wider registers would not make that noticeably faster. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, ROWS_ONE_PART = 3, ROWS_TWO_PARTS = 3, ROWS_8_BITS = 4, ROWS_FLOATS = 6 };
enum { ROWS_8_BITS_WIDE = 2 };

typedef __m256 vf;
typedef __m256i vi;

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vf vf_set1(float value)
{
    return _mm256_set1_ps(value);
}

static inline vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}

static inline vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

/* Weights of 8 bits; E4M3 is scaled by 2^-8. */
static inline vf vf_load_e4m3(const void *p)
{
    __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16((short)0xbfff)));
}

static inline vf vf_load_e5m2(const void *p)
{
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64(p)));
}

/* The same without sign: 0xff is NaN. */
static inline vf vf_load_e4m3_scale(const void *p)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7));
}

static inline vf vf_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}

static inline vf vf_from_vi(vi value)
{
    return _mm256_cvtepi32_ps(value);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline void vf_store(float *p, vf value)
{
    _mm256_storeu_ps(p, value);
}

static inline void vf_store_some(float *p, vf value, uint32_t n)
{
    float values[LANES];
    _mm256_storeu_ps(values, value);
    memcpy(p, values, (n < LANES ? n : LANES) * sizeof *p);
}

static inline vi broadcast4(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline vi vi_set1(char value)
{
    return _mm256_set1_epi8(value);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

static inline vi vi_shift_right(vi a, int bits)
{
    return _mm256_srli_epi16(a, bits);
}

static inline vi vi_shift_left(vi a, int bits)
{
    return _mm256_slli_epi16(a, bits);
}

static inline vi vi_table(const uint8_t *table)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
}

static inline vi vi_lookup(vi table, vi at)
{
    return _mm256_shuffle_epi8(table, at);
}

static inline vi vi_pairs(vi quants, vi x)
{
    return _mm256_maddubs_epi16(quants, x);
}

static inline vi vi_add16(vi a, vi b)
{
    return _mm256_add_epi16(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static inline vi vi_widen(vi pairs, short factor)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor));
}

#define DOT_BY_FOURS 0
#include "engine/cpu/kernels/matmul_tile.h"

static float largest_magnitude(const vf *x)
{
    vi abs_bits = _mm256_set1_epi32(0x7fffffff), largest = vi_zero();
    for (int i = 0; i < 4; i++)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(x[i]), abs_bits));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest),
                                 _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

/* See quantize_row_ref for very small, infinite and NaN values. */
static void quantize_block(const float *from, struct act_block *to, uint32_t at)
{
    vf x[4];
    for (int i = 0; i < 4; i++)
        x[i] = _mm256_loadu_ps(from + i * 8);
    float scale = largest_magnitude(x) / 127;
    vi quants = vi_zero();
    if (scale >= FLT_MIN && scale <= FLT_MAX) {
        vf inverse = _mm256_set1_ps(1 / scale);
        vi q[4];
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
        quants = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        quants = _mm256_permutevar8x32_epi32(quants, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    _mm256_storeu_si256((void *)to->quants[at], quants);
    vi pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), quants);
    vi fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
    int first = _mm256_extract_epi32(fours, 0), second = _mm256_extract_epi32(fours, 4);
    to->scale[at] = scale < FLT_MIN ? 0 : scale;
    to->sum[at] = (float)(first + second);
    to->half_sum[0][at] = (float)first;
    to->half_sum[1][at] = (float)second;
}

void quantize_row_avx2(const float *x, uint32_t cols, uint32_t row, struct act_block *q8)
{
    uint32_t whole = cols / ACT_BLOCK;
    q8 += row / ROW_TILE * (size_t)act_blocks(cols);
    for (uint32_t b = 0; b < whole; b++)
        quantize_block(x + b * ACT_BLOCK, &q8[b], row % ROW_TILE);
    if (cols % ACT_BLOCK) {
        float last[ACT_BLOCK] = {0};
        memcpy(last, x + whole * ACT_BLOCK, cols % ACT_BLOCK * sizeof *x);
        quantize_block(last, &q8[whole], row % ROW_TILE);
    }
}

const struct matmul_kernels matmul_kernels_avx2 = {quantize_row_avx2, matmul_tiles};
#endif
