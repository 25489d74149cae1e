#ifndef RADISH_SERVE_WRITERS_LOGPROB_LIST_H
#define RADISH_SERVE_WRITERS_LOGPROB_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/scheduler.h"

/* The log probabilities of an answer's tokens, in step with its text: those of a token are sent
 * with its first byte, those of a stop string's tokens at the end. End tokens have no text and are
 * omitted.
 *
 *   items   [ given ....... | ready ..... | waiting for their text ... ]
 *           0             n_given      n_ready                         n
 */
struct logprob_item {
    int32_t token;
    uint64_t start;     /* where its bytes start in the raw text */
    uint64_t character; /* the same in characters */
    struct token_logprobs logprobs;
};

struct logprob_list {
    struct logprob_item *items; /* forgotten once all are given and another comes */
    size_t n, capacity, n_ready, n_given;
    uint64_t n_bytes, n_characters; /* of all tokens so far */
    bool failed;                    /* out of memory */
};

/* Adds a token whose text has `len` bytes. */
void logprob_list_add(struct logprob_list *l, int32_t token, const char *bytes, size_t len,
                      const struct token_logprobs *logprobs);
/* The first `shown` bytes of the text have been sent. */
void logprob_list_show(struct logprob_list *l, uint64_t shown);
bool logprob_list_has_new(const struct logprob_list *l);
void logprob_list_free(struct logprob_list *l);

#endif
