#ifndef RADISH_ENGINE_CPU_VECTOR_H
#define RADISH_ENGINE_CPU_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

/* Everything between the matrix products: norms, the gate, rope, and attention over pages. Each
 * function has one order of sums whatever the number of rows, so that the same bits come out. */

enum { ATTENTION_BLOCK = 128 }; /* absolute positions that make one partial result */

struct vector_kernels {
    /* out = x / rms(x) * weight */
    void (*rms_norm)(const float *x, const float *weight, float *out, uint32_t n, float eps);
    /* out = silu(gate) * up */
    void (*silu_mul)(const float *gate, const float *up, float *out, uint32_t n);
    /* acc += x */
    void (*add)(float *acc, const float *x, uint32_t n);
    /* n floats to the KV type and back */
    void (*kv_store)(enum kv_type type, const float *x, void *out, uint32_t n);
    void (*kv_load)(enum kv_type type, const void *x, float *out, uint32_t n);
};

extern const struct vector_kernels vector_kernels_ref, vector_kernels_avx2, vector_kernels_avx512;

#endif
