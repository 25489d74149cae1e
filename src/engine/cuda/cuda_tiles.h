#ifndef RADISH_ENGINE_CUDA_CUDA_TILES_H
#define RADISH_ENGINE_CUDA_CUDA_TILES_H

#include "engine/cuda/cuda_format.h"

/* How products are cut among threads; host and device must agree. A block of threads computes
 * 16 * m outputs for 8 * n rows. Its warps share the pieces of K; each streams its own tiles of
 * weights and activations through a ring of stages in shared memory:
 *
 *   ring     [warp][stage][m tiles: data, then scales][8 n rows x 128 bytes]
 *   partial  [piece][16 m outputs][8 n rows + 1]    results of pieces, to be added in order
 *
 * With few rows a warp takes several pieces in a row, and all partial results have room of their
 * own. With many, a warp takes one piece at a time; partial results then take the ring's memory.
 * Where rows are, and a sum of the pieces so far, follow it:
 *
 *   row_at   [8 n rows]
 *   total    [16 m outputs][8 n rows + 1] */
enum tile_kind {
    TILE_8, /* up to 8 rows */
    TILE_16,
    TILE_32,
    TILE_32_NARROW, /* fewer outputs: more blocks, for small matrices */
    TILE_40,        /* this many and more */
    N_TILE_KINDS
};

enum { TILE_MOST_ROWS = 40 }; /* of a block of threads, in any tile */

struct tile_config {
    uint32_t m, n, stages, most_warps;
    uint32_t keeps_partials; /* in room of their own */
};

CUDA_FORMAT_FN struct tile_config tile_config_at(enum tile_kind kind)
{
    return kind == TILE_8           ? (struct tile_config){1, 1, 4, 8, 1}
           : kind == TILE_16        ? (struct tile_config){2, 2, 4, 4, 0}
           : kind == TILE_32        ? (struct tile_config){4, 4, 4, 4, 0}
           : kind == TILE_32_NARROW ? (struct tile_config){2, 4, 5, 8, 0}
                                    : (struct tile_config){4, TILE_MOST_ROWS / 8, 3, 4, 0};
}

CUDA_FORMAT_FN uint32_t tile_rows(enum tile_kind kind)
{
    return tile_config_at(kind).n * 8;
}

/* The smallest tile for n_rows rows. */
CUDA_FORMAT_FN enum tile_kind tile_kind_for(uint32_t n_rows)
{
    return n_rows <= 8 ? TILE_8 : n_rows <= 16 ? TILE_16 : n_rows <= 32 ? TILE_32 : TILE_40;
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
    uint32_t partial = tile_partial_bytes(c), n_pieces = tile_pieces(col_tiles);
    if (c.keeps_partials)
        return ring + n_pieces * partial;
    return (ring > warps * partial ? ring : warps * partial) + c.n * 8 * 4 +
           (n_pieces > warps ? partial : 0);
}

/* Warps of a block: pieces are shared out evenly, among as many as shared memory allows. */
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
