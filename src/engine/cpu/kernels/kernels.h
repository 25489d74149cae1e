#ifndef RADISH_ENGINE_CPU_KERNELS_KERNELS_H
#define RADISH_ENGINE_CPU_KERNELS_KERNELS_H

#include "engine/cpu/kernels/elementwise.h"
#include "engine/cpu/kernels/matmul.h"
#include "engine/cpu/kernels/peak.h"
#include "engine/cpu/kernels/vector.h"

/* A kernel path is four tables of functions, compiled for one instruction set and chosen once, at
 * run time. The *_ref.c files are short and obviously right; the unit tests compare every other
 * path with them on random data, on each machine that can run it. */
struct kernels {
    const char *name; /* "scalar", "avx2", "avx512", "avx512-vnni", "amx" */
    const struct matmul_kernels *matmul;
    const struct vector_kernels *vector;
    const struct elementwise_kernels *elementwise;
    const struct peak_kernels *peak;
};

/* The path with that name, or, for NULL, the best on this CPU; NULL if the CPU cannot run it. */
const struct kernels *kernels_select(const char *name);
/* The i-th path that this CPU can run, slowest first; NULL past the last. */
const struct kernels *kernels_at(unsigned i);

#endif
