/* Converts floats to blocks; see quantize.h, and quant.c for the layout of blocks. Any thread.
 *
 * A super-block is fitted in two steps: first a freely chosen scale (and minimum) for each
 * sub-block; then all of these are rounded to a few bits of one common scale, and the values are
 * rounded again with the scale that the sub-block really got. Careful: the largest value in
 * magnitude must map to the end of the range that goes further (-8 of -8 .. 7), otherwise half of
 * the precision is lost. */
#include "model/quant/quantize.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { SMALL_BLOCK = 32, SUPER_BLOCK = 256, TRIES = 9 };

static void store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static float store_f16(uint8_t *at, float value)
{
    uint16_t half = f32_to_f16(value);
    store_u16(at, half);
    return f16_to_f32(half);
}

static int clamp(int value, int min, int max)
{
    return value < min ? min : value > max ? max : value;
}

/* ---- small blocks -------------------------------------------------------------------------- */

/* The value with the largest magnitude, with its sign. */
static float extreme(const float *x, int n)
{
    float largest = 0, value = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > largest) {
            largest = fabsf(x[i]);
            value = x[i];
        }
    return value;
}

static void store_nibbles(const int *q, uint8_t *nibbles)
{
    for (int i = 0; i < 16; i++)
        nibbles[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void store_high_bits(const int *q, uint8_t *high)
{
    memset(high, 0, 4);
    for (int i = 0; i < SMALL_BLOCK; i++)
        high[i / 8] |= (uint8_t)((q[i] >> 4 & 1) << i % 8);
}

/* Q4_0 and Q5_0: (q - middle) * d, where the extreme becomes q = 0. */
static void quantize_symmetric(const float *x, uint8_t *block, int middle)
{
    int q[SMALL_BLOCK];
    float d = extreme(x, SMALL_BLOCK) / (float)-middle, inverse = d != 0 ? 1 / d : 0;
    store_f16(block, d);
    for (int i = 0; i < SMALL_BLOCK; i++)
        q[i] = clamp((int)(x[i] * inverse + (float)middle + 0.5f), 0, 2 * middle - 1);
    if (middle == 16)
        store_high_bits(q, block + 2);
    store_nibbles(q, block + (middle == 16 ? 6 : 2));
}

/* Q4_1 and Q5_1: q * d + m. */
static void quantize_offset(const float *x, uint8_t *block, int max)
{
    int q[SMALL_BLOCK];
    float low = x[0], high = x[0];
    for (int i = 1; i < SMALL_BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = (high - low) / (float)max, inverse = d != 0 ? 1 / d : 0;
    store_f16(block, d);
    store_f16(block + 2, low);
    for (int i = 0; i < SMALL_BLOCK; i++)
        q[i] = clamp((int)((x[i] - low) * inverse + 0.5f), 0, max);
    if (max == 31)
        store_high_bits(q, block + 4);
    store_nibbles(q, block + (max == 31 ? 8 : 4));
}

static void quantize_q4_0(const float *x, uint8_t *block)
{
    quantize_symmetric(x, block, 8);
}

static void quantize_q5_0(const float *x, uint8_t *block)
{
    quantize_symmetric(x, block, 16);
}

static void quantize_q4_1(const float *x, uint8_t *block)
{
    quantize_offset(x, block, 15);
}

static void quantize_q5_1(const float *x, uint8_t *block)
{
    quantize_offset(x, block, 31);
}

static void quantize_q8_0(const float *x, uint8_t *block)
{
    float d = fabsf(extreme(x, SMALL_BLOCK)) / 127, inverse = d != 0 ? 1 / d : 0;
    store_f16(block, d);
    for (int i = 0; i < SMALL_BLOCK; i++)
        block[2 + i] = (uint8_t)(int8_t)clamp((int)roundf(x[i] * inverse), -127, 127);
}

/* ---- super-blocks -------------------------------------------------------------------------- */

/* The cost of an error in each value. */
static void fill_weights(const float *x, int n, float *weights)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        weights[i] = x[i] * x[i] + sum / (float)n;
}

/* The scale d for which x is close to d * q, q from -limit to limit - 1: tries several roundings,
 * each with the scale that fits it best. */
static float fit_scale(const float *x, int n, int limit)
{
    float far = extreme(x, n), best_gain = 0, best = 0, weights[32];
    if (far == 0)
        return 0;
    fill_weights(x, n, weights);
    for (int t = 0; t < TRIES; t++) {
        float inverse = -((float)limit + 0.2f * (float)(t - TRIES / 2)) / far;
        float xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            float q = (float)clamp((int)lrintf(x[i] * inverse), -limit, limit - 1);
            xq += weights[i] * x[i] * q;
            qq += weights[i] * q * q;
        }
        /* With d = xq / qq, the error is the sum of w x^2, minus this. */
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

struct affine {
    float scale, minimum; /* both 0 or more: a value is scale * q - minimum */
};

static float affine_error(const float *x, const float *weights, int n, int max, struct affine a)
{
    float error = 0, inverse = a.scale > 0 ? 1 / a.scale : 0;
    for (int i = 0; i < n; i++) {
        int q = clamp((int)lrintf((x[i] + a.minimum) * inverse), 0, max);
        float diff = a.scale * (float)q - a.minimum - x[i];
        error += weights[i] * diff * diff;
    }
    return error;
}

/* The scale and minimum that best fit the roundings of a guess. */
static struct affine affine_refit(const float *x, const float *weights, int n, int max,
                                  struct affine guess)
{
    float w = 0, wq = 0, wqq = 0, wx = 0, wxq = 0, inverse = 1 / guess.scale;
    for (int i = 0; i < n; i++) {
        float q = (float)clamp((int)lrintf((x[i] + guess.minimum) * inverse), 0, max);
        w += weights[i];
        wq += weights[i] * q;
        wqq += weights[i] * q * q;
        wx += weights[i] * x[i];
        wxq += weights[i] * x[i] * q;
    }
    float determinant = w * wqq - wq * wq;
    if (!(determinant > 0))
        return guess;
    struct affine fit = {(w * wxq - wx * wq) / determinant, (wq * wxq - wqq * wx) / determinant};
    if (fit.minimum < 0) /* no minimum is stored below 0 */
        fit = (struct affine){wqq > 0 ? wxq / wqq : 0, 0};
    return fit.scale > 0 ? fit : guess;
}

static struct affine fit_affine(const float *x, int n, int max)
{
    float low = 0, high = x[0], weights[32];
    for (int i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    fill_weights(x, n, weights);
    if (!(high > low))
        return (struct affine){0, -low};
    struct affine best = {(high - low) / (float)max, -low};
    float least = affine_error(x, weights, n, max, best);
    for (int t = 0; t < TRIES; t++) {
        float steps = (float)max + 0.2f * (float)(t - TRIES / 2);
        struct affine guess = {(high - low) / steps, -low};
        struct affine fit = affine_refit(x, weights, n, max, guess);
        float error = affine_error(x, weights, n, max, fit);
        if (error < least) {
            least = error;
            best = fit;
        }
    }
    return best;
}

/* The twelve bytes of eight 6-bit scales and minimums; see unpack_scale_min in quant.c. */
static void pack_scales_mins(const int *scales, const int *minimums, uint8_t *packed)
{
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scales[j] | scales[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(minimums[j] | minimums[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((scales[j + 4] & 15) | (minimums[j + 4] & 15) << 4);
    }
}

/* Q4_K and Q5_K; `high` is NULL for the former. */
static void quantize_q45_k(const float *x, uint8_t *block, uint8_t *high, uint8_t *nibbles)
{
    int max = high ? 31 : 15, scales[8], minimums[8];
    struct affine fits[8];
    float top_scale = 0, top_minimum = 0;
    for (int j = 0; j < 8; j++) {
        fits[j] = fit_affine(x + 32 * j, 32, max);
        top_scale = fmaxf(top_scale, fits[j].scale);
        top_minimum = fmaxf(top_minimum, fits[j].minimum);
    }
    float d = store_f16(block, top_scale / 63), dmin = store_f16(block + 2, top_minimum / 63);
    if (high)
        memset(high, 0, 32);
    memset(nibbles, 0, 128);
    for (int j = 0; j < 8; j++) {
        scales[j] = d > 0 ? clamp((int)lrintf(fits[j].scale / d), 0, 63) : 0;
        minimums[j] = dmin > 0 ? clamp((int)lrintf(fits[j].minimum / dmin), 0, 63) : 0;
        float scale = d * (float)scales[j], minimum = dmin * (float)minimums[j];
        float inverse = scale > 0 ? 1 / scale : 0;
        for (int i = 32 * j; i < 32 * (j + 1); i++) {
            int q = clamp((int)lrintf((x[i] + minimum) * inverse), 0, max);
            nibbles[i / 64 * 32 + i % 32] |= (uint8_t)((q & 15) << (i / 32 % 2 * 4));
            if (high)
                high[i % 32] |= (uint8_t)((q >> 4) << (i / 32));
        }
    }
    pack_scales_mins(scales, minimums, block + 4);
}

static void quantize_q4_k(const float *x, uint8_t *block)
{
    quantize_q45_k(x, block, NULL, block + 16);
}

static void quantize_q5_k(const float *x, uint8_t *block)
{
    quantize_q45_k(x, block, block + 16, block + 48);
}

static void quantize_q6_k(const float *x, uint8_t *block)
{
    float fits[16], far;
    for (int j = 0; j < 16; j++)
        fits[j] = fit_scale(x + 16 * j, 16, 32);
    far = extreme(fits, 16);
    float d = store_f16(block + 208, far / -128), inverse = d != 0 ? 1 / d : 0;
    memset(block, 0, 192);
    for (int j = 0; j < 16; j++) {
        int scale = clamp((int)lrintf(fits[j] * inverse), -128, 127);
        block[192 + j] = (uint8_t)(int8_t)scale;
        float step = d * (float)scale, per_step = step != 0 ? 1 / step : 0;
        for (int i = 16 * j; i < 16 * (j + 1); i++) {
            int q = clamp((int)lrintf(x[i] * per_step), -32, 31) + 32;
            block[i / 128 * 64 + i % 64] |= (uint8_t)((q & 15) << (i / 64 % 2 * 4));
            block[128 + i / 128 * 32 + i % 32] |= (uint8_t)((q >> 4) << (i / 32 % 4 * 2));
        }
    }
}

/* ---- the encoders --------------------------------------------------------------------------- */

static const struct encoder {
    enum tensor_type type;
    void (*quantize_block)(const float *x, uint8_t *block); /* NULL: one value a block */
} encoders[] = {
    {TENSOR_F32, NULL},           {TENSOR_F16, NULL},           {TENSOR_BF16, NULL},
    {TENSOR_Q8_0, quantize_q8_0}, {TENSOR_Q6_K, quantize_q6_k}, {TENSOR_Q5_K, quantize_q5_k},
    {TENSOR_Q5_1, quantize_q5_1}, {TENSOR_Q5_0, quantize_q5_0}, {TENSOR_Q4_K, quantize_q4_k},
    {TENSOR_Q4_1, quantize_q4_1}, {TENSOR_Q4_0, quantize_q4_0},
};

bool quantize_type(const char *name, enum tensor_type *out)
{
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (strcasecmp(name, tensor_type_info(encoders[i].type)->name) == 0) {
            *out = encoders[i].type;
            return true;
        }
    return false;
}

const char *quantize_names(void)
{
    return "f32, f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0";
}

enum tensor_type quantize_choose(enum tensor_type type, uint64_t cols, bool matters)
{
    bool is_small = type == TENSOR_Q4_0 || type == TENSOR_Q4_1 || type == TENSOR_Q4_K ||
                    type == TENSOR_Q5_0 || type == TENSOR_Q5_1 || type == TENSOR_Q5_K;
    if (matters && is_small)
        type = TENSOR_Q6_K;
    if (cols % tensor_type_info(type)->block_len)
        type = type == TENSOR_Q4_K ? TENSOR_Q5_0 : type == TENSOR_Q5_K ? TENSOR_Q5_1 : TENSOR_Q8_0;
    return cols % tensor_type_info(type)->block_len ? TENSOR_F16 : type;
}

static void quantize_one(enum tensor_type type, float x, uint8_t *to)
{
    if (type == TENSOR_F32)
        memcpy(to, &x, sizeof x);
    else
        store_u16(to, type == TENSOR_F16 ? f32_to_f16(x) : f32_to_bf16(x));
}

void quantize(enum tensor_type type, const float *x, void *blocks, size_t n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const struct encoder *e = encoders;
    uint8_t *to = blocks;
    while (e->type != type) {
        e++;
        assert(e < encoders + sizeof encoders / sizeof *encoders);
    }
    assert(n % info->block_len == 0);
    for (size_t i = 0; i < n; i += info->block_len, to += info->block_bytes) {
        float clean[SUPER_BLOCK];
        if (!e->quantize_block) {
            quantize_one(type, x[i], to);
            continue;
        }
        for (uint32_t j = 0; j < info->block_len; j++)
            clean[j] = isfinite(x[i + j]) ? x[i + j] : 0;
        e->quantize_block(clean, to);
    }
}
