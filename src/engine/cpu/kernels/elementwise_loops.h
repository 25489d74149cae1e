/* The functions of elementwise.h. The including file must define `struct wide`, a vector of 16
 * floats, and these operations:
 *
 *   wide_load(x, n), wide_store(x, n, v)      the first n floats, at most 16; the others load as 0
 *   wide_first(v, n)                          the first n as they are, the others 0
 *   wide_set, wide_add, wide_sub, wide_mul, wide_div, wide_fma(a, b, c) = a * b + c
 *   wide_min, wide_max                        the second if one is NaN
 *   wide_abs, wide_negate
 *   wide_if_less(a, b, yes, no)               `no` if one is NaN
 *   wide_power(t)                             2^n, of the n in the low bits of t = n + EXP_MAGIC
 *   wide_fold(v)                              the sum of the lanes, by halves */

#include <math.h>
#include <stddef.h>

#include "engine/cpu/kernels/exponential.h"

/* erfc(z) = e^(-z^2) * t * P(t) with t = 1 / (1 + 0.35 z), for z >= 0. P was fitted for the
 * smallest relative error, 7e-9, up to z = 10, well past the point where e^(-z^2) is 0. */
#define ERFC_SLOPE 0.35f
#define ERFC_C0    0x1.947260p-3f
#define ERFC_C1    0x1.93bd46p-3f
#define ERFC_C2    0x1.80d2fap-3f
#define ERFC_C3    0x1.35a11ep-3f
#define ERFC_C4    0x1.2b181ep-3f
#define ERFC_C5    0x1.646e02p-4f
#define ERFC_C6    -0x1.c5ef32p-6f
#define ERFC_C7    0x1.73a214p-3f
#define ERFC_C8    -0x1.457c42p-3f
#define ERFC_C9    0x1.3a94e6p-5f

enum { LANES = 16 };

static inline struct wide wide_exponential(struct wide x)
{
    struct wide at_most = wide_min(wide_set(EXP_MAX), x), magic = wide_set(EXP_MAGIC);
    struct wide t = wide_fma(at_most, wide_set(EXP_LOG2E), magic);
    struct wide n = wide_sub(t, magic);
    struct wide r = wide_fma(n, wide_set(-EXP_LN2_HIGH), at_most);
    r = wide_fma(n, wide_set(-EXP_LN2_LOW), r);
    struct wide p = wide_fma(r, wide_set(EXP_C4), wide_set(EXP_C3));
    p = wide_fma(r, p, wide_set(EXP_C2));
    p = wide_fma(r, p, wide_set(EXP_C1));
    p = wide_fma(r, p, wide_set(EXP_C0));
    p = wide_add(wide_fma(wide_mul(r, r), p, r), wide_set(1.0f));
    return wide_if_less(x, wide_set(EXP_MIN), wide_set(0.0f), wide_mul(p, wide_power(t)));
}

/* x / (1 + e^-y) */
static inline struct wide wide_gate(struct wide x, struct wide y)
{
    return wide_div(x, wide_add(wide_set(1.0f), wide_exponential(wide_negate(y))));
}

/* x times the share of a normal distribution that is below x */
static inline struct wide wide_gelu(struct wide x)
{
    static const float c[] = {ERFC_C8, ERFC_C7, ERFC_C6, ERFC_C5, ERFC_C4,
                              ERFC_C3, ERFC_C2, ERFC_C1, ERFC_C0};
    struct wide one = wide_set(1.0f), z = wide_mul(wide_abs(x), wide_set(0x1.6a09e6p-1f));
    struct wide t = wide_div(one, wide_fma(z, wide_set(ERFC_SLOPE), one));
    struct wide p = wide_set(ERFC_C9);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        p = wide_fma(t, p, wide_set(c[i]));
    struct wide e = wide_exponential(wide_negate(wide_mul(z, z)));
    struct wide half = wide_mul(wide_mul(wide_mul(t, wide_set(0.5f)), p), e);
    return wide_mul(x, wide_if_less(x, wide_set(0.0f), half, wide_sub(one, half)));
}

/* 0.5 x (1 + tanh(y)) = x / (1 + e^-2y), with y = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline struct wide wide_gelu_tanh(struct wide x)
{
    struct wide cubic = wide_fma(wide_mul(x, x), wide_set(0.044715f), wide_set(1.0f));
    return wide_gate(x, wide_mul(wide_mul(x, wide_set(0x1.9884540p0f)), cubic));
}

static void norm(enum norm_kind kind, const float *x, const float *weight, float *out, uint32_t n,
                 float eps)
{
    struct wide sum = wide_set(0.0f), mean = wide_set(0.0f), squares = wide_set(0.0f);
    if (kind == NORM_LAYER) {
        for (uint32_t i = 0; i < n; i += LANES)
            sum = wide_add(sum, wide_load(x + i, n - i));
        mean = wide_set(wide_fold(sum) / (float)n);
    }
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide v = wide_first(wide_sub(wide_load(x + i, n - i), mean), n - i);
        squares = wide_fma(v, v, squares);
    }
    struct wide scale = wide_set(1.0f / sqrtf(wide_fold(squares) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide v = wide_mul(wide_sub(wide_load(x + i, n - i), mean), scale);
        if (weight)
            v = wide_mul(v, wide_load(weight + i, n - i));
        wide_store(out + i, n - i, v);
    }
}

static void activate(enum activation kind, float limit, const float *gate, const float *up,
                     float *out, uint32_t n)
{
    struct wide most = wide_set(limit), least = wide_set(-limit);
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide g = wide_load(gate + i, n - i);
        struct wide u = up ? wide_load(up + i, n - i) : wide_set(1.0f);
        switch (kind) {
        case ACTIVATION_SILU: g = wide_gate(g, g); break;
        case ACTIVATION_GELU_TANH: g = wide_gelu_tanh(g); break;
        case ACTIVATION_GELU: g = wide_gelu(g); break;
        case ACTIVATION_SWIGLU_OAI:
            g = wide_min(most, g);
            g = wide_gate(g, wide_mul(g, wide_set(1.702f)));
            u = wide_add(wide_max(least, wide_min(most, u)), wide_set(1.0f));
            break;
        }
        wide_store(out + i, n - i, wide_mul(g, u));
    }
}

static void add_scaled(float *acc, const float *x, float scale, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        wide_store(acc + i, n - i,
                   wide_fma(wide_load(x + i, n - i), wide_set(scale), wide_load(acc + i, n - i)));
}

static void scale(float *x, float factor, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        wide_store(x + i, n - i, wide_mul(wide_load(x + i, n - i), wide_set(factor)));
}

static void multiply(float *x, const float *weight, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        wide_store(x + i, n - i, wide_mul(wide_load(x + i, n - i), wide_load(weight + i, n - i)));
}

static void sigmoid(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        wide_store(x + i, n - i, wide_gate(wide_set(1.0f), wide_load(x + i, n - i)));
}

static void softmax(float *x, uint32_t n)
{
    struct wide sum = wide_set(0.0f);
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide v = wide_exponential(wide_sub(wide_load(x + i, n - i), wide_set(max)));
        sum = wide_add(sum, wide_first(v, n - i));
        wide_store(x + i, n - i, v);
    }
    struct wide total = wide_set(wide_fold(sum));
    for (uint32_t i = 0; i < n; i += LANES)
        wide_store(x + i, n - i, wide_div(wide_load(x + i, n - i), total));
}

#define ELEMENTWISE_KERNELS                                                                        \
    {                                                                                              \
        norm, activate, add_scaled, scale, multiply, sigmoid, softmax                              \
    }
