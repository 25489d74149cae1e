#ifndef RADISH_TEST_SCHED_WORLD_H
#define RADISH_TEST_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* A scheduler on a mock engine with everything that an engine can have: up to three groups of KV
 * (full, windows, a state), images and their regions, adapters that come and go, failing batches,
 * rows without numbers, a device that gets lost, readers that do not read, clients that hang up.
 *
 * Each step does something at random, steps the scheduler, and compares the log probability of
 * every token that came with the one that follows from its tokens alone. The scheduler recounts
 * pages, copies and slots itself after each step. A world is a function of its seed. */
struct sched_totals {
    uint64_t n_steps, n_requests, n_tokens, n_canceled, n_failed;
    uint64_t n_images, n_encoded, n_adapters, n_forked, n_preempted, n_retried, n_lost;
    uint64_t prompt_tokens, cached_tokens;
    uint64_t interior[2], tails[2]; /* pages of side groups that were evicted */
    uint64_t n_copies_used;         /* worlds with a state: prompts that resumed from a copy */
    uint64_t n_worlds[4];           /* by number of groups */
};

struct sched_world;

struct sched_world *sched_world_open(uint64_t seed);
void sched_world_step(struct sched_world *w);
/* Ends everything that runs, checks that all is given back, adds to the totals. */
void sched_world_close(struct sched_world *w, struct sched_totals *totals);

#endif
