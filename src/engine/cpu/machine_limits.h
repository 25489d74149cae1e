#ifndef RADISH_ENGINE_CPU_MACHINE_LIMITS_H
#define RADISH_ENGINE_CPU_MACHINE_LIMITS_H

#include "base/parallel.h"
#include "engine/cpu/kernels/kernels.h"

/* Measures what the machine can do, with the threads of a pool and the instructions of a kernel
 * path: bytes read from memory, multiply-adds of small integers and of floats, each per second.
 *
 * Work is timed in slices, and the best slice counts: even on a busy machine, all threads sometimes
 * have their cores for that long. A slice of multiply-adds is a tenth of a millisecond. A slice of
 * reading takes 40 milliseconds and goes several times through several times the size of the
 * largest cache: shorter slices find some data in the cache, and memory is briefly faster than it
 * can sustain. A limit measured too low would make everything else look too good, so keep measuring
 * while it is in use. */
struct machine_probe;

/* Allocates the memory to read from; machine_probe_close frees it. */
int machine_probe_open(struct machine_probe **out, struct parallel *pool, struct error *err);
void machine_probe_close(struct machine_probe *p);
/* Measures each of the three for about duration_ms, and raises *best to the results. */
void machine_probe_run(struct machine_probe *p, const struct kernels *kernels, uint32_t duration_ms,
                       struct machine_limits *best);

#endif
