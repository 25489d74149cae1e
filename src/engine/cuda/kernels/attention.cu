/* Attention over single-position pages. The result of a row is defined by absolute positions alone:
 * blocks of 128 from a fresh state, blocks of a segment of 512 merged in order, then segments in
 * order. Whether one block of threads does all segments or many do one each changes nothing.
 *
 * A warp attends to one block with 16 queries, the heads of a KV head for one or more rows. It
 * reads keys and values from their pages straight into the operands of the tensor cores: both are
 * free to permute the dimension that is summed over or the outputs, so that a lane's share of a
 * head is contiguous. */
#include "softmax.cuh"

constexpr int WARPS = 4;
static_assert(ATTENTION_SEGMENT == WARPS * ATTENTION_BLOCK, "a warp attends to a block");

struct queries {
    uint32_t first_row, n_rows, heads; /* of the unit */
    uint32_t kv_head, first_head;
};

__device__ __forceinline__ queries queries_of(const attention_params &p, const cuda_item &item,
                                              uint32_t unit)
{
    uint32_t group = p.n_heads / p.n_kv_heads, per_kv = (group + p.heads_per_unit - 1) / p.heads_per_unit;
    uint32_t kv = unit / per_kv, at = unit % per_kv * p.heads_per_unit;
    return {item.first_row, item.n_rows, min(p.heads_per_unit, group - at), kv, kv * group + at};
}

/* Query i is head i % heads_per_unit of row i / heads_per_unit. */
__device__ __forceinline__ bool query_exists(const attention_params &p, const queries &q, uint32_t i)
{
    return i / p.heads_per_unit < q.n_rows && i % p.heads_per_unit < q.heads;
}

__device__ __forceinline__ uint4 load_16_bytes(const uint16_t *head, uint32_t at, uint32_t dim)
{
    return head && at < dim ? *reinterpret_cast<const uint4 *>(head + at) : make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ void to_words(uint32_t *w, uint4 v)
{
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}

template <bool IS_BF16>
__device__ __forceinline__ void compute_scores(float (&s)[16][4], const attention_params &p,
                                               const queries &q, const uint32_t *pages, int lane)
{
    int g = lane / 4, t = lane % 4;
    const uint16_t *query[2];
    const uint16_t *keys = static_cast<const uint16_t *>(p.keys) + q.kv_head * p.key_dim;
    size_t page_values = (size_t)p.n_kv_heads * p.key_dim;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = g + 8 * i, row = q.first_row + at / p.heads_per_unit;
        size_t head = (size_t)row * p.n_heads + q.first_head + at % p.heads_per_unit;
        query[i] = query_exists(p, q, at) ? static_cast<const uint16_t *>(p.q) + head * p.key_dim
                                          : nullptr;
    }
#pragma unroll
    for (int n = 0; n < 16; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
    for (uint32_t at = 16 * t, end = p.key_dim; at < ((end + 63) / 64) * 64; at += 64) {
        uint32_t qw[2][8];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            to_words(qw[i], load_16_bytes(query[i], at, end));
            to_words(qw[i] + 4, load_16_bytes(query[i], at + 8, end));
        }
#pragma unroll
        for (int n = 0; n < 16; n++) {
            uint32_t page = pages[n * 8 + g], kw[8];
            const uint16_t *key = page == CUDA_NONE ? nullptr : keys + page * page_values;
            to_words(kw, load_16_bytes(key, at, end));
            to_words(kw + 4, load_16_bytes(key, at + 8, end));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t a[4] = {qw[0][2 * j], qw[1][2 * j], qw[0][2 * j + 1], qw[1][2 * j + 1]};
                mma_16x8x16<IS_BF16>(s[n], a, kw[2 * j], kw[2 * j + 1]);
            }
        }
    }
}

/* Caps and masks the scores of a block, and makes probabilities of them: the A operands of the
 * product with the values. */
template <bool IS_BF16>
__device__ __forceinline__ void make_probabilities(uint32_t (&prob)[8][4], float (&largest)[2],
                                                   float (&s)[16][4], const attention_params &p,
                                                   const queries &q, uint32_t start, int lane)
{
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = g + 8 * i;
        bool exists = query_exists(p, q, at);
        uint32_t position = exists ? p.rows[q.first_row + at / p.heads_per_unit].position : 0;
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < 16; n++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                uint32_t key = start + n * 8 + 2 * t + e % 2;
                bool is_seen = exists && key <= position &&
                               (p.window == 0 || key + p.window > position);
                if (p.cap != 0.0f)
                    s[n][e] = p.cap * tanhf(s[n][e] / p.cap) * LOG2_E;
                s[n][e] = is_seen ? s[n][e] : -INFINITY;
                most = fmaxf(most, s[n][e]);
            }
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        largest[i] = most;
        float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float *pair = &s[2 * k + half][2 * i];
                float x = exp2f(pair[0] - base), y = exp2f(pair[1] - base);
                prob[k][2 * half + i] = IS_BF16 ? pack_bf16(x, y) : pack_half(x, y);
            }
        }
    }
}

/* The block's values, 64 of a head at a time, into `out` [16][width]. */
template <bool IS_BF16>
__device__ __forceinline__ void sum_values(float *out, uint32_t width, const uint32_t (&prob)[8][4],
                                           const attention_params &p, const queries &q,
                                           const uint32_t *pages, int lane)
{
    int g = lane / 4, t = lane % 4;
    const uint16_t *values = static_cast<const uint16_t *>(p.values) + q.kv_head * p.value_dim;
    size_t page_values = (size_t)p.n_kv_heads * p.value_dim;
    for (uint32_t base = 0; base < p.value_dim; base += 64) {
        float o[8][4] = {};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            uint32_t v[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t page = pages[16 * k + 2 * t + i % 2 + 8 * (i / 2)];
                const uint16_t *value = page == CUDA_NONE ? nullptr : values + page * page_values;
                to_words(v[i], load_16_bytes(value, base + 8 * g, p.value_dim));
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                uint32_t select = n % 2 ? 0x7632 : 0x5410;
                uint32_t b0 = __byte_perm(v[0][n / 2], v[1][n / 2], select);
                uint32_t b1 = __byte_perm(v[2][n / 2], v[3][n / 2], select);
                mma_16x8x16<IS_BF16>(o[n], prob[k], b0, b1);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) { /* output n of column c is value 8 c + n of the head */
            float *to = out + (g + 8 * (i / 2)) * width + base + 8 * (2 * t + i % 2);
#pragma unroll
            for (int n = 0; n < 8; n++)
                to[n] = o[n][i];
        }
    }
}

/* What the warps of a block of threads found in a segment. */
template <int CHUNKS> struct segment_parts {
    static constexpr int WIDTH = CHUNKS * 64 + 4;
    float values[WARPS][ATTENTION_QUERIES][WIDTH];
    float largest[WARPS][ATTENTION_QUERIES], sum[WARPS][ATTENTION_QUERIES];
    uint32_t pages[WARPS][ATTENTION_BLOCK];
};

template <bool IS_BF16, int CHUNKS>
__device__ __forceinline__ void attend_block(segment_parts<CHUNKS> &parts, const attention_params &p,
                                             const cuda_item &item, const queries &q,
                                             uint32_t start, int warp, int lane)
{
    uint32_t last = p.rows[q.first_row + q.n_rows - 1].position;
    uint32_t first = p.rows[q.first_row].position;
    if (start > last || (p.window && start + ATTENTION_BLOCK - 1 + p.window <= first)) {
        if (lane < ATTENTION_QUERIES)
            parts.largest[warp][lane] = -INFINITY;
        return;
    }
    uint32_t table = p.rows[q.first_row].table[p.group];
    for (int i = lane; i < ATTENTION_BLOCK; i += 32) {
        uint32_t position = start + i;
        bool is_known = position >= item.first && position < item.length;
        parts.pages[warp][i] = is_known ? p.page_table[table + position] : CUDA_NONE;
    }
    __syncwarp();
    float s[16][4], largest[2];
    uint32_t prob[8][4];
    compute_scores<IS_BF16>(s, p, q, parts.pages[warp], lane);
    make_probabilities<IS_BF16>(prob, largest, s, p, q, start, lane);
    float sum[4] = {};
    const uint32_t ones = IS_BF16 ? 0x3f803f80u : 0x3c003c00u;
#pragma unroll
    for (int k = 0; k < 8; k++)
        mma_16x8x16<IS_BF16>(sum, prob[k], ones, ones);
    if (lane % 4 == 0) {
        int g = lane / 4;
        parts.largest[warp][g] = largest[0], parts.largest[warp][g + 8] = largest[1];
        parts.sum[warp][g] = sum[0], parts.sum[warp][g + 8] = sum[2];
    }
    sum_values<IS_BF16>(&parts.values[warp][0][0], segment_parts<CHUNKS>::WIDTH, prob, p, q,
                        parts.pages[warp], lane);
}

/* Eight threads share a query; each has VALUES values of its head. */
template <int VALUES> struct merged {
    softmax_state state;
    float values[VALUES];

    __device__ __forceinline__ void clear()
    {
        state = softmax_empty();
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = 0.0f;
    }

    __device__ __forceinline__ void add(softmax_state part, const float *added)
    {
        merge_factors f;
        if (!merge_part(state, part, f))
            return;
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = merge_value(values[i], added[i], f);
    }
};

__device__ __forceinline__ void write_padding(const attention_params &p, uint32_t row, uint32_t head)
{
    if (head + 1 == p.n_heads)
        for (uint32_t at = p.n_heads * p.value_dim; at < p.out.stride; at++)
            write_activation(p.out, row, at, 0.0f);
}

template <bool IS_BF16, int CHUNKS>
__device__ __forceinline__ void attend_item(segment_parts<CHUNKS> &parts, const attention_params &p,
                                            const cuda_item &item, uint32_t unit, uint32_t n_units)
{
    constexpr int VALUES = 8 * CHUNKS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t query = threadIdx.x / 8, at = threadIdx.x % 8 * VALUES;
    queries q = queries_of(p, item, unit);
    merged<VALUES> all, segment;
    all.clear();
    for (uint32_t i = 0; i < item.n_segments; i++) {
        uint32_t start = (item.first_segment + i) * ATTENTION_SEGMENT + warp * ATTENTION_BLOCK;
        attend_block<IS_BF16, CHUNKS>(parts, p, item, q, start, warp, lane);
        __syncthreads();
        segment.clear();
        for (int w = 0; w < WARPS; w++)
            segment.add({parts.largest[w][query], parts.sum[w][query]}, &parts.values[w][query][at]);
        if (item.partial == CUDA_NONE) {
            all.add(segment.state, segment.values);
        } else if (query_exists(p, q, query)) {
            size_t to = ((size_t)(item.partial + i) * n_units + unit) * ATTENTION_QUERIES + query;
            for (int v = 0; v < VALUES; v++)
                if (at + v < p.value_dim)
                    p.partial[to * p.value_dim + at + v] = segment.values[v];
            p.partial_state[2 * to] = segment.state.largest;
            p.partial_state[2 * to + 1] = segment.state.sum;
        }
        __syncthreads();
    }
    if (item.partial != CUDA_NONE || !query_exists(p, q, query))
        return;
    uint32_t row = q.first_row + query / p.heads_per_unit;
    uint32_t head = q.first_head + query % p.heads_per_unit;
    float factor = softmax_end(all.state, p.sinks, head);
    for (int v = 0; v < VALUES; v++)
        if (at + v < p.value_dim)
            write_activation(p.out, row, head * p.value_dim + at + v, all.values[v] * factor);
    if (at == 0)
        write_padding(p, row, head);
}

template <bool IS_BF16, int CHUNKS> __device__ __forceinline__ void attend(const attention_params &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    auto &parts = *reinterpret_cast<segment_parts<CHUNKS> *>(shared);
    launch_next();
    launch_wait();
    uint32_t group = p.n_heads / p.n_kv_heads;
    uint32_t n_units = p.n_kv_heads * ((group + p.heads_per_unit - 1) / p.heads_per_unit);
    uint32_t n = p.step->n_items[p.shape] * n_units;
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x)
        attend_item<IS_BF16, CHUNKS>(parts, p, p.items[i / n_units], i % n_units, n_units);
}

#define ATTENTION_KERNEL(name, is_bf16, chunks)                                                    \
    extern "C" __global__ void __launch_bounds__(128, 2)                                           \
        name(const __grid_constant__ attention_params p)                                           \
    {                                                                                              \
        attend<is_bf16, chunks>(p);                                                                \
    }

ATTENTION_KERNEL(attention_f16_1, false, 1)
ATTENTION_KERNEL(attention_f16_2, false, 2)
ATTENTION_KERNEL(attention_f16_4, false, 4)
ATTENTION_KERNEL(attention_bf16_1, true, 1)
ATTENTION_KERNEL(attention_bf16_2, true, 2)
ATTENTION_KERNEL(attention_bf16_4, true, 4)

/* Merges the segments of rows that many blocks of threads attended with: a row and a head each. */
extern "C" __global__ void __launch_bounds__(ATTENTION_MAX_DIM)
    attention_merge(const __grid_constant__ attention_params p)
{
    launch_next();
    launch_wait();
    uint32_t row = blockIdx.x, head = blockIdx.y;
    if (!p.step->is_split[p.shape] || row >= p.step->n_rows)
        return;
    cuda_merge m = p.merges[row];
    if (m.count == 0)
        return;
    uint32_t group = p.n_heads / p.n_kv_heads, per_kv = (group + p.heads_per_unit - 1) / p.heads_per_unit;
    uint32_t in_group = head % group, unit = head / group * per_kv + in_group / p.heads_per_unit;
    uint32_t query = m.row_of_item * p.heads_per_unit + in_group % p.heads_per_unit;
    uint32_t at = threadIdx.x;
    softmax_state s = softmax_empty();
    float value = 0.0f;
#pragma unroll 4
    for (uint32_t i = 0; i < m.count; i++) {
        size_t from = ((size_t)(m.first + i) * p.n_kv_heads * per_kv + unit) * ATTENTION_QUERIES + query;
        softmax_state part = {p.partial_state[2 * from], p.partial_state[2 * from + 1]};
        float added = at < p.value_dim ? p.partial[from * p.value_dim + at] : 0.0f;
        merge_factors f;
        if (merge_part(s, part, f))
            value = merge_value(value, added, f);
    }
    if (at < p.value_dim)
        write_activation(p.out, row, head * p.value_dim + at,
                         value * softmax_end(s, p.sinks, head));
    if (at == 0)
        write_padding(p, row, head);
}

/* Plain attention for KV of 32 bits: a block of threads for a row and a head, a thread for each
 * position of a block, then for each value of the head. */
extern "C" __global__ void __launch_bounds__(ATTENTION_BLOCK)
    attention_f32(const __grid_constant__ attention_params p)
{
    __shared__ float query[ATTENTION_MAX_DIM], scores[ATTENTION_BLOCK], reduced[ATTENTION_BLOCK];
    __shared__ uint32_t pages[ATTENTION_BLOCK];
    launch_next();
    launch_wait();
    uint32_t row = blockIdx.x, head = blockIdx.y, i = threadIdx.x;
    if (row >= p.step->n_rows)
        return;
    cuda_row r = p.rows[row];
    uint32_t kv = head / (p.n_heads / p.n_kv_heads);
    for (uint32_t d = i; d < p.key_dim; d += ATTENTION_BLOCK)
        query[d] = static_cast<const float *>(p.q)[((size_t)row * p.n_heads + head) * p.key_dim + d];
    softmax_state s = softmax_empty();
    float value[ATTENTION_MAX_DIM / ATTENTION_BLOCK] = {};
    uint32_t seen = p.window && r.position + 1 > p.window ? r.position + 1 - p.window : 0;
    for (uint32_t start = seen / ATTENTION_BLOCK * ATTENTION_BLOCK; start <= r.position;
         start += ATTENTION_BLOCK) {
        uint32_t position = start + i;
        bool is_seen = position >= seen && position <= r.position;
        __syncthreads();
        pages[i] = is_seen ? p.page_table[r.table[p.group] + position] : 0;
        float score = -INFINITY;
        if (is_seen) {
            const float *key = static_cast<const float *>(p.keys) +
                               ((size_t)pages[i] * p.n_kv_heads + kv) * p.key_dim;
            score = 0.0f;
            for (uint32_t d = 0; d < p.key_dim; d++)
                score = fmaf(query[d], key[d], score);
            if (p.cap != 0.0f)
                score = p.cap * tanhf(score / p.cap) * LOG2_E;
        }
        reduced[i] = score;
        __syncthreads();
        for (uint32_t step = ATTENTION_BLOCK / 2; step > 0; step /= 2) {
            if (i < step)
                reduced[i] = fmaxf(reduced[i], reduced[i + step]);
            __syncthreads();
        }
        float largest = reduced[0];
        __syncthreads();
        scores[i] = reduced[i] = exp2f(score - largest);
        __syncthreads();
        for (uint32_t step = ATTENTION_BLOCK / 2; step > 0; step /= 2) {
            if (i < step)
                reduced[i] += reduced[i + step];
            __syncthreads();
        }
        merge_factors f;
        merge_part(s, {largest, reduced[0]}, f);
        for (uint32_t d = i, at = 0; d < p.value_dim; d += ATTENTION_BLOCK, at++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < ATTENTION_BLOCK; k++)
                if (scores[k] > 0.0f)
                    sum = fmaf(scores[k],
                               static_cast<const float *>(
                                   p.values)[((size_t)pages[k] * p.n_kv_heads + kv) * p.value_dim + d],
                               sum);
            value[at] = merge_value(value[at], sum, f);
        }
    }
    float factor = softmax_end(s, p.sinks, head);
    for (uint32_t d = i, at = 0; d < p.value_dim; d += ATTENTION_BLOCK, at++)
        write_activation(p.out, row, head * p.value_dim + d, value[at] * factor);
    if (i == 0)
        write_padding(p, row, head);
}
