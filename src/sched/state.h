#ifndef RADISH_SCHED_STATE_H
#define RADISH_SCHED_STATE_H

#include <pthread.h>

#include "base/queue.h"
#include "sched/flight.h"
#include "sched/sampler.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/shares.h"
#include "sched/stats_board.h"
#include "sched/step_cost.h"
#include "sched/wake.h"

/* The inside of the scheduler, shared by its own files only. All of it belongs to the scheduler's
 * thread, except what is marked as shared.
 *
 *   step:  front    take arrivals ─► end the canceled ─► admit ─► masks ─► reserve ─► plan
 *          submit   the batch goes to the engine
 *          shadow   expire, answer queries; ask filters for masks and admit, if the engine computes
 *                   on its own: everything that needs no logits and does not touch the batch
 *          wait     and take results: sample, insert, send events
 *          publish
 */
struct scheduler {
    struct scheduler_options options;
    struct engine *engine;
    uint32_t limit; /* length in positions of the longest sequence that can run */

    struct queue arrivals;    /* shared: submitted, not yet taken */
    struct queue queries;     /* shared: cache queries, not yet taken */
    struct shares shares;     /* shared in part: see there */
    atomic_int live;          /* shared: requests of the running batch that are not canceled */
    atomic_bool is_stopping;  /* shared */
    struct wake wake;         /* shared */
    struct stats_board board; /* shared */
    pthread_t thread;
    bool has_thread;

    struct cache cache;
    uint32_t state_side;  /* the side of states; TREE_MAX_SIDES: none */
    uint32_t *free_slots; /* [n_free_slots] of states; NULL: none */
    uint32_t n_free_slots;
    uint32_t max_region; /* positions of the largest image; 0: no images */
    uint32_t n_handles;  /* images that the engine keeps for sequences */
    uint64_t *adapters;  /* [n_adapters] that requests have named: their numbers in namespaces */
    uint32_t n_adapters;
    bool is_lost;            /* the device is lost, and everything on it */
    uint32_t n_losses;       /* device losses since a request last ended */
    struct side_need *needs; /* [max_seqs] scratch space for evictions */
    node_id *yielding;       /* [max_seqs] scratch space for admission */
    struct sampler *sampler;
    int32_t *ends; /* [n_ends] the end tokens */
    uint32_t n_ends;
    struct sequence **running; /* [max_seqs], oldest first */
    uint32_t n_running;
    struct sequence_list waiting;
    struct sequence *paused; /* its filter works on a mask, and holds what only one can hold */
    uint64_t n_masks;        /* made so far */
    uint64_t next_age;
    uint64_t n_releases; /* number of times that pages or locks were given back */
    bool has_events;     /* since the last notify */
    uint64_t now_ns;     /* of this step */
    uint64_t expire_at_ns;
    uint32_t evict_left;          /* nodes that this step may still free for newcomers */
    bool is_evicting;             /* a sequence waits for pages that the next steps will free */
    struct cache_query *clearing; /* the query whose work takes several steps, or NULL */

    struct step_cost cost;
    struct sequence **planned; /* [max_seqs] with n_rows > 0, in this step's batch */
    uint32_t n_planned;
    struct batch batch; /* submitted last, */
    struct step_work work;
    uint64_t submitted_ns;
    bool is_flying;               /* and still being computed: what it uses must stay */
    struct error batch_error;     /* valid when it failed */
    struct sequence **prefills;   /* [max_seqs] the planner's scratch space */
    struct batch_seq *batch_seqs; /* [max_seqs] */
    struct batch_row *rows;       /* [engine's max_rows] */
    struct row_output *outputs;   /* [max_seqs] of rows that give logits */
    float *logits;                /* [max_seqs][n_vocab] */

    struct scheduler_stats stats;
};

enum {
    RESERVE_RUN = 64, /* pages a decoding sequence takes at a time */
    /* The most a step frees for newcomers: well under a millisecond of work. */
    EVICT_NODES = 1024,
    EVICT_PAGES = 1 << 15,
    MAX_QUERIES = 32, /* waiting at most */
};

/* admission.c */
bool scheduler_admit(struct scheduler *s);   /* waiting ─► running; true if anything changed */
void scheduler_reserve(struct scheduler *s); /* pages for each sequence's next row, or preempts */
void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason);
bool sequence_is_parked(const struct sequence *seq);
/* Starts `seq` from the end of `leader`, which has computed exactly the prompt of `seq`; false: no
 * room now. */
bool scheduler_fork(struct scheduler *s, const struct sequence *leader, struct sequence *seq);
/* The sequence's state or the device was lost: it waits, and resumes from what the tree has. */
void scheduler_restart(struct scheduler *s, struct sequence *seq);
/* None of the sequence's logits was a number: what it computed is removed from the tree, and it
 * starts over once, without the tree. */
void scheduler_doubt(struct scheduler *s, struct sequence *seq);
/* Without the tree its logits are numbers: what it had taken from the tree before is removed
 * too. */
void scheduler_condemn(struct scheduler *s, struct sequence *seq);

/* arrival.c */
/* Assigns the sequence its namespace, and its images their numbers. False, with the request's error
 * set: there is no room for them. */
bool scheduler_place(struct scheduler *s, struct sequence *seq);
void scheduler_forget_images(struct scheduler *s, struct sequence *seq);
/* Encodes the images that come next; true if there is more to do. */
bool scheduler_encode(struct scheduler *s);
/* Lets the engine drop the images before `position`. */
void scheduler_free_images(struct scheduler *s, struct sequence *seq, uint32_t position);

/* masks.c: what filters allow next, made within a part of each step */
/* Whether its next token needs a mask that is not made yet. */
bool mask_is_missing(const struct sequence *seq);
/* Before the batch is planned: a sequence is planned to give a token only once its mask is made,
 * unless it can still be made while the engine computes. True if any is missing. */
bool scheduler_make_masks(struct scheduler *s);
void scheduler_make_masks_meanwhile(struct scheduler *s); /* while the engine computes */
/* Whether a row may be planned for its last token. */
bool mask_allows_row(const struct scheduler *s, const struct sequence *seq);
/* Tries for a moment; for a sequence that is about to be forked. */
bool mask_make_now(struct scheduler *s, struct sequence *seq);
void mask_forget(struct scheduler *s, struct sequence *seq); /* an unfinished one */

/* window_room.c */
void window_charge(struct scheduler *s, const struct sequence *seq, bool is_over);
/* Whether it can run beside the other sequences, or beside those that do not yield to it. */
bool window_has_room(const struct scheduler *s, const struct sequence *seq, bool without_yielding);
void scheduler_reserve_windows(struct scheduler *s); /* pages for each sequence's next row */
void scheduler_reserve_rows(struct scheduler *s);    /* for all planned rows, or plans fewer */
uint32_t scheduler_list_needs(struct scheduler *s, uint32_t side); /* fills `needs`; the count */

/* state_copies.c: for layers that keep a state; does nothing without them */
/* Takes a slot, and loads the state at the end of the match, or that of the leader it forks
 * from. */
void state_begin(struct scheduler *s, struct sequence *seq, const struct sequence *leader);
void scheduler_end_stateless(struct scheduler *s); /* sequences whose state_begin failed */
/* Before the sequence stops: copies the state at its end, and gives the slot back. */
void state_end(struct scheduler *s, struct sequence *seq);
void scheduler_plan_copies(struct scheduler *s); /* pages for copies after planned rows */
/* Cuts `n` rows short where a copy is wanted, if the engine copies only at the end of a batch. */
uint32_t state_cut(const struct scheduler *s, const struct sequence *seq, uint32_t from,
                   uint32_t n);

/* plan.c */
void scheduler_plan(struct scheduler *s);

/* forward.c */
void scheduler_submit_batch(struct scheduler *s); /* from the plan */
void scheduler_take_batch(struct scheduler *s);   /* waits for the batch, and takes its results */
/* After a device loss: all running sequences wait again, the cache is empty, and the engine is
 * reopened. */
void scheduler_recover(struct scheduler *s, const struct error *err);

/* housekeeping.c */
bool scheduler_expire(struct scheduler *s);
/* How long an idle scheduler may sleep until something expires; 0: no limit. */
uint64_t scheduler_idle_ns(const struct scheduler *s);
/* Pins a locked node's path for `for_ns`; false: too many pins. */
bool scheduler_pin(struct scheduler *s, node_id node, uint64_t for_ns);
bool scheduler_answer_queries(struct scheduler *s);
void scheduler_publish(struct scheduler *s);

#endif
