/* The passes over all logits for any machine, and the choice of the best version for this one. */
#include "sched/sampler_scan_loops.h"

#include <stdbool.h>
#include <stddef.h>

static const struct sampler_scan scan_plain = SCAN_FUNCTIONS;

const struct sampler_scan *sampler_scan_at(uint32_t i)
{
    const struct sampler_scan *scans[3] = {&scan_plain};
    uint32_t n = 1;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        scans[n++] = &sampler_scan_avx2;
    if (n > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        scans[n++] = &sampler_scan_avx512;
#endif
    return i < n ? scans[i] : NULL;
}

const struct sampler_scan *sampler_scan_select(void)
{
    const struct sampler_scan *best = sampler_scan_at(0);
    for (uint32_t i = 1; sampler_scan_at(i); i++)
        best = sampler_scan_at(i);
    return best;
}
