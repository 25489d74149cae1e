#ifndef RADISH_SERVE_API_LIMITS_H
#define RADISH_SERVE_API_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* How much a client may use. Clients are known by a number: their key's or their address's. */
enum limit {
    LIMIT_REQUESTS_AT_ONCE,
    LIMIT_REQUESTS_PER_MINUTE,
    LIMIT_TOKENS_PER_MINUTE,  /* prompt and answer */
    LIMIT_TOKENS_PER_REQUEST, /* prompt and answer */
    N_LIMITS
};

#define LIMIT_NONE UINT32_MAX /* written as 0 */

enum { LIMIT_MAX = 100000000 };

/* 0: not set, so that a default applies. */
struct limit_set {
    uint32_t of[N_LIMITS];
};

/* Sets what "requests-at-once=4" says; false if it is not a limit's name. ERROR_INPUT (-1 in
 * `failed`) for a wrong value, or one given twice; the message does not quote it. */
bool limit_read(struct limit_set *set, const char *text, size_t len, int *failed,
                struct error *err);
/* All of "requests-at-once=4 tokens-per-minute=10000", separated by spaces or commas. */
int limits_read(struct limit_set *set, const char *text, struct error *err);
/* "requests-at-once, requests-per-minute, ..." */
const char *limit_names(void);
/* What `set` leaves open is as in `otherwise`. */
struct limit_set limits_or(const struct limit_set *set, const struct limit_set *otherwise);
bool limits_any(const struct limit_set *set);
/* The number; 0: there is no limit. */
uint32_t limit_of(const struct limit_set *set, enum limit limit);

/* Meters: what each limited client uses now.
 *
 *   client ─► meter   n_running    1 ── begin ──► 2 ── end ──► 1
 *                     requests   [####......]  full again at 12:00:07
 *                     tokens     [#.........]  full again at 12:00:54
 *
 * A minute's worth is a bucket that refills evenly within a minute; all that is kept is when it
 * will be full again. So a client may use a whole minute's worth at once, and over a long time
 * exactly its limit. A request may start while any tokens are left. Tokens are charged as they are
 * counted, so a bucket may fall below empty; then nothing starts until that is paid back.
 *
 * Meters stay when limits change. A meter that is full and unused is as good as none, so it may be
 * dropped for another. If all are in use, further clients share one. Not thread-safe. */
struct meter {
    uint64_t client;
    struct limit_set limits;
    uint32_t n_running, next; /* next: in its chain or in the free list, plus 1 */
    uint64_t full_ns[LIMIT_TOKENS_PER_MINUTE + 1]; /* of the limits per minute */
};

struct limiter {
    struct meter *meters; /* [LIMITER_METERS]; NULL until the first is needed */
    uint32_t *chains;     /* [LIMITER_CHAINS] of meters by client; a meter's index plus 1 */
    uint32_t n_used, free, hand;
};

enum { LIMITER_METERS = 8192, LIMITER_CHAINS = 4096 };

/* How a client stands with a limit per minute. */
struct limit_level {
    uint32_t limit, left; /* limit 0: there is none */
    uint64_t full_in_ns;  /* until all of it is available again */
};

/* A request that may not start. */
struct limit_refusal {
    enum limit limit;
    uint32_t allowed;
    uint64_t wait_ns; /* until it may */
};

/* Starts a request; the caller ends it. Returns false, and counts nothing, if a limit forbids it.
 * `meter` is set in both cases: 0 for a client without limits. */
bool limiter_begin(struct limiter *l, uint64_t client, const struct limit_set *limits,
                   uint64_t now_ns, uint32_t *meter, struct limit_refusal *refusal);
void limiter_end(struct limiter *l, uint32_t meter);
/* Charges tokens to a client, also after its request has ended. */
void limiter_charge(struct limiter *l, uint32_t meter, uint64_t client, uint64_t n_tokens,
                    uint64_t now_ns);
/* `limit` is one per minute, and the meter that of a request that has just begun or been refused.
 */
struct limit_level limiter_level(const struct limiter *l, uint32_t meter, enum limit limit,
                                 uint64_t now_ns);
void limiter_free(struct limiter *l);

#endif
