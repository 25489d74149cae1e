#ifndef RADISH_ENGINE_CPU_KERNELS_MATMUL_H
#define RADISH_ENGINE_CPU_KERNELS_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

/* Weight matrices in the layout that the kernels stream, and the product with rows of activations.
 *
 * A packed matrix is panels of 16 outputs. Inside a panel the inner dimension runs in blocks; a
 * lane of a vector register is one output, so that an output is summed in one fixed order: block
 * after block, integer products exact inside a block, then one fused multiply-add per block. No sum
 * crosses lanes, so neither the number of rows, nor the tile, nor the split among threads changes a
 * bit, and the scalar, AVX2 and AVX-512 kernels give identical bits.
 *
 *   panel p (outputs 16p .. 16p+15)  [16 scales │ 16 mins │ quants of block 0][block 1] ...
 *
 * Quantised weights are multiplied with activations that are quantised per row in blocks of 32
 * (int8, a float scale, sums for the offsets); F32, F16 and BF16 weights with float activations.
 *
 * A 16-bit activation is two 8-bit ones: the second holds the remainder of the first, with its own
 * scale. They are stored as two separate rows, so kernels need not know:
 *
 *   row r as ACT_Q16    row 2r of ACT_Q8: x, coarsely    row 2r + 1: x less that
 *   its product         that of row 2r, plus that of row 2r + 1 */

enum {
    PANEL = 16,
    ACT_BLOCK = 32,
    ROW_TILE = 12, /* rows computed together; a few less cost nearly as much */
};

/* The form of activations. A packed matrix takes floats or ACT_Q8; ACT_Q16 can replace ACT_Q8. */
enum act_kind { ACT_F32, ACT_Q8, ACT_Q16 };

struct packed_matrix; /* see matmul_internal.h for the formats */
struct act_block;     /* one block of 32 columns of a few rows, see matmul_internal.h */

/* n_rows rows of `cols` activations, in the form that a kind of matrix takes. Made once and used by
 * every matrix with the same input (q, k and v; gate and up). */
struct activations {
    enum act_kind kind;
    uint32_t n_rows, cols;
    const float *f32;           /* ACT_F32: [n_rows][cols] */
    const struct act_block *q8; /* else: activations_bytes, filled by activations_quantize */
};

/* Size of the buffer for a kind that is not ACT_F32. It must be aligned to 64 bytes and need not be
 * cleared. It grows with rows and columns, so a buffer for the largest batch and width serves every
 * smaller one. */
size_t activations_bytes(enum act_kind kind, uint32_t n_rows, uint32_t cols);

/* Rows [begin, end) of x. `begin` is a multiple of ROW_UNIT (work_split.h), because rows are stored
 * in tiles. */
struct activations activations_rows(const struct activations *x, uint32_t begin, uint32_t end);

/* The functions of one kernel path. They handle floats and ACT_Q8 only; engines call the two
 * functions below. */
struct matmul_kernels {
    /* Quantises the `cols` floats of one row into its place in the buffer `q8`. Threads may fill
     * different rows at once. Missing columns of a partial last block count as zeros. */
    void (*quantize_row)(const float *x, uint32_t cols, uint32_t row, struct act_block *q8);
    /* out[r * out_stride + o - PANEL * panel_begin] = sum over c of x[r][c] * m[o][c], for all rows
     * of x and the outputs o of panels [panel_begin, panel_end). Threads split panels; every split
     * gives the same bits. */
    void (*matmul)(const struct packed_matrix *m, const struct activations *x, uint32_t panel_begin,
                   uint32_t panel_end, float *out, size_t out_stride);
};

extern const struct matmul_kernels matmul_kernels_ref, matmul_kernels_avx2, matmul_kernels_avx512,
    matmul_kernels_vnni, matmul_kernels_amx;

/* quantize_row and matmul for any kind. */
void activations_quantize(const struct matmul_kernels *k, enum act_kind kind, const float *x,
                          uint32_t cols, uint32_t row, struct act_block *q8);
void matrix_multiply(const struct matmul_kernels *k, const struct packed_matrix *m,
                     const struct activations *x, uint32_t panel_begin, uint32_t panel_end,
                     float *out, size_t out_stride);

/* Packs `w`: matrix_new, which makes panels of zeros, then matrix_fill for all of them. NULL, with
 * `err` set: out of memory. All of these may be called from several threads. */
struct packed_matrix *matrix_pack(const struct weight *w, struct error *err);
struct packed_matrix *matrix_new(const struct weight *w, struct error *err);
/* Packs the panels [panel_begin, panel_end) of `w` into `panels`, which must be zeroed. */
int matrix_fill(const struct packed_matrix *m, const struct weight *w, uint32_t panel_begin,
                uint32_t panel_end, uint8_t *panels, struct error *err);
void matrix_free(struct packed_matrix *m);
enum act_kind matrix_act_kind(const struct packed_matrix *m);
uint32_t matrix_rows(const struct packed_matrix *m);
uint32_t matrix_panels(const struct packed_matrix *m); /* rows / PANEL, rounded up */
size_t matrix_bytes(const struct packed_matrix *m);

#endif
