#ifndef RADISH_SCHED_TOKEN_FILTER_H
#define RADISH_SCHED_TOKEN_FILTER_H

#include <stdint.h>

/* Decides which tokens may come next in an answer (a grammar, a tool choice, a thinking budget).
 * The upper layers provide it, and the scheduler asks it before each token. A filter belongs to one
 * request: the request's maker creates it before submitting and frees it after EVENT_DONE; in
 * between only the scheduler's thread calls it. The calls do not allocate. */
struct token_filter;

enum filter_verdict {
    FILTER_GO_ON,
    FILTER_WROTE, /* the same, but the filter forced the token: not searched for stop strings */
    FILTER_END,   /* nothing can follow: this token completes the answer */
};

/* A filter that has paused holds something that all filters share. Another that takes too long is
 * then busy, and begins again with the next call. */
enum filter_progress { FILTER_READY, FILTER_PAUSED, FILTER_BUSY };

struct token_filter_ops {
    /* Works on the next mask until `until_ns` (clock_now_ns), or a little longer; once it is ready,
     * `mask` returns it at once. The mask does not depend on the pauses. NULL: masks are never
     * slow. */
    enum filter_progress (*make)(struct token_filter *f, uint32_t n_left, uint64_t until_ns);
    /* Forgets an unfinished mask: called before a filter that has paused is left alone. NULL:
     * nothing to forget. */
    void (*drop)(struct token_filter *f);
    /* The tokens that may come next: bit i % 64 of word i / 64 for token i; NULL: any. Valid until
     * the next call of this filter. `n_left` is the number of tokens that the answer may still
     * have, this one included, so that a filter can reach a valid end in time. */
    const uint64_t *(*mask)(struct token_filter *f, uint32_t n_left);
    /* What the last mask would have been without a limit on tokens; NULL: the same. If the model
     * would have continued differently, the answer counts as cut off by its length. May be NULL.
     */
    const uint64_t *(*unhurried)(struct token_filter *f);
    /* The token, one that the mask allows, was chosen. Called once for each token, in order. */
    enum filter_verdict (*accept)(struct token_filter *f, int32_t token);
};

struct token_filter {
    const struct token_filter_ops *ops;
};

#endif
