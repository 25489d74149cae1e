/* Log probabilities of answers and prompts: they depend only on the tokens, whatever else the step
 * computes, and whatever was cached, preempted or computed again. */
#include "scheduler_fixture.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "sched/state.h"
#include "test.h"
#include "test_memory.h"

enum { LIMIT = 1024 };

static struct client *client_random(uint64_t seed, uint32_t n, uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(seed, i) % 60);
    struct client *c = client_make(tokens, n, max_tokens);
    c->request.ignore_end = true;
    return c;
}

static struct client *client_scored(uint64_t seed, uint32_t n, uint32_t max_tokens)
{
    struct client *c = client_random(seed, n, max_tokens);
    client_ask_logprobs(c, true, true, 5);
    return c;
}

static void check_and_free(struct client **clients, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        check_answer(clients[i], LIMIT);
        check_logprobs(clients[i], LIMIT);
    }
    for (uint32_t i = 0; i < n; i++)
        client_free(clients[i]);
}

/* In place: the scheduler keeps the fixture's address. */
static void open_fixture(struct fixture *f, uint32_t max_seqs)
{
    struct fixture_options o = fixture_defaults();
    o.max_seqs = max_seqs;
    fixture_open(f, &o);
}

static bool is_running(struct fixture *f, struct client *c)
{
    for (uint32_t i = 0; i < f->scheduler->n_running; i++)
        if (f->scheduler->running[i] == c->request.sequence)
            return true;
    return false;
}

/* They are the model's, so they do not show how the token was chosen. */
TEST(scheduler_logprobs, of_an_answer_are_the_models_own)
{
    static const struct logit_bias biases[] = {{4, 30}, {5, -100}};
    struct fixture f;
    open_fixture(&f, 8);
    struct client *c[8];
    struct script_filter filter;
    for (uint32_t i = 0; i < 8; i++) {
        c[i] = client_random(i, 20, 200); /* longer than the ring */
        client_ask_logprobs(c[i], true, false, i * 20 / 7);
        c[i]->request.sampling.temperature = i % 2 ? 1.7f : 0;
        c[i]->request.sampling.repetition_penalty = i == 3 ? 1.5f : 1;
        c[i]->request.biases = biases;
        c[i]->request.n_biases = i == 4 || i == 5 ? 2 : 0;
    }
    script_set(&filter, 1, c[6], LIMIT);
    for (uint32_t i = 0; i < 8; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 8);
    script_reset(&filter);
    check_and_free(c, 8);
    fixture_close(&f);
}

/* Bit by bit the same, alone and among others, in one piece and in many. */
TEST(scheduler_logprobs, are_the_same_in_every_batch)
{
    struct client *alone = client_scored(1, 100, 50), *others[6];
    struct fixture f;
    open_fixture(&f, 1);
    client_submit(&f, alone);
    fixture_run(&f, &alone, 1);
    fixture_close(&f);
    open_fixture(&f, 6);
    for (uint32_t i = 0; i < 6; i++) {
        others[i] = i == 3 ? client_scored(1, 100, 50) : client_scored(i + 5, 60 + 10 * i, 80);
        client_submit(&f, others[i]);
    }
    fixture_run(&f, others, 6);
    for (uint32_t i = 0; i < 50; i++)
        CHECK(memcmp(&alone->logprobs[i].logprob, &others[3]->logprobs[i].logprob, 4) == 0);
    for (uint32_t i = 1; i < 100; i++)
        CHECK(memcmp(&alone->request.prompt_logprobs[i].logprob,
                     &others[3]->request.prompt_logprobs[i].logprob, 4) == 0);
    check_and_free(others, 6);
    check_and_free(&alone, 1);
    fixture_close(&f);
}

/* An answer that is sent back as a prompt has exactly the numbers it had when generated. */
TEST(scheduler_logprobs, an_answer_scores_as_it_was_generated)
{
    struct fixture f;
    open_fixture(&f, 4);
    struct client *c = client_random(8, 30, 70);
    client_ask_logprobs(c, true, false, 7);
    c->request.sampling.temperature = 1;
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    int32_t tokens[100];
    client_ids(c, tokens, 30);
    memcpy(tokens + 30, c->got, 70 * sizeof *tokens);
    struct client *echo = client_make(tokens, 100, 0);
    client_ask_logprobs(echo, false, true, 7);
    client_submit(&f, echo);
    fixture_run(&f, &echo, 1);
    for (uint32_t i = 0; i < 70; i++) {
        const struct token_logprobs *scored = &echo->request.prompt_logprobs[30 + i];
        CHECK(scored->logprob == c->logprobs[i].logprob && scored->n_top == 7);
        CHECK(memcmp(scored->top, c->logprobs[i].top, 7 * sizeof *scored->top) == 0);
    }
    check_and_free(&echo, 1);
    check_and_free(&c, 1);
    fixture_close(&f);
}

/* What a reader was given stays valid until it reads on, however far the scheduler gets. */
TEST(scheduler_logprobs, an_entry_stays_until_the_next_is_read)
{
    struct fixture f;
    open_fixture(&f, 2);
    struct client *c = client_random(2, 10, 400);
    client_ask_logprobs(c, true, false, 3);
    client_submit(&f, c);
    uint32_t n_tokens = 0;
    for (struct sched_event event = {0}; event.type != EVENT_DONE;) {
        while (scheduler_step(f.scheduler)) /* until the ring is full, or all is done */
            continue;
        CHECK(scheduler_next_event(f.scheduler, &c->request, &event));
        CHECK((event.logprobs != NULL) == (event.type == EVENT_TOKEN));
        if (event.type != EVENT_TOKEN)
            continue;
        while (scheduler_step(f.scheduler))
            continue;
        c->got[n_tokens] = event.token;
        c->logprobs[n_tokens++] = *event.logprobs;
    }
    CHECK_INT(n_tokens, 400);
    c->n_got = n_tokens;
    check_logprobs(c, LIMIT);
    client_free(c);
    fixture_close(&f);
}

/* Echo: nothing is generated. In steps of no more rows than there are logits for. */
TEST(scheduler_logprobs, of_a_prompt_without_an_answer)
{
    static const uint32_t lengths[] = {1, 2, 3, 4, 5, 63, 200};
    for (uint32_t max_seqs = 1; max_seqs <= 4; max_seqs++) {
        struct fixture f;
        open_fixture(&f, max_seqs);
        for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct client *c = client_scored(i, lengths[i], 0);
            uint64_t steps = fixture_stats(&f).steps;
            client_submit(&f, c);
            fixture_run(&f, &c, 1);
            CHECK_INT(c->finish, FINISH_LENGTH);
            CHECK_INT(c->n_got, 0);
            CHECK(fixture_stats(&f).steps - steps >= lengths[i] / max_seqs);
            check_and_free(&c, 1);
        }
        fixture_close(&f);
    }
}

/* The cache does not help this sequence; its results help others. */
TEST(scheduler_logprobs, of_a_prompt_that_is_cached)
{
    struct fixture f;
    open_fixture(&f, 4);
    struct client *c[3] = {client_random(3, 80, 5), client_scored(3, 80, 5),
                           client_random(3, 80, 5)};
    for (int i = 0; i < 3; i++) {
        client_submit(&f, c[i]);
        fixture_run(&f, &c[i], 1);
    }
    CHECK_INT(c[1]->request.prompt_cached, 0);
    CHECK_INT(c[2]->request.prompt_cached, 79);
    struct client *d[2] = {client_scored(4, 80, 5), client_random(4, 80, 5)};
    for (int i = 0; i < 2; i++) {
        client_submit(&f, d[i]);
        fixture_run(&f, &d[i], 1);
    }
    CHECK_INT(d[1]->request.prompt_cached, 79);
    check_and_free(c, 3);
    check_and_free(d, 2);
    fixture_close(&f);
}

/* It waits for no flight, nobody waits for it, and decoding sequences get a token each step. */
TEST(scheduler_logprobs, keep_nobody_waiting)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_rows = 16;
    o.max_seqs = 5;
    fixture_open(&f, &o);
    struct client *c[5] = {client_random(10, 3, 400), client_random(11, 300, 5),
                           client_scored(11, 300, 5), client_scored(12, 300, 5),
                           client_random(12, 300, 5)};
    client_submit(&f, c[0]);
    scheduler_step(f.scheduler);
    client_read(&f, c[0], 1000);
    for (int i = 1; i < 4; i++)
        client_submit(&f, c[i]);
    scheduler_step(f.scheduler);
    CHECK(is_running(&f, c[2]) && is_running(&f, c[3])); /* though c[1] computes the same as c[2] */
    client_submit(&f, c[4]);
    for (int i = 0; i < 10; i++) {
        uint32_t n_got = c[0]->n_got;
        scheduler_step(f.scheduler);
        client_read(&f, c[0], 1000);
        CHECK_INT(c[0]->n_got, n_got + 1 + (i == 0)); /* the step before was not read */
        CHECK(is_running(&f, c[4]));
        CHECK(c[2]->request.sequence->n_rows <= 5);
    }
    fixture_run(&f, c, 5);
    check_and_free(c, 5);
    fixture_close(&f);
}

/* The choices of one request: the first scores and computes, the others fork off. */
TEST(scheduler_logprobs, are_computed_once_for_all_choices)
{
    struct fixture f;
    open_fixture(&f, 4);
    struct client *c[4];
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_random(20, 90, 6);
        client_ask_logprobs(c[i], true, i == 0, 2);
        c[i]->request.sampling.temperature = 1;
        c[i]->request.sampling.choice = i;
        c[i]->request.leader = i ? &c[0]->request : NULL;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 4);
    CHECK_INT(fixture_stats(&f).forked, 3);
    CHECK_INT(fixture_stats(&f).rows, 90 + 4 * 5);
    check_and_free(c, 4);
    fixture_close(&f);
}

/* One that scores its own prompt does not fork, and has its own. */
TEST(scheduler_logprobs, a_choice_may_ask_for_the_prompts_too)
{
    struct fixture f;
    open_fixture(&f, 4);
    struct client *c[2] = {client_scored(21, 90, 6), client_scored(21, 90, 6)};
    c[1]->request.leader = &c[0]->request;
    client_submit(&f, c[0]);
    client_submit(&f, c[1]);
    fixture_run(&f, c, 2);
    CHECK_INT(fixture_stats(&f).forked, 0);
    check_and_free(c, 2);
    fixture_close(&f);
}

/* The older one outgrows the pool while the prompt is half scored. */
TEST(scheduler_logprobs, survive_a_preemption)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 400;
    o.max_seqs = 3;
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(30, 10, 330), client_scored(31, 200, 30)};
    c[0]->request.no_cache = true; /* so that its pages cannot be found again */
    client_submit(&f, c[0]);
    for (int i = 0; i < 100; i++) {
        scheduler_step(f.scheduler);
        client_read(&f, c[0], 1000);
    }
    client_submit(&f, c[1]);
    uint32_t n_scored = 0;
    while (fixture_stats(&f).preempted == 0) {
        CHECK(scheduler_step(f.scheduler));
        client_read(&f, c[0], 1000);
        CHECK(c[1]->request.sequence);
        n_scored = c[1]->request.sequence->n_scored;
    }
    CHECK(n_scored > 10 && n_scored < 200); /* in the midst of it */
    fixture_run(&f, c, 2);
    CHECK_INT(c[1]->request.prompt_cached, 0);
    check_and_free(c, 2);
    fixture_close(&f);
}

/* Everything at once, and nothing allocated after submission. */
TEST(scheduler_logprobs, no_step_allocates)
{
    struct fixture f;
    open_fixture(&f, 4);
    struct client *c[4];
    struct script_filter filters[4];
    static const struct logit_bias bias = {3, 2};
    for (uint32_t i = 0; i < 4; i++) {
        c[i] = client_scored(50 + i, 60, 100);
        c[i]->request.sampling.temperature = 1;
        c[i]->request.sampling.typical_p = 0.9f;
        c[i]->request.sampling.top_n_sigma = 2;
        c[i]->request.sampling.xtc_probability = 0.5f;
        c[i]->request.sampling.dry_multiplier = 1;
        c[i]->request.sampling.presence_penalty = 0.5f;
        c[i]->request.biases = &bias;
        c[i]->request.n_biases = 1;
        script_set(&filters[i], i, c[i], LIMIT);
        client_submit(&f, c[i]);
    }
    memory_ends_after(0);
    fixture_run(&f, c, 4);
    memory_is_back();
    for (uint32_t i = 0; i < 4; i++)
        script_reset(&filters[i]);
    check_and_free(c, 4);
    fixture_close(&f);
}

/* A row of the prompt without numbers: the request starts over, and everything is filled in again.
 */
TEST(scheduler_logprobs, start_over_when_a_row_has_no_numbers)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 70;
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(40, 10, 30), client_scored(41, 50, 5)};
    for (int i = 0; i < 2; i++) {
        client_submit(&f, c[i]);
        fixture_run(&f, &c[i], 1);
    }
    CHECK_INT(fixture_stats(&f).retried, 1);
    check_and_free(c, 2);
    /* Twice is an error; then the entries are invalid. */
    struct client *d = client_scored(42, 200, 5);
    client_submit(&f, d);
    fixture_run(&f, &d, 1);
    CHECK_INT(d->finish, FINISH_ERROR);
    CHECK_INT(d->n_got, 0);
    client_free(d);
    fixture_close(&f);
}
