#ifndef RADISH_BASE_QUEUE_H
#define RADISH_BASE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* A bounded queue of pointers for any number of producers and consumers that never blocks: push
 * returns false when it is full, pop returns NULL when it is empty. Each cell carries the turn it
 * waits for, so both ends move with one compare-and-swap.
 *
 *   cells   [turn|item] [turn|item] [turn|item] ...    (a power of two of them)
 *                ▲ pop_at                ▲ push_at */
struct queue_cell;

struct queue {
    struct queue_cell *cells;
    size_t mask;
    _Alignas(64) atomic_size_t push_at;
    _Alignas(64) atomic_size_t pop_at;
};

int queue_open(struct queue *q, size_t capacity, struct error *err); /* rounded up to 2^n */
void queue_close(struct queue *q);
bool queue_push(struct queue *q, void *item); /* item is not NULL */
void *queue_pop(struct queue *q);

#endif
