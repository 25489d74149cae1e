/* The vector kernels in 512-bit registers: a register is the 16 lanes of the reference. The tail of
 * a vector is read as zeros with a mask, which leaves the other lanes unchanged. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/vector.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels/exponential.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LANES = VECTOR_LANES,
    BLOCK_VECTORS = ATTENTION_BLOCK / LANES,
    TILE = KEY_TILE * LANES, /* floats from one slice of 16 elements to the next in a tile */
};

static inline __mmask16 tail_mask(uint32_t n)
{
    return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1);
}

static inline __m512 exponential(__m512 x)
{
    __mmask16 not_zero = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_NLT_UQ);
    x = _mm512_min_ps(_mm512_set1_ps(EXP_MAX), x); /* returns the second operand if one is NaN */
    __m512 magic = _mm512_set1_ps(EXP_MAGIC);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(EXP_C4), _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(EXP_C1));
    p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(EXP_C0));
    p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r), _mm512_set1_ps(1.0f));
    __m512i power = _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                     _mm512_set1_epi32(0x3f800000));
    return _mm512_maskz_mul_ps(not_zero, p, _mm512_castsi512_ps(power));
}

static inline __m512 hyperbolic_tangent(__m512 x)
{
    __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f)), one = _mm512_set1_ps(1.0f);
    __m512 a = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x), y = _mm512_mul_ps(a, a);
    __m512 p = _mm512_fmadd_ps(y, _mm512_set1_ps(TANH_C4), _mm512_set1_ps(TANH_C3));
    p = _mm512_fmadd_ps(y, p, _mm512_set1_ps(TANH_C2));
    p = _mm512_fmadd_ps(y, p, _mm512_set1_ps(TANH_C1));
    p = _mm512_fmadd_ps(y, p, _mm512_set1_ps(TANH_C0));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(a, y), p, a);
    __m512 e = _mm512_add_ps(exponential(_mm512_add_ps(a, a)), one);
    __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), e));
    __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(TANH_SMALL), _CMP_LT_OQ);
    return _mm512_or_ps(_mm512_mask_blend_ps(is_small, large, small), sign);
}

static inline float fold_sum(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float fold_max(__m512 v)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

static void softcap(float *x, uint32_t n, float cap)
{
    __m512 all = _mm512_set1_ps(cap), inverse = _mm512_set1_ps(1.0f / cap);
    for (uint32_t i = 0; i < n; i += LANES) {
        __mmask16 mask = tail_mask(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
        _mm512_mask_storeu_ps(x + i, mask, _mm512_mul_ps(hyperbolic_tangent(v), all));
    }
}

static inline __m512 rotate(__m512 x, __m512 partner, __m512 cos, __m512 sin)
{
    return _mm512_add_ps(_mm512_mul_ps(x, cos), _mm512_mul_ps(partner, sin));
}

static void rope(enum rope_kind kind, const float *cos, const float *sin, uint32_t dim, float *x)
{
    uint32_t half = dim / 2;
    if (kind == ROPE_NORM) {
        for (uint32_t i = 0; i < dim; i += LANES) {
            __mmask16 mask = tail_mask(dim - i); /* dim is even: no pair is split */
            __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
            __m512 swapped = _mm512_permute_ps(v, 0xb1);
            v = rotate(v, swapped, _mm512_maskz_loadu_ps(mask, cos + i),
                       _mm512_maskz_loadu_ps(mask, sin + i));
            _mm512_mask_storeu_ps(x + i, mask, v);
        }
        return;
    }
    for (uint32_t i = 0; i < half; i += LANES) {
        __mmask16 mask = tail_mask(half - i);
        __m512 a = _mm512_maskz_loadu_ps(mask, x + i);
        __m512 b = _mm512_maskz_loadu_ps(mask, x + half + i);
        __m512 new_a = rotate(a, b, _mm512_maskz_loadu_ps(mask, cos + i),
                              _mm512_maskz_loadu_ps(mask, sin + i));
        __m512 new_b = rotate(b, a, _mm512_maskz_loadu_ps(mask, cos + half + i),
                              _mm512_maskz_loadu_ps(mask, sin + half + i));
        _mm512_mask_storeu_ps(x + i, mask, new_a);
        _mm512_mask_storeu_ps(x + half + i, mask, new_b);
    }
}

/* Rounds to nearest even by adding half of the dropped part; NaN keeps its upper bits and becomes
 * quiet. */
static inline __m256i to_bf16(__m512 v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

static void kv_store(enum kv_type type, const float *x, void *out, uint32_t n)
{
    if (type == KV_F32) {
        memcpy(out, x, n * sizeof *x);
        return;
    }
    uint16_t *halves = out;
    for (uint32_t i = 0; i < n; i += LANES) {
        __mmask16 mask = tail_mask(n - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        __m256i h = type == KV_F16
                        ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                        : to_bf16(v);
        _mm256_mask_storeu_epi16(halves + i, mask, h);
    }
}

static inline __m512 load_lanes(enum kv_type type, const void *row, size_t i, __mmask16 mask)
{
    if (type == KV_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)row + i);
    __m256i h = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + i);
    if (type == KV_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* One loop for each type: the compiler removes the branch inside. */
ALWAYS_INLINE void load_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                             uint32_t n, float *tile)
{
    for (size_t j = 0; j < n_rows; j++) {
        float *slice = tile + j * LANES;
        size_t i = 0;
        for (; i + LANES <= n; i += LANES, slice += TILE)
            _mm512_store_ps(slice, load_lanes(type, rows[j], i, 0xffff));
        if (i < n)
            _mm512_store_ps(slice, load_lanes(type, rows[j], i, tail_mask(n - i)));
    }
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

/* Folds the lanes of two vectors at once: the result holds the first's 8 sums, then the second's.
 * The next three steps do the same for 4, 2 and 1 sums. */
static inline __m512 fold_8(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

static inline __m512 fold_4(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

static inline __m512 fold_2(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

static inline __m512 fold_1(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Adds elements d .. d + 15 of four keys (0, 4, 8 and 12 of rows) to the sums of n_q queries. */
ALWAYS_INLINE void add_products(enum kv_type type, const void *const *rows, size_t d,
                                __mmask16 mask, const float *q, uint32_t n_q, uint32_t dim,
                                bool first, __m512 sums[4][4])
{
    __m512 keys[4];
    for (int k = 0; k < 4; k++)
        keys[k] = load_lanes(type, rows[4 * k], d, mask);
    for (size_t i = 0; i < n_q; i++) {
        __m512 v = _mm512_load_ps(q + i * dim + d);
        for (int k = 0; k < 4; k++)
            sums[i][k] = first ? _mm512_mul_ps(v, keys[k])
                               : _mm512_fmadd_ps(v, keys[k], sums[i][k]);
    }
}

/* The scores of 16 keys. Four keys at a time are summed and folded into a register of 4 sums each;
 * in the end, key 4 * l + i is element i of 128-bit lane l. */
ALWAYS_INLINE void scores_16(enum kv_type type, const void *const *rows, uint32_t n, const float *q,
                             uint32_t n_q, uint32_t dim, float *scores)
{
    __m512 quads[4][4], sums[4][4];
    for (int k = 0; k < 4; k++) {
        size_t d = LANES;
        add_products(type, rows + k, 0, tail_mask(n), q, n_q, dim, true, sums);
        for (; d + LANES <= n; d += LANES)
            add_products(type, rows + k, d, 0xffff, q, n_q, dim, false, sums);
        if (d < n)
            add_products(type, rows + k, d, tail_mask(n - d), q, n_q, dim, false, sums);
        for (size_t i = 0; i < n_q; i++)
            quads[i][k] = fold_4(fold_8(sums[i][0], sums[i][1]), fold_8(sums[i][2], sums[i][3]));
    }
    for (size_t i = 0; i < n_q; i++) {
        __m512 low = fold_2(quads[i][0], quads[i][1]), high = fold_2(quads[i][2], quads[i][3]);
        _mm512_store_ps(scores + i * ATTENTION_BLOCK, fold_1(low, high));
    }
}

ALWAYS_INLINE void scores_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                               uint32_t n, const float *q, uint32_t n_q, uint32_t dim,
                               float *scores)
{
    for (size_t j = 0; j < n_rows; j += 16) {
        size_t i = 0;
        for (; i + 4 <= n_q; i += 4)
            scores_16(type, rows + j, n, q + i * dim, 4, dim, scores + i * ATTENTION_BLOCK + j);
        const float *rest = q + i * dim;
        float *to = scores + i * ATTENTION_BLOCK + j;
        switch (n_q - i) {
        case 3: scores_16(type, rows + j, n, rest, 3, dim, to); break;
        case 2: scores_16(type, rows + j, n, rest, 2, dim, to); break;
        case 1: scores_16(type, rows + j, n, rest, 1, dim, to); break;
        }
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

/* Computes n_q queries by n_vectors registers of their outputs, starting at element d. All
 * registers of the values except the last are whole. */
ALWAYS_INLINE void values_rows_tile(enum kv_type type, const void *const *rows, uint32_t n_rows,
                                    size_t d, __mmask16 mask, const float *weights, uint32_t n_q,
                                    uint32_t stride, uint32_t n_vectors, float *out)
{
    __m512 sums[4][4];
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_vectors; v++)
            sums[i][v] = _mm512_load_ps(out + i * stride + d + v * LANES);
    for (size_t j = 0; j < n_rows; j++) {
        __m512 value[4];
        for (uint32_t v = 0; v < n_vectors; v++)
            value[v] = load_lanes(type, rows[j], d + v * LANES, mask);
        for (size_t i = 0; i < n_q; i++) {
            __m512 weight = _mm512_set1_ps(weights[i * ATTENTION_BLOCK + j]);
            for (uint32_t v = 0; v < n_vectors; v++)
                sums[i][v] = _mm512_fmadd_ps(weight, value[v], sums[i][v]);
        }
    }
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_vectors; v++)
            _mm512_store_ps(out + i * stride + d + v * LANES, sums[i][v]);
}

ALWAYS_INLINE void values_rows(enum kv_type type, const void *const *rows, uint32_t n_rows,
                               uint32_t n, const float *weights, uint32_t n_q, uint32_t stride,
                               float *out)
{
    size_t d = 0;
    for (; d + 4 * LANES <= n; d += 4 * LANES)
        values_rows_tile(type, rows, n_rows, d, 0xffff, weights, n_q, stride, 4, out);
    for (; d < n; d += LANES)
        values_rows_tile(type, rows, n_rows, d, tail_mask(n - d), weights, n_q, stride, 1, out);
}

ALWAYS_INLINE void values_queries(enum kv_type type, const void *const *rows, uint32_t n_rows,
                                  uint32_t n, const float *weights, uint32_t n_q, uint32_t dim,
                                  float *out)
{
    size_t i = 0, stride = attention_stride(dim);
    for (; i + 4 <= n_q; i += 4, weights += 4 * ATTENTION_BLOCK, out += 4 * stride)
        values_rows(type, rows, n_rows, n, weights, 4, stride, out);
    switch (n_q - i) {
    case 3: values_rows(type, rows, n_rows, n, weights, 3, stride, out); break;
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

/* Transposes 16 rows of 16 floats: row i of the result is column i. */
static inline void transpose_16(const float *rows, float *out)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i += 2) { /* pairs of rows: elements 0, 1 and 2, 3 of each quarter */
        __m512 x = _mm512_load_ps(rows + i * LANES), y = _mm512_load_ps(rows + (i + 1) * LANES);
        a[i] = _mm512_unpacklo_ps(x, y);
        a[i + 1] = _mm512_unpackhi_ps(x, y);
    }
    for (int i = 0; i < 16; i += 4) { /* four rows: b[i + e] holds element e of each quarter */
        __m512d x = _mm512_castps_pd(a[i]), y = _mm512_castps_pd(a[i + 2]);
        b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
        b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        x = _mm512_castps_pd(a[i + 1]), y = _mm512_castps_pd(a[i + 3]);
        b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
        b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
    for (int e = 0; e < 4; e++) { /* combine the quarters of all rows */
        __m512 low = _mm512_shuffle_f32x4(b[e], b[4 + e], 0x88);
        __m512 low2 = _mm512_shuffle_f32x4(b[8 + e], b[12 + e], 0x88);
        __m512 high = _mm512_shuffle_f32x4(b[e], b[4 + e], 0xdd);
        __m512 high2 = _mm512_shuffle_f32x4(b[8 + e], b[12 + e], 0xdd);
        _mm512_store_ps(out + e * KEY_TILE, _mm512_shuffle_f32x4(low, low2, 0x88));
        _mm512_store_ps(out + (8 + e) * KEY_TILE, _mm512_shuffle_f32x4(low, low2, 0xdd));
        _mm512_store_ps(out + (4 + e) * KEY_TILE, _mm512_shuffle_f32x4(high, high2, 0x88));
        _mm512_store_ps(out + (12 + e) * KEY_TILE, _mm512_shuffle_f32x4(high, high2, 0xdd));
    }
}

static void transpose(const float *tile, uint32_t dim, float *transposed)
{
    for (size_t d = 0; d < dim; d += LANES)
        for (size_t j = 0; j < KEY_TILE; j += 16)
            transpose_16(tile + d * KEY_TILE + j * LANES, transposed + d * KEY_TILE + j);
}

/* In scores_many, a lane of a register is a key, and the lanes of the reference's sum are computed
 * one after the other: lane l sums elements l, l + 16, ... and the lanes are added in the order of
 * the fold, deepest pair first, so that few sums are live in registers. n_q, and usually dim, are
 * constants at every call. */
ALWAYS_INLINE void lane_0(const float *q, uint32_t n_q, const float *keys, uint32_t dim, uint32_t l,
                          __m512 *out)
{
    __m512 key = _mm512_load_ps(keys + l * KEY_TILE);
    for (size_t i = 0; i < n_q; i++)
        out[i] = _mm512_mul_ps(_mm512_set1_ps(q[i * dim + l]), key);
    for (size_t d = l + LANES; d < dim; d += LANES) {
        key = _mm512_load_ps(keys + d * KEY_TILE);
        for (size_t i = 0; i < n_q; i++)
            out[i] = _mm512_fmadd_ps(_mm512_set1_ps(q[i * dim + d]), key, out[i]);
    }
}

/* Lanes l and l + distance, each after the previous folds. */
#define FOLD_LANES(name, folded, distance)                                                         \
    ALWAYS_INLINE void name(const float *q, uint32_t n_q, const float *keys, uint32_t dim,         \
                            uint32_t l, __m512 *out)                                               \
    {                                                                                              \
        __m512 other[4];                                                                           \
        folded(q, n_q, keys, dim, l, out);                                                         \
        folded(q, n_q, keys, dim, l + distance, other);                                            \
        for (size_t i = 0; i < n_q; i++)                                                           \
            out[i] = _mm512_add_ps(out[i], other[i]);                                              \
    }
FOLD_LANES(lane_8, lane_0, 8)
FOLD_LANES(lane_4, lane_8, 4)
FOLD_LANES(lane_2, lane_4, 2)
FOLD_LANES(lane_1, lane_2, 1)

ALWAYS_INLINE void scores_of(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                             float *scores)
{
    for (size_t j = 0; j < KEY_TILE; j += LANES) {
        __m512 sums[4];
        lane_1(q, n_q, transposed + j, dim, 0, sums);
        for (size_t i = 0; i < n_q; i++)
            _mm512_store_ps(scores + i * ATTENTION_BLOCK + j, sums[i]);
    }
}

static void scores_many(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                        float *scores)
{
    size_t i = 0;
    for (; i + 4 <= n_q; i += 4, q += 4 * dim, scores += 4 * ATTENTION_BLOCK) {
        if (dim == 64)
            scores_of(q, 4, transposed, 64, scores);
        else
            scores_of(q, 4, transposed, dim, scores);
    }
    for (; i < n_q; i++, q += dim, scores += ATTENTION_BLOCK)
        scores_of(q, 1, transposed, dim, scores);
}

static void softmax(float *scores, uint32_t begin, uint32_t end, float *max, float *sum)
{
    __m512 v[BLOCK_VECTORS], minus_infinity = _mm512_set1_ps(-INFINITY);
    /* Places counted from `begin`: earlier ones wrap around to huge numbers. */
    __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    place = _mm512_sub_epi32(place, _mm512_set1_epi32((int)begin));
    __m512i n = _mm512_set1_epi32((int)(end - begin));
    for (uint32_t i = 0; i < BLOCK_VECTORS; i++) {
        v[i] = _mm512_mask_load_ps(minus_infinity, _mm512_cmplt_epu32_mask(place, n),
                                   scores + i * LANES);
        place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES));
    }
    __m512 top = v[0];
    for (int i = 1; i < BLOCK_VECTORS; i++)
        top = _mm512_max_ps(top, v[i]);
    *max = fold_max(top);
    top = _mm512_set1_ps(*max);
    __m512 total = _mm512_setzero_ps();
    for (int i = 0; i < BLOCK_VECTORS; i++) {
        __m512 e = exponential(_mm512_sub_ps(v[i], top));
        total = _mm512_add_ps(total, e);
        _mm512_store_ps(scores + i * LANES, e);
    }
    *sum = fold_sum(total);
}

/* Computes n_q queries by n_vectors registers of their outputs, all constants at every call, so
 * that the sums stay in registers over all keys. */
ALWAYS_INLINE void values_tile(const float *weights, uint32_t n_q, uint32_t n_keys,
                               const float *tile, uint32_t stride, float *out, uint32_t n_vectors)
{
    __m512 sums[4][4];
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_vectors; v++)
            sums[i][v] = _mm512_load_ps(out + i * stride + v * LANES);
    for (size_t j = 0; j < n_keys; j++, tile += LANES) {
        __m512 value[4];
        for (uint32_t v = 0; v < n_vectors; v++)
            value[v] = _mm512_load_ps(tile + v * TILE);
        for (size_t i = 0; i < n_q; i++) {
            __m512 weight = _mm512_set1_ps(weights[i * ATTENTION_BLOCK + j]);
            for (uint32_t v = 0; v < n_vectors; v++)
                sums[i][v] = _mm512_fmadd_ps(weight, value[v], sums[i][v]);
        }
    }
    for (size_t i = 0; i < n_q; i++)
        for (uint32_t v = 0; v < n_vectors; v++)
            _mm512_store_ps(out + i * stride + v * LANES, sums[i][v]);
}

ALWAYS_INLINE void values_slices(const float *weights, uint32_t n_q, uint32_t n_keys,
                                 const float *tile, uint32_t dim, float *out)
{
    size_t d = 0, stride = attention_stride(dim);
    for (; d + 4 * LANES <= dim; d += 4 * LANES)
        values_tile(weights, n_q, n_keys, tile + d * KEY_TILE, stride, out + d, 4);
    for (; d < dim; d += LANES)
        values_tile(weights, n_q, n_keys, tile + d * KEY_TILE, stride, out + d, 1);
}

static void values_many(const float *weights, uint32_t n_q, uint32_t n_keys, const float *tile,
                        uint32_t dim, float *out)
{
    size_t i = 0, stride = attention_stride(dim);
    for (; i + 4 <= n_q; i += 4, weights += 4 * ATTENTION_BLOCK, out += 4 * stride)
        values_slices(weights, 4, n_keys, tile, dim, out);
    switch (n_q - i) {
    case 3: values_slices(weights, 3, n_keys, tile, dim, out); break;
    case 2: values_slices(weights, 2, n_keys, tile, dim, out); break;
    case 1: values_slices(weights, 1, n_keys, tile, dim, out); break;
    }
}

static void merge(float *state, const float *partial, uint32_t dim)
{
    __m512 a = _mm512_set1_ps(state[dim]), b = _mm512_set1_ps(partial[dim]);
    __m512 max = _mm512_max_ps(a, b);
    __m512 left = exponential(_mm512_sub_ps(a, max));
    __m512 right = exponential(_mm512_sub_ps(b, max));
    for (uint32_t d = 0; d <= dim; d += LANES) { /* max and sum are in the last vector */
        __m512 v = _mm512_mul_ps(_mm512_load_ps(partial + d), right);
        _mm512_store_ps(state + d, _mm512_fmadd_ps(_mm512_load_ps(state + d), left, v));
    }
    state[dim] = _mm512_cvtss_f32(max);
}

static void finish(const float *state, uint32_t dim, float *out, uint32_t n)
{
    __m512 sum = _mm512_set1_ps(state[dim + 1]);
    for (uint32_t d = 0; d < n; d += LANES)
        _mm512_mask_storeu_ps(out + d, tail_mask(n - d),
                              _mm512_div_ps(_mm512_load_ps(state + d), sum));
}

const struct vector_kernels vector_kernels_avx512 = {
    .softcap = softcap,
    .rope = rope,
    .kv_store = kv_store,
    .scores_few = scores_few,
    .values_few = values_few,
    .many_queries = 12,
    .many_wide_queries = UINT32_MAX,
    .kv_load = kv_load,
    .transpose = transpose,
    .scores_many = scores_many,
    .values_many = values_many,
    .softmax = softmax,
    .merge = merge,
    .finish = finish,
};
#endif
