/* Element-wise functions in 256-bit registers: two of them are 16 floats. A tail goes through a
 * small buffer of zeros. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/elementwise.h"

#include <immintrin.h>
#include <string.h>

struct wide {
    __m256 low, high;
};

#define BOTH(expression_low, expression_high)                                                      \
    return (struct wide)                                                                           \
    {                                                                                              \
        expression_low, expression_high                                                            \
    }

static inline struct wide wide_load(const float *x, uint32_t n)
{
    if (n >= 16)
        BOTH(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
    _Alignas(32) float buffer[16] = {0};
    memcpy(buffer, x, n * sizeof *x);
    BOTH(_mm256_load_ps(buffer), _mm256_load_ps(buffer + 8));
}

static inline void wide_store(float *x, uint32_t n, struct wide v)
{
    if (n >= 16) {
        _mm256_storeu_ps(x, v.low);
        _mm256_storeu_ps(x + 8, v.high);
        return;
    }
    _Alignas(32) float buffer[16];
    _mm256_store_ps(buffer, v.low);
    _mm256_store_ps(buffer + 8, v.high);
    memcpy(x, buffer, n * sizeof *x);
}

static inline struct wide wide_first(struct wide v, uint32_t n)
{
    if (n >= 16)
        return v;
    _Alignas(32) float buffer[16];
    _mm256_store_ps(buffer, v.low);
    _mm256_store_ps(buffer + 8, v.high);
    return wide_load(buffer, n);
}

static inline struct wide wide_set(float x)
{
    BOTH(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static inline struct wide wide_add(struct wide a, struct wide b)
{
    BOTH(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high));
}

static inline struct wide wide_sub(struct wide a, struct wide b)
{
    BOTH(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high));
}

static inline struct wide wide_mul(struct wide a, struct wide b)
{
    BOTH(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high));
}

static inline struct wide wide_div(struct wide a, struct wide b)
{
    BOTH(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high));
}

static inline struct wide wide_fma(struct wide a, struct wide b, struct wide c)
{
    BOTH(_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high));
}

static inline struct wide wide_min(struct wide a, struct wide b)
{
    BOTH(_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high));
}

static inline struct wide wide_max(struct wide a, struct wide b)
{
    BOTH(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high));
}

static inline struct wide wide_abs(struct wide v)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    BOTH(_mm256_andnot_ps(sign, v.low), _mm256_andnot_ps(sign, v.high));
}

static inline struct wide wide_negate(struct wide v)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    BOTH(_mm256_xor_ps(sign, v.low), _mm256_xor_ps(sign, v.high));
}

static inline struct wide wide_if_less(struct wide a, struct wide b, struct wide yes,
                                       struct wide no)
{
    BOTH(_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
         _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)));
}

static inline __m256 half_power(__m256 t)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                                _mm256_set1_epi32(0x3f800000)));
}

static inline struct wide wide_power(struct wide t)
{
    BOTH(half_power(t.low), half_power(t.high));
}

static inline float wide_fold(struct wide v)
{
    __m256 a = _mm256_add_ps(v.low, v.high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "engine/cpu/kernels/elementwise_loops.h"

const struct elementwise_kernels elementwise_kernels_avx2 = ELEMENTWISE_KERNELS;
#endif
