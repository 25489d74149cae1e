/* The vector kernels in 256-bit registers: two of them are the 16 lanes of the reference. The tail
 * of a vector goes through a small buffer of zeros, which leaves the other lanes unchanged. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/vector.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels/exponential.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LANES = VECTOR_LANES,
    HALF = LANES / 2,
    TILE = KEY_TILE * LANES, /* floats from one slice of 16 elements to the next in a tile */
};

/* 16 floats */
struct wide {
    __m256 low, high;
};

static inline struct wide wide_load(const float *x, uint32_t n)
{
    if (n >= LANES)
        return (struct wide){_mm256_loadu_ps(x), _mm256_loadu_ps(x + HALF)};
    _Alignas(32) float buffer[LANES] = {0};
    memcpy(buffer, x, n * sizeof *x);
    return (struct wide){_mm256_load_ps(buffer), _mm256_load_ps(buffer + HALF)};
}

static inline void wide_store(float *x, uint32_t n, struct wide v)
{
    if (n >= LANES) {
        _mm256_storeu_ps(x, v.low);
        _mm256_storeu_ps(x + HALF, v.high);
        return;
    }
    _Alignas(32) float buffer[LANES];
    _mm256_store_ps(buffer, v.low);
    _mm256_store_ps(buffer + HALF, v.high);
    memcpy(x, buffer, n * sizeof *x);
}

static inline struct wide wide_mul(struct wide a, struct wide b)
{
    return (struct wide){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

static inline struct wide wide_add(struct wide a, struct wide b)
{
    return (struct wide){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

static inline struct wide wide_div(struct wide a, struct wide b)
{
    return (struct wide){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

static inline struct wide wide_fma(struct wide a, struct wide b, struct wide c)
{
    return (struct wide){_mm256_fmadd_ps(a.low, b.low, c.low),
                         _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline struct wide wide_set(float x)
{
    return (struct wide){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline __m256 exponential(__m256 x)
{
    __m256 not_zero = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_NLT_UQ);
    x = _mm256_min_ps(_mm256_set1_ps(EXP_MAX), x); /* returns the second operand if one is NaN */
    __m256 magic = _mm256_set1_ps(EXP_MAGIC);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(r, _mm256_set1_ps(EXP_C4), _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(EXP_C1));
    p = _mm256_fmadd_ps(r, p, _mm256_set1_ps(EXP_C0));
    p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), _mm256_set1_ps(1.0f));
    __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                     _mm256_set1_epi32(0x3f800000));
    return _mm256_and_ps(not_zero, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

static inline __m256 hyperbolic_tangent(__m256 x)
{
    __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f)), one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), y = _mm256_mul_ps(a, a);
    __m256 p = _mm256_fmadd_ps(y, _mm256_set1_ps(TANH_C4), _mm256_set1_ps(TANH_C3));
    p = _mm256_fmadd_ps(y, p, _mm256_set1_ps(TANH_C2));
    p = _mm256_fmadd_ps(y, p, _mm256_set1_ps(TANH_C1));
    p = _mm256_fmadd_ps(y, p, _mm256_set1_ps(TANH_C0));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(a, y), p, a);
    __m256 e = _mm256_add_ps(exponential(_mm256_add_ps(a, a)), one);
    __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), e));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(TANH_SMALL), _CMP_LT_OQ);
    return _mm256_or_ps(_mm256_blendv_ps(large, small, is_small), sign);
}

static inline float fold_sum(struct wide v)
{
    __m256 a = _mm256_add_ps(v.low, v.high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float fold_max(struct wide v)
{
    __m256 a = _mm256_max_ps(v.low, v.high);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static void softcap(float *x, uint32_t n, float cap)
{
    struct wide all = wide_set(cap), inverse = wide_set(1.0f / cap);
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide v = wide_mul(wide_load(x + i, n - i), inverse);
        v = (struct wide){hyperbolic_tangent(v.low), hyperbolic_tangent(v.high)};
        wide_store(x + i, n - i, wide_mul(v, all));
    }
}

static void rope(enum rope_kind kind, const float *cos, const float *sin, uint32_t dim, float *x)
{
    uint32_t half = dim / 2;
    if (kind == ROPE_NORM) {
        for (uint32_t i = 0; i < dim; i += LANES) { /* dim is even: no pair is split */
            struct wide v = wide_load(x + i, dim - i);
            struct wide swapped = {_mm256_permute_ps(v.low, 0xb1), _mm256_permute_ps(v.high, 0xb1)};
            v = wide_add(wide_mul(v, wide_load(cos + i, dim - i)),
                         wide_mul(swapped, wide_load(sin + i, dim - i)));
            wide_store(x + i, dim - i, v);
        }
        return;
    }
    for (uint32_t i = 0; i < half; i += LANES) {
        uint32_t n = half - i;
        struct wide a = wide_load(x + i, n), b = wide_load(x + half + i, n);
        wide_store(
            x + i, n,
            wide_add(wide_mul(a, wide_load(cos + i, n)), wide_mul(b, wide_load(sin + i, n))));
        wide_store(x + half + i, n,
                   wide_add(wide_mul(b, wide_load(cos + half + i, n)),
                            wide_mul(a, wide_load(sin + half + i, n))));
    }
}

/* Rounds to nearest even by adding half of the dropped part; NaN keeps its upper bits and becomes
 * quiet. */
static inline __m128i to_bf16(__m256 v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

static inline __m128i to_halves(enum kv_type type, __m256 v)
{
    return type == KV_F16 ? _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                          : to_bf16(v);
}

static void kv_store(enum kv_type type, const float *x, void *out, uint32_t n)
{
    if (type == KV_F32) {
        memcpy(out, x, n * sizeof *x);
        return;
    }
    uint16_t *halves = out;
    for (uint32_t i = 0; i < n; i += LANES) {
        struct wide v = wide_load(x + i, n - i);
        __m128i h[2] = {to_halves(type, v.low), to_halves(type, v.high)};
        memcpy(halves + i, h, n - i < LANES ? (n - i) * sizeof *halves : sizeof h);
    }
}

static inline __m256 from_halves(enum kv_type type, __m128i h)
{
    if (type == KV_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline struct wide load_lanes(enum kv_type type, const void *row, size_t i, uint32_t n)
{
    if (type == KV_F32)
        return wide_load((const float *)row + i, n);
    const uint16_t *halves = (const uint16_t *)row + i;
    __m128i h[2];
    if (n >= LANES) {
        h[0] = _mm_loadu_si128((const __m128i *)(const void *)halves);
        h[1] = _mm_loadu_si128((const __m128i *)(const void *)(halves + HALF));
    } else {
        memset(h, 0, sizeof h);
        memcpy(h, halves, n * sizeof *halves);
    }
    return (struct wide){from_halves(type, h[0]), from_halves(type, h[1])};
}

/* One loop for each type: the compiler removes the branch inside. */
ALWAYS_INLINE void load_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                             uint32_t n, float *tile)
{
    for (size_t j = 0; j < n_rows; j++)
        for (size_t i = 0; i < n; i += LANES)
            wide_store(tile + i * KEY_TILE + j * LANES, LANES, load_lanes(type, rows[j], i, n - i));
}

static void kv_load(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                    float *tile)
{
    switch (type) {
    case KV_F16: load_rows(KV_F16, rows, n_rows, n, tile); break;
    case KV_F32: load_rows(KV_F32, rows, n_rows, n, tile); break;
    case KV_BF16: load_rows(KV_BF16, rows, n_rows, n, tile); break;
    }
}

/* Folds the lanes of two vectors at once: the result holds the first's 4 sums, then the second's.
 * The next two steps do the same for 2 and 1 sums. */
static inline __m256 fold_4(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

static inline __m256 fold_2(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}

static inline __m256 fold_1(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Adds elements d .. d + 15 of two keys, of which n exist, to the sums of n_q queries. */
ALWAYS_INLINE void add_products(enum kv_type type, const void *const *rows, size_t d, uint32_t n,
                                const float *q, uint32_t n_q, uint32_t dim, bool first,
                                struct wide sums[2][2])
{
    struct wide keys[2] = {load_lanes(type, rows[0], d, n), load_lanes(type, rows[1], d, n)};
    for (size_t i = 0; i < n_q; i++) {
        struct wide v = wide_load(q + i * dim + d, LANES);
        for (int k = 0; k < 2; k++)
            sums[i][k] = first ? wide_mul(v, keys[k]) : wide_fma(v, keys[k], sums[i][k]);
    }
}

/* The products of n_q queries with two keys; the 16 lanes of each are folded into 8. */
ALWAYS_INLINE void dot_2(enum kv_type type, const void *const *rows, uint32_t n, const float *q,
                         uint32_t n_q, uint32_t dim, __m256 out[2][2])
{
    struct wide sums[2][2];
    add_products(type, rows, 0, n, q, n_q, dim, true, sums);
    for (size_t d = LANES; d < n; d += LANES)
        add_products(type, rows, d, n - d, q, n_q, dim, false, sums);
    for (size_t i = 0; i < n_q; i++)
        for (int k = 0; k < 2; k++)
            out[i][k] = _mm256_add_ps(sums[i][k].low, sums[i][k].high);
}

ALWAYS_INLINE void scores_8(enum kv_type type, const void *const *rows, uint32_t n, const float *q,
                            uint32_t n_q, uint32_t dim, float *scores)
{
    __m256 v[4][2][2]; /* [pair of keys][query][key] */
    for (int j = 0; j < 4; j++)
        dot_2(type, rows + 2 * j, n, q, n_q, dim, v[j]);
    for (size_t i = 0; i < n_q; i++) {
        __m256 low = fold_2(fold_4(v[0][i][0], v[2][i][0]), fold_4(v[0][i][1], v[2][i][1]));
        __m256 high = fold_2(fold_4(v[1][i][0], v[3][i][0]), fold_4(v[1][i][1], v[3][i][1]));
        _mm256_store_ps(scores + i * ATTENTION_BLOCK, fold_1(low, high));
    }
}

ALWAYS_INLINE void scores_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                               uint32_t n, const float *q, uint32_t n_q, uint32_t dim,
                               float *scores)
{
    for (size_t j = 0; j < n_rows; j += 8) {
        size_t i = 0;
        for (; i + 2 <= n_q; i += 2)
            scores_8(type, rows + j, n, q + i * dim, 2, dim, scores + i * ATTENTION_BLOCK + j);
        if (i < n_q)
            scores_8(type, rows + j, n, q + i * dim, 1, dim, scores + i * ATTENTION_BLOCK + j);
    }
}

static void scores_few(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *q, uint32_t n_q, uint32_t dim, float *scores)
{
    switch (type) {
    case KV_F16: scores_rows(KV_F16, rows, n_rows, n, q, n_q, dim, scores); break;
    case KV_F32: scores_rows(KV_F32, rows, n_rows, n, q, n_q, dim, scores); break;
    case KV_BF16: scores_rows(KV_BF16, rows, n_rows, n, q, n_q, dim, scores); break;
    }
}

/* Computes n_q queries by n_slices of 16 elements of their outputs, starting at element d, of which
 * n exist. */
ALWAYS_INLINE void values_rows_tile(enum kv_type type, const void *const *rows, uint32_t n_rows,
                                    size_t d, uint32_t n, const float *weights, uint32_t n_q,
                                    uint32_t stride, uint32_t n_slices, float *out)
{
    struct wide sums[3][2];
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_slices; v++)
            sums[i][v] = wide_load(out + i * stride + d + v * LANES, LANES);
    for (size_t j = 0; j < n_rows; j++) {
        for (uint32_t v = 0; v < n_slices; v++) {
            struct wide value = load_lanes(type, rows[j], d + v * LANES, n - v * LANES);
            for (size_t i = 0; i < n_q; i++)
                sums[i][v] = wide_fma(wide_set(weights[i * ATTENTION_BLOCK + j]), value,
                                      sums[i][v]);
        }
    }
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_slices; v++)
            wide_store(out + i * stride + d + v * LANES, LANES, sums[i][v]);
}

ALWAYS_INLINE void values_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                               uint32_t n, const float *weights, uint32_t n_q, uint32_t stride,
                               float *out)
{
    size_t d = 0;
    for (; d + 2 * LANES <= n; d += 2 * LANES)
        values_rows_tile(type, rows, n_rows, d, 2 * LANES, weights, n_q, stride, 2, out);
    for (; d < n; d += LANES)
        values_rows_tile(type, rows, n_rows, d, n - d, weights, n_q, stride, 1, out);
}

ALWAYS_INLINE void values_queries(enum kv_type type, const void *const *rows, uint32_t n_rows,
                                  uint32_t n, const float *weights, uint32_t n_q, uint32_t dim,
                                  float *out)
{
    size_t i = 0, stride = attention_stride(dim);
    for (; i + 3 <= n_q; i += 3, weights += 3 * ATTENTION_BLOCK, out += 3 * stride)
        values_rows(type, rows, n_rows, n, weights, 3, stride, out);
    switch (n_q - i) {
    case 2: values_rows(type, rows, n_rows, n, weights, 2, stride, out); break;
    case 1: values_rows(type, rows, n_rows, n, weights, 1, stride, out); break;
    }
}

static void values_few(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *weights, uint32_t n_q, uint32_t dim, float *out)
{
    switch (type) {
    case KV_F16: values_queries(KV_F16, rows, n_rows, n, weights, n_q, dim, out); break;
    case KV_F32: values_queries(KV_F32, rows, n_rows, n, weights, n_q, dim, out); break;
    case KV_BF16: values_queries(KV_BF16, rows, n_rows, n, weights, n_q, dim, out); break;
    }
}

/* Transposes 8 rows of 8 floats, 16 apart: row i of the result is column i. */
static inline void transpose_8(const float *rows, float *out)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) { /* pairs of rows: elements 0, 1 and 2, 3 of each half */
        __m256 x = _mm256_load_ps(rows + i * LANES), y = _mm256_load_ps(rows + (i + 1) * LANES);
        a[i] = _mm256_unpacklo_ps(x, y);
        a[i + 1] = _mm256_unpackhi_ps(x, y);
    }
    for (int i = 0; i < 8; i += 4) { /* four rows: b[i + e] holds element e of each half */
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int e = 0; e < 4; e++) {
        _mm256_store_ps(out + e * KEY_TILE, _mm256_permute2f128_ps(b[e], b[4 + e], 0x20));
        _mm256_store_ps(out + (4 + e) * KEY_TILE, _mm256_permute2f128_ps(b[e], b[4 + e], 0x31));
    }
}

static void transpose(const float *tile, uint32_t dim, float *transposed)
{
    for (size_t d = 0; d < dim; d += HALF)
        for (size_t j = 0; j < KEY_TILE; j += 8)
            transpose_8(tile + d / LANES * TILE + j * LANES + d % LANES,
                        transposed + d * KEY_TILE + j);
}

enum {
    SCORES_TILE = 3, /* queries that scores_many multiplies with 16 keys at once */
    VALUES_TILE = 6, /* queries that values_many computes 16 elements for at once */
};

/* In scores_many, a lane of a register is a key, and the lanes of the reference's sum are computed
 * one after the other: lane l sums elements l, l + 16, ... and the lanes are added in the order of
 * the fold, deepest pair first, so that few sums are live in registers. n_q is a constant at every
 * call. */
ALWAYS_INLINE void lane_0(const float *q, uint32_t n_q, const float *keys, uint32_t dim, uint32_t l,
                          struct wide *out)
{
    struct wide key = wide_load(keys + l * KEY_TILE, LANES);
    for (size_t i = 0; i < n_q; i++)
        out[i] = wide_mul(wide_set(q[i * dim + l]), key);
    for (size_t d = l + LANES; d < dim; d += LANES) {
        key = wide_load(keys + d * KEY_TILE, LANES);
        for (size_t i = 0; i < n_q; i++)
            out[i] = wide_fma(wide_set(q[i * dim + d]), key, out[i]);
    }
}

/* Lanes l and l + distance, each after the previous folds. */
#define FOLD_LANES(name, folded, distance)                                                         \
    ALWAYS_INLINE void name(const float *q, uint32_t n_q, const float *keys, uint32_t dim,         \
                            uint32_t l, struct wide *out)                                          \
    {                                                                                              \
        struct wide other[SCORES_TILE];                                                            \
        folded(q, n_q, keys, dim, l, out);                                                         \
        folded(q, n_q, keys, dim, l + distance, other);                                            \
        for (size_t i = 0; i < n_q; i++)                                                           \
            out[i] = wide_add(out[i], other[i]);                                                   \
    }
FOLD_LANES(lane_8, lane_0, 8)
FOLD_LANES(lane_4, lane_8, 4)
FOLD_LANES(lane_2, lane_4, 2)
FOLD_LANES(lane_1, lane_2, 1)

ALWAYS_INLINE void scores_of(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                             float *scores)
{
    for (size_t j = 0; j < KEY_TILE; j += LANES) {
        struct wide sums[SCORES_TILE];
        lane_1(q, n_q, transposed + j, dim, 0, sums);
        for (size_t i = 0; i < n_q; i++)
            wide_store(scores + i * ATTENTION_BLOCK + j, LANES, sums[i]);
    }
}

static void scores_many(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                        float *scores)
{
    size_t i = 0;
    for (; i + SCORES_TILE <= n_q; i += SCORES_TILE)
        scores_of(q + i * dim, SCORES_TILE, transposed, dim, scores + i * ATTENTION_BLOCK);
    for (; i < n_q; i++)
        scores_of(q + i * dim, 1, transposed, dim, scores + i * ATTENTION_BLOCK);
}

static void softmax(float *scores, uint32_t begin, uint32_t end, float *max, float *sum)
{
    for (uint32_t j = 0; j < begin; j++)
        scores[j] = -INFINITY;
    for (uint32_t j = end; j < ATTENTION_BLOCK; j++)
        scores[j] = -INFINITY;
    struct wide top = wide_load(scores, LANES);
    for (uint32_t j = LANES; j < ATTENTION_BLOCK; j += LANES) {
        struct wide v = wide_load(scores + j, LANES);
        top = (struct wide){_mm256_max_ps(top.low, v.low), _mm256_max_ps(top.high, v.high)};
    }
    *max = fold_max(top);
    __m256 all = _mm256_set1_ps(*max);
    struct wide total = wide_set(0.0f);
    for (uint32_t j = 0; j < ATTENTION_BLOCK; j += LANES) {
        struct wide v = wide_load(scores + j, LANES);
        v = (struct wide){exponential(_mm256_sub_ps(v.low, all)),
                          exponential(_mm256_sub_ps(v.high, all))};
        total = wide_add(total, v);
        wide_store(scores + j, LANES, v);
    }
    *sum = fold_sum(total);
}

/* Computes n_q queries, a constant at every call, by 16 elements of their outputs, so that the sums
 * stay in registers over all keys. */
ALWAYS_INLINE void values_tile(const float *weights, uint32_t n_q, uint32_t n_keys,
                               const float *tile, uint32_t stride, float *out)
{
    struct wide sums[VALUES_TILE];
    for (size_t i = 0; i < n_q; i++)
        sums[i] = wide_load(out + i * stride, LANES);
    for (size_t j = 0; j < n_keys; j++) {
        struct wide value = wide_load(tile + j * LANES, LANES);
        for (size_t i = 0; i < n_q; i++)
            sums[i] = wide_fma(wide_set(weights[i * ATTENTION_BLOCK + j]), value, sums[i]);
    }
    for (size_t i = 0; i < n_q; i++)
        wide_store(out + i * stride, LANES, sums[i]);
}

static void values_many(const float *weights, uint32_t n_q, uint32_t n_keys, const float *tile,
                        uint32_t dim, float *out)
{
    size_t stride = attention_stride(dim);
    for (size_t d = 0; d < dim; d += LANES, tile += LANES * KEY_TILE, out += LANES) {
        size_t i = 0;
        for (; i + VALUES_TILE <= n_q; i += VALUES_TILE)
            values_tile(weights + i * ATTENTION_BLOCK, VALUES_TILE, n_keys, tile, stride,
                        out + i * stride);
        for (; i < n_q; i++)
            values_tile(weights + i * ATTENTION_BLOCK, 1, n_keys, tile, stride, out + i * stride);
    }
}

static void merge(float *state, const float *partial, uint32_t dim)
{
    __m256 a = _mm256_set1_ps(state[dim]), b = _mm256_set1_ps(partial[dim]);
    __m256 max = _mm256_max_ps(a, b);
    __m256 left = exponential(_mm256_sub_ps(a, max));
    __m256 right = exponential(_mm256_sub_ps(b, max));
    for (uint32_t d = 0; d <= dim; d += HALF) { /* max and sum are in the last vector */
        __m256 v = _mm256_mul_ps(_mm256_load_ps(partial + d), right);
        _mm256_store_ps(state + d, _mm256_fmadd_ps(_mm256_load_ps(state + d), left, v));
    }
    state[dim] = _mm256_cvtss_f32(max);
}

static void finish(const float *state, uint32_t dim, float *out, uint32_t n)
{
    struct wide sum = wide_set(state[dim + 1]);
    for (uint32_t d = 0; d < n; d += LANES)
        wide_store(out + d, n - d, wide_div(wide_load(state + d, LANES), sum));
}

const struct vector_kernels vector_kernels_avx2 = {
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
#endif
