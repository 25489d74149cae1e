/* Turns a weight of the model file into panels (drawn in matmul_internal.h).
 *
 * Each file format has one function that reads 32 columns of one output into a common form; the
 * rest is shared. Nothing is rounded here: scales stay the f16 of the file, and products of two of
 * its numbers are left to the kernels. Runs on any thread. */
#include "engine/cpu/matmul_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/matrix_slab.h"

/* 32 columns of one output. */
struct unpacked {
    uint8_t quants[ACT_BLOCK];
    uint16_t scale, min; /* f16; of the whole super block where the format has those */
    int8_t part_scale[2], part_min[2];
};

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static uint16_t f16_negate(uint16_t half)
{
    return half ^ 0x8000;
}

/* 16 bytes hold columns 0..15 in their low halves and 16..31 in their high ones. */
static void unpack_nibbles(const uint8_t *packed, uint8_t *quants)
{
    for (int i = 0; i < 16; i++) {
        quants[i] = packed[i] & 15;
        quants[i + 16] = packed[i] >> 4;
    }
}

static void add_fifth_bits(uint32_t bits, uint8_t *quants)
{
    for (int i = 0; i < ACT_BLOCK; i++)
        quants[i] |= (bits >> i & 1) << 4;
}

/* Each unpack function gets the first byte of an output's blocks, and which 32 columns to read. */
static void unpack_q4_0(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 18;
    u->scale = load_u16(row);
    unpack_nibbles(row + 2, u->quants);
}

static void unpack_q4_1(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 20;
    u->scale = load_u16(row);
    u->min = load_u16(row + 2);
    unpack_nibbles(row + 4, u->quants);
}

static void unpack_q5_0(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 22;
    u->scale = load_u16(row);
    unpack_nibbles(row + 6, u->quants);
    add_fifth_bits(load_u32(row + 2), u->quants);
}

static void unpack_q5_1(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 24;
    u->scale = load_u16(row);
    u->min = load_u16(row + 2);
    unpack_nibbles(row + 8, u->quants);
    add_fifth_bits(load_u32(row + 4), u->quants);
}

static void unpack_q8_0(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 34;
    u->scale = load_u16(row);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = row[2 + i] ^ 0x80; /* + 128 */
}

/* The K formats: a super block of 256 columns, of which `part` 0..7 is the 32 wanted. In Q2_K,
 * Q3_K and Q6_K a byte holds columns that are 32 apart, and a half is 128 columns. */
static void unpack_q2_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 84;
    uint32_t part = block % 8, half = part / 4, shift = part % 4 * 2;
    const uint8_t *scales = super, *low = super + 16 + half * 32;
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = low[i] >> shift & 3;
    for (int i = 0; i < 2; i++) {
        u->part_scale[i] = scales[part * 2 + i] & 15;
        u->part_min[i] = scales[part * 2 + i] >> 4;
    }
    u->scale = load_u16(super + 80);
    u->min = f16_negate(load_u16(super + 82));
}

static void unpack_q3_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 110;
    uint32_t part = block % 8, half = part / 4, shift = part % 4 * 2;
    const uint8_t *high = super, *low = super + 32 + half * 32, *scales = super + 96;
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = (uint8_t)((low[i] >> shift & 3) | (high[i] >> part & 1) << 2);
    for (int i = 0; i < 2; i++) {
        uint32_t s = part * 2 + i;
        int scale_low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
        int scale_high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
        u->part_scale[i] = (int8_t)((scale_low | scale_high << 4) - 32);
    }
    u->scale = load_u16(super + 108);
}

/* The 12 bytes of 8 scales and 8 mins, 6 bits each, that Q4_K and Q5_K share. */
static void unpack_scale_min(const uint8_t *packed, uint32_t part, struct unpacked *u)
{
    if (part < 4) {
        u->part_scale[0] = packed[part] & 63;
        u->part_min[0] = packed[part + 4] & 63;
    } else {
        u->part_scale[0] = (int8_t)((packed[part + 4] & 15) | packed[part - 4] >> 6 << 4);
        u->part_min[0] = (int8_t)(packed[part + 4] >> 4 | packed[part] >> 6 << 4);
    }
}

static void unpack_q4_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 144;
    uint32_t part = block % 8;
    const uint8_t *nibbles = super + 16 + part / 2 * 32;
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = nibbles[i] >> (part % 2 * 4) & 15;
    unpack_scale_min(super + 4, part, u);
    u->scale = load_u16(super);
    u->min = f16_negate(load_u16(super + 2));
}

static void unpack_q5_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 176;
    uint32_t part = block % 8;
    const uint8_t *high = super + 16, *nibbles = super + 48 + part / 2 * 32;
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = (uint8_t)((nibbles[i] >> (part % 2 * 4) & 15) | (high[i] >> part & 1) << 4);
    unpack_scale_min(super + 4, part, u);
    u->scale = load_u16(super);
    u->min = f16_negate(load_u16(super + 2));
}

static void unpack_q6_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 210;
    uint32_t part = block % 8, half = part / 4, quarter = part % 4;
    const uint8_t *nibbles = super + half * 64 + quarter % 2 * 32;
    const uint8_t *high = super + 128 + half * 32;
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = (uint8_t)((nibbles[i] >> (quarter / 2 * 4) & 15) |
                                 (high[i] >> (quarter * 2) & 3) << 4);
    memcpy(u->part_scale, super + 192 + part * 2, 2);
    u->scale = load_u16(super + 208);
}

/* How each type of the file is packed. */
static const struct source {
    enum tensor_type type;
    enum packed_format format;
    int32_t zero;
    void (*unpack)(const uint8_t *row, uint32_t block, struct unpacked *u); /* NULL: floats */
} sources[] = {
    {TENSOR_F32, PACKED_f32, 0, NULL},
    {TENSOR_F16, PACKED_f16, 0, NULL},
    {TENSOR_BF16, PACKED_bf16, 0, NULL},
    {TENSOR_Q4_0, PACKED_q4, 8, unpack_q4_0},
    {TENSOR_Q4_1, PACKED_q4_min, 0, unpack_q4_1},
    {TENSOR_Q5_0, PACKED_q8, 16, unpack_q5_0},
    {TENSOR_Q5_1, PACKED_q8_min, 0, unpack_q5_1},
    {TENSOR_Q8_0, PACKED_q8, 128, unpack_q8_0},
    {TENSOR_Q2_K, PACKED_k4x2_min, 0, unpack_q2_k},
    {TENSOR_Q3_K, PACKED_k4x2, 4, unpack_q3_k},
    {TENSOR_Q4_K, PACKED_k4_min, 0, unpack_q4_k},
    {TENSOR_Q5_K, PACKED_k8_min, 0, unpack_q5_k},
    {TENSOR_Q6_K, PACKED_k8x2, 32, unpack_q6_k},
};

static const struct source *source_of(enum tensor_type type)
{
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (sources[i].type == type)
            return &sources[i];
    assert(!"a type that tensor_type_info does not know");
    return NULL;
}

#define QUANT_FORMAT_INFO(name, bits, parts, mins, super) {bits, parts, mins, super},
const struct quant_format quant_formats[N_QUANT_FORMATS] = {QUANT_FORMATS(QUANT_FORMAT_INFO)};
#undef QUANT_FORMAT_INFO

static void pack_quants(const struct unpacked *u, int bits, uint32_t lane, uint8_t *quants)
{
    for (int step = 0; step < 8; step++) {
        const uint8_t *from = u->quants + step * 4;
        uint8_t *to = quants + step * STEP_BYTES + lane * 4;
        if (bits == 8) {
            memcpy(to, from, 4);
        } else if (step < 4) {
            for (int i = 0; i < 4; i++)
                to[i] = from[i] | (uint8_t)(from[i + 16] << 4);
        }
    }
}

static void pack_head(const struct unpacked *u, struct quant_format f, uint32_t lane,
                      uint32_t block, uint8_t *panel)
{
    uint8_t *scales = panel + scales_at(f, block);
    memcpy(scales + lane * 2, &u->scale, 2);
    if (f.mins)
        memcpy(scales + (PANEL + lane) * 2, &u->min, 2);
    uint8_t *part_scales = panel + part_scales_at(f, block) + lane;
    for (int i = 0; f.super && i < f.parts; i++) {
        part_scales[i * PANEL] = (uint8_t)u->part_scale[i];
        if (f.mins)
            part_scales[(f.parts + i) * PANEL] = (uint8_t)u->part_min[i];
    }
}

static void pack_quantized(const struct weight *w, const struct source *source,
                           const struct packed_matrix *m, uint32_t panel_begin, uint32_t panel_end,
                           uint8_t *panels)
{
    struct quant_format f = quant_formats[m->format];
    const struct tensor_type_info *type = tensor_type_info(w->type);
    size_t row_bytes = (size_t)w->cols / type->block_len * type->block_bytes;
    for (uint32_t panel = panel_begin; panel < panel_end; panel++) {
        uint8_t *to = panels + (panel - panel_begin) * m->panel_bytes;
        const uint8_t *from = (const uint8_t *)w->data + panel * PANEL * row_bytes;
        uint32_t outputs = panel_outputs(m, panel);
        for (uint32_t block = 0; block < m->blocks; block++)
            for (uint32_t lane = 0; lane < outputs; lane++) {
                struct unpacked u;
                source->unpack(from + lane * row_bytes, block, &u);
                pack_head(&u, f, lane, block, to);
                pack_quants(&u, f.bits, lane, to + quants_at(f, block));
            }
    }
}

/* Called with a constant size, so that a weight is moved by one load and one store. */
static inline __attribute__((always_inline)) void pack_floats(const struct weight *w,
                                                              const struct packed_matrix *m,
                                                              uint32_t panel_begin,
                                                              uint32_t panel_end, uint8_t *panels,
                                                              const size_t size)
{
    for (uint32_t panel = panel_begin; panel < panel_end; panel++) {
        uint8_t *to = panels + (panel - panel_begin) * m->panel_bytes;
        const uint8_t *from = (const uint8_t *)w->data + (size_t)panel * PANEL * w->cols * size;
        uint32_t outputs = panel_outputs(m, panel);
        for (uint32_t col = 0; col < w->cols; col++)
            for (uint32_t lane = 0; lane < outputs; lane++)
                memcpy(to + ((size_t)col * PANEL + lane) * size,
                       from + ((size_t)lane * w->cols + col) * size, size);
    }
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void matrix_layout(const struct weight *w, struct packed_matrix *m)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    m->rows = w->rows;
    m->cols = w->cols;
    m->n_panels = (w->rows + PANEL - 1) / PANEL;
    if (m->format >= N_QUANT_FORMATS) {
        m->panel_bytes = (size_t)w->cols * PANEL * type->block_bytes;
    } else {
        struct quant_format f = quant_formats[m->format];
        assert(w->cols % type->block_len == 0);
        m->blocks = w->cols / ACT_BLOCK;
        m->panel_bytes = (m->blocks + group_blocks(f) - 1) / group_blocks(f) * group_bytes(f);
    }
    m->panel_bytes = round_up(m->panel_bytes, PACK_ALIGN);
    m->bytes = m->n_panels * m->panel_bytes;
}

struct packed_matrix *matrix_new(const struct weight *w, struct error *err)
{
    const struct source *source = source_of(w->type);
    struct packed_matrix *m = calloc(1, sizeof *m);
    if (!m) {
        error_set(err, ERROR_MEMORY, "no memory for a weight matrix");
        return NULL;
    }
    m->format = source->format;
    m->zero = source->zero;
    matrix_layout(w, m);
    m->slab = slab_take(m->bytes, &m->data);
    if (!m->slab) {
        error_set(err, ERROR_MEMORY, "no memory for a weight matrix of %zu bytes", m->bytes);
        free(m);
        return NULL;
    }
    return m;
}

void matrix_fill(const struct packed_matrix *m, const struct weight *w, uint32_t panel_begin,
                 uint32_t panel_end, uint8_t *panels)
{
    const struct source *source = source_of(w->type);
    if (source->unpack)
        pack_quantized(w, source, m, panel_begin, panel_end, panels);
    else if (m->format == PACKED_f32)
        pack_floats(w, m, panel_begin, panel_end, panels, 4);
    else
        pack_floats(w, m, panel_begin, panel_end, panels, 2);
}

struct packed_matrix *matrix_pack(const struct weight *w, struct error *err)
{
    struct packed_matrix *m = matrix_new(w, err);
    if (m)
        matrix_fill(m, w, 0, m->n_panels, m->data);
    return m;
}

void matrix_free(struct packed_matrix *m)
{
    if (!m)
        return;
    slab_release(m->slab);
    free(m);
}

enum act_kind matrix_act_kind(const struct packed_matrix *m)
{
    return m->format < N_QUANT_FORMATS ? ACT_Q8 : ACT_F32;
}

uint32_t matrix_rows(const struct packed_matrix *m)
{
    return m->rows;
}

uint32_t matrix_panels(const struct packed_matrix *m)
{
    return m->n_panels;
}

size_t matrix_bytes(const struct packed_matrix *m)
{
    return m->bytes;
}

size_t activations_bytes(uint32_t n_rows, uint32_t cols)
{
    size_t tiles = ((size_t)n_rows + ROW_TILE - 1) / ROW_TILE;
    return tiles * act_blocks(cols) * sizeof(struct act_block);
}

struct activations activations_rows(const struct activations *x, uint32_t begin, uint32_t end)
{
    assert(begin % ROW_TILE == 0 && begin < end && end <= x->n_rows);
    struct activations rows = *x;
    rows.n_rows = end - begin;
    if (x->f32)
        rows.f32 += (size_t)begin * x->cols;
    if (x->q8)
        rows.q8 += begin / ROW_TILE * (size_t)act_blocks(x->cols);
    return rows;
}
