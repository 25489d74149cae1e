#ifndef RADISH_SCHED_OP_TIMES_H
#define RADISH_SCHED_OP_TIMES_H

#include <stdint.h>

/* How long the cache's operations take. Each kind has a histogram whose buckets grow with the time
 * they stand for, so that recording allocates nothing and a percentile is off by 1/16 at most:
 *
 *   ns        0 1 2 ... 31 │ 32 34 ... 62 │ 64 68 ... 124 │ 128 ...
 *   buckets   one for each │ 16           │ 16            │ 16 for every power of two
 *
 * Owned by the scheduler's thread while it steps. A NULL recorder measures nothing, and then no
 * clock is read. */
enum op_kind {
    OP_MATCH,  /* a walk down the tree: to look, or to stay */
    OP_INSERT, /* of a chunk, or of an answer when it ends */
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
    uint64_t step_evict_ns;     /* spent on eviction in the step that is under way */
    uint64_t max_step_evict_ns; /* in any one step */
};

/* The time now, or 0 when nothing is measured; and how long it is since then. */
uint64_t op_times_start(const struct op_times *t);
uint64_t op_times_since(const struct op_times *t, uint64_t start_ns);
void op_times_add(struct op_times *t, enum op_kind kind, uint64_t took_ns);
void op_times_end_step(struct op_times *t);

/* The time that `share` (0..1) of the operations did not exceed; 0 when there were none. */
uint64_t op_histogram_percentile(const struct op_histogram *h, double share);

#endif
