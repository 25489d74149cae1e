/* What matmul_tile.h asks of 512-bit registers, with VNNI's dot product where the file that
 * includes this is compiled for it. A register is the 16 outputs of a panel.
 *
 * Broadcasts of activations are written so that compilers make them operands in memory. */
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

static inline vi load_nibbles(const uint8_t *quants, int high)
{
    vi packed = _mm512_loadu_si512(quants);
    return _mm512_and_si512(high ? _mm512_srli_epi16(packed, 4) : packed, _mm512_set1_epi8(15));
}

#if defined(__AVX512VNNI__)
/* Unsigned weights times signed activations, summed by fours into 32 bits. */
enum { DOT8_SIGNED = 0, ROWS_ONE_PART = 12 };

struct steps {
    vi weights;
};

static inline struct steps steps_load8(const uint8_t *quants, int32_t zero)
{
    (void)zero; /* corrected by the sum of the activations */
    return (struct steps){_mm512_loadu_si512(quants)};
}

static inline struct steps steps_load4(const uint8_t *quants, int high)
{
    return (struct steps){load_nibbles(quants, high)};
}

static inline vi dot8(vi acc, struct steps w, const int8_t *x)
{
    return _mm512_dpbusd_epi32(acc, w.weights, broadcast4(x));
}

static inline vi dot4(vi acc, struct steps w, const int8_t *x)
{
    return _mm512_dpbusd_epi32(acc, w.weights, broadcast4(x));
}

static inline vi dot4_finish(vi acc)
{
    return acc;
}
#else
/* 8 bits: |w| times x with the sign of w, so that a pair of products fits 16 bits (2 * 128 * 127).
 * 4 bits: the pairs of a whole block fit (8 * 2 * 15 * 127), and are widened once at its end. */
enum { DOT8_SIGNED = 1, ROWS_ONE_PART = 6 };

struct steps {
    vi weights;
    __mmask64 negative;
};

static inline struct steps steps_load8(const uint8_t *quants, int32_t zero)
{
    vi w = _mm512_sub_epi8(_mm512_loadu_si512(quants), _mm512_set1_epi8((char)zero));
    return (struct steps){_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}

static inline struct steps steps_load4(const uint8_t *quants, int high)
{
    return (struct steps){load_nibbles(quants, high), 0};
}

static inline vi dot8(vi acc, struct steps w, const int8_t *x)
{
    vi four = broadcast4(x);
    vi signed_four = _mm512_mask_sub_epi8(four, w.negative, vi_zero(), four);
    vi pairs = _mm512_maddubs_epi16(w.weights, signed_four);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

static inline vi dot4(vi acc, struct steps w, const int8_t *x)
{
    return _mm512_add_epi16(acc, _mm512_maddubs_epi16(w.weights, broadcast4(x)));
}

static inline vi dot4_finish(vi acc)
{
    return _mm512_madd_epi16(acc, _mm512_set1_epi16(1));
}
#endif
