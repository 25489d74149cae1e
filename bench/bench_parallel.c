/* The cost of synchronising threads: bench_parallel [THREADS,THREADS,...]
 *
 *   barrier   all threads meet, and all arrive at once; compared with the simplest possible
 *             barrier (one counter and one word, no sleep) and with pthread_barrier
 *   uneven    the same after 0 to 4 us of work per thread; the work is not counted
 *   job       an empty parallel_run right after another
 *   wake      an empty parallel_run after the threads have gone to sleep: median and longest
 *   idle      processor time used by the sleeping threads, in percent of one CPU
 *
 * A decode step has about 7 barriers per layer and one job. Times are the best of several runs,
 * except for `wake`. The simple barrier is not measured with more threads than CPUs, because there
 * it stalls until the system preempts a spinning thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "base/hash.h"
#include "base/parallel.h"

enum { N_MEETINGS = 210, N_RUNS = 100, N_JOBS = 50, N_WAKES = 41, MAX_THREADS = 256 };
enum { MAX_WORK_NS = 4000 };

enum barrier_kind { BARRIER_OURS, BARRIER_PLAIN, BARRIER_PTHREAD };

struct meeting {
    struct parallel *pool;
    enum barrier_kind kind;
    bool is_uneven;
    pthread_barrier_t pthread;
    _Alignas(64) atomic_uint n_arrived;
    _Alignas(64) atomic_uint turn;
};

static void plain_barrier(struct meeting *m, uint32_t n_threads)
{
    unsigned turn = atomic_load_explicit(&m->turn, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&m->n_arrived, 1, memory_order_acq_rel) + 1 == n_threads) {
        atomic_store_explicit(&m->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&m->turn, turn + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&m->turn, memory_order_acquire) == turn)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        ;
#endif
}

static void work(uint32_t thread, uint32_t meeting)
{
    uint64_t end = clock_now_ns() + hash_pair(thread, meeting) % MAX_WORK_NS;
    while (clock_now_ns() < end)
        ;
}

static void meeting_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct meeting *m = context;
    for (uint32_t i = 0; i < N_MEETINGS; i++) {
        if (m->is_uneven)
            work(thread, i);
        switch (m->kind) {
        case BARRIER_OURS: parallel_barrier(m->pool, thread); break;
        case BARRIER_PLAIN: plain_barrier(m, n_threads); break;
        case BARRIER_PTHREAD: pthread_barrier_wait(&m->pthread); break;
        }
    }
}

/* The mean over all barriers of the longest work of any thread. */
static double longest_work_ns(uint32_t n_threads)
{
    double sum = 0;
    for (uint32_t i = 0; i < N_MEETINGS; i++) {
        uint64_t longest = 0;
        for (uint32_t t = 0; t < n_threads; t++) {
            uint64_t ns = hash_pair(t, i) % MAX_WORK_NS;
            longest = ns > longest ? ns : longest;
        }
        sum += (double)longest;
    }
    return sum / N_MEETINGS;
}

static double meeting_ns(struct parallel *pool, enum barrier_kind kind, bool is_uneven)
{
    static struct meeting m;
    double best = 1e18;
    m.pool = pool;
    m.kind = kind;
    m.is_uneven = is_uneven;
    pthread_barrier_init(&m.pthread, NULL, parallel_threads(pool));
    for (int run = 0; run < N_RUNS; run++) {
        uint64_t start = clock_now_ns();
        parallel_run(pool, meeting_job, &m);
        double ns = (double)(clock_now_ns() - start) / N_MEETINGS;
        best = ns < best ? ns : best;
    }
    pthread_barrier_destroy(&m.pthread);
    return best - (is_uneven ? longest_work_ns(parallel_threads(pool)) : 0);
}

static void empty_job(void *context, uint32_t thread, uint32_t n_threads)
{
    (void)context, (void)thread, (void)n_threads;
}

static double job_ns(struct parallel *pool)
{
    double best = 1e18;
    for (int run = 0; run < N_RUNS; run++) {
        uint64_t start = clock_now_ns();
        for (int i = 0; i < N_JOBS; i++)
            parallel_run(pool, empty_job, NULL);
        double ns = (double)(clock_now_ns() - start) / N_JOBS;
        best = ns < best ? ns : best;
    }
    return best;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void wake_ns(struct parallel *pool, double *median, double *longest)
{
    double times[N_WAKES];
    for (int i = 0; i < N_WAKES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 3 * 1000 * 1000}, NULL);
        uint64_t start = clock_now_ns();
        parallel_run(pool, empty_job, NULL);
        times[i] = (double)(clock_now_ns() - start);
    }
    qsort(times, N_WAKES, sizeof *times, by_value);
    *median = times[N_WAKES / 2];
    *longest = times[N_WAKES - 1];
}

static double idle_percent(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    clock_t before = clock();
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    return (double)(clock() - before) / CLOCKS_PER_SEC / 0.2 * 100;
}

static void measure(uint32_t n_threads, const struct cpu_topology *cpus)
{
    struct parallel *pool;
    struct error err;
    double median, longest;
    if (parallel_open(&pool, n_threads, NULL, &err)) {
        fprintf(stderr, "bench_parallel: %s\n", err.message);
        exit(1);
    }
    printf("%7u %9.0f", n_threads, meeting_ns(pool, BARRIER_OURS, false));
    if (n_threads <= cpus->n_cpus)
        printf(" %9.0f", meeting_ns(pool, BARRIER_PLAIN, false));
    else
        printf(" %9s", "-");
    printf(" %9.0f", meeting_ns(pool, BARRIER_PTHREAD, false));
    printf(" %9.0f %9.0f", meeting_ns(pool, BARRIER_OURS, true), job_ns(pool));
    wake_ns(pool, &median, &longest);
    printf(" %9.1f %9.1f %8.1f\n", median / 1e3, longest / 1e3, idle_percent());
    fflush(stdout);
    parallel_close(pool);
}

int main(int argc, char **argv)
{
    struct cpu_topology cpus;
    struct error err;
    if (cpu_topology_open(&cpus, &err)) {
        fprintf(stderr, "bench_parallel: %s\n", err.message);
        return 1;
    }
    printf("%u CPUs of %u cores (%u fast), a quota of %u; %u threads if no one says, %s\n",
           cpus.n_cpus, cpus.n_cores, cpus.n_fast, cpus.quota, cpu_topology_threads(&cpus),
           cpu_topology_should_pin(&cpus, cpu_topology_threads(&cpus)) ? "pinned" : "not pinned");
    printf("%7s %9s %9s %9s %9s %9s %9s %9s %8s\n", "threads", "barrier", "plain", "pthread",
           "uneven", "job", "wake", "longest", "idle");
    printf("%7s %9s %9s %9s %9s %9s %9s %9s %8s\n", "", "ns", "ns", "ns", "ns", "ns", "us", "us",
           "%");
    if (argc > 1) {
        for (char *at = strtok(argv[1], ","); at; at = strtok(NULL, ",")) {
            int n = atoi(at);
            if (n >= 1 && n <= MAX_THREADS)
                measure((uint32_t)n, &cpus);
        }
    } else {
        for (uint32_t n = 1; n <= 2 * cpus.n_cpus && n <= MAX_THREADS; n *= 2)
            measure(n, &cpus);
    }
    cpu_topology_close(&cpus);
    return 0;
}
