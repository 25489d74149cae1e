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

/* The scheduler: one thread that owns the tree, the pages, the sequences and the engine, and is the
 * engine's compute thread 0. Other threads submit requests through a bounded queue and read each
 * request's events from the request's own ring; a token never waits for a lock on its way to the
 * reader.
 *
 *   any thread  ──scheduler_submit──► [queue] ──► scheduler thread ──► [ring in the request]
 *   event loop  ◄──────notify (once a step)─────────────┘                  │
 *        └──request_next_event──────────────────────────────────────────────┘
 *
 * Life of a request:   waiting ─► running ⇄ parked (its ring is full) ─► finished
 *                        ▲ ▲ sleeping (another computes its prefix)  │
 *                        └─┴──────────── preempted ──────────────────┘
 */

/* What the scheduler needs from above: the bytes of each token, and which tokens end an answer. */
struct token_table {
    uint32_t n_tokens;
    const char *const *bytes; /* [n_tokens] what the token adds to the text; empty for controls */
    const uint32_t *lengths;  /* [n_tokens] */
    const bool *is_end;       /* [n_tokens] end-of-generation tokens */
};

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELED, FINISH_ERROR };

enum event_type {
    EVENT_STARTED,  /* admitted */
    EVENT_PROGRESS, /* more of the prompt is computed; only if the request asks for it */
    EVENT_TOKEN,    /* one sampled token; also an end token, which adds no text */
    EVENT_DONE,     /* the last event; the only one if the request ends before admission */
};

struct sched_event {
    enum event_type type;
    enum finish_reason finish; /* DONE */
    int32_t token;             /* TOKEN */
    uint32_t prompt_done;      /* STARTED and PROGRESS: prompt tokens found or computed so far */
    /* The first `text_end` bytes of all tokens so far may be shown: fewer than all while a stop
     * string may be starting; up to the stop string once one is complete. */
    uint64_t text_end;
    /* TOKEN, if the request asks for them: the token's entry in logprobs_ring, valid until the
     * reader takes the next event. */
    const struct token_logprobs *logprobs;
};

enum { REQUEST_RING = 128, REQUEST_MAX_STOPS = 128 };

/* An image in a request. */
struct request_image {
    /* Covers the pixels and everything that affects how they are processed: images with equal
     * digests count as the same. */
    unsigned char sha256[32];
    struct image_shape shape;
    const void *pixels; /* in the engine's format */
    uint32_t width, height;
};

/* A request belongs to its maker until it is submitted, to the scheduler until its EVENT_DONE has
 * been read, then to its maker again, who frees it and what it points to. The maker fills in the
 * upper half, the scheduler the lower half. */
struct request {
    /* The prompt: at least one cache token (cache_token.h), each for one KV position. The tokens of
     * an image name it by its index in `images`; all of them must be there, in order. */
    const uint64_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    const struct request_image *images; /* [n_images] */
    uint32_t n_images;
    uint64_t adapter;    /* the engine's handle for the adapter; 0: none */
    uint32_t max_tokens; /* to generate; 0: only compute the prompt */
    uint32_t min_tokens; /* no end token before this many, unless nothing else is allowed */
    uint64_t ns;         /* requests share prefixes within a namespace: cache_namespace */
    /* In a namespace that several tenants share, only the first `n_public` tokens are shared; those
     * after them are kept apart by their owner (cache_token.h). 0: all tokens are shared. */
    uint32_t n_public, owner;
    /* Who asks: tenants get equal shares, and so do the clients of a tenant. */
    uint32_t tenant;
    uint64_t client;
    /* NULL, or another request with the same prompt and namespace, submitted before this one and
     * not freed until this one is done. When both run, this one forks off at the first sampled
     * token and computes nothing of the prompt. */
    const struct request *leader;
    struct sampling sampling;
    /* Tokens that end DRY's repetitions, one bit for each token of the table; NULL: none. The maker
     * sets the bits of tokens whose text contains a breaker string. It is a bitmap because DRY
     * checks every token that it passes; all requests with the default breakers share one. */
    const uint64_t *dry_breakers;
    const struct logit_bias *biases; /* [n_biases] */
    uint32_t n_biases;
    /* Restricts what may come next; NULL: nothing is restricted. Its mask has end tokens only where
     * the text may end; with ignore_end they are not chosen even there, unless nothing else is
     * allowed. */
    struct token_filter *filter;
    /* Log probabilities of the generated tokens and of the best alternatives: entry i belongs to
     * event i of the ring. NULL: not requested. */
    struct token_logprobs *logprobs_ring; /* [REQUEST_RING] */
    uint32_t n_top_logprobs;              /* REQUEST_MAX_TOP_LOGPROBS at most; for both */
    bool wants_drawn_logprobs; /* those of the distribution that each token was drawn from, not the
                                  model's own */
    /* The same for the prompt tokens, each given the tokens before it; the first has NaN. Complete
     * before the first EVENT_TOKEN, and before an EVENT_DONE that is not an error or a cancel. Such
     * a prompt is computed from its start, whatever the cache has, and in smaller steps. NULL: not
     * requested. */
    struct token_logprobs *prompt_logprobs; /* [n_tokens] */
    struct byte_view stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    /* Tokens that end the answer as end tokens do, from min_tokens on, and add no text. */
    const int32_t *stop_tokens; /* [n_stop_tokens] */
    uint32_t n_stop_tokens;
    /* For editors. The answer ends at the first text of a line, other than its first line, that is
     * indented by fewer spaces and tabs than this. 0: off. */
    uint32_t min_indent;
    /* The answer ends with the first line feed that comes more than this after the first token. 0:
     * off. */
    uint64_t line_limit_ns;
    bool wants_progress; /* send EVENT_PROGRESS; a slow reader may miss some */
    bool ignore_end;     /* continue past end tokens */
    bool no_cache;       /* neither match nor insert */
    bool explain;        /* fill in `miss` */
    bool explain_others; /* ... also looking into other namespaces */
    bool keeps_prompt; /* the next turn continues from the prompt, without all of the answer: where
                          layers have windows, the pages for that are kept for a while */
    uint64_t pin_ns;   /* pin the prompt in the cache for this long; 0: do not pin */

    atomic_bool canceled; /* set by scheduler_cancel */
    atomic_bool in_batch; /* counted among the live requests of the running batch */
    atomic_uint ring_head, ring_tail;
    struct sched_event ring[REQUEST_RING];
    atomic_uint prompt_done; /* prompt tokens found or computed so far; any thread may read it */
    uint32_t prompt_cached;  /* prompt tokens that were not computed for it; valid at DONE */
    uint32_t prompt_shared;  /* of these, computed by another request while this one waited */
    bool is_pinned;          /* valid at DONE */
    struct miss miss;        /* why no more of the prompt was cached; valid at DONE, if requested */
    uint32_t n_generated;    /* valid at DONE */
    uint64_t submitted_ns, admitted_ns, first_token_ns, done_ns;
    struct byte_view stopped_by; /* the stop string that ended it; empty: none. Valid at DONE */
    struct error error; /* valid at DONE with FINISH_ERROR; ERROR_INPUT: the request is at fault */
    struct sequence *sequence;
};

enum { SCHEDULER_MAX_PAGES = TREE_MAX_PAGES };

/* The most memory that the scheduler takes for a page, and for a page of a side group. */
uint32_t scheduler_page_bytes(uint32_t n_sides);
uint32_t scheduler_side_page_bytes(void);

struct scheduler_options {
    struct engine *engine; /* with at most SCHEDULER_MAX_PAGES pages */
    struct token_table tokens;
    uint32_t max_seqs;             /* running at once */
    uint32_t max_waiting;          /* beyond those; past it scheduler_submit returns SUBMIT_FULL */
    uint32_t max_length;           /* positions in a sequence */
    uint32_t step_budget_ms;       /* a step is planned to take at most this long; at least 1 */
    uint32_t state_interval;       /* states are copied every this many positions of a prompt, if
                                      there is room; 0: only where a copy is worth most */
    uint64_t cache_ttl_ns;         /* idle entries are evicted after this; 0: never */
    uint32_t tenant_pages;         /* limit for one tenant's namespace; 0: no limit */
    uint32_t max_images;           /* known at the same time; 0: 65,536 */
    void (*notify)(void *context); /* there are new events; called at most twice a step */
    void *notify_context;
    struct op_times *op_times; /* records how long the cache's operations take; NULL: off */
};

struct pool_stats {
    uint32_t n_pages, n_free, n_owned, n_private;
};

/* A snapshot, published once a step; reading it never waits. */
struct scheduler_stats {
    uint32_t n_running, n_waiting;
    uint32_t n_pages, n_free, n_owned, n_private;
    struct pool_stats sides[TREE_MAX_SIDES]; /* all 0: no such side */
    uint64_t steps, rows, prompt_tokens, cached_tokens, generated_tokens;
    uint64_t shared_tokens;    /* of cached_tokens: computed while their request waited */
    uint64_t stopped, ran_out; /* finished by an end token or stop string; by length */
    uint64_t canceled, failed, preempted, retried, forked;
    uint64_t n_encoded;            /* images */
    uint64_t n_lost;               /* times the device was lost */
    uint64_t lookups[MATCH_KINDS]; /* what requests found when they were first admitted */
    struct tree_stats tree;
};

struct scheduler;

int scheduler_open(struct scheduler **out, const struct scheduler_options *options,
                   struct error *err);
/* Starts the thread. Without it, scheduler_step drives the same loop from the caller's thread. */
int scheduler_start(struct scheduler *s, struct error *err);
/* Does one step; false if there was nothing to do. */
bool scheduler_step(struct scheduler *s);
/* Stops the thread, ends all requests with FINISH_CANCELED, and frees everything but the engine.
 * The events are in the rings, but there is no scheduler left to read them through: every request
 * belongs to its maker again when this returns. */
void scheduler_close(struct scheduler *s);

/* Any thread. If the result is not SUBMIT_OK, the request still belongs to its maker, and its
 * `error` gives the reason, with figures. */
enum submit_result { SUBMIT_OK, SUBMIT_FULL, SUBMIT_TOO_LONG, SUBMIT_INVALID };
enum submit_result scheduler_submit(struct scheduler *s, struct request *r);
void scheduler_cancel(struct scheduler *s, struct request *r); /* any thread; DONE still comes */
/* The next event, if there is one. Wakes the sequence if its ring was full. */
bool scheduler_next_event(struct scheduler *s, struct request *r, struct sched_event *event);
void scheduler_read_stats(struct scheduler *s, struct scheduler_stats *out);

/* A query of the cache, or a change to it, that the scheduler's thread carries out between steps.
 * It belongs to the scheduler from scheduler_query until `is_done`; notify is called when it is
 * done. */
enum cache_query_type {
    QUERY_ENTRIES, /* a page of the stored sequences, and the last pressure events */
    QUERY_OUTLINE, /* the tree down to a level */
    QUERY_CLEAR,   /* frees what is not in use, over as many steps as needed */
};

struct cache_query {
    enum cache_query_type type;
    bool in_one_namespace; /* CLEAR: only in `ns` */
    uint64_t ns;
    uint32_t tenant;    /* ENTRIES: only this tenant's; 0: all */
    node_id cursor;     /* ENTRIES: where to begin (0: start); then where to continue (0: end) */
    uint32_t max_level; /* OUTLINE */
    struct tree_entry *entries; /* [max_entries], the caller's */
    uint32_t max_entries;

    uint32_t n_entries;
    struct pressure_event events[PRESSURE_EVENTS]; /* ENTRIES */
    uint32_t n_events;
    uint32_t n_cleared, n_cleared_side[TREE_MAX_SIDES]; /* CLEAR: pages, and pages of sides */
    atomic_bool is_done;
};

/* Any thread. False: too many queries are waiting. */
bool scheduler_query(struct scheduler *s, struct cache_query *q);

#endif
