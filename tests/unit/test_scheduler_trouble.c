/* The scheduler in trouble: cancels, aborted flights, failed batches, full rings, too few pages. It
 * reads internal state (state.h) to see who sleeps for whom. */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "base/hash.h"
#include "sched/state.h"
#include "test.h"

enum { LIMIT = 1024 };

/* `n` tokens that depend on the seed, without the end token and token 50 (used to fail). */
static struct client *client_random(uint64_t seed, uint32_t n, uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(seed, i) % 50);
    struct client *c = client_make(tokens, n, max_tokens);
    c->request.ignore_end = true;
    return c;
}

/* The first `common` tokens of another, then its own up to `n`. */
static struct client *client_like(const struct client *other, uint32_t common, uint32_t n,
                                  uint32_t max_tokens)
{
    struct client *c = client_random(common + 1000, n, max_tokens);
    memcpy(c->prompt, other->prompt, common * sizeof *c->prompt);
    if (common < n)
        c->prompt[common] = (other->prompt[common] + 1) % 50;
    return c;
}

static struct sequence *sequence_of(struct client *c)
{
    return c->request.sequence;
}

static bool is_running(struct fixture *f, struct client *c)
{
    for (uint32_t i = 0; i < f->scheduler->n_running; i++)
        if (f->scheduler->running[i] == sequence_of(c))
            return true;
    return false;
}

static void free_clients(struct client **clients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        client_free(clients[i]);
}

/* A flight of 200 tokens in chunks of 16, and two newcomers that share 100 and 180 of them. */
static void open_flight(struct fixture *f, struct client *c[3], const struct mock_options *mock)
{
    struct fixture_options o = fixture_defaults();
    o.max_rows = 16;
    if (mock)
        o.mock = *mock;
    fixture_open(f, &o);
    c[0] = client_random(1, 200, 5);
    c[1] = client_like(c[0], 100, 150, 5);
    c[2] = client_like(c[0], 180, 190, 5);
    client_submit(f, c[0]);
    scheduler_step(f->scheduler);
    client_submit(f, c[1]);
    client_submit(f, c[2]);
    scheduler_step(f->scheduler);
}

TEST(scheduler_trouble, newcomers_sleep_until_their_part_is_ready)
{
    struct fixture f;
    struct client *c[3];
    open_flight(&f, c, NULL);
    CHECK(is_running(&f, c[0]) && !is_running(&f, c[1]) && !is_running(&f, c[2]));
    CHECK(sequence_of(c[1])->waits_for == sequence_of(c[0]));
    CHECK_INT(sequence_of(c[1])->waits_until, 100);
    CHECK_INT(sequence_of(c[2])->waits_until, 180);
    CHECK_INT(sequence_of(c[1])->n_private + sequence_of(c[2])->n_private, 0);
    CHECK(sequence_of(c[1])->node == NODE_NONE);
    while (!is_running(&f, c[1])) {
        CHECK((sequence_of(c[1])->waits_for != NULL) == (sequence_of(c[0])->n_ready < 100));
        CHECK(scheduler_step(f.scheduler));
    }
    CHECK(sequence_of(c[0])->n_ready < 180); /* the shorter part did not wait for the longer */
    fixture_run(&f, c, 3);
    CHECK_INT(c[1]->request.prompt_cached, 100);
    CHECK_INT(c[2]->request.prompt_cached, 180);
    CHECK_INT(fixture_stats(&f).rows, 200 + 50 + 10 + 3 * 4);
    for (int i = 0; i < 3; i++)
        check_answer(c[i], LIMIT);
    free_clients(c, 3);
    fixture_close(&f);
}

TEST(scheduler_trouble, nobody_sleeps_for_another_prefix)
{
    struct fixture f;
    struct client *c[3];
    open_flight(&f, c, NULL);
    fixture_run(&f, c, 3);
    /* The newcomer's first 100 are cached; the flight has the same tokens after them, but not
     * before. */
    struct client *d[2] = {client_like(c[0], 0, 200, 5), client_like(c[0], 100, 200, 5)};
    memcpy(d[1]->prompt + 100, d[0]->prompt + 100, 100 * sizeof *d[1]->prompt);
    d[1]->prompt[100] = d[0]->prompt[100] = (c[0]->prompt[100] + 2) % 50;
    client_submit(&f, d[0]);
    client_submit(&f, d[1]);
    scheduler_step(f.scheduler);
    CHECK(is_running(&f, d[0]) && is_running(&f, d[1]));
    fixture_run(&f, d, 2);
    check_answer(d[0], LIMIT);
    check_answer(d[1], LIMIT);
    free_clients(c, 3);
    free_clients(d, 2);
    fixture_close(&f);
}

TEST(scheduler_trouble, the_longest_waiter_inherits_a_flight)
{
    struct fixture f;
    struct client *c[3];
    open_flight(&f, c, NULL);
    uint32_t ready = sequence_of(c[0])->n_ready;
    scheduler_cancel(f.scheduler, &c[0]->request);
    scheduler_step(f.scheduler);
    client_read(&f, c[0], 10);
    CHECK_INT(c[0]->finish, FINISH_CANCELED);
    CHECK(is_running(&f, c[2]) && !is_running(&f, c[1])); /* though c[1] is older */
    CHECK_INT(c[2]->request.prompt_cached, ready);        /* from where the owner was */
    CHECK(sequence_of(c[1])->waits_for == sequence_of(c[2]));
    CHECK_INT(sequence_of(c[1])->waits_until, 100);
    fixture_run(&f, c, 3);
    CHECK_INT(fixture_stats(&f).rows, 190 + 50 + 2 * 4);
    check_answer(c[1], LIMIT);
    check_answer(c[2], LIMIT);
    free_clients(c, 3);
    fixture_close(&f);
}

TEST(scheduler_trouble, waiters_take_over_a_flight_that_failed)
{
    struct fixture f;
    struct client *c[3];
    struct mock_options mock = {.fail_token = 50};
    open_flight(&f, c, &mock);
    fixture_run(&f, c, 3);
    for (int i = 0; i < 3; i++)
        check_answer(c[i], LIMIT);
    /* Now the owner fails at position 120, which one of the newcomers has too. */
    struct client *d[3] = {client_random(7, 200, 5), NULL, NULL};
    d[0]->prompt[120] = 50;
    d[1] = client_like(d[0], 100, 150, 5);
    d[2] = client_like(d[0], 180, 190, 5);
    for (int i = 0; i < 3; i++)
        client_submit(&f, d[i]);
    uint64_t rows = fixture_stats(&f).rows;
    fixture_run(&f, d, 3);
    CHECK_INT(d[0]->finish, FINISH_ERROR);
    CHECK_INT(d[0]->request.error.code, ERROR_FAILED);
    CHECK(strstr(d[0]->request.error.message, "token 50"));
    CHECK_INT(d[2]->finish, FINISH_ERROR); /* it took over, and failed too */
    check_answer(d[1], LIMIT);
    CHECK(fixture_stats(&f).rows - rows <= 120 + 50 + 4);
    CHECK_INT(fixture_stats(&f).failed, 2);
    free_clients(c, 3);
    free_clients(d, 3);
    fixture_close(&f);
}

TEST(scheduler_trouble, only_the_failing_request_of_a_batch_is_hurt)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.fail_token = 50;
    fixture_open(&f, &o);
    struct client *c[6];
    for (uint32_t i = 0; i < 6; i++)
        c[i] = client_random(i, 40, 30);
    c[3]->prompt[39] = 50;
    for (uint32_t i = 0; i < 6; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 6);
    for (uint32_t i = 0; i < 6; i++) {
        int32_t want[FIXTURE_MAX_TOKENS];
        struct plain_run run = plain_run(&c[i]->request, LIMIT, want);
        bool fails = i == 3;
        for (uint32_t k = 0; k + 1 < run.n_tokens; k++) /* what is sampled is fed as well */
            fails |= want[k] == 50;
        CHECK_INT(c[i]->finish, fails ? FINISH_ERROR : FINISH_LENGTH);
        check_beginning(c[i], LIMIT);
    }
    /* The positions of the failing call are in no one's way: without the bad token all is well. */
    CHECK_INT(c[3]->n_got, 0);
    struct client *again = client_like(c[3], 39, 40, 1);
    client_submit(&f, again);
    fixture_run(&f, &again, 1);
    check_answer(again, LIMIT);
    client_free(again);
    free_clients(c, 6);
    fixture_close(&f);
}

TEST(scheduler_trouble, a_passing_failure_is_not_noticed)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.fail_every = 9;
    fixture_open(&f, &o);
    struct client *c[6];
    for (uint32_t i = 0; i < 6; i++) {
        c[i] = client_random(i / 2, 60, 50);
        c[i]->request.sampling.temperature = 1;
        c[i]->request.sampling.seed = i;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 6);
    for (uint32_t i = 0; i < 6; i++)
        check_answer(c[i], LIMIT);
    CHECK_INT(fixture_stats(&f).failed, 0);
    free_clients(c, 6);
    fixture_close(&f);
}

TEST(scheduler_trouble, cancel_keeps_what_was_computed)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(1, 50, 100), client_random(2, 50, 100)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    for (int i = 0; i < 8; i++) {
        scheduler_step(f.scheduler);
        client_read(&f, c[0], 10);
    }
    CHECK(c[0]->n_got > 3 && c[0]->n_done == 0);
    scheduler_cancel(f.scheduler, &c[0]->request);
    scheduler_step(f.scheduler); /* within one step */
    client_read(&f, c[0], 100);
    CHECK_INT(c[0]->n_done, 1);
    CHECK_INT(c[0]->finish, FINISH_CANCELED);
    CHECK_INT(fixture_stats(&f).canceled, 1);
    struct client *next = client_random(1, 50, 100);
    next->prompt = realloc(next->prompt, sizeof *next->prompt * (50 + c[0]->n_got));
    cache_tokens_text(c[0]->got, c[0]->n_got, next->prompt + 50);
    next->request.tokens = next->prompt;
    next->request.n_tokens = 50 + c[0]->n_got;
    client_submit(&f, next);
    fixture_run(&f, &next, 1);
    CHECK_INT(next->request.prompt_cached, 50 + c[0]->n_got - 1);
    check_answer(next, LIMIT);
    scheduler_cancel(f.scheduler, &c[1]->request); /* may be done by now; it makes no difference */
    fixture_run(&f, c, 2);
    check_beginning(c[0], LIMIT);
    check_beginning(c[1], LIMIT);
    client_free(next);
    free_clients(c, 2);
    fixture_close(&f);
}

TEST(scheduler_trouble, a_full_ring_parks_its_sequence_alone)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(1, 20, 400), client_random(2, 20, 400)};
    client_submit(&f, c[0]);
    client_submit(&f, c[1]);
    while (scheduler_step(f.scheduler))
        client_read(&f, c[1], 1000);
    CHECK_INT(c[1]->n_done, 1);
    CHECK_INT(c[0]->n_got, 0);
    CHECK(is_running(&f, c[0])); /* parked, with its pages */
    CHECK_INT(sequence_of(c[0])->n_tokens, 20 + REQUEST_RING - 2);
    CHECK_INT(client_read(&f, c[0], 10), 10);
    CHECK(scheduler_step(f.scheduler));
    fixture_run(&f, c, 2);
    for (int i = 0; i < 2; i++)
        check_answer(c[i], LIMIT);
    /* Canceled while parked: the last event still fits. */
    struct client *d = client_random(3, 20, 400);
    client_submit(&f, d);
    while (scheduler_step(f.scheduler))
        ;
    scheduler_cancel(f.scheduler, &d->request);
    CHECK(scheduler_step(f.scheduler));
    client_read(&f, d, 1000);
    CHECK_INT(d->finish, FINISH_CANCELED);
    check_beginning(d, LIMIT);
    client_free(d);
    free_clients(c, 2);
    fixture_close(&f);
}

/* Two long answers that nobody reads, then two short ones that need a slot or pages. */
static void check_parked_give_way(uint32_t n_pages, uint32_t max_seqs)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = n_pages;
    o.max_seqs = max_seqs;
    fixture_open(&f, &o);
    struct client *c[4];
    for (uint32_t i = 0; i < 4; i++)
        c[i] = client_random(i, i < 2 ? 20 : 100, i < 2 ? 200 : 30);
    client_submit(&f, c[0]);
    client_submit(&f, c[1]);
    while (scheduler_step(f.scheduler))
        ;
    CHECK_INT(fixture_stats(&f).preempted, 0);
    CHECK_INT(fixture_stats(&f).n_running, 2);
    client_submit(&f, c[2]);
    client_submit(&f, c[3]);
    while (scheduler_step(f.scheduler)) {
        client_read(&f, c[2], 1000);
        client_read(&f, c[3], 1000);
    }
    CHECK_INT(c[2]->n_done, 1);
    CHECK_INT(c[3]->n_done, 1);
    CHECK(fixture_stats(&f).preempted > 0);
    CHECK_INT(client_read(&f, c[0], 10), 10);
    fixture_run(&f, c, 4);
    for (int i = 0; i < 4; i++)
        check_answer(c[i], n_pages < LIMIT ? n_pages : LIMIT);
    free_clients(c, 4);
    fixture_close(&f);
}

TEST(scheduler_trouble, parked_sequences_make_room_for_others)
{
    check_parked_give_way(4096, 2);
    check_parked_give_way(450, 8);
}

/* All slots are taken, one of them by a sequence whose reader does not read. */
TEST(scheduler_trouble, parked_sequences_stay_where_giving_way_is_no_use)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 800;
    o.max_rows = 16;
    o.max_seqs = 2;
    fixture_open(&f, &o);
    struct client *c[4] = {client_random(1, 20, 200), client_random(2, 300, 100), NULL,
                           client_random(4, 790, 5)};
    c[2] = client_like(c[1], 280, 290, 5);
    for (uint32_t i = 0; i < 16; i++) { /* hardly a page is free, all can be evicted */
        struct client *old = client_random(10 + i, 50, 5);
        client_submit(&f, old);
        fixture_run(&f, &old, 1);
        client_free(old);
    }
    client_submit(&f, c[0]);
    while (scheduler_step(f.scheduler))
        ;
    client_submit(&f, c[1]);
    scheduler_step(f.scheduler);
    client_submit(&f, c[2]); /* sleeps for the other, and needs no slot yet */
    scheduler_step(f.scheduler);
    CHECK(sequence_of(c[2])->waits_for == sequence_of(c[1]));
    CHECK(is_running(&f, c[0]));
    scheduler_cancel(f.scheduler, &c[2]->request);
    client_submit(&f, c[3]); /* even without the parked one there are too few pages */
    while (c[1]->n_got < 3) {
        scheduler_step(f.scheduler);
        client_read(&f, c[1], 10);
        CHECK(!is_running(&f, c[3]));
    }
    CHECK(is_running(&f, c[0]) && is_running(&f, c[1]));
    CHECK_INT(fixture_stats(&f).preempted, 0);
    scheduler_cancel(f.scheduler, &c[3]->request);
    fixture_run(&f, c, 4);
    check_answer(c[0], 800);
    check_answer(c[1], 800);
    free_clients(c, 4);
    fixture_close(&f);
}

/* A prompt that was found in the cache, then preempted and evicted from it, is computed: the
 * request must not say that it was cached. */
TEST(scheduler_trouble, what_is_computed_after_all_does_not_count_as_cached)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 300;
    fixture_open(&f, &o);
    struct client *first = client_random(1, 100, 1);
    client_submit(&f, first);
    fixture_run(&f, &first, 1);
    struct client *c[2] = {client_random(2, 40, 259), client_random(1, 100, 150)};
    client_submit(&f, c[0]);
    scheduler_step(f.scheduler);
    client_submit(&f, c[1]);
    scheduler_step(f.scheduler);
    CHECK(is_running(&f, c[1]));
    CHECK_INT(sequence_of(c[1])->n_matched, 99);
    while (!c[0]->n_done) {
        scheduler_step(f.scheduler);
        client_read(&f, c[0], 10);
        client_read(&f, c[1], 10);
    }
    CHECK(fixture_stats(&f).preempted > 0);
    fixture_run(&f, c, 2);
    CHECK(c[1]->request.prompt_cached < 99);
    CHECK_INT(fixture_stats(&f).cached_tokens, c[1]->request.prompt_cached);
    check_answer(c[0], 300);
    check_answer(c[1], 300);
    client_free(first);
    free_clients(c, 2);
    fixture_close(&f);
}

TEST(scheduler_trouble, the_youngest_is_preempted_and_goes_on)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 500;
    fixture_open(&f, &o);
    struct client *c[4];
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_random(i, 50, 300);
        c[i]->request.sampling.temperature = 1;
        c[i]->request.sampling.presence_penalty = 1;
        c[i]->request.sampling.seed = i;
        client_submit(&f, c[i]);
    }
    bool worked = true;
    uint32_t last_computed = 0;
    while (worked) {
        worked = scheduler_step(f.scheduler);
        if (sequence_of(c[0])) { /* the oldest never goes back */
            CHECK(sequence_of(c[0])->n_computed > last_computed);
            last_computed = sequence_of(c[0])->n_computed;
        }
        for (int i = 0; i < 4; i++)
            client_read(&f, c[i], 1000);
    }
    CHECK(fixture_stats(&f).preempted > 0);
    for (int i = 0; i < 4; i++)
        check_answer(c[i], 500);
    free_clients(c, 4);
    fixture_close(&f);
}

TEST(scheduler_trouble, one_sequence_can_fill_the_pool)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 300;
    fixture_open(&f, &o);
    for (int round = 0; round < 3; round++) {
        struct client *c = client_random(1, 299, 5);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        check_answer(c, 300);
        CHECK_INT(c->n_got, 1);
        client_free(c);
        /* Its last token is already in the tree, and is computed again into a separate page. */
        c = client_random(1, 60, 400);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        check_answer(c, 300);
        CHECK_INT(c->n_got, 240);
        client_free(c);
    }
    CHECK_INT(fixture_stats(&f).preempted, 0);
    fixture_close(&f);
}

/* While one computes a prompt, another's answer, with the same tokens, enters the tree: the first
 * now holds copies. When it needs the whole pool it starts again and shares them. */
TEST(scheduler_trouble, copies_are_given_up_for_room)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 300;
    o.max_rows = 4;
    o.max_seqs = 2;
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(1, 20, 100), client_random(1, 120, 400)};
    int32_t answer[FIXTURE_MAX_TOKENS];
    plain_run(&c[0]->request, 300, answer);
    cache_tokens_text(answer, 100, c[1]->prompt + 20);
    client_submit(&f, c[0]);
    while (c[0]->n_got < 85) {
        scheduler_step(f.scheduler);
        client_read(&f, c[0], 10);
    }
    client_submit(&f, c[1]);
    fixture_run(&f, c, 2);
    CHECK_INT(c[1]->request.prompt_cached, 20);
    CHECK_INT(fixture_stats(&f).preempted, 1);
    check_answer(c[0], 300);
    check_answer(c[1], 300);
    free_clients(c, 2);
    fixture_close(&f);
}

/* One step with known costs, so that the plan does not depend on the machine; returns how many rows
 * it computed. */
static uint64_t step_with_cost(struct fixture *f, double batch_ms, double row_ms)
{
    uint64_t rows = fixture_stats(f).rows;
    f->scheduler->cost = (struct step_cost){batch_ms * 1e6, row_ms * 1e6, 0, 100, 1000};
    scheduler_step(f->scheduler);
    return fixture_stats(f).rows - rows;
}

/* The long prompt takes half a second of steps; the short one has its first token after the step
 * that runs when it comes and the next, and the long one moves in that step as well. */
TEST(scheduler_trouble, a_long_prefill_does_not_hold_up_a_short_one)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.step_budget_ms = 40;
    fixture_open(&f, &o);
    struct client *c[3] = {client_random(1, 500, 1), client_random(2, 15, 2),
                           client_random(3, 400, 1)};
    client_submit(&f, c[0]);
    for (int i = 0; i < 4; i++)
        CHECK_INT(step_with_cost(&f, 5, 1), 35); /* all of the budget, and no more */
    client_submit(&f, c[2]);
    client_submit(&f, c[1]);
    CHECK_INT(step_with_cost(&f, 5, 1), 35);
    CHECK_INT(sequence_of(c[0])->n_computed, 4 * 35 + 17); /* the oldest has half */
    CHECK_INT(sequence_of(c[2])->n_computed, 3);           /* the longer has what is left */
    client_read(&f, c[1], 10);
    CHECK_INT(c[1]->n_got, 1);
    CHECK_INT(step_with_cost(&f, 5, 1), 35); /* with the decode row of the short one */
    client_read(&f, c[1], 10);
    CHECK_INT(c[1]->n_done, 1);
    fixture_run(&f, c, 3);
    free_clients(c, 3);
    fixture_close(&f);
}

/* The rows of a step are whole tiles, as long as the prompt continues and advances. */
TEST(scheduler_trouble, steps_are_whole_tiles)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.step_budget_ms = 100;
    fixture_open(&f, &o);
    f.engine->info.row_tile = 12;
    struct client *c[2] = {client_random(1, 210, 1), client_random(2, 15, 5)};
    client_submit(&f, c[0]);
    CHECK_INT(step_with_cost(&f, 5, 1), 84); /* 95 fit */
    client_submit(&f, c[1]);
    CHECK_INT(step_with_cost(&f, 5, 1), 84);
    CHECK_INT(sequence_of(c[0])->n_computed, 84 + 69); /* the other's 15 are computed */
    CHECK_INT(step_with_cost(&f, 5, 1), 57 + 1);       /* the end of it, and one decode row */
    fixture_run(&f, c, 2);
    free_clients(c, 2);
    fixture_close(&f);
}

/* But prompts get 32 rows, even if that is not a whole tile. */
TEST(scheduler_trouble, the_least_of_a_step_is_not_cut_to_tiles)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    f.engine->info.row_tile = 12;
    struct client *c[2] = {client_random(2, 15, 9), client_random(1, 210, 1)};
    client_submit(&f, c[0]);
    step_with_cost(&f, 5, 1);
    client_submit(&f, c[1]);
    CHECK_INT(step_with_cost(&f, 5, 1000), 32 + 1);
    CHECK_INT(sequence_of(c[1])->n_computed, 32);
    fixture_run(&f, c, 2);
    free_clients(c, 2);
    fixture_close(&f);
}

TEST(scheduler_trouble, prompts_move_where_the_weights_alone_fill_a_step)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c = client_random(1, 500, 1);
    client_submit(&f, c);
    CHECK_INT(step_with_cost(&f, 20, 1), 80);
    CHECK_INT(step_with_cost(&f, 90, 1), 40);
    CHECK_INT(step_with_cost(&f, 200, 1), 150);
    CHECK_INT(step_with_cost(&f, 90, 10), 32);
    CHECK_INT(step_with_cost(&f, 0, 1000), 32);
    fixture_run(&f, &c, 1);
    check_answer(c, LIMIT);
    client_free(c);
    fixture_close(&f);
}

#if defined(__SANITIZE_ADDRESS__)
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static bool is_counting;
static int n_allocations;

static void count_malloc(const volatile void *p, size_t size)
{
    (void)p;
    (void)size;
    n_allocations += is_counting;
}

static void ignore_free(const volatile void *p)
{
    (void)p;
}
#endif

TEST(scheduler_trouble, a_decode_step_allocates_nothing)
{
#if defined(__SANITIZE_ADDRESS__)
    static bool is_installed;
    if (!is_installed)
        __sanitizer_install_malloc_and_free_hooks(count_malloc, ignore_free);
    is_installed = true;
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[4];
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_random(i, 30, 120);
        c[i]->request.sampling.temperature = i % 2 ? 1 : 0;
        c[i]->request.sampling.top_p = 0.9f;
        c[i]->request.sampling.frequency_penalty = 0.5f;
        c[i]->request.stops[0] = (struct byte_view){"zyzzyva", 7};
        c[i]->request.n_stops = 1;
        client_submit(&f, c[i]);
    }
    scheduler_step(f.scheduler);
    scheduler_step(f.scheduler);
    n_allocations = 0;
    is_counting = true;
    for (int i = 0; i < 100; i++)
        scheduler_step(f.scheduler);
    is_counting = false;
    CHECK_INT(n_allocations, 0);
    CHECK(fixture_stats(&f).generated_tokens > 400);
    fixture_run(&f, c, 4);
    free_clients(c, 4);
    fixture_close(&f);
#else
    SKIP("counts allocations with the address sanitizer's hooks");
#endif
}
