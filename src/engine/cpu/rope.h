#ifndef RADISH_ENGINE_CPU_ROPE_H
#define RADISH_ENGINE_CPU_ROPE_H

#include <stdint.h>

#include "model/model.h"

/* The angle that position 1 gives to each pair: out[rope_dim / 2]. */
void rope_frequencies(const struct hparams *hp, const struct weight *divisors, double *out);
/* The tables of one position, for vector_kernels.rope: cos[rope_dim] and sin[rope_dim], where sin
 * is negative for the first of a pair. They depend on the position alone. */
void rope_tables(const struct hparams *hp, const double *frequencies, uint32_t position, float *cos,
                 float *sin);

#endif
