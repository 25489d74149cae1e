#ifndef RADISH_MODEL_QUANT_WEIGHT_H
#define RADISH_MODEL_QUANT_WEIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/quant/quant.h"

/* A view of a model's matrix in its file: read-only, mapped, never copied. Rows are outputs.
 *
 *   data    [ row 0 ][ row 1 ] ...          row_bytes apart
 *   scales  [ row of groups ] ...           for types whose scales are in a separate tensor
 *
 * A value of such a type is scale * quant (+ bias); `rows` x `cols` values share a scale: 1 x 64 in
 * an MLX directory, 128 x 128 with FP8. */
struct weight_groups {
    const void *scales;          /* NULL: the scales are in the blocks, or there are none */
    const void *biases;          /* of the scales' type; NULL: none */
    enum tensor_type scale_type; /* F32, F16, BF16, E8M0, F8_E4M3 */
    float scale;                 /* multiplies all values, on top of the group's; 0: none */
    uint32_t rows, cols;         /* of a group */
    uint32_t per_row;            /* scales in a row of groups */
    uint32_t first_row;          /* row r of the weight is in the row of groups */
    uint32_t row_step;           /*   (first_row + r * row_step) / rows */
};

struct weight {
    enum tensor_type type;
    uint32_t rows, cols;
    const void *data; /* NULL: the model lacks it */
    size_t row_bytes;
    struct weight_groups groups;
    /* Engines must compute with it as if the file had it in another type. */
    bool is_converted;
    enum tensor_type converted_type;
};

/* A weight with consecutive rows and its scales in its blocks. */
struct weight weight_make(enum tensor_type type, uint32_t rows, uint32_t cols, const void *data);

/* `n` rows of `w`: first, first + step, ... For part of a fused matrix, one expert of a stack, or
 * every second row of two interleaved matrices. */
struct weight weight_slice(const struct weight *w, uint32_t first, uint32_t step, uint32_t n);

/* Index into groups.scales (and biases) for a value, if there are any. */
size_t weight_group(const struct weight *w, uint32_t row, uint32_t col);
/* That scale, without groups.scale, and its bias; 1 and 0 if the weight has none. */
float weight_scale(const struct weight *w, uint32_t row, uint32_t col, float *bias);

/* The reference: columns [begin, begin + n) of a row as floats; `begin` and `n` must be multiples
 * of 32 if the type has blocks, groups or packed bits (the range may also end at the row's end). */
void weight_floats(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n, float *out);

/* How far the weight reaches in its file: bytes from `data` on, and from the scales and the biases
 * on. */
struct weight_extent {
    size_t data_bytes, scale_bytes;
};

struct weight_extent weight_extent(const struct weight *w);

/* Bytes that the weight takes in the file, scales included. */
uint64_t weight_bytes(const struct weight *w);

#endif
