#ifndef RADISH_ENGINE_CPU_KERNELS_PEAK_H
#define RADISH_ENGINE_CPU_KERNELS_PEAK_H

#include <stdint.h>

/* The most multiply-adds that a kernel path's instructions can do, with nothing around them: no
 * loads, and enough independent sums that none waits for another. What the kernels of the path
 * reach is compared with it, so it must not be less than they could ever do. Each function runs
 * that many rounds and returns the multiply-adds that they were. */
struct peak_kernels {
    uint64_t (*int8_macs)(uint32_t rounds);
    uint64_t (*float_macs)(uint32_t rounds);
};

extern const struct peak_kernels peak_kernels_ref, peak_kernels_avx2, peak_kernels_avx512,
    peak_kernels_vnni, peak_kernels_amx;

#endif
