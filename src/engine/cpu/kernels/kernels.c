/* Which kernel paths there are, and which of them this CPU can run. */
#include "engine/cpu/kernels/kernels.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows F16C. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

/* Linux lets a process use the tile registers only after it has asked, once for all threads. */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, TILE_BIT = 1 << 24, INT8_BIT = 1 << 25 };
    unsigned a, b, c, d;
    return has_avx512_vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILE_BIT) &&
           (d & INT8_BIT) && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

static const struct {
    struct kernels kernels;
    bool (*runs_here)(void);
} paths[] = {
    {{"scalar", &matmul_kernels_ref, &vector_kernels_ref, &elementwise_kernels_ref,
      &peak_kernels_ref},
     always},
#if defined(__x86_64__)
    {{"avx2", &matmul_kernels_avx2, &vector_kernels_avx2, &elementwise_kernels_avx2,
      &peak_kernels_avx2},
     has_avx2},
    {{"avx512", &matmul_kernels_avx512, &vector_kernels_avx512, &elementwise_kernels_avx512,
      &peak_kernels_avx512},
     has_avx512},
    {{"avx512-vnni", &matmul_kernels_vnni, &vector_kernels_avx512, &elementwise_kernels_avx512,
      &peak_kernels_vnni},
     has_avx512_vnni},
    {{"amx", &matmul_kernels_amx, &vector_kernels_avx512, &elementwise_kernels_avx512,
      &peak_kernels_amx},
     has_amx},
#endif
};

enum { N_PATHS = sizeof paths / sizeof paths[0] };

const struct kernels *kernels_at(unsigned i)
{
    for (unsigned p = 0; p < N_PATHS; p++)
        if (paths[p].runs_here() && i-- == 0)
            return &paths[p].kernels;
    return NULL;
}

const struct kernels *kernels_select(const char *name)
{
    const struct kernels *best = NULL;
    for (unsigned i = 0; kernels_at(i); i++)
        if (!name || strcmp(kernels_at(i)->name, name) == 0)
            best = kernels_at(i);
    return best;
}
