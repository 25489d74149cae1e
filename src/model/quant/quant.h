#ifndef RADISH_MODEL_QUANT_QUANT_H
#define RADISH_MODEL_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* model/quant/ handles number types: conversion from blocks to floats and back, and weights as
 * views of blocks. */

/* The tensor types that radish reads, with GGUF's numbers, and how each converts to floats. Data is
 * a sequence of blocks: `block_len` values in `block_bytes` bytes each. */
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
    TENSOR_IQ2_XXS = 16,
    TENSOR_IQ2_XS = 17,
    TENSOR_IQ3_XXS = 18,
    TENSOR_IQ1_S = 19,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ3_S = 21,
    TENSOR_IQ2_S = 22,
    TENSOR_IQ4_XS = 23,
    TENSOR_IQ1_M = 29,
    TENSOR_BF16 = 30,
    TENSOR_TQ1_0 = 34,
    TENSOR_TQ2_0 = 35,
    TENSOR_MXFP4 = 39,
    TENSOR_NVFP4 = 40,
    TENSOR_Q1_0 = 41,
    TENSOR_Q2_0 = 42,
    N_GGUF_TYPES, /* numbers from here on are not GGUF types */
    /* Types in directories: scales, if any, are elsewhere (weight.h). */
    TENSOR_F8_E4M3 = 64,
    TENSOR_F8_E5M2,
    TENSOR_E8M0,     /* a power of two, for scales */
    TENSOR_FP4,      /* E2M1, two per byte, the low half first */
    TENSOR_AFFINE_1, /* of MLX: this many bits per value, lowest first */
    TENSOR_AFFINE_2,
    TENSOR_AFFINE_3,
    TENSOR_AFFINE_4,
    TENSOR_AFFINE_5,
    TENSOR_AFFINE_6,
    TENSOR_AFFINE_8,
    TENSOR_U8, /* from here on not for weights as such */
    TENSOR_I8,
    TENSOR_U16,
    TENSOR_I16,
    TENSOR_U32,
    TENSOR_I32,
    TENSOR_U64,
    TENSOR_I64,
    TENSOR_F64,
    TENSOR_BOOL,
    N_TENSOR_TYPES /* one more than the largest; not every number below is a type */
};

struct tensor_type_info {
    const char *name; /* "Q4_1" */
    uint32_t block_len;
    uint32_t block_bytes;
};

/* NULL for a type that radish does not read. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

/* Float types that engines compute with directly, without blocks or scales. */
static inline bool tensor_type_is_float(enum tensor_type type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16;
}

/* The reference: converts `n` values (a multiple of the block) from `blocks` to floats; only the
 * quants if the scales are elsewhere. */
void dequantize(enum tensor_type type, const void *blocks, float *out, size_t n);

float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value); /* round to nearest even, as the hardware does */
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);  /* round to nearest even */
float f8_e4m3_to_f32(uint8_t bits); /* without infinities: 0x7f and 0xff are NaN */
float f8_e5m2_to_f32(uint8_t bits);
float e8m0_to_f32(uint8_t exponent); /* 2^(exponent - 127); 255 is NaN */

#endif
