/* Shares: tenants, and the clients of a tenant, get as much of the queue, the batch and the steps
 * as each other, however many requests each sends. */
#include <string.h>

#include "base/hash.h"
#include "scheduler_spy.h"
#include "sched/state.h"
#include "test.h"

enum { LIMIT = 1024, MANY = 40 };

struct world {
    struct fixture fixture;
    struct fixture_options options;
    struct client *clients[MANY];
    uint32_t n;
};

static void world_open(struct world *w, uint32_t max_seqs, uint32_t max_waiting)
{
    *w = (struct world){.options = fixture_defaults()};
    w->options.max_seqs = max_seqs;
    w->options.max_waiting = max_waiting;
    w->options.n_pages = 8192;
    fixture_open(&w->fixture, &w->options);
}

/* A request with a prompt of its own that runs to its limit. */
static struct client *ask(struct world *w, uint32_t tenant, uint64_t client, uint32_t n_prompt,
                          uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    for (uint32_t i = 0; i < n_prompt; i++)
        tokens[i] = (int32_t)(hash_pair(w->n, i) % 60);
    struct client *c = client_make(tokens, n_prompt, max_tokens);
    c->request.tenant = tenant;
    c->request.client = client;
    c->request.ignore_end = true;
    w->clients[w->n++] = c;
    return c;
}

static enum submit_result submit(struct world *w, struct client *c)
{
    return scheduler_submit(w->fixture.scheduler, &c->request);
}

static void ask_many(struct world *w, uint32_t n, uint32_t tenant, uint64_t client,
                     uint32_t max_tokens)
{
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(submit(w, ask(w, tenant, client, 10, max_tokens)), SUBMIT_OK);
}

static void step(struct world *w, uint32_t n)
{
    for (; n > 0; n--) {
        scheduler_step(w->fixture.scheduler);
        for (uint32_t i = 0; i < w->n; i++)
            client_read(&w->fixture, w->clients[i], 1000);
    }
}

static uint32_t n_running(const struct world *w, uint32_t tenant, uint64_t client)
{
    const struct scheduler *s = w->fixture.scheduler;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n += s->running[i]->request->tenant == tenant && s->running[i]->request->client == client;
    return n;
}

static void world_close(struct world *w)
{
    fixture_run(&w->fixture, w->clients, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->clients[i]->finish == FINISH_LENGTH)
            check_answer(w->clients[i], LIMIT); /* also of those that had to yield */
        client_free(w->clients[i]);
    }
    fixture_close(&w->fixture);
}

TEST(scheduler_shares, a_tenant_that_comes_later_takes_its_part_of_the_batch)
{
    struct world w;
    world_open(&w, 8, 100);
    ask_many(&w, 20, 1, 1, 200);
    step(&w, 5);
    CHECK_INT(n_running(&w, 1, 1), 8);
    ask_many(&w, 1, 2, 1, 30);
    step(&w, 1);
    CHECK_INT(n_running(&w, 1, 1), 7);
    CHECK_INT(n_running(&w, 2, 1), 1);
    ask_many(&w, 9, 2, 1, 30);
    step(&w, 1);
    CHECK_INT(n_running(&w, 1, 1), 4);
    CHECK_INT(n_running(&w, 2, 1), 4);
    const uint64_t preempted = fixture_stats(&w.fixture).preempted;
    CHECK_INT(preempted, 4);
    step(&w, 20); /* and nobody takes the places back */
    CHECK_INT(fixture_stats(&w.fixture).preempted, preempted);
    CHECK_INT(n_running(&w, 2, 1), 4);
    world_close(&w);
}

TEST(scheduler_shares, so_does_a_client_of_the_same_tenant)
{
    struct world w;
    world_open(&w, 6, 100);
    ask_many(&w, 10, 3, 1, 200);
    step(&w, 5);
    ask_many(&w, 10, 3, 2, 200);
    step(&w, 1);
    CHECK_INT(n_running(&w, 3, 1), 3);
    CHECK_INT(n_running(&w, 3, 2), 3);
    ask_many(&w, 5, 4, 1, 200); /* tenants come first: half of all, whatever their clients */
    step(&w, 1);
    CHECK_INT(n_running(&w, 4, 1), 3);
    world_close(&w);
}

struct late_request {
    struct world *world;
    struct client *client; /* NULL: it has been submitted */
};

static void submit_late(void *context)
{
    struct late_request *late = context;
    if (late->client)
        CHECK_INT(submit(late->world, late->client), SUBMIT_OK);
    late->client = NULL;
}

/* What an engine computes keeps its pages until it is done, whoever comes meanwhile. */
TEST(scheduler_shares, a_batch_that_is_being_computed_loses_nobody)
{
    struct world w;
    world_open(&w, 4, 100);
    fixture_close(&w.fixture);
    w.options.mock.is_async = true;
    fixture_open(&w.fixture, &w.options);
    spy_on(&w.fixture);
    ask_many(&w, 8, 1, 1, 100);
    step(&w, 5);
    struct late_request late = {&w, ask(&w, 2, 1, 10, 30)};
    spy.at_submit = submit_late;
    spy.context = &late;
    step(&w, 1);
    CHECK(late.client == NULL);
    CHECK_INT(n_running(&w, 1, 1), 4);
    step(&w, 1);
    CHECK_INT(n_running(&w, 1, 1), 3);
    CHECK_INT(n_running(&w, 2, 1), 1);
    world_close(&w);
}

TEST(scheduler_shares, a_client_alone_has_everything)
{
    struct world w;
    world_open(&w, 4, 100);
    ask_many(&w, 12, 1, 1, 20);
    step(&w, 3);
    CHECK_INT(n_running(&w, 1, 1), 4);
    world_close(&w);
}

TEST(scheduler_shares, a_full_queue_has_room_for_whoever_holds_little_of_it)
{
    struct world w;
    world_open(&w, 2, 6);
    ask_many(&w, 8, 1, 1, 100);
    struct client *ninth = ask(&w, 1, 1, 10, 100);
    CHECK_INT(submit(&w, ninth), SUBMIT_FULL);
    CHECK_INT(ninth->request.error.code, ERROR_LIMIT);
    client_free(ninth);
    w.n--;
    step(&w, 3);
    struct client *other = ask(&w, 2, 1, 10, 20);
    CHECK_INT(submit(&w, other), SUBMIT_OK);
    step(&w, 1);
    /* The youngest of the other tenant made room. */
    CHECK_INT(w.clients[7]->finish, FINISH_ERROR);
    CHECK_INT(w.clients[7]->request.error.code, ERROR_LIMIT);
    CHECK_INT(w.clients[7]->n_started, 0);
    CHECK_INT(w.clients[6]->n_done, 0);
    CHECK_INT(n_running(&w, 2, 1), 1);
    fixture_run(&w.fixture, w.clients, w.n);
    CHECK_INT(other->finish, FINISH_LENGTH);
    world_close(&w);
}

/* Sequences with a common prompt give back little of it as long as one of them runs. */
TEST(scheduler_shares, nobody_yields_if_that_does_not_help)
{
    enum { N_SAME = 400, N_SEQS = 4 };
    struct world w;
    world_open(&w, 8, 100);
    fixture_close(&w.fixture);
    w.options.n_pages = 700;
    fixture_open(&w.fixture, &w.options);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        struct client *c = ask(&w, 1, 1, N_SAME, 40);
        memcpy(c->prompt, w.clients[0]->prompt, (N_SAME - 1) * sizeof *c->prompt);
        CHECK_INT(submit(&w, c), SUBMIT_OK);
    }
    for (uint32_t i = 0; i < 50 && n_running(&w, 1, 1) < N_SEQS; i++)
        step(&w, 1);
    CHECK_INT(n_running(&w, 1, 1), N_SEQS);
    struct client *large = ask(&w, 2, 1, 500, 5);
    CHECK_INT(submit(&w, large), SUBMIT_OK);
    step(&w, 5);
    CHECK_INT(n_running(&w, 1, 1), N_SEQS);
    CHECK_INT(fixture_stats(&w.fixture).preempted, 0);
    fixture_run(&w.fixture, w.clients, w.n);
    CHECK_INT(large->finish, FINISH_LENGTH);
    world_close(&w);
}

/* Opens a world of few pages, with one request of client (1, 1) that runs, and then more of it, all
 * with one prompt of `n_same` tokens, but for the last. */
static void share_prompt(struct world *w, uint32_t n_pages, uint32_t window, uint32_t n_same,
                         uint32_t n_seqs)
{
    world_open(w, 8, 100);
    fixture_close(&w->fixture);
    w->options.n_pages = n_pages;
    w->options.n_window_pages = n_pages;
    mock_set_window(&w->options.mock, window);
    fixture_open(&w->fixture, &w->options);
    ask_many(w, 1, 1, 1, 200);
    step(w, 1);
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct client *c = ask(w, 1, 1, n_same, 200);
        memcpy(c->prompt, w->clients[1]->prompt, (n_same - 1) * sizeof *c->prompt);
        CHECK_INT(submit(w, c), SUBMIT_OK);
    }
    for (uint32_t i = 0; i < 50 && n_running(w, 1, 1) < 1 + n_seqs; i++)
        step(w, 1);
    CHECK_INT(n_running(w, 1, 1), 1 + n_seqs);
}

/* If all who use a prompt yield, its pages can be taken too. */
TEST(scheduler_shares, those_who_share_a_prompt_yield_together)
{
    for (uint32_t window = 0; window <= 40; window += 40) {
        struct world w;
        share_prompt(&w, 800, window, 400, 4);
        CHECK_INT(submit(&w, ask(&w, 2, 1, 500, 5)), SUBMIT_OK);
        step(&w, 1);
        CHECK_INT(n_running(&w, 2, 1), 1);
        CHECK_INT(n_running(&w, 1, 1), 1);
        CHECK_INT(fixture_stats(&w.fixture).preempted, 4);
        world_close(&w);
    }
}

/* The newcomer keeps that prompt in use if it is its own too. */
TEST(scheduler_shares, nobody_yields_a_prompt_that_stays_in_use)
{
    enum { N_SAME = 400 };
    struct world w;
    share_prompt(&w, 1000, 0, N_SAME, 4);
    struct client *large = ask(&w, 1, 2, 940, 5);
    memcpy(large->prompt, w.clients[1]->prompt, (N_SAME - 1) * sizeof *large->prompt);
    CHECK_INT(submit(&w, large), SUBMIT_OK);
    step(&w, 5);
    CHECK_INT(n_running(&w, 1, 1), 5);
    CHECK_INT(fixture_stats(&w.fixture).preempted, 0);
    fixture_run(&w.fixture, w.clients, w.n);
    CHECK_INT(large->finish, FINISH_LENGTH);
    world_close(&w);
}

TEST(scheduler_shares, nobody_makes_room_for_those_who_have_left)
{
    struct world w;
    world_open(&w, 2, 6);
    ask_many(&w, 8, 1, 1, 30);
    step(&w, 2);
    ask_many(&w, 3, 2, 1, 30);
    for (uint32_t i = 8; i < w.n; i++)
        scheduler_cancel(w.fixture.scheduler, &w.clients[i]->request);
    fixture_run(&w.fixture, w.clients, w.n);
    for (uint32_t i = 0; i < w.n; i++)
        CHECK_INT(w.clients[i]->finish, i < 8 ? FINISH_LENGTH : FINISH_CANCELED);
    world_close(&w);
}

/* Between two tenants that both ask for more than there is, each gets half of the queue. */
TEST(scheduler_shares, the_queue_is_shared_too)
{
    struct world w;
    uint32_t n_failed[2] = {0}, n_full = 0;
    world_open(&w, 2, 6);
    ask_many(&w, 8, 1, 1, 30);
    for (uint32_t i = 0; i < 12; i++) {
        struct client *c = ask(&w, 2, 1, 10, 30);
        if (submit(&w, c) == SUBMIT_OK)
            continue;
        n_full++;
        w.n--;
        client_free(c);
    }
    step(&w, 1);
    for (uint32_t i = 0; i < w.n; i++)
        n_failed[w.clients[i]->request.tenant - 1] += w.clients[i]->finish == FINISH_ERROR;
    CHECK_INT(n_failed[0], 4);
    CHECK_INT(n_failed[1] + n_full, 8);
    world_close(&w);
}

/* Prompts: one tenant's are read while another's wait, although those came first. */
TEST(scheduler_shares, long_prompts_of_one_do_not_hold_up_another)
{
    struct world w;
    world_open(&w, 8, 100);
    for (uint32_t i = 0; i < 6; i++)
        CHECK_INT(submit(&w, ask(&w, 1, 1, 900, 2)), SUBMIT_OK);
    step(&w, 3);
    struct client *late = ask(&w, 2, 1, 100, 2);
    CHECK_INT(submit(&w, late), SUBMIT_OK);
    uint32_t n_steps = 0;
    for (; late->n_got == 0 && n_steps < 200; n_steps++)
        step(&w, 1);
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < 6; i++)
        n_done += w.clients[i]->n_done;
    CHECK(n_done <= 2); /* it did not wait for the rest */
    world_close(&w);
}

/* ---- slow masks ---- */

/* While one mask takes many steps, another stream has a token in each. */
TEST(scheduler_shares, a_slow_mask_delays_only_its_own_request)
{
    for (uint32_t is_async = 0; is_async < 2; is_async++) {
        struct world w;
        struct script_filter slow[3];
        world_open(&w, 8, 100);
        fixture_close(&w.fixture);
        w.options.mock.is_async = is_async;
        fixture_open(&w.fixture, &w.options);
        struct client *plain = ask(&w, 1, 1, 10, 60);
        for (uint32_t i = 0; i < 3; i++) {
            struct client *c = ask(&w, 2, 1, 10, 20);
            script_set(&slow[i], 100 + i, c, LIMIT);
            slow[i].most_tries = 40;
        }
        for (uint32_t i = 0; i < w.n; i++)
            CHECK_INT(submit(&w, w.clients[i]), SUBMIT_OK);
        uint32_t n_steps = 0;
        for (; plain->n_done == 0 && n_steps < 200; n_steps++)
            step(&w, 1);
        CHECK(n_steps < 65);
        fixture_run(&w.fixture, w.clients, w.n);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK_INT(w.clients[1 + i]->n_got, 20);
            CHECK_INT(slow[i].n_wrong, 0);
            CHECK(slow[i].n_pauses > 100);
            script_reset(&slow[i]);
        }
        world_close(&w);
    }
}

/* A client that hangs up while its mask is being made leaves nothing behind. */
TEST(scheduler_shares, a_mask_that_nobody_wants_is_dropped)
{
    struct world w;
    struct script_filter slow;
    world_open(&w, 4, 10);
    struct client *c = ask(&w, 1, 1, 10, 20);
    script_set(&slow, 5, c, LIMIT);
    slow.most_tries = UINT32_MAX; /* it takes for ever */
    CHECK_INT(submit(&w, c), SUBMIT_OK);
    step(&w, 10);
    CHECK(script_paused() == &slow);
    CHECK_INT(c->n_got, 0);
    scheduler_cancel(w.fixture.scheduler, &c->request);
    step(&w, 2);
    CHECK_INT(c->finish, FINISH_CANCELED);
    CHECK(script_paused() == NULL);
    CHECK_INT(slow.n_drops, 1);
    CHECK_INT(slow.n_wrong, 0);
    world_close(&w);
}
