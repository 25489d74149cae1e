#ifndef RADISH_SCHED_EVENT_RING_H
#define RADISH_SCHED_EVENT_RING_H

#include <assert.h>

#include "sched/scheduler.h"

/* The ring of events inside a request: one writer (the scheduler's thread), one reader. Head and
 * tail count events since the start; the difference is what waits to be read.
 *
 *   ring   [ ][ ][e][e][e][ ][ ]
 *                 ▲ tail     ▲ head
 *
 * A sequence is computed only while two places are free: one for its token, and one that stays
 * free for its EVENT_DONE. So the last event always fits, and after it is written the request is
 * not the scheduler's any more. And so no token goes to the place that was read last: its log
 * probabilities, which lie beside the ring, stay until the next event is read. */
enum { RING_ROOM_TO_RUN = 2 };

static inline uint32_t event_ring_free(const struct request *r)
{
    uint32_t head = atomic_load_explicit(&r->ring_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&r->ring_tail, memory_order_acquire);
    return REQUEST_RING - (head - tail);
}

/* Where the log probabilities of the event that is pushed next belong. */
static inline struct token_logprobs *event_ring_logprobs(const struct request *r)
{
    uint32_t head = atomic_load_explicit(&r->ring_head, memory_order_relaxed);
    return &r->logprobs_ring[head % REQUEST_RING];
}

static inline void event_ring_push(struct request *r, const struct sched_event *event)
{
    assert(event_ring_free(r) > 0);
    uint32_t head = atomic_load_explicit(&r->ring_head, memory_order_relaxed);
    r->ring[head % REQUEST_RING] = *event;
    atomic_store_explicit(&r->ring_head, head + 1, memory_order_release);
}

/* `waiting` is how many there were, this one too. */
static inline bool event_ring_pop(struct request *r, struct sched_event *event, uint32_t *waiting)
{
    uint32_t tail = atomic_load_explicit(&r->ring_tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&r->ring_head, memory_order_acquire);
    if (head == tail)
        return false;
    *event = r->ring[tail % REQUEST_RING];
    *waiting = head - tail;
    atomic_store_explicit(&r->ring_tail, tail + 1, memory_order_release);
    return true;
}

#endif
