/* The peak of the path without vector instructions: the loops of matmul_ref.c and vector_ref.c on
 * data in the nearest cache. Compilers may optimize them, as they do there. */
#include "engine/cpu/kernels/peak.h"

#include <math.h>
#include <stddef.h>

enum { DOT_LENGTH = 1024, LANES = 16 };

static uint64_t int8_macs(uint32_t rounds)
{
    int8_t weights[DOT_LENGTH], x[DOT_LENGTH];
    volatile int32_t keep = 0;
    for (int i = 0; i < DOT_LENGTH; i++) {
        weights[i] = (int8_t)(i % 16);
        x[i] = (int8_t)(i % 100);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        int32_t sum = 0;
        for (int i = 0; i < DOT_LENGTH; i++)
            sum += weights[i] * x[i];
        keep = sum;
        __asm__ volatile("" : : "r"(weights), "r"(x) : "memory");
    }
    (void)keep;
    return (uint64_t)rounds * DOT_LENGTH;
}

static uint64_t float_macs(uint32_t rounds)
{
    float sums[LANES] = {0}, x[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = (float)i;
    for (uint32_t round = 0; round < rounds; round++) {
        for (int i = 0; i < LANES; i++)
            sums[i] = fmaf(x[i], 0.5f, sums[i]);
        __asm__ volatile("" : : "r"(x), "r"(sums) : "memory");
    }
    return (uint64_t)rounds * LANES;
}

const struct peak_kernels peak_kernels_ref = {int8_macs, float_macs};
