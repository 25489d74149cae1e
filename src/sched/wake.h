#ifndef RADISH_SCHED_WAKE_H
#define RADISH_SCHED_WAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Lets the scheduler's thread sleep without missing work. It notes the count, looks for work, and
 * sleeps only if the count has not changed; whoever adds work raises the count. The lock is taken
 * only around a sleep, never while there is work. */
struct wake {
    atomic_uint count;
    atomic_bool asleep;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
};

void wake_open(struct wake *w);
void wake_close(struct wake *w);
uint32_t wake_count(struct wake *w);
void wake_raise(struct wake *w); /* any thread */
/* Sleeps until the count differs from `seen`, for at most `timeout_ns` (0: no limit). */
void wake_wait(struct wake *w, uint32_t seen, uint64_t timeout_ns);

#endif
