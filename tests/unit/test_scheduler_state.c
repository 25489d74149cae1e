/* The scheduler with layers that keep a state: where copies are made, who resumes from them, and
 * what is left after a batch that failed or was stopped. A state that does not match the tokens
 * before a row shows in the answer. */
#include <stdlib.h>
#include <string.h>

#include "scheduler_spy.h"
#include "test.h"

static struct fixture_options stateful(uint32_t grain)
{
    struct fixture_options o = fixture_defaults();
    mock_add_state(&o.mock, grain);
    o.n_state_pages = 64;
    return o;
}

static void open_spied(struct fixture *f, const struct fixture_options *o)
{
    fixture_open(f, o);
    spy_on(f);
}

static struct client *say(const char *prompt, uint32_t max_tokens)
{
    return client_make_mixed(prompt, NULL, 0, max_tokens);
}

/* Runs a prompt alone and checks its answer; returns how much of it was cached. */
static uint32_t ask(struct fixture *f, const char *prompt, uint32_t max_tokens)
{
    struct client *c = say(prompt, max_tokens);
    client_submit(f, c);
    fixture_run(f, &c, 1);
    check_oracle(f, c, NULL);
    uint32_t cached = c->request.prompt_cached;
    client_free(c);
    return cached;
}

static void finish_all(struct fixture *f, struct client **c, uint32_t n)
{
    fixture_run(f, c, n);
    for (uint32_t i = 0; i < n; i++) {
        check_oracle(f, c[i], NULL);
        client_free(c[i]);
    }
}

#define SYSTEM "you are a helpful assistant. " /* 29 tokens */

TEST(scheduler_state, a_copy_before_the_last_token_serves_an_identical_prompt)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    open_spied(&f, &o);
    CHECK_INT(ask(&f, SYSTEM "what is the time?", 6), 0);
    uint64_t rows = fixture_stats(&f).rows;
    CHECK_INT(ask(&f, SYSTEM "what is the time?", 1), 45);
    CHECK_INT(fixture_stats(&f).rows, rows + 1);
    fixture_close(&f);
}

TEST(scheduler_state, a_follow_up_goes_on_where_the_answer_ended)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    int32_t talk[FIXTURE_MAX_TOKENS];
    open_spied(&f, &o);
    struct client *c = say(SYSTEM "hello", 12);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    uint32_t n = c->request.n_tokens;
    client_ids(c, talk, n);
    memcpy(talk + n, c->got, 12 * sizeof *talk);
    client_free(c);
    for (uint32_t i = 0; i < 5; i++)
        talk[n + 12 + i] = (int32_t)i;
    c = client_make(talk, n + 12 + 5, 8);
    c->request.ignore_end = true;
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    check_oracle(&f, c, NULL);
    CHECK_INT(c->request.prompt_cached, n + 12 - 1); /* its last token was never fed */
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler_state, a_copy_is_made_where_sequences_part)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    open_spied(&f, &o);
    CHECK_INT(ask(&f, SYSTEM "alpha alpha", 4), 0);
    CHECK_INT(ask(&f, SYSTEM "beta beta", 4), 0); /* the tree has the tokens, but no state there */
    CHECK_INT(ask(&f, SYSTEM "gamma gamma", 4), 29);
    fixture_close(&f);
}

/* A sequence that sleeps until another has computed their common prefix gets a state to resume
 * from. */
TEST(scheduler_state, a_flight_makes_a_copy_for_those_who_sleep_for_it)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.max_rows = 16;
    open_spied(&f, &o);
    struct client *c[] = {say(SYSTEM "alpha alpha", 4), say(SYSTEM "beta beta", 4)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 2);
    CHECK_INT(c[0]->request.prompt_cached, 0);
    CHECK_INT(c[1]->request.prompt_cached, 29);
    CHECK_INT(c[1]->request.prompt_shared, 29);
    finish_all(&f, c, 2);
    fixture_close(&f);
}

TEST(scheduler_state, choices_copy_the_state_from_slot_to_slot)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    struct client *c[3];
    open_spied(&f, &o);
    for (int i = 0; i < 3; i++) {
        c[i] = say(SYSTEM "choose", 7);
        c[i]->request.leader = i ? &c[0]->request : NULL;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 3);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.forked, 2);
    CHECK_INT(spy.n_copied[STATE_SLOT][STATE_SLOT], 2);
    CHECK_INT(stats.rows, 35 + 3 * 6); /* the prompt once */
    finish_all(&f, c, 3);
    fixture_close(&f);
}

/* After a failed batch no state is valid: each sequence goes back to a copy and is computed alone
 * up to where it was. Only one that then fails is affected. */
TEST(scheduler_state, a_failed_batch_hurts_the_culprit_alone)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.mock.n_tokens = FIXTURE_VOCAB + 1;
    o.mock.fail_token = FIXTURE_VOCAB; /* never sampled */
    open_spied(&f, &o);
    struct client *c[] = {say("once upon a time", 20), say("in a land far away", 20)};
    struct client *bad = say("there was a bug", 20);
    bad->prompt[9] = cache_token_text(o.mock.fail_token);
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    for (int i = 0; i < 5; i++)
        scheduler_step(f.scheduler);
    client_submit(&f, bad);
    uint32_t first = spy.n_batches;
    scheduler_step(f.scheduler); /* fails */
    CHECK_INT(spy.batches[first].n_seqs, 3);
    for (int i = 0; i < 3; i++)
        scheduler_step(f.scheduler); /* each by itself */
    CHECK_INT(spy.n_batches, first + 4);
    for (uint32_t i = 1; i < 4; i++)
        CHECK_INT(spy.batches[first + i].n_seqs, 1);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.batches[first + 4].n_seqs, 2); /* together again */
    fixture_run(&f, &bad, 1);
    CHECK_INT(bad->finish, FINISH_ERROR);
    CHECK_INT(bad->n_got, 0);
    finish_all(&f, c, 2);
    CHECK_INT(fixture_stats(&f).failed, 1);
    client_free(bad);
    fixture_close(&f);
}

/* A sequence that once ran alone does not hold up others when it starts over later. */
TEST(scheduler_state, who_passed_alone_is_not_alone_again)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    open_spied(&f, &o);
    struct client *c[] = {say("once upon a time", 20), say("in a land far away", 20)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    spy_fail(SPY_WAIT, 3, 1, ERROR_FAILED);
    for (int i = 0; i < 8; i++)
        scheduler_step(f.scheduler);
    CHECK_INT(fixture_stats(&f).retried, 2);
    spy_fail(SPY_WAIT, 0, 1,
             ERROR_CANCELED); /* stopped: everyone starts over, nobody is to blame */
    uint32_t first = spy.n_batches;
    scheduler_step(f.scheduler);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.n_batches, first + 2);
    CHECK_INT(spy.batches[first + 1].n_seqs, 2);
    CHECK_INT(fixture_stats(&f).retried, 4);
    finish_all(&f, c, 2);
    CHECK_INT(fixture_stats(&f).failed, 0);
    fixture_close(&f);
}

/* The engine copies at multiples of its grain, and at the end of a batch; which is why a batch ends
 * where a copy is wanted. The mock refuses any other. */
TEST(scheduler_state, a_grain_does_not_keep_copies_from_where_they_are_wanted)
{
    for (uint32_t grain = 1; grain <= 16; grain *= 4) {
        struct fixture f;
        struct fixture_options o = stateful(grain);
        open_spied(&f, &o);
        CHECK_INT(ask(&f, SYSTEM "what is the time?", 3), 0);
        CHECK_INT(ask(&f, SYSTEM "what is the time?", 3), 45); /* no multiple of 4 or 16 */
        CHECK_INT(ask(&f, SYSTEM "and the place?", 3), 0);
        CHECK_INT(ask(&f, SYSTEM "or the reason?", 3), 29);
        fixture_close(&f);
    }
}

/* There are copies at intervals too, where the engine can make them and there is room. */
TEST(scheduler_state, copies_at_intervals_lie_at_multiples_of_the_grain)
{
    struct fixture f;
    struct fixture_options o = stateful(4);
    o.state_interval = 6;
    open_spied(&f, &o);
    CHECK_INT(ask(&f, SYSTEM "what is the time?", 1), 0);
    CHECK_INT(fixture_stats(&f).sides[0].n_owned, 4); /* after 12, 24, 36, and 45 tokens */
    CHECK_INT(ask(&f, "you are a helpful assassin", 1), 12);
    fixture_close(&f);
}

/* Copies at intervals are made while there is room, and go before those that end a prompt or an
 * answer. */
TEST(scheduler_state, copies_inside_a_prompt_go_first)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.state_interval = 5;
    o.n_state_pages = 8;
    open_spied(&f, &o);
    CHECK_INT(ask(&f, SYSTEM "what is the time?", 3), 0);
    CHECK_INT(fixture_stats(&f).sides[0].n_free, 0); /* interval copies took what there was */
    CHECK_INT(ask(&f, "something else altogether, and more of it", 3), 0);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.tree.sides[0].evicted_interior, 3);
    CHECK_INT(stats.tree.sides[0].evicted_tails, 0);
    CHECK_INT(ask(&f, "something else altogether, and more of it", 3), 40);
    CHECK_INT(ask(&f, SYSTEM "what is the time?", 3), 45);
    fixture_close(&f);
}

/* With one page for copies the oldest is evicted, and everything is still right. */
TEST(scheduler_state, without_room_for_copies_answers_are_the_same)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.n_state_pages = 1;
    open_spied(&f, &o);
    struct client *c[4];
    for (int i = 0; i < 4; i++) {
        c[i] = say(i % 2 ? SYSTEM "what is it?" : SYSTEM "who is it?", 5 + (uint32_t)i);
        client_submit(&f, c[i]);
    }
    finish_all(&f, c, 4);
    CHECK(fixture_stats(&f).sides[0].n_owned <= 1);
    fixture_close(&f);
}

TEST(scheduler_state, requests_beside_the_cache_make_no_copies)
{
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.state_interval = 4;
    open_spied(&f, &o);
    struct client *c = say(SYSTEM "a secret", 9);
    c->request.no_cache = true;
    client_submit(&f, c);
    finish_all(&f, &c, 1);
    CHECK_INT(spy.n_copied[STATE_SLOT][STATE_PAGE], 0);
    for (uint32_t i = 0; i < spy.n_batches; i++)
        CHECK_INT(spy.batches[i].n_copies, 0);
    CHECK_INT(fixture_stats(&f).sides[0].n_free, o.n_state_pages);
    fixture_close(&f);
}

/* One slot: a new sequence takes the place of one whose reader does not read. That one then resumes
 * where it was, and nothing is computed twice. */
TEST(scheduler_state, a_preempted_sequence_goes_on_from_a_copy)
{
    enum { ANSWER = 200 };
    struct fixture f;
    struct fixture_options o = stateful(1);
    o.max_seqs = 1;
    open_spied(&f, &o);
    struct client *c[] = {say("a slow reader", ANSWER), say("a newcomer", 6)};
    client_submit(&f, c[0]);
    while (scheduler_step(f.scheduler))
        continue; /* until its ring is full */
    client_submit(&f, c[1]);
    fixture_run(&f, c, 2);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK(stats.preempted > 0);
    CHECK_INT(stats.rows, 13 + ANSWER - 1 + 10 + 6 - 1);
    finish_all(&f, c, 2);
    fixture_close(&f);
}

/* A state that cannot be loaded ends its request alone; one that cannot be saved hurts nobody. */
TEST(scheduler_state, a_copy_that_fails_ends_one_request_at_most)
{
    for (uint32_t after = 0; after < 6; after++) {
        struct fixture f;
        struct fixture_options o = stateful(1);
        uint32_t n_failed = 0;
        open_spied(&f, &o);
        spy_fail(SPY_COPY, after, 1, ERROR_FAILED);
        struct client *c[3];
        for (int i = 0; i < 3; i++) {
            c[i] = say(i ? SYSTEM "you" : SYSTEM "me", 4 + 2 * (uint32_t)i);
            c[i]->request.leader = i == 2 ? &c[1]->request : NULL;
            client_submit(&f, c[i]);
        }
        fixture_run(&f, c, 3);
        for (int i = 0; i < 3; i++) {
            check_oracle_beginning(&f, c[i], NULL);
            n_failed += c[i]->finish == FINISH_ERROR;
            if (c[i]->finish == FINISH_ERROR)
                CHECK_STR(c[i]->request.error.message, "it fails, as it was told");
            else
                CHECK_INT(c[i]->finish, FINISH_LENGTH);
            client_free(c[i]);
        }
        CHECK(n_failed <= 1);
        CHECK_INT(fixture_stats(&f).sides[0].n_private, 0);
        fixture_close(&f);
    }
}
