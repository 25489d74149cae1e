#ifndef RADISH_ENGINE_CPU_WORK_SPLIT_H
#define RADISH_ENGINE_CPU_WORK_SPLIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How threads share the outputs of a product. Rows come in units of ROW_UNIT, outputs in panels;
 * the (panel, unit) pairs in that order are cut into equal pieces, so that a piece is mostly whole
 * panels, whose weights it reads once for all rows:
 *
 *   panel     │ 0         │ 1         │ 2         │ 3         │
 *   unit      │ 0  1  2   │ 0  1  2   │ 0  1  2   │ 0  1  2   │
 *   pieces    [ piece 0 ....... │ piece 1 ...... │ piece 2 .. ]
 *
 * Here piece 1 has 3 parts: units 1 and 2 of panel 1, panel 2, and unit 0 of panel 3. A batch of
 * one unit has one piece per thread. A larger one has several, and whichever thread is free takes
 * the next, so a thread that is slow or has lost its core does less. Every split gives the same
 * bits. */
enum { ROW_UNIT = 24 }; /* rows the fastest kernels compute together, a multiple of 12 */

struct range {
    uint32_t begin, end;
};

struct work_part {
    struct range rows, panels;
};

/* One thread's iteration over its pieces. */
struct work {
    uint32_t n_rows, n_units;
    uint64_t n_pairs;
    uint32_t piece, n_pieces;
    uint64_t at, end;   /* pairs left of the current piece */
    atomic_uint *taken; /* number of pieces taken; NULL: each thread has its own piece */
};

/* `taken` must be 0 before the first thread begins, and unused otherwise until all have finished.
 */
struct work work_begin(uint32_t n_panels, uint32_t n_rows, uint32_t thread, uint32_t n_threads,
                       atomic_uint *taken);
/* The next part for this thread; false: none left. */
bool work_next(struct work *w, struct work_part *part);

/* The same for pairs without rows: `pieces` for each thread; with 1, each thread has its own. */
struct work work_begin_pairs(uint64_t n_pairs, uint32_t thread, uint32_t n_threads, uint32_t pieces,
                             atomic_uint *taken);
/* The next pairs for this thread: a whole piece. */
bool work_next_pairs(struct work *w, uint64_t *begin, uint64_t *end);

#endif
