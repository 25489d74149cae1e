/* The thread pool for computing. The owner is thread 0; the others wait for `generation` to move,
 * run the job and meet at the barrier, which also ends the job for the owner.
 *
 * Waiting has three stages: pause instructions for a few microseconds, because the other threads
 * are usually that near; then sched_yield, because on a busy machine the one that is waited for
 * may need this very core; and, only between jobs, sleep. What a newcomer gets wrong: a worker
 * counts itself as sleeping before it looks at `generation` for the last time, and the owner moves
 * `generation` before it looks whether anyone sleeps. Both are sequentially consistent, so one of
 * the two always sees the other. */
#include "base/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    PAUSES_PER_LOOK = 32,    /* between two looks at the clock */
    SPIN_NS = 20 * 1000,     /* before giving the core to others */
    SLEEP_AFTER_NS = 200000, /* between jobs, before sleeping: longer than a sampling step */
};

struct worker {
    struct parallel *pool;
    uint32_t index;
    pthread_t thread;
};

struct parallel {
    uint32_t n_threads;
    uint32_t n_started; /* workers that run, for closing a pool that was half opened */
    struct worker *workers;
    parallel_job job; /* NULL: end */
    void *context;
    pthread_mutex_t lock; /* only for sleeping */
    pthread_cond_t wake;
    _Alignas(64) atomic_uint generation; /* jobs begun */
    _Alignas(64) atomic_uint n_sleeping;
    _Alignas(64) atomic_uint n_arrived;    /* threads that wait at the barrier */
    _Alignas(64) atomic_uint barrier_turn; /* barriers passed */
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits for `word` to differ from `old`; gives up, with false, after `limit_ns` (0: never). */
static bool wait_for_change(atomic_uint *word, unsigned old, uint64_t limit_ns)
{
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old)
                return true;
            cpu_pause();
        }
        uint64_t now = clock_now_ns();
        start = start ? start : now;
        if (limit_ns && now - start > limit_ns)
            return false;
        if (now - start > SPIN_NS)
            sched_yield();
    }
}

static void sleep_until_change(struct parallel *p, unsigned old)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->generation) == old)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct parallel *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        if (!wait_for_change(&p->generation, seen, SLEEP_AFTER_NS))
            sleep_until_change(p, seen);
        if (!p->job)
            return NULL;
        p->job(p->context, w->index, p->n_threads);
        parallel_barrier(p);
    }
}

static void begin(struct parallel *p, parallel_job job, void *context)
{
    p->job = job;
    p->context = context;
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

int parallel_open(struct parallel **out, uint32_t n_threads, struct error *err)
{
    assert(n_threads > 0);
    struct parallel *p = aligned_alloc(64, sizeof *p);
    struct worker *workers = calloc(n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return error_set(err, ERROR_MEMORY, "no memory for %u threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->workers = workers;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (uint32_t i = 1; i < n_threads; i++) {
        workers[i] = (struct worker){.pool = p, .index = i};
        int failed = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (failed) {
            error_set(err, ERROR_IO, "cannot start compute thread %u of %u: %s", i + 1, n_threads,
                      strerror(failed));
            parallel_close(p);
            return -1;
        }
        p->n_started++;
    }
    *out = p;
    return 0;
}

void parallel_close(struct parallel *p)
{
    if (!p)
        return;
    begin(p, NULL, NULL);
    for (uint32_t i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p->workers);
    free(p);
}

uint32_t parallel_threads(const struct parallel *p)
{
    return p->n_threads;
}

void parallel_run(struct parallel *p, parallel_job job, void *context)
{
    assert(job);
    begin(p, job, context);
    job(context, 0, p->n_threads);
    parallel_barrier(p);
}

void parallel_barrier(struct parallel *p)
{
    /* The turn cannot move before this thread arrives, so reading it first is safe. */
    unsigned turn = atomic_load_explicit(&p->barrier_turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel) + 1 == p->n_threads) {
        atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->barrier_turn, turn + 1, memory_order_release);
        return;
    }
    wait_for_change(&p->barrier_turn, turn, 0);
}
