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
    uint8_t quants[ACT_BLOCK]; /* as in the file: before a table of values */
    uint16_t scale, min; /* f16 or bf16; of the whole super block where the format has those */
    int8_t part_scale[2], part_min[2];
};

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint16_t f16_negate(uint16_t half)
{
    return half ^ 0x8000;
}

/* Every byte of `from` has a field of `bits` bits, `shift` bits up, that goes to bit `to` of a
 * quant. 8 bytes at a time; `n` is a multiple of that. */
static inline void add_fields(const uint8_t *from, uint32_t n, uint32_t shift, uint32_t bits,
                              uint32_t to, uint8_t *quants)
{
    uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (uint32_t i = 0; i < n; i += 8) {
        uint64_t fields, sum;
        memcpy(&fields, from + i, 8);
        memcpy(&sum, quants + i, 8);
        sum |= (fields >> shift & mask) << to;
        memcpy(quants + i, &sum, 8);
    }
}

/* 16 bytes hold columns 0..15 in their low halves and 16..31 in their high ones. */
static inline void unpack_nibbles(const uint8_t *packed, uint8_t *quants)
{
    add_fields(packed, 16, 0, 4, 0, quants);
    add_fields(packed, 16, 4, 4, 0, quants + 16);
}

/* 4 bytes hold a bit of each column. A byte is spread over 8: bit i alone stays in copy i, where
 * the right number carries it to bit 7. */
static inline void add_fifth_bits(const uint8_t *bits, uint8_t *quants)
{
    for (int i = 0; i < 4; i++) {
        uint64_t copies = bits[i] * 0x0101010101010101u & 0x8040201008040201u;
        uint8_t spread[8];
        copies += 0x00406070787c7e7fu;
        memcpy(spread, &copies, 8);
        add_fields(spread, 8, 7, 1, 4, quants + i * 8);
    }
}

/* Each unpack function gets the first byte of an output's blocks, and which 32 columns to read into
 * a `u` of zeros. */
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
    add_fifth_bits(row + 2, u->quants);
}

static void unpack_q5_1(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 24;
    u->scale = load_u16(row);
    u->min = load_u16(row + 2);
    unpack_nibbles(row + 8, u->quants);
    add_fifth_bits(row + 4, u->quants);
}

static void unpack_q8_0(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 34;
    u->scale = load_u16(row);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = row[2 + i] ^ 0x80; /* + 128 */
}

/* The scale of a block is 2^(exponent - 128), which goes below the smallest normal number. */
static void unpack_mxfp4(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    row += block * 17;
    u->scale = row[0] < 2 ? (uint16_t)(0x20 << row[0]) : (uint16_t)((row[0] - 1) << 7);
    unpack_nibbles(row + 1, u->quants);
}

/* The K formats: a super block of 256 columns, of which `part` 0..7 is the 32 wanted. In Q2_K,
 * Q3_K and Q6_K a byte holds columns that are 32 apart, and a half is 128 columns. */
static void unpack_q2_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 84;
    uint32_t part = block % 8, half = part / 4, shift = part % 4 * 2;
    const uint8_t *scales = super, *low = super + 16 + half * 32;
    add_fields(low, ACT_BLOCK, shift, 2, 0, u->quants);
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
    add_fields(low, ACT_BLOCK, shift, 2, 0, u->quants);
    add_fields(high, ACT_BLOCK, part, 1, 2, u->quants);
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
    add_fields(nibbles, ACT_BLOCK, part % 2 * 4, 4, 0, u->quants);
    unpack_scale_min(super + 4, part, u);
    u->scale = load_u16(super);
    u->min = f16_negate(load_u16(super + 2));
}

static void unpack_q5_k(const uint8_t *row, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = row + block / 8 * 176;
    uint32_t part = block % 8;
    const uint8_t *high = super + 16, *nibbles = super + 48 + part / 2 * 32;
    add_fields(nibbles, ACT_BLOCK, part % 2 * 4, 4, 0, u->quants);
    add_fields(high, ACT_BLOCK, part, 1, 4, u->quants);
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
    add_fields(nibbles, ACT_BLOCK, quarter / 2 * 4, 4, 0, u->quants);
    add_fields(high, ACT_BLOCK, quarter * 2, 2, 4, u->quants);
    memcpy(u->part_scale, super + 192 + part * 2, 2);
    u->scale = load_u16(super + 208);
}

#define QUANT_FORMAT_INFO(name, ...) {__VA_ARGS__},
const struct quant_format quant_formats[N_QUANT_FORMATS] = {QUANT_FORMATS(QUANT_FORMAT_INFO)};
#undef QUANT_FORMAT_INFO

/* The quants of one output go to every PANEL-th word of its block; `words` is the first. */
static inline void pack_quants(const uint8_t *from, int bits, uint32_t *words)
{
    uint32_t q[8], high[2] = {0, 0};
    const int high_bits = bits - 4;
    memcpy(q, from, sizeof q);
    if (bits == 8) {
        for (int step = 0; step < 8; step++)
            words[step * PANEL] = q[step];
        return;
    }
    for (int step = 0; step < 4; step++)
        words[(high_bits + step) * PANEL] = (q[step] & 0x0f0f0f0f) | (q[step + 4] & 0x0f0f0f0f)
                                                                         << 4;
    for (int step = 0; step < 8 && high_bits; step++) {
        uint32_t mask = high_bits == 1 ? 0x01010101 : 0x03030303;
        high[step * high_bits / 8] |= (q[step] >> 4 & mask) << step * high_bits % 8;
    }
    for (int i = 0; i < high_bits; i++)
        words[i * PANEL] = high[i];
}

static inline void pack_head(const struct unpacked *u, struct quant_format f, uint32_t lane,
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

typedef void unpack_function(const uint8_t *row, uint32_t block, struct unpacked *u);

/* Packs a panel of `outputs` rows of the file. Inlined with a constant format and function, so that
 * every loop in them has a constant length. */
static inline __attribute__((always_inline)) void pack_panel(const struct quant_format f,
                                                             unpack_function *unpack,
                                                             const uint8_t *from, size_t row_bytes,
                                                             uint32_t outputs, uint32_t blocks,
                                                             uint8_t *to)
{
    for (uint32_t block = 0; block < blocks; block++)
        for (uint32_t lane = 0; lane < outputs; lane++) {
            struct unpacked u = {0};
            unpack(from + lane * row_bytes, block, &u);
            pack_head(&u, f, lane, block, to);
            pack_quants(u.quants, f.bits, (uint32_t *)(to + quants_at(f, block)) + lane);
        }
}

/* The same for floats of a constant size. A few columns of all outputs at a time: their lines stay
 * in the cache on both sides. */
static inline __attribute__((always_inline)) void pack_floats(const uint8_t *from, uint32_t outputs,
                                                              uint32_t cols, uint8_t *to,
                                                              const size_t size)
{
    enum { AT_ONCE = 32 };
    for (uint32_t begin = 0, end; begin < cols; begin = end) {
        end = cols - begin < AT_ONCE ? cols : begin + AT_ONCE;
        for (uint32_t lane = 0; lane < outputs; lane++)
            for (uint32_t col = begin; col < end; col++)
                memcpy(to + ((size_t)col * PANEL + lane) * size,
                       from + ((size_t)lane * cols + col) * size, size);
    }
}

/* X(type of the file, packed format, what reads it) */
#define QUANT_SOURCES(X)                                                                           \
    X(Q4_0, q4, unpack_q4_0)                                                                       \
    X(Q4_1, q4_min, unpack_q4_1)                                                                   \
    X(Q5_0, q5, unpack_q5_0)                                                                       \
    X(Q5_1, q5_min, unpack_q5_1)                                                                   \
    X(Q8_0, q8, unpack_q8_0)                                                                       \
    X(Q2_K, k4x2_min, unpack_q2_k)                                                                 \
    X(Q3_K, k4x2, unpack_q3_k)                                                                     \
    X(Q4_K, k4_min, unpack_q4_k)                                                                   \
    X(Q5_K, k5_min, unpack_q5_k)                                                                   \
    X(Q6_K, k6x2, unpack_q6_k)                                                                     \
    X(IQ4_NL, iq4_nl, unpack_q4_0)                                                                 \
    X(MXFP4, mxfp4, unpack_mxfp4)

/* Each packs one panel: `outputs` rows of row_bytes, of `cols` columns. */
#define QUANT_PACK(type, format, unpack)                                                           \
    static void pack_##type(const uint8_t *from, size_t row_bytes, uint32_t outputs,               \
                            uint32_t cols, uint8_t *to)                                            \
    {                                                                                              \
        pack_panel(quant_formats[PACKED_##format], unpack, from, row_bytes, outputs,               \
                   cols / ACT_BLOCK, to);                                                          \
    }
QUANT_SOURCES(QUANT_PACK)

static void pack_16_bits(const uint8_t *from, size_t row_bytes, uint32_t outputs, uint32_t cols,
                         uint8_t *to)
{
    (void)row_bytes;
    pack_floats(from, outputs, cols, to, 2);
}

static void pack_32_bits(const uint8_t *from, size_t row_bytes, uint32_t outputs, uint32_t cols,
                         uint8_t *to)
{
    (void)row_bytes;
    pack_floats(from, outputs, cols, to, 4);
}

/* How each type of the file is packed. */
#define QUANT_SOURCE(type, format, unpack) {TENSOR_##type, PACKED_##format, pack_##type},
static const struct source {
    enum tensor_type type;
    enum packed_format format;
    void (*pack)(const uint8_t *from, size_t row_bytes, uint32_t outputs, uint32_t cols,
                 uint8_t *to);
} sources[] = {QUANT_SOURCES(QUANT_SOURCE){TENSOR_F32, PACKED_f32, pack_32_bits},
               {TENSOR_F16, PACKED_f16, pack_16_bits},
               {TENSOR_BF16, PACKED_bf16, pack_16_bits}};

static const struct source *source_of(enum tensor_type type)
{
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (sources[i].type == type)
            return &sources[i];
    assert(!"a type that tensor_type_info does not know");
    return NULL;
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
    const struct tensor_type_info *type = tensor_type_info(w->type);
    size_t row_bytes = (size_t)w->cols / type->block_len * type->block_bytes;
    for (uint32_t panel = panel_begin; panel < panel_end; panel++)
        source->pack((const uint8_t *)w->data + panel * PANEL * row_bytes, row_bytes,
                     panel_outputs(m, panel), w->cols,
                     panels + (panel - panel_begin) * m->panel_bytes);
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
