/* Activations: the gate of a feed-forward block, and rows for the next product. */
#pragma once
#include "engine/cuda/cuda_params.h"
#include "mma.cuh"

/* Writes value `at` of a row of activations. F16 is multiplied by `f16_factor` first. */
__device__ __forceinline__ void write_activation(const cuda_activations &out, uint32_t row,
                                                 uint32_t at, float value, float f16_factor = 1.0f)
{
    size_t i = (size_t)row * out.stride + at;
    if (out.f16)
        static_cast<__half *>(out.f16)[i] = half_of(value * f16_factor);
    if (out.bf16)
        static_cast<__nv_bfloat16 *>(out.bf16)[i] = __float2bfloat16_rn(value);
    if (out.f32)
        out.f32[i] = value;
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

__device__ __forceinline__ float activate(uint32_t activation, float limit, float gate, float up)
{
    switch (activation) {
    case CUDA_SILU: return gate * sigmoid(gate) * up;
    case CUDA_GELU_TANH: {
        float inner = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
        return 0.5f * gate * (1.0f + tanhf(inner)) * up;
    }
    case CUDA_GELU: return 0.5f * gate * (1.0f + erff(gate * 0.7071067811865476f)) * up;
    default:
        gate = fminf(gate, limit);
        up = fminf(fmaxf(up, -limit), limit);
        return gate * sigmoid(1.702f * gate) * (up + 1.0f);
    }
}
