/* The vector kernels, written once: a .c file of one instruction set defines the operations on its
 * registers (see matmul_avx2.c for the list), then includes this file. So it has no include guard,
 * and only static functions.
 *
 * A tile is one panel times up to a dozen rows. Its outputs stay in registers while the blocks of
 * the inner dimension are processed; a step of weights (4 columns of each output) is loaded and
 * decoded once, then multiplied with the 4 activations of every row, broadcast from memory.
 * Everything that differs between formats is a compile-time constant, and a row's result does not
 * depend on the other rows. */
#include "engine/cpu/kernels/matmul_decode.h"

#include <string.h>

enum {
    VECTORS = PANEL / LANES, /* registers that hold a panel's outputs */
    /* A tile of few rows reads at memory speed, which the hardware prefetcher handles. A tile of
     * many rows reads in bursts, which it does not. */
    PREFETCH_ROWS = 6,
    PREFETCH_ROWS_FLOATS = 4,
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
    uint32_t outputs; /* existing in this panel */
    float scale;      /* of all outputs */
};

ALWAYS_INLINE void tile_store(const struct tile *tile, uint32_t row, int vector, vf value)
{
    float *out = tile->out + row * tile->out_stride + vector * LANES;
    value = vf_mul(value, vf_set1(tile->scale));
    if (tile->outputs == PANEL)
        vf_store(out, value);
    else if (tile->outputs > (uint32_t)vector * LANES)
        vf_store_some(out, value, tile->outputs - vector * LANES);
}

#if DOT_BY_FOURS
/* idot[r][v] = the integer dot product of columns [4 * begin, 4 * end) for each row and vector. */
ALWAYS_INLINE void dot_rows(struct quant_format f, const uint8_t *table, int n, int width,
                            const uint8_t *quants, int begin, int end, const int8_t (*x)[ACT_BLOCK],
                            vi (*idot)[VECTORS])
{
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < width; v++)
            idot[r][v] = vi_zero();
    UNROLL
    for (int step = begin; step < end; step++)
        for (int v = 0; v < width; v++) {
            vi w = load_step(f, table, quants + v * LANES * 4, step);
            UNROLL
            for (int r = 0; r < n; r++)
                idot[r][v] = vi_dot4(idot[r][v], w, broadcast4(x[r] + step * 4));
        }
}
#else
/* The low and the high 4 bits of 8-bit quants. */
ALWAYS_INLINE void load_halves(struct quant_format f, const uint8_t *table, const uint8_t *quants,
                               int step, vi *halves)
{
    vi codes = load_codes(f, quants, step), low_bits = vi_set1(15);
    vi whole = f.values == VALUES_LINEAR ? codes : vi_table(table);
    halves[0] = vi_and(whole, low_bits);
    halves[1] = vi_and(vi_shift_right(whole, 4), low_bits);
    for (int i = 0; i < 2 && f.values != VALUES_LINEAR; i++)
        halves[i] = vi_lookup(halves[i], codes);
}

/* Number of steps whose pairs of products fit into a 16-bit sum: 2 * 127 * (2^bits - 1) each. 8-bit
 * quants are multiplied as two 4-bit halves. */
ALWAYS_INLINE int pair_steps(int bits)
{
    return bits == 5 ? 4 : bits == 6 ? 2 : 8;
}

/* idot[r][v] = the integer dot product of columns [4 * begin, 4 * end) for each row and vector. */
ALWAYS_INLINE void dot_rows(struct quant_format f, const uint8_t *table, int n, int width,
                            const uint8_t *quants, int begin, int end, const int8_t (*x)[ACT_BLOCK],
                            vi (*idot)[VECTORS])
{
    const int bits = value_bits(f), halves = bits == 8 ? 2 : 1;
    const int period = pair_steps(bits) < end - begin ? pair_steps(bits) : end - begin;
    vi pairs[2][ROW_TILE][VECTORS];
    UNROLL
    for (int step = begin; step < end; step++) {
        int nth = (step - begin) % period;
        vi w[VECTORS][2];
        for (int v = 0; v < width; v++) {
            if (halves == 2)
                load_halves(f, table, quants + v * LANES * 4, step, w[v]);
            else
                w[v][0] = load_step(f, table, quants + v * LANES * 4, step);
        }
        UNROLL
        for (int r = 0; r < n; r++) {
            vi four = broadcast4(x[r] + step * 4);
            for (int v = 0; v < width; v++)
                for (int h = 0; h < halves; h++) {
                    vi *sum = &pairs[h][r][v], pair = vi_pairs(w[v][h], four);
                    *sum = nth == 0 ? pair : vi_add16(*sum, pair);
                    KEEP(*sum);
                }
        }
        if (nth < period - 1)
            continue;
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < width; v++) {
                vi sum = vi_widen(pairs[0][r][v], 1);
                if (halves == 2)
                    sum = vi_add32(sum, vi_widen(pairs[1][r][v], 16));
                idot[r][v] = step - begin < period ? sum : vi_add32(idot[r][v], sum);
            }
    }
}
#endif

/* One part of a block: t += idot * scale; t already holds the mins' share. The dot product used
 * quants as stored, without subtracting zero; the sum of the activations corrects that exactly. */
ALWAYS_INLINE void add_part(struct quant_format f, int n, int width, bool first,
                            const vi (*idot)[VECTORS], const float *sums, const vf *scale,
                            vf (*t)[VECTORS])
{
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < width; v++) {
            vf dot = vf_from_vi(idot[r][v]);
            if (f.zero)
                dot = vf_fma(vf_set1((float)-f.zero), vf_set1(sums[r]), dot);
            t[r][v] = first && !f.mins ? vf_mul(dot, scale[v]) : vf_fma(dot, scale[v], t[r][v]);
        }
}

/* `width` vectors of the panel, from `vector` on, times n rows. */
ALWAYS_INLINE void tile_quantized(struct quant_format f, int n, int width,
                                  const struct packed_matrix *m, const struct tile *tile,
                                  int vector)
{
    const struct act_block *x = tile->x;
    const uint8_t *table = quant_table(f, m);
    uint32_t at = tile->at, blocks = m->blocks;
    vf acc[ROW_TILE][VECTORS];
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < width; v++)
            acc[r][v] = vf_zero();
    for (uint32_t b = 0; b < blocks; b++, x++) {
        const uint8_t *quants = tile->panel + quants_at(f, m, b) + vector * LANES * 4;
        vf scale[2][VECTORS], min[2][VECTORS], t[ROW_TILE][VECTORS];
        vi idot[ROW_TILE][VECTORS];
        const float *sum0 = (f.parts == 1 ? x->sum : x->half_sum[0]) + at;
        const float *sum1 = x->half_sum[1] + at;
        if (n >= PREFETCH_ROWS)
            UNROLL
        for (int line = 0; line < f.bits; line++)
            __builtin_prefetch(quants + PREFETCH_BYTES + line * 64);
        dot_rows(f, table, n, width, quants, 0, 8 / f.parts, x->quants + at, idot);
        for (int v = 0; v < width; v++) {
            vf scales[2], mins[2];
            load_head(f, m, tile->panel, b, vector + v, scales, mins);
            for (int i = 0; i < 2; i++) {
                scale[i][v] = scales[i];
                if (f.mins)
                    min[i][v] = mins[i];
            }
        }
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < width; v++) {
                if (f.mins)
                    t[r][v] = vf_mul(min[0][v], vf_set1(sum0[r]));
                if (f.mins && f.parts == 2)
                    t[r][v] = vf_fma(min[1][v], vf_set1(sum1[r]), t[r][v]);
            }
        add_part(f, n, width, true, idot, sum0, scale[0], t);
        if (f.parts == 2) {
            dot_rows(f, table, n, width, quants, 4, 8, x->quants + at, idot);
            add_part(f, n, width, false, idot, sum1, scale[1], t);
        }
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < width; v++)
                acc[r][v] = vf_fma(t[r][v], vf_set1(x->scale[at + r]), acc[r][v]);
    }
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < width; v++)
            tile_store(tile, r, vector + v, acc[r][v]);
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
        const uint8_t *from = tile->panel + (size_t)c * PANEL * weight_bytes;
        vf w[VECTORS];
        if (n >= PREFETCH_ROWS_FLOATS)
            __builtin_prefetch(from + PREFETCH_BYTES);
        for (int v = 0; v < VECTORS; v++, from += LANES * weight_bytes)
            w[v] = format == PACKED_f32   ? vf_load(from)
                   : format == PACKED_f16 ? vf_load_f16(from)
                                          : vf_load_bf16(from);
        UNROLL
        for (int r = 0; r < n; r++) {
            vf value = vf_set1(x[(size_t)r * cols + c]);
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = vf_fma(w[v], value, acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            tile_store(tile, r, v, acc[r][v]);
}

/* 8-bit float weights: each block of columns starts a fresh sum. */
ALWAYS_INLINE void tile_f8(enum packed_format format, int n, const struct packed_matrix *m,
                           const struct tile *tile)
{
    const float *x = tile->f32;
    const uint8_t *from = tile->panel;
    uint32_t cols = m->cols;
    vf acc[ROW_TILE][VECTORS];
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            acc[r][v] = vf_zero();
    for (uint32_t begin = 0; begin < cols; begin += ACT_BLOCK, x += ACT_BLOCK) {
        uint32_t in_block = cols - begin < ACT_BLOCK ? cols - begin : ACT_BLOCK;
        const uint8_t *head = from;
        vf t[ROW_TILE][VECTORS];
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < VECTORS; v++)
                t[r][v] = vf_zero();
        from += F8_HEAD_BYTES;
        for (uint32_t c = 0; c < in_block; c++, from += PANEL) {
            vf w[VECTORS];
            for (int v = 0; v < VECTORS; v++)
                w[v] = format == PACKED_f8_e4m3 ? vf_load_e4m3(from + v * LANES)
                                                : vf_load_e5m2(from + v * LANES);
            UNROLL
            for (int r = 0; r < n; r++) {
                vf value = vf_set1(x[(size_t)r * cols + c]);
                for (int v = 0; v < VECTORS; v++)
                    t[r][v] = vf_fma(w[v], value, t[r][v]);
            }
        }
        UNROLL
        for (int r = 0; r < n; r++)
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = vf_fma(t[r][v], vf_load(head + v * LANES * 4), acc[r][v]);
    }
    UNROLL
    for (int r = 0; r < n; r++)
        for (int v = 0; v < VECTORS; v++)
            tile_store(tile, r, v, acc[r][v]);
}

/* The largest number of rows for which accumulators, and the parts of a block, fit in registers. */
ALWAYS_INLINE int quant_rows(struct quant_format f)
{
    return f.parts == 2 ? ROWS_TWO_PARTS : value_bits(f) == 8 ? ROWS_8_BITS : ROWS_ONE_PART;
}

/* Number of vectors of a panel that a tile of n rows processes at once: both use the same
 * activations, but 8-bit quants need two sums each. */
ALWAYS_INLINE int quant_width(struct quant_format f, int n)
{
    return value_bits(f) == 8 && n > ROWS_8_BITS_WIDE ? 1 : VECTORS;
}

#define QUANT_CASE(label, n)                                                                       \
    label:                                                                                         \
    for (int v = 0; v < VECTORS && (n) <= quant_rows(f); v += quant_width(f, n))                   \
        tile_quantized(f, n, quant_width(f, n), m, tile, v);                                       \
    break;
#define FLOAT_CASE(label, n)                                                                       \
    label:                                                                                         \
    if ((n) <= ROWS_FLOATS && is_f8(format))                                                       \
        tile_f8(format, n, m, tile);                                                               \
    else if ((n) <= ROWS_FLOATS)                                                                   \
        tile_floats(format, n, m, tile);                                                           \
    break;
/* One copy for each number of rows; with sanitizers a single copy, to keep compile times down. */
#if IS_SANITIZED
#define ROW_CASES(X) X(default, (int)n)
#else
#define ROW_CASES(X)                                                                               \
    X(case 1, 1)                                                                                   \
    X(case 2, 2) X(case 3, 3) X(case 4, 4) X(case 6, 6) X(case 8, 8) X(case 12, 12)
#endif

/* The largest available tile of at most n rows. */
static uint32_t tile_rows(uint32_t n)
{
    return n >= 12 ? 12 : n >= 8 ? 8 : n >= 6 ? 6 : n >= 4 ? 4 : n;
}

#define QUANT_TILE(name, ...)                                                                      \
    static void tile_##name(const struct packed_matrix *m, const struct tile *tile, uint32_t n)    \
    {                                                                                              \
        const struct quant_format f = {__VA_ARGS__};                                               \
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
FLOAT_TILE(f8_e4m3)
FLOAT_TILE(f8_e5m2)

#define QUANT_ENTRY(name, ...) tile_##name,
static void (*const tile_functions[N_PACKED_FORMATS])(const struct packed_matrix *m,
                                                      const struct tile *tile, uint32_t n) = {
    QUANT_FORMATS(QUANT_ENTRY) tile_f32, tile_f16, tile_bf16, tile_f8_e4m3, tile_f8_e5m2};

/* One panel times rows [begin, end); the panel's outputs of row 0 go to `out`. */
static void panel_rows(const struct packed_matrix *m, const struct activations *x, uint32_t panel,
                       uint32_t begin, uint32_t end, float *out, size_t out_stride)
{
    uint32_t max_rows = ROWS_FLOATS;
    if (m->format < N_QUANT_FORMATS)
        max_rows = (uint32_t)quant_rows(quant_formats[m->format]);
    struct tile tile = {.panel = matrix_panel(m, panel),
                        .out_stride = out_stride,
                        .outputs = panel_outputs(m, panel),
                        .scale = m->scale};
    for (uint32_t row = begin, n; row < end; row += n) {
        tile.at = row % ROW_TILE;
        n = end - row < ROW_TILE - tile.at ? end - row : ROW_TILE - tile.at;
        n = tile_rows(n < max_rows ? n : max_rows);
        if (x->kind == ACT_Q8)
            tile.x = x->q8 + row / ROW_TILE * (size_t)m->blocks;
        else
            tile.f32 = x->f32 + row * (size_t)m->cols;
        tile.out = out + row * out_stride;
        tile_functions[m->format](m, &tile, n);
    }
}

/* Rows are processed in chunks that stay in the cache while the panels stream past them: each panel
 * is read from memory once per chunk, then from the nearest cache for the chunk's tiles. */
static void matmul_tiles(const struct packed_matrix *m, const struct activations *x,
                         uint32_t panel_begin, uint32_t panel_end, float *out, size_t out_stride)
{
    uint32_t chunk = chunk_rows(m, x);
    for (uint32_t row = 0; row < x->n_rows; row += chunk) {
        uint32_t end = x->n_rows - row < chunk ? x->n_rows : row + chunk;
        for (uint32_t panel = panel_begin; panel < panel_end; panel++)
            panel_rows(m, x, panel, row, end, out + (size_t)(panel - panel_begin) * PANEL,
                       out_stride);
    }
}
