#ifndef RADISH_ENGINE_CUDA_CUDA_TILES_H
#define RADISH_ENGINE_CUDA_CUDA_TILES_H

#include "engine/cuda/cuda_format.h"

/* How products are cut among threads; host and device must agree. A block of threads computes
 * 16 * m outputs for 8 * n rows. Its warps are the pieces of K; each streams its own tiles of
 * weights and activations through a ring of `stages` in shared memory:
 *
 *   ring     [warp][stage][m tiles: data, then scales][8 n rows x 128 bytes]
 *   partial  [warp][16 m outputs][8 n rows + 1]       in the same memory, after the ring is empty
 *   total    [16 m outputs][8 n rows + 1]             if there are more pieces than warps
 */
enum { TILE_CONFIGS = 4 };

struct tile_config {
    uint32_t m, n, stages, most_warps;
};

/* By the number of rows: up to 8, 16, 32, more. */
CUDA_FORMAT_FN struct tile_config tile_config_at(uint32_t i)
{
    return i == 0   ? (struct tile_config){1, 1, 4, 8}
           : i == 1 ? (struct tile_config){2, 2, 4, 4}
           : i == 2 ? (struct tile_config){4, 4, 3, 4}
                    : (struct tile_config){4, 6, 3, 4};
}

CUDA_FORMAT_FN uint32_t tile_stage_bytes(struct tile_config c, enum cuda_format format)
{
    return c.m * (format_tile_bytes(format) + format_scale_bytes(format)) + c.n * 1024;
}

CUDA_FORMAT_FN uint32_t tile_partial_bytes(struct tile_config c)
{
    return c.m * 16 * (c.n * 8 + 1) * 4;
}

CUDA_FORMAT_FN uint32_t tile_pieces(uint32_t col_tiles)
{
    return (col_tiles * TILE_COLUMNS + PIECE_COLUMNS - 1) / PIECE_COLUMNS;
}

CUDA_FORMAT_FN uint32_t tile_shared_bytes(struct tile_config c, enum cuda_format format,
                                          uint32_t col_tiles, uint32_t warps)
{
    uint32_t ring = warps * c.stages * tile_stage_bytes(c, format);
    uint32_t partial = warps * tile_partial_bytes(c);
    return (ring > partial ? ring : partial) + (tile_pieces(col_tiles) > warps ? tile_partial_bytes(c) : 0);
}

/* Warps of a block: pieces are shared out evenly, in as few rounds as shared memory allows. */
CUDA_FORMAT_FN uint32_t tile_warps(struct tile_config c, enum cuda_format format,
                                   uint32_t col_tiles, uint32_t most_shared_bytes)
{
    uint32_t n = tile_pieces(col_tiles), most = c.most_warps;
    while (most > 1 && tile_shared_bytes(c, format, col_tiles, most) > most_shared_bytes)
        most--;
    uint32_t rounds = (n + most - 1) / most;
    return (n + rounds - 1) / rounds;
}

#endif
