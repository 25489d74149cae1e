#ifndef RADISH_ENGINE_CPU_ATTENTION_INTERNAL_H
#define RADISH_ENGINE_CPU_ATTENTION_INTERNAL_H

#include "engine/cpu/attention.h"

/* The inside of attention: attention_plan.c cuts a batch into tiles and shares, attention.c
 * computes them. */

enum {
    TILE_QUERIES = 96,  /* rows times query heads of a kv head in a tile, about */
    MANY_QUERIES = 12,  /* from here on it pays to turn a tile into floats first */
    RAW_BLOCKS = 1024,  /* rows times blocks whose partials can be stored, at least */
    UNIT_LOAD_COST = 4, /* of bringing in a block of keys and values, in queries on it */
};

/* Rows that are computed together on a range of blocks: of one sequence, or of several that have
 * these blocks in common. Rows of one sequence are in order of position. */
struct tile {
    const struct batch_seq *seq; /* whose pages are used */
    uint32_t first, n_rows;      /* in attention.order */
    uint32_t first_block, end_block;
    bool is_raw; /* partials are stored for attention_combine, not merged */
};

/* A place in the run of all units. */
struct cut {
    uint32_t tile, unit;
};

/* What one thread works with, all aligned to 64 bytes. `queries` is rows of a tile times the
 * query heads of one kv head, at most max_queries. */
struct scratch {
    float *q;       /* [n_kv_heads][queries][dim], scaled */
    float *states;  /* [n_kv_heads][queries] partials, merged up to the current block */
    float *partial; /* [queries] partials of one unit */
    float *scores;  /* [queries][ATTENTION_BLOCK] */
    float *loaded;  /* a tile of keys or values */
    float *turned;  /* the same, transposed */
    struct page_run runs[ATTENTION_BLOCK]; /* pages of one block */
    uint32_t n_runs;
    bool has_next;              /* the thread goes on with the same head of the next block */
    const void *rows[KEY_TILE]; /* keys or values of one head in their pages */
};

/* A few rows of one sequence, which may find others to share blocks with. */
struct leaf {
    const struct batch_seq *seq;
    uint32_t first_row, n_rows; /* in the batch */
    uint32_t at;                /* in attention.order */
    uint32_t common_blocks;     /* whole blocks in common with the leaf before it */
};

struct attention {
    struct attention_shape shape;
    const struct vector_kernels *kernels;
    float scale;
    uint32_t group; /* query heads that share a kv head */
    uint32_t dim, stride;
    uint32_t tile_rows;
    size_t row_bytes, head_bytes; /* of K (or V) of a position, of one head of it */
    struct scratch *scratch;      /* [n_threads] */
    struct buffer memory;

    /* The plan for one batch. */
    const struct batch *batch;
    struct leaf *leaves; /* [max_rows] */
    uint32_t *order;     /* [max_rows] rows of the batch, so that those of any tile are adjacent */
    uint32_t n_ordered;
    struct tile *tiles; /* [max_tiles] */
    uint32_t n_tiles, max_tiles;
    struct cut *cuts; /* [n_threads + 1] */

    /* Stored partials: those of a row are adjacent, block by block, head by head. */
    float *raw;          /* [raw_blocks][n_heads] partials */
    uint32_t raw_blocks; /* room, in blocks of rows */
    uint32_t n_raw;      /* taken */
    uint32_t *raw_at;    /* [max_rows] where the row at that place of `order` begins in raw */
    uint32_t *raw_rows;  /* [max_rows] places in `order` of the rows with stored partials */
    uint32_t n_raw_rows;
};

static inline uint32_t tile_units(const struct attention *a, const struct tile *tile)
{
    return (tile->end_block - tile->first_block) * a->shape.n_kv_heads;
}

/* Row r of a tile. */
static inline const struct batch_row *tile_row(const struct attention *a, const struct tile *tile,
                                               uint32_t r)
{
    return &a->batch->rows[a->order[tile->first + r]];
}

/* How many blocks a row sees: the last one in part. */
static inline uint32_t row_blocks(const struct batch_row *row)
{
    return row->position / ATTENTION_BLOCK + 1;
}

static inline float *raw_partial(const struct attention *a, uint32_t place, uint32_t block,
                                 uint32_t head)
{
    return a->raw + ((size_t)(a->raw_at[place] + block) * a->shape.n_heads + head) * a->stride;
}

#endif
