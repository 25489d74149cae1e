#ifndef RADISH_CACHE_IMAGE_TABLE_H
#define RADISH_CACHE_IMAGE_TABLE_H

#include <stdint.h>

#include "base/error.h"

/* Numbers images: maps an image's digest, owner and shape to a small integer that fits into a cache
 * token. The digest is the SHA-256 of the image's pixels and of all processing parameters, so equal
 * numbers mean equal rows. An image with the same digest but another shape is a different image.
 *
 *   digest ──► slots [ ][3][ ][1] ... ──► images [0][1][2][3] ...     counted references
 *
 * An image is known as long as someone holds it: a request from start to end, and every node of the
 * tree that has its positions. Owned by the scheduler's thread. */
struct image_key {
    unsigned char sha256[32]; /* of the pixels and the processing parameters */
    uint32_t owner;
};

struct image_shape {
    uint32_t length;               /* KV positions, 1 to CACHE_MAX_IMAGE_LENGTH */
    uint32_t position_span;        /* what it adds to the rope positions after it */
    uint16_t grid_rows, grid_cols; /* of its patches */
};

struct image_table;

#define IMAGE_NONE UINT32_MAX

int image_table_open(struct image_table **out, uint32_t max_images, struct error *err);
void image_table_close(struct image_table *t);
/* Returns the image's number and adds a reference; adds the image if it is new. IMAGE_NONE: the
 * table is full, or the image takes no positions, or more than a cache token can count. */
uint32_t image_table_intern(struct image_table *t, const struct image_key *key,
                            const struct image_shape *shape);
void image_table_hold(struct image_table *t, uint32_t image);
void image_table_release(struct image_table *t, uint32_t image);
const struct image_shape *image_table_shape(const struct image_table *t, uint32_t image);
uint32_t image_table_count(const struct image_table *t);

#endif
