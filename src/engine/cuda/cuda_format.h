#ifndef RADISH_ENGINE_CUDA_CUDA_FORMAT_H
#define RADISH_ENGINE_CUDA_CUDA_FORMAT_H

#include <stdint.h>

/* How matrices lie in the device's memory. Included by C and by CUDA C++.
 *
 * A matrix is cut into tiles of 16 outputs and 64 columns, padded with zeros at its edges:
 *
 *   data    [output tile][column tile][bytes of a tile]     one warp streams along a row of tiles
 *   scales  [output tile][column tile][bytes of its scales] if the format has scales
 *
 * A tile is in the order in which mma.m16n8k16 takes its A operand, so that a lane reads its values
 * with 16-byte loads and no shuffle. Lane l is g = l / 4, t = l % 4. Column tile c has four steps j
 * of 16 columns; in each, a lane has four pairs p:
 *
 *   output  16 * output tile + g + 8 * (p % 2)
 *   column  64 * c + 16 * t + 4 * j + 2 * (p / 2) + h,   h = 0, 1 in the pair
 *
 * The steps of a tile are thus made of interleaved columns: activations stay in the order of their
 * columns, and a lane's share of them (16 t .. 16 t + 15) is contiguous.
 *
 *   bytes     FORMAT_F16, FORMAT_BF16: [step j][lane][pair p][h], 16 bits each
 *             FORMAT_Q8: [step pair j/2][lane][step j%2][pair p][h], a byte each: q + 128
 *             4 bits: [lane][step j] one 32-bit word; pair p is its bits 4p.. (h = 0) and
 *                     16 + 4p.. (h = 1)
 *             5 bits: as 4 bits; then [lane] one 32-bit word with the fifth bits: step j, pair p is
 *                     bit 4j + p (h = 0) and 16 + 4j + p (h = 1)
 *             6 bits: as 4 bits; then [lane][step pair j/2] two 32-bit words with bits 4 and 5:
 *                     step j, pair p is bits 8(j%2) + 2p.. (h = 0) and 16 + 8(j%2) + 2p.. (h = 1)
 *   scales    one for 16 or 32 columns of an output: [g][output g, g + 8][group of the tile]
 *             FORMAT_Q4, FORMAT_Q5: 2 x 16 bits, scale and minimum; the others: 16 bits
 *
 * value = q * scale + minimum, in F16 with one rounding; formats without a minimum take -zero *
 * scale. MXFP4 and BF16 are computed in BF16, the others in F16. FORMAT_F32 is not tiled: rows of
 * floats. */
enum cuda_format {
    FORMAT_F32,
    FORMAT_BF16,
    FORMAT_F16,
    FORMAT_Q8,    /* zero 128, 32 columns a scale: Q8_0 */
    FORMAT_Q6,    /* zero 32, 16 columns: Q6_K */
    FORMAT_Q5,    /* minimum, 32 columns: Q5_0, Q5_1, Q5_K */
    FORMAT_Q4,    /* minimum, 32 columns: Q4_1, Q4_K */
    FORMAT_Q4Z,   /* zero 8, 32 columns: Q4_0 */
    FORMAT_MXFP4, /* e2m1 with sign in bit 3, 32 columns, the scale as BF16 */
    N_CUDA_FORMATS
};

enum {
    TILE_OUTPUTS = 16,
    TILE_COLUMNS = 64,
    PIECE_COLUMNS = 1024, /* summed from fresh accumulators; pieces are added left to right */
};

#ifdef __CUDACC__
#define CUDA_FORMAT_FN __host__ __device__ constexpr
#else
#define CUDA_FORMAT_FN static inline
#endif

CUDA_FORMAT_FN uint32_t format_tile_bytes(enum cuda_format format)
{
    return format == FORMAT_BF16 || format == FORMAT_F16 ? 2048
           : format == FORMAT_Q8                         ? 1024
           : format == FORMAT_Q6                         ? 768
           : format == FORMAT_Q5                         ? 640
           : format == FORMAT_F32                        ? 0
                                                         : 512;
}

CUDA_FORMAT_FN uint32_t format_scale_bytes(enum cuda_format format)
{
    return format == FORMAT_Q6 || format == FORMAT_Q5 || format == FORMAT_Q4 ? 128
           : format <= FORMAT_F16                                            ? 0
                                                                             : 64;
}

/* Whether activations are BF16 and not F16. */
CUDA_FORMAT_FN int format_is_bf16(enum cuda_format format)
{
    return format == FORMAT_BF16 || format == FORMAT_MXFP4;
}

#endif
