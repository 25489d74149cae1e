/* From the packed tiles of cuda_format.h to the registers of mma.m16n8k16. */
#pragma once
#include "engine/cuda/cuda_format.h"
#include "mma.cuh"

/* What a lane needs of a tile, in registers. */
template <cuda_format F> struct tile_words {
    static constexpr int N = format_tile_bytes(F) / 128; /* 32-bit words of a lane */
    uint32_t w[N];
    uint32_t scale[2]; /* output g, output g + 8 */
};

template <cuda_format F>
__device__ __forceinline__ void tile_load(tile_words<F> &tile, const uint8_t *data,
                                          const uint8_t *scales, int lane)
{
    constexpr int FULL = F == FORMAT_Q5 || F == FORMAT_Q6 ? 4 : tile_words<F>::N;
    const uint4 *wide = reinterpret_cast<const uint4 *>(data);
#pragma unroll
    for (int i = 0; i < FULL / 4; i++) {
        uint4 v = wide[i * 32 + lane];
        tile.w[4 * i] = v.x, tile.w[4 * i + 1] = v.y;
        tile.w[4 * i + 2] = v.z, tile.w[4 * i + 3] = v.w;
    }
    if constexpr (F == FORMAT_Q5)
        tile.w[4] = reinterpret_cast<const uint32_t *>(data + 512)[lane];
    if constexpr (F == FORMAT_Q6) {
        uint2 v = reinterpret_cast<const uint2 *>(data + 512)[lane];
        tile.w[4] = v.x, tile.w[5] = v.y;
    }
    int g = lane / 4, t = lane % 4;
    if constexpr (F == FORMAT_Q4 || F == FORMAT_Q5) {
        const uint32_t *s = reinterpret_cast<const uint32_t *>(scales) + g * 4 + t / 2;
        tile.scale[0] = s[0], tile.scale[1] = s[2];
    } else if constexpr (F == FORMAT_Q6) {
        const uint16_t *s = reinterpret_cast<const uint16_t *>(scales) + g * 8 + t;
        tile.scale[0] = s[0] * 0x10001u, tile.scale[1] = s[4] * 0x10001u;
    } else if constexpr (format_scale_bytes(F) > 0) {
        const uint16_t *s = reinterpret_cast<const uint16_t *>(scales) + g * 4 + t / 2;
        tile.scale[0] = s[0] * 0x10001u, tile.scale[1] = s[2] * 0x10001u;
    }
}

/* q of a pair as two halves, 1024 + q or 1024 + 16 q in, exact. */
template <int ZERO> __device__ __forceinline__ __half2 unbias_low(uint32_t bits)
{
    return __hsub2(as_half2(bits), __float2half2_rn(1024.0f + ZERO));
}

template <int ZERO> __device__ __forceinline__ __half2 unbias_high(uint32_t bits)
{
    return __hfma2(as_half2(bits), __float2half2_rn(0.0625f), __float2half2_rn(-64.0f - ZERO));
}

/* Pairs of 4 to 6 bits: bits above the fourth are in `high`, `WIDTH` of them for each value, from
 * bit `at` (and 16 + at) on for pair 0. */
template <int ZERO, int WIDTH>
__device__ __forceinline__ void unpack_nibbles(__half2 (&q)[4], uint32_t w, uint32_t high, int at)
{
    constexpr uint32_t MASK = WIDTH == 2 ? 0x00030003u : 0x00010001u;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t bits = 0x64006400u, low = p < 2 ? w : w >> 8;
        if constexpr (WIDTH > 0) {
            /* The bits above the fourth go to bit 4, or 8; from where `high` has them. */
            constexpr uint32_t LOW_MASK = MASK << 4, HIGH_MASK = MASK << 8;
            int to = p % 2 ? 8 : 4, from = at + WIDTH * p;
            uint32_t moved = from > to ? high >> (from - to) : high << (to - from);
            bits = p % 2 ? and_or<HIGH_MASK>(moved, bits) : and_or<LOW_MASK>(moved, bits);
        }
        q[p] = p % 2 ? unbias_high<ZERO>(and_or<0x00f000f0u>(low, bits))
                     : unbias_low<ZERO>(and_or<0x000f000fu>(low, bits));
    }
}

__device__ __forceinline__ uint32_t mul_bf16(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x = *reinterpret_cast<__nv_bfloat162 *>(&a);
    __nv_bfloat162 y = *reinterpret_cast<__nv_bfloat162 *>(&b);
    __nv_bfloat162 z = __hmul2(x, y);
    return *reinterpret_cast<uint32_t *>(&z);
}

/* The A operand of step j of a tile. */
template <cuda_format F>
__device__ __forceinline__ void tile_step(uint32_t (&a)[4], const tile_words<F> &tile, int j)
{
    if constexpr (F == FORMAT_F16 || F == FORMAT_BF16) {
#pragma unroll
        for (int p = 0; p < 4; p++)
            a[p] = tile.w[4 * j + p];
    } else if constexpr (F == FORMAT_MXFP4) {
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t v = tile.w[j] >> (4 * p);
            v = ((v & 0x00070007u) << 6) | ((v & 0x00080008u) << 12);
            a[p] = mul_bf16(mul_bf16(v, 0x7e807e80u), tile.scale[p % 2]); /* 2^126 */
        }
    } else if constexpr (F == FORMAT_Q8) {
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t w = tile.w[4 * (j / 2) + 2 * (j % 2) + p / 2];
            uint32_t bits = __byte_perm(w, 0x64646464u, p % 2 ? 0x4342 : 0x4140);
            __half2 q = __hsub2(as_half2(bits), __float2half2_rn(1152.0f));
            a[p] = as_bits(__hmul2(q, as_half2(tile.scale[p % 2])));
        }
    } else {
        __half2 q[4];
        if constexpr (F == FORMAT_Q6)
            unpack_nibbles<32, 2>(q, tile.w[j], tile.w[4 + j / 2], 8 * (j % 2));
        else if constexpr (F == FORMAT_Q5)
            unpack_nibbles<0, 1>(q, tile.w[j], tile.w[4], 4 * j);
        else
            unpack_nibbles<F == FORMAT_Q4Z ? 8 : 0, 0>(q, tile.w[j], 0, 0);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            __half2 s = as_half2(tile.scale[p % 2]);
            if constexpr (F == FORMAT_Q4 || F == FORMAT_Q5)
                a[p] = as_bits(__hfma2(q[p], __low2half2(s), __high2half2(s)));
            else
                a[p] = as_bits(__hmul2(q[p], s));
        }
    }
}
