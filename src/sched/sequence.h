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
 * A window: a row sees the last W positions. What lies further back is not needed; it is kept while
 * nobody else wants the room.
 *
 *   positions   [ no page here │ the tree's │ given back │ its own           │ reserved ]
 *               0          first row's window    private_from      n_computed      n_reserved
 *
 * A state: it lives in a slot of the engine. `pages` has copies of it at a few positions; those
 * from n_inserted on are its own. */
struct seq_side {
    uint32_t *pages;             /* [capacity]; PAGE_NONE: none */
    struct page_run *runs;       /* [capacity], of a window */
    uint32_t first_run, end_run; /* those in use, */
    uint32_t from, to;           /* which are of positions from .. to - 1 */
    uint32_t private_from, n_reserved;
    uint32_t n_copies; /* of a state: copies that are its own */
};

/* A request on its way. Its tokens are the prompt and what was generated; the last one generated
 * has no KV yet (it is fed in the next step).
 *
 *   tokens   [ matched in the tree │ computed and inserted │ computed │ to be computed ]
 *            0                 n_matched              n_inserted  n_computed       n_tokens
 *   pages      (the tree's)      the tree's or private   private     reserved ... n_reserved
 *
 * To compute is always the same: rows for n_computed .. n_tokens - 1, the last of which gives the
 * next token. One row is a decode step; more are a prefill. A preempted sequence has n_computed 0
 * and all its tokens, so it goes on as if they were its prompt. */
struct sequence {
    struct request *request;
    struct sequence *prev, *next; /* in the waiting list */
    uint64_t age;                 /* arrival; survives preemption */
    uint64_t ns;                  /* the request's namespace, with its adapter */

    uint64_t *tokens;      /* [capacity] cache tokens */
    int32_t *generated;    /* [capacity - prompt] what the sampler sees */
    uint32_t *pages;       /* [capacity] from n_matched on */
    bool *is_private;      /* [capacity] from n_matched on: the page is ours, not the tree's */
    struct page_run *runs; /* [capacity] pages of positions 0 .. runs_length - 1 */
    uint32_t capacity;     /* tokens that it may ever have */
    uint32_t n_tokens, n_computed, n_inserted, n_matched, n_reserved;
    uint32_t n_private;
    uint32_t n_runs, runs_length;
    uint32_t prefill_end; /* n_tokens when it was admitted: up to here chunks are inserted */
    node_id node;         /* locked, ends at n_inserted; NODE_NONE: not cached */
    struct seq_side sides[TREE_MAX_SIDES];
    struct regions regions; /* images in its prompt */

    /* Where layers keep a state: its slot while it runs, and whether the state in it is that after
     * n_computed tokens. A batch that fails leaves it undefined. */
    uint32_t slot;
    bool has_state;
    uint32_t fork_point; /* others part from it here, and there is no copy: one is worth making */
    uint32_t
        alone_until; /* it may be to blame for a failure: it is computed by itself up to here */

    /* The prompt's log probabilities that are there: all, unless the request asks for them. Those
     * of tokens from here on need the logits of every position from n_scored - 1 on. */
    uint32_t n_scored;

    struct stop_matcher stops;
    struct line_rule lines;
    const uint64_t *mask; /* what its filter allows next, */
    bool has_mask;        /* if it was asked already */
    bool is_hurried;      /* its filter ends it sooner than the model would have */
    bool is_started;      /* EVENT_STARTED was sent */
    bool is_doubted;      /* it gave no numbers once: it starts over, beside the tree */
    uint32_t n_suspect;   /* what it had of the tree then, until it is known who was to blame */

    /* Flights: what it computes for others while it runs, or whom it sleeps for while it waits. */
    bool in_flight;
    uint32_t n_ready; /* positions of its flight that others may match */
    struct sequence *waits_for;
    uint32_t waits_until; /* positions that it has in common with that flight */
    bool is_heir;         /* its owner is gone and it goes first in its place */
    uint32_t n_found;     /* what the tree had when it first slept for a flight; else UINT32_MAX */

    uint32_t n_wanted;   /* pages that it asked for when it was last tried */
    uint64_t refused_at; /* when nothing has been released since, admission would fail again */
    uint32_t n_rows;     /* in the step that is being planned, */
    uint32_t most_rows;  /* and how many there may be at most */
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
    uint32_t charged; /* of a window: those that the running may need at once; see window_room.c */
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

/* Everything it will ever need is allocated here; `limit` bounds its length in positions. The
 * images of its tokens are still numbered as in the request. */
struct sequence *sequence_make(struct request *r, uint32_t limit, const struct cache *cache,
                               struct error *err);
void sequence_free(struct sequence *seq);

/* prefix_tree_evict, and its time is recorded. */
uint32_t cache_evict(struct cache *cache, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns);

/* Whether prompt tokens wait for their log probabilities. It has generated nothing then. */
static inline bool sequence_is_scoring(const struct sequence *seq)
{
    return seq->n_scored < seq->request->n_tokens;
}

/* A batch with it failed, or took the device along. The first time it is computed by itself up to
 * `until`, so that nobody else is hurt; false when it was by itself already, and is to blame. */
static inline bool sequence_suspect(struct sequence *seq, uint32_t until)
{
    if (seq->alone_until > seq->n_computed)
        return false;
    seq->alone_until = until;
    return true;
}

/* A token at a position of the sequence, with its owner. */
uint64_t sequence_token(const struct sequence *seq, uint32_t position, uint64_t token);

/* Begins with the pages of positions 0 .. matched - 1, which end at the locked node. */
void sequence_begin(struct sequence *seq, const struct cache *cache, node_id node,
                    uint32_t matched);
/* Takes up to `want` more pages, evicting as needed; how many it got. */
uint32_t sequence_reserve(struct sequence *seq, struct cache *cache, uint32_t want,
                          uint64_t now_ns);
/* The runs cover exactly `length` positions, computed or about to be. */
void sequence_set_runs(struct sequence *seq, uint32_t length);
/* Puts what is computed into the tree. */
void sequence_insert(struct sequence *seq, struct cache *cache, uint64_t now_ns);
/* Inserts what is left, gives back pages and lock: as before sequence_begin. */
void sequence_release(struct sequence *seq, struct cache *cache, uint64_t now_ns);

/* Pages of a side that are its own: private in the pool's words. */
uint32_t sequence_side_private(const struct sequence *seq, const struct cache *cache,
                               uint32_t side);

/* ---- a window (seq_window.c) ---- */

/* The first position that its next row sees, and how many of what it has in the tree are needed for
 * that. */
uint32_t seq_window_first(const struct sequence *seq, const struct cache *cache, uint32_t side);
uint32_t seq_window_need(const struct sequence *seq, const struct cache *cache, uint32_t side);
void seq_window_begin(struct sequence *seq, const struct cache *cache, uint32_t side);
/* Takes up to `want` more pages of those that are free; how many it got. */
uint32_t seq_window_take(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t want);
/* Gives back what no row of it will see any more; what is reserved for more than `keep` rows. */
void seq_window_give_passed(struct sequence *seq, struct cache *cache, uint32_t side);
void seq_window_give_spare(struct sequence *seq, struct cache *cache, uint32_t side, uint32_t keep);
/* The runs cover what the next rows see, up to, and without, the position `length`. */
void seq_window_set_runs(struct sequence *seq, const struct cache *cache, uint32_t side,
                         uint32_t length);
void seq_window_inserted(struct sequence *seq, uint32_t side); /* all computed is the tree's now */
void seq_window_release(struct sequence *seq, struct cache *cache, uint32_t side);

/* ---- copies of a state (seq_state.c) ---- */

/* A page for a copy of the state after position `at`, which is its own from now on. */
void seq_state_add(struct sequence *seq, uint32_t side, uint32_t at, uint32_t page);
void seq_state_inserted(struct sequence *seq, uint32_t side);
void seq_state_release(struct sequence *seq, struct cache *cache, uint32_t side);

#endif
