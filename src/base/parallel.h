#ifndef RADISH_BASE_PARALLEL_H
#define RADISH_BASE_PARALLEL_H

#include <stdint.h>

#include "base/cpu_topology.h"
#include "base/error.h"

/* The one thread pool for computing: the owner is thread 0 and n - 1 others wait to join it. They
 * spin for a while between jobs, because a forward pass is hundreds of short phases, then sleep. A
 * job is run once by every thread, which takes its share by its index. */
struct parallel;

enum { PARALLEL_MAX_THREADS = 256 };

typedef void (*parallel_job)(void *context, uint32_t thread, uint32_t n_threads);

/* With `pin_to`, thread i runs on the i-th CPU of its order only, as far as the system lets it;
 * there must be as many. */
int parallel_open(struct parallel **out, uint32_t n_threads, const struct cpu_topology *pin_to,
                  struct error *err);
void parallel_close(struct parallel *p);
uint32_t parallel_threads(const struct parallel *p);
/* Returns when every thread has finished the job. Only the owner calls it: whoever does so first,
 * until it lets go with parallel_release, which also lets it run on all CPUs again. */
void parallel_run(struct parallel *p, parallel_job job, void *context);
void parallel_release(struct parallel *p);
/* Inside a job: returns when every thread of the job has reached it. */
void parallel_barrier(struct parallel *p, uint32_t thread);

#endif
