#ifndef RADISH_SCHED_FLIGHT_H
#define RADISH_SCHED_FLIGHT_H

#include "sched/sequence.h"

/* Flights: a running sequence that computes its prompt does so for everyone who has the same
 * tokens next. A newcomer that has more in common with a flight than the tree can give it sleeps,
 * without lock or page, until that much is ready, and then matches again.
 *
 *   owner     [ in the tree │ ready │ being computed ............ ]
 *   newcomer  [ same │ same ........................ ] x x x          sleeps until the flight is
 *             0      matched                    waits_until           ready up to waits_until
 */

/* The owner among the running whose flight has the most in common with `seq`, of which the tree
 * has `matched`; NULL when there is nothing to wait for. One that scores its prompt is slow, and
 * often computes what the tree has: nobody waits for it but choices of its own request. */
struct sequence *flight_find(struct sequence *const *running, uint32_t n_running,
                             const struct sequence *seq, uint32_t matched, uint32_t *common);
/* The owner has more ready: wakes those whose part it is. */
void flight_advance(const struct sequence_list *waiting, const struct sequence *owner);
/* The flight is over; everyone is woken. If it broke off, the one with the longest common part
 * is the heir, who is admitted first and goes on from there. */
void flight_end(const struct sequence_list *waiting, struct sequence *owner, bool broke_off);

#endif
