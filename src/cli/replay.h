#ifndef RADISH_CLI_REPLAY_H
#define RADISH_CLI_REPLAY_H

#include "cli/trace.h"
#include "sched/scheduler.h"

/* Runs a trace through the real tree, pool and scheduler on the mock engine. Each client sends the
 * next request of the trace as soon as its last one is answered. */
struct replay_options {
    uint32_t n_pages;    /* of the pool; 0: enough for everything */
    uint32_t n_clients;  /* requests in flight */
    uint32_t max_output; /* longest answer */
    /* Called now and then to report progress, unless NULL. */
    void (*progress)(const struct trace *t, size_t n_done, uint64_t asked, uint64_t hit);
};

struct replay_result {
    uint32_t n_pages;
    uint64_t asked;    /* prompt tokens */
    uint64_t hit;      /* of those, found in the cache */
    uint64_t computed; /* rows of prompts that the engine computed, again after a preemption too */
    uint64_t generated;
    uint64_t n_refused; /* requests too long for the pool; their tokens count as asked */
    uint64_t steps;
    double seconds;
    struct scheduler_stats stats; /* of the last step */
    struct op_times times;
};

/* How many pages hold all of the trace and what runs at once. */
int replay_pages(const struct trace *t, const struct trace_ideal *ideal,
                 const struct replay_options *options, uint32_t *n_pages, struct error *err);
int replay_run(const struct trace *t, const struct replay_options *options,
               struct replay_result *out, struct error *err);

#endif
