#ifndef RADISH_SCHED_REGIONS_H
#define RADISH_SCHED_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/image_table.h"
#include "engine/engine.h"

/* The images of a sequence: their positions, and what follows from them. Everything here is a
 * function of the tokens alone.
 *
 *   tokens   a b [ i i i i i i ] c d [ j j j j ] e        an image is a region of positions
 *   rope     0 1   2 ......      5 6   7 ..      9        grids of 2 x 3 and 2 x 2, spans 3 and 2
 *
 * A region is computed whole: no batch ends inside one, because its rows may attend to each other
 * in both directions. It is encoded first, and the engine keeps the encoded rows until they are
 * computed. */
enum region_state { REGION_RAW, REGION_ENCODING, REGION_ENCODED };

struct seq_image {
    uint32_t source;        /* index into the request's images */
    uint32_t number;        /* in the image table, or IMAGE_NONE */
    uint32_t rope_first;    /* rope position of its first row */
    uint32_t position_span; /* what it adds to the rope positions after it */
    uint16_t grid_cols;     /* 0: its rope positions increase by one, as in text */
    enum region_state state;
    uint32_t handle; /* the engine's, when not RAW */
};

struct regions {
    struct region *spans;     /* [n] in order */
    struct seq_image *images; /* [n] */
    uint32_t n;
    uint32_t longest; /* positions; 0: no images */
};

/* Finds the images in well-formed tokens. -1: out of memory. */
int regions_open(struct regions *r, const uint64_t *tokens, uint32_t n_tokens,
                 const struct image_shape *(*shape_of)(const void *context, uint32_t index),
                 const void *context);
void regions_close(struct regions *r);

/* Index of the first region that ends after `position`; `n` if there is none. */
uint32_t regions_find(const struct regions *r, uint32_t position);
/* Number of rows, at most `n`, that may be computed at once from `from`, which is not inside a
 * region. Stops before a region that does not fit whole or is not encoded. */
uint32_t regions_whole(const struct regions *r, uint32_t from, uint32_t n);
/* The smallest number of rows that can be computed from there: one, or a whole region; 0 if that
 * region is not encoded yet. */
uint32_t regions_least(const struct regions *r, uint32_t from);
/* The rope positions of a row. */
void regions_rope(const struct regions *r, uint32_t position, uint32_t out[ROPE_AXES]);

#endif
