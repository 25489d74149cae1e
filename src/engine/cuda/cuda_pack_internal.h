#ifndef RADISH_ENGINE_CUDA_CUDA_PACK_INTERNAL_H
#define RADISH_ENGINE_CUDA_CUDA_PACK_INTERNAL_H

#include "engine/cuda/cuda_pack.h"

/* Packing takes two steps, both on a strip of 16 rows and 256 columns, which is a whole number of
 * blocks of every type and of tiles:
 *
 *   read     blocks of a row  -> codes and scales in the order of columns     cuda_pack_read.c
 *   arrange  16 rows          -> tiles in the order of the tensor cores       cuda_pack_tile.c */
enum { STRIP_COLUMNS = 256, STRIP_TILES = STRIP_COLUMNS / TILE_COLUMNS, STRIP_GROUPS = 16 };

struct strip_row {
    union {
        uint8_t codes[STRIP_COLUMNS];
        uint16_t halves[STRIP_COLUMNS]; /* FORMAT_F16, FORMAT_BF16 */
    };
    uint16_t scales[STRIP_GROUPS], minimums[STRIP_GROUPS]; /* as bits of F16 or BF16 */
};

/* Columns begin .. begin + n - 1 of a row; `begin` is a multiple of STRIP_COLUMNS. */
typedef void (*read_strip)(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n,
                           struct strip_row *out);

/* Of a weight that is not converted: its format, which may take a look at all its scales, and how
 * it is read into that format. */
enum cuda_format pack_format(const struct weight *w);
read_strip pack_reader(const struct weight *w, enum cuda_format format);

/* Writes one tile, and its scales, from columns 64 * tile .. of the strip. */
void pack_tile(enum cuda_format format, const struct strip_row *rows, uint32_t tile, uint8_t *data,
               uint8_t *scales);

#endif
