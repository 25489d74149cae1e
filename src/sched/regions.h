#ifndef RADISH_SCHED_REGIONS_H
#define RADISH_SCHED_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/image_table.h"
#include "engine/engine.h"

/* The images of a sequence: where they lie, and what follows from that. All of it is a function of
 * the tokens alone.
 *
 *   tokens   a b [ i i i i i i ] c d [ j j j j ] e        an image is a region of positions
 *   rope     0 1   2 ......      5 6   7 ..      9        grids of 2 x 3 and 2 x 2, spans 3 and 2
 *
 * A region is computed whole: no batch ends inside one, because its rows may see each other both
 * ways. It is encoded before it is computed, and the engine keeps its rows until then. */
enum region_state { REGION_RAW, REGION_ENCODING, REGION_ENCODED };

struct seq_image {
    uint32_t source;        /* index into the request's images */
    uint32_t number;        /* in the image table, or IMAGE_NONE */
    uint32_t rope_first;    /* rope position of its first row */
    uint32_t position_span; /* what it adds to the rope positions behind it */
    uint16_t grid_cols;     /* 0: its rope positions count on, as those of text do */
    enum region_state state;
    uint32_t handle; /* the engine's, when not RAW */
};

struct regions {
    struct region *spans;     /* [n] in order */
    struct seq_image *images; /* [n] */
    uint32_t n;
    uint32_t longest; /* positions; 0: there are none */
};

/* Finds the images in tokens that are well formed. -1: no memory. */
int regions_open(struct regions *r, const uint64_t *tokens, uint32_t n_tokens,
                 const struct image_shape *(*shape_of)(const void *context, uint32_t index),
                 const void *context);
void regions_close(struct regions *r);

/* The first region that ends after `position`; `n` when there is none. */
uint32_t regions_find(const struct regions *r, uint32_t position);
/* Of `n` rows from a position that is not inside a region, how many may be computed at once: up to
 * a region that is not whole or not encoded. */
uint32_t regions_whole(const struct regions *r, uint32_t from, uint32_t n);
/* The fewest rows from there on: one, a whole region, or 0 where that is not encoded yet. */
uint32_t regions_least(const struct regions *r, uint32_t from);
/* The rope positions of a row. */
void regions_rope(const struct regions *r, uint32_t position, uint32_t out[ROPE_AXES]);

#endif
