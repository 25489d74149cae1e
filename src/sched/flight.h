#ifndef RADISH_SCHED_FLIGHT_H
#define RADISH_SCHED_FLIGHT_H

#include "sched/sequence.h"

/* Flights: a running sequence computes its prompt on behalf of every sequence that continues with
 * the same tokens. A newcomer that shares a longer prefix with a flight than with the tree sleeps,
 * holding no lock and no pages, until that prefix is ready, and then matches again.
 *
 *   owner     [ in the tree │ ready │ being computed ............ ]
 *   newcomer  [ same │ same ........................ ] x x x          sleeps until the flight is
 *             0      matched                    waits_until           ready up to waits_until
 */

/* Finds the running sequence whose flight shares the longest prefix with `seq`; the tree has the
 * first `matched` positions of `seq`. NULL: there is nothing to wait for. A sequence that scores
 * its prompt is slow and often recomputes what the tree has, so only other choices of its own
 * request wait for it. */
struct sequence *flight_find(struct sequence *const *running, uint32_t n_running,
                             const struct sequence *seq, uint32_t matched, uint32_t *common);
/* The owner has more positions ready: wakes the sequences that waited for them. */
void flight_advance(const struct sequence_list *waiting, const struct sequence *owner);
/* The flight is over: wakes all its waiters. If it broke off, the waiter with the longest shared
 * prefix becomes the heir: it is admitted first and continues from there. */
void flight_end(const struct sequence_list *waiting, struct sequence *owner, bool broke_off);

#endif
