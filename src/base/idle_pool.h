#ifndef RADISH_BASE_IDLE_POOL_H
#define RADISH_BASE_IDLE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Working memory that calls on any thread share: a call takes an idle piece or makes one, uses it
 * alone, and leaves it for the next. So there are as many pieces as calls ever ran at once, and no
 * call waits for another. Zero-initialize. */
enum { IDLE_POOL_SLOTS = 16 };

struct idle_pool {
    _Atomic(void *) slots[IDLE_POOL_SLOTS];
};

/* NULL: none is idle. The owner also empties the pool with this. */
static inline void *idle_pool_take(struct idle_pool *pool)
{
    for (int i = 0; i < IDLE_POOL_SLOTS; i++) {
        void *piece = atomic_exchange(&pool->slots[i], NULL);
        if (piece)
            return piece;
    }
    return NULL;
}

/* False: the pool is full, and the caller keeps it. */
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
