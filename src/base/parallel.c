/* The thread pool for computing. The owner is thread 0; the others wait for the number of jobs to
 * change, run the job and meet at the barrier, which also ends the job for the owner.
 *
 * A waiting thread spins for a while, because the others are usually close, and then sleeps. It
 * never calls sched_yield: on a busy machine that gives up the core for a whole time slice, whereas
 * a sleeping thread, once woken, runs before the threads that kept the core busy. Careful: a thread
 * counts itself as sleeping before it reads the job number for the last time, and whoever changes
 * the number does so before checking for sleepers. Both are sequentially consistent, so one of the
 * two always sees the other. */
#include "base/parallel.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    PAUSES_PER_LOOK = 32,         /* between two looks at the clock */
    JOB_SPIN_NS = 200 * 1000,     /* longer than the owner takes between two decode steps */
    BARRIER_SPIN_NS = 300 * 1000, /* at most: a virtual machine wakes a CPU in about this time */
    BARRIER_SPIN_MIN_NS = 4 * 1000,
    BARRIER_SPIN_STEP_NS = 5000,
    TRIAL_BARRIERS = 4,
    TRIAL_SPIN_NS = 1000 * 1000, /* longer than it takes to wake all threads */
    TRIAL_PAUSE_MIN = 256, /* barriers between two trials: about as many as a decode step has */
    TRIAL_PAUSE_MAX = 16384,
    MAX_FLAT_THREADS = 8, /* threads that share one counter */
    GROUP_THREADS = 4,    /* if there are more */
    LINE_BYTES = 128,     /* caches fetch lines of 64 bytes in pairs */
};

struct worker {
    struct parallel *pool;
    uint32_t index;
    pthread_t thread;
};

/* A number that threads wait for. */
struct number {
    _Alignas(LINE_BYTES) atomic_uint value;
    atomic_uint n_sleeping;
};

/* Threads of a group, or groups, that have reached the barrier. */
struct gathering {
    _Alignas(LINE_BYTES) atomic_uint n_arrived;
    unsigned size;
};

/* Every arrival moves a cache line from one core to another, and arrivals at one counter wait for
 * each other. So with many threads, groups have their own counters, and only the last thread of
 * each group goes on to the counter of the groups:
 *
 *   thread      0 1 2 3   4 5 6 7   8 9 10 11   12 13 14 15
 *   groups      [  4  ]   [  4  ]   [   4   ]   [    4    ]
 *   root        [                    4                    ]    the last one raises `barriers` */
struct parallel {
    uint32_t n_threads;
    uint32_t n_started; /* running workers, for closing a half-opened pool */
    struct worker *workers;
    parallel_job job; /* NULL: end */
    void *context;
    uint32_t *cpus; /* [n_cpus] from pin_to, or NULL */
    uint32_t n_cpus;
    pthread_t owner;
    bool is_owned; /* by a thread that is pinned */
    uint32_t group_threads, n_groups;
    struct number jobs;     /* begun */
    struct number barriers; /* passed */
    struct gathering root;
    struct gathering groups[PARALLEL_MAX_THREADS / GROUP_THREADS];
    _Alignas(LINE_BYTES) atomic_uint barrier_spin_ns;
    atomic_uint trial_turn,
        trial_pause; /* barriers passed when the last trial began; until the next */
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether the number changed from `old` within `limit_ns`. */
static bool spin(struct number *n, unsigned old, uint64_t limit_ns)
{
    for (uint64_t start = 0;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(&n->value, memory_order_acquire) != old)
                return true;
            cpu_pause();
        }
        uint64_t now = clock_now_ns();
        start = start ? start : now;
        if (now - start > limit_ns)
            return false;
    }
}

static void sleep_until_change(struct number *n, unsigned old)
{
    atomic_fetch_add(&n->n_sleeping, 1);
    while (atomic_load(&n->value) == old) /* the kernel checks again before it lets us sleep */
        syscall(SYS_futex, &n->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&n->n_sleeping, 1);
}

static void change(struct number *n)
{
    atomic_fetch_add(&n->value, 1);
    if (atomic_load(&n->n_sleeping) > 0)
        syscall(SYS_futex, &n->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct parallel *p = w->pool;
    if (p->cpus)
        cpu_pin(&p->cpus[w->index], 1);
    for (unsigned seen = 0;; seen++) {
        if (!spin(&p->jobs, seen, JOB_SPIN_NS))
            sleep_until_change(&p->jobs, seen);
        if (!p->job)
            return NULL;
        p->job(p->context, w->index, p->n_threads);
        parallel_barrier(p, w->index);
    }
}

static void begin(struct parallel *p, parallel_job job, void *context)
{
    p->job = job;
    p->context = context;
    change(&p->jobs);
}

static void groups_init(struct parallel *p)
{
    p->group_threads = p->n_threads > MAX_FLAT_THREADS ? GROUP_THREADS : p->n_threads;
    p->n_groups = (p->n_threads + p->group_threads - 1) / p->group_threads;
    p->root.size = p->n_groups;
    for (uint32_t i = 0, left = p->n_threads; i < p->n_groups; i++) {
        p->groups[i].size = left < p->group_threads ? left : p->group_threads;
        left -= p->groups[i].size;
    }
}

static struct parallel *allocate(uint32_t n_threads, const struct cpu_topology *pin_to)
{
    struct parallel *p = aligned_alloc(LINE_BYTES, sizeof *p);
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->n_cpus = pin_to ? pin_to->n_cpus : 0;
    p->workers = calloc(n_threads, sizeof *p->workers);
    p->cpus = pin_to ? calloc(p->n_cpus, sizeof *p->cpus) : NULL;
    if (!p->workers || (pin_to && !p->cpus)) {
        free(p->workers);
        free(p->cpus);
        free(p);
        return NULL;
    }
    if (pin_to)
        memcpy(p->cpus, pin_to->order, p->n_cpus * sizeof *p->cpus);
    p->barrier_spin_ns = BARRIER_SPIN_NS;
    p->trial_turn = (unsigned)-TRIAL_BARRIERS;
    p->trial_pause = TRIAL_PAUSE_MIN;
    groups_init(p);
    return p;
}

int parallel_open(struct parallel **out, uint32_t n_threads, const struct cpu_topology *pin_to,
                  struct error *err)
{
    assert(n_threads > 0 && n_threads <= PARALLEL_MAX_THREADS);
    assert(!pin_to || n_threads <= pin_to->n_cpus);
    struct parallel *p = allocate(n_threads, pin_to);
    if (!p)
        return error_set(err, ERROR_MEMORY, "no memory for %u threads", n_threads);
    for (uint32_t i = 1; i < n_threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        int failed = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
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
    parallel_release(p);
    begin(p, NULL, NULL);
    for (uint32_t i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p->cpus);
    free(p);
}

uint32_t parallel_threads(const struct parallel *p)
{
    return p->n_threads;
}

void parallel_run(struct parallel *p, parallel_job job, void *context)
{
    assert(job);
    if (p->cpus && !p->is_owned) {
        cpu_pin(p->cpus, 1);
        p->owner = pthread_self();
        p->is_owned = true;
    }
    begin(p, job, context);
    job(context, 0, p->n_threads);
    parallel_barrier(p, 0);
}

void parallel_release(struct parallel *p)
{
    if (p->is_owned && pthread_equal(p->owner, pthread_self()))
        cpu_pin(p->cpus, p->n_cpus);
    p->is_owned = false;
}

/* Whether this arrival completes the group. The next arrival comes only after the barrier. */
static bool arrive(struct gathering *g)
{
    if (atomic_fetch_add_explicit(&g->n_arrived, 1, memory_order_acq_rel) + 1 < g->size)
        return false;
    atomic_store_explicit(&g->n_arrived, 0, memory_order_relaxed);
    return true;
}

/* If other programs want the cores too, the thread that the others wait for has lost its core, and
 * spinning only keeps another core from it. So after each wait where spinning failed, the spin
 * time gets shorter, and after each success a little longer. As long as threads meet at seven of
 * eight barriers it stays long, because a thread that sleeps is late for the next barriers. */
static void learn_spin(struct parallel *p, unsigned spin_ns, bool met)
{
    unsigned next_ns = spin_ns + BARRIER_SPIN_STEP_NS;
    if (!met)
        next_ns = spin_ns / 8 * 7 > BARRIER_SPIN_MIN_NS ? spin_ns / 8 * 7 : BARRIER_SPIN_MIN_NS;
    if (next_ns <= BARRIER_SPIN_NS)
        atomic_store_explicit(&p->barrier_spin_ns, next_ns, memory_order_relaxed);
}

/* A thread that slept is late for the next barrier, where the others then spin in vain, sleep, and
 * are late in turn: with many threads this could go on forever. So now and then all threads spin at
 * a few barriers in a row until they meet. If they meet soon at the last of these, they keep
 * spinning; otherwise the pause before the next trial gets longer. Returns how many barriers of a
 * trial are left. */
static unsigned trial_left(struct parallel *p, unsigned turn, unsigned spin_ns)
{
    unsigned since = turn - atomic_load_explicit(&p->trial_turn, memory_order_relaxed);
    unsigned pause = atomic_load_explicit(&p->trial_pause, memory_order_relaxed);
    if (since < TRIAL_BARRIERS)
        return TRIAL_BARRIERS - since;
    if (spin_ns == BARRIER_SPIN_NS || since < pause)
        return 0;
    atomic_store_explicit(&p->trial_turn, turn, memory_order_relaxed);
    if (pause < TRIAL_PAUSE_MAX)
        atomic_store_explicit(&p->trial_pause, 2 * pause, memory_order_relaxed);
    return TRIAL_BARRIERS;
}

static void wait_at_barrier(struct parallel *p, unsigned turn)
{
    unsigned spin_ns = atomic_load_explicit(&p->barrier_spin_ns, memory_order_relaxed);
    unsigned left = trial_left(p, turn, spin_ns);
    bool met = spin(&p->barriers, turn,
                    left > 1 ? TRIAL_SPIN_NS
                    : left   ? BARRIER_SPIN_NS
                             : spin_ns);
    if (!met)
        sleep_until_change(&p->barriers, turn);
    if (!left) {
        learn_spin(p, spin_ns, met);
    } else if (left == 1 && met) {
        atomic_store_explicit(&p->barrier_spin_ns, BARRIER_SPIN_NS, memory_order_relaxed);
        atomic_store_explicit(&p->trial_pause, TRIAL_PAUSE_MIN, memory_order_relaxed);
    }
}

void parallel_barrier(struct parallel *p, uint32_t thread)
{
    /* The number cannot change before this thread arrives, so reading it first is safe. */
    unsigned turn = atomic_load_explicit(&p->barriers.value, memory_order_relaxed);
    if (arrive(&p->groups[thread / p->group_threads]) && arrive(&p->root))
        change(&p->barriers);
    else
        wait_at_barrier(p, turn);
}
