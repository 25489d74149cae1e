#ifndef RADISH_MODEL_QUANT_H
#define RADISH_MODEL_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tensor types that radish reads, numbered as GGUF numbers them, and how each turns into
 * floats. A type is a run of blocks: `block_len` values in `block_bytes` bytes. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_BF16 = 30,
    TENSOR_MXFP4 = 39,
    N_TENSOR_TYPES /* one more than the largest; not every number below is a type */
};

struct tensor_type_info {
    const char *name; /* "Q4_1" */
    uint32_t block_len;
    uint32_t block_bytes;
};

/* NULL for a type that radish does not read. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

/* The reference: `n` values (a multiple of the block) from `blocks` as floats. */
void dequantize(enum tensor_type type, const void *blocks, float *out, size_t n);

float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value); /* round to nearest even, as the hardware does */
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value); /* round to nearest even */

#endif
