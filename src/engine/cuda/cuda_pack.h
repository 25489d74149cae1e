#ifndef RADISH_ENGINE_CUDA_CUDA_PACK_H
#define RADISH_ENGINE_CUDA_CUDA_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/cuda/cuda_format.h"
#include "model/quant/weight.h"

/* Packs a model's matrices for the device, in the form that cuda_format.h describes.
 *
 *   in the file (or converted to)                format    exact?
 *   F32, BF16, F16                               the same  yes
 *   Q8_0                                         Q8        yes
 *   Q4_0                                         Q4Z       yes
 *   Q5_0, Q5_1, Q4_1                             Q5, Q4    yes
 *   Q4_K, Q5_K, Q6_K, Q3_K                       Q4 .. Q6  scale and minimum are rounded to F16
 *   IQ4_NL                                       Q8        yes
 *   IQ4_XS, IQ3_S, IQ3_XXS, IQ2_XXS              Q8        the scale is rounded to F16
 *   MXFP4, FP4 with E8M0 scales of 32 columns    MXFP4     yes
 *   affine of up to 5 bits, groups of 32 n       Q4, Q5    scale and bias are rounded to F16
 *   all others                                   F16       each value is rounded
 *
 * "Exact" is up to the rounding of each value to F16 on the device. F16 ends at 65504: values and
 * scales beyond it are clamped to what stays finite. A matrix with scales of its own (FP8, affine)
 * whose largest scale times the largest quant is more becomes BF16 instead, which cannot overflow.
 * MXFP4's scales end at 2^127. What is not a number stays one. */
struct cuda_shape {
    enum cuda_format format;
    uint32_t rows, cols;
    uint32_t out_tiles, col_tiles;
    size_t data_bytes, scale_bytes; /* padding included; FORMAT_F32: rows * cols floats */
};

struct cuda_shape cuda_pack_shape(const struct weight *w);

/* Packs output tiles begin .. end - 1 into `data` and `scales`, which point at tile `begin`'s
 * place. Any thread; several may pack different tiles of a matrix. FORMAT_F32: a tile is 16 rows.
 */
void cuda_pack(const struct weight *w, const struct cuda_shape *s, uint32_t begin, uint32_t end,
               uint8_t *data, uint8_t *scales);

/* The value that kernels use, from a whole packed matrix. The reference for kernels and tests. */
float cuda_unpack(const struct cuda_shape *s, const uint8_t *data, const uint8_t *scales,
                  uint32_t row, uint32_t col);

#endif
