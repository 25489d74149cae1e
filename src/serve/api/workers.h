#ifndef RADISH_SERVE_API_WORKERS_H
#define RADISH_SERVE_API_WORKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A few threads for the slow part of a request (JSON, template, tokenizer, grammar), so that the
 * event loop never does slow work. A job's memory is its owner's, but it belongs to the workers
 * between submit and finished.
 *
 * Most jobs take a millisecond, some a hundred, and a hostile one seconds. Nobody can tell them
 * apart before they run, so every job is given little time at first. One that needs more is stopped
 * and begins again in the next lane, which has threads of its own:
 *
 *   submit ─► [short]  20 ms   n threads ──┐
 *                └─ more ─► [long]  250 ms ──┼─ wake ─► finished ─► event loop
 *   large ───────────────────►  └─ more ─► [last] ─┘
 *
 * So a short job waits only for short jobs. Each lane takes turns between tenants, and between the
 * clients of a tenant, by the time that they have used; among the jobs of a client, those that
 * arrived early and are small come first. Later lanes have a lower priority, so that they do not
 * slow down the model either. A client that keeps the first two lanes busy while there are others
 * gets the last lane for all of its jobs, until it has rested. */
struct workers;

enum worker_lane { LANE_SHORT, LANE_LONG, LANE_LAST, N_LANES };

struct job {
    /* Runs as the thread's work (base/task.h). If that is late, the job is as new when it returns:
     * it will run again, with more time. */
    void (*run)(struct job *job);
    uint32_t tenant; /* who asks (struct requester) */
    uint64_t client;
    size_t n_bytes;              /* what there is to read */
    const atomic_bool *unwanted; /* stops the job when it is set; NULL: nothing does */

    /* Set by the workers. */
    struct job *next;
    enum worker_lane lane;
    uint64_t due_ns, client_hash;
    atomic_bool waits; /* for a thread: it can be withdrawn */
};

/* All threads, if there are `n_threads` for short jobs. */
#define WORKERS(n_threads) ((n_threads) + N_LANES - 1)

/* `n_threads`: for short jobs. The other lanes have one each. */
int workers_open(struct workers **out, uint32_t n_threads, uint32_t max_jobs,
                 void (*wake)(void *context), void *context, struct error *err);
/* Stops running jobs; waiting jobs are not run. All jobs belong to their owners again. */
void workers_close(struct workers *w);
bool workers_submit(struct workers *w, struct job *job); /* false: there are already max_jobs */
/* Takes back a job that waits. False: it runs or has finished, and comes back by itself. */
bool workers_withdraw(struct workers *w, struct job *job);
struct job *workers_finished(struct workers *w); /* NULL: none at the moment */
void workers_wake(struct workers *w);            /* as if a job had finished */

#endif
