/* The peak loops, written once: a .c file of one instruction set defines the types vi and vf,
 * INT8_MACS, the multiply-adds in one dot product, and its operations, then includes this file,
 * which is why it has no include guard.
 *
 * A compiler that sees equal sums computes only one of them. So it must not know what is in the
 * registers: HIDE changes nothing but makes the compiler assume otherwise. */
#include "engine/cpu/kernels/peak.h"

enum { CHAINS = 12 }; /* latency times instructions per cycle, and a few more */

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif
#define HIDE(x) __asm__ volatile("" : "+x"(x))

static uint64_t int8_macs(uint32_t rounds)
{
    vi sums[CHAINS], a = vi_zero(), b = vi_zero();
    HIDE(b);
    UNROLL
    for (int k = 0; k < CHAINS; k++) {
        sums[k] = vi_zero();
        HIDE(sums[k]);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        UNROLL
        for (int k = 0; k < CHAINS; k++) {
            HIDE(a);
            sums[k] = vi_dot(sums[k], a, b);
        }
    }
    UNROLL
    for (int k = 0; k < CHAINS; k++)
        HIDE(sums[k]);
    return (uint64_t)rounds * CHAINS * INT8_MACS;
}

static uint64_t float_macs(uint32_t rounds)
{
    vf sums[CHAINS], a = vf_zero(), b = vf_zero();
    HIDE(a);
    HIDE(b);
    UNROLL
    for (int k = 0; k < CHAINS; k++) {
        sums[k] = vf_zero();
        HIDE(sums[k]);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        UNROLL
        for (int k = 0; k < CHAINS; k++)
            sums[k] = vf_fma(a, b, sums[k]);
    }
    UNROLL
    for (int k = 0; k < CHAINS; k++)
        HIDE(sums[k]);
    return (uint64_t)rounds * CHAINS * (sizeof(vf) / sizeof(float));
}
