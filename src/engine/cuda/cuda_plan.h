#ifndef RADISH_ENGINE_CUDA_CUDA_PLAN_H
#define RADISH_ENGINE_CUDA_CUDA_PLAN_H

#include "engine/cuda/cuda_params.h"
#include "engine/engine.h"

/* A batch as the device takes it: which queries attend together, over which blocks, and where
 * pages are. Pure; the arrays are the caller's, in memory that the device can copy.
 *
 *   batch rows      seq 0: positions 126 127 128 129     seq 1: 9000
 *   4 heads a KV head, so an item has up to 4 rows:
 *   items           [rows 0..3, blocks 0..1]             [row 4, blocks 0..70]
 *   split                                                [row 4, block 0] [1] ... [70]
 *   merges                                               row 4: partials 0..70
 *
 * Items are split where whole ones are too few to keep the device busy. */

/* A kind of attention layer. */
struct cuda_attention_shape {
    uint32_t window, group;
    uint32_t heads_per_unit; /* heads of a KV head that attend together */
    uint32_t n_units;        /* that all heads of a row make */
};

struct cuda_plan_limits {
    uint32_t n_shapes, n_groups;
    struct cuda_attention_shape shapes[CUDA_MAX_SHAPES];
    uint32_t max_items;    /* of a shape */
    uint32_t max_partials; /* of a shape */
    uint32_t wanted_units; /* blocks of threads that keep the device busy */
    uint32_t max_runs;
};

struct cuda_plan {
    struct cuda_step *step;
    struct cuda_row *rows;
    uint32_t *outputs; /* rows that want logits or the best */
    struct cuda_item *items[CUDA_MAX_SHAPES];
    struct cuda_merge *merges[CUDA_MAX_SHAPES]; /* [rows] */
    struct cuda_run *runs;
};

/* Called when `runs` is full: takes plan->step->n_runs of them and empties it. */
typedef int (*cuda_flush_runs)(void *context, struct error *err);

int cuda_plan_make(struct cuda_plan *plan, const struct cuda_plan_limits *limits,
                   const struct batch *batch, cuda_flush_runs flush, void *context,
                   struct error *err);

/* Entries of the page table that the limits may need. */
uint64_t cuda_plan_table_size(const struct engine_limits *limits, const struct kv_group *groups,
                              uint32_t n_groups);

#endif
