#ifndef RADISH_SCHED_STATE_H
#define RADISH_SCHED_STATE_H

#include <pthread.h>

#include "base/queue.h"
#include "sched/flight.h"
#include "sched/sampler.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/stats_board.h"
#include "sched/step_cost.h"
#include "sched/wake.h"

/* The inside of the scheduler, shared by its own files only. All of it belongs to the scheduler's
 * thread, except what is marked as shared.
 *
 *   step:  take ─► end the canceled ─► admit ─► reserve ─► plan ─► forward ─► expire ─► publish
 *          scheduler.c                 admission.c         plan.c  forward.c  housekeeping.c
 */
struct scheduler {
    struct scheduler_options options;
    struct engine *engine;
    uint32_t limit; /* positions in the longest sequence that can ever run */

    struct queue arrivals;    /* shared: submitted, not yet taken */
    struct queue queries;     /* shared: looks into the cache, not yet taken */
    atomic_uint n_accepted;   /* shared: submitted and not done */
    atomic_int live;          /* shared: requests of the running batch that are still wanted */
    atomic_bool is_stopping;  /* shared */
    struct wake wake;         /* shared */
    struct stats_board board; /* shared */
    pthread_t thread;
    bool has_thread;

    struct cache cache;
    uint32_t window_run;       /* window pages that a sequence takes at a time */
    uint32_t window_charged;   /* those that the running may need at once; see window_room.c */
    struct window_need *needs; /* [max_seqs] scratch for evictions */
    struct sampler *sampler;
    int32_t *ends; /* [n_ends] the end tokens */
    uint32_t n_ends;
    struct sequence **running; /* [max_seqs], oldest first */
    uint32_t n_running;
    struct sequence_list waiting;
    uint64_t next_age;
    uint64_t n_releases; /* how often pages or locks were given back */
    bool has_events;     /* since the last notify */
    uint64_t now_ns;     /* of this step */
    uint64_t expire_at_ns;
    uint32_t evict_left;          /* nodes that this step may still free for newcomers */
    bool is_evicting;             /* someone waits for pages that the next steps will free */
    struct cache_query *clearing; /* the query whose work takes several steps, or NULL */

    struct step_cost cost;
    struct sequence **planned; /* [max_seqs] with n_rows > 0, in this step's batch */
    uint32_t n_planned;
    struct sequence **prefills;   /* [max_seqs] scratch of the planner */
    struct batch_seq *batch_seqs; /* [max_seqs] */
    struct batch_row *rows;       /* [engine's max_rows] */
    struct row_output *outputs;   /* [max_seqs] of the rows that want logits, in order */
    float *logits;                /* [max_seqs][n_vocab] */

    struct scheduler_stats stats;
};

enum {
    RESERVE_RUN = 64, /* pages that a decoding sequence takes at a time */
    /* What a step frees at most for newcomers: well under a millisecond's work. */
    EVICT_NODES = 1024,
    EVICT_PAGES = 1 << 15,
    MAX_QUERIES = 32, /* that may wait */
};

/* admission.c */
bool scheduler_admit(struct scheduler *s);   /* waiting ─► running; true if anything changed */
void scheduler_reserve(struct scheduler *s); /* pages for the next row of each, or preempts */
void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason);
bool sequence_is_parked(const struct sequence *seq);
/* Starts `seq`, whose prompt is all that `leader` has computed, behind it; false when there is no
 * room for it now. */
bool scheduler_fork(struct scheduler *s, const struct sequence *leader, struct sequence *seq);
/* What it computed gave no numbers: that leaves the tree, and it starts over once, by itself. */
void scheduler_doubt(struct scheduler *s, struct sequence *seq);
/* By itself it gave numbers: what it had of the tree when it did not leaves it too. */
void scheduler_condemn(struct scheduler *s, struct sequence *seq);

/* window_room.c */
uint32_t window_charge(const struct scheduler *s, const struct sequence *seq);
/* Whether it can run beside the others, if those who are charged for `freed` pages stopped. */
bool window_has_room(const struct scheduler *s, const struct sequence *seq, uint32_t freed);
void scheduler_reserve_window(struct scheduler *s); /* pages for the next row of each */
void scheduler_reserve_rows(struct scheduler *s);   /* for all planned rows, or plans fewer */

/* plan.c */
void scheduler_plan(struct scheduler *s);

/* forward.c */
void scheduler_forward(struct scheduler *s);

/* housekeeping.c */
bool scheduler_expire(struct scheduler *s);
/* How long an idle scheduler may sleep until something expires; 0: for ever. */
uint64_t scheduler_idle_ns(const struct scheduler *s);
/* Pins a locked node's path for so long; false: there are pins enough. */
bool scheduler_pin(struct scheduler *s, node_id node, uint64_t for_ns);
bool scheduler_answer_queries(struct scheduler *s);
void scheduler_publish(struct scheduler *s);

#endif
