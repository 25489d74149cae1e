#ifndef RADISH_MODEL_QUANT_QUANTIZE_H
#define RADISH_MODEL_QUANT_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/quant/quant.h"

/* Converts floats to blocks: the inverse of dequantize, for the types that users choose. Small
 * blocks are bit-identical to llama.cpp's; super-blocks are fitted by least squares, with each
 * value weighted by its square. */

/* The type for a name such as "q4_0", "Q4_K" or "bf16"; false: radish cannot write it. */
bool quantize_type(const char *name, enum tensor_type *out);
/* The names that quantize_type accepts, for messages: "f32, f16, ...". */
const char *quantize_names(void);

/* The type to use for a matrix: `type`, or one that fits its width, or one with more bits if it
 * matters. Also used when weights are quantised at load time. */
enum tensor_type quantize_choose(enum tensor_type type, uint64_t cols, bool matters);

/* Quantises `n` values, a multiple of the type's block. In types with blocks, values that are not
 * finite become 0. */
void quantize(enum tensor_type type, const float *x, void *blocks, size_t n);

#endif
