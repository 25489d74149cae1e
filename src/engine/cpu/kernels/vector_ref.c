/* The reference of the vector kernels: plain loops that spell out the order of every sum. The other
 * paths must match it bit for bit, so a sum that looks clumsy here is clumsy on purpose. fmaf
 * rounds once, with or without hardware support. */
#include "engine/cpu/kernels/vector.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/kernels/exponential.h"

static float exponential(float x)
{
    if (x != x)
        return x;
    if (x < EXP_MIN)
        return 0.0f;
    x = EXP_MAX < x ? EXP_MAX : x;
    float t = fmaf(x, EXP_LOG2E, EXP_MAGIC);
    float n = t - EXP_MAGIC;
    float r = fmaf(n, -EXP_LN2_LOW, fmaf(n, -EXP_LN2_HIGH, x));
    float p = fmaf(r, EXP_C4, EXP_C3);
    p = fmaf(r, p, EXP_C2);
    p = fmaf(r, p, EXP_C1);
    p = fmaf(r, p, EXP_C0);
    p = fmaf(r * r, p, r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits << 23) + 0x3f800000u; /* 2^n */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static float hyperbolic_tangent(float x)
{
    float a = fabsf(x), y = a * a, result;
    if (a < TANH_SMALL) {
        float p = fmaf(y, TANH_C4, TANH_C3);
        p = fmaf(y, p, TANH_C2);
        p = fmaf(y, p, TANH_C1);
        p = fmaf(y, p, TANH_C0);
        result = fmaf(a * y, p, a);
    } else {
        result = 1.0f - 2.0f / (exponential(a + a) + 1.0f);
    }
    return copysignf(result, x);
}

/* Folds the lanes by halves. */
static float fold_sum(float lanes[VECTOR_LANES])
{
    for (int half = VECTOR_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Like the vector instruction: b if either is NaN. */
static float max_of(float a, float b)
{
    return a > b ? a : b;
}

static float fold_max(float lanes[VECTOR_LANES])
{
    for (int half = VECTOR_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = max_of(lanes[i], lanes[i + half]);
    return lanes[0];
}

static void softcap(float *x, uint32_t n, float cap)
{
    float inverse = 1.0f / cap;
    for (uint32_t i = 0; i < n; i++)
        x[i] = hyperbolic_tangent(x[i] * inverse) * cap;
}

static void rope(enum rope_kind kind, const float *cos, const float *sin, uint32_t dim, float *x)
{
    uint32_t half = dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = kind == ROPE_NORM ? 2 * i : i;
        uint32_t b = kind == ROPE_NORM ? 2 * i + 1 : i + half;
        float xa = x[a], xb = x[b];
        x[a] = xa * cos[a] + xb * sin[a];
        x[b] = xb * cos[b] + xa * sin[b];
    }
}

static void kv_store(enum kv_type type, const float *x, void *out, uint32_t n)
{
    uint16_t *halves = out;
    if (type == KV_F32)
        memcpy(out, x, n * sizeof *x);
    else
        for (uint32_t i = 0; i < n; i++)
            halves[i] = type == KV_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
}

/* The offset of element d of row j in a tile. */
static uint32_t tile_at(uint32_t j, uint32_t d)
{
    return (d / VECTOR_LANES * KEY_TILE + j) * VECTOR_LANES + d % VECTOR_LANES;
}

static float kv_element(enum kv_type type, const void *row, uint32_t i)
{
    switch (type) {
    case KV_F16: return f16_to_f32(((const uint16_t *)row)[i]);
    case KV_BF16: return bf16_to_f32(((const uint16_t *)row)[i]);
    default: return ((const float *)row)[i];
    }
}

static void kv_load(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                    float *tile)
{
    for (uint32_t j = 0; j < n_rows; j++)
        for (uint32_t d = 0; d < attention_dim(n); d++)
            tile[tile_at(j, d)] = d < n ? kv_element(type, rows[j], d) : 0.0f;
}

static void scores_few(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *q, uint32_t n_q, uint32_t dim, float *scores)
{
    for (uint32_t i = 0; i < n_q; i++) {
        for (uint32_t j = 0; j < n_rows; j++) {
            float lanes[VECTOR_LANES];
            for (uint32_t d = 0; d < dim; d++) {
                float key = d < n ? kv_element(type, rows[j], d) : 0.0f;
                float *lane = &lanes[d % VECTOR_LANES];
                *lane = d < VECTOR_LANES ? q[i * dim + d] * key : fmaf(q[i * dim + d], key, *lane);
            }
            scores[i * ATTENTION_BLOCK + j] = fold_sum(lanes);
        }
    }
}

static void values_few(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *weights, uint32_t n_q, uint32_t dim, float *out)
{
    for (uint32_t i = 0; i < n_q; i++)
        for (uint32_t j = 0; j < n_rows; j++)
            for (uint32_t d = 0; d < dim; d++) {
                float *o = &out[i * attention_stride(dim) + d];
                float value = d < n ? kv_element(type, rows[j], d) : 0.0f;
                *o = fmaf(weights[i * ATTENTION_BLOCK + j], value, *o);
            }
}

static void transpose(const float *tile, uint32_t dim, float *transposed)
{
    for (uint32_t d = 0; d < dim; d++)
        for (uint32_t j = 0; j < KEY_TILE; j++)
            transposed[d * KEY_TILE + j] = tile[tile_at(j, d)];
}

static void scores_many(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                        float *scores)
{
    for (uint32_t i = 0; i < n_q; i++) {
        for (uint32_t j = 0; j < KEY_TILE; j++) {
            float lanes[VECTOR_LANES];
            for (uint32_t d = 0; d < VECTOR_LANES; d++)
                lanes[d] = q[i * dim + d] * transposed[d * KEY_TILE + j];
            for (uint32_t d = VECTOR_LANES; d < dim; d++)
                lanes[d % VECTOR_LANES] = fmaf(q[i * dim + d], transposed[d * KEY_TILE + j],
                                               lanes[d % VECTOR_LANES]);
            scores[i * ATTENTION_BLOCK + j] = fold_sum(lanes);
        }
    }
}

static void softmax(float *scores, uint32_t begin, uint32_t end, float *max, float *sum)
{
    float lanes[VECTOR_LANES];
    for (uint32_t j = 0; j < ATTENTION_BLOCK; j++)
        if (j < begin || j >= end)
            scores[j] = -INFINITY;
    memcpy(lanes, scores, sizeof lanes);
    for (uint32_t j = VECTOR_LANES; j < ATTENTION_BLOCK; j++)
        lanes[j % VECTOR_LANES] = max_of(lanes[j % VECTOR_LANES], scores[j]);
    *max = fold_max(lanes);
    memset(lanes, 0, sizeof lanes);
    for (uint32_t j = 0; j < ATTENTION_BLOCK; j++) {
        scores[j] = exponential(scores[j] - *max);
        lanes[j % VECTOR_LANES] += scores[j];
    }
    *sum = fold_sum(lanes);
}

static void values_many(const float *weights, uint32_t n_q, uint32_t n_keys, const float *tile,
                        uint32_t dim, float *out)
{
    for (uint32_t i = 0; i < n_q; i++)
        for (uint32_t j = 0; j < n_keys; j++)
            for (uint32_t d = 0; d < dim; d++) {
                float *o = &out[i * attention_stride(dim) + d];
                *o = fmaf(weights[i * ATTENTION_BLOCK + j], tile[tile_at(j, d)], *o);
            }
}

static void merge(float *state, const float *partial, uint32_t dim)
{
    float max = max_of(state[dim], partial[dim]);
    float left = exponential(state[dim] - max), right = exponential(partial[dim] - max);
    for (uint32_t d = 0; d < dim; d++)
        state[d] = fmaf(state[d], left, partial[d] * right);
    state[dim + 1] = fmaf(state[dim + 1], left, partial[dim + 1] * right);
    state[dim] = max;
}

static void finish(const float *state, uint32_t dim, float *out, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++)
        out[d] = state[d] / state[dim + 1];
}

const struct vector_kernels vector_kernels_ref = {
    .softcap = softcap,
    .rope = rope,
    .kv_store = kv_store,
    .scores_few = scores_few,
    .values_few = values_few,
    .many_queries = 12,
    .many_wide_queries = 20,
    .kv_load = kv_load,
    .transpose = transpose,
    .scores_many = scores_many,
    .values_many = values_many,
    .softmax = softmax,
    .merge = merge,
    .finish = finish,
};
