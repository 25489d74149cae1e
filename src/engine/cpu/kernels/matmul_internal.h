#ifndef RADISH_ENGINE_CPU_KERNELS_MATMUL_INTERNAL_H
#define RADISH_ENGINE_CPU_KERNELS_MATMUL_INTERNAL_H

#include <stdbool.h>

#include "engine/cpu/kernels/matmul.h"

/* The packed formats and the one definition of the product that every kernel path computes.
 *
 * Quantised activations. Rows come in tiles of ROW_TILE; a tile is one act_block for each block of
 * 32 columns, so that a kernel that works on a few rows of a tile walks memory forwards and finds
 * every operand at a constant distance from one pointer:
 *
 *   tile 0 (rows 0..11)   [block 0][block 1] ...
 *   tile 1 (rows 12..23)  [block 0][block 1] ...
 *   block                 [12 x 32 quants │ 12 scales │ 12 sums │ 2 x 12 half sums]
 *
 * Quantised weights, `blocks` of 32 columns each. A panel is contiguous memory that is read from
 * start to end. Groups of 1, 2, 4 or 8 blocks have their heads (scales and mins) together at the
 * front, so that heads fill whole cache lines and every vector load is aligned:
 *
 *   panel  [head of group 0 │ quants of its blocks][head of group 1 │ quants of its blocks] ...
 *   head   plain: for each block f16 scale[16] (MXFP4: bf16), f16 min[16] if the format has mins
 *          small: for each block a byte scale[parts][16], see E4M3 below
 *          super: f16 d[16], f16 dmin[16], then for each of 8 blocks i8 scale[parts][16],
 *                 i8 min[parts][16]; the scale is d * scale, exact in float
 *          shared: scale[16], min[16] for all blocks of the group: 1, 2 or 4, depending on the
 *                 matrix; both are f16, bf16 or f32, as in the file
 *   quants 8 bits: step k of 8 is 64 bytes: for each of the 16 outputs columns 4k .. 4k+3
 *          4 bits: step k of 4 the same, columns 4k .. in the low halves, 4k+16 .. in the high
 *          5 bits: 64 bytes whose bits k are the fifth bits of step k of 8, then the low 4 bits
 *          6 bits: 2 x 64 bytes of 2 bits, the first for steps 0 .. 3, ...
 *          The data is in the order of the steps: memory that is read strictly forwards, line after
 *          line, arrives 1.5 times as fast as in an almost sequential order.
 *
 * A quant q stands for the weight (q - zero) * scale + min; if a format has a table of values, q is
 * the entry that its 4 bits select. parts is 2 if scales (and mins) are for 16 columns, else 1.
 * Float weights are [panel][cols][16]. 8-bit floats come in blocks of 32 columns, the last of which
 * may have fewer:
 *
 *   panel  [f32 scale[16] │ 32 x 16 bytes][block 1] ...
 *
 * E4M3. Kernels only shift a byte by 7 bits, which gives an f16 that is 2^-8 times as large; the
 * matrix's scale makes up for that. The two NaNs become 480, so a panel uses NaN as the scale of
 * the block instead. A byte used as a scale has no sign, and 0xff is NaN.
 *
 * The product of one output with one row, in order of b from acc = 0 (all in float, each operation
 * rounded once; idot is the exact integer dot of q - zero and the activation's quants, of the block
 * or of each half of it; sums likewise):
 *   t = idot * scale                             one part
 *   t = fma(idot, scale, min * sum)              one part, mins
 *   t = fma(idot1, scale1, idot0 * scale0)       two parts
 *   t = fma(idot1, scale1, fma(idot0, scale0, fma(min1, sum1, min0 * sum0)))   two parts, mins
 *   acc = fma(t, activation's scale, acc)
 * Float weights: acc = fma(w, x, acc), in order of c. Those of 8 bits: acc = fma(t, scale, acc) in
 * order of b, where t = fma(w, x, t) in order of c from t = 0.
 * Last, in all formats: output = acc * the matrix' scale. */

enum {
    SUPER_BLOCKS = 8, /* blocks that share d and dmin */
    STEP_BYTES = 64,
    PACK_ALIGN = 64,
};

struct act_block {
    int8_t quants[ROW_TILE][ACT_BLOCK];
    float scale[ROW_TILE];       /* a value is quant * scale */
    float sum[ROW_TILE];         /* of the quants */
    float half_sum[2][ROW_TILE]; /* of quants 0..15 and 16..31 */
};

/* What 4 bits mean: themselves, or one of 16 values of a table, the format's or the matrix's. */
enum quant_values { VALUES_LINEAR, VALUES_IQ4_NL, VALUES_FP4, VALUES_TABLE };

/* The type of scales; for SHARED, the matrix has it. */
enum quant_scales { SCALES_F16, SCALES_BF16, SCALES_E4M3, SCALES_F32, SCALES_SHARED };

/* X(name, bits of a quant, parts, has mins, has super blocks, zero, values, scales), in order of
 * enum packed_format */
#define QUANT_FORMATS(X)                                                                           \
    X(q4, 4, 1, 0, 0, 8, VALUES_LINEAR, SCALES_F16)          /* Q4_0, Q1_0, Q2_0, TQ1_0, TQ2_0 */  \
    X(q4_min, 4, 1, 1, 0, 0, VALUES_LINEAR, SCALES_F16)      /* Q4_1 */                            \
    X(q5, 5, 1, 0, 0, 16, VALUES_LINEAR, SCALES_F16)         /* Q5_0 */                            \
    X(q5_min, 5, 1, 1, 0, 0, VALUES_LINEAR, SCALES_F16)      /* Q5_1 */                            \
    X(q8, 8, 1, 0, 0, 128, VALUES_LINEAR, SCALES_F16)        /* Q8_0 */                            \
    X(k4_min, 4, 1, 1, 1, 0, VALUES_LINEAR, SCALES_F16)      /* Q4_K */                            \
    X(k5_min, 5, 1, 1, 1, 0, VALUES_LINEAR, SCALES_F16)      /* Q5_K */                            \
    X(k4x2, 4, 2, 0, 1, 4, VALUES_LINEAR, SCALES_F16)        /* Q3_K */                            \
    X(k4x2_min, 4, 2, 1, 1, 0, VALUES_LINEAR, SCALES_F16)    /* Q2_K */                            \
    X(k6x2, 6, 2, 0, 1, 32, VALUES_LINEAR, SCALES_F16)       /* Q6_K */                            \
    X(iq4_nl, 4, 1, 0, 0, 128, VALUES_IQ4_NL, SCALES_F16)    /* IQ4_NL */                          \
    X(mxfp4, 4, 1, 0, 0, 16, VALUES_FP4, SCALES_BF16)        /* MXFP4 */                           \
    X(k4_table, 4, 1, 0, 1, 128, VALUES_TABLE, SCALES_F16)   /* IQ1_S, IQ2_XXS, IQ3, IQ4_XS */     \
    X(k4x2_table, 4, 2, 0, 1, 128, VALUES_TABLE, SCALES_F16) /* IQ1_M, IQ2_XS, IQ2_S */            \
    X(nvfp4, 4, 2, 0, 0, 16, VALUES_FP4, SCALES_E4M3)        /* NVFP4 */                           \
    X(affine4, 4, 1, 1, 0, 0, VALUES_LINEAR, SCALES_SHARED)  /* of MLX: 1 to 4 bits */             \
    X(affine6, 6, 1, 1, 0, 0, VALUES_LINEAR, SCALES_SHARED)  /* 5, 6 */                            \
    X(affine8, 8, 1, 1, 0, 0, VALUES_LINEAR, SCALES_SHARED)

#define QUANT_FORMAT_NAME(name, ...) PACKED_##name,
enum packed_format {
    QUANT_FORMATS(QUANT_FORMAT_NAME) N_QUANT_FORMATS,
    PACKED_f32 = N_QUANT_FORMATS,
    PACKED_f16,
    PACKED_bf16,
    PACKED_f8_e4m3,
    PACKED_f8_e5m2,
    N_PACKED_FORMATS
};
#undef QUANT_FORMAT_NAME

struct quant_format {
    int bits, parts, mins, super;
    int zero; /* the quant that means 0, before the min is added */
    enum quant_values values;
    enum quant_scales scales;
};

/* In the header, so that compilers see the constants. */
#define QUANT_FORMAT_INFO(name, ...) {__VA_ARGS__},
static const struct quant_format quant_formats[N_QUANT_FORMATS] = {
    QUANT_FORMATS(QUANT_FORMAT_INFO)};
#undef QUANT_FORMAT_INFO

/* The tables, with the format's zero added. */
static const uint8_t iq4_nl_quants[16] = {
    128 - 127, 128 - 104, 128 - 83, 128 - 65, 128 - 49, 128 - 35, 128 - 22, 128 - 10,
    128 + 1,   128 + 13,  128 + 25, 128 + 38, 128 + 53, 128 + 69, 128 + 89, 128 + 113};
static const uint8_t fp4_quants[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                       16, 15, 14, 13, 12, 10, 8,  4};

/* Number of bits of a quant after the table lookup. */
static inline int value_bits(struct quant_format f)
{
    return f.values == VALUES_LINEAR ? f.bits : f.values == VALUES_FP4 ? 5 : 8;
}

struct packed_matrix {
    enum packed_format format;
    uint32_t rows, cols;
    uint32_t n_panels;
    uint32_t blocks;          /* of 32 columns; 0 for float weights */
    float scale;              /* of all outputs */
    enum quant_scales scales; /* of formats with shared scales: F16, BF16 or F32 */
    uint32_t sharing;         /* of those: log2 of the number of blocks that share */
    uint8_t table[16];        /* of formats with a table per matrix, with 128 added */
    size_t panel_bytes;
    size_t bytes;                     /* of all panels */
    uint8_t *data;                    /* [n_panels][panel_bytes] */
    struct matrix_slab *slab;         /* the slab that contains data */
    const struct pack_source *source; /* fills data */
};

/* The table, with the format's zero added. */
static inline const uint8_t *quant_table(struct quant_format f, const struct packed_matrix *m)
{
    return f.values == VALUES_TABLE ? m->table
           : f.values == VALUES_FP4 ? fp4_quants
                                    : iq4_nl_quants;
}

static inline const uint8_t *matrix_panel(const struct packed_matrix *m, uint32_t panel)
{
    return m->data + panel * m->panel_bytes;
}

/* Number of outputs that exist in a panel: 16, or fewer in the last. */
static inline uint32_t panel_outputs(const struct packed_matrix *m, uint32_t panel)
{
    uint32_t left = m->rows - panel * PANEL;
    return left < PANEL ? left : PANEL;
}

static inline uint32_t act_blocks(uint32_t cols)
{
    return (cols + ACT_BLOCK - 1) / ACT_BLOCK;
}

/* Number of blocks in a group, chosen so that its head is a whole number of cache lines. */
static inline uint32_t group_blocks(struct quant_format f, const struct packed_matrix *m)
{
    return f.super ? SUPER_BLOCKS : f.scales == SCALES_SHARED ? 1u << m->sharing : f.mins ? 1 : 2;
}

static inline size_t head_bytes(struct quant_format f, const struct packed_matrix *m)
{
    size_t line = 64, shared = PANEL * sizeof(uint16_t) * (1 + f.mins);
    if (f.scales == SCALES_SHARED)
        return m->scales == SCALES_F32 ? 2 * line : line;
    size_t head = f.super ? shared + SUPER_BLOCKS * PANEL * (size_t)f.parts * (1 + f.mins) : line;
    return (head + line - 1) / line * line;
}

static inline size_t block_quant_bytes(struct quant_format f)
{
    return (size_t)STEP_BYTES * f.bits;
}

static inline size_t group_bytes(struct quant_format f, const struct packed_matrix *m)
{
    return head_bytes(f, m) + group_blocks(f, m) * block_quant_bytes(f);
}

/* Offsets in a panel: of a block's scales (its mins are PANEL further on), of the i8 scales and
 * mins of its parts if the format is super, and of its quants. */
static inline size_t scales_at(struct quant_format f, const struct packed_matrix *m, uint32_t block)
{
    bool has_own = !f.super && f.scales != SCALES_SHARED;
    uint32_t in_group = has_own ? block % group_blocks(f, m) : 0;
    return block / group_blocks(f, m) * group_bytes(f, m) + in_group * PANEL * sizeof(uint16_t);
}

static inline size_t part_scales_at(struct quant_format f, const struct packed_matrix *m,
                                    uint32_t block)
{
    return block / group_blocks(f, m) * group_bytes(f, m) +
           PANEL * sizeof(uint16_t) * (1 + f.mins) +
           block % group_blocks(f, m) * PANEL * (size_t)f.parts * (1 + f.mins);
}

static inline size_t quants_at(struct quant_format f, const struct packed_matrix *m, uint32_t block)
{
    return block / group_blocks(f, m) * group_bytes(f, m) + head_bytes(f, m) +
           block % group_blocks(f, m) * block_quant_bytes(f);
}

/* A block of 8-bit float weights. */
enum { F8_HEAD_BYTES = PANEL * 4, F8_BLOCK_BYTES = F8_HEAD_BYTES + ACT_BLOCK * PANEL };

static inline bool is_f8(enum packed_format format)
{
    return format == PACKED_f8_e4m3 || format == PACKED_f8_e5m2;
}

/* x86: the AVX-512 paths use it as their quantize_row, too. */
void quantize_row_avx2(const float *x, uint32_t cols, uint32_t row, struct act_block *q8);

#endif
