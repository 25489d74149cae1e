/* The scheduler with its thread: many submitters, cancels at any moment, slow readers and someone
 * who reads statistics and asks about the cache all the time. Run it under the thread sanitizer
 * (make tsan). */
#include "scheduler_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "test.h"

enum { N_THREADS = 3, N_ROUNDS = 12, N_AT_ONCE = 4 };

struct submitter {
    pthread_t thread;
    struct fixture *fixture;
    uint64_t state;
    uint32_t limit; /* of a sequence */
    struct client *clients[N_ROUNDS][N_AT_ONCE];
    struct script_filter filters[N_ROUNDS][N_AT_ONCE];
    bool is_canceled[N_ROUNDS][N_AT_ONCE];
};

static void nap_us(uint32_t us)
{
    struct timespec nap = {0, (long)us * 1000};
    nanosleep(&nap, NULL);
}

static uint32_t pick(uint64_t *state, uint32_t n)
{
    *state = hash_mix(*state);
    return (uint32_t)(*state >> 33) % n;
}

static struct client *random_client(uint64_t *state, struct script_filter *filter, uint32_t limit)
{
    int32_t tokens[64];
    uint32_t n = 1 + pick(state, 64), stem = pick(state, 2), common = pick(state, n + 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(i < common ? stem : 9, i) % 60);
    struct client *c = client_make(tokens, n, 1 + pick(state, 200));
    c->request.ignore_end = true;
    if (pick(state, 3) == 0)
        client_ask_logprobs(c, true, pick(state, 2), pick(state, 21));
    if (pick(state, 3) == 0)
        script_set(filter, *state, c, limit);
    return c;
}

static void *submit_all(void *context)
{
    struct submitter *me = context;
    struct fixture *f = me->fixture;
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_AT_ONCE; i++) {
            me->clients[round][i] = random_client(&me->state, &me->filters[round][i], me->limit);
            while (scheduler_submit(f->scheduler, &me->clients[round][i]->request) == SUBMIT_FULL)
                nap_us(100);
        }
        for (int n_done = 0; n_done < N_AT_ONCE;) {
            n_done = 0;
            for (int i = 0; i < N_AT_ONCE; i++) {
                struct client *c = me->clients[round][i];
                bool is_slow = i == 0; /* its ring fills up */
                if (!is_slow || pick(&me->state, 8) == 0)
                    client_read(f, c, is_slow ? 40 : 1000);
                n_done += (int)c->n_done;
                if (!c->n_done && !me->is_canceled[round][i] && pick(&me->state, 100) == 0) {
                    scheduler_cancel(f->scheduler, &c->request);
                    me->is_canceled[round][i] = true;
                }
            }
            nap_us(50);
        }
    }
    return NULL;
}

static atomic_bool is_over;

static void *read_stats(void *context)
{
    struct fixture *f = context;
    uint64_t last_rows = 0, n_bad = 0;
    struct tree_entry entries[8] = {0};
    struct cache_query query = {.entries = entries, .max_entries = 8, .max_level = 2};
    bool is_asked = false;
    for (uint32_t i = 0; !atomic_load(&is_over);) {
        if (!is_asked || atomic_load_explicit(&query.is_done, memory_order_acquire)) {
            for (uint32_t k = 0; is_asked && k < query.n_entries; k++)
                n_bad += entries[k].length > entries[k].depth;
            query.type = (enum cache_query_type)(i++ % (QUERY_CLEAR + 1));
            is_asked = scheduler_query(f->scheduler, &query);
        }
        struct scheduler_stats stats = fixture_stats(f);
        n_bad += stats.n_free + stats.n_owned + stats.n_private != stats.n_pages;
        n_bad += stats.sides[0].n_free + stats.sides[0].n_owned + stats.sides[0].n_private !=
                 stats.sides[0].n_pages;
        n_bad += stats.rows < last_rows;
        last_rows = stats.rows;
    }
    while (is_asked && !atomic_load_explicit(&query.is_done, memory_order_acquire))
        nap_us(50);
    return n_bad ? f : NULL;
}

static void run_threads(const struct fixture_options *options)
{
    struct fixture f;
    struct error err;
    fixture_open(&f, options);
    CHECK(scheduler_start(f.scheduler, &err) == 0);
    static struct submitter submitters[N_THREADS];
    pthread_t reader;
    uint32_t limit = options->n_pages < options->max_length ? options->n_pages
                                                            : options->max_length;
    atomic_store(&is_over, false);
    CHECK(pthread_create(&reader, NULL, read_stats, &f) == 0);
    for (uint64_t i = 0; i < N_THREADS; i++) {
        submitters[i] = (struct submitter){.fixture = &f, .state = i, .limit = limit};
        CHECK(pthread_create(&submitters[i].thread, NULL, submit_all, &submitters[i]) == 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(submitters[i].thread, NULL);
    atomic_store(&is_over, true);
    void *bad_stats;
    pthread_join(reader, &bad_stats);
    CHECK(!bad_stats);
    fixture_close(&f);
    for (int t = 0; t < N_THREADS; t++) {
        for (int i = 0; i < N_ROUNDS * N_AT_ONCE; i++) {
            struct client *c = submitters[t].clients[i / N_AT_ONCE][i % N_AT_ONCE];
            struct script_filter *filter = &submitters[t].filters[i / N_AT_ONCE][i % N_AT_ONCE];
            if (c->request.filter) {
                CHECK_INT(filter->n_wrong, 0);
                CHECK_INT(filter->n_accepted, c->n_got);
                script_reset(filter);
            }
            check_logprobs(c, limit);
            if (c->finish == FINISH_CANCELED)
                check_beginning(c, limit);
            else
                check_answer(c, limit);
            CHECK(c->finish != FINISH_CANCELED ||
                  submitters[t].is_canceled[i / N_AT_ONCE][i % N_AT_ONCE]);
            client_free(c);
        }
    }
}

TEST(scheduler_threads, submitters_cancels_and_slow_readers)
{
    struct fixture_options o = fixture_defaults();
    o.n_pages = 600;
    o.max_seqs = 5;
    o.max_waiting = 4;
    o.max_rows = 32;
    run_threads(&o);
}

TEST(scheduler_threads, with_batches_that_take_time_and_fail)
{
    struct fixture_options o = fixture_defaults();
    o.max_seqs = 8;
    o.max_rows = 64;
    o.mock.batch_cost_us = 100;
    o.mock.fail_every = 20;
    o.cache_ttl_ns = 1000 * 1000;
    run_threads(&o);
}

TEST(scheduler_threads, with_a_window_and_few_window_pages)
{
    struct fixture_options o = fixture_defaults();
    o.n_pages = 500;
    o.max_seqs = 6;
    o.max_rows = 40;
    mock_set_window(&o.mock, 9);
    o.n_window_pages = 50;
    o.mock.batch_cost_us = 50;
    run_threads(&o);
}

/* Another thread computes; in the meantime this one admits new sequences and answers queries. */
TEST(scheduler_threads, with_an_engine_that_computes_by_itself)
{
    struct fixture_options o = fixture_defaults();
    o.n_pages = 500;
    o.max_seqs = 5;
    o.max_rows = 40;
    o.cache_ttl_ns = 1000 * 1000;
    mock_set_window(&o.mock, 9);
    o.n_window_pages = 120;
    o.mock.is_async = true;
    o.mock.batch_cost_us = 100;
    o.mock.fail_every = 30;
    run_threads(&o);
}

/* A client that hangs up stops a batch that nobody else is in. */
TEST(scheduler_threads, a_cancel_stops_a_running_batch)
{
    struct fixture f;
    struct error err;
    struct fixture_options o = fixture_defaults();
    o.mock.batch_cost_us = 20 * 1000 * 1000; /* would take twenty seconds */
    fixture_open(&f, &o);
    CHECK(scheduler_start(f.scheduler, &err) == 0);
    struct client *c[2] = {client_make_text("hello there", 5), client_make_text("hello you", 5)};
    uint64_t start_ns = clock_now_ns();
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    nap_us(50 * 1000);
    for (int i = 0; i < 2; i++)
        scheduler_cancel(f.scheduler, &c[i]->request);
    while (c[0]->n_done + c[1]->n_done < 2) {
        client_read(&f, c[0], 10);
        client_read(&f, c[1], 10);
        nap_us(100);
    }
    CHECK(clock_now_ns() - start_ns < UINT64_C(10000000000));
    CHECK_INT(c[0]->finish, FINISH_CANCELED);
    CHECK_INT(fixture_stats(&f).rows, 0);
    /* Closing does not wait for a batch either. */
    struct client *d = client_make_text("good bye", 5);
    client_submit(&f, d);
    nap_us(20 * 1000);
    fixture_close(&f);
    CHECK(clock_now_ns() - start_ns < UINT64_C(10000000000));
    client_free(c[0]);
    client_free(c[1]);
    client_free(d);
}

/* A full ring sends the whole scheduler to sleep; reading wakes it. */
TEST(scheduler_threads, reading_wakes_a_parked_sequence)
{
    struct fixture f;
    struct error err;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    CHECK(scheduler_start(f.scheduler, &err) == 0);
    struct client *c = client_make_text("a slow reader", 500);
    c->request.ignore_end = true;
    client_submit(&f, c);
    uint64_t until_ns = clock_now_ns() + UINT64_C(20000000000);
    while (!c->n_done && clock_now_ns() < until_ns) {
        nap_us(5000); /* it is parked and asleep by now */
        client_read(&f, c, 30);
    }
    check_answer(c, o.max_length);
    client_free(c);
    fixture_close(&f);
}

/* Asleep between requests, and never past one. */
TEST(scheduler_threads, an_idle_scheduler_wakes_for_each_request)
{
    struct fixture f;
    struct error err;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    CHECK(scheduler_start(f.scheduler, &err) == 0);
    for (uint32_t i = 0; i < 300; i++) {
        struct client *c = client_make_text("are you awake", 2);
        uint64_t until_ns = clock_now_ns() + UINT64_C(20000000000);
        client_submit(&f, c);
        while (!c->n_done && clock_now_ns() < until_ns) {
            client_read(&f, c, 10);
            if (i % 3)
                nap_us(20);
        }
        CHECK_INT(c->n_done, 1);
        client_free(c);
    }
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nap_us(200 * 1000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used_s = (double)(after.tv_sec - before.tv_sec) +
                    (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    CHECK(used_s < 0.05); /* no busy loop */
    fixture_close(&f);
}
