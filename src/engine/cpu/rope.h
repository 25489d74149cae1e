#ifndef RADISH_ENGINE_CPU_ROPE_H
#define RADISH_ENGINE_CPU_ROPE_H

#include <stdint.h>

#include "model/model.h"

/* The tables of one position, for vector_kernels.rope: cos[dim] and sin[dim], where sin is negative
 * for the first of a pair. They depend only on the position. */
void rope_tables(const struct rope *rope, uint32_t position, float *cos, float *sin);

#endif
