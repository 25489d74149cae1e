/* The product of packed matrices, one output after the other in plain C: the definition that the
 * SIMD paths must match bit for bit, and the path for CPUs without any of them.
 *
 * fmaf is part of the definition: it rounds once, as the vector instructions do. */
#include "engine/cpu/kernels/matmul_internal.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* As integers, absolute values have the same order as floats, with infinity and then NaN on top. So
 * the largest is the same in every path, and a block with a NaN gets NaN as its scale. */
static float largest_magnitude(const float *x, uint32_t n)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    return magnitude;
}

static void quantize_row_ref(const float *x, uint32_t cols, uint32_t row, struct act_block *q8)
{
    uint32_t blocks = act_blocks(cols), at = row % ROW_TILE;
    q8 += row / ROW_TILE * (size_t)blocks;
    for (uint32_t b = 0; b < blocks; b++, q8++, x += ACT_BLOCK) {
        uint32_t n = cols - b * ACT_BLOCK < ACT_BLOCK ? cols - b * ACT_BLOCK : ACT_BLOCK;
        float scale = largest_magnitude(x, n) / 127;
        /* Values too small for 1/scale to be finite become zeros. If the scale is infinite or NaN,
         * the quants do not matter: the product is NaN. */
        bool zeros = !(scale >= FLT_MIN && scale <= FLT_MAX);
        float inverse = zeros ? 0 : 1 / scale;
        int sums[2] = {0, 0};
        for (uint32_t i = 0; i < ACT_BLOCK; i++) {
            int q = i < n && !zeros ? (int)lrintf(x[i] * inverse) : 0;
            q8->quants[at][i] = (int8_t)q;
            sums[i / 16] += q;
        }
        q8->scale[at] = scale < FLT_MIN ? 0 : scale;
        q8->sum[at] = (float)(sums[0] + sums[1]);
        q8->half_sum[0][at] = (float)sums[0];
        q8->half_sum[1][at] = (float)sums[1];
    }
}

/* The dot product of quants q - zero of columns [begin, end) of one output with those of one row.
 */
static int32_t dot(struct quant_format f, const struct packed_matrix *m, const uint8_t *quants,
                   uint32_t lane, const int8_t *x, uint32_t begin, uint32_t end)
{
    int32_t sum = 0;
    for (uint32_t c = begin; c < end; c++) {
        uint32_t step = c / 4, byte = lane * 4 + c % 4, high_bits = (uint32_t)f.bits - 4;
        int32_t q;
        if (f.bits == 8) {
            q = quants[step * STEP_BYTES + byte];
        } else {
            const uint8_t *high = quants + step * high_bits / 8 * STEP_BYTES;
            q = quants[(high_bits + step % 4) * STEP_BYTES + byte] >> (step / 4 * 4) & 15;
            if (high_bits)
                q |= (high[byte] >> (step * high_bits % 8) & ((1 << high_bits) - 1)) << 4;
            if (f.values != VALUES_LINEAR)
                q = quant_table(f, m)[q];
        }
        sum += (q - f.zero) * x[c];
    }
    return sum;
}

static float load_scale(enum quant_scales kind, const uint8_t *scales, size_t i)
{
    float f32;
    uint16_t bits;
    if (kind == SCALES_F32) {
        memcpy(&f32, scales + i * 4, 4);
        return f32;
    }
    if (kind == SCALES_E4M3) /* 0xff becomes NaN because of its sign */
        return f16_to_f32((uint16_t)((scales[i] >> 7) * 0xc000 | (scales[i] & 0x7f) << 7));
    memcpy(&bits, scales + i * 2, 2);
    return kind == SCALES_BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/* Scales and mins of one output in one block. */
static void read_head(struct quant_format f, const struct packed_matrix *m, const uint8_t *panel,
                      uint32_t block, uint32_t lane, float *scale, float *min)
{
    enum quant_scales kind = f.scales == SCALES_SHARED ? m->scales : f.scales;
    const uint8_t *scales = panel + scales_at(f, m, block);
    const int8_t *sub = (const int8_t *)panel + part_scales_at(f, m, block) + lane;
    for (int i = 0; i < f.parts; i++) {
        scale[i] = load_scale(kind, scales, (f.super ? 0 : i) * PANEL + lane) *
                   (f.super ? sub[i * PANEL] : 1);
        if (f.mins)
            min[i] = load_scale(kind, scales, PANEL + lane) *
                     (f.super ? sub[(f.parts + i) * PANEL] : 1);
    }
}

static float dot_output(struct quant_format f, const struct packed_matrix *m, const uint8_t *panel,
                        uint32_t lane, const struct act_block *x, uint32_t at)
{
    float acc = 0;
    for (uint32_t b = 0; b < m->blocks; b++, x++) {
        const uint8_t *quants = panel + quants_at(f, m, b);
        float scale[2], min[2], t;
        read_head(f, m, panel, b, lane, scale, min);
        if (f.parts == 1) {
            float idot = (float)dot(f, m, quants, lane, x->quants[at], 0, 32);
            t = f.mins ? fmaf(idot, scale[0], min[0] * x->sum[at]) : idot * scale[0];
        } else {
            float idot0 = (float)dot(f, m, quants, lane, x->quants[at], 0, 16);
            float idot1 = (float)dot(f, m, quants, lane, x->quants[at], 16, 32);
            if (f.mins) {
                t = fmaf(min[1], x->half_sum[1][at], min[0] * x->half_sum[0][at]);
                t = fmaf(idot0, scale[0], t);
            } else {
                t = idot0 * scale[0];
            }
            t = fmaf(idot1, scale[1], t);
        }
        acc = fmaf(t, x->scale[at], acc);
    }
    return acc;
}

static float load_float(enum packed_format format, const uint8_t *panel, size_t i)
{
    float f32;
    uint16_t f16;
    if (format == PACKED_f32) {
        memcpy(&f32, panel + i * 4, 4);
        return f32;
    }
    memcpy(&f16, panel + i * 2, 2);
    return format == PACKED_f16 ? f16_to_f32(f16) : bf16_to_f32(f16);
}

static float dot_floats(const struct packed_matrix *m, const uint8_t *panel, uint32_t lane,
                        const float *x)
{
    float acc = 0;
    for (uint32_t c = 0; c < m->cols; c++)
        acc = fmaf(load_float(m->format, panel, (size_t)c * PANEL + lane), x[c], acc);
    return acc;
}

/* E4M3 is scaled by 2^-8 here; see matmul_internal.h. */
static float load_f8(enum packed_format format, uint8_t bits)
{
    return f16_to_f32(format == PACKED_f8_e5m2
                          ? (uint16_t)(bits << 8)
                          : (uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7));
}

static float dot_f8(const struct packed_matrix *m, const uint8_t *panel, uint32_t lane,
                    const float *x)
{
    float acc = 0;
    for (uint32_t begin = 0; begin < m->cols; begin += ACT_BLOCK, panel += F8_BLOCK_BYTES) {
        uint32_t n = m->cols - begin < ACT_BLOCK ? m->cols - begin : ACT_BLOCK;
        float t = 0;
        for (uint32_t c = 0; c < n; c++)
            t = fmaf(load_f8(m->format, panel[F8_HEAD_BYTES + c * PANEL + lane]), x[begin + c], t);
        acc = fmaf(t, load_scale(SCALES_F32, panel, lane), acc);
    }
    return acc;
}

static float dot_row(const struct packed_matrix *m, const uint8_t *panel, uint32_t lane,
                     const struct activations *x, uint32_t row)
{
    if (x->kind == ACT_Q8)
        return dot_output(quant_formats[m->format], m, panel, lane,
                          x->q8 + row / ROW_TILE * (size_t)m->blocks, row % ROW_TILE);
    const float *f32 = x->f32 + (size_t)row * m->cols;
    return is_f8(m->format) ? dot_f8(m, panel, lane, f32) : dot_floats(m, panel, lane, f32);
}

static void matmul_ref(const struct packed_matrix *m, const struct activations *x,
                       uint32_t panel_begin, uint32_t panel_end, float *out, size_t out_stride)
{
    for (uint32_t p = panel_begin; p < panel_end; p++) {
        const uint8_t *panel = matrix_panel(m, p);
        float *to = out + (size_t)(p - panel_begin) * PANEL;
        for (uint32_t r = 0; r < x->n_rows; r++)
            for (uint32_t lane = 0; lane < panel_outputs(m, p); lane++)
                to[r * out_stride + lane] = dot_row(m, panel, lane, x, r) * m->scale;
    }
}

const struct matmul_kernels matmul_kernels_ref = {quantize_row_ref, matmul_ref};
