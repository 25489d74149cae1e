#ifndef RADISH_SCHED_OP_TIMES_H
#define RADISH_SCHED_OP_TIMES_H

#include <stdint.h>

/* How long the cache's operations take. Each kind has a histogram whose buckets widen as times
 * grow, so recording allocates nothing and a percentile is off by at most 1/16:
 *
 *   ns        0 1 2 ... 31 │ 32 34 ... 62 │ 64 68 ... 124 │ 128 ...
 *   buckets   one for each │ 16           │ 16            │ 16 for every power of two
 *
 * Owned by the scheduler's thread while it steps. With a NULL recorder nothing is measured and the
 * clock is not read. */
enum op_kind {
    OP_MATCH,  /* a walk down the tree, with or without locking what it finds */
    OP_INSERT, /* a chunk, or an answer when it ends */
    OP_EVICT,
    OP_KINDS,
};

enum { OP_SPLITS = 16, OP_BUCKETS = 2 * OP_SPLITS + (64 - 5) * OP_SPLITS };

struct op_histogram {
    uint64_t count, total_ns, max_ns;
    uint64_t buckets[OP_BUCKETS];
};

struct op_times {
    struct op_histogram kinds[OP_KINDS];
    uint64_t step_evict_ns;     /* spent on eviction in the current step */
    uint64_t max_step_evict_ns; /* in any one step */
};

/* The current time, or 0 if nothing is measured; and the time elapsed since `start_ns`. */
uint64_t op_times_start(const struct op_times *t);
uint64_t op_times_since(const struct op_times *t, uint64_t start_ns);
void op_times_add(struct op_times *t, enum op_kind kind, uint64_t took_ns);
void op_times_end_step(struct op_times *t);

/* The time that a fraction `share` (0..1) of the operations did not exceed; 0: no operations. */
uint64_t op_histogram_percentile(const struct op_histogram *h, double share);

#endif
