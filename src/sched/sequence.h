#ifndef RADISH_SCHED_SEQUENCE_H
#define RADISH_SCHED_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/prefix_tree.h"
#include "engine/engine.h"
#include "sched/regions.h"
#include "sched/scheduler.h"
#include "sched/line_rule.h"
#include "sched/stop_matcher.h"

/* A sequence's pages in a side group.
 *
 * A window: a row sees the last W positions. Earlier pages are not needed; they are kept until
 * someone else needs the room.
 *
 *   positions   [ no page here │ the tree's │ given back │ its own           │ reserved ]
 *               0          first row's window    private_from      n_computed      n_reserved
 *
 * A state lives in a slot of the engine. `pages` has copies of it at a few positions; the sequence
 * owns those from n_inserted on. */
struct seq_side {
    uint32_t *pages;             /* [capacity]; PAGE_NONE: none */
    struct page_run *runs;       /* [capacity], of a window */
    uint32_t first_run, end_run; /* those in use, */
    uint32_t from, to;           /* for positions from .. to - 1 */
    uint32_t private_from, n_reserved;
    uint32_t n_copies; /* of a state: copies that the sequence owns */
};

/* A request in progress. Its tokens are the prompt and the generated tokens; the last generated one
 * has no KV yet (it is fed in the next step).
 *
 *   tokens   [ matched in the tree │ computed and inserted │ computed │ to be computed ]
 *            0                 n_matched              n_inserted  n_computed       n_tokens
 *   pages      (the tree's)      the tree's or private   private     reserved ... n_reserved
 *
 * Computing always means the same: rows for n_computed .. n_tokens - 1, the last of which gives the
 * next token. One row is a decode step; more are a prefill. A preempted sequence has n_computed 0
 * and all its tokens, so it continues as if they were its prompt. */
struct sequence {
    struct request *request;
    struct sequence *prev, *next;  /* in the waiting list */
    struct share *tenant, *client; /* who asks (shares.h) */
    uint64_t age;                  /* arrival; survives preemption */
    uint64_t ns;                   /* the request's namespace, with its adapter */

    uint64_t *tokens;      /* [capacity] cache tokens */
    int32_t *generated;    /* [capacity - prompt] for the sampler */
    uint32_t *pages;       /* [capacity] from n_matched on */
    bool *is_private;      /* [capacity] from n_matched on: the page is ours, not the tree's */
    struct page_run *runs; /* [capacity] pages of positions 0 .. runs_length - 1 */
    uint32_t capacity;     /* the most tokens it can ever have */
    uint32_t n_tokens, n_computed, n_inserted, n_matched, n_reserved;
    uint32_t n_private;
    uint32_t n_runs, runs_length;
    uint32_t prefill_end; /* n_tokens at admission: chunks are inserted up to here */
    node_id node;         /* locked, ends at n_inserted; NODE_NONE: not cached */
    struct seq_side sides[TREE_MAX_SIDES];
    struct regions regions; /* images in its prompt */

    /* Where layers keep a state: its slot while it runs, and whether the slot holds the state after
     * n_computed tokens. A failed batch leaves it undefined. */
    uint32_t slot;
    bool has_state;
    uint32_t fork_point;  /* others diverge here, and there is no copy: worth making one */
    uint32_t alone_until; /* suspected of a failure: it is computed alone up to here */

    /* Number of prompt tokens whose log probabilities are done: all of them if the request did not
     * ask. The others need the logits of every position from n_scored - 1 on. */
    uint32_t n_scored;

    struct stop_matcher stops;
    struct line_rule lines;
    const uint64_t *mask; /* what its filter allows next, */
    bool has_mask;        /* once it is made */
    bool is_slow;         /* making it takes long (masks.c) */
    bool was_slow;        /* ... or took long once: its masks are made before its rows */
    uint64_t masked_at;   /* when the last one was made, as a count of all masks */
    bool is_hurried;      /* its filter ends it sooner than the model would have */
    bool is_started;      /* EVENT_STARTED was sent */
    bool is_doubted;      /* no logit was a number once: it starts over without the tree */
    uint32_t n_suspect;   /* positions it had from the tree then, until the cause is known */

    /* Flights: what it computes for others while running, or whom it sleeps for while waiting. */
    bool in_flight;
    uint32_t n_ready; /* positions of its flight that others may match */
    struct sequence *waits_for;
    uint32_t waits_until; /* length of the prefix it shares with that flight */
    bool is_heir;         /* the flight's owner is gone, and it is admitted first in its place */
    uint32_t n_found;     /* what the tree had when it first slept for a flight; else UINT32_MAX */

    bool yields;         /* gives way to the one being admitted, if that needs its place */
    uint64_t refused_at; /* n_releases when it was refused: unchanged, it would be refused again */
    uint32_t n_rows;     /* in the step being planned, */
    uint32_t most_rows;  /* and the most there may be */
};

#define SLOT_NONE UINT32_MAX

/* Waiting sequences in order of age. */
struct sequence_list {
    struct sequence *head, *tail;
    uint32_t n;
};

void sequence_list_add(struct sequence_list *list, struct sequence *seq);
void sequence_list_remove(struct sequence_list *list, struct sequence *seq);

/* A side group of the engine: its group 1 + the index here. */
struct cache_side {
    struct page_pool pool;
    enum kv_kind kind;
    uint32_t before;  /* positions that a row sees before itself; 1 for a state */
    uint32_t grain;   /* of a state */
    uint32_t run;     /* of a window: pages that a sequence takes at a time */
    uint32_t charged; /* of a window: pages reserved for running sequences; see window_room.c */
};

/* The pools and the tree, as sequences use them. */
struct cache {
    struct page_pool pool;
    struct cache_side sides[TREE_MAX_SIDES];
    uint32_t n_sides;
    struct prefix_tree *tree;
    struct image_table *images; /* NULL: the engine takes none */
    struct op_times *times;     /* or NULL */
};

static inline bool side_is_window(const struct cache *cache, uint32_t side)
{
    return cache->sides[side].kind == KV_WINDOW;
}

/* Allocates everything the sequence will ever need; `limit` bounds its length in positions. Image
 * tokens still have the request's image numbers. */
struct sequence *sequence_make(struct request *r, uint32_t limit, const struct cache *cache,
                               struct error *err);
void sequence_free(struct sequence *seq);

/* prefix_tree_evict, with its time recorded. */
uint32_t cache_evict(struct cache *cache, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns);

/* Whether prompt tokens still need log probabilities. If so, it has generated nothing yet. */
static inline bool sequence_is_scoring(const struct sequence *seq)
{
    return seq->n_scored < seq->request->n_tokens;
}

/* A batch with this sequence failed, or the device was lost. The first time, the sequence is set to
 * be computed alone up to `until`, so that no other suffers. False: it was alone already, so it is
 * to blame. */
static inline bool sequence_suspect(struct sequence *seq, uint32_t until)
{
    if (seq->alone_until > seq->n_computed)
        return false;
    seq->alone_until = until;
    return true;
}

/* The token at a position of the sequence, tagged with its owner. */
uint64_t sequence_token(const struct sequence *seq, uint32_t position, uint64_t token);

/* Begins with the pages of positions 0 .. matched - 1, which end at the locked node. */
void sequence_begin(struct sequence *seq, const struct cache *cache, node_id node,
                    uint32_t matched);
/* Takes up to `want` more pages, evicting as needed; returns how many it got. */
uint32_t sequence_reserve(struct sequence *seq, struct cache *cache, uint32_t want,
                          uint64_t now_ns);
/* Makes the runs cover exactly `length` positions, computed or about to be. */
void sequence_set_runs(struct sequence *seq, uint32_t length);
/* Inserts the computed positions into the tree. */
void sequence_insert(struct sequence *seq, struct cache *cache, uint64_t now_ns);
/* Inserts the rest, and gives back pages and lock: the state before sequence_begin. */
void sequence_release(struct sequence *seq, struct cache *cache, uint64_t now_ns);

/* Number of a side's pages that the sequence owns: private, in the pool's terms. */
uint32_t sequence_side_private(const struct sequence *seq, const struct cache *cache,
                               uint32_t side);

/* ---- a window (seq_window.c) ---- */

/* The first position that the next row sees; and how many of its positions in the tree are needed
 * for that. */
uint32_t seq_window_first(const struct sequence *seq, const struct cache *cache, uint32_t side);
uint32_t seq_window_need(const struct sequence *seq, const struct cache *cache, uint32_t side);
void seq_window_begin(struct sequence *seq, const struct cache *cache, uint32_t side);
/* Takes up to `want` more free pages; returns how many it got. */
uint32_t seq_window_take(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t want);
/* Gives back pages that no later row will see; pages reserved beyond the next `keep` rows. */
void seq_window_give_passed(struct sequence *seq, struct cache *cache, uint32_t side);
void seq_window_give_spare(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t keep);
/* Makes the runs cover what the next rows see, up to but not including position `length`. */
void seq_window_set_runs(struct sequence *seq, const struct cache *cache, uint32_t side,
                         uint32_t length);
void seq_window_inserted(struct sequence *seq, uint32_t side); /* the tree owns all computed */
void seq_window_release(struct sequence *seq, struct cache *cache, uint32_t side);

/* ---- copies of a state (seq_state.c) ---- */

/* Adds a page for a copy of the state after position `at`; the sequence now owns the page. */
void seq_state_add(struct sequence *seq, uint32_t side, uint32_t at, uint32_t page);
void seq_state_inserted(struct sequence *seq, uint32_t side);
void seq_state_release(struct sequence *seq, struct cache *cache, uint32_t side);

#endif
