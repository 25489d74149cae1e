#ifndef RADISH_ENGINE_CPU_ATTENTION_INTERNAL_H
#define RADISH_ENGINE_CPU_ATTENTION_INTERNAL_H

#include "engine/cpu/attention.h"

/* Attention's internals: attention_plan.c cuts a batch into tiles and shares, attention.c computes
 * them. */

enum {
    TILE_QUERIES = 96, /* rows times query heads of a kv head in a tile, roughly */
    RAW_BLOCKS = 1024, /* rows times blocks whose partials can be stored, within */
    RAW_BYTES = 64 << 20,
    UNIT_LOAD_COST = 4, /* cost of loading a block of keys and values, in queries on it */
};

/* Rows computed together on a range of blocks: rows of one sequence, in order of position, or of
 * several sequences that share these blocks and see all of them. */
struct tile {
    const struct batch_seq *seq; /* whose pages are used */
    uint32_t first, n_rows;      /* in attention.order */
    uint32_t first_block, end_block;
    bool is_raw; /* partials are stored for attention_combine, not merged */
};

/* A position in the list of all units. */
struct cut {
    uint32_t tile, unit;
};

/* Keys begin .. end - 1 of a block. */
struct key_range {
    uint32_t begin, end;
};

/* The layout of keys, or values, in their pages. */
struct kv_layout {
    size_t row_bytes, head_bytes; /* of a position, of one head of it */
    uint32_t dim;                 /* elements of a head that are read */
};

/* One thread's scratch space, all aligned to 64 bytes. `queries` is the rows of a tile times the
 * query heads of one kv head. */
struct scratch {
    float *q;       /* [n_kv_heads][queries][key_width], scaled */
    float *states;  /* [n_kv_heads][queries] partials, merged up to the current block */
    float *partial; /* [queries] partials of one unit */
    float *scores;  /* [queries][ATTENTION_BLOCK] */
    float *loaded;  /* a tile of keys or values */
    float *turned;  /* the same, transposed */
    float *sink;    /* a partial of one key whose value is zero */

    /* The current block: what the tile's rows see of it, and the pages of those keys. */
    struct key_range ranges[TILE_QUERIES]; /* of each row of the tile */
    uint32_t first_row, end_row;           /* rows that see any of it */
    struct key_range keys;                 /* keys that any of them sees */
    struct page_run runs[ATTENTION_BLOCK];
    uint32_t n_runs;
    bool has_next; /* the thread continues with the same head of the next block */

    const void *rows[KEY_TILE]; /* keys or values of one head in their pages */
};

/* A few rows of one sequence, which may share blocks with others. */
struct leaf {
    const struct batch_seq *seq;
    uint32_t first_row, n_rows; /* in the batch */
    uint32_t at;                /* in attention.order */
    uint32_t next_block;        /* blocks before it are in tiles already, or not seen */
    /* Blocks that all of its rows see entirely: only those are shared. */
    uint32_t first_whole, end_whole;
    uint32_t common_end; /* end of the blocks that it shares with the leaf before it; 0: none */
};

struct attention {
    struct attention_shape shape;
    const struct vector_kernels *kernels;
    uint32_t group;                  /* query heads that share one kv head */
    uint32_t key_width, value_width; /* attention_dim of them */
    uint32_t stride;                 /* of partials */
    uint32_t tile_rows;
    uint32_t many_queries; /* from here on it pays to convert a tile to floats first */
    struct kv_layout key_layout, value_layout;
    struct scratch *scratch; /* [n_threads] */
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
    uint32_t raw_blocks; /* capacity, in blocks of rows */
    uint32_t n_raw;      /* used */
    uint32_t *raw_at;    /* [max_rows] where the row at this index of `order` begins in raw */
    uint32_t *raw_rows;  /* [max_rows] indices in `order` of the rows with stored partials */
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

/* The first position that a row sees; the last one is its own. */
static inline uint32_t first_seen(const struct attention *a, const struct batch_row *row)
{
    uint32_t window = a->shape.window;
    return window == 0 || row->position < window ? 0 : row->position - window + 1;
}

/* Blocks that a row sees; the first and the last may be seen in part. */
static inline uint32_t row_first_block(const struct attention *a, const struct batch_row *row)
{
    return first_seen(a, row) / ATTENTION_BLOCK;
}

static inline uint32_t row_end_block(const struct batch_row *row)
{
    return row->position / ATTENTION_BLOCK + 1;
}

static inline float *raw_partial(const struct attention *a, uint32_t place, uint32_t block,
                                 uint32_t head)
{
    uint32_t first = row_first_block(a, &a->batch->rows[a->order[place]]);
    size_t at = a->raw_at[place] + (block - first);
    return a->raw + (at * a->shape.n_heads + head) * a->stride;
}

#endif
