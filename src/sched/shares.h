#ifndef RADISH_SCHED_SHARES_H
#define RADISH_SCHED_SHARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct request;
struct sequence;

/* Who gets the queue, the places in a batch, and the steps. Tenants get equal shares, and so do the
 * clients of a tenant, however many requests each sends; the requests of a client go in order.
 *
 *                all
 *          ┌──────┴──────┐
 *       tenant         tenant        fewest running first, then fewest rows used
 *      ┌───┴───┐          │
 *   client   client    client
 *
 * Shares are slots of a table. Names that fall into the same slot share it. */
struct share {
    atomic_uint n_accepted; /* any thread: submitted and not done */
    uint32_t n_running;
    uint64_t used; /* rows computed for it, but never behind the clock of the level above */
    uint64_t now;  /* the clock of the level below: nobody who runs there has used less */
    uint64_t least;
};

enum { SHARE_TENANTS = 1024, SHARE_CLIENTS = 4096 };

struct shares {
    struct share all, tenants[SHARE_TENANTS], clients[SHARE_CLIENTS];
};

/* Any thread: counts a request among at most `most`. A request beyond those is counted too while
 * its tenant, or its client within the tenant, holds at most half: shares_last then tells who makes
 * room. False: there is no room. */
bool shares_enter(struct shares *x, const struct request *r, uint32_t most);
void shares_leave(struct shares *x, const struct request *r); /* any thread */

/* The rest is for the scheduler's thread. */
void shares_of(struct shares *x, struct sequence *seq); /* fills in its tenant and client */

/* Whether `a` is to be admitted before `b`. */
bool shares_is_before(const struct shares *x, const struct sequence *a, const struct sequence *b);
/* The same for prompts of running sequences, where it does not matter how many run. */
bool shares_has_used_less(const struct shares *x, const struct sequence *a,
                          const struct sequence *b);
/* Of two that wait, whether `a` leaves the queue before `b`; of two that run, whether `a` yields
 * its pages before `b`. */
bool shares_waits_last(const struct sequence *a, const struct sequence *b);
bool shares_runs_last(const struct sequence *a, const struct sequence *b);
/* The tenant that runs so many more sequences than the tenant of `seq` that one of them has to
 * yield to it; else a client of its own tenant that does; NULL: none. `*n_excess` is the number
 * that have to yield at most. */
const struct share *shares_find_excess(struct sequence *const *running, uint32_t n_running,
                                       const struct sequence *seq, uint32_t *n_excess);

void shares_add_running(struct sequence *seq);
void shares_remove_running(struct sequence *seq);
/* After a batch: the planned sequences pay for their rows. */
void shares_charge(struct shares *x, struct sequence *const *planned, uint32_t n);

#endif
