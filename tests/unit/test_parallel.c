/* The thread pool: every thread runs every job once, and the barrier orders what they write. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"

enum { MAX_THREADS = 33, ROUNDS = 100 };

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
        t->cells[thread] = round * 64 + thread;
        parallel_barrier(t->pool, thread);
        uint32_t next = (thread + 1) % n_threads;
        if (t->cells[next] != round * 64 + next)
            atomic_fetch_add(&t->n_wrong, 1);
        parallel_barrier(t->pool, thread);
    }
}

static struct tally tally_open(uint32_t n_threads)
{
    struct tally t = {.n_threads = n_threads};
    struct error err;
    CHECK_INT(parallel_open(&t.pool, n_threads, NULL, &err), 0);
    CHECK_INT(parallel_threads(t.pool), n_threads);
    return t;
}

TEST(parallel, every_thread_runs_every_job_once)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 8, 9, 12, 16, 33}; /* groups whole and not */
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint32_t n = counts[c];
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
    static const uint32_t counts[] = {1, 2, 3, 4, 8, 9, 17};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct tally t = tally_open(counts[c]);
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

/* Where each thread of a job may run. */
struct places {
    cpu_set_t sets[MAX_THREADS];
};

static void place_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct places *p = context;
    (void)n_threads;
    if (sched_getaffinity(0, sizeof p->sets[thread], &p->sets[thread]) != 0)
        CPU_ZERO(&p->sets[thread]);
}

static void *run_places(void *context)
{
    static struct places places;
    parallel_run(context, place_job, &places);
    return &places;
}

static void check_pinned(const struct places *places, const struct cpu_topology *cpus)
{
    for (uint32_t i = 0; i < cpus->n_cpus; i++) {
        CHECK_INT(CPU_COUNT(&places->sets[i]), 1);
        CHECK(CPU_ISSET(cpus->order[i], &places->sets[i]));
    }
}

TEST(parallel, pinned_threads_keep_to_their_cpus)
{
    struct cpu_topology cpus;
    struct error err;
    struct parallel *pool;
    cpu_set_t before, after;
    CHECK_INT(cpu_topology_open(&cpus, &err), 0);
    if (cpus.n_cpus > MAX_THREADS)
        cpus.n_cpus = MAX_THREADS;
    CHECK_INT(sched_getaffinity(0, sizeof before, &before), 0);
    CHECK_INT(parallel_open(&pool, cpus.n_cpus, &cpus, &err), 0);
    check_pinned(run_places(pool), &cpus);
    check_pinned(run_places(pool), &cpus); /* and stay there */
    parallel_release(pool);
    CHECK_INT(sched_getaffinity(0, sizeof after, &after), 0);
    CHECK(cpus.n_cpus == MAX_THREADS || CPU_EQUAL(&before, &after));

    pthread_t other; /* takes over as thread 0, and the previous one is free */
    void *places;
    CHECK_INT(pthread_create(&other, NULL, run_places, pool), 0);
    CHECK_INT(pthread_join(other, &places), 0);
    check_pinned(places, &cpus);
    CHECK_INT(sched_getaffinity(0, sizeof before, &before), 0);
    CHECK(CPU_EQUAL(&before, &after));
    parallel_close(pool);
    CHECK_INT(sched_getaffinity(0, sizeof before, &before), 0);
    CHECK(CPU_EQUAL(&before, &after));
    cpu_topology_close(&cpus);
}

TEST(parallel, not_pinned_threads_may_run_anywhere)
{
    struct tally t = tally_open(3);
    cpu_set_t set;
    CHECK_INT(sched_getaffinity(0, sizeof set, &set), 0);
    const struct places *places = run_places(t.pool);
    for (int i = 0; i < 3; i++)
        CHECK(CPU_EQUAL(&places->sets[i], &set));
    parallel_close(t.pool);
}
