/* The vector kernels, written once: a .c file of one instruction set defines the operations on its
 * registers (see matmul_avx2.c for the list), then includes this file, which is why it has no
 * include guard and makes static functions only.
 *
 * A tile is one panel times up to a dozen rows. Its outputs stay in registers while the blocks of
 * the inner dimension go by; a step of weights (4 columns of each output) is loaded and decoded
 * once and meets the 4 activations of every row, broadcast from memory. Everything that differs
 * between formats is a compile-time constant, and what a row computes is the same for any number
 * of rows beside it. */
#include "engine/cpu/matmul_internal.h"

#include <string.h>

/* With a check at every access, unrolled tiles would take a compiler half an hour. */
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
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    VECTORS = PANEL / LANES,  /* registers that hold a panel's outputs */
    CHUNK_BYTES = 384 * 1024, /* of activations: what should stay in the second-level cache */
    /* A tile of few rows reads as fast as memory gives, which the hardware foresees. One of many
     * rows reads in bursts, which it does not. */
    PREFETCH_ROWS = 6,
    PREFETCH_BYTES = 8192,
};

/* Where a tile reads and writes. */
struct tile {
    const uint8_t *panel;
    const struct act_block *x; /* [blocks], of the tile's rows */
    const float *f32;          /* [rows][cols], for float weights */
    uint32_t at;               /* first row in x */
    float *out;                /* [rows][out_stride] */
    size_t out_stride;
    uint32_t outputs; /* that exist in this panel */
};

ALWAYS_INLINE void tile_store(const struct tile *tile, uint32_t row, int vector, vf value)
{
    float *out = tile->out + row * tile->out_stride + vector * LANES;
    if (tile->outputs == PANEL)
        vf_store(out, value);
    else if (tile->outputs > (uint32_t)vector * LANES)
        vf_store_some(out, value, tile->outputs - vector * LANES);
}

/* Scales and mins of the 16 outputs (or the 8 of one vector) in one block. */
ALWAYS_INLINE void load_head(struct quant_format f, const uint8_t *panel, uint32_t block,
                             int vector, vf *scale, vf *min)
{
    const uint8_t *head = panel + scales_at(f, block) + vector * LANES * 2;
    const uint8_t *part = panel + part_scales_at(f, block) + vector * LANES;
    scale[0] = scale[1] = vf_load_f16(head);
    if (f.mins)
        min[0] = min[1] = vf_load_f16(head + PANEL * 2);
    for (int i = 0; f.super && i < f.parts; i++) {
        scale[i] = vf_mul(scale[i], vf_load_i8(part + i * PANEL));
        if (f.mins)
            min[i] = vf_mul(min[i], vf_load_i8(part + (f.parts + i) * PANEL));
    }
}

/* idot[r] = the integer dot product of columns [4 * step_begin, 4 * step_end) for each row. */
ALWAYS_INLINE void dot_rows(int bits, int n, const uint8_t *quants, int step_begin, int step_end,
                            int32_t zero, const int8_t (*x)[ACT_BLOCK], vi *idot)
{
    UNROLL
    for (int r = 0; r < n; r++)
        idot[r] = vi_zero();
    UNROLL
    for (int step = step_begin; step < step_end; step++) {
        struct steps w = bits == 8 ? steps_load8(quants + step * STEP_BYTES, zero)
                                   : steps_load4(quants + step % 4 * STEP_BYTES, step / 4);
        UNROLL
        for (int r = 0; r < n; r++)
            idot[r] = bits == 8 ? dot8(idot[r], w, x[r] + step * 4)
                                : dot4(idot[r], w, x[r] + step * 4);
    }
    UNROLL
    for (int r = 0; r < n; r++)
        idot[r] = bits == 8 ? idot[r] : dot4_finish(idot[r]);
}

/* One part of a block: t[r] += idot * scale; what is in t before is the mins' share. Quants that
 * went into the dot as they are stored are corrected by the sum of the activations, exactly. */
ALWAYS_INLINE void add_part(struct quant_format f, int n, bool first, const vi *idot,
                            const float *sums, vf minus_zero, vf scale, vf *t)
{
    UNROLL
    for (int r = 0; r < n; r++) {
        vf dot = vf_from_vi(idot[r]);
        if (!f.mins && !(f.bits == 8 && DOT8_SIGNED))
            dot = vf_fma(minus_zero, vf_set1(sums[r]), dot);
        t[r] = first && !f.mins ? vf_mul(dot, scale) : vf_fma(dot, scale, t[r]);
    }
}

ALWAYS_INLINE void tile_quantized(struct quant_format f, int n, const struct packed_matrix *m,
                                  const struct tile *tile, int vector)
{
    const struct act_block *x = tile->x;
    uint32_t at = tile->at, blocks = m->blocks;
    vf acc[ROW_TILE], minus_zero = vf_set1((float)-m->zero);
    UNROLL
    for (int r = 0; r < n; r++)
        acc[r] = vf_zero();
    for (uint32_t b = 0; b < blocks; b++, x++) {
        const uint8_t *quants = tile->panel + quants_at(f, b) + vector * LANES * 4;
        vf scale[2], min[2], t[ROW_TILE];
        vi idot[ROW_TILE];
        const float *sum0 = (f.parts == 1 ? x->sum : x->half_sum[0]) + at;
        const float *sum1 = x->half_sum[1] + at;
        if (n >= PREFETCH_ROWS)
            UNROLL
        for (int line = 0; line < f.bits; line++)
            __builtin_prefetch(quants + PREFETCH_BYTES + line * 64);
        load_head(f, tile->panel, b, vector, scale, min);
        dot_rows(f.bits, n, quants, 0, 8 / f.parts, m->zero, x->quants + at, idot);
        UNROLL
        for (int r = 0; r < n; r++) {
            if (f.mins)
                t[r] = vf_mul(min[0], vf_set1(sum0[r]));
            if (f.mins && f.parts == 2)
                t[r] = vf_fma(min[1], vf_set1(sum1[r]), t[r]);
        }
        add_part(f, n, true, idot, sum0, minus_zero, scale[0], t);
        if (f.parts == 2) {
            dot_rows(f.bits, n, quants, 4, 8, m->zero, x->quants + at, idot);
            add_part(f, n, false, idot, sum1, minus_zero, scale[1], t);
        }
        UNROLL
        for (int r = 0; r < n; r++)
            acc[r] = vf_fma(t[r], vf_set1(x->scale[at + r]), acc[r]);
    }
    UNROLL
    for (int r = 0; r < n; r++)
        tile_store(tile, r, vector, acc[r]);
}

ALWAYS_INLINE void tile_floats(enum packed_format format, int n, const struct packed_matrix *m,
                               const struct tile *tile)
{
    const float *x = tile->f32;
    uint32_t cols = m->cols;
    size_t weight_bytes = format == PACKED_f32 ? 4 : 2;
    vf acc[ROW_TILE][VECTORS];
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            acc[r][v] = vf_zero();
    for (uint32_t c = 0; c < cols; c++) {
        const uint8_t *from = tile->panel + c * PANEL * weight_bytes;
        vf w[VECTORS];
        for (int v = 0; v < VECTORS; v++, from += LANES * weight_bytes)
            w[v] = format == PACKED_f32   ? vf_load(from)
                   : format == PACKED_f16 ? vf_load_f16(from)
                                          : vf_load_bf16(from);
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = vf_fma(w[v], vf_set1(x[(size_t)r * cols + c]), acc[r][v]);
    }
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            tile_store(tile, r, v, acc[r][v]);
}

/* The largest number of rows for which accumulators, and the parts of a block, fit in registers. */
#define QUANT_ROWS(parts) ((parts) == 2 ? ROWS_TWO_PARTS : ROWS_ONE_PART)

#define QUANT_CASE(n)                                                                              \
    case n:                                                                                        \
        for (int vector = 0; vector < VECTORS && n <= QUANT_ROWS(f.parts); vector++)               \
            tile_quantized(f, n, m, tile, vector);                                                 \
        break;
#define FLOAT_CASE(n)                                                                              \
    case n:                                                                                        \
        if (n <= ROWS_FLOATS)                                                                      \
            tile_floats(format, n, m, tile);                                                       \
        break;
#define ROW_CASES(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(6) CASE(8) CASE(12)

/* The largest tile that there is for at most n rows. */
static uint32_t tile_rows(uint32_t n)
{
    return n >= 12 ? 12 : n >= 8 ? 8 : n >= 6 ? 6 : n >= 4 ? 4 : n;
}

#define QUANT_TILE(name, bits_, parts_, mins_, super_)                                             \
    static void tile_##name(const struct packed_matrix *m, const struct tile *tile, uint32_t n)    \
    {                                                                                              \
        const struct quant_format f = {bits_, parts_, mins_, super_};                              \
        switch (n) {                                                                               \
            ROW_CASES(QUANT_CASE)                                                                  \
        }                                                                                          \
    }
#define FLOAT_TILE(name)                                                                           \
    static void tile_##name(const struct packed_matrix *m, const struct tile *tile, uint32_t n)    \
    {                                                                                              \
        const enum packed_format format = PACKED_##name;                                           \
        switch (n) {                                                                               \
            ROW_CASES(FLOAT_CASE)                                                                  \
        }                                                                                          \
    }

QUANT_FORMATS(QUANT_TILE)
FLOAT_TILE(f32)
FLOAT_TILE(f16)
FLOAT_TILE(bf16)

#define QUANT_ENTRY(name, bits, parts, mins, super) {tile_##name, QUANT_ROWS(parts)},
static const struct tile_function {
    void (*run)(const struct packed_matrix *m, const struct tile *tile, uint32_t n);
    uint32_t max_rows;
} tile_functions[N_PACKED_FORMATS] = {QUANT_FORMATS(QUANT_ENTRY){tile_f32, ROWS_FLOATS},
                                      {tile_f16, ROWS_FLOATS},
                                      {tile_bf16, ROWS_FLOATS}};

/* One panel times rows [begin, end). */
static void panel_rows(const struct packed_matrix *m, const struct activations *x, uint32_t panel,
                       uint32_t begin, uint32_t end, float *out, size_t out_stride)
{
    const struct tile_function *function = &tile_functions[m->format];
    struct tile tile = {.panel = matrix_panel(m, panel),
                        .out_stride = out_stride,
                        .outputs = panel_outputs(m, panel)};
    for (uint32_t row = begin, n; row < end; row += n) {
        tile.at = row % ROW_TILE;
        n = end - row < ROW_TILE - tile.at ? end - row : ROW_TILE - tile.at;
        n = tile_rows(n < function->max_rows ? n : function->max_rows);
        if (x->kind == ACT_Q8)
            tile.x = x->q8 + row / ROW_TILE * (size_t)m->blocks;
        else
            tile.f32 = x->f32 + row * (size_t)m->cols;
        tile.out = out + row * out_stride + (size_t)panel * PANEL;
        function->run(m, &tile, n);
    }
}

/* How many rows' activations stay in the cache. */
static uint32_t chunk_rows(const struct packed_matrix *m, const struct activations *x)
{
    size_t tile_bytes = x->kind == ACT_Q8 ? m->blocks * sizeof(struct act_block)
                                          : m->cols * sizeof(float) * ROW_TILE;
    size_t n_tiles = CHUNK_BYTES / tile_bytes;
    return (uint32_t)(n_tiles > 1 ? n_tiles : 1) * ROW_TILE;
}

/* Rows go in chunks that stay in the cache while the panels stream past them, each panel from
 * memory once a chunk and from the nearest cache for the tiles in it. */
static void matmul_tiles(const struct packed_matrix *m, const struct activations *x,
                         uint32_t panel_begin, uint32_t panel_end, float *out, size_t out_stride)
{
    uint32_t chunk = chunk_rows(m, x);
    for (uint32_t row = 0; row < x->n_rows; row += chunk) {
        uint32_t end = x->n_rows - row < chunk ? x->n_rows : row + chunk;
        for (uint32_t panel = panel_begin; panel < panel_end; panel++)
            panel_rows(m, x, panel, row, end, out, out_stride);
    }
}
