/* The mock's device: does jobs in the order they are issued. A synchronous engine does them in the
 * caller's thread: a batch when it is waited for or when the next job comes, everything else at
 * once. An asynchronous one has a thread for them.
 *
 * Jobs take as long as on a device: with its own thread, a job begins when it was issued, or when
 * the one before it ended, and not when the thread woke up for it. Long waits sleep, and the last
 * part of each spins on the clock, so that 200 us are 200 us. */
#include <assert.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/mock/mock_internal.h"

enum {
    LOOK_EVERY_NS = 500 * 1000, /* how often a waiting batch checks its live count */
    SPIN_NS = 120 * 1000,       /* more than the usual delay of a sleep */
    SPIN_TURNS = 100,           /* before a thread without jobs sleeps */
};

uint64_t device_rubbish(struct mock_engine *m)
{
    return hash_pair(SALT_RUBBISH, ++m->n_rubbish);
}

void device_spoil_all(struct mock_engine *m)
{
    for (uint32_t g = 0; g < m->engine.info.n_groups; g++)
        for (uint32_t i = 0; i < m->engine.limits.n_pages[g]; i++)
            m->pages[g][i] = device_rubbish(m);
    for (uint32_t i = 0; m->state_group && i < m->engine.limits.n_slots; i++)
        m->slots[i] = (struct mock_slot){.state = device_rubbish(m)};
}

/* Sleeps or spins towards a time, for a short while. */
static void wait_a_little(uint64_t now_ns, uint64_t end_ns)
{
    uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
    if (left_ns <= SPIN_NS)
        return;
    left_ns -= SPIN_NS;
    nanosleep(&(struct timespec){0, (long)(left_ns < LOOK_EVERY_NS ? left_ns : LOOK_EVERY_NS)},
              NULL);
}

static bool is_stopped(const atomic_int *live)
{
    return live && atomic_load_explicit(live, memory_order_acquire) <= 0;
}

bool device_spend(struct mock_engine *m, uint64_t cost_us, uint64_t issued_ns,
                  const atomic_int *live)
{
    if (cost_us == 0)
        return !is_stopped(live);
    uint64_t now_ns = clock_now_ns(), begin_ns = now_ns;
    if (m->has_thread)
        begin_ns = issued_ns > m->free_ns ? issued_ns : m->free_ns;
    uint64_t end_ns = begin_ns + cost_us * 1000;
    atomic_store(&m->busy_until_ns, end_ns);
    for (; !is_stopped(live); now_ns = clock_now_ns()) {
        if (now_ns >= end_ns) {
            m->free_ns = end_ns;
            return true;
        }
        wait_a_little(now_ns, end_ns);
    }
    m->free_ns = now_ns;
    return false;
}

static void run_job(struct mock_engine *m, const struct job *job)
{
    if (job->kind == JOB_BATCH) {
        m->result = compute_batch(m, job->batch, job->issued_ns, &m->error);
        return;
    }
    if (m->device_is_lost) {
        if (job->kind == JOB_IO)
            job->ticket->is_lost = true;
        return;
    }
    switch (job->kind) {
    case JOB_COPY: compute_copy(m, &job->copy); break;
    case JOB_ROLL_BACK: compute_roll_back(m, job->roll_back.slot, job->roll_back.position); break;
    case JOB_SPEND: device_spend(m, job->cost_us, job->issued_ns, NULL); break;
    default: io_execute(m, job->ticket, job->issued_ns); break;
    }
}

/* Does all queued jobs. */
static void run_jobs(struct mock_engine *m)
{
    uint64_t n_done = atomic_load_explicit(&m->n_done, memory_order_relaxed);
    while (n_done < atomic_load_explicit(&m->n_issued, memory_order_acquire)) {
        run_job(m, &m->jobs[n_done % MAX_JOBS]);
        atomic_store_explicit(&m->n_done, ++n_done, memory_order_release);
    }
}

static bool is_idle(struct mock_engine *m)
{
    return atomic_load(&m->n_issued) == atomic_load(&m->n_done) && !atomic_load(&m->is_closing);
}

static void *device_main(void *context)
{
    struct mock_engine *m = context;
    while (!atomic_load(&m->is_closing)) {
        run_jobs(m);
        for (int i = 0; i < SPIN_TURNS && is_idle(m); i++)
            sched_yield();
        pthread_mutex_lock(&m->mutex);
        while (is_idle(m))
            pthread_cond_wait(&m->wakeup, &m->mutex);
        pthread_mutex_unlock(&m->mutex);
    }
    return NULL;
}

bool device_has_done(struct mock_engine *m, uint64_t job)
{
    return atomic_load_explicit(&m->n_done, memory_order_acquire) >= job;
}

void device_wait(struct mock_engine *m, uint64_t job)
{
    if (!m->has_thread)
        run_jobs(m);
    while (!device_has_done(m, job)) {
        wait_a_little(clock_now_ns(), atomic_load(&m->busy_until_ns));
        sched_yield();
    }
}

/* Wakes the thread, which may be about to sleep. */
static void wake(struct mock_engine *m)
{
    pthread_mutex_lock(&m->mutex);
    pthread_cond_signal(&m->wakeup);
    pthread_mutex_unlock(&m->mutex);
}

static bool takes_time(const struct mock_options *o)
{
    return o->row_cost_us || o->batch_cost_us || o->image_row_cost_us || o->io_page_cost_us;
}

uint64_t device_issue(struct mock_engine *m, struct job job)
{
    uint64_t n = atomic_load_explicit(&m->n_issued, memory_order_relaxed);
    if (m->has_thread && n >= MAX_JOBS)
        device_wait(m, n + 1 - MAX_JOBS);
    job.issued_ns = m->has_thread && takes_time(&m->options) ? clock_now_ns() : 0;
    m->jobs[n % MAX_JOBS] = job;
    atomic_store_explicit(&m->n_issued, ++n, memory_order_release);
    if (m->has_thread)
        wake(m);
    else if (job.kind != JOB_BATCH)
        run_jobs(m);
    return n;
}

int device_open(struct mock_engine *m, struct error *err)
{
    if (!m->options.is_async)
        return 0;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wakeup, NULL);
    if (pthread_create(&m->thread, NULL, device_main, m))
        return error_set(err, ERROR_MEMORY, "cannot start the mock engine's thread");
    m->has_thread = true;
    return 0;
}

void device_close(struct mock_engine *m)
{
    if (!m->has_thread)
        return;
    device_wait(m, atomic_load(&m->n_issued));
    atomic_store(&m->is_closing, true);
    wake(m);
    pthread_join(m->thread, NULL);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->wakeup);
}
