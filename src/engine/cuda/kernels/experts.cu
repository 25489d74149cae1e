/* Mixtures of experts: which experts a row goes to, the rows of each expert side by side, and the
 * sum of their results in order of rank. */
#include "softmax.cuh"

constexpr int MAX_EXPERTS = 1024, LANE_EXPERTS = MAX_EXPERTS / 32;

__device__ __forceinline__ float warp_max(float x)
{
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Turns a warp's logits into scores: expert lane + 32 i is values[i]. */
__device__ __forceinline__ void score(float (&values)[LANE_EXPERTS], const choose_params &p,
                                      uint32_t lane)
{
    float most = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        most = fmaxf(most, values[i]);
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        if (lane + 32 * i >= p.n_experts)
            continue;
        if (p.scores == CUDA_SIGMOID)
            values[i] = sigmoid(values[i]);
        else if (p.scores == CUDA_SOFTMAX)
            sum += values[i] = expf(values[i] - most);
    }
    if (p.scores != CUDA_SOFTMAX)
        return;
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        values[i] = lane + 32 * i < p.n_experts ? values[i] / sum : -INFINITY;
}

/* The best expert that is left: the largest, then the smallest index. No value is NaN, or lanes
 * would disagree. */
__device__ __forceinline__ uint32_t take_best(const float (&ranked)[LANE_EXPERTS], uint32_t &taken,
                                              uint32_t lane)
{
    float best = -INFINITY;
    uint32_t index = CUDA_NONE;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        if (!(taken >> i & 1) && (index == CUDA_NONE || ranked[i] > best)) {
            best = ranked[i];
            index = lane + 32 * i;
        }
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, step);
        uint32_t other_index = __shfl_xor_sync(0xffffffffu, index, step);
        if (other > best || (other == best && other_index < index)) {
            best = other;
            index = other_index;
        }
    }
    if (index % 32 == lane)
        taken |= 1u << (index / 32);
    return index;
}

/* A warp chooses the experts of a row. */
extern "C" __global__ void __launch_bounds__(32)
    choose_experts(const __grid_constant__ choose_params p)
{
    launch_wait();
    launch_next();
    uint32_t row = blockIdx.x, lane = threadIdx.x;
    if (row >= *p.n_rows)
        return;
    float values[LANE_EXPERTS], ranked[LANE_EXPERTS];
    uint32_t taken = 0;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        uint32_t e = lane + 32 * i;
        values[i] = e < p.n_experts ? p.logits[(size_t)row * p.n_experts + e] : -INFINITY;
        if (e >= p.n_experts)
            taken |= 1u << i;
    }
    score(values, p, lane);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        uint32_t e = lane + 32 * i;
        ranked[i] = p.correction && e < p.n_experts ? values[i] + p.correction[e] : values[i];
        if (isnan(ranked[i])) /* the last choice; its weight stays NaN */
            ranked[i] = -INFINITY;
    }
    uint32_t *experts = p.experts + (size_t)row * p.n_chosen;
    float *weights = p.weights + (size_t)row * p.n_chosen;
    for (uint32_t c = 0; c < p.n_chosen; c++) {
        uint32_t e = take_best(ranked, taken, lane);
#pragma unroll
        for (int i = 0; i < LANE_EXPERTS; i++)
            if (e == lane + 32 * i) {
                experts[c] = e;
                weights[c] = values[i];
            }
    }
    __syncwarp();
    if (lane > 0)
        return;
    float most = weights[0], sum = 0.0f, added = 0.0f;
    if (p.scores == CUDA_SOFTMAX_CHOSEN) {
        for (uint32_t c = 1; c < p.n_chosen; c++)
            most = fmaxf(most, weights[c]);
        for (uint32_t c = 0; c < p.n_chosen; c++)
            sum += weights[c] = expf(weights[c] - most);
        for (uint32_t c = 0; c < p.n_chosen; c++)
            weights[c] /= sum;
    }
    for (uint32_t c = 0; c < p.n_chosen; c++)
        added += weights[c];
    for (uint32_t c = 0; c < p.n_chosen; c++)
        weights[c] = (p.normalizes ? weights[c] / (added + p.normalize_eps) : weights[c]) * p.scale;
}

/* Gives every choice a slot, so that an expert's rows are adjacent and in order, and cuts slots
 * into items. One block of threads, a thread for each expert. */
extern "C" __global__ void __launch_bounds__(MAX_EXPERTS)
    group_rows(const __grid_constant__ group_params p)
{
    __shared__ uint32_t counts[MAX_EXPERTS + 1], item_counts[MAX_EXPERTS + 1];
    launch_wait();
    launch_next();
    uint32_t e = threadIdx.x, n = *p.n_rows * p.n_chosen, count = 0;
    if (e < p.n_experts)
        for (uint32_t i = 0; i < n; i++)
            count += p.experts[i] == e;
    counts[e] = count;
    item_counts[e] = (count + p.rows_of_item - 1) / p.rows_of_item;
    __syncthreads();
    if (e == 0) {
        uint32_t slot = 0, item = 0;
        for (uint32_t i = 0; i < p.n_experts; i++) {
            uint32_t c = counts[i], k = item_counts[i];
            counts[i] = slot, item_counts[i] = item;
            slot += c, item += k;
        }
        *p.n_items = item;
    }
    __syncthreads();
    if (e >= p.n_experts)
        return;
    uint32_t slot = counts[e];
    for (uint32_t at = 0, i = item_counts[e]; at < count; at += p.rows_of_item, i++)
        p.items[i] = {e, slot + at, min(p.rows_of_item, count - at)};
    for (uint32_t i = 0; i < n && count > 0; i++)
        if (p.experts[i] == e) {
            p.slot_of[i] = slot;
            p.row_of[slot++] = i / p.n_chosen;
        }
}

extern "C" __global__ void __launch_bounds__(256)
    add_experts(const __grid_constant__ mixture_params p)
{
    launch_wait();
    launch_next();
    uint32_t row = blockIdx.x;
    if (row >= *p.n_rows)
        return;
    const uint32_t *slots = p.slot_of + (size_t)row * p.n_chosen;
    const float *weights = p.weights + (size_t)row * p.n_chosen;
    float *to = p.to + (size_t)row * p.n;
    for (uint32_t i = blockIdx.y * 256 + threadIdx.x; i < p.n; i += 256 * gridDim.y) {
        float sum = p.out[(size_t)slots[0] * p.n + i] * weights[0];
        for (uint32_t c = 1; c < p.n_chosen; c++)
            sum = fmaf(p.out[(size_t)slots[c] * p.n + i], weights[c], sum);
        to[i] = p.adds ? fmaf(sum, p.factor, to[i]) : sum;
    }
}
