/* Products of packed matrices with AMX: one instruction on tile registers multiplies 12 rows by a
 * panel of 16 outputs, for a block of 32 columns. A block's dots are exact integers, so the result
 * has the same bits as every other path, and the remaining rows go through the VNNI tiles.
 *
 * The weights of a panel are decoded once for all row tiles, with their scales, into a stripe that
 * stays in the nearest cache. A long inner dimension takes several stripes; in between, the sums
 * are kept in the output. Careful: tile registers belong to a thread and must be released, or every
 * context switch saves 8 KiB. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/amx_tiles.h"
#include "engine/cpu/kernels/matmul_avx512_ops.h"
#include "engine/cpu/kernels/matmul_decode.h"

enum {
    STRIPE_BLOCKS = 48,      /* 24 KiB of weights */
    AMX_ROWS = 2 * ROW_TILE, /* that share a load of weights */
    MIN_ROWS = 2 * ROW_TILE, /* with fewer, the VNNI tiles are as fast */
};

/* Part of a panel in the layout of tile registers: a row of B is 4 columns of 16 outputs. */
struct stripe {
    _Alignas(64) uint8_t quants[STRIPE_BLOCKS][8][STEP_BYTES];
    _Alignas(64) float scale[STRIPE_BLOCKS][2][PANEL], min[STRIPE_BLOCKS][2][PANEL];
    uint32_t first, n; /* blocks */
};

/* The use of the registers: A is a tile of activation rows, B weights, C the sums of a tile of
 * rows. Some compilers stringify these, so they cannot be an enum. */
#define C0 0
#define C1 1
#define A0 2
#define A1 3
#define B  4

/* A product covers a whole block, or half of one if each half has its own scales. */
static void tiles_configure(int parts)
{
    struct amx_shapes shapes = {.palette = 1};
    for (int i = C0; i <= B; i++) {
        shapes.rows[i] = (uint8_t)(i == B ? 8 / parts : ROW_TILE);
        shapes.row_bytes[i] = (uint16_t)(i == A0 || i == A1 ? ACT_BLOCK / parts : STEP_BYTES);
    }
    amx_configure(&shapes);
}

ALWAYS_INLINE void stripe_fill(struct quant_format f, const struct packed_matrix *m,
                               const uint8_t *panel, uint32_t first, struct stripe *stripe)
{
    stripe->first = first;
    stripe->n = m->blocks - first < STRIPE_BLOCKS ? m->blocks - first : STRIPE_BLOCKS;
    for (uint32_t b = 0; b < stripe->n; b++) {
        const uint8_t *quants = panel + quants_at(f, m, first + b);
        vf scale[2], min[2] = {vf_zero(), vf_zero()};
        for (int step = 0; step < 8; step++) {
            vi w = load_step(f, quant_table(f, m), quants, step);
            _mm512_store_si512(stripe->quants[b][step], w);
        }
        load_head(f, m, panel, first + b, 0, scale, min);
        for (int i = 0; i < f.parts; i++) {
            vf_store(stripe->scale[b][i], scale[i]);
            vf_store(stripe->min[b][i], min[i]);
        }
    }
    __asm__ volatile("" ::: "memory"); /* the compiler does not see that tiles are loaded from it */
}

/* The integer dots of one part of a block with one or two tiles of rows. */
ALWAYS_INLINE void dot_tiles(int n_tiles, int part, const uint8_t quants[8][STEP_BYTES],
                             const struct act_block *x, size_t next_tile,
                             int32_t dots[2][ROW_TILE][PANEL])
{
    _tile_zero(C0);
    _tile_loadd(B, quants[part * 4], STEP_BYTES);
    _tile_loadd(A0, x->quants[0] + part * 16, ACT_BLOCK);
    _tile_dpbsud(C0, A0, B);
    if (n_tiles == 2) {
        _tile_zero(C1);
        _tile_loadd(A1, x[next_tile].quants[0] + part * 16, ACT_BLOCK);
        _tile_dpbsud(C1, A1, B);
    }
    _tile_stored(C0, dots[0], STEP_BYTES);
    if (n_tiles == 2)
        _tile_stored(C1, dots[1], STEP_BYTES);
}

/* Adds one block to the sum of one row; see matmul_internal.h for the order. */
ALWAYS_INLINE vf add_block(struct quant_format f, const struct act_block *x, int row,
                           const vf *scale, const vf *min, const int32_t *const dots[2], vf acc)
{
    vf t = vf_zero();
    if (f.mins)
        t = vf_mul(min[0], vf_set1(f.parts == 1 ? x->sum[row] : x->half_sum[0][row]));
    if (f.mins && f.parts == 2)
        t = vf_fma(min[1], vf_set1(x->half_sum[1][row]), t);
    for (int part = 0; part < f.parts; part++) {
        vf dot = vf_from_vi(_mm512_load_si512(dots[part]));
        if (f.zero)
            dot = vf_fma(vf_set1((float)-f.zero),
                         vf_set1(f.parts == 1 ? x->sum[row] : x->half_sum[part][row]), dot);
        t = part == 0 && !f.mins ? vf_mul(dot, scale[0]) : vf_fma(dot, scale[part], t);
    }
    return vf_fma(t, vf_set1(x->scale[row]), acc);
}

/* Where the sums of one or two tiles of rows go. */
struct amx_out {
    float *at; /* [rows][stride] */
    size_t stride;
    __mmask16 outputs; /* that exist in the panel */
    float scale;       /* 1 before the last stripe */
};

/* Multiplies a stripe by one or two tiles of rows. x: the first tile's blocks, starting at the
 * stripe's first; the second tile's are `next_tile` further. */
ALWAYS_INLINE void stripe_rows(struct quant_format f, int n_tiles, const struct stripe *stripe,
                               const struct act_block *x, size_t next_tile, struct amx_out out)
{
    _Alignas(64) int32_t dots[2][2][2][ROW_TILE][PANEL]; /* [block % 2][part][tile] */
    vf acc[2][ROW_TILE];
    for (int t = 0; t < n_tiles; t++)
        UNROLL
    for (int r = 0; r < ROW_TILE; r++) {
        const float *from = out.at + (t * ROW_TILE + r) * out.stride;
        acc[t][r] = stripe->first ? _mm512_maskz_loadu_ps(out.outputs, from) : vf_zero();
    }
    for (int part = 0; part < f.parts; part++)
        dot_tiles(n_tiles, part, stripe->quants[0], x, next_tile, dots[0][part]);
    for (uint32_t b = 0; b < stripe->n; b++, x++) {
        /* Meanwhile the next block goes through the tile registers. */
        for (int part = 0; part < f.parts && b + 1 < stripe->n; part++)
            dot_tiles(n_tiles, part, stripe->quants[b + 1], x + 1, next_tile,
                      dots[(b + 1) % 2][part]);
        vf scale[2], min[2];
        for (int i = 0; i < f.parts; i++) {
            scale[i] = vf_load(stripe->scale[b][i]);
            min[i] = vf_load(stripe->min[b][i]);
        }
        for (int t = 0; t < n_tiles; t++)
            UNROLL
        for (int r = 0; r < ROW_TILE; r++) {
            const int32_t *const of_row[] = {dots[b % 2][0][t][r], dots[b % 2][1][t][r]};
            acc[t][r] = add_block(f, x + t * next_tile, r, scale, min, of_row, acc[t][r]);
        }
    }
    for (int t = 0; t < n_tiles; t++)
        UNROLL
    for (int r = 0; r < ROW_TILE; r++)
        _mm512_mask_storeu_ps(out.at + (t * ROW_TILE + r) * out.stride, out.outputs,
                              vf_mul(acc[t][r], vf_set1(out.scale)));
}

/* Multiplies one panel by `n_tiles` whole tiles of rows, into `out`. */
ALWAYS_INLINE void panel_tiles(struct quant_format f, const struct packed_matrix *m,
                               const struct act_block *x, uint32_t panel, uint32_t n_tiles,
                               float *out, size_t out_stride)
{
    struct stripe stripe;
    struct amx_out to = {out, out_stride, (__mmask16)((1u << panel_outputs(m, panel)) - 1), 1};
    for (uint32_t first = 0; first < m->blocks; first += STRIPE_BLOCKS) {
        const struct act_block *from = x + first;
        struct amx_out at = to;
        uint32_t left = n_tiles;
        at.scale = m->blocks - first > STRIPE_BLOCKS ? 1 : m->scale;
        stripe_fill(f, m, matrix_panel(m, panel), first, &stripe);
        for (; left >= 2; left -= 2, from += 2 * (size_t)m->blocks) {
            stripe_rows(f, 2, &stripe, from, m->blocks, at);
            at.at += AMX_ROWS * out_stride;
        }
        if (left)
            stripe_rows(f, 1, &stripe, from, 0, at);
    }
}

#define QUANT_PANEL(name, ...)                                                                     \
    static void panel_##name(const struct packed_matrix *m, const struct act_block *x,             \
                             uint32_t panel, uint32_t n_tiles, float *out, size_t out_stride)      \
    {                                                                                              \
        const struct quant_format f = {__VA_ARGS__};                                               \
        panel_tiles(f, m, x, panel, n_tiles, out, out_stride);                                     \
    }
QUANT_FORMATS(QUANT_PANEL)

#define QUANT_PANEL_ENTRY(name, ...) panel_##name,
static void (*const panel_functions[N_QUANT_FORMATS])(
    const struct packed_matrix *m, const struct act_block *x, uint32_t panel, uint32_t n_tiles,
    float *out, size_t out_stride) = {QUANT_FORMATS(QUANT_PANEL_ENTRY)};

static void matmul_amx(const struct packed_matrix *m, const struct activations *x,
                       uint32_t panel_begin, uint32_t panel_end, float *out, size_t out_stride)
{
    if (x->kind != ACT_Q8 || x->n_rows < MIN_ROWS) {
        matmul_kernels_vnni.matmul(m, x, panel_begin, panel_end, out, out_stride);
        return;
    }
    uint32_t n_tiles = x->n_rows / ROW_TILE, chunk = chunk_rows(m, x) / ROW_TILE;
    tiles_configure(quant_formats[m->format].parts);
    for (uint32_t tile = 0; tile < n_tiles; tile += chunk) {
        float *to = out + (size_t)tile * ROW_TILE * out_stride;
        for (uint32_t panel = panel_begin; panel < panel_end; panel++, to += PANEL)
            panel_functions[m->format](m, x->q8 + tile * (size_t)m->blocks, panel,
                                       n_tiles - tile < chunk ? n_tiles - tile : chunk, to,
                                       out_stride);
    }
    _tile_release();
    if (x->n_rows % ROW_TILE == 0)
        return;
    struct activations rest = activations_rows(x, n_tiles * ROW_TILE, x->n_rows);
    matmul_kernels_vnni.matmul(m, &rest, panel_begin, panel_end,
                               out + (size_t)n_tiles * ROW_TILE * out_stride, out_stride);
}

const struct matmul_kernels matmul_kernels_amx = {quantize_row_avx2, matmul_amx};
#endif
