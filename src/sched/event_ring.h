#ifndef RADISH_SCHED_EVENT_RING_H
#define RADISH_SCHED_EVENT_RING_H

#include <assert.h>

#include "sched/scheduler.h"

/* The ring of events inside a request: one writer (the scheduler's thread), one reader. Head and
 * tail count events since the start; the difference is the number of unread events.
 *
 *   ring   [ ][ ][e][e][e][ ][ ]
 *                 ▲ tail     ▲ head
 *
 * A sequence is computed only while two slots are free: one for its token, and one reserved for its
 * EVENT_DONE. So the last event always fits; once it is written, the request no longer belongs to
 * the scheduler. It also means that no token overwrites the slot that was read last: its log
 * probabilities, stored beside the ring, stay valid until the next event is read. */
enum { RING_ROOM_TO_RUN = 2 };

static inline uint32_t event_ring_free(const struct request *r)
{
    uint32_t head = atomic_load_explicit(&r->ring_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&r->ring_tail, memory_order_acquire);
    return REQUEST_RING - (head - tail);
}

/* The log probabilities of the event that is pushed next go here. */
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

/* `waiting`: number of unread events before the call, this one included. */
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
