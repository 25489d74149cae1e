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
 *   step:  front    take arrivals ─► end the canceled ─► admit ─► reserve ─► plan
 *          submit   the batch goes to the engine
 *          shadow   expire, answer queries, ask filters for masks; admit, if the engine computes by
 *                   itself: all that needs no logits and touches nothing of the batch
 *          wait     and take results: sample, insert, send events
 *          publish
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
    uint32_t state_side;  /* where layers keep a state; TREE_MAX_SIDES: there are none */
    uint32_t *free_slots; /* [n_free_slots] of states; NULL: there are none */
    uint32_t n_free_slots;
    uint32_t max_region; /* positions of the largest image; 0: there are none */
    uint32_t n_handles;  /* images that the engine keeps for sequences */
    uint64_t *adapters;  /* [n_adapters] those that requests have named: the namespace's numbers */
    uint32_t n_adapters;
    bool is_lost;            /* the device is: nothing that it had is worth anything */
    uint32_t n_losses;       /* of the device since a request ended */
    struct side_need *needs; /* [max_seqs] scratch for evictions */
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
    struct batch batch; /* that was submitted last, */
    struct step_work work;
    uint64_t submitted_ns;
    bool is_flying;               /* and is being computed: what it uses stays */
    struct error batch_error;     /* valid when it failed */
    struct sequence **prefills;   /* [max_seqs] scratch of the planner */
    struct batch_seq *batch_seqs; /* [max_seqs] */
    struct batch_row *rows;       /* [engine's max_rows] */
    struct row_output *outputs;   /* [max_seqs] of rows that give logits */
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
/* Its state is lost, or the device was: it waits, and goes on from what the tree has. */
void scheduler_restart(struct scheduler *s, struct sequence *seq);
/* What it computed gave no numbers: that leaves the tree, and it starts over once, by itself. */
void scheduler_doubt(struct scheduler *s, struct sequence *seq);
/* By itself it gave numbers: what it had of the tree when it did not leaves it too. */
void scheduler_condemn(struct scheduler *s, struct sequence *seq);

/* arrival.c */
/* Gives a sequence its namespace, and its images their numbers; false, with the request's error,
 * when there is no room for them. */
bool scheduler_place(struct scheduler *s, struct sequence *seq);
void scheduler_forget_images(struct scheduler *s, struct sequence *seq);
/* Encodes the images that come next; true when there is more to do. */
bool scheduler_encode(struct scheduler *s);
/* The engine need not keep the images before `position` any longer. */
void scheduler_free_images(struct scheduler *s, struct sequence *seq, uint32_t position);

/* window_room.c */
void window_charge(struct scheduler *s, const struct sequence *seq, bool is_over);
/* Whether it can run beside the others, or beside those of them that are not parked. */
bool window_has_room(const struct scheduler *s, const struct sequence *seq, bool without_parked);
void scheduler_reserve_windows(struct scheduler *s); /* pages for the next row of each */
void scheduler_reserve_rows(struct scheduler *s);    /* for all planned rows, or plans fewer */
uint32_t scheduler_list_needs(struct scheduler *s, uint32_t side); /* into `needs`; how many */

/* state_copies.c: where layers keep a state; does nothing where there are none */
/* Takes a slot, and loads the state after what it matched, or that of the leader it forks from. */
void state_begin(struct scheduler *s, struct sequence *seq, const struct sequence *leader);
void scheduler_end_stateless(struct scheduler *s); /* those for whom that failed */
/* Before it stops: makes a copy where it ended, and gives the slot back. */
void state_end(struct scheduler *s, struct sequence *seq);
void scheduler_plan_copies(struct scheduler *s); /* pages for copies after planned rows */
/* Fewer of `n` rows where a copy is wanted that the engine makes only at the end of a batch. */
uint32_t state_cut(const struct scheduler *s, const struct sequence *seq, uint32_t from,
                   uint32_t n);

/* plan.c */
void scheduler_plan(struct scheduler *s);

/* forward.c */
void scheduler_submit_batch(struct scheduler *s); /* of what is planned */
void scheduler_ask_masks(struct scheduler *s);    /* for the tokens that the batch will give */
void scheduler_take_batch(struct scheduler *s);   /* waits for it, and takes what it gives */
/* After the device was lost: everyone who ran waits, nothing is cached, the engine opens again. */
void scheduler_recover(struct scheduler *s, const struct error *err);

/* housekeeping.c */
bool scheduler_expire(struct scheduler *s);
/* How long an idle scheduler may sleep until something expires; 0: for ever. */
uint64_t scheduler_idle_ns(const struct scheduler *s);
/* Pins a locked node's path for so long; false: there are pins enough. */
bool scheduler_pin(struct scheduler *s, node_id node, uint64_t for_ns);
bool scheduler_answer_queries(struct scheduler *s);
void scheduler_publish(struct scheduler *s);

#endif
