#ifndef RADISH_ENGINE_CPU_KERNELS_ELEMENTWISE_H
#define RADISH_ENGINE_CPU_KERNELS_ELEMENTWISE_H

#include <stdint.h>

#include "model/model.h"

/* Row operations between a decoder's products: norms, activations, scales, caps.
 *
 * The functions are written once, in elementwise_loops.h, on 16 floats at a time; a kernel path
 * only defines the operations on 16 floats. So all paths give identical bits. A sum over a row runs
 * in 16 lanes (element i belongs to lane i % 16), each in order, and the lanes are folded by
 * halves. `out` may be any of the inputs. */
struct elementwise_kernels {
    /* out = x / rms(x) * weight, with the mean of x subtracted first for NORM_LAYER. NULL weight:
     * all 1. */
    void (*norm)(enum norm_kind kind, const float *x, const float *weight, float *out, uint32_t n,
                 float eps);
    /* out = activation(gate) * up; `up` NULL: activation(gate). `limit`:
     * hparams.activation_limit */
    void (*activate)(enum activation kind, float limit, const float *gate, const float *up,
                     float *out, uint32_t n);
    /* acc += x * scale, rounded once */
    void (*add_scaled)(float *acc, const float *x, float scale, uint32_t n);
    void (*scale)(float *x, float factor, uint32_t n);
    /* x = x * weight, element by element */
    void (*multiply)(float *x, const float *weight, uint32_t n);
    /* x = 1 / (1 + e^-x) */
    void (*sigmoid)(float *x, uint32_t n);
    /* x = e^x / sum of them */
    void (*softmax)(float *x, uint32_t n);
};

extern const struct elementwise_kernels elementwise_kernels_ref, elementwise_kernels_avx2,
    elementwise_kernels_avx512;

#endif
