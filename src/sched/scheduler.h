#ifndef RADISH_SCHED_SCHEDULER_H
#define RADISH_SCHED_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/byte_view.h"
#include "base/error.h"
#include "cache/image_table.h"
#include "cache/prefix_tree.h"
#include "engine/engine.h"
#include "sched/op_times.h"
#include "sched/sampler.h"
#include "sched/token_filter.h"

/* The scheduler: one thread that owns the tree, the pages, the sequences and the engine, and is
 * the engine's compute thread 0. Others hand it requests through a bounded queue and read each
 * request's events from a ring of its own; nobody ever waits for a lock on the way of a token.
 *
 *   any thread  ──scheduler_submit──► [queue] ──► scheduler thread ──► [ring in the request]
 *   event loop  ◄──────notify (once a step)─────────────┘                  │
 *        └──request_next_event──────────────────────────────────────────────┘
 *
 * Life of a request:   waiting ─► running ⇄ parked (its ring is full) ─► finished
 *                        ▲ ▲ sleeping (another computes its prefix)  │
 *                        └─┴──────────── preempted ──────────────────┘
 */

/* The two things the scheduler needs from above: the bytes of each token, and what ends an answer.
 */
struct token_table {
    uint32_t n_tokens;
    const char *const *bytes; /* [n_tokens] what the token adds to the text; none for controls */
    const uint32_t *lengths;  /* [n_tokens] */
    const bool *is_end;       /* [n_tokens] end-of-generation tokens */
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELED, FINISH_ERROR };

enum event_type {
    EVENT_STARTED,  /* admitted */
    EVENT_PROGRESS, /* more of the prompt is computed; only where the request asks for it */
    EVENT_TOKEN,    /* one sampled token; an end token too, which adds nothing to the text */
    EVENT_DONE,     /* the last event; the only one of a request that ends before it is admitted */
};

struct sched_event {
    enum event_type type;
    enum finish_reason finish; /* DONE */
    int32_t token;             /* TOKEN */
    uint32_t prompt_done;      /* STARTED and PROGRESS: prompt tokens found or computed so far */
    /* Of the bytes of all tokens so far, put together, the first `text_end` may be shown: less
     * than all while a stop string may be beginning, cut before it when one has come. */
    uint64_t text_end;
    /* TOKEN, where the request asks for them: the token's entry in logprobs_ring, the reader's
     * until it reads the next event. */
    const struct token_logprobs *logprobs;
};

enum { REQUEST_RING = 128, REQUEST_MAX_STOPS = 128 };

/* A picture of a request. */
struct request_image {
    /* Of its pixels and of all that decides how they are processed: two images with one digest are
     * taken for the same. */
    unsigned char sha256[32];
    struct image_shape shape;
    const void *pixels; /* as the engine wants them */
    uint32_t width, height;
};

/* A request belongs to its maker until it is submitted, to the scheduler until its EVENT_DONE has
 * been read, then to its maker again, who frees it with what it points to. The upper half is the
 * maker's to fill in; the lower half the scheduler's. */
struct request {
    /* The prompt, at least one cache token (cache_token.h), each for one KV position. Those of an
     * image name it by its index in `images`, and stand there in order and all of them. */
    const uint64_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    const struct request_image *images; /* [n_images] */
    uint32_t n_images;
    uint64_t adapter;    /* what the engine gave when it was loaded; 0: none */
    uint32_t max_tokens; /* to generate; 0: the prompt is computed, and nothing is generated */
    uint32_t min_tokens; /* end tokens are not chosen before so many, if there is any other */
    uint64_t ns;         /* who shares a prefix with whom: cache_namespace */
    /* In a namespace that several tenants share, only the first tokens are everyone's; those behind
     * them are kept apart by their owner (cache_token.h). 0: all are everyone's. */
    uint32_t n_public, owner;
    /* Another request with the same prompt and namespace, submitted before this one and not freed
     * before it is done, or NULL: when both run this one forks off at the first sampled token, and
     * computes nothing of the prompt. */
    const struct request *leader;
    struct sampling sampling;
    /* Tokens that DRY does not reach back over, a bit for each of the token table; NULL: none. The
     * maker sets those whose text has one of the breaker strings in it. It is a bitmap because DRY
     * asks for every token that it passes; all who have the usual breakers share one. */
    const uint64_t *dry_breakers;
    const struct logit_bias *biases; /* [n_biases] */
    uint32_t n_biases;
    /* What may come next; NULL: anything. Its mask has end tokens only where the text may end; with
     * ignore_end they are not chosen even there, unless nothing else is left. */
    struct token_filter *filter;
    /* Log probabilities of generated tokens, and of the best ones in their places: entry i belongs
     * to event i of the ring. NULL: not asked for. */
    struct token_logprobs *logprobs_ring; /* [REQUEST_RING] */
    uint32_t n_top_logprobs;              /* REQUEST_MAX_TOP_LOGPROBS at most; for both */
    /* The same of prompt tokens, each given those before it: complete before the first EVENT_TOKEN,
     * and before an EVENT_DONE that is no error or cancel; the first token has NaN. Such a prompt
     * is computed from its start, whatever the cache has, and in smaller steps. NULL: not asked
     * for. */
    struct token_logprobs *prompt_logprobs; /* [n_tokens] */
    struct byte_view stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    /* Tokens that end the answer as end tokens do, and are no part of its text, from min_tokens on.
     */
    const int32_t *stop_tokens; /* [n_stop_tokens] */
    uint32_t n_stop_tokens;
    /* For editors. The answer ends at the first text of a line, but for its first line, that is
     * indented by fewer spaces and tabs than this. 0: no such rule. */
    uint32_t min_indent;
    /* The answer ends with the first line feed that comes later than this after the first token.
     * 0: never. */
    uint64_t line_limit_ns;
    bool wants_progress; /* send EVENT_PROGRESS; a reader who is far behind may miss some */
    bool ignore_end;     /* go on past end tokens */
    bool no_cache;       /* neither match nor insert */
    bool explain;        /* fill in `miss` */
    bool explain_others; /* ... and look into other namespaces for it */
    bool keeps_prompt; /* the next turn goes on behind the prompt, without all of the answer: where
                          layers have windows, what that takes is kept for a while */
    uint64_t pin_ns;   /* pin the prompt in the cache for so long; 0: not */

    atomic_bool canceled; /* set by scheduler_cancel */
    atomic_bool in_batch; /* counted among the live requests of the batch that is running */
    atomic_uint ring_head, ring_tail;
    struct sched_event ring[REQUEST_RING];
    atomic_uint prompt_done; /* prompt tokens found or computed so far: anyone may show it */
    uint32_t prompt_cached;  /* prompt tokens that were never computed for it; valid at DONE */
    uint32_t prompt_shared;  /* of these, what another request computed while this one waited */
    bool is_pinned;          /* valid at DONE */
    struct miss miss;        /* why no more of the prompt was cached; valid at DONE, if asked for */
    uint32_t n_generated;    /* valid at DONE */
    uint64_t submitted_ns, admitted_ns, first_token_ns, done_ns;
    struct byte_view stopped_by; /* the stop string that ended it; empty: none. Valid at DONE */
    struct error error; /* valid at DONE with FINISH_ERROR; ERROR_INPUT: the maker's own doing */
    struct sequence *sequence;
};

enum { SCHEDULER_MAX_PAGES = TREE_MAX_PAGES };

/* Memory that the scheduler takes for a page, at most, and for one of a side group. */
uint32_t scheduler_page_bytes(uint32_t n_sides);
uint32_t scheduler_side_page_bytes(void);

struct scheduler_options {
    struct engine *engine; /* with SCHEDULER_MAX_PAGES at most */
    struct token_table tokens;
    uint32_t max_seqs;             /* that run at once */
    uint32_t max_waiting;          /* beyond those; scheduler_submit says no past it */
    uint32_t max_length;           /* positions in a sequence */
    uint32_t step_budget_ms;       /* a step is planned to take at most this long, 1 at least */
    uint32_t state_interval;       /* copies of states are made every so many positions of a prompt,
                                      if there is room; 0: only where they are worth most */
    uint64_t cache_ttl_ns;         /* idle entries go after this; 0: never */
    uint32_t tenant_pages;         /* most that one tenant's namespace may have; 0: no cap */
    uint32_t max_images;           /* that are known at the same time; 0: 65,536 */
    void (*notify)(void *context); /* events are there; called at most twice a step */
    void *notify_context;
    struct op_times *op_times; /* records what the cache's operations take; NULL: no one asks */
};

struct pool_stats {
    uint32_t n_pages, n_free, n_owned, n_private;
};

/* A snapshot, published once a step; reading it never waits. */
struct scheduler_stats {
    uint32_t n_running, n_waiting;
    uint32_t n_pages, n_free, n_owned, n_private;
    struct pool_stats sides[TREE_MAX_SIDES]; /* all 0: there is none */
    uint64_t steps, rows, prompt_tokens, cached_tokens, generated_tokens;
    uint64_t shared_tokens;    /* of cached_tokens: computed while their request waited */
    uint64_t stopped, ran_out; /* finished: by an end token or stop string, by length */
    uint64_t canceled, failed, preempted, retried, forked;
    uint64_t n_encoded;            /* images */
    uint64_t n_lost;               /* times that the device was lost */
    uint64_t lookups[MATCH_KINDS]; /* what requests found when they were first admitted */
    struct tree_stats tree;
};

struct scheduler;

int scheduler_open(struct scheduler **out, const struct scheduler_options *options,
                   struct error *err);
/* Starts the thread. Without it, scheduler_step drives the same loop from the caller's thread. */
int scheduler_start(struct scheduler *s, struct error *err);
/* Does one step; false when there was nothing to do. */
bool scheduler_step(struct scheduler *s);
/* Stops the thread, ends what runs with FINISH_CANCELED, and frees everything but the engine.
 * The events are in the rings, but there is no scheduler left to read them through: every request
 * is its maker's again when this returns. */
void scheduler_close(struct scheduler *s);

/* Any thread. When the answer is not SUBMIT_OK the request is still its maker's, and its `error`
 * says why with the numbers in it. */
enum submit_result { SUBMIT_OK, SUBMIT_FULL, SUBMIT_TOO_LONG, SUBMIT_INVALID };
enum submit_result scheduler_submit(struct scheduler *s, struct request *r);
void scheduler_cancel(struct scheduler *s, struct request *r); /* any thread; DONE still comes */
/* The next event, if there is one. Wakes the sequence if its ring was full. */
bool scheduler_next_event(struct scheduler *s, struct request *r, struct sched_event *event);
void scheduler_read_stats(struct scheduler *s, struct scheduler_stats *out);

/* A look into the cache, or a change to it, made by the scheduler's thread between two steps. It is
 * the scheduler's from scheduler_query until `is_done`, of which notify tells. */
enum cache_query_type {
    QUERY_ENTRIES, /* a page of the stored sequences, and the last pressure events */
    QUERY_OUTLINE, /* the tree down to a level */
    QUERY_CLEAR,   /* frees what is not in use; done over as many steps as that takes */
};

struct cache_query {
    enum cache_query_type type;
    bool in_one_namespace; /* CLEAR: only in `ns` */
    uint64_t ns;
    node_id cursor;     /* ENTRIES: where to begin, 0 at first; where to go on, 0 at the end */
    uint32_t max_level; /* OUTLINE */
    struct tree_entry *entries; /* [max_entries], the asker's */
    uint32_t max_entries;

    uint32_t n_entries;
    struct pressure_event events[PRESSURE_EVENTS]; /* ENTRIES */
    uint32_t n_events;
    uint32_t n_cleared, n_cleared_side[TREE_MAX_SIDES]; /* CLEAR: pages, and those of sides */
    atomic_bool is_done;
};

/* Any thread. False when too many are waiting already. */
bool scheduler_query(struct scheduler *s, struct cache_query *q);

#endif
