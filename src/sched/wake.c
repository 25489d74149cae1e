/* Puts the scheduler to sleep and wakes it; see wake.h. The order makes it safe: the sleeper first
 * says that it is asleep and then reads the count; a waker first raises the count and then checks
 * whether anyone is asleep. Both are sequentially consistent, so at least one of them sees the
 * other. */
#include "sched/wake.h"

#include <time.h>

void wake_open(struct wake *w)
{
    atomic_init(&w->count, 0);
    atomic_init(&w->asleep, false);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void wake_close(struct wake *w)
{
    pthread_cond_destroy(&w->condition);
    pthread_mutex_destroy(&w->mutex);
}

uint32_t wake_count(struct wake *w)
{
    return atomic_load(&w->count);
}

void wake_raise(struct wake *w)
{
    atomic_fetch_add(&w->count, 1);
    if (!atomic_load(&w->asleep))
        return;
    pthread_mutex_lock(&w->mutex);
    pthread_cond_signal(&w->condition);
    pthread_mutex_unlock(&w->mutex);
}

void wake_wait(struct wake *w, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nanoseconds = (uint64_t)until.tv_nsec + timeout_ns % 1000000000u;
    until.tv_sec += (time_t)(timeout_ns / 1000000000u + nanoseconds / 1000000000u);
    until.tv_nsec = (long)(nanoseconds % 1000000000u);
    pthread_mutex_lock(&w->mutex);
    atomic_store(&w->asleep, true);
    int rc = 0;
    while (rc == 0 && atomic_load(&w->count) == seen)
        rc = timeout_ns ? pthread_cond_timedwait(&w->condition, &w->mutex, &until)
                        : pthread_cond_wait(&w->condition, &w->mutex);
    atomic_store(&w->asleep, false);
    pthread_mutex_unlock(&w->mutex);
}
