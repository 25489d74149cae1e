/* The workers: a list for each lane and one of finished jobs, under one mutex, which is held for a
 * few instructions at a time, or for a walk over the jobs of a lane, of which there are at most as
 * many as connections. */
#include "serve/api/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/minmax.h"
#include "base/task.h"

enum {
    SHORT_BYTES = 128 << 10, /* more than this is not read in the short lane */
    NS_PER_BYTE = 1000,      /* a job of that size lets smaller ones pass for this long */
    TENANT_SLOTS = 64,
    CLIENT_SLOTS = 256,
    LONG_NICE = 5, /* relative to the process */
};

/* A client that keeps the first two lanes busy, for half a second and then for more than a tenth of
 * the time, is greedy. */
#define GREEDY_SHARE 10
#define GREEDY_NS    UINT64_C(500000000)
#define COMPANY_NS   UINT64_C(5000000000) /* who has asked within this time is there */

/* CPU time for a job; 0: any. On a busy machine the long lane takes a quarter of a core from the
 * model, and the last lane only what nobody else needs. */
static const uint64_t limits_ns[N_LANES] = {
    [LANE_SHORT] = 20000000,
    [LANE_LONG] = 250000000,
    [LANE_LAST] = 0,
};

struct job_list {
    struct job *first, **end;
};

/* Turns go round among tenants, and those of a tenant among its clients. Those that share a slot
 * share its turns; nobody can choose with whom. A slot's time moves on with what its jobs use, and
 * is never behind the clock of the level above, so that nobody can save up turns. */
struct lane {
    struct job_list waiting;
    pthread_cond_t work;
    uint64_t now_ns;
    struct tenant_slot {
        uint64_t used_ns, now_ns;
    } tenants[TENANT_SLOTS];
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
    /* A client may be busy for GREEDY_NS at once; that comes back evenly. [slot]: the one with the
     * most to come back, and when all of it is back. */
    struct busy_client {
        uint64_t client, rested_ns;
    } busy[CLIENT_SLOTS];
    uint64_t secret;      /* of the hashes of clients */
    uint64_t last_client; /* a hash of who asked last */
    uint64_t company_ns;  /* when somebody else had asked last; 0: nobody has */
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

static struct tenant_slot *tenant_of(struct lane *lane, const struct job *job)
{
    return &lane->tenants[job->tenant % TENANT_SLOTS];
}

static uint64_t *client_of(struct lane *lane, const struct job *job)
{
    return &lane->used_ns[job->client_hash % CLIENT_SLOTS];
}

/* When it is the turn of a job's tenant, and of its client within the tenant. */
static uint64_t tenant_turn(struct lane *lane, const struct job *job)
{
    return max_u64(tenant_of(lane, job)->used_ns, lane->now_ns);
}

static uint64_t client_turn(struct lane *lane, const struct job *job)
{
    return max_u64(*client_of(lane, job), tenant_of(lane, job)->now_ns);
}

/* The job of whoever has had least comes first, and of their jobs the one that is due first. */
static bool is_before(struct lane *lane, const struct job *a, const struct job *b)
{
    uint64_t x = tenant_turn(lane, a), y = tenant_turn(lane, b);
    if (x == y && tenant_of(lane, a) == tenant_of(lane, b)) {
        x = client_turn(lane, a);
        y = client_turn(lane, b);
    }
    return x != y ? x < y : a->due_ns < b->due_ns;
}

/* NULL: there is none. */
static struct job *lane_take(struct lane *lane)
{
    struct job **best = NULL;
    for (struct job **at = &lane->waiting.first; *at; at = &(*at)->next)
        if (!best || is_before(lane, *at, *best))
            best = at;
    if (!best)
        return NULL;
    struct job *job = list_take(&lane->waiting, best);
    lane->now_ns = tenant_turn(lane, job);
    tenant_of(lane, job)->now_ns = client_turn(lane, job);
    atomic_store(&job->waits, false);
    return job;
}

/* A job used that much, which begins to count when it was taken. */
static void lane_charge(struct lane *lane, const struct job *job, uint64_t tenant_ns,
                        uint64_t client_ns, uint64_t used_ns)
{
    struct tenant_slot *tenant = tenant_of(lane, job);
    uint64_t *client = client_of(lane, job);
    tenant->used_ns = max_u64(tenant->used_ns, tenant_ns) + used_ns;
    *client = max_u64(*client, client_ns) + used_ns;
}

/* In the last lane, a client is in nobody's way. */
static void greed_charge(struct workers *w, const struct job *job, uint64_t used_ns)
{
    struct busy_client *busy = &w->busy[job->client_hash % CLIENT_SLOTS];
    const uint64_t now_ns = clock_now_ns(), rest_ns = used_ns * GREEDY_SHARE;
    if (job->lane == LANE_LAST)
        return;
    if (busy->client == job->client_hash)
        busy->rested_ns = max_u64(busy->rested_ns, now_ns) + rest_ns;
    else if (busy->rested_ns < now_ns + rest_ns)
        *busy = (struct busy_client){job->client_hash, now_ns + rest_ns};
}

static void company_note(struct workers *w, const struct job *job)
{
    if (w->company_ns == 0 && w->last_client == 0)
        w->last_client = job->client_hash;
    if (w->last_client != job->client_hash)
        w->company_ns = clock_now_ns();
    w->last_client = job->client_hash;
}

/* Nobody is greedy alone: there is nobody to wait for it. */
static bool is_greedy(const struct workers *w, const struct job *job)
{
    const struct busy_client *busy = &w->busy[job->client_hash % CLIENT_SLOTS];
    const uint64_t now_ns = clock_now_ns();
    return busy->client == job->client_hash &&
           busy->rested_ns > now_ns + GREEDY_NS * GREEDY_SHARE && w->company_ns &&
           now_ns - w->company_ns < COMPANY_NS;
}

static void lane_put(struct workers *w, struct job *job)
{
    if (is_greedy(w, job))
        job->lane = LANE_LAST;
    struct lane *lane = &w->lanes[job->lane];
    job->due_ns = clock_now_ns() + (uint64_t)job->n_bytes * NS_PER_BYTE;
    atomic_store(&job->waits, true);
    list_push(&lane->waiting, job);
    pthread_cond_signal(&lane->work);
}

static bool is_unwanted(const struct job *job)
{
    return job->unwanted && atomic_load(job->unwanted);
}

/* Runs a job without the lock; true if it is finished. */
static bool job_run(struct workers *w, struct job *job, uint64_t *used_ns)
{
    struct task task = {.flags = {job->unwanted, &w->stopping}, .limit_ns = limits_ns[job->lane]};
    task_begin(&task);
    job->run(job);
    return task_finish(used_ns) != TASK_LATE || is_unwanted(job);
}

/* Of this thread only. If that is not allowed, the lane is as any other. */
static void priority_set(enum worker_lane lane)
{
    if (lane == LANE_LONG)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LONG_NICE);
    else if (lane == LANE_LAST)
        sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
}

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct workers *w = self->workers;
    struct lane *lane = &w->lanes[self->lane];
    priority_set(self->lane);
    pthread_mutex_lock(&w->mutex);
    while (!atomic_load(&w->stopping)) {
        struct job *job = lane_take(lane);
        if (!job) {
            pthread_cond_wait(&lane->work, &w->mutex);
            continue;
        }
        if (self->lane != LANE_LAST && is_greedy(w, job)) { /* since it began to wait */
            lane_put(w, job);
            continue;
        }
        uint64_t used_ns;
        const uint64_t tenant_ns = lane->now_ns, client_ns = tenant_of(lane, job)->now_ns;
        pthread_mutex_unlock(&w->mutex);
        bool is_finished = job_run(w, job, &used_ns);
        pthread_mutex_lock(&w->mutex);
        lane_charge(lane, job, tenant_ns, client_ns, used_ns);
        greed_charge(w, job, used_ns);
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
    if (getrandom(&w->secret, sizeof w->secret, 0) < 0)
        w->secret = clock_now_ns();
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
        job->client_hash = hash_pair(hash_pair(w->secret, job->tenant), job->client);
        company_note(w, job);
        lane_put(w, job);
    }
    pthread_mutex_unlock(&w->mutex);
    return room;
}

bool workers_withdraw(struct workers *w, struct job *job)
{
    pthread_mutex_lock(&w->mutex);
    const bool waits = atomic_load(&job->waits);
    if (waits) {
        struct job_list *list = &w->lanes[job->lane].waiting;
        struct job **link = &list->first;
        while (*link != job)
            link = &(*link)->next;
        list_take(list, link);
        atomic_store(&job->waits, false);
        w->n_jobs--;
    }
    pthread_mutex_unlock(&w->mutex);
    return waits;
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
