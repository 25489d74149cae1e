/* Parts of a softmax that are computed apart, and their merging. The order of merging is part of
 * the result, so all kernels do it with these functions. Scores are in the unit of log2. */
#pragma once
#include "activation.cuh"

constexpr float LOG2_E = 1.4426950408889634f;

struct softmax_state {
    float largest, sum;
};

struct merge_factors {
    float old, added;
};

__device__ __forceinline__ softmax_state softmax_empty()
{
    return {-INFINITY, 0.0f};
}

/* Adds a part to the state; values follow with merge_value. False: the part is empty. */
__device__ __forceinline__ bool merge_part(softmax_state &s, softmax_state part, merge_factors &f)
{
    if (part.largest == -INFINITY)
        return false;
    float largest = fmaxf(s.largest, part.largest);
    f = {exp2f(s.largest - largest), exp2f(part.largest - largest)};
    s.sum = __fmaf_rn(part.sum, f.added, __fmul_rn(s.sum, f.old));
    s.largest = largest;
    return true;
}

__device__ __forceinline__ float merge_value(float old, float added, merge_factors f)
{
    return __fmaf_rn(added, f.added, __fmul_rn(old, f.old));
}

/* The factor of the values at the end, with the head's sink if it has one. */
__device__ __forceinline__ float softmax_end(softmax_state s, const float *sinks, uint32_t head)
{
    if (!sinks)
        return 1.0f / s.sum;
    float sink = sinks[head] * LOG2_E, largest = fmaxf(s.largest, sink);
    float old = exp2f(s.largest - largest);
    return old / __fmaf_rn(s.sum, old, exp2f(sink - largest));
}
