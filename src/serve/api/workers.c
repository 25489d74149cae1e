/* The workers: two lists under one mutex, which is held for a few instructions at a time. */
#include "serve/api/workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct job_list {
    struct job *first, **end;
};

struct workers {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct job_list waiting, finished;
    uint32_t n_jobs, max_jobs;
    bool stopping;
    void (*wake)(void *context);
    void *context;
    uint32_t n_threads;
    pthread_t threads[];
};

static void list_push(struct job_list *list, struct job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct job *list_pop(struct job_list *list)
{
    struct job *job = list->first;
    if (job) {
        list->first = job->next;
        if (!list->first)
            list->end = &list->first;
    }
    return job;
}

static void *worker_main(void *arg)
{
    struct workers *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->stopping) {
        struct job *job = list_pop(&w->waiting);
        if (!job) {
            pthread_cond_wait(&w->work, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        job->run(job);
        pthread_mutex_lock(&w->mutex);
        list_push(&w->finished, job);
        pthread_mutex_unlock(&w->mutex);
        w->wake(w->context); /* after unlocking, because the woken thread takes the lock first */
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int workers_open(struct workers **out, uint32_t n_threads, uint32_t max_jobs,
                 void (*wake)(void *context), void *context, struct error *err)
{
    struct workers *w = calloc(1, sizeof *w + n_threads * sizeof *w->threads);
    if (!w)
        return error_set(err, ERROR_MEMORY, "no memory for %u workers", n_threads);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->work, NULL);
    w->waiting.end = &w->waiting.first;
    w->finished.end = &w->finished.first;
    w->max_jobs = max_jobs;
    w->wake = wake;
    w->context = context;
    for (; w->n_threads < n_threads; w->n_threads++) {
        int rc = pthread_create(&w->threads[w->n_threads], NULL, worker_main, w);
        if (rc) {
            workers_close(w);
            return error_set(err, ERROR_IO, "cannot start a worker thread: %s", strerror(rc));
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
    w->stopping = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->mutex);
    for (uint32_t i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

bool workers_submit(struct workers *w, struct job *job)
{
    pthread_mutex_lock(&w->mutex);
    bool room = w->n_jobs < w->max_jobs;
    if (room) {
        w->n_jobs++;
        list_push(&w->waiting, job);
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->mutex);
    return room;
}

struct job *workers_finished(struct workers *w)
{
    pthread_mutex_lock(&w->mutex);
    struct job *job = list_pop(&w->finished);
    if (job)
        w->n_jobs--;
    pthread_mutex_unlock(&w->mutex);
    return job;
}

void workers_wake(struct workers *w)
{
    w->wake(w->context);
}
