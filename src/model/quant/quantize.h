#ifndef RADISH_MODEL_QUANT_QUANTIZE_H
#define RADISH_MODEL_QUANT_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/quant/quant.h"

/* From floats to blocks: the way back from dequantize, for the types that people choose. The small
 * blocks are what llama.cpp makes of the same floats, bit for bit; the super-blocks are fitted by
 * least squares, each weight counting by its square. */

/* "q4_0", "Q4_K", "bf16": the type, or false where radish cannot write it. */
bool quantize_type(const char *name, enum tensor_type *out);
/* The names that quantize_type knows, for messages: "f32, f16, ...". */
const char *quantize_names(void);

/* The type that a matrix gets: `type`, one that its width fits, or more bits where it matters. The
 * engine asks the same when weights are quantised as they are loaded. */
enum tensor_type quantize_choose(enum tensor_type type, uint64_t cols, bool matters);

/* `n` values, a multiple of the type's block. What is not a number becomes 0. */
void quantize(enum tensor_type type, const float *x, void *blocks, size_t n);

#endif
