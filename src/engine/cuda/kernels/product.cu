/* Products of weights and rows of activations. One arithmetic for any number of rows: K in pieces
 * of 1,024 columns from fresh accumulators, each in the order of its steps, added left to right.
 * The tile's shape and the number of rows change nothing of that. */
#include "dequant.cuh"
#include "engine/cuda/cuda_params.h"
#include "engine/cuda/cuda_tiles.h"

/* What a lane copies of each column tile that its warp streams: of M rows of tiles, and of 8 N rows
 * of activations. */
template <int N> struct stream {
    const uint8_t *data, *scales; /* of the tile that is next */
    uint32_t data_step, scale_step; /* from one output tile to the next */
    const uint8_t *input;
    uint32_t row_at[2 * N]; /* in bytes; CUDA_NONE: no row, and what is in its place is unused */
    uint8_t *ring;
};

template <cuda_format F, int M, int N>
__device__ __forceinline__ void issue_weights(const stream<N> &s, int stage, int ahead, int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
    uint8_t *to = s.ring + stage * (M * (DATA + SCALES) + N * 1024) + lane * 16;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const uint8_t *from = s.data + (size_t)m * s.data_step + ahead * DATA;
#pragma unroll
        for (int at = 0; at < DATA; at += 512)
            copy_async(to + m * (DATA + SCALES) + at, from + at,
                       at + 512 <= DATA || at + lane * 16 < DATA);
        if constexpr (SCALES > 0)
            copy_async(to + m * (DATA + SCALES) + DATA,
                       s.scales + (size_t)m * s.scale_step + ahead * SCALES, lane * 16 < SCALES);
    }
}

/* Chunk c of 16 bytes of row r is at c ^ (r & 1), so that eight lanes read without a conflict. */
template <cuda_format F, int M, int N>
__device__ __forceinline__ void issue_input(const stream<N> &s, int stage, int ahead, int lane)
{
    constexpr int WEIGHTS = M * (format_tile_bytes(F) + format_scale_bytes(F));
    uint8_t *to = s.ring + stage * (WEIGHTS + N * 1024) + WEIGHTS + lane / 8 * 128 +
                  (lane % 8 ^ (lane / 8 & 1)) * 16;
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        copy_async(to + i * 512, s.input + s.row_at[i] + ahead * (TILE_COLUMNS * 2),
                   s.row_at[i] != CUDA_NONE);
}

template <cuda_format F, int M, int N>
__device__ __forceinline__ void multiply_stage(float (&acc)[M][N][4], const uint8_t *stage,
                                               int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
    const uint8_t *rows = stage + M * (DATA + SCALES);
    int g = lane / 4, t = lane % 4;
    if constexpr (M * N <= 4) { /* few accumulators: all at once, with the fewest instructions */
        uint4 b[N][2];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                b[n][half] = *reinterpret_cast<const uint4 *>(rows + (n * 8 + g) * 128 +
                                                              ((2 * t + half) ^ (g & 1)) * 16);
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
                    const uint4 &v = b[n][j / 2];
                    mma_16x8x16<format_is_bf16(F) != 0>(acc[m][n], a, j % 2 ? v.z : v.x,
                                                        j % 2 ? v.w : v.y);
                }
            }
        }
    } else {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint2 b[N];
        asm volatile("" ::: "memory"); /* or loads of later steps take too many registers */
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
}

/* The first weights of a piece, which may be on their way before the kernel before has ended. */
template <cuda_format F, int M, int N, int STAGES>
__device__ __forceinline__ void begin_piece(const stream<N> &s, int n_tiles, int lane)
{
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        if (i < n_tiles)
            issue_weights<F, M, N>(s, i, i, lane);
}

/* The next n_tiles column tiles from fresh accumulators. */
template <cuda_format F, int M, int N, int STAGES>
__device__ __forceinline__ void multiply_piece(float (&acc)[M][N][4], stream<N> &s, int n_tiles,
                                               bool is_begun, int lane)
{
    constexpr int DATA = format_tile_bytes(F), SCALES = format_scale_bytes(F);
    constexpr int STAGE = M * (DATA + SCALES) + N * 1024;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][n][i] = 0.0f;
    if (!is_begun)
        begin_piece<F, M, N, STAGES>(s, n_tiles, lane);
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n_tiles)
            issue_input<F, M, N>(s, i, i, lane);
        copies_commit();
    }
    for (int base = 0; base < n_tiles; base += STAGES) {
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
            multiply_stage<F, M, N>(acc, s.ring + k * STAGE, lane);
        }
        s.data += STAGES * DATA;
        s.scales += STAGES * SCALES;
        s.input += STAGES * TILE_COLUMNS * 2;
    }
    copies_wait<0>();
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

struct output_place {
    float *out;
    const float *bias;
    uint32_t stride, first, outputs; /* of the block's first output; of the matrix */
    bool is_f16;
};

__device__ __forceinline__ void store_output(const product_params &p, const output_place &place,
                                             uint32_t row, uint32_t o, float value)
{
    if (place.is_f16)
        value *= p.f16_factor;
    if (place.bias)
        value += place.bias[o];
    float *out = place.out + (size_t)row * place.stride + o;
    if (p.mode == PRODUCT_STORE) {
        *out = value;
    } else if (p.mode == PRODUCT_ADD) {
        *out += value * p.factor;
    } else {
        value *= p.factor;
        *out = p.cap != 0.0f ? p.cap * tanhf(value / p.cap) : value;
    }
}

/* The rows of a block of threads: of the batch, or slots of an expert. */
struct block_rows {
    uint32_t first, n, expert;
};

__device__ __forceinline__ block_rows find_rows(const product_params &p, uint32_t most)
{
    if (p.items) {
        if (blockIdx.x >= *p.n_items)
            return {0, 0, 0};
        cuda_expert_item item = p.items[blockIdx.x];
        return {item.first, item.n, item.expert};
    }
    uint32_t first = p.first_row + blockIdx.x * most, n_rows = *p.n_rows;
    return {first, first >= n_rows ? 0 : min(most, n_rows - first), 0};
}

template <cuda_format F, int CONFIG>
__device__ __forceinline__ void product_block(const product_params &p, int which, uint32_t group)
{
    constexpr tile_config C = tile_config_at(CONFIG);
    constexpr int M = C.m, N = C.n, STAGES = C.stages;
    constexpr int STAGE = tile_stage_bytes(C, F), PARTIAL = tile_partial_bytes(C) / 4;
    extern __shared__ __align__(128) uint8_t shared[];
    const cuda_matrix &w = p.matrices[which];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    int n_pieces = tile_pieces(w.col_tiles);
    constexpr int TILES = PIECE_COLUMNS / TILE_COLUMNS;

    size_t ring_bytes = (size_t)n_warps * STAGES * STAGE, partial_bytes = n_warps * PARTIAL * 4;
    float *partial = reinterpret_cast<float *>(shared);
    float *total = reinterpret_cast<float *>(shared + max(ring_bytes, partial_bytes));

    stream<N> s;
    s.ring = shared + (size_t)warp * STAGES * STAGE;
    s.data_step = w.col_tiles * format_tile_bytes(F); /* past the last tile there is slack */
    s.scale_step = w.col_tiles * format_scale_bytes(F);
    auto n_tiles = [&](int piece) { return min(TILES, (int)w.col_tiles - piece * TILES); };
    auto point_at = [&](uint32_t expert, int piece) {
        size_t tile = (size_t)group * M * w.col_tiles + piece * TILES;
        s.data = w.data + expert * w.expert_data_bytes + tile * format_tile_bytes(F) + lane * 16;
        s.scales = w.scales + expert * w.expert_scale_bytes + tile * format_scale_bytes(F) + lane * 16;
        s.input = static_cast<const uint8_t *>(format_is_bf16(F) ? p.input_bf16 : p.input_f16) +
                  piece * (PIECE_COLUMNS * 2) + lane % 8 * 16;
    };
    bool is_begun = !p.items;
    point_at(0, warp);
    if (is_begun)
        begin_piece<F, M, N, STAGES>(s, n_tiles(warp), lane);
    launch_wait();
    block_rows rows = find_rows(p, N * 8);
    if (rows.n == 0) {
        copies_wait<0>();
        return;
    }
    output_place place = {p.out[which], w.bias ? w.bias + (size_t)rows.expert * w.outputs : nullptr,
                          p.out_stride[which], group * M * 16, w.outputs, !format_is_bf16(F)};

    for (uint32_t base = 0; base < rows.n; base += N * 8) {
        uint32_t n = min(rows.n - base, (uint32_t)N * 8);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            uint32_t r = i * 4 + lane / 8, slot = rows.first + base + r;
            uint32_t row = r < n && p.row_of ? p.row_of[slot] : slot;
            s.row_at[i] = r < n ? row * p.input_stride * 2 : CUDA_NONE;
        }
        for (int first = 0; first < n_pieces; first += n_warps) {
            float acc[M][N][4];
            int piece = first + warp, n_here = min(n_warps, n_pieces - first);
            bool is_last = first + n_warps >= n_pieces;
            if (!is_begun)
                point_at(rows.expert, piece);
            if (piece < n_pieces)
                multiply_piece<F, M, N, STAGES>(acc, s, n_tiles(piece), is_begun, lane);
            is_begun = false;
            __syncthreads();
            if (piece < n_pieces)
                store_partial<M, N>(acc, partial + warp * PARTIAL, lane);
            __syncthreads();
            for (uint32_t e = threadIdx.x; e < M * 16 * N * 8; e += blockDim.x) {
                uint32_t o = e % (M * 16), r = e / (M * 16), at = o * (N * 8 + 1) + r;
                if (r >= n)
                    break;
                float sum = first == 0 ? partial[at] : total[at] + partial[at];
                for (int i = 1; i < n_here; i++)
                    sum += partial[i * PARTIAL + at];
                if (!is_last)
                    total[at] = sum;
                else if (place.first + o < place.outputs)
                    store_output(p, place, rows.first + base + r, place.first + o, sum);
            }
            __syncthreads();
        }
    }
}

template <int CONFIG> __device__ __forceinline__ void product(const product_params &p)
{
    launch_next();
    int which = 0;
    while (which + 1 < (int)p.n_matrices && blockIdx.y >= p.first_block[which + 1])
        which++;
    uint32_t group = blockIdx.y - p.first_block[which];
    switch (p.matrices[which].format) {
    case FORMAT_BF16: product_block<FORMAT_BF16, CONFIG>(p, which, group); break;
    case FORMAT_F16: product_block<FORMAT_F16, CONFIG>(p, which, group); break;
    case FORMAT_Q8: product_block<FORMAT_Q8, CONFIG>(p, which, group); break;
    case FORMAT_Q6: product_block<FORMAT_Q6, CONFIG>(p, which, group); break;
    case FORMAT_Q5: product_block<FORMAT_Q5, CONFIG>(p, which, group); break;
    case FORMAT_Q4: product_block<FORMAT_Q4, CONFIG>(p, which, group); break;
    case FORMAT_Q4Z: product_block<FORMAT_Q4Z, CONFIG>(p, which, group); break;
    case FORMAT_MXFP4: product_block<FORMAT_MXFP4, CONFIG>(p, which, group); break;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) product_8(const __grid_constant__ product_params p)
{
    product<0>(p);
}

extern "C" __global__ void __launch_bounds__(128, 3)
    product_16(const __grid_constant__ product_params p)
{
    product<1>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    product_32(const __grid_constant__ product_params p)
{
    product<2>(p);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    product_48(const __grid_constant__ product_params p)
{
    product<3>(p);
}

/* Matrices of floats: a warp computes one output for up to 8 rows at a time. */
extern "C" __global__ void __launch_bounds__(128)
    product_f32(const __grid_constant__ product_params p)
{
    launch_next();
    launch_wait();
    int which = 0;
    while (which + 1 < (int)p.n_matrices && blockIdx.y >= p.first_block[which + 1])
        which++;
    const cuda_matrix &w = p.matrices[which];
    uint32_t lane = threadIdx.x % 32;
    uint32_t o = (blockIdx.y - p.first_block[which]) * 4 + threadIdx.x / 32;
    block_rows rows = find_rows(p, 8);
    if (o >= w.outputs)
        return;
    uint32_t cols = w.col_tiles; /* of floats it counts columns */
    const float *weight = reinterpret_cast<const float *>(w.data + rows.expert * w.expert_data_bytes);
    weight += (size_t)o * cols;
    output_place place = {p.out[which], w.bias ? w.bias + (size_t)rows.expert * w.outputs : nullptr,
                          p.out_stride[which], 0, w.outputs, false};
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
            if (lane == r && r < n)
                store_output(p, place, rows.first + base + r, o, all);
        }
    }
}
