/* Packs weights from directories: quants whose scales are in a separate tensor (weight.h). Runs on
 * any thread. Careful: groups belong to the whole tensor, and a weight may be a slice of it, so a
 * row's scales are looked up for each row. */
#include "engine/cpu/kernels/matmul_pack.h"

static const uint8_t *group_bytes_at(const struct weight *w, const void *numbers, uint32_t row,
                                     uint32_t col)
{
    size_t bytes = tensor_type_info(w->groups.scale_type)->block_bytes;
    return (const uint8_t *)numbers + weight_group(w, row, col) * bytes;
}

/* ---- MLX's affine quants ------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void unpack_affine(const int bits,
                                                                const struct weight_row *from,
                                                                uint32_t block, struct unpacked *u)
{
    const struct weight_groups *g = &from->weight->groups;
    const uint8_t *row = from->bytes + block * 4 * (uint32_t)bits;
    for (int i = 0; i < ACT_BLOCK; i += 8, row += bits) {
        uint64_t eight = 0;
        memcpy(&eight, row, (size_t)bits);
        for (int k = 0; k < 8; k++)
            u->quants[i + k] = (uint8_t)(eight >> k * bits & ((1u << bits) - 1));
    }
    const uint8_t *scale = group_bytes_at(from->weight, g->scales, from->index, block * ACT_BLOCK);
    const uint8_t *bias = g->biases ? group_bytes_at(from->weight, g->biases, from->index,
                                                     block * ACT_BLOCK)
                                    : NULL;
    if (g->scale_type == TENSOR_F32) {
        memcpy(&u->wide_scale, scale, 4);
        if (bias)
            memcpy(&u->wide_min, bias, 4);
    } else {
        u->scale = load_u16(scale);
        u->min = bias ? load_u16(bias) : 0;
    }
}

/* X(bits of a quant in the file, packed format) */
#define AFFINE_SOURCES(X)                                                                          \
    X(1, affine4)                                                                                  \
    X(2, affine4) X(3, affine4) X(4, affine4) X(5, affine6) X(6, affine6) X(8, affine8)

#define AFFINE_PACK(bits, format)                                                                  \
    static void unpack_affine_##bits(const struct weight_row *from, uint32_t block,                \
                                     struct unpacked *u)                                           \
    {                                                                                              \
        unpack_affine(bits, from, block, u);                                                       \
    }                                                                                              \
    QUANT_PACK(AFFINE_##bits, format, unpack_affine_##bits)
AFFINE_SOURCES(AFFINE_PACK)

#define AFFINE_SOURCE(bits, format) [TENSOR_AFFINE_##bits] = {PACKED_##format, pack_AFFINE_##bits},
static const struct pack_source affine_sources[N_TENSOR_TYPES] = {AFFINE_SOURCES(AFFINE_SOURCE)};

/* ---- floats of 4 bits --------------------------------------------------------------------- */

static void unpack_fp4(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    uint32_t begin = block * ACT_BLOCK, left = from->weight->cols - begin;
    uint32_t n = left < ACT_BLOCK ? left : ACT_BLOCK;
    const uint8_t *bytes = from->bytes + begin / 2;
    for (uint32_t i = 0; i < n; i++)
        u->quants[i] = bytes[i / 2] >> i % 2 * 4 & 15;
}

/* The quants of the packed format are twice as large; the exponent compensates. */
static void unpack_fp4_e8m0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const struct weight *w = from->weight;
    uint8_t e = *group_bytes_at(w, w->groups.scales, from->index, block * ACT_BLOCK);
    u->scale = e == 255 ? 0x7fc0 : e < 2 ? (uint16_t)(0x20 << e) : (uint16_t)((e - 1) << 7);
    unpack_fp4(from, block, u);
}

/* Scales have no sign in the packed format, so the quants get it. */
static void unpack_fp4_e4m3(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const struct weight *w = from->weight;
    unpack_fp4(from, block, u);
    for (uint32_t part = 0; part < 2; part++) {
        uint32_t col = block * ACT_BLOCK + part * 16;
        if (col >= w->cols)
            break;
        uint8_t scale = *group_bytes_at(w, w->groups.scales, from->index, col);
        bool is_nan = (scale & 0x7f) == 0x7f;
        u->part_scale[part] = (int8_t)(is_nan ? 0xff : scale & 0x7f);
        for (int i = 0; i < 16 && scale >> 7; i++)
            u->quants[part * 16 + i] ^= 8;
    }
}

QUANT_PACK(fp4_e8m0, mxfp4, unpack_fp4_e8m0)
QUANT_PACK(fp4_e4m3, nvfp4, unpack_fp4_e4m3)

/* ---- floats of 8 bits --------------------------------------------------------------------- */

/* Packs one block of one output; true if it has a NaN that the kernels would not see. */
static bool pack_f8_block(const uint8_t *from, uint32_t n, bool is_e4m3, uint8_t *to)
{
    bool has_nan = false;
    for (uint32_t c = 0; c < n; c++) {
        to[c * PANEL] = from[c];
        has_nan |= (from[c] & 0x7f) == 0x7f;
    }
    return has_nan && is_e4m3;
}

static void pack_f8(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                    uint32_t outputs, uint8_t *to)
{
    for (uint32_t begin = 0; begin < m->cols; begin += ACT_BLOCK, to += F8_BLOCK_BYTES) {
        uint32_t n = m->cols - begin < ACT_BLOCK ? m->cols - begin : ACT_BLOCK;
        for (uint32_t lane = 0; lane < outputs; lane++) {
            uint32_t row = first + lane;
            const uint8_t *from = (const uint8_t *)w->data + row * w->row_bytes + begin;
            float bias, scale = weight_scale(w, row, begin, &bias);
            if (pack_f8_block(from, n, w->type == TENSOR_F8_E4M3, to + F8_HEAD_BYTES + lane))
                scale = f8_e4m3_to_f32(0x7f);
            memcpy(to + lane * sizeof scale, &scale, sizeof scale);
        }
    }
}

/* ---- choosing a format -------------------------------------------------------------------- */

/* Whether every aligned group of `unit` columns has a single scale. */
static bool groups_fit(const struct weight *w, uint32_t unit)
{
    return !w->groups.scales || w->groups.cols % unit == 0 || w->groups.cols >= w->cols;
}

static const struct pack_source *affine_source(const struct weight *w, struct packed_matrix *m)
{
    const struct weight_groups *g = &w->groups;
    if (!g->scales || !groups_fit(w, ACT_BLOCK) || (g->biases && g->scale != 0))
        return NULL;
    switch (g->scale_type) {
    case TENSOR_F16: m->scales = SCALES_F16; break;
    case TENSOR_BF16: m->scales = SCALES_BF16; break;
    case TENSOR_F32: m->scales = SCALES_F32; break;
    default: return NULL;
    }
    while (m->sharing < 2 && groups_fit(w, (2u * ACT_BLOCK) << m->sharing))
        m->sharing++;
    return &affine_sources[w->type];
}

static const struct pack_source *fp4_source(const struct weight *w, struct packed_matrix *m)
{
    static const struct pack_source mxfp4 = {PACKED_mxfp4, pack_fp4_e8m0};
    static const struct pack_source nvfp4 = {PACKED_nvfp4, pack_fp4_e4m3};
    const struct weight_groups *g = &w->groups;
    if (!g->scales || g->biases)
        return NULL;
    if (g->scale_type == TENSOR_E8M0 && groups_fit(w, ACT_BLOCK))
        return &mxfp4;
    if (g->scale_type != TENSOR_F8_E4M3 || !groups_fit(w, ACT_BLOCK / 2))
        return NULL;
    m->scale *= 128; /* 2^8 for the scales, a half for the quants */
    return &nvfp4;
}

static const struct pack_source *f8_source(const struct weight *w, struct packed_matrix *m)
{
    static const struct pack_source e4m3 = {PACKED_f8_e4m3, pack_f8};
    static const struct pack_source e5m2 = {PACKED_f8_e5m2, pack_f8};
    if (w->groups.biases || !groups_fit(w, ACT_BLOCK))
        return NULL;
    if (w->type == TENSOR_F8_E5M2)
        return &e5m2;
    m->scale *= 256;
    return &e4m3;
}

const struct pack_source *pack_source_groups(const struct weight *w, struct packed_matrix *m)
{
    m->scale = w->groups.scale != 0 ? w->groups.scale : 1;
    if (affine_sources[w->type].pack)
        return affine_source(w, m);
    if (w->type == TENSOR_FP4)
        return fp4_source(w, m);
    if (w->type == TENSOR_F8_E4M3 || w->type == TENSOR_F8_E5M2)
        return f8_source(w, m);
    return NULL;
}
