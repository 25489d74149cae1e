#ifndef RADISH_CLI_ENGINES_H
#define RADISH_CLI_ENGINES_H

#include "base/strbuf.h"
#include "cli/args.h"
#include "engine/plugin.h"

/* The engine on a device: a plug-in, and the device that it found. */
struct device_engine {
    struct plugin plugin;         /* not loaded: there is none, and the CPU computes */
    struct plugin_device *device; /* NULL: not found, or released */
};

/* Loads the CUDA plug-in and finds its device. Fails with advice; ERROR_UNSUPPORTED: there is no
 * plug-in. */
int device_engine_open(struct device_engine *d, const struct plugin_options *options,
                       struct error *err);
/* Lets go of the device, so that an engine that is open on it has it alone. */
void device_engine_release(struct device_engine *d);
void device_engine_close(struct device_engine *d); /* after its engine; also one that is zero */

/* Logs that `auto` chose the CPU, and why unless nothing is amiss: the machine has no GPU and
 * radish no plug-in. `why` is the error of the device. */
void cpu_choice_log(const struct error *why);

/* "cpu, mock, cuda (radish-cuda.so, NVIDIA H200)", or why there is no cuda. */
void engines_describe(struct strbuf *out, const char *device);

/* What radish may take of a device, and what is left of it for the cache. */
struct device_room {
    uint64_t total_bytes, free_bytes; /* of the device */
    uint64_t budget_bytes;            /* that radish may take */
    uint64_t engine_bytes;            /* for weights and buffers */
    uint64_t cache_bytes;             /* left */
};

/* `share`: --gpu-memory. Fails with all the figures if the weights and buffers do not fit. */
int device_room_find(struct device_room *room, const struct plugin_device *device,
                     const struct memory_share *share, uint64_t engine_bytes, struct error *err);
/* "900 MiB (of 1000 MiB, 950 MiB are free and 50 MiB are in use; --gpu-memory changes this)" */
void device_room_describe(const struct device_room *room, char *out, size_t size);

#endif
