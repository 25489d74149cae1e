#ifndef RADISH_SERVE_API_WORKERS_H
#define RADISH_SERVE_API_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A few threads for the slow part of a request (JSON, template, tokenizer), so that the event loop
 * never does slow work. A job's memory is its owner's, but it belongs to the workers between submit
 * and finished.
 *
 *   event loop ──submit──► [waiting] ──► worker: job->run ──► [finished] ──finished──► event loop
 *                                                   └──────── wake ────────►
 */
struct workers;

struct job {
    void (*run)(struct job *job);
    struct job *next;
    uint64_t client; /* who asks (struct requester) */
};

int workers_open(struct workers **out, uint32_t n_threads, uint32_t max_jobs,
                 void (*wake)(void *context), void *context, struct error *err);
/* Waits for running jobs; waiting jobs are not run. All jobs belong to their owners again. */
void workers_close(struct workers *w);
bool workers_submit(struct workers *w, struct job *job); /* false: there are already max_jobs */
struct job *workers_finished(struct workers *w);         /* NULL: none at the moment */
void workers_wake(struct workers *w);                    /* as if a job had finished */

#endif
