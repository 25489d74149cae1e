/* Rows of activations in the form that kernels need, and products with 16-bit activations; see
 * matmul.h. Called by the threads of an engine, each with its own rows or panels. Careful: a 16-bit
 * row is two rows of the buffer and of every kernel's product, but one row everywhere else. */
#include <assert.h>

#include "engine/cpu/kernels/matmul_internal.h"

/* Holds the two halves of outputs until they are added: small enough for the nearest cache. A panel
 * with the most rows fills it; with fewer rows, several panels fit. */
enum { HALVES_FLOATS = 3072, MOST_ROWS = HALVES_FLOATS / (2 * PANEL) };

/* Rows of the buffer per row. */
static uint32_t rows_each(enum act_kind kind)
{
    return kind == ACT_Q16 ? 2 : 1;
}

size_t activations_bytes(enum act_kind kind, uint32_t n_rows, uint32_t cols)
{
    size_t tiles = ((size_t)n_rows * rows_each(kind) + ROW_TILE - 1) / ROW_TILE;
    return tiles * act_blocks(cols) * sizeof(struct act_block);
}

struct activations activations_rows(const struct activations *x, uint32_t begin, uint32_t end)
{
    uint32_t first = begin * rows_each(x->kind);
    assert(first % ROW_TILE == 0 && begin < end && end <= x->n_rows);
    struct activations rows = *x;
    rows.n_rows = end - begin;
    if (x->f32)
        rows.f32 += (size_t)begin * x->cols;
    if (x->q8)
        rows.q8 += first / ROW_TILE * (size_t)act_blocks(x->cols);
    return rows;
}

/* The difference between n values of a block and their quants. Computed in double, this is exact
 * except for the last rounding. If the block's scale is NaN or infinite, the difference is NaN. */
static void leave_over(const float *x, uint32_t n, const struct act_block *block, uint32_t at,
                       float *out)
{
    double scale = block->scale[at];
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)(x[i] - block->quants[at][i] * scale);
}

void activations_quantize(const struct matmul_kernels *k, enum act_kind kind, const float *x,
                          uint32_t cols, uint32_t row, struct act_block *q8)
{
    if (kind == ACT_Q8) {
        k->quantize_row(x, cols, row, q8);
        return;
    }
    uint32_t coarse = 2 * row, at = coarse % ROW_TILE; /* the fine row is in the same tile */
    k->quantize_row(x, cols, coarse, q8);
    struct act_block *block = q8 + coarse / ROW_TILE * (size_t)act_blocks(cols);
    for (uint32_t begin = 0; begin < cols; begin += ACT_BLOCK, block++) {
        uint32_t n = cols - begin < ACT_BLOCK ? cols - begin : ACT_BLOCK;
        float left[ACT_BLOCK];
        leave_over(x + begin, n, block, at, left);
        k->quantize_row(left, n, at + 1, block);
    }
}

/* halves: [n_rows][2][n] */
static void add_halves(const float *restrict halves, uint32_t n_rows, uint32_t n,
                       float *restrict out, size_t out_stride)
{
    for (uint32_t r = 0; r < n_rows; r++, halves += 2 * (size_t)n, out += out_stride)
        for (uint32_t i = 0; i < n; i++)
            out[i] = halves[i] + halves[n + i];
}

/* Rows that are multiplied at a time, in chunks of nearly equal size, because all panels are read
 * for each chunk. */
static uint32_t chunk_rows(uint32_t n_rows)
{
    uint32_t n_chunks = (n_rows + MOST_ROWS - 1) / MOST_ROWS;
    uint32_t n_tiles = (n_rows + ROW_TILE - 1) / ROW_TILE;
    return (n_tiles + n_chunks - 1) / n_chunks * ROW_TILE;
}

static void multiply_halves(const struct matmul_kernels *k, const struct packed_matrix *m,
                            const struct activations *x, uint32_t panel_begin, uint32_t panel_end,
                            float *out, size_t out_stride)
{
    _Alignas(64) float halves[HALVES_FLOATS];
    uint32_t chunk = chunk_rows(x->n_rows), first = panel_begin * PANEL;
    for (uint32_t row = 0; row < x->n_rows; row += chunk) {
        uint32_t n_rows = x->n_rows - row < chunk ? x->n_rows - row : chunk;
        uint32_t n_panels = HALVES_FLOATS / (2 * n_rows * PANEL);
        struct activations both = activations_rows(x, row, row + n_rows);
        both.kind = ACT_Q8;
        both.n_rows = 2 * n_rows;
        for (uint32_t p = panel_begin, end; p < panel_end; p = end) {
            end = panel_end - p < n_panels ? panel_end : p + n_panels;
            uint32_t n = (end < m->n_panels ? end * PANEL : m->rows) - p * PANEL;
            k->matmul(m, &both, p, end, halves, n);
            add_halves(halves, n_rows, n, out + row * out_stride + (p * PANEL - first), out_stride);
        }
    }
}

void matrix_multiply(const struct matmul_kernels *k, const struct packed_matrix *m,
                     const struct activations *x, uint32_t panel_begin, uint32_t panel_end,
                     float *out, size_t out_stride)
{
    if (x->kind == ACT_Q16)
        multiply_halves(k, m, x, panel_begin, panel_end, out, out_stride);
    else
        k->matmul(m, x, panel_begin, panel_end, out, out_stride);
}
