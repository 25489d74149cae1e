/* How products are cut among threads: the host's side of cuda_tiles.h, for all tiles and formats
 * and for matrices of all widths that models have. */
#include "test.h"

#include <stdint.h>

#include "base/minmax.h"
#include "engine/cuda/cuda_internal.h"

enum { MOST_COL_TILES = 300 }; /* 19,200 columns */

/* What a block of threads may have, at most: compute capability 8.6, 8.0, 9.0. */
static const uint32_t shared_limits[] = {99 << 10, 163 << 10, 227 << 10};
enum { N_LIMITS = sizeof shared_limits / sizeof *shared_limits };

typedef void (*check_tile)(struct tile_config c, enum cuda_format format, uint32_t col_tiles,
                           uint32_t limit);

static void each_tile(check_tile check)
{
    for (int kind = 0; kind < N_TILE_KINDS; kind++)
        for (int format = FORMAT_BF16; format < N_CUDA_FORMATS; format++)
            for (uint32_t cols = 1; cols <= MOST_COL_TILES; cols++)
                for (int i = 0; i < N_LIMITS; i++)
                    check(tile_config_at((enum tile_kind)kind), (enum cuda_format)format, cols,
                          shared_limits[i]);
}

static void check_fits(struct tile_config c, enum cuda_format format, uint32_t col_tiles,
                       uint32_t limit)
{
    uint32_t warps = tile_warps(c, format, col_tiles, limit);
    CHECK(warps >= 1 && warps <= c.most_warps);
    CHECK(tile_shared_bytes(c, format, col_tiles, warps) <= limit);
}

TEST(cuda_tiles, every_tile_fits_every_device)
{
    each_tile(check_fits);
}

/* As product_block in kernels/product.cu shares out the pieces. */
static void check_covers(struct tile_config c, enum cuda_format format, uint32_t col_tiles,
                         uint32_t limit)
{
    uint32_t warps = tile_warps(c, format, col_tiles, limit), n = tile_pieces(col_tiles);
    uint32_t n_own = c.keeps_partials ? (n + warps - 1) / warps : 1;
    uint32_t n_rounds = c.keeps_partials ? 1 : (n + warps - 1) / warps;
    CHECK(n * PIECE_COLUMNS >= col_tiles * TILE_COLUMNS);
    CHECK((n - 1) * PIECE_COLUMNS < col_tiles * TILE_COLUMNS);
    CHECK(warps * n_own * n_rounds >= n);
    CHECK((warps - 1) * n_own * n_rounds < n); /* one warp fewer would take longer */
}

TEST(cuda_tiles, warps_share_all_pieces)
{
    each_tile(check_covers);
}

/* Matrices of one launch have the fewest warps of all: each must still fit. */
static void check_fewer(struct tile_config c, enum cuda_format format, uint32_t col_tiles,
                        uint32_t limit)
{
    for (uint32_t warps = tile_warps(c, format, col_tiles, limit); warps > 1; warps--)
        CHECK(tile_shared_bytes(c, format, col_tiles, warps - 1) <=
              tile_shared_bytes(c, format, col_tiles, warps));
}

TEST(cuda_tiles, fewer_warps_take_no_more_memory)
{
    each_tile(check_fewer);
}

TEST(cuda_tiles, the_smallest_that_fits)
{
    for (int kind = 0; kind < N_TILE_KINDS; kind++)
        CHECK(tile_rows((enum tile_kind)kind) <= TILE_MOST_ROWS);
    for (uint32_t n = 1; n <= TILE_MOST_ROWS; n++)
        CHECK(tile_rows(tile_kind_for(n)) >= n);
    CHECK_INT(tile_rows(tile_kind_for(1)), 8);
    CHECK_INT(tile_rows(tile_kind_for(1000)), TILE_MOST_ROWS);
}

/* Blocks of threads that compute a chunk of outputs write whole tiles, up to the batch's last
 * output, which may be in a later chunk. */
TEST(cuda_tiles, a_chunk_of_outputs_has_room_for_its_tiles)
{
    for (uint32_t n = 1; n <= HEAD_ROWS; n++) {
        uint32_t rows = tile_rows(tile_kind_for(n)), n_blocks = (n + rows - 1) / rows;
        CHECK(n_blocks * rows <= HEAD_ROWS);
    }
}

/* Copies are of 16 bytes; places in shared memory follow each other. */
TEST(cuda_tiles, stages_keep_copies_aligned)
{
    for (int kind = 0; kind < N_TILE_KINDS; kind++)
        for (int format = FORMAT_BF16; format < N_CUDA_FORMATS; format++) {
            struct tile_config c = tile_config_at((enum tile_kind)kind);
            CHECK_INT(format_tile_bytes((enum cuda_format)format) % 128, 0);
            CHECK_INT(format_scale_bytes((enum cuda_format)format) % 16, 0);
            CHECK_INT(tile_stage_bytes(c, (enum cuda_format)format) % 16, 0);
        }
}
