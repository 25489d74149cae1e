/* Workers: every job is run once and comes back, none is lost when they close. */
#include "serve/api/workers.h"
#include "base/task.h"
#include "test.h"
#include "test_memory.h"

#include <stdatomic.h>
#include <time.h>
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

/* ---- lanes ---- */

struct long_job {
    struct job job;
    atomic_bool unwanted;
    int n_steps;  /* how often it asks whether to go on; each takes a millisecond */
    int n_begun;  /* times that it began */
    int end_rank; /* when it finished, among all */
    bool is_complete;
};

static atomic_int n_ended;

/* CPU time, not time, makes a job late. */
static void burn_ms(void)
{
    struct timespec from, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 1000000);
}

static void run_long(struct job *job)
{
    struct long_job *j = (struct long_job *)job;
    j->n_begun++;
    for (int i = 0; i < j->n_steps; i++) {
        burn_ms();
        if (!task_goes_on(1 << 20))
            return;
    }
    j->is_complete = true;
    j->end_rank = atomic_fetch_add(&n_ended, 1);
}

static struct long_job *finish(struct workers *w)
{
    struct job *job;
    while (!(job = workers_finished(w)))
        usleep(100);
    return (struct long_job *)job;
}

static void long_jobs_open(struct workers **w, struct long_job *jobs, int n)
{
    struct error err;
    atomic_store(&n_ended, 0);
    CHECK_INT(workers_open(w, 1, 64, wake, NULL, &err), 0);
    for (int i = 0; i < n; i++)
        jobs[i] = (struct long_job){.job = {.run = run_long, .unwanted = &jobs[i].unwanted}};
}

TEST(workers, threads_move_a_job_that_takes_long_out_of_the_way)
{
    static struct long_job jobs[3];
    struct workers *w;
    long_jobs_open(&w, jobs, 3);
    jobs[0].n_steps = 270; /* the first two lanes give it 20 and 250 ms */
    for (int i = 0; i < 3; i++)
        CHECK(workers_submit(w, &jobs[i].job));
    for (int i = 0; i < 3; i++)
        finish(w);
    CHECK_INT(jobs[0].n_begun, 3);
    CHECK(jobs[0].is_complete);
    CHECK_INT(jobs[0].end_rank, 2);
    CHECK_INT(jobs[1].n_begun, 1);
    workers_close(w);
}

TEST(workers, threads_read_a_large_body_in_another_lane)
{
    static struct long_job jobs[2];
    struct workers *w;
    long_jobs_open(&w, jobs, 2);
    jobs[0].job.n_bytes = 1 << 20;
    jobs[0].n_steps = 40;
    CHECK(workers_submit(w, &jobs[0].job));
    CHECK(workers_submit(w, &jobs[1].job));
    finish(w);
    finish(w);
    CHECK_INT(jobs[0].n_begun, 1); /* 40 ms are no reason to stop it there */
    workers_close(w);
}

/* One client has many jobs, another comes last, with two. */
TEST(workers, threads_take_turns_between_clients_and_put_small_jobs_first)
{
    static struct long_job jobs[12];
    struct workers *w;
    long_jobs_open(&w, jobs, 12);
    jobs[0].n_steps = 15; /* meanwhile the others arrive */
    for (int i = 0; i < 12; i++) {
        jobs[i].job.client = i < 10 ? 1 : 2;
        if (i)
            jobs[i].n_steps = 1;
    }
    jobs[10].job.n_bytes = 100000; /* behind jobs[11], which is small */
    for (int i = 0; i < 12; i++)
        CHECK(workers_submit(w, &jobs[i].job));
    for (int i = 0; i < 12; i++)
        finish(w);
    CHECK(jobs[11].end_rank <= 1); /* its client has used nothing yet */
    CHECK(jobs[10].end_rank <= 2);
    workers_close(w);
}

/* A tenant with many clients has no more turns than one with few. */
TEST(workers, threads_take_turns_between_tenants_first)
{
    static struct long_job jobs[12];
    struct workers *w;
    long_jobs_open(&w, jobs, 12);
    jobs[0].n_steps = 15; /* meanwhile the others arrive */
    for (int i = 0; i < 12; i++) {
        jobs[i].job.tenant = i < 10 ? 1 : 2;
        jobs[i].job.client = (uint64_t)i;
        if (i)
            jobs[i].n_steps = 1;
    }
    for (int i = 0; i < 12; i++)
        CHECK(workers_submit(w, &jobs[i].job));
    for (int i = 0; i < 12; i++)
        finish(w);
    CHECK(jobs[10].end_rank <= 2 && jobs[11].end_rank <= 2);
    workers_close(w);
}

TEST(workers, threads_stop_an_unwanted_job)
{
    static struct long_job job;
    struct workers *w;
    long_jobs_open(&w, &job, 1);
    job.n_steps = 1 << 20;
    CHECK(workers_submit(w, &job.job));
    usleep(1000);
    atomic_store(&job.unwanted, true);
    CHECK(finish(w) == &job);
    CHECK(!job.is_complete);
    workers_close(w);
}

TEST(workers, threads_stop_running_jobs_when_they_close)
{
    static struct long_job jobs[2];
    struct workers *w;
    long_jobs_open(&w, jobs, 2);
    for (int i = 0; i < 2; i++) {
        jobs[i].n_steps = 1 << 20;
        jobs[i].job.n_bytes = (size_t)i << 20;
        CHECK(workers_submit(w, &jobs[i].job));
    }
    usleep(1000);
    workers_close(w);
    CHECK(!jobs[0].is_complete && !jobs[1].is_complete);
}

TEST(workers, threads_leave_what_may_take_long_to_a_lane_that_has_time)
{
    struct task task = {.limit_ns = 20000000};
    CHECK(task_has_time(UINT64_MAX)); /* there is no task */
    task_begin(&task);
    CHECK(task_has_time(20000000));
    CHECK(!task_is_stopped());
    CHECK(!task_has_time(20000001));
    CHECK(task_is_stopped() && !task_goes_on(1));
    CHECK_INT(task_finish(NULL), TASK_LATE);
    CHECK(!task_is_stopped() && task_goes_on(1));
}

static enum worker_lane lane_of(struct workers *w, uint64_t client, int n_steps)
{
    static struct long_job job;
    job = (struct long_job){.job = {.run = run_long, .client = client}, .n_steps = n_steps};
    CHECK(workers_submit(w, &job.job));
    CHECK(finish(w) == &job);
    return job.job.lane;
}

/* Each job is short, but there is no end of them. */
TEST(workers, threads_put_a_greedy_client_last_while_there_are_others)
{
    enum { GREEDY = 1, MODEST = 2 };
    struct workers *w;
    long_jobs_open(&w, NULL, 0);
    for (int i = 0; i < 60; i++) /* 0.9 s of CPU time */
        CHECK_INT(lane_of(w, GREEDY, 15), LANE_SHORT);
    CHECK_INT(lane_of(w, MODEST, 1), LANE_SHORT);
    CHECK_INT(lane_of(w, GREEDY, 1), LANE_LAST);
    CHECK_INT(lane_of(w, MODEST, 1), LANE_SHORT);
    CHECK_INT(lane_of(w, GREEDY, 1), LANE_LAST);
    clock_skip_ns(6000000000u);
    CHECK_INT(lane_of(w, MODEST, 1), LANE_SHORT);
    CHECK_INT(lane_of(w, GREEDY, 1), LANE_SHORT); /* it has rested */
    workers_close(w);
}

/* Who was here a while ago is no reason to make others wait. */
TEST(workers, threads_forget_company)
{
    enum { BUSY = 1, VISITOR = 2 };
    struct workers *w;
    long_jobs_open(&w, NULL, 0);
    CHECK_INT(lane_of(w, VISITOR, 1), LANE_SHORT);
    clock_skip_ns(6000000000u);
    for (int i = 0; i < 60; i++)
        lane_of(w, BUSY, 15);
    clock_skip_ns(5100000000u); /* 0.9 s are back after 9 s */
    CHECK_INT(lane_of(w, BUSY, 1), LANE_SHORT);
    workers_close(w);
}

/* There is one thread, and the first job has it. */
TEST(workers, threads_give_back_a_job_that_waits)
{
    static struct long_job jobs[3];
    struct workers *w;
    long_jobs_open(&w, jobs, 3);
    jobs[0].n_steps = 1 << 20;
    for (int i = 0; i < 3; i++) {
        jobs[i].job.n_bytes = 1 << 20; /* the lane that gives 250 ms */
        CHECK(workers_submit(w, &jobs[i].job));
        while (i == 0 && atomic_load(&jobs[0].job.waits))
            usleep(100);
    }
    CHECK(!workers_withdraw(w, &jobs[0].job)); /* it runs */
    CHECK(workers_withdraw(w, &jobs[2].job));
    CHECK(!workers_withdraw(w, &jobs[2].job));
    CHECK(workers_submit(w, &jobs[2].job));
    CHECK(workers_withdraw(w, &jobs[1].job));
    atomic_store(&jobs[0].unwanted, true);
    CHECK(finish(w) == &jobs[0]);
    CHECK(finish(w) == &jobs[2]);
    CHECK(!jobs[0].is_complete && jobs[2].is_complete && jobs[1].n_begun == 0);
    CHECK(workers_finished(w) == NULL);
    workers_close(w);
}

/* Withdrawn jobs make room: hanging up again and again does not fill the queue. */
TEST(workers, threads_have_room_again_after_a_withdrawal)
{
    static struct long_job jobs[4];
    struct workers *w;
    struct error err;
    CHECK_INT(workers_open(&w, 1, 2, wake, NULL, &err), 0);
    for (int i = 0; i < 4; i++)
        jobs[i] = (struct long_job){.job = {.run = run_long, .unwanted = &jobs[i].unwanted}};
    jobs[0].n_steps = 10;
    CHECK(workers_submit(w, &jobs[0].job));
    while (atomic_load(&jobs[0].job.waits))
        usleep(100);
    CHECK(workers_submit(w, &jobs[1].job));
    CHECK(!workers_submit(w, &jobs[2].job));
    CHECK(workers_withdraw(w, &jobs[1].job));
    CHECK(workers_submit(w, &jobs[3].job));
    finish(w);
    finish(w);
    workers_close(w);
}

/* It would run again, with more time, if somebody still wanted it. */
static void run_until_nobody_wants_it(struct job *job)
{
    run_long(job);
    atomic_store(&((struct long_job *)job)->unwanted, true);
}

TEST(workers, threads_do_not_repeat_a_late_job_that_nobody_wants)
{
    static struct long_job job;
    struct workers *w;
    long_jobs_open(&w, &job, 1);
    job.job.run = run_until_nobody_wants_it;
    job.n_steps = 40;
    CHECK(workers_submit(w, &job.job));
    CHECK(finish(w) == &job);
    CHECK_INT(job.n_begun, 1);
    workers_close(w);
}
