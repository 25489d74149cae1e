/* Packs floats, and the GGUF types whose blocks hold bit-packed quants. Runs on any thread. Several
 * types share a packed format and differ only here. */
#include "engine/cpu/kernels/matmul_pack.h"

static uint16_t f16_negate(uint16_t half)
{
    return half ^ 0x8000;
}

/* 4 bytes hold a bit of each column. A byte is copied into 8: copy i keeps only bit i, which an
 * addition then carries to bit 7. */
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

/* Each unpack function gets a row, and which 32 of its columns to read into `u`, which is zeroed.
 */
static void unpack_q4_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 18;
    u->scale = load_u16(row);
    unpack_nibbles(row + 2, u->quants);
}

static void unpack_q4_1(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 20;
    u->scale = load_u16(row);
    u->min = load_u16(row + 2);
    unpack_nibbles(row + 4, u->quants);
}

static void unpack_q5_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 22;
    u->scale = load_u16(row);
    unpack_nibbles(row + 6, u->quants);
    add_fifth_bits(row + 2, u->quants);
}

static void unpack_q5_1(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 24;
    u->scale = load_u16(row);
    u->min = load_u16(row + 2);
    unpack_nibbles(row + 8, u->quants);
    add_fifth_bits(row + 4, u->quants);
}

static void unpack_q8_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 34;
    u->scale = load_u16(row);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = row[2 + i] ^ 0x80; /* + 128 */
}

/* The scale of a block is 2^(exponent - 128), which goes below the smallest normal number. */
static void unpack_mxfp4(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block * 17;
    u->scale = row[0] < 2 ? (uint16_t)(0x20 << row[0]) : (uint16_t)((row[0] - 1) << 7);
    unpack_nibbles(row + 1, u->quants);
}

/* The K formats: a super block of 256 columns; `part` 0..7 selects the 32 wanted. In Q2_K, Q3_K and
 * Q6_K a byte holds columns that are 32 apart, and a half is 128 columns. */
static void unpack_q2_k(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 84;
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

static void unpack_q3_k(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 110;
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

static void unpack_q4_k(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 144;
    uint32_t part = block % 8;
    const uint8_t *nibbles = super + 16 + part / 2 * 32;
    add_fields(nibbles, ACT_BLOCK, part % 2 * 4, 4, 0, u->quants);
    unpack_scale_min(super + 4, part, u);
    u->scale = load_u16(super);
    u->min = f16_negate(load_u16(super + 2));
}

static void unpack_q5_k(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 176;
    uint32_t part = block % 8;
    const uint8_t *high = super + 16, *nibbles = super + 48 + part / 2 * 32;
    add_fields(nibbles, ACT_BLOCK, part % 2 * 4, 4, 0, u->quants);
    add_fields(high, ACT_BLOCK, part, 1, 4, u->quants);
    unpack_scale_min(super + 4, part, u);
    u->scale = load_u16(super);
    u->min = f16_negate(load_u16(super + 2));
}

static void unpack_q6_k(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 210;
    uint32_t part = block % 8, half = part / 4, quarter = part % 4;
    const uint8_t *nibbles = super + half * 64 + quarter % 2 * 32;
    const uint8_t *high = super + 128 + half * 32;
    add_fields(nibbles, ACT_BLOCK, quarter / 2 * 4, 4, 0, u->quants);
    add_fields(high, ACT_BLOCK, quarter * 2, 2, 4, u->quants);
    memcpy(u->part_scale, super + 192 + part * 2, 2);
    u->scale = load_u16(super + 208);
}

/* Types of one or two bits, and of three values, are stored as the 4 bits of Q4_0, whose zero is 8.
 */
static void unpack_q1_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block / 4 * 18, *bits = row + 2 + block % 4 * 4;
    u->scale = load_u16(row);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = (uint8_t)(7 + (bits[i / 8] >> i % 8 & 1) * 2);
}

static void unpack_q2_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block / 2 * 18, *bits = row + 2 + block % 2 * 8;
    u->scale = load_u16(row);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] = (uint8_t)(7 + (bits[i / 4] >> i % 4 * 2 & 3));
}

static void unpack_tq2_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 66;
    uint32_t part = block % 8;
    add_fields(super + part / 4 * 32, ACT_BLOCK, part % 4 * 2, 2, 0, u->quants);
    for (int i = 0; i < ACT_BLOCK; i++)
        u->quants[i] += 7;
    u->scale = load_u16(super + 64);
}

/* Digit `digit` of `n` bytes; see dequantize_tq1_0. */
static void unpack_digits(const uint8_t *bytes, int n, int digit, uint8_t *quants)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < n; i++) {
        uint8_t rest = (uint8_t)(bytes[i] * powers[digit]);
        quants[i] = (uint8_t)(7 + (rest * 3 >> 8));
    }
}

static void unpack_tq1_0(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *super = from->bytes + block / 8 * 54;
    int part = (int)(block % 8);
    u->scale = load_u16(super + 52);
    if (part < 5) {
        unpack_digits(super, 32, part, u->quants);
        return;
    }
    unpack_digits(super + 32, 16, part * 2 - 10, u->quants);
    if (part < 7)
        unpack_digits(super + 32, 16, part * 2 - 9, u->quants + 16);
    for (int digit = 0; part == 7 && digit < 4; digit++)
        unpack_digits(super + 48, 4, digit, u->quants + 16 + digit * 4);
}

/* Its scales are half of E4M3 and its quants twice the floats they represent, so the matrix' scale
 * is the same for all NVFP4. Its 0x7f means 0, and the sign is ignored. */
static void unpack_nvfp4(const struct weight_row *from, uint32_t block, struct unpacked *u)
{
    const uint8_t *row = from->bytes + block / 2 * 36, *scales = row + block % 2 * 2;
    const uint8_t *nibbles = row + 4 + block % 2 * 16;
    for (int i = 0; i < 2; i++, nibbles += 8) {
        u->part_scale[i] = scales[i] == 0x7f ? 0 : (int8_t)(scales[i] & 0x7f);
        add_fields(nibbles, 8, 0, 4, 0, u->quants + i * 16);
        add_fields(nibbles, 8, 4, 4, 0, u->quants + i * 16 + 8);
    }
}

/* Packs a panel of floats of a constant size. A few columns of all outputs at a time, so that their
 * cache lines stay cached on both sides. */
static inline __attribute__((always_inline)) void pack_floats(const struct packed_matrix *m,
                                                              const struct weight *w,
                                                              uint32_t first, uint32_t outputs,
                                                              uint8_t *to, const size_t size)
{
    enum { AT_ONCE = 32 };
    const uint8_t *from = (const uint8_t *)w->data + first * w->row_bytes;
    for (uint32_t begin = 0, end; begin < m->cols; begin = end) {
        end = m->cols - begin < AT_ONCE ? m->cols : begin + AT_ONCE;
        for (uint32_t lane = 0; lane < outputs; lane++)
            for (uint32_t col = begin; col < end; col++)
                memcpy(to + ((size_t)col * PANEL + lane) * size,
                       from + lane * w->row_bytes + col * size, size);
    }
}

/* X(type in the file, packed format, function that reads it) */
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
    X(MXFP4, mxfp4, unpack_mxfp4)                                                                  \
    X(NVFP4, nvfp4, unpack_nvfp4)                                                                  \
    X(Q1_0, q4, unpack_q1_0)                                                                       \
    X(Q2_0, q4, unpack_q2_0)                                                                       \
    X(TQ1_0, q4, unpack_tq1_0)                                                                     \
    X(TQ2_0, q4, unpack_tq2_0)

QUANT_SOURCES(QUANT_PACK)

static void pack_16_bits(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                         uint32_t outputs, uint8_t *to)
{
    pack_floats(m, w, first, outputs, to, 2);
}

static void pack_32_bits(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                         uint32_t outputs, uint8_t *to)
{
    pack_floats(m, w, first, outputs, to, 4);
}

/* Packs any weight that no other function handles. */
static void pack_any(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                     uint32_t outputs, uint8_t *to)
{
    for (uint32_t begin = 0; begin < m->cols; begin += ACT_BLOCK)
        for (uint32_t lane = 0; lane < outputs; lane++) {
            float values[ACT_BLOCK];
            uint32_t n = m->cols - begin < ACT_BLOCK ? m->cols - begin : ACT_BLOCK;
            weight_floats(w, first + lane, begin, n, values);
            for (uint32_t c = 0; c < n; c++)
                memcpy(to + ((size_t)(begin + c) * PANEL + lane) * sizeof *values, &values[c],
                       sizeof *values);
        }
}

#define QUANT_SOURCE(type, format, unpack) [TENSOR_##type] = {PACKED_##format, pack_##type},
static const struct pack_source sources[N_TENSOR_TYPES] = {
    QUANT_SOURCES(QUANT_SOURCE)[TENSOR_F32] = {PACKED_f32, pack_32_bits},
    [TENSOR_F16] = {PACKED_f16, pack_16_bits}, [TENSOR_BF16] = {PACKED_bf16, pack_16_bits}};

const struct pack_source *pack_source_blocks(const struct weight *w, struct packed_matrix *m)
{
    if (!sources[w->type].pack || w->groups.scales)
        return NULL;
    m->scale = w->type == TENSOR_NVFP4 ? 128 : 1;
    if (w->groups.scale != 0)
        m->scale *= w->groups.scale;
    return &sources[w->type];
}

const struct pack_source *pack_source_any(struct packed_matrix *m)
{
    static const struct pack_source any = {PACKED_f32, pack_any};
    m->scale = 1;
    return &any;
}
