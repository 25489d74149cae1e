#ifndef RADISH_ENGINE_CPU_KERNELS_PEAK_H
#define RADISH_ENGINE_CPU_KERNELS_PEAK_H

#include <stdint.h>

/* Measures the most multiply-adds that a kernel path's instructions can do on their own: no loads,
 * and enough independent sums that none waits for another. The path's kernels are compared with it,
 * so it must not be lower than they could ever reach. Each function runs `rounds` rounds and
 * returns the number of multiply-adds done. */
struct peak_kernels {
    uint64_t (*int8_macs)(uint32_t rounds);
    uint64_t (*float_macs)(uint32_t rounds);
};

extern const struct peak_kernels peak_kernels_ref, peak_kernels_avx2, peak_kernels_avx512,
    peak_kernels_vnni, peak_kernels_amx;

#endif
