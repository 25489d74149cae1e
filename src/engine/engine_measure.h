#ifndef RADISH_ENGINE_ENGINE_MEASURE_H
#define RADISH_ENGINE_ENGINE_MEASURE_H

#include <stdint.h>

/* The least that computing costs, what it took, and what the machine can do: the figures that
 * `radish bench` compares. An engine leaves those that it does not know at zero. */

/* Multiply-adds of small integers and of floats. */
struct engine_macs {
    uint64_t int8, floats;
};

/* The least work that a batch needs. Each batch also reads the pages of its sequences once. */
struct engine_cost {
    uint64_t layer_bytes;          /* weights read by every batch */
    uint64_t head_bytes;           /* weights read by a batch with rows that want logits */
    struct engine_macs layer_macs; /* per row */
    struct engine_macs head_macs;  /* per row that wants logits */
    uint64_t position_macs;        /* of floats, per row and position that it sees */
};

/* How the time of all batches since open was spent, measured by thread 0. */
struct engine_times {
    uint64_t products_ns, attention_ns, other_ns;
};

/* What the machine can do at best with the engine's threads and instructions. */
struct machine_limits {
    double read_bytes_per_s; /* from memory */
    double int8_macs_per_s, float_macs_per_s;
    uint64_t cache_bytes; /* of the last level, as the system reports it; 0: unknown */
};

#endif
