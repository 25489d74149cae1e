#ifndef RADISH_BASE_PARALLEL_H
#define RADISH_BASE_PARALLEL_H

#include <stdint.h>

#include "base/error.h"

/* The one thread pool for computing: the caller is thread 0 and n - 1 others wait to join it.
 * They spin for a while between jobs, because a forward pass is hundreds of short jobs, then
 * sleep. A job is run once by every thread, which takes its share by its index. */
struct parallel;

typedef void (*parallel_job)(void *context, uint32_t thread, uint32_t n_threads);

int parallel_open(struct parallel **out, uint32_t n_threads, struct error *err);
void parallel_close(struct parallel *p);
uint32_t parallel_threads(const struct parallel *p);
/* Returns when every thread has finished the job. Only the owner calls it. */
void parallel_run(struct parallel *p, parallel_job job, void *context);
/* Inside a job: returns when every thread of the job has reached it. */
void parallel_barrier(struct parallel *p);

#endif
