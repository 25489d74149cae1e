/* The thread pool: every thread runs every job once, and the barrier orders what they write. */
#include "test.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"

enum { MAX_THREADS = 7, ROUNDS = 300 };

struct tally {
    struct parallel *pool;
    uint32_t runs[MAX_THREADS];  /* each written by one thread */
    uint32_t cells[MAX_THREADS]; /* written by one thread, read by the next one over */
    atomic_uint n_wrong;
    uint32_t n_threads;
};

static void count_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct tally *t = context;
    t->runs[thread]++;
    if (n_threads != t->n_threads)
        atomic_fetch_add(&t->n_wrong, 1);
}

/* Each thread writes its cell, all meet, each reads its neighbour's: stale values are counted. */
static void ring_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct tally *t = context;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        t->cells[thread] = round * 16 + thread;
        parallel_barrier(t->pool);
        uint32_t next = (thread + 1) % n_threads;
        if (t->cells[next] != round * 16 + next)
            atomic_fetch_add(&t->n_wrong, 1);
        parallel_barrier(t->pool);
    }
}

static struct tally tally_open(uint32_t n_threads)
{
    struct tally t = {.n_threads = n_threads};
    struct error err;
    CHECK_INT(parallel_open(&t.pool, n_threads, &err), 0);
    CHECK_INT(parallel_threads(t.pool), n_threads);
    return t;
}

TEST(parallel, every_thread_runs_every_job_once)
{
    for (uint32_t n = 1; n <= MAX_THREADS; n++) {
        struct tally t = tally_open(n);
        for (int i = 0; i < ROUNDS; i++)
            parallel_run(t.pool, count_job, &t);
        for (uint32_t i = 0; i < MAX_THREADS; i++)
            CHECK_INT(t.runs[i], i < n ? ROUNDS : 0);
        CHECK_INT(t.n_wrong, 0);
        parallel_close(t.pool);
    }
}

TEST(parallel, barrier_orders_writes)
{
    for (uint32_t n = 1; n <= 4; n++) {
        struct tally t = tally_open(n);
        parallel_run(t.pool, ring_job, &t);
        parallel_run(t.pool, ring_job, &t);
        CHECK_INT(t.n_wrong, 0);
        parallel_close(t.pool);
    }
}

TEST(parallel, wakes_from_sleep_and_sleeps_without_cpu)
{
    struct tally t = tally_open(3);
    for (int i = 0; i < 3; i++) {
        parallel_run(t.pool, count_job, &t);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    clock_t before = clock();
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    double busy_s = (double)(clock() - before) / CLOCKS_PER_SEC;
    CHECK(busy_s < 0.05); /* two spinning workers would use 0.2 s on idle cores */
    parallel_run(t.pool, count_job, &t);
    for (int i = 0; i < 3; i++)
        CHECK_INT(t.runs[i], 4);
    parallel_close(t.pool);
}

TEST(parallel, closes_unused_and_null)
{
    struct tally t = tally_open(4);
    parallel_close(t.pool);
    parallel_close(NULL);
}
