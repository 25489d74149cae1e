/* The thread pool for computing. The owner is thread 0; the others wait for `generation` to move,
 * run the job and meet at the barrier, which also ends the job for the owner.
 *
 * Who waits spins for a while, because the others are usually near, and then sleeps. It never calls
 * sched_yield: on a busy machine that gives the core away for a whole time slice, while a sleeper
 * that is woken comes before the threads that kept the core busy. What a newcomer gets wrong: a
 * thread counts itself as sleeping before it looks at the word for the last time, and who moves the
 * word does so before it looks whether anyone sleeps. Both are sequentially consistent, so one of
 * the two always sees the other. */
#include "base/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    PAUSES_PER_LOOK = 32,        /* between two looks at the clock */
    JOB_SPIN_NS = 200 * 1000,    /* longer than the owner takes from one decode step to the next */
    BARRIER_SPIN_NS = 60 * 1000, /* at most: longer than the shares of a phase differ */
    BARRIER_SPIN_MIN_NS = 4 * 1000,
    BARRIER_SPIN_STEP_NS = 1000,
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
    _Alignas(64) atomic_uint barrier_spin_ns;
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether `word` came to differ from `old` within `limit_ns`. */
static bool spin(atomic_uint *word, unsigned old, uint64_t limit_ns)
{
    for (uint64_t start = 0;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old)
                return true;
            cpu_pause();
        }
        uint64_t now = clock_now_ns();
        start = start ? start : now;
        if (now - start > limit_ns)
            return false;
    }
}

static void sleep_until_change(struct parallel *p, atomic_uint *word, unsigned old)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(word) == old)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void change(struct parallel *p, atomic_uint *word)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct parallel *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        if (!spin(&p->generation, seen, JOB_SPIN_NS))
            sleep_until_change(p, &p->generation, seen);
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
    change(p, &p->generation);
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
    p->barrier_spin_ns = BARRIER_SPIN_NS;
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

/* Where other programs want the cores too, it is the thread that is waited for that has lost its
 * own, and spinning only keeps another from it. So each time that spinning was in vain it is tried
 * for a shorter time, and each time that it was not, for a little longer again. */
static void wait_at_barrier(struct parallel *p, unsigned turn)
{
    unsigned spin_ns = atomic_load_explicit(&p->barrier_spin_ns, memory_order_relaxed);
    unsigned next_ns = spin_ns + BARRIER_SPIN_STEP_NS;
    if (!spin(&p->barrier_turn, turn, spin_ns)) {
        sleep_until_change(p, &p->barrier_turn, turn);
        next_ns = spin_ns / 4 > BARRIER_SPIN_MIN_NS ? spin_ns / 4 : BARRIER_SPIN_MIN_NS;
    }
    if (next_ns <= BARRIER_SPIN_NS)
        atomic_store_explicit(&p->barrier_spin_ns, next_ns, memory_order_relaxed);
}

void parallel_barrier(struct parallel *p)
{
    /* The turn cannot move before this thread arrives, so reading it first is safe. */
    unsigned turn = atomic_load_explicit(&p->barrier_turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel) + 1 == p->n_threads) {
        atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
        change(p, &p->barrier_turn);
        return;
    }
    wait_at_barrier(p, turn);
}
