/* Decodes the bytes of a panel to quants and scales in registers, for the kernels of matmul_tile.h
 * and matmul_amx.c. A .c file of one instruction set defines the operations on its registers (see
 * matmul_avx2.c for the list) and then includes this file, which has only static functions. */
#ifndef RADISH_ENGINE_CPU_KERNELS_MATMUL_DECODE_H
#define RADISH_ENGINE_CPU_KERNELS_MATMUL_DECODE_H

#include "engine/cpu/kernels/matmul_internal.h"

/* With a check at every access, compiling unrolled tiles would take half an hour. */
#if defined(__has_feature)
#define IS_SANITIZED __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif
#if IS_SANITIZED
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif
/* Keeps sums in registers in the written order. GCC would balance the tree of additions, with more
 * live terms than there are registers. */
#define KEEP(value)   __asm__("" : "+v"(value))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { CHUNK_BYTES = 384 * 1024 }; /* of activations, to stay in the second-level cache */

/* Number of rows whose activations stay in the cache. Chunks have the same size, as far as tiles
 * allow: a small last one would read all panels for a few rows. */
static uint32_t chunk_rows(const struct packed_matrix *m, const struct activations *x)
{
    size_t tile_bytes = x->kind == ACT_Q8 ? m->blocks * sizeof(struct act_block)
                                          : m->cols * sizeof(float) * ROW_TILE;
    uint32_t most = CHUNK_BYTES > tile_bytes ? (uint32_t)(CHUNK_BYTES / tile_bytes) : 1;
    uint32_t n_tiles = (x->n_rows + ROW_TILE - 1) / ROW_TILE;
    uint32_t n_chunks = (n_tiles + most - 1) / most;
    return n_chunks > 1 ? (n_tiles + n_chunks - 1) / n_chunks * ROW_TILE : most * ROW_TILE;
}

/* Evaluated again for each block, or compilers would make three copies of the loop. */
ALWAYS_INLINE enum quant_scales scales_kind(const struct packed_matrix *m)
{
    enum quant_scales kind = m->scales;
    __asm__ volatile("" : "+r"(kind));
    return kind;
}

ALWAYS_INLINE vf load_scale(enum quant_scales kind, const uint8_t *scales, int at)
{
    return kind == SCALES_F16    ? vf_load_f16(scales + at * 2)
           : kind == SCALES_BF16 ? vf_load_bf16(scales + at * 2)
                                 : vf_load(scales + at * 4);
}

/* Scales and mins of the outputs of one vector in one block. */
ALWAYS_INLINE void load_head(struct quant_format f, const struct packed_matrix *m,
                             const uint8_t *panel, uint32_t block, int vector, vf *scale, vf *min)
{
    const uint8_t *head = panel + scales_at(f, m, block);
    const uint8_t *part = panel + part_scales_at(f, m, block) + vector * LANES;
    enum quant_scales kind = f.scales == SCALES_SHARED ? scales_kind(m) : f.scales;
    if (f.scales == SCALES_E4M3) {
        for (int i = 0; i < 2; i++)
            scale[i] = vf_load_e4m3_scale(head + i * PANEL + vector * LANES);
        return;
    }
    scale[0] = scale[1] = load_scale(kind, head, vector * LANES);
    if (f.mins)
        min[0] = min[1] = load_scale(kind, head, PANEL + vector * LANES);
    for (int i = 0; f.super && i < f.parts; i++) {
        scale[i] = vf_mul(scale[i], vf_load_i8(part + i * PANEL));
        if (f.mins)
            min[i] = vf_mul(min[i], vf_load_i8(part + (f.parts + i) * PANEL));
    }
}

/* A packed step, in bytes: 4 columns of each output of a vector. Shifts work on 16 bits; bits that
 * cross from one byte into the other are masked out. */
ALWAYS_INLINE vi load_codes(struct quant_format f, const uint8_t *quants, int step)
{
    if (f.bits == 8)
        return vi_load(quants + step * STEP_BYTES);
    const int high_bits = f.bits - 4, at = step * high_bits;
    vi w = vi_load(quants + (high_bits + step % 4) * STEP_BYTES);
    w = vi_and(step < 4 ? w : vi_shift_right(w, 4), vi_set1(15));
    if (high_bits) {
        vi high = vi_load(quants + at / 8 * STEP_BYTES);
        high = at % 8 > 4 ? vi_shift_right(high, at % 8 - 4) : vi_shift_left(high, 4 - at % 8);
        w = vi_or(w, vi_and(high, vi_set1(high_bits == 1 ? 0x10 : 0x30)));
    }
    return w;
}

/* The quants of a step. */
ALWAYS_INLINE vi load_step(struct quant_format f, const uint8_t *table, const uint8_t *quants,
                           int step)
{
    vi codes = load_codes(f, quants, step);
    return f.values == VALUES_LINEAR ? codes : vi_lookup(vi_table(table), codes);
}

#endif
