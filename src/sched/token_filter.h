#ifndef RADISH_SCHED_TOKEN_FILTER_H
#define RADISH_SCHED_TOKEN_FILTER_H

#include <stdint.h>

/* What may come next in an answer, decided from above (a grammar, a tool choice, a budget of
 * thinking) and asked by the scheduler before each token. A filter belongs to one request: its
 * maker makes it before submitting and frees it after EVENT_DONE; in between only the scheduler's
 * thread calls it. Neither call allocates. */
struct token_filter;

enum filter_verdict {
    FILTER_GO_ON,
    FILTER_WROTE, /* the same, but the filter had the token written: no stop string is in it */
    FILTER_END,   /* nothing can follow: the answer is complete with this token */
};

struct token_filter_ops {
    /* A bit for each token of the vocabulary, bit i % 64 of word i / 64: those that may come next;
     * NULL: any may. Valid until the next call of this filter. `n_left` is how many tokens the
     * answer may still have, this one included: a filter that must end well sees to it in time. */
    const uint64_t *(*mask)(struct token_filter *f, uint32_t n_left);
    /* What the last mask would have been with any number of tokens left; NULL: the same. Where the
     * model would have gone on otherwise, the answer counts as cut off by its length. May be NULL.
     */
    const uint64_t *(*unhurried)(struct token_filter *f);
    /* The token was chosen, one that the mask has. Called once for each, in order. */
    enum filter_verdict (*accept)(struct token_filter *f, int32_t token);
};

struct token_filter {
    const struct token_filter_ops *ops;
};

#endif
