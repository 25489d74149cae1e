/* Element-wise functions in 512-bit registers: one of them is 16 floats, and a tail is a mask. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/elementwise.h"

#include <immintrin.h>

struct wide {
    __m512 all;
};

#define ONE(expression)                                                                            \
    return (struct wide)                                                                           \
    {                                                                                              \
        expression                                                                                 \
    }

static inline __mmask16 first_mask(uint32_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

static inline struct wide wide_load(const float *x, uint32_t n)
{
    ONE(_mm512_maskz_loadu_ps(first_mask(n), x));
}

static inline void wide_store(float *x, uint32_t n, struct wide v)
{
    _mm512_mask_storeu_ps(x, first_mask(n), v.all);
}

static inline struct wide wide_first(struct wide v, uint32_t n)
{
    ONE(_mm512_maskz_mov_ps(first_mask(n), v.all));
}

static inline struct wide wide_set(float x)
{
    ONE(_mm512_set1_ps(x));
}

static inline struct wide wide_add(struct wide a, struct wide b)
{
    ONE(_mm512_add_ps(a.all, b.all));
}

static inline struct wide wide_sub(struct wide a, struct wide b)
{
    ONE(_mm512_sub_ps(a.all, b.all));
}

static inline struct wide wide_mul(struct wide a, struct wide b)
{
    ONE(_mm512_mul_ps(a.all, b.all));
}

static inline struct wide wide_div(struct wide a, struct wide b)
{
    ONE(_mm512_div_ps(a.all, b.all));
}

static inline struct wide wide_fma(struct wide a, struct wide b, struct wide c)
{
    ONE(_mm512_fmadd_ps(a.all, b.all, c.all));
}

static inline struct wide wide_min(struct wide a, struct wide b)
{
    ONE(_mm512_min_ps(a.all, b.all));
}

static inline struct wide wide_max(struct wide a, struct wide b)
{
    ONE(_mm512_max_ps(a.all, b.all));
}

static inline struct wide wide_abs(struct wide v)
{
    ONE(_mm512_andnot_ps(_mm512_set1_ps(-0.0f), v.all));
}

static inline struct wide wide_negate(struct wide v)
{
    ONE(_mm512_xor_ps(_mm512_set1_ps(-0.0f), v.all));
}

static inline struct wide wide_if_less(struct wide a, struct wide b, struct wide yes,
                                       struct wide no)
{
    ONE(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ), no.all, yes.all));
}

static inline struct wide wide_power(struct wide t)
{
    ONE(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t.all), 23),
                                             _mm512_set1_epi32(0x3f800000))));
}

static inline float wide_fold(struct wide v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v.all), _mm512_extractf32x8_ps(v.all, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "engine/cpu/kernels/elementwise_loops.h"

const struct elementwise_kernels elementwise_kernels_avx512 = ELEMENTWISE_KERNELS;
#endif
