/* Attention over single-position pages. The result of a row is defined by absolute positions alone:
 * blocks of 128 from a fresh state, merged in order. Whether one block of threads does all of them
 * or many do one each changes nothing.
 *
 * Four warps attend to a block with 16 queries, the heads of a KV head for one or more rows:
 *
 *   scores         each warp 32 of the positions
 *   probabilities  through shared memory: all warps need all of them
 *   values         each warp a quarter of the head's values, over all positions
 *
 * Keys and values go from their pages straight into the operands of the tensor cores: both products
 * are free to permute what is summed over, or the outputs, so that a lane's share of a head is
 * contiguous. */
#include "softmax.cuh"

constexpr int WARPS = 4, OWN_POSITIONS = ATTENTION_BLOCK / WARPS, KEY_TILES = OWN_POSITIONS / 8;
constexpr int STEPS = ATTENTION_BLOCK / 16; /* of the product with the values */

struct queries {
    uint32_t first_row, n_rows, heads; /* of the unit */
    uint32_t kv_head, first_head;
};

__device__ __forceinline__ uint32_t units_per_kv(const attention_params &p)
{
    return (p.n_heads / p.n_kv_heads + p.heads_per_unit - 1) / p.heads_per_unit;
}

__device__ __forceinline__ queries queries_of(const attention_params &p, const cuda_item &item,
                                              uint32_t unit)
{
    uint32_t group = p.n_heads / p.n_kv_heads, per_kv = units_per_kv(p);
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

/* What the warps of a block of threads share. */
struct attention_shared {
    uint32_t pages[ATTENTION_BLOCK];
    float largest[WARPS][ATTENTION_QUERIES];
    uint32_t prob[ATTENTION_QUERIES][ATTENTION_BLOCK / 2 + 4]; /* pairs; without bank conflicts */
};

/* The queries that a lane of a warp takes part in: rows g and g + 8 of the operands. */
struct lane_queries {
    const uint16_t *values[2]; /* NULL: there is none */
    uint32_t position[2];
};

__device__ __forceinline__ lane_queries queries_of_lane(const attention_params &p, const queries &q,
                                                        int g)
{
    lane_queries l;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t at = g + 8 * i, row = q.first_row + at / p.heads_per_unit;
        size_t head = (size_t)row * p.n_heads + q.first_head + at % p.heads_per_unit;
        bool exists = query_exists(p, q, at);
        l.values[i] = exists ? static_cast<const uint16_t *>(p.q) + head * p.key_dim : nullptr;
        l.position[i] = exists ? p.rows[row].position : 0;
    }
    return l;
}

template <bool IS_BF16, int CHUNKS>
__device__ __forceinline__ void compute_scores(float (&s)[KEY_TILES][4], const attention_params &p,
                                               const lane_queries &l, uint32_t kv_head,
                                               const uint32_t *pages, int lane)
{
    constexpr int AT_ONCE = CHUNKS < 2 ? 1 : 2; /* chunks of 64 values that are loaded together */
    int g = lane / 4, t = lane % 4;
    const uint16_t *keys = static_cast<const uint16_t *>(p.keys) + kv_head * p.key_dim;
    size_t page_values = (size_t)p.n_kv_heads * p.key_dim;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
    for (uint32_t base = 0; base < p.key_dim; base += 64 * AT_ONCE) {
        uint32_t kw[AT_ONCE][KEY_TILES][8];
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++)
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++) {
                uint32_t page = pages[n * 8 + g], at = base + 64 * c + 16 * t;
                const uint16_t *key = page == CUDA_NONE ? nullptr : keys + page * page_values;
                to_words(kw[c][n], load_16_bytes(key, at, p.key_dim));
                to_words(kw[c][n] + 4, load_16_bytes(key, at + 8, p.key_dim));
            }
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            uint32_t qw[2][8];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t at = base + 64 * c + 16 * t;
                to_words(qw[i], load_16_bytes(l.values[i], at, p.key_dim));
                to_words(qw[i] + 4, load_16_bytes(l.values[i], at + 8, p.key_dim));
            }
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    uint32_t a[4] = {qw[0][2 * j], qw[1][2 * j], qw[0][2 * j + 1],
                                     qw[1][2 * j + 1]};
                    mma_16x8x16<IS_BF16>(s[n], a, kw[c][n][2 * j], kw[c][n][2 * j + 1]);
                }
        }
    }
}

/* Caps and masks the warp's scores, and finds the largest of each query. */
__device__ __forceinline__ void mask_scores(float (&s)[KEY_TILES][4], float (&largest)[2],
                                            const attention_params &p, const lane_queries &l,
                                            uint32_t start, int lane)
{
    int t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                uint32_t key = start + n * 8 + 2 * t + e % 2;
                bool is_seen = l.values[i] && key <= l.position[i] &&
                               (p.window == 0 || key + p.window > l.position[i]);
                if (p.cap != 0.0f)
                    s[n][e] = p.cap * tanhf(s[n][e] / p.cap) * LOG2_E;
                s[n][e] = is_seen ? s[n][e] : -INFINITY;
                most = fmaxf(most, s[n][e]);
            }
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        largest[i] = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    }
}

/* The largest scores of the block, from all warps. */
__device__ __forceinline__ void share_largest(float (&largest)[2], attention_shared &shared,
                                              int warp, int lane)
{
    int g = lane / 4;
    if (lane % 4 == 0) {
        shared.largest[warp][g] = largest[0];
        shared.largest[warp][g + 8] = largest[1];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            largest[i] = fmaxf(largest[i], shared.largest[w][g + 8 * i]);
}

template <bool IS_BF16>
__device__ __forceinline__ void share_probabilities(const float (&s)[KEY_TILES][4],
                                                    const float (&largest)[2],
                                                    attention_shared &shared, int warp, int lane)
{
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float base = largest[i] == -INFINITY ? 0.0f : largest[i];
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            float x = exp2f(s[n][2 * i] - base), y = exp2f(s[n][2 * i + 1] - base);
            shared.prob[g + 8 * i][warp * (OWN_POSITIONS / 2) + n * 4 + t] =
                IS_BF16 ? pack_bf16(x, y) : pack_half(x, y);
        }
    }
    __syncthreads();
}

/* A lane's values of one position: 2 CHUNKS in a row. */
template <int CHUNKS> struct value_words {
    uint32_t w[CHUNKS];
};

template <int CHUNKS>
__device__ __forceinline__ value_words<CHUNKS> load_values(const attention_params &p,
                                                           const uint16_t *values, uint32_t page,
                                                           uint32_t at)
{
    value_words<CHUNKS> v = {};
    if (page == CUDA_NONE || at >= p.value_dim)
        return v;
    const uint16_t *from = values + (size_t)page * p.n_kv_heads * p.value_dim + at;
    if constexpr (CHUNKS == 1) {
        v.w[0] = *reinterpret_cast<const uint32_t *>(from);
    } else if constexpr (CHUNKS == 2) {
        uint2 x = *reinterpret_cast<const uint2 *>(from);
        v.w[0] = x.x, v.w[1] = x.y;
    } else {
        to_words(v.w, *reinterpret_cast<const uint4 *>(from));
    }
    return v;
}

/* The values of the four positions that a lane has in a step. */
template <int CHUNKS>
__device__ __forceinline__ void load_step(value_words<CHUNKS> (&v)[4], const attention_params &p,
                                          const uint16_t *values, const uint32_t *pages, int step,
                                          uint32_t at, int t)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = load_values<CHUNKS>(p, values, pages[16 * step + 2 * t + i % 2 + 8 * (i / 2)], at);
}

/* Adds a step of 16 positions to the block's sums: the values, and the probabilities themselves. */
template <bool IS_BF16, int CHUNKS>
__device__ __forceinline__ void add_step(float (&o)[2 * CHUNKS][4], float (&sum)[4],
                                         const attention_shared &shared,
                                         const value_words<CHUNKS> (&v)[4], int step, int lane)
{
    int g = lane / 4, t = lane % 4;
    const uint32_t a[4] = {shared.prob[g][8 * step + t], shared.prob[g + 8][8 * step + t],
                           shared.prob[g][8 * step + t + 4], shared.prob[g + 8][8 * step + t + 4]};
    const uint32_t ones = IS_BF16 ? 0x3f803f80u : 0x3c003c00u;
    mma_16x8x16<IS_BF16>(sum, a, ones, ones);
#pragma unroll
    for (int n = 0; n < 2 * CHUNKS; n++) {
        uint32_t select = n % 2 ? 0x7632 : 0x5410;
        uint32_t b0 = __byte_perm(v[0].w[n / 2], v[1].w[n / 2], select);
        uint32_t b1 = __byte_perm(v[2].w[n / 2], v[3].w[n / 2], select);
        mma_16x8x16<IS_BF16>(o[n], a, b0, b1);
    }
}

/* A lane's part of the result: queries g and g + 8, and of the warp's quarter of the head 4 CHUNKS
 * values from 4 CHUNKS * t on: output n of column 2 t + e is value 2 CHUNKS * e + n of them. */
template <int CHUNKS> struct lane_result {
    softmax_state state[2];
    float values[2 * CHUNKS][4];

    __device__ __forceinline__ void clear()
    {
        state[0] = state[1] = softmax_empty();
#pragma unroll
        for (int n = 0; n < 2 * CHUNKS; n++)
            values[n][0] = values[n][1] = values[n][2] = values[n][3] = 0.0f;
    }

    __device__ __forceinline__ void add(const float (&largest)[2], const float (&sum)[4],
                                        const float (&o)[2 * CHUNKS][4])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            merge_factors f;
            if (!merge_part(state[i], {largest[i], sum[2 * i]}, f))
                continue;
#pragma unroll
            for (int n = 0; n < 2 * CHUNKS; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++)
                    values[n][e] = merge_value(values[n][e], o[n][e], f);
        }
    }
};

template <bool IS_BF16, int CHUNKS>
__device__ __forceinline__ void attend_block(lane_result<CHUNKS> &result, attention_shared &shared,
                                             const attention_params &p, const lane_queries &l,
                                             uint32_t kv_head, uint32_t start, uint32_t page)
{
    constexpr int EARLY = 4; /* steps whose values are loaded before the scores are known */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    __syncthreads();
    shared.pages[threadIdx.x] = page;
    __syncthreads();
    const uint16_t *values = static_cast<const uint16_t *>(p.values) + kv_head * p.value_dim;
    uint32_t at = warp * (16 * CHUNKS) + g * (2 * CHUNKS);
    float s[KEY_TILES][4], largest[2], o[2 * CHUNKS][4] = {}, sum[4] = {};
    value_words<CHUNKS> v[EARLY][4];
#pragma unroll
    for (int k = 0; k < EARLY; k++)
        load_step<CHUNKS>(v[k], p, values, shared.pages, k, at, t);
    compute_scores<IS_BF16, CHUNKS>(s, p, l, kv_head, shared.pages + warp * OWN_POSITIONS, lane);
    mask_scores(s, largest, p, l, start + warp * OWN_POSITIONS, lane);
    share_largest(largest, shared, warp, lane);
    share_probabilities<IS_BF16>(s, largest, shared, warp, lane);
#pragma unroll
    for (int base = 0; base < STEPS; base += EARLY) {
#pragma unroll
        for (int k = 0; k < EARLY; k++) {
            add_step<IS_BF16, CHUNKS>(o, sum, shared, v[k], base + k, lane);
            if (base + EARLY < STEPS)
                load_step<CHUNKS>(v[k], p, values, shared.pages, base + EARLY + k, at, t);
        }
    }
    result.add(largest, sum, o);
}

/* Writes the result of one block, for attention_merge. */
template <int CHUNKS>
__device__ __forceinline__ void write_partial(const lane_result<CHUNKS> &result,
                                              const attention_params &p, const queries &q,
                                              size_t index)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t query = g + 8 * i, at = warp * 16 * CHUNKS + t * 4 * CHUNKS;
        size_t to = index * ATTENTION_QUERIES + query;
        if (!query_exists(p, q, query))
            continue;
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int n = 0; n < 2 * CHUNKS; n++)
                if (at + 2 * CHUNKS * e + n < p.value_dim)
                    p.partial[to * p.value_dim + at + 2 * CHUNKS * e + n] =
                        result.values[n][2 * i + e];
        if (warp == 0 && t == 0) {
            p.partial_state[2 * to] = result.state[i].largest;
            p.partial_state[2 * to + 1] = result.state[i].sum;
        }
    }
}

__device__ __forceinline__ void write_padding(const attention_params &p, uint32_t row, uint32_t head)
{
    if (head + 1 == p.n_heads)
        for (uint32_t at = p.n_heads * p.value_dim; at < p.out.stride; at++)
            write_activation(p.out, row, at, 0.0f);
}

template <int CHUNKS>
__device__ __forceinline__ void write_result(const lane_result<CHUNKS> &result,
                                             const attention_params &p, const queries &q)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t query = g + 8 * i, at = warp * 16 * CHUNKS + t * 4 * CHUNKS;
        if (!query_exists(p, q, query))
            continue;
        uint32_t row = q.first_row + query / p.heads_per_unit;
        uint32_t head = q.first_head + query % p.heads_per_unit;
        float factor = softmax_end(result.state[i], p.sinks, head);
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int n = 0; n < 2 * CHUNKS; n++)
                if (at + 2 * CHUNKS * e + n < p.value_dim)
                    write_activation(p.out, row, head * p.value_dim + at + 2 * CHUNKS * e + n,
                                     result.values[n][2 * i + e] * factor);
        if (warp == 0 && t == 0)
            write_padding(p, row, head);
    }
}

/* The page of this thread's position in a block. */
__device__ __forceinline__ uint32_t find_page(const attention_params &p, const cuda_item &item,
                                              uint32_t table, uint32_t block)
{
    uint32_t position = block * ATTENTION_BLOCK + threadIdx.x;
    bool is_known = position >= item.first && position < item.length;
    return is_known ? p.page_table[table + position] : CUDA_NONE;
}

/* An item with what is known of it before the queries are. */
struct work {
    cuda_item item;
    queries q;
    lane_queries l;
    uint32_t table, page; /* of the first block */
};

__device__ __forceinline__ work find_work(const attention_params &p, uint32_t i, uint32_t n_units)
{
    work w;
    w.item = p.items[i / n_units];
    w.table = p.rows[w.item.first_row].table[p.group];
    w.q = queries_of(p, w.item, i % n_units);
    w.l = queries_of_lane(p, w.q, threadIdx.x % 32 / 4);
    w.page = find_page(p, w.item, w.table, w.item.first_block);
    return w;
}

template <bool IS_BF16, int CHUNKS> __device__ __forceinline__ void attend(const attention_params &p)
{
    __shared__ attention_shared shared;
    uint32_t n_units = p.n_kv_heads * units_per_kv(p), n = p.step->n_items[p.shape] * n_units;
    work w;
    if (blockIdx.x < n)
        w = find_work(p, blockIdx.x, n_units);
    launch_wait();
    launch_next();
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        if (i != blockIdx.x)
            w = find_work(p, i, n_units);
        lane_result<CHUNKS> result;
        result.clear();
        for (uint32_t b = 0; b < w.item.n_blocks; b++) {
            uint32_t block = w.item.first_block + b, page = w.page;
            if (b + 1 < w.item.n_blocks)
                w.page = find_page(p, w.item, w.table, block + 1);
            attend_block<IS_BF16, CHUNKS>(result, shared, p, w.l, w.q.kv_head,
                                          block * ATTENTION_BLOCK, page);
            if (w.item.partial != CUDA_NONE) {
                write_partial<CHUNKS>(result, p, w.q,
                                      (size_t)(w.item.partial + b) * n_units + i % n_units);
                result.clear();
            }
        }
        if (w.item.partial == CUDA_NONE)
            write_result<CHUNKS>(result, p, w.q);
    }
}

#define ATTENTION_KERNEL(name, is_bf16, chunks)                                                    \
    extern "C" __global__ void __launch_bounds__(128, attention_blocks(chunks))                     \
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

constexpr uint32_t MERGED_AT_ONCE = ATTENTION_MAX_DIM;

/* The factors of some blocks, for merge_value. A running maximum is exact in any order, so threads
 * find them side by side; only sums are added one by one. */
struct merge_shared {
    float largest[MERGED_AT_ONCE]; /* up to and including the block */
    float sum[MERGED_AT_ONCE];
    merge_factors factors[MERGED_AT_ONCE];
};

/* Thread i has block i of `n`; `s` is the state before them, and becomes that after them. */
__device__ __forceinline__ void find_factors(merge_shared &shared, softmax_state &s,
                                             softmax_state part, uint32_t n)
{
    uint32_t i = threadIdx.x;
    __syncthreads();
    shared.largest[i] = fmaxf(part.largest, s.largest);
    for (uint32_t step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        float other = i >= step ? shared.largest[i - step] : -INFINITY;
        __syncthreads();
        shared.largest[i] = fmaxf(shared.largest[i], other);
    }
    __syncthreads();
    softmax_state before = {i > 0 ? shared.largest[i - 1] : s.largest, 0.0f};
    merge_factors f = {1.0f, 0.0f};
    merge_part(before, part, f);
    shared.factors[i] = f;
    shared.sum[i] = part.largest == -INFINITY ? 0.0f : part.sum;
    __syncthreads();
    for (uint32_t k = 0; k < n; k++)
        s.sum = merge_value(s.sum, shared.sum[k], shared.factors[k]);
    s.largest = shared.largest[n - 1];
}

/* Merges the blocks of rows that many blocks of threads attended with: a row and a head each. */
extern "C" __global__ void __launch_bounds__(ATTENTION_MAX_DIM)
    attention_merge(const __grid_constant__ attention_params p)
{
    __shared__ merge_shared shared;
    uint32_t row = blockIdx.x, head = blockIdx.y;
    bool is_split = p.step->is_split[p.shape] && row < p.step->n_rows;
    cuda_merge m = is_split ? p.merges[row] : cuda_merge{};
    launch_wait();
    launch_next();
    if (m.count == 0)
        return;
    uint32_t group = p.n_heads / p.n_kv_heads, per_kv = units_per_kv(p);
    uint32_t in_group = head % group, unit = head / group * per_kv + in_group / p.heads_per_unit;
    uint32_t query = m.row_of_item * p.heads_per_unit + in_group % p.heads_per_unit;
    uint32_t n_units = p.n_kv_heads * per_kv, at = threadIdx.x;
    auto place = [&](uint32_t block) {
        return ((size_t)(m.first + block) * n_units + unit) * ATTENTION_QUERIES + query;
    };
    softmax_state s = softmax_empty();
    float value = 0.0f;
    for (uint32_t base = 0; base < m.count; base += blockDim.x) {
        uint32_t n = min(m.count - base, blockDim.x);
        softmax_state part = softmax_empty();
        if (at < n) {
            const float *state = p.partial_state + 2 * place(base + at);
            part = {state[0], state[1]};
        }
        find_factors(shared, s, part, n);
#pragma unroll 16
        for (uint32_t i = 0; i < n; i++) {
            float added = at < p.value_dim ? p.partial[place(base + i) * p.value_dim + at] : 0.0f;
            if (shared.factors[i].added != 0.0f)
                value = merge_value(value, added, shared.factors[i]);
        }
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
    launch_wait();
    launch_next();
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
