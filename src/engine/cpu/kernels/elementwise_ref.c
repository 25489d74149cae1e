/* Element-wise functions without vector instructions: 16 floats are an array. fmaf is one rounding,
 * with or without hardware for it. */
#include "engine/cpu/kernels/elementwise.h"

#include <math.h>
#include <string.h>

struct wide {
    float at[16];
};

#define EACH(expression)                                                                           \
    struct wide out;                                                                               \
    for (uint32_t i = 0; i < 16; i++)                                                              \
        out.at[i] = (expression);                                                                  \
    return out

static struct wide wide_load(const float *x, uint32_t n)
{
    EACH(i < n ? x[i] : 0.0f);
}

static void wide_store(float *x, uint32_t n, struct wide v)
{
    memcpy(x, v.at, (n < 16 ? n : 16) * sizeof *x);
}

static struct wide wide_first(struct wide v, uint32_t n)
{
    EACH(i < n ? v.at[i] : 0.0f);
}

static struct wide wide_set(float x)
{
    EACH(x);
}

static struct wide wide_add(struct wide a, struct wide b)
{
    EACH(a.at[i] + b.at[i]);
}

static struct wide wide_sub(struct wide a, struct wide b)
{
    EACH(a.at[i] - b.at[i]);
}

static struct wide wide_mul(struct wide a, struct wide b)
{
    EACH(a.at[i] * b.at[i]);
}

static struct wide wide_div(struct wide a, struct wide b)
{
    EACH(a.at[i] / b.at[i]);
}

static struct wide wide_fma(struct wide a, struct wide b, struct wide c)
{
    EACH(fmaf(a.at[i], b.at[i], c.at[i]));
}

static struct wide wide_min(struct wide a, struct wide b)
{
    EACH(a.at[i] < b.at[i] ? a.at[i] : b.at[i]);
}

static struct wide wide_max(struct wide a, struct wide b)
{
    EACH(a.at[i] > b.at[i] ? a.at[i] : b.at[i]);
}

static struct wide wide_abs(struct wide v)
{
    EACH(fabsf(v.at[i]));
}

static struct wide wide_negate(struct wide v)
{
    EACH(-v.at[i]);
}

static struct wide wide_if_less(struct wide a, struct wide b, struct wide yes, struct wide no)
{
    EACH(a.at[i] < b.at[i] ? yes.at[i] : no.at[i]);
}

static float power_of(float t)
{
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    memcpy(&t, &bits, sizeof t);
    return t;
}

static struct wide wide_power(struct wide t)
{
    EACH(power_of(t.at[i]));
}

static float wide_fold(struct wide v)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v.at[i] += v.at[i + half];
    return v.at[0];
}

#include "engine/cpu/kernels/elementwise_loops.h"

const struct elementwise_kernels elementwise_kernels_ref = ELEMENTWISE_KERNELS;
