/* Products of weights and rows of activations. One arithmetic for any number of rows: K in pieces
 * of 1,024 columns from fresh accumulators, each in the order of its steps, added left to right.
 * The tile's shape and the number of rows change nothing of that. */
#include "activation.cuh"
#include "dequant.cuh"
#include "engine/cuda/cuda_tiles.h"

/* What a lane copies of each column tile that its warp streams: of M rows of tiles, and of 8 N rows
 * of activations. In a gated block the second half of the M are of the second matrix. */
template <int N> struct stream {
    const uint8_t *data, *scales;   /* of the tile that is next */
    uint32_t data_step, scale_step; /* from one output tile to the next */
    int64_t data_pair, scale_pair;  /* from the first half of the M to the second */
    const uint8_t *input;
    uint8_t *ring;
    /* Rows in bytes; CUDA_NONE: no row, and what is in its place is unused. In registers if they
     * are few, else in shared memory, [8 N]. */
    uint32_t row_at[N > 2 ? 1 : 2 * N];
    const uint32_t *shared_row_at;

    __device__ __forceinline__ uint32_t row(int i, int lane) const
    {
        if constexpr (N > 2)
            return shared_row_at[i * 4 + lane / 8];
        else
            return row_at[i];
    }
};

template <cuda_format F, int M, int N>
constexpr int STAGE_BYTES = tile_stage_bytes({M, N, 0, 0, 0}, F);

template <cuda_format F, int M, int N>
__device__ __forceinline__ void issue_weights(const stream<N> &s, int stage, int ahead, int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
    constexpr int HALF = M > 1 ? M / 2 : 1;
    uint8_t *to = s.ring + stage * STAGE_BYTES<F, M, N> + lane * 16;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const uint8_t *from = s.data + (size_t)(m % HALF) * s.data_step + ahead * DATA +
                              (m < HALF ? 0 : s.data_pair);
#pragma unroll
        for (int at = 0; at < DATA; at += 512)
            copy_async(to + m * (DATA + SCALES) + at, from + at,
                       at + 512 <= DATA || at + lane * 16 < DATA);
        if constexpr (SCALES > 0)
            copy_async(to + m * (DATA + SCALES) + DATA,
                       s.scales + (size_t)(m % HALF) * s.scale_step + ahead * SCALES +
                           (m < HALF ? 0 : s.scale_pair),
                       lane * 16 < SCALES);
    }
}

/* Chunk c of 16 bytes of row r is at c ^ (r & 1), so that eight lanes read without a conflict. */
template <cuda_format F, int M, int N>
__device__ __forceinline__ void issue_input(const stream<N> &s, int stage, int ahead, int lane)
{
    constexpr int WEIGHTS = M * (format_tile_bytes(F) + format_scale_bytes(F));
    uint8_t *to = s.ring + stage * STAGE_BYTES<F, M, N> + WEIGHTS + lane / 8 * 128 +
                  (lane % 8 ^ (lane / 8 & 1)) * 16;
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        uint32_t at = s.row(i, lane);
        copy_async(to + i * 512, s.input + at + ahead * (TILE_COLUMNS * 2), at != CUDA_NONE);
    }
}

/* A lane's share of a row in a column tile. */
struct input_words {
    uint4 half[2];
};

template <cuda_format F, int M, int N>
__device__ __forceinline__ void multiply_tile(float (&acc)[M][N][4], const uint8_t *stage,
                                              const input_words (&b)[N], int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
#pragma unroll
    for (int m = 0; m < M; m++) {
        const uint8_t *data = stage + m * (DATA + SCALES);
        tile_words<F> tile;
        tile_load<F>(tile, data, data + DATA, lane);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t a[4];
            tile_step<F>(a, tile, j);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const uint4 &v = b[n].half[j / 2];
                mma_16x8x16<format_is_bf16(F) != 0>(acc[m][n], a, j % 2 ? v.z : v.x,
                                                    j % 2 ? v.w : v.y);
            }
        }
    }
}

/* With many accumulators, step by step: all at once takes too many registers. */
template <cuda_format F, int M, int N>
__device__ __forceinline__ void multiply_steps(float (&acc)[M][N][4], const uint8_t *stage,
                                               const uint8_t *rows, int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint2 b[N];
        asm volatile("" ::: "memory");
#pragma unroll
        for (int n = 0; n < N; n++)
            b[n] = *reinterpret_cast<const uint2 *>(rows + (n * 8 + g) * 128 +
                                                    ((2 * t + j / 2) ^ (g & 1)) * 16 + j % 2 * 8);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const uint8_t *data = stage + m * (DATA + SCALES);
            tile_words<F> tile;
            uint32_t a[4];
            tile_load<F>(tile, data, data + DATA, lane);
            tile_step<F>(a, tile, j);
#pragma unroll
            for (int n = 0; n < N; n++)
                mma_16x8x16<format_is_bf16(F) != 0>(acc[m][n], a, b[n].x, b[n].y);
        }
    }
}

template <cuda_format F, int M, int N>
__device__ __forceinline__ void multiply_stage(float (&acc)[M][N][4], const uint8_t *stage,
                                               int lane)
{
    const uint8_t *rows = stage + M * (format_tile_bytes(F) + format_scale_bytes(F));
    int g = lane / 4, t = lane % 4;
    if constexpr (M * N <= 4) {
        input_words b[N];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                b[n].half[half] = *reinterpret_cast<const uint4 *>(
                    rows + (n * 8 + g) * 128 + ((2 * t + half) ^ (g & 1)) * 16);
        multiply_tile<F, M, N>(acc, stage, b, lane);
    } else {
        multiply_steps<F, M, N>(acc, stage, rows, lane);
    }
}

template <int M, int N> __device__ __forceinline__ void clear(float (&acc)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][n][i] = 0.0f;
}

template <int M, int N>
__device__ __forceinline__ void store_partial(const float (&acc)[M][N][4], float *partial, int lane)
{
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                partial[(m * 16 + g + 8 * (i / 2)) * (N * 8 + 1) + n * 8 + 2 * t + i % 2] =
                    acc[m][n][i];
}

/* The first weights, which may be on their way before the kernel before has ended. */
template <cuda_format F, int M, int N, int STAGES>
__device__ __forceinline__ void begin_tiles(const stream<N> &s, int n_tiles, int lane)
{
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        if (i < n_tiles)
            issue_weights<F, M, N>(s, i, i, lane);
}

/* The next n_tiles column tiles, from the start of a piece on. Each piece has fresh accumulators.
 * The results of all but the last are stored, from `partial` on. */
template <cuda_format F, int M, int N, int STAGES>
__device__ __forceinline__ void multiply_tiles(float (&acc)[M][N][4], stream<N> &s, int n_tiles,
                                               bool is_begun, float *partial, int lane)
{
    constexpr int PIECE = PIECE_COLUMNS / TILE_COLUMNS;
    static_assert(N > 1 || PIECE % STAGES == 0, "a piece ends with a turn of the ring");
    clear<M, N>(acc);
    if (!is_begun)
        begin_tiles<F, M, N, STAGES>(s, n_tiles, lane);
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n_tiles)
            issue_input<F, M, N>(s, i, i, lane);
        copies_commit();
    }
#pragma unroll 1
    for (int base = 0; base < n_tiles; base += STAGES) {
        if (base > 0 && base % PIECE == 0) {
            store_partial<M, N>(acc, partial, lane);
            partial += M * 16 * (N * 8 + 1);
            clear<M, N>(acc);
        }
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            if (base + k >= n_tiles)
                break;
            copies_wait<STAGES - 2>();
            __syncwarp();
            if (base + k + STAGES - 1 < n_tiles) {
                issue_weights<F, M, N>(s, (k + STAGES - 1) % STAGES, k + STAGES - 1, lane);
                issue_input<F, M, N>(s, (k + STAGES - 1) % STAGES, k + STAGES - 1, lane);
            }
            copies_commit();
            multiply_stage<F, M, N>(acc, s.ring + k * STAGE_BYTES<F, M, N>, lane);
        }
        s.data += STAGES * format_tile_bytes(F);
        s.scales += STAGES * format_scale_bytes(F);
        s.input += STAGES * TILE_COLUMNS * 2;
    }
    copies_wait<0>();
}

struct output_place {
    float *out;
    const float *bias, *up_bias; /* of the expert */
    uint32_t stride, first, outputs; /* of the block's first output; of the matrix */
    float factor;                    /* of the sum */
};

__device__ __forceinline__ float finish_sum(float sum, const output_place &place, const float *bias,
                                            uint32_t o)
{
    sum *= place.factor;
    return bias ? sum + bias[o] : sum;
}

/* `old`: what PRODUCT_ADD adds to. */
__device__ __forceinline__ void store_output(const product_params &p, const output_place &place,
                                             uint32_t row, uint32_t o, float sum, float old)
{
    float value = finish_sum(sum, place, place.bias, o);
    float *out = place.out + (size_t)row * place.stride + o;
    if (p.mode == PRODUCT_STORE)
        *out = value;
    else if (p.mode == PRODUCT_ADD)
        *out = fmaf(value, p.factor, old);
    else {
        value *= p.factor;
        *out = p.cap != 0.0f ? p.cap * tanhf(value / p.cap) : value;
    }
}

__device__ __forceinline__ float load_old(const product_params &p, const output_place &place,
                                          uint32_t row, uint32_t o)
{
    return p.mode == PRODUCT_ADD && o < place.outputs ? place.out[(size_t)row * place.stride + o]
                                                      : 0.0f;
}

__device__ __forceinline__ void store_gated(const product_params &p, const output_place &place,
                                            uint32_t row, uint32_t o, float gate, float up)
{
    gate = finish_sum(gate, place, place.bias, o);
    up = finish_sum(up, place, place.up_bias, o);
    write_activation(p.gated, row, o, activate(p.activation, p.limit, gate, up),
                     p.gated_f16_factor);
}

/* The rows of a block of threads: of the batch, or slots of an expert. */
struct block_rows {
    uint32_t first, n, expert;
};

__device__ __forceinline__ block_rows find_rows(const product_params &p, uint32_t most, uint32_t n_rows)
{
    if (p.items) {
        if (blockIdx.x >= *p.n_items)
            return {0, 0, 0};
        cuda_expert_item item = p.items[blockIdx.x];
        return {item.first, item.n, item.expert};
    }
    uint32_t first = p.first_row + blockIdx.x * most;
    return {first, first >= n_rows ? 0 : min(most, n_rows - first), 0};
}

/* Adds the partial results of some pieces in order, to the sum of those before them. */
__device__ __forceinline__ float add_pieces(const float *partial, int stride, int n, bool is_first,
                                            const float *before)
{
    float sum = is_first ? partial[0] : *before + partial[0];
    for (int i = 1; i < n; i++)
        sum += partial[i * stride];
    return sum;
}

template <cuda_format F, tile_kind KIND>
__device__ __forceinline__ void product_block(const product_params &p, int which, uint32_t group)
{
    constexpr tile_config C = tile_config_at(KIND);
    constexpr int M = C.m, N = C.n, STAGES = C.stages, HALF = M > 1 ? M / 2 : 1;
    constexpr int STAGE = tile_stage_bytes(C, F), PARTIAL = tile_partial_bytes(C) / 4;
    constexpr int TILES = PIECE_COLUMNS / TILE_COLUMNS;
    extern __shared__ __align__(128) uint8_t shared[];
    const cuda_matrix &w = p.matrices[which];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    int n_pieces = tile_pieces(w.col_tiles);
    /* Pieces of a warp in a round. */
    int n_own = C.keeps_partials ? (n_pieces + n_warps - 1) / n_warps : 1;
    bool is_gated = M > 1 && p.mode == PRODUCT_GATED;
    uint32_t first_tile = group * (is_gated ? HALF : M);

    size_t ring_bytes = (size_t)n_warps * STAGES * STAGE, partial_bytes = n_warps * PARTIAL * 4;
    float *partial = reinterpret_cast<float *>(C.keeps_partials ? shared + ring_bytes : shared);
    uint32_t *row_at = reinterpret_cast<uint32_t *>(shared + max(ring_bytes, partial_bytes));
    float *total = reinterpret_cast<float *>(row_at + N * 8);

    stream<N> s;
    s.ring = shared + (size_t)warp * STAGES * STAGE;
    s.shared_row_at = row_at;
    s.data_step = w.col_tiles * format_tile_bytes(F); /* past the last tile there is slack */
    s.scale_step = w.col_tiles * format_scale_bytes(F);
    s.data_pair = is_gated ? p.matrices[1].data - w.data : (int64_t)HALF * s.data_step;
    s.scale_pair = is_gated ? p.matrices[1].scales - w.scales : (int64_t)HALF * s.scale_step;
    auto n_tiles = [&](int piece) { return min(n_own * TILES, (int)w.col_tiles - piece * TILES); };
    auto point_at = [&](uint32_t expert, int piece) {
        size_t tile = (size_t)first_tile * w.col_tiles + piece * TILES;
        s.data = w.data + expert * w.expert_data_bytes + tile * format_tile_bytes(F) + lane * 16;
        s.scales = w.scales + expert * w.expert_scale_bytes + tile * format_scale_bytes(F) + lane * 16;
        s.input = static_cast<const uint8_t *>(format_is_bf16(F) ? p.input_bf16 : p.input_f16) +
                  piece * (PIECE_COLUMNS * 2) + lane % 8 * 16;
    };
    bool is_begun = !p.items;
    uint32_t n_rows = *p.n_rows;
    point_at(0, warp * n_own);
    if (is_begun)
        begin_tiles<F, M, N, STAGES>(s, n_tiles(warp * n_own), lane);
    launch_wait();
    launch_next();
    block_rows rows = find_rows(p, N * 8, n_rows);
    if (rows.n == 0) {
        copies_wait<0>();
        return;
    }
    size_t bias_at = (size_t)rows.expert * w.outputs;
    output_place place = {p.out[which],
                          w.bias ? w.bias + bias_at : nullptr,
                          is_gated && p.matrices[1].bias ? p.matrices[1].bias + bias_at : nullptr,
                          p.out_stride[which],
                          first_tile * 16,
                          w.outputs,
                          format_is_bf16(F) ? 1.0f : p.f16_factor};

    for (uint32_t base = 0; base < rows.n; base += N * 8) {
        uint32_t n = min(rows.n - base, (uint32_t)N * 8), n_outputs = (is_gated ? HALF : M) * 16;
        /* The element of `out` that this thread stores first. */
        uint32_t own_o = threadIdx.x % n_outputs, own_r = threadIdx.x / n_outputs;
        float own_old = own_r < n ? load_old(p, place, rows.first + base + own_r, place.first + own_o)
                                  : 0.0f;
        auto place_row = [&](uint32_t r) {
            uint32_t slot = rows.first + base + r;
            uint32_t row = r < n && p.row_of ? p.row_of[slot] : slot;
            return r < n ? row * p.input_stride * 2 : CUDA_NONE;
        };
        if constexpr (N > 2) {
            for (uint32_t r = threadIdx.x; r < N * 8; r += blockDim.x)
                row_at[r] = place_row(r);
            __syncthreads();
        } else {
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                s.row_at[i] = place_row(i * 4 + lane / 8);
        }
        for (int first = 0; first < n_pieces; first += n_warps * n_own) {
            float acc[M][N][4];
            int piece = first + warp * n_own, n_here = min(n_warps * n_own, n_pieces - first);
            bool is_last = first + n_warps * n_own >= n_pieces;
            float *own = partial + (C.keeps_partials ? piece : warp) * PARTIAL;
            if (!is_begun)
                point_at(rows.expert, piece);
            if (piece < n_pieces)
                multiply_tiles<F, M, N, STAGES>(acc, s, n_tiles(piece), is_begun, own, lane);
            is_begun = false;
            if (!C.keeps_partials)
                __syncthreads();
            if (piece < n_pieces)
                store_partial<M, N>(acc, own + (min(n_own, n_pieces - piece) - 1) * PARTIAL, lane);
            __syncthreads();
            for (uint32_t e = threadIdx.x; e < M * 16 * N * 8; e += blockDim.x) {
                uint32_t o = e % n_outputs, r = e / n_outputs, at = o * (N * 8 + 1) + r;
                if (r >= n)
                    break;
                float sum = add_pieces(partial + at, PARTIAL, n_here, first == 0, total + at);
                uint32_t row = rows.first + base + r, output = place.first + o;
                if (is_gated) {
                    uint32_t up_at = at + HALF * 16 * (N * 8 + 1);
                    float up = add_pieces(partial + up_at, PARTIAL, n_here, first == 0, total + up_at);
                    if (!is_last)
                        total[at] = sum, total[up_at] = up;
                    else if (output < place.outputs)
                        store_gated(p, place, row, output, sum, up);
                    else if (output < p.gated.stride)
                        write_activation(p.gated, row, output, 0.0f);
                } else if (!is_last) {
                    total[at] = sum;
                } else if (output < place.outputs) {
                    float old = e == threadIdx.x ? own_old : load_old(p, place, row, output);
                    store_output(p, place, row, output, sum, old);
                }
            }
            __syncthreads();
        }
    }
}

template <tile_kind KIND> __device__ __forceinline__ void product(const product_params &p)
{
    int which = 0;
    while (which + 1 < (int)p.n_matrices && blockIdx.y >= p.first_block[which + 1])
        which++;
    uint32_t group = blockIdx.y - p.first_block[which];
    switch (p.matrices[which].format) {
    case FORMAT_BF16: product_block<FORMAT_BF16, KIND>(p, which, group); break;
    case FORMAT_F16: product_block<FORMAT_F16, KIND>(p, which, group); break;
    case FORMAT_Q8: product_block<FORMAT_Q8, KIND>(p, which, group); break;
    case FORMAT_Q6: product_block<FORMAT_Q6, KIND>(p, which, group); break;
    case FORMAT_Q5: product_block<FORMAT_Q5, KIND>(p, which, group); break;
    case FORMAT_Q4: product_block<FORMAT_Q4, KIND>(p, which, group); break;
    case FORMAT_Q4Z: product_block<FORMAT_Q4Z, KIND>(p, which, group); break;
    case FORMAT_MXFP4: product_block<FORMAT_MXFP4, KIND>(p, which, group); break;
    }
}

#define PRODUCT_KERNEL(name, kind, threads, blocks)                                                \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ product_params p)                                             \
    {                                                                                              \
        product<kind>(p);                                                                          \
    }

PRODUCT_KERNEL(product_8, TILE_8, 256, 3)
PRODUCT_KERNEL(product_16, TILE_16, 128, 3)
PRODUCT_KERNEL(product_32, TILE_32, 128, 2)
PRODUCT_KERNEL(product_32_narrow, TILE_32_NARROW, 256, 1)
PRODUCT_KERNEL(product_40, TILE_40, 128, 1)

/* Matrices of floats: a warp computes one output for up to 8 rows at a time. */
extern "C" __global__ void __launch_bounds__(128)
    product_f32(const __grid_constant__ product_params p)
{
    launch_wait();
    launch_next();
    int which = 0;
    while (which + 1 < (int)p.n_matrices && blockIdx.y >= p.first_block[which + 1])
        which++;
    const cuda_matrix &w = p.matrices[which];
    uint32_t lane = threadIdx.x % 32;
    uint32_t o = (blockIdx.y - p.first_block[which]) * 4 + threadIdx.x / 32;
    block_rows rows = find_rows(p, 8, *p.n_rows);
    if (o >= w.outputs)
        return;
    uint32_t cols = w.col_tiles; /* of floats it counts columns */
    const float *weight = reinterpret_cast<const float *>(w.data + rows.expert * w.expert_data_bytes);
    weight += (size_t)o * cols;
    output_place place = {p.out[which], w.bias ? w.bias + (size_t)rows.expert * w.outputs : nullptr,
                          nullptr, p.out_stride[which], 0, w.outputs, 1.0f};
    for (uint32_t base = 0; base < rows.n; base += 8) {
        uint32_t n = min(rows.n - base, 8u);
        const float *input[8];
        float sum[8];
#pragma unroll
        for (uint32_t r = 0; r < 8; r++) {
            uint32_t slot = rows.first + base + min(r, n - 1);
            input[r] = p.input_f32 + (size_t)(p.row_of ? p.row_of[slot] : slot) * p.input_stride;
            sum[r] = 0.0f;
        }
        for (uint32_t i = lane; i < cols; i += 32) {
            float value = weight[i];
#pragma unroll
            for (uint32_t r = 0; r < 8; r++)
                sum[r] = fmaf(value, input[r][i], sum[r]);
        }
#pragma unroll
        for (uint32_t r = 0; r < 8; r++) {
            float all = warp_sum(sum[r]);
            if (lane == r && r < n) {
                uint32_t row = rows.first + base + r;
                store_output(p, place, row, o, all, load_old(p, place, row, o));
            }
        }
    }
}
