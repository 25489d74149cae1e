/* Workers: every job is run once and comes back, none is lost when they close. */
#include "serve/api/workers.h"
#include "test.h"

#include <stdatomic.h>
#include <unistd.h>

enum { N_JOBS = 64, ROUNDS = 50 };

struct counted_job {
    struct job job;
    atomic_int n_runs;
    int n_back;
};

static atomic_int n_wakes, n_begun;
static atomic_bool hold;

static void wake(void *context)
{
    (void)context;
    atomic_fetch_add(&n_wakes, 1);
}

static void count_run(struct job *job)
{
    atomic_fetch_add(&n_begun, 1);
    while (atomic_load(&hold))
        usleep(100);
    atomic_fetch_add(&((struct counted_job *)job)->n_runs, 1);
}

TEST(workers, threads_run_every_job_once)
{
    static struct counted_job jobs[N_JOBS];
    struct workers *w;
    struct error err;
    memset(jobs, 0, sizeof jobs);
    atomic_store(&n_wakes, 0);
    CHECK_INT(workers_open(&w, 3, N_JOBS, wake, NULL, &err), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N_JOBS; i++) {
            jobs[i].job.run = count_run;
            CHECK(workers_submit(w, &jobs[i].job));
        }
        for (int back = 0; back < N_JOBS;) {
            struct counted_job *job = (struct counted_job *)workers_finished(w);
            if (job) {
                job->n_back++;
                back++;
            } else {
                usleep(100);
            }
        }
    }
    for (int i = 0; i < N_JOBS; i++) {
        CHECK_INT(atomic_load(&jobs[i].n_runs), ROUNDS);
        CHECK_INT(jobs[i].n_back, ROUNDS);
    }
    CHECK(workers_finished(w) == NULL);
    workers_close(w);
    CHECK_INT(atomic_load(&n_wakes), N_JOBS * ROUNDS); /* the last ones may come after the job */
}

TEST(workers, threads_say_no_past_the_bound_and_close_without_running_the_rest)
{
    static struct counted_job jobs[4];
    struct workers *w;
    struct error err;
    memset(jobs, 0, sizeof jobs);
    atomic_store(&hold, true);
    atomic_store(&n_begun, 0);
    CHECK_INT(workers_open(&w, 1, 3, wake, NULL, &err), 0);
    for (int i = 0; i < 4; i++) {
        jobs[i].job.run = count_run;
        CHECK_INT(workers_submit(w, &jobs[i].job), i < 3);
    }
    while (atomic_load(&n_begun) == 0)
        usleep(100);
    atomic_store(&hold, false);
    workers_close(w);
    CHECK_INT(atomic_load(&jobs[0].n_runs), 1);
    CHECK_INT(atomic_load(&jobs[3].n_runs), 0);
}
