#ifndef RADISH_ENGINE_CPU_KERNELS_VECTOR_H
#define RADISH_ENGINE_CPU_KERNELS_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "model/model.h"

/* Rope, storing keys and values in their pages, and the steps of attention.
 *
 * Each function sums in one fixed order, whatever the number of rows. A sum over a vector runs in
 * VECTOR_LANES lanes (element i belongs to lane i % 16), each in order, and the lanes are folded by
 * halves: 8 onto 8, 4 onto 4, 2 onto 2, 1 onto 1. The 512-bit, 256-bit and scalar paths all follow
 * it with the same fused multiply-adds, so they give identical bits. */

enum {
    ATTENTION_BLOCK = 128, /* absolute positions that make one partial result */
    VECTOR_LANES = 16,
    KEY_TILE = 32, /* keys or values converted to floats and used at a time */
    WIDE_DIM = 256,
};

/* In attention a head's vector is padded with zeros to `dim`, a multiple of VECTOR_LANES, which may
 * differ between keys and values. A partial result, from one block of keys or merged from several,
 * is a run of attention_stride(dim) floats, with the dim of values:
 *
 *   out[dim] = sum of e^(score - max) * value │ max │ sum of e^(score - max) │ unused
 *
 * A tile of keys or values is [dim / VECTOR_LANES][KEY_TILE][VECTOR_LANES] floats, so that kernels
 * walk it with a stride that does not depend on dim. */
static inline uint32_t attention_dim(uint32_t head_dim)
{
    return (head_dim + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES;
}

static inline uint32_t attention_stride(uint32_t dim)
{
    return dim + VECTOR_LANES;
}

/* Buffers marked `aligned` below are aligned to 64 bytes. */
struct vector_kernels {
    /* x = cap * tanh(x / cap) */
    void (*softcap)(float *x, uint32_t n, float cap);
    /* Rotates one head in place: x[i] = x[i] * cos[i] + x[partner of i] * sin[i] for i < dim. The
     * tables (see rope.h) include the sign of the sine. */
    void (*rope)(enum rope_kind kind, const float *cos, const float *sin, uint32_t dim, float *x);
    /* Converts n floats to the KV type. */
    void (*kv_store)(enum kv_type type, const float *x, void *out, uint32_t n);

    /* Attention, one tile at a time. `rows` points to the keys or values of a head in their pages,
     * n elements each: KEY_TILE pointers; those from n_rows on repeat a valid one.
     *
     * scores[i * ATTENTION_BLOCK + j] = q[i] . keys[j], straight from the pages, for few queries.
     * q: [n_q][dim] aligned */
    void (*scores_few)(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *q, uint32_t n_q, uint32_t dim, float *scores);
    /* out[i][d] += weights[i][j] * values[j][d], in the order of j < n_rows.
     * weights: [n_q][ATTENTION_BLOCK]; out: [n_q] runs of attention_stride(dim), aligned */
    void (*values_few)(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                       const float *weights, uint32_t n_q, uint32_t dim, float *out);

    /* The same bits for many queries: the rows are first converted to floats, with zeros after the
     * n-th, and keys are transposed to [dim][KEY_TILE]. tile: aligned. It pays from `many_queries`
     * queries on, or `many_wide_queries` for heads with at least WIDE_DIM elements, for which
     * folding sums costs less. */
    uint32_t many_queries, many_wide_queries;
    void (*kv_load)(enum kv_type type, const void *const *rows, uint32_t n_rows, uint32_t n,
                    float *tile);
    void (*transpose)(const float *tile, uint32_t dim, float *transposed);
    void (*scores_many)(const float *q, uint32_t n_q, const float *transposed, uint32_t dim,
                        float *scores);
    void (*values_many)(const float *weights, uint32_t n_q, uint32_t n_keys, const float *tile,
                        uint32_t dim, float *out);

    /* Turns the scores of one block into weights e^(score - max), with 0 before `begin` and from
     * `end` on, and writes max and sum. scores: [ATTENTION_BLOCK] aligned */
    void (*softmax)(float *scores, uint32_t begin, uint32_t end, float *max, float *sum);
    /* Merges `partial`, the result to the right of `state`, into `state`. */
    void (*merge)(float *state, const float *partial, uint32_t dim);
    /* out = state's out / its sum, n <= dim elements */
    void (*finish)(const float *state, uint32_t dim, float *out, uint32_t n);
};

extern const struct vector_kernels vector_kernels_ref, vector_kernels_avx2, vector_kernels_avx512;

#endif
