#ifndef RADISH_ENGINE_CPU_CPU_ENGINE_H
#define RADISH_ENGINE_CPU_CPU_ENGINE_H

#include "engine/engine.h"
#include "model/model.h"

/* The engine that computes on this machine's cores, in the thread that owns it and in its own
 * threads. It computes inside wait. */

/* Whether each compute thread is pinned to one CPU. Auto: if cpu_topology_should_pin says so. */
enum pinning { PIN_OFF, PIN_AUTO, PIN_ON };

/* The activations that quantized weights are multiplied with: 8 bits and a scale for every 32 of
 * them, or 16 bits, which is more exact and takes twice as many operations. */
enum activation_type { ACTIVATIONS_Q8, ACTIVATIONS_Q16 };

/* Whether packed weights are kept in a file beside the model for the next start. Auto: if reading
 * them is clearly faster than packing them again. */
enum pack_cache_mode { PACK_CACHE_OFF, PACK_CACHE_AUTO, PACK_CACHE_ON };

struct cpu_options {
    uint32_t n_threads; /* 0: one for each fast core */
    enum pinning pinning;
    enum activation_type activations;
    enum pack_cache_mode pack_cache;
    const char *kernels;      /* "scalar", "avx2", ...; NULL: the best available */
    engine_progress progress; /* or NULL */
    void *progress_context;
};

/* The model must stay open as long as the engine. */
int cpu_engine_open(struct engine **out, const struct model *model,
                    const struct engine_limits *limits, const struct cpu_options *options,
                    struct error *err);

#endif
