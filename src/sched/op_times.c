/* A recorder of times; see op_times.h. A percentile is the upper end of its bucket, so it is never
 * less than what was measured, and never more than the maximum. */
#include "sched/op_times.h"

#include <assert.h>
#include <math.h>

#include "base/clock.h"

static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 2 * OP_SPLITS)
        return (uint32_t)ns;
    uint32_t shift = 59 - (uint32_t)__builtin_clzll(ns); /* leaves the five highest bits */
    return 2 * OP_SPLITS + (shift - 1) * OP_SPLITS + (uint32_t)(ns >> shift) - OP_SPLITS;
}

/* The largest time that falls into the bucket. */
static uint64_t bucket_end_ns(uint32_t bucket)
{
    if (bucket < 2 * OP_SPLITS)
        return bucket;
    uint32_t shift = (bucket - 2 * OP_SPLITS) / OP_SPLITS + 1;
    uint64_t digits = bucket % OP_SPLITS + OP_SPLITS;
    return (digits << shift) + (((uint64_t)1 << shift) - 1);
}

uint64_t op_times_start(const struct op_times *t)
{
    return t ? clock_now_ns() : 0;
}

uint64_t op_times_since(const struct op_times *t, uint64_t start_ns)
{
    return t ? clock_now_ns() - start_ns : 0;
}

void op_times_add(struct op_times *t, enum op_kind kind, uint64_t took_ns)
{
    if (!t)
        return;
    struct op_histogram *h = &t->kinds[kind];
    h->count++;
    h->total_ns += took_ns;
    h->max_ns = took_ns > h->max_ns ? took_ns : h->max_ns;
    h->buckets[bucket_of(took_ns)]++;
    if (kind == OP_EVICT)
        t->step_evict_ns += took_ns;
}

void op_times_end_step(struct op_times *t)
{
    if (!t)
        return;
    if (t->step_evict_ns > t->max_step_evict_ns)
        t->max_step_evict_ns = t->step_evict_ns;
    t->step_evict_ns = 0;
}

uint64_t op_histogram_percentile(const struct op_histogram *h, double share)
{
    assert(share > 0 && share <= 1);
    uint64_t wanted = (uint64_t)ceil((double)h->count * share), seen = 0;
    for (uint32_t i = 0; i < OP_BUCKETS && h->count; i++) {
        seen += h->buckets[i];
        if (seen >= wanted)
            return bucket_end_ns(i) < h->max_ns ? bucket_end_ns(i) : h->max_ns;
    }
    return 0;
}
