/* The instructions that kernels are made of: tensor cores, asynchronous copies, dependent
 * launches, and numbers of 16 bits. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* D += A B on 16 x 16 and 16 x 8 values. */
template <bool IS_BF16>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1)
{
    if constexpr (IS_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Copies 16 bytes to shared memory in the background, if `is_wanted`; without a branch. */
__device__ __forceinline__ void copy_async(void *shared, const void *global, bool is_wanted = true)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;"
                 " @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16; }" ::"r"(to),
                 "l"(global), "r"((uint32_t)is_wanted)
                 : "memory");
}

/* (a & MASK) | bits in one instruction. */
template <uint32_t MASK> __device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t bits)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "n"(MASK), "r"(bits));
    return r;
}

__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most N of the groups committed last are unfinished. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Programmatic dependent launch: a kernel may start before the one before it has ended. All kernels
 * wait for that one first and then let the next one start, so before its wait a kernel may read
 * what all but the last kernel wrote, and the tables that were copied before the step. */
__device__ __forceinline__ void launch_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* To 16 bits, where what is too large becomes the largest number and not infinity. */
__device__ __forceinline__ __half half_of(float x)
{
    return __float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f));
}

__device__ __forceinline__ uint32_t pack_half(float lo, float hi)
{
    __half2 h = __halves2half2(half_of(lo), half_of(hi));
    return *reinterpret_cast<uint32_t *>(&h);
}

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&h);
}

__device__ __forceinline__ __half2 as_half2(uint32_t bits)
{
    return *reinterpret_cast<__half2 *>(&bits);
}

__device__ __forceinline__ uint32_t as_bits(__half2 h)
{
    return *reinterpret_cast<uint32_t *>(&h);
}

/* The sum over a warp, the same in all lanes, in a fixed order. */
__device__ __forceinline__ float warp_sum(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
