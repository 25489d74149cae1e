#ifndef RADISH_MODEL_QUANT_WEIGHT_H
#define RADISH_MODEL_QUANT_WEIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/quant/quant.h"

/* A matrix of a model where its file has it: read-only, mapped, never copied. Rows are outputs.
 *
 *   data    [ row 0 ][ row 1 ] ...          row_bytes apart
 *   scales  [ row of groups ] ...           for types whose scales lie in a tensor of their own
 *
 * A value of such a type is scale * quant (+ bias); `rows` x `cols` of them share a scale: 1 x 64
 * in a directory of MLX, 128 x 128 with FP8. */
struct weight_groups {
    const void *scales;          /* NULL: the type has its scales in its blocks, or none */
    const void *biases;          /* of the scales' type; NULL: none */
    enum tensor_type scale_type; /* F32, F16, BF16, E8M0, F8_E4M3 */
    float scale;                 /* of all values, times that of the group; 0: none */
    uint32_t rows, cols;         /* of a group */
    uint32_t per_row;            /* scales in a row of groups */
    uint32_t first_row;          /* row r of the weight is in the row of groups */
    uint32_t row_step;           /*   (first_row + r * row_step) / rows */
};

struct weight {
    enum tensor_type type;
    uint32_t rows, cols;
    const void *data; /* NULL: the model has none */
    size_t row_bytes;
    struct weight_groups groups;
    /* Engines are to compute with it as if the file had it in another type. */
    bool is_converted;
    enum tensor_type converted_type;
};

/* A weight whose rows follow each other, with its scales in its blocks. */
struct weight weight_make(enum tensor_type type, uint32_t rows, uint32_t cols, const void *data);

/* Rows first, first + step, ... of `w`, `n` of them: a part of a fused matrix, one expert of a
 * stack, every second row where two matrices are interleaved. */
struct weight weight_slice(const struct weight *w, uint32_t first, uint32_t step, uint32_t n);

/* Which of groups.scales (and biases) a value has, if there are any. */
size_t weight_group(const struct weight *w, uint32_t row, uint32_t col);
/* That scale, without groups.scale, and its bias; 1 and 0 where the weight has none. */
float weight_scale(const struct weight *w, uint32_t row, uint32_t col, float *bias);

/* The reference: columns [begin, begin + n) of a row as floats; `begin` and `n` are multiples of 32
 * where the type is in blocks, groups or packed bits (n may end at the row's end). */
void weight_floats(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n, float *out);

/* Bytes that the weight takes in the file, scales and all. */
uint64_t weight_bytes(const struct weight *w);

#endif
