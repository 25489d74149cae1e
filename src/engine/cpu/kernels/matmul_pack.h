#ifndef RADISH_ENGINE_CPU_KERNELS_MATMUL_PACK_H
#define RADISH_ENGINE_CPU_KERNELS_MATMUL_PACK_H

#include <string.h>

#include "engine/cpu/kernels/matmul_internal.h"

/* Packs weights into panels (drawn in matmul_internal.h). Each file type has one function that
 * reads 32 columns of one output into a common form; the rest is shared. Nothing is rounded: scales
 * stay as in the file, and products of two scales are left to the kernels. Contains only static
 * functions, for the files that know the types. */

/* 32 columns of one output. */
struct unpacked {
    uint8_t quants[ACT_BLOCK]; /* as in the file: indices, if the format has a table of values */
    uint16_t scale, min;       /* f16 or bf16; of the whole super block if the format has those */
    uint32_t wide_scale, wide_min; /* if these are f32 */
    int8_t part_scale[2], part_min[2];
};

/* A row in its file. */
struct weight_row {
    const struct weight *weight;
    uint32_t index;
    const uint8_t *bytes;
};

/* Packs a weight, one panel at a time, from `outputs` rows. */
struct pack_source {
    enum packed_format format;
    void (*pack)(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                 uint32_t outputs, uint8_t *to);
};

/* Each returns the source for `w`, or NULL if it does not handle it, and sets the packed matrix's
 * fields other than its layout: its scale, its table, its kind of scales. */
const struct pack_source *pack_source_blocks(const struct weight *w, struct packed_matrix *m);
const struct pack_source *pack_source_lattice(const struct weight *w, struct packed_matrix *m);
const struct pack_source *pack_source_groups(const struct weight *w, struct packed_matrix *m);
const struct pack_source *pack_source_any(struct packed_matrix *m); /* as 32-bit floats */

static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Every byte of `from` has a field of `bits` bits at bit `shift`, which goes to bit `to` of a
 * quant. Works on 8 bytes at a time; `n` is a multiple of 8. */
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

/* 16 bytes hold columns 0..15 in their low halves and 16..31 in their high halves. */
static inline void unpack_nibbles(const uint8_t *packed, uint8_t *quants)
{
    add_fields(packed, 16, 0, 4, 0, quants);
    add_fields(packed, 16, 4, 4, 0, quants + 16);
}

/* Writes the quants of one output to every PANEL-th word of its block; `words` is the first. */
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

static inline void pack_head(const struct unpacked *u, struct quant_format f,
                             const struct packed_matrix *m, uint32_t lane, uint32_t block,
                             uint8_t *panel)
{
    uint8_t *scales = panel + scales_at(f, m, block);
    if (f.scales == SCALES_E4M3) {
        for (int i = 0; i < f.parts; i++)
            scales[i * PANEL + lane] = (uint8_t)u->part_scale[i];
        return;
    }
    if (f.scales == SCALES_SHARED && m->scales == SCALES_F32) {
        memcpy(scales + lane * 4, &u->wide_scale, 4);
        memcpy(scales + (PANEL + lane) * 4, &u->wide_min, 4);
        return;
    }
    memcpy(scales + lane * 2, &u->scale, 2);
    if (f.mins)
        memcpy(scales + (PANEL + lane) * 2, &u->min, 2);
    uint8_t *part_scales = panel + part_scales_at(f, m, block) + lane;
    for (int i = 0; f.super && i < f.parts; i++) {
        part_scales[i * PANEL] = (uint8_t)u->part_scale[i];
        if (f.mins)
            part_scales[(f.parts + i) * PANEL] = (uint8_t)u->part_min[i];
    }
}

typedef void unpack_function(const struct weight_row *from, uint32_t block, struct unpacked *u);

/* Packs a panel: `outputs` rows of `w` from `first` on. Inlined with a constant format and
 * function, so that every loop has a constant length. */
static inline __attribute__((always_inline)) void pack_panel(const struct quant_format f,
                                                             unpack_function *unpack,
                                                             const struct packed_matrix *m,
                                                             const struct weight *w, uint32_t first,
                                                             uint32_t outputs, uint8_t *to)
{
    for (uint32_t block = 0; block < m->blocks; block++)
        for (uint32_t lane = 0; lane < outputs; lane++) {
            struct weight_row from = {w, first + lane,
                                      (const uint8_t *)w->data + (first + lane) * w->row_bytes};
            struct unpacked u = {0};
            unpack(&from, block, &u);
            pack_head(&u, f, m, lane, block, to);
            pack_quants(u.quants, f.bits, (uint32_t *)(to + quants_at(f, m, block)) + lane);
        }
}

/* Defines the function that packs weights of `type` as `format`. */
#define QUANT_PACK(type, format, unpack)                                                           \
    static void pack_##type(const struct packed_matrix *m, const struct weight *w, uint32_t first, \
                            uint32_t outputs, uint8_t *to)                                         \
    {                                                                                              \
        pack_panel(quant_formats[PACKED_##format], unpack, m, w, first, outputs, to);              \
    }

#endif
