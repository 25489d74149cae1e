/* The operations that matmul_tile.h needs, on 512-bit registers, with VNNI's dot product if the
 * including file is compiled for it. A register holds the 16 outputs of a panel.
 *
 * Broadcasts of activations are written so that compilers turn them into memory operands. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, ROWS_TWO_PARTS = 6, ROWS_FLOATS = 12 };

typedef __m512 vf;
typedef __m512i vi;

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vf vf_set1(float value)
{
    return _mm512_set1_ps(value);
}

static inline vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

/* 8-bit weights; E4M3 ones come out 2^-8 times as large. */
static inline vf vf_load_e4m3(const void *p)
{
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)));
}

static inline vf vf_load_e5m2(const void *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 8));
}

/* The same without sign: 0xff is NaN. */
static inline vf vf_load_e4m3_scale(const void *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7));
}

static inline vf vf_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

static inline vf vf_from_vi(vi value)
{
    return _mm512_cvtepi32_ps(value);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline void vf_store(float *p, vf value)
{
    _mm512_storeu_ps(p, value);
}

static inline void vf_store_some(float *p, vf value, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), value);
}

static inline vi broadcast4(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline vi vi_set1(char value)
{
    return _mm512_set1_epi8(value);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

static inline vi vi_shift_right(vi a, unsigned bits)
{
    return _mm512_srli_epi16(a, bits);
}

static inline vi vi_shift_left(vi a, unsigned bits)
{
    return _mm512_slli_epi16(a, bits);
}

static inline vi vi_table(const uint8_t *table)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table));
}

static inline vi vi_lookup(vi table, vi at)
{
    return _mm512_shuffle_epi8(table, at);
}

#if defined(__AVX512VNNI__)
/* Unsigned quants times signed activations, summed by fours into 32 bits. */
#define DOT_BY_FOURS 1
enum { ROWS_ONE_PART = 12, ROWS_8_BITS = 12, ROWS_8_BITS_WIDE = 12 };

static inline vi vi_dot4(vi acc, vi quants, vi x)
{
    return _mm512_dpbusd_epi32(acc, quants, x);
}
#else
#define DOT_BY_FOURS 0
enum { ROWS_ONE_PART = 6, ROWS_8_BITS = 6, ROWS_8_BITS_WIDE = 6 };

static inline vi vi_pairs(vi quants, vi x)
{
    return _mm512_maddubs_epi16(quants, x);
}

static inline vi vi_add16(vi a, vi b)
{
    return _mm512_add_epi16(a, b);
}

static inline vi vi_add32(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_widen(vi pairs, short factor)
{
    return _mm512_madd_epi16(pairs, _mm512_set1_epi16(factor));
}
#endif
