/* What happens to rows between products: tables of a step, norms, heads, gated activations. A row's
 * results depend on that row alone; sums are made in one order. */
#include "softmax.cuh"

/* Fills the rope tables of the step's rows, and the page table from its runs. */
extern "C" __global__ void __launch_bounds__(128)
    step_tables(const __grid_constant__ rope_params p)
{
    launch_wait();
    launch_next();
    for (uint32_t row = blockIdx.x; row < p.step->n_rows; row += gridDim.x) {
        double position = p.rows[row].rope;
        for (uint32_t i = 0; i < CUDA_MAX_ROPES; i++)
            for (uint32_t d = threadIdx.x; d < p.half[i]; d += blockDim.x) {
                double sine, cosine;
                sincos(position * p.frequencies[i][d], &sine, &cosine);
                float *to = p.table[i] + ((size_t)row * p.half[i] + d) * 2;
                to[0] = p.amplitude[i] * (float)cosine;
                to[1] = p.amplitude[i] * (float)sine;
            }
    }
    for (uint32_t i = blockIdx.x; i < p.step->n_runs; i += gridDim.x) {
        cuda_run run = p.runs[i];
        for (uint32_t k = threadIdx.x; k < run.count; k += blockDim.x)
            p.page_table[run.at + k] = run.page + k;
    }
}

constexpr int NORM_THREADS = 1024;

/* The sum over a block of NORM_THREADS threads, the same in all, in a fixed order. */
__device__ __forceinline__ float block_sum(float x, float *scratch)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(scratch[threadIdx.x % 32]);
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
    norm_rows(const __grid_constant__ norm_params p)
{
    constexpr uint32_t KEPT = 4; /* values of a thread that are read once: rows of 4,096 */
    __shared__ float scratch[NORM_THREADS / 32];
    uint32_t row = p.first_row + blockIdx.x, n_rows = *p.n_rows;
    uint32_t from = p.row_of && row < n_rows ? p.row_of[row] : row;
    float kept_weight[KEPT], kept[KEPT], sum = 0.0f;
#pragma unroll
    for (uint32_t k = 0; k < KEPT; k++) {
        uint32_t i = k * NORM_THREADS + threadIdx.x;
        kept_weight[k] = p.weight && i < p.n ? p.weight[i] : 1.0f;
    }
    launch_wait();
    launch_next();
    if (row >= n_rows)
        return;
    const float *x = p.x + (size_t)from * p.n;
#pragma unroll
    for (uint32_t k = 0; k < KEPT; k++) {
        uint32_t i = k * NORM_THREADS + threadIdx.x;
        kept[k] = i < p.n ? x[i] : 0.0f;
    }
#pragma unroll
    for (uint32_t k = 0; k < KEPT; k++)
        sum = fmaf(kept[k], kept[k], sum);
    for (uint32_t i = KEPT * NORM_THREADS + threadIdx.x; i < p.n; i += NORM_THREADS)
        sum = fmaf(x[i], x[i], sum);
    float norm = 1.0f / sqrtf(block_sum(sum, scratch) / (float)p.n + p.eps);
    float factor = p.weight ? norm : 1.0f; /* without a weight there is no norm */
    for (uint32_t k = 0, i = threadIdx.x; i < (p.add_to ? p.n : p.out.stride);
         k++, i += NORM_THREADS) {
        float value = 0.0f, weight = 1.0f;
        if (i < p.n) {
            value = k == 0 ? kept[0] : k == 1 ? kept[1] : k == 2 ? kept[2] : k == 3 ? kept[3] : x[i];
            weight = k == 0   ? kept_weight[0]
                     : k == 1 ? kept_weight[1]
                     : k == 2 ? kept_weight[2]
                     : k == 3 ? kept_weight[3]
                     : p.weight ? p.weight[i]
                                : 1.0f;
        }
        value = value * factor * weight;
        if (p.add_to)
            p.add_to[(size_t)row * p.n + i] = fmaf(value, p.factor, p.add_to[(size_t)row * p.n + i]);
        else
            write_activation(p.out, row, i, value);
    }
}

constexpr int HEAD_VALUES = ATTENTION_MAX_DIM / 32;

/* One head of a row, shared by a warp: lane l has values l, l + 32, ... */
struct head {
    float values[HEAD_VALUES];
    uint32_t dim;
};

__device__ __forceinline__ head load_head(const float *from, uint32_t dim, uint32_t lane)
{
    head h;
    h.dim = dim;
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++)
        h.values[i] = lane + 32 * i < dim ? from[lane + 32 * i] : 0.0f;
    return h;
}

__device__ __forceinline__ void norm_head(head &h, const float *weight, float eps, uint32_t lane)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++)
        sum = fmaf(h.values[i], h.values[i], sum);
    float factor = 1.0f / sqrtf(warp_sum(sum) / (float)h.dim + eps);
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++)
        if (lane + 32 * i < h.dim)
            h.values[i] = h.values[i] * factor * weight[lane + 32 * i];
}

/* Rotates the first 2 * half values; `exchange` is the warp's. */
__device__ __forceinline__ void turn_head(head &h, const heads_params &p, uint32_t row,
                                          float *exchange, uint32_t lane)
{
    const float *table = p.rope + (size_t)row * p.half * 2;
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++)
        exchange[lane + 32 * i] = h.values[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++) {
        uint32_t at = lane + 32 * i;
        if (at >= 2 * p.half)
            continue;
        uint32_t pair = p.is_neox ? at % p.half : at / 2;
        bool is_first = p.is_neox ? at < p.half : at % 2 == 0;
        uint32_t other = p.is_neox ? (is_first ? at + p.half : at - p.half) : at ^ 1;
        float cosine = table[2 * pair], sine = is_first ? -table[2 * pair + 1] : table[2 * pair + 1];
        h.values[i] = fmaf(exchange[other], sine, h.values[i] * cosine);
    }
}

__device__ __forceinline__ void store_head(const head &h, void *base, size_t at, uint32_t kv_type,
                                           float factor, uint32_t lane)
{
#pragma unroll
    for (int i = 0; i < HEAD_VALUES; i++) {
        uint32_t d = lane + 32 * i;
        float value = h.values[i] * factor;
        if (d >= h.dim)
            continue;
        if (kv_type == CUDA_KV_F32)
            static_cast<float *>(base)[at + d] = value;
        else if (kv_type == CUDA_KV_BF16)
            static_cast<__nv_bfloat16 *>(base)[at + d] = __float2bfloat16_rn(value);
        else
            static_cast<__half *>(base)[at + d] = half_of(value);
    }
}

/* Norms and rotates the heads of a row, scales its queries, and stores its keys and values in their
 * pages. A warp does one head: queries, then keys, then values. */
extern "C" __global__ void __launch_bounds__(128)
    place_heads(const __grid_constant__ heads_params p)
{
    __shared__ float exchange[4][ATTENTION_MAX_DIM];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x;
    uint32_t index = blockIdx.y * 4 + warp, n_kv = p.stores_kv ? p.n_kv_heads : 0;
    bool is_wanted = row < p.step->n_rows && index < p.n_heads + 2 * n_kv;
    cuda_row r = p.rows[row];
    launch_wait();
    launch_next();
    if (!is_wanted)
        return;
    if (index < p.n_heads) {
        size_t at = ((size_t)row * p.n_heads + index) * p.key_dim;
        head h = load_head(p.q + at, p.key_dim, lane);
        if (p.q_norm)
            norm_head(h, p.q_norm + (p.norm_is_each ? index * p.key_dim : 0), p.eps, lane);
        if (p.rope)
            turn_head(h, p, row, exchange[warp], lane);
        float factor = p.scale;
        if (p.temperature_scale != 0.0f) {
            double periods = floor((double)r.position / p.temperature_length);
            factor *= (float)(1.0 + p.temperature_scale * log(1.0 + periods));
        }
        store_head(h, p.q_out, at, p.kv_type, factor, lane);
        return;
    }
    size_t page = r.pages[p.group];
    index -= p.n_heads;
    if (index < n_kv) {
        head h = load_head(p.k + ((size_t)row * n_kv + index) * p.key_dim, p.key_dim, lane);
        if (p.k_norm)
            norm_head(h, p.k_norm + (p.norm_is_each ? index * p.key_dim : 0), p.eps, lane);
        if (p.rope)
            turn_head(h, p, row, exchange[warp], lane);
        store_head(h, p.keys, (page * n_kv + index) * p.key_dim, p.kv_type, 1.0f, lane);
        return;
    }
    index -= n_kv;
    head h = load_head(p.v + ((size_t)row * n_kv + index) * p.value_dim, p.value_dim, lane);
    store_head(h, p.values, (page * n_kv + index) * p.value_dim, p.kv_type, 1.0f, lane);
}

extern "C" __global__ void __launch_bounds__(256) gated_rows(const __grid_constant__ gated_params p)
{
    launch_wait();
    launch_next();
    uint32_t row = blockIdx.x, i = blockIdx.y * 256 + threadIdx.x;
    if (row >= *p.n_rows * p.rows_per_row || i >= p.out.stride)
        return;
    size_t at = (size_t)row * p.n + i;
    float value = 0.0f;
    if (i < p.n)
        value = activate(p.activation, p.limit, p.gate[at], p.up ? p.up[at] : 1.0f);
    write_activation(p.out, row, i, value, p.f16_factor);
}

/* Reads memory as fast as it can be read, to measure that. */
extern "C" __global__ void __launch_bounds__(512) read_all(const __grid_constant__ read_params p)
{
    const uint4 *data = static_cast<const uint4 *>(p.data);
    uint32_t sum = 0;
    launch_wait();
    for (size_t i = (size_t)blockIdx.x * 512 + threadIdx.x; i < p.n; i += (size_t)gridDim.x * 512) {
        uint4 v = data[i];
        sum |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678u)
        *p.sink = sum;
}
