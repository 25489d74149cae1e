/* The workers: a list for each lane and one of finished jobs, under one mutex, which is held for a
 * few instructions at a time, or for a walk over the jobs of a lane, of which there are at most as
 * many as connections. */
#include "serve/api/workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/task.h"

enum {
    SHORT_BYTES = 128 << 10, /* more than this is not read in the short lane */
    NS_PER_BYTE = 1000,      /* a job of that size lets smaller ones pass for this long */
    CLIENT_SLOTS = 64,
};

/* `nice` is relative to the process. A long job on a busy machine then takes a quarter of a core
 * from the model, and one in the last lane next to nothing. */
static const struct {
    uint64_t limit_ns; /* of CPU time; 0: none */
    int nice;
} lanes[N_LANES] = {
    [LANE_SHORT] = {20000000, 0},
    [LANE_LONG] = {250000000, 5},
    [LANE_LAST] = {0, 15},
};

struct job_list {
    struct job *first, **end;
};

/* Clients that share a slot share its turns. A slot's time moves on with what its jobs use, and is
 * never behind the lane's, so that a client cannot save up turns. */
struct lane {
    struct job_list waiting;
    pthread_cond_t work;
    uint64_t now_ns;
    uint64_t used_ns[CLIENT_SLOTS];
};

struct worker {
    struct workers *workers;
    enum worker_lane lane;
    pthread_t thread;
};

struct workers {
    pthread_mutex_t mutex;
    struct lane lanes[N_LANES];
    struct job_list finished;
    uint32_t n_jobs, max_jobs;
    atomic_bool stopping;
    void (*wake)(void *context);
    void *context;
    uint32_t n_threads;
    struct worker threads[];
};

static void list_push(struct job_list *list, struct job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct job *list_take(struct job_list *list, struct job **link)
{
    struct job *job = *link;
    *link = job->next;
    if (!*link)
        list->end = link;
    return job;
}

static uint64_t *slot_of(struct lane *lane, const struct job *job)
{
    return &lane->used_ns[hash_mix(job->client) % CLIENT_SLOTS];
}

/* When it is the turn of a job's client. */
static uint64_t turn_of(struct lane *lane, const struct job *job)
{
    const uint64_t used = *slot_of(lane, job);
    return used > lane->now_ns ? used : lane->now_ns;
}

/* The job whose client has had least, and of its jobs the one that is due first; NULL: none. */
static struct job *lane_take(struct lane *lane)
{
    struct job **best = NULL;
    uint64_t best_turn = 0;
    for (struct job **at = &lane->waiting.first; *at; at = &(*at)->next) {
        const uint64_t turn = turn_of(lane, *at);
        if (best && (turn > best_turn || (turn == best_turn && (*at)->due_ns >= (*best)->due_ns)))
            continue;
        best = at;
        best_turn = turn;
    }
    if (!best)
        return NULL;
    lane->now_ns = best_turn;
    return list_take(&lane->waiting, best);
}

static void lane_put(struct workers *w, struct job *job)
{
    struct lane *lane = &w->lanes[job->lane];
    job->due_ns = clock_now_ns() + (uint64_t)job->n_bytes * NS_PER_BYTE;
    list_push(&lane->waiting, job);
    pthread_cond_signal(&lane->work);
}

/* Runs a job without the lock; true if it is finished. */
static bool job_run(struct workers *w, struct job *job, uint64_t *used_ns)
{
    struct task task = {.flags = {job->unwanted, &w->stopping},
                        .limit_ns = lanes[job->lane].limit_ns};
    task_begin(&task);
    job->run(job);
    return task_finish(used_ns) != TASK_LATE;
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct workers *w = self->workers;
    struct lane *lane = &w->lanes[self->lane];
    if (lanes[self->lane].nice) /* of this thread only; without it, the lane has no less right */
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), lanes[self->lane].nice);
    pthread_mutex_lock(&w->mutex);
    while (!atomic_load(&w->stopping)) {
        struct job *job = lane_take(lane);
        if (!job) {
            pthread_cond_wait(&lane->work, &w->mutex);
            continue;
        }
        uint64_t used_ns, turn = lane->now_ns;
        pthread_mutex_unlock(&w->mutex);
        bool is_finished = job_run(w, job, &used_ns);
        pthread_mutex_lock(&w->mutex);
        uint64_t *used = slot_of(lane, job);
        *used = (*used > turn ? *used : turn) + used_ns;
        if (!is_finished) {
            job->lane++;
            lane_put(w, job);
            continue;
        }
        list_push(&w->finished, job);
        pthread_mutex_unlock(&w->mutex);
        w->wake(w->context); /* after unlocking, because the woken thread takes the lock first */
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static int worker_start(struct workers *w, enum worker_lane lane, struct error *err)
{
    struct worker *worker = &w->threads[w->n_threads];
    *worker = (struct worker){.workers = w, .lane = lane};
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc)
        return error_set(err, ERROR_IO, "cannot start a worker thread: %s", strerror(rc));
    w->n_threads++;
    return 0;
}

int workers_open(struct workers **out, uint32_t n_threads, uint32_t max_jobs,
                 void (*wake)(void *context), void *context, struct error *err)
{
    const uint32_t n_all = WORKERS(n_threads);
    struct workers *w = calloc(1, sizeof *w + n_all * sizeof *w->threads);
    if (!w)
        return error_set(err, ERROR_MEMORY, "no memory for %u workers", n_all);
    pthread_mutex_init(&w->mutex, NULL);
    for (int i = 0; i < N_LANES; i++) {
        pthread_cond_init(&w->lanes[i].work, NULL);
        w->lanes[i].waiting.end = &w->lanes[i].waiting.first;
    }
    w->finished.end = &w->finished.first;
    w->max_jobs = max_jobs;
    w->wake = wake;
    w->context = context;
    for (uint32_t i = 0; i < n_all; i++) {
        if (worker_start(w, i < n_threads ? LANE_SHORT : LANE_LONG + (i - n_threads), err)) {
            workers_close(w);
            return -1;
        }
    }
    *out = w;
    return 0;
}

void workers_close(struct workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    atomic_store(&w->stopping, true);
    for (int i = 0; i < N_LANES; i++)
        pthread_cond_broadcast(&w->lanes[i].work);
    pthread_mutex_unlock(&w->mutex);
    for (uint32_t i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i].thread, NULL);
    for (int i = 0; i < N_LANES; i++)
        pthread_cond_destroy(&w->lanes[i].work);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

bool workers_submit(struct workers *w, struct job *job)
{
    pthread_mutex_lock(&w->mutex);
    bool room = w->n_jobs < w->max_jobs;
    if (room) {
        w->n_jobs++;
        job->lane = job->n_bytes > SHORT_BYTES ? LANE_LONG : LANE_SHORT;
        lane_put(w, job);
    }
    pthread_mutex_unlock(&w->mutex);
    return room;
}

struct job *workers_finished(struct workers *w)
{
    pthread_mutex_lock(&w->mutex);
    struct job *job = NULL;
    if (w->finished.first) {
        job = list_take(&w->finished, &w->finished.first);
        w->n_jobs--;
    }
    pthread_mutex_unlock(&w->mutex);
    return job;
}

void workers_wake(struct workers *w)
{
    w->wake(w->context);
}
