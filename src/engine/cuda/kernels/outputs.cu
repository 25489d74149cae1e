/* The best logits of rows, so that not all of them have to leave the device. */
#include "softmax.cuh"

constexpr int BEST_THREADS = 1024;

/* A candidate: larger first, then the smaller token. */
struct candidate {
    float logit;
    uint32_t token;
};

__device__ __forceinline__ bool is_better(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

constexpr int BATCH = 8; /* logits that a thread loads at a time */

/* Calls f(logit, token) for a thread's tokens, in order. */
template <class F>
__device__ __forceinline__ void each_logit(const float *logits, uint32_t n, F f)
{
    for (uint32_t base = threadIdx.x; base < n; base += BATCH * BEST_THREADS) {
        float v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            v[k] = base + k * BEST_THREADS < n ? logits[base + k * BEST_THREADS] : 0.0f;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (base + k * BEST_THREADS < n)
                f(v[k], base + k * BEST_THREADS);
    }
}

/* The best of a thread's tokens that is no better than `first`. */
__device__ __forceinline__ candidate best_from(const float *logits, uint32_t n, candidate first)
{
    candidate best = {-INFINITY, CUDA_NONE};
    each_logit(logits, n, [&](float logit, uint32_t token) {
        candidate c = {logit, token};
        if (!is_better(c, first) && is_better(c, best))
            best = c;
    });
    return best;
}

__device__ __forceinline__ candidate warp_best(candidate c)
{
    for (int step = 16; step > 0; step /= 2) {
        candidate other = {__shfl_xor_sync(0xffffffffu, c.logit, step),
                           __shfl_xor_sync(0xffffffffu, c.token, step)};
        if (is_better(other, c))
            c = other;
    }
    return c;
}

/* The best of all threads, known to all. */
__device__ __forceinline__ candidate block_best(candidate c, candidate *shared)
{
    c = warp_best(c);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = c;
    __syncthreads();
    return warp_best(shared[threadIdx.x % 32]);
}

/* A block of threads for each output. */
extern "C" __global__ void __launch_bounds__(BEST_THREADS)
    best_logits(const __grid_constant__ best_params p)
{
    __shared__ candidate shared[32];
    __shared__ float sums[32];
    launch_wait();
    launch_next();
    uint32_t n_best = p.n_best[p.first_row + blockIdx.x];
    if (n_best == 0)
        return;
    const float *logits = p.logits + (size_t)blockIdx.x * p.n_vocab;
    cuda_best *out = p.best + (size_t)blockIdx.x * CUDA_MAX_BEST;
    candidate own = best_from(logits, p.n_vocab, {INFINITY, 0});
    float largest = 0.0f;
    for (uint32_t i = 0; i < n_best; i++) {
        candidate best = block_best(own, shared);
        if (threadIdx.x == 0)
            out[i] = {best.token == CUDA_NONE ? 0 : (int32_t)best.token, best.logit};
        if (i == 0)
            largest = best.logit;
        if (own.token == best.token && best.token != CUDA_NONE)
            own = best_from(logits, p.n_vocab, {best.logit, best.token + 1});
    }
    float sum = 0.0f;
    each_logit(logits, p.n_vocab, [&](float logit, uint32_t) {
        sum += logit == largest ? 1.0f : expf(logit - largest); /* even if both are infinite */
    });
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warp_sum(sums[threadIdx.x % 32]);
    if (threadIdx.x == 0)
        p.log_sums[blockIdx.x] = largest + logf(sum);
}
