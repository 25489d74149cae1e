#ifndef RADISH_BASE_IDLE_POOL_H
#define RADISH_BASE_IDLE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Working memory that calls of any thread lend each other: a call takes a piece that is idle, or
 * makes one, is alone with it, and leaves it for the next. So there are as many as calls ran at
 * once, and no call waits for another. Zero-initialise. */
enum { IDLE_POOL_SLOTS = 16 };

struct idle_pool {
    _Atomic(void *) slots[IDLE_POOL_SLOTS];
};

/* NULL: none is idle. Also how its owner empties the pool. */
static inline void *idle_pool_take(struct idle_pool *pool)
{
    for (int i = 0; i < IDLE_POOL_SLOTS; i++) {
        void *piece = atomic_exchange(&pool->slots[i], NULL);
        if (piece)
            return piece;
    }
    return NULL;
}

/* False: there is no place for it, and it stays the caller's. */
static inline bool idle_pool_leave(struct idle_pool *pool, void *piece)
{
    for (int i = 0; i < IDLE_POOL_SLOTS; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&pool->slots[i], &none, piece))
            return true;
    }
    return false;
}

#endif
