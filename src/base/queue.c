/* The bounded queue; see queue.h. A cell at index i starts with turn i: a producer whose ticket
 * equals the turn may fill it and sets turn+1; a consumer whose ticket+1 equals the turn may empty
 * it and sets the turn to its next lap. */
#include "base/queue.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

struct queue_cell {
    atomic_size_t turn;
    void *item;
};

int queue_open(struct queue *q, size_t capacity, struct error *err)
{
    size_t size = 2;
    while (size < capacity)
        size *= 2;
    q->cells = calloc(size, sizeof *q->cells);
    if (!q->cells)
        return error_set(err, ERROR_MEMORY, "no memory for a queue of %zu", size);
    q->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        atomic_init(&q->cells[i].turn, i);
    atomic_init(&q->push_at, 0);
    atomic_init(&q->pop_at, 0);
    return 0;
}

void queue_close(struct queue *q)
{
    free(q->cells);
    q->cells = NULL;
}

/* Takes the ticket at `at` once the cell's turn equals ticket + lead; NULL if it is not its turn.
 */
static struct queue_cell *cell_take(struct queue *q, atomic_size_t *at, size_t lead, size_t *ticket)
{
    *ticket = atomic_load_explicit(at, memory_order_relaxed);
    for (;;) {
        struct queue_cell *cell = &q->cells[*ticket & q->mask];
        size_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
        intptr_t ahead = (intptr_t)turn - (intptr_t)(*ticket + lead);
        if (ahead < 0)
            return NULL;
        if (ahead > 0)
            *ticket = atomic_load_explicit(at, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(at, ticket, *ticket + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
            return cell;
    }
}

bool queue_push(struct queue *q, void *item)
{
    assert(item);
    size_t ticket;
    struct queue_cell *cell = cell_take(q, &q->push_at, 0, &ticket);
    if (!cell)
        return false;
    cell->item = item;
    atomic_store_explicit(&cell->turn, ticket + 1, memory_order_release);
    return true;
}

void *queue_pop(struct queue *q)
{
    size_t ticket;
    struct queue_cell *cell = cell_take(q, &q->pop_at, 1, &ticket);
    if (!cell)
        return NULL;
    void *item = cell->item;
    atomic_store_explicit(&cell->turn, ticket + q->mask + 1, memory_order_release);
    return item;
}
