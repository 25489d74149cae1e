/* Divides a product among the threads; see work_split.h. A thread must finish its own parts (add,
 * gate) before the barrier, because no other thread knows which parts those were. */
#include "engine/cpu/work_split.h"

#include <stddef.h>

enum { PIECES_PER_THREAD = 4 };

struct work work_begin(uint32_t n_panels, uint32_t n_rows, uint32_t thread, uint32_t n_threads,
                       atomic_uint *taken)
{
    uint32_t n_units = (n_rows + ROW_UNIT - 1) / ROW_UNIT;
    bool is_shared = n_units > 1 && n_threads > 1;
    return (struct work){
        .n_rows = n_rows,
        .n_units = n_units,
        .n_pairs = (uint64_t)n_panels * n_units,
        .piece = thread,
        .n_pieces = is_shared ? n_threads * PIECES_PER_THREAD : n_threads,
        .taken = is_shared ? taken : NULL,
    };
}

static bool piece_take(struct work *w)
{
    uint32_t piece = w->taken ? atomic_fetch_add_explicit(w->taken, 1, memory_order_relaxed)
                              : w->piece;
    if (piece >= w->n_pieces)
        return false;
    w->at = w->n_pairs * piece / w->n_pieces;
    w->end = w->n_pairs * (piece + 1) / w->n_pieces;
    w->piece = w->n_pieces; /* without `taken`, a thread has only one */
    return true;
}

struct work work_begin_pairs(uint64_t n_pairs, uint32_t thread, uint32_t n_threads, uint32_t pieces,
                             atomic_uint *taken)
{
    return (struct work){.n_pairs = n_pairs,
                         .piece = thread,
                         .n_pieces = n_threads * pieces,
                         .taken = pieces > 1 ? taken : NULL};
}

bool work_next_pairs(struct work *w, uint64_t *begin, uint64_t *end)
{
    do {
        if (!piece_take(w))
            return false;
    } while (w->at == w->end);
    *begin = w->at;
    *end = w->end;
    return true;
}

bool work_next(struct work *w, struct work_part *part)
{
    while (w->at == w->end)
        if (!piece_take(w))
            return false;
    uint64_t left = w->end - w->at;
    uint32_t panel = (uint32_t)(w->at / w->n_units), unit = (uint32_t)(w->at % w->n_units);
    uint32_t n_panels = 1, n_units = w->n_units - unit;
    if (unit == 0 && left >= w->n_units)
        n_panels = (uint32_t)(left / w->n_units);
    else if (left < n_units)
        n_units = (uint32_t)left;
    w->at += (uint64_t)n_panels * n_units;
    uint32_t end = (unit + n_units) * ROW_UNIT;
    part->rows = (struct range){unit * ROW_UNIT, end < w->n_rows ? end : w->n_rows};
    part->panels = (struct range){panel, panel + n_panels};
    return true;
}
