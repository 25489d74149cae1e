#ifndef RADISH_BASE_PARALLEL_H
#define RADISH_BASE_PARALLEL_H

#include <stdint.h>

#include "base/cpu_topology.h"
#include "base/error.h"

/* The one thread pool for computing: the owner is thread 0, and n - 1 others wait to join it.
 * Between jobs they spin for a while, because a forward pass is hundreds of short phases, and then
 * sleep. Every thread runs a job once and takes its share by its index. */
struct parallel;

enum { PARALLEL_MAX_THREADS = 256 };

typedef void (*parallel_job)(void *context, uint32_t thread, uint32_t n_threads);

/* With `pin_to`, thread i runs only on the i-th CPU of its order, if the system allows it; there
 * must be at least that many. */
int parallel_open(struct parallel **out, uint32_t n_threads, const struct cpu_topology *pin_to,
                  struct error *err);
void parallel_close(struct parallel *p);
uint32_t parallel_threads(const struct parallel *p);
/* Returns when every thread has finished the job. Only the owner calls it. The owner is the first
 * thread to call it, until it calls parallel_release, which also lets it run on all CPUs again. */
void parallel_run(struct parallel *p, parallel_job job, void *context);
void parallel_release(struct parallel *p);
/* Inside a job: returns when every thread of the job has reached it. */
void parallel_barrier(struct parallel *p, uint32_t thread);

#endif
