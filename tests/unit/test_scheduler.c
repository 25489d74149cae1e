/* The scheduler, one behaviour at a time, on the mock engine and without its thread. */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "base/clock.h"
#include "sched/state.h"
#include "test.h"

static const char *const story = "it was a dark and stormy night and the rain fell in torrents";

TEST(scheduler, one_request_gives_the_plain_answer)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c = client_make_text(story, 200);
    client_submit(&f, c);
    CHECK(scheduler_step(f.scheduler));
    fixture_run(&f, &c, 1);
    check_answer(c, o.max_length);
    CHECK_INT(c->request.prompt_cached, 0);
    CHECK(c->request.submitted_ns <= c->request.first_token_ns);
    CHECK(c->request.first_token_ns <= c->request.done_ns);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.rows, c->request.n_tokens + c->n_got - 1);
    CHECK_INT(stats.n_private, 0);
    CHECK_INT(stats.n_owned, c->request.n_tokens + c->n_got - 1); /* the last one has no KV */
    CHECK_INT(stats.tree.n_nodes, 2);                             /* the root, and one for all */
    CHECK_INT(stats.stopped + stats.ran_out, 1);
    CHECK(f.n_notified > 0);
    CHECK(!scheduler_step(f.scheduler));
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler, a_second_turn_computes_only_what_is_new)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *first = client_make_text(story, 60);
    first->request.ignore_end = true;
    client_submit(&f, first);
    fixture_run(&f, &first, 1);
    uint64_t rows = fixture_stats(&f).rows;

    /* The conversation so far, as the client sends it back, and twenty tokens more. */
    uint32_t n = first->request.n_tokens;
    int32_t turn[512];
    client_ids(first, turn, n);
    memcpy(turn + n, first->got, first->n_got * sizeof *turn);
    n += first->n_got;
    for (int i = 0; i < 20; i++)
        turn[n++] = i;
    struct client *second = client_make(turn, n, 10);
    client_submit(&f, second);
    fixture_run(&f, &second, 1);
    check_answer(second, o.max_length);
    CHECK_INT(second->request.prompt_cached, n - 21); /* the last sampled token was never fed */
    CHECK_INT(fixture_stats(&f).rows - rows, 21 + second->n_got - 1);
    CHECK_INT(fixture_stats(&f).cached_tokens, n - 21);
    client_free(first);
    client_free(second);
    fixture_close(&f);
}

TEST(scheduler, a_full_match_computes_one_row)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    uint32_t owned = 0;
    for (int round = 0; round < 4; round++) {
        uint64_t rows = fixture_stats(&f).rows;
        struct client *c = client_make_text(story, 1);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        check_answer(c, o.max_length);
        CHECK_INT(c->request.prompt_cached, round ? c->request.n_tokens - 1 : 0);
        CHECK_INT(fixture_stats(&f).rows - rows, round ? 1 : c->request.n_tokens);
        if (round == 0)
            owned = fixture_stats(&f).n_owned;
        CHECK_INT(fixture_stats(&f).n_owned, owned); /* claimed once */
        client_free(c);
    }
    fixture_close(&f);
}

TEST(scheduler, identical_requests_compute_the_prompt_once)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_rows = 16; /* several chunks */
    fixture_open(&f, &o);
    struct client *c[8];
    for (int i = 0; i < 8; i++) {
        c[i] = client_make_text(story, 1);
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 8);
    CHECK_INT(fixture_stats(&f).rows, c[0]->request.n_tokens + 7);
    CHECK_INT(fixture_stats(&f).n_owned, c[0]->request.n_tokens);
    for (int i = 0; i < 8; i++) {
        check_answer(c[i], o.max_length);
        CHECK_INT(c[i]->request.prompt_cached, i ? c[i]->request.n_tokens - 1 : 0);
        client_free(c[i]);
    }
    fixture_close(&f);
}

TEST(scheduler, generated_tokens_become_one_node)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[2] = {client_make_text(story, 1), client_make_text(story, 150)};
    c[1]->request.ignore_end = true;
    client_submit(&f, c[0]);
    fixture_run(&f, c, 1);
    uint32_t n_nodes = fixture_stats(&f).tree.n_nodes;
    client_submit(&f, c[1]);
    for (int i = 0; i < 100; i++)
        scheduler_step(f.scheduler);
    CHECK_INT(fixture_stats(&f).n_owned, c[0]->request.n_tokens); /* not one by one */
    fixture_run(&f, c, 2);
    CHECK(fixture_stats(&f).tree.n_nodes <= n_nodes + 1);
    CHECK_INT(fixture_stats(&f).n_owned, c[0]->request.n_tokens + 149);
    client_free(c[0]);
    client_free(c[1]);
    fixture_close(&f);
}

TEST(scheduler, ends_are_stop_length_and_the_full_context)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_length = 100;
    fixture_open(&f, &o);
    struct client *c[5];
    for (int i = 0; i < 5; i++)
        c[i] = client_make_text(story, (const uint32_t[]){512, 512, 5, 0, 1}[i]);
    c[1]->request.ignore_end = true;
    c[4]->request.sampling.temperature = 1.0f;
    for (int i = 0; i < 5; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 5);
    for (int i = 0; i < 5; i++)
        check_answer(c[i], o.max_length);
    CHECK_INT(c[1]->finish, FINISH_LENGTH);
    CHECK_INT(c[1]->n_got, 100 - c[1]->request.n_tokens);
    CHECK_INT(c[2]->n_got, 5);
    CHECK_INT(c[3]->n_got, 0);
    CHECK_INT(c[3]->finish, FINISH_LENGTH);
    for (int i = 0; i < 5; i++)
        client_free(c[i]);
    fixture_close(&f);
}

TEST(scheduler, an_end_token_is_an_event_but_no_text)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    int n_ended = 0;
    for (int i = 0; i < 10; i++) {
        struct client *c = client_make_text(story + i, 400);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        check_answer(c, o.max_length);
        if (c->finish == FINISH_STOP) {
            n_ended++;
            CHECK_INT(c->got[c->n_got - 1], FIXTURE_END);
        }
        client_free(c);
    }
    CHECK(n_ended > 5);
    fixture_close(&f);
}

TEST(scheduler, stop_strings_cut_the_text_across_tokens)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    const struct token_table table = fixture_table();
    struct client *c = client_make_text(story, 40);
    c->request.ignore_end = true;
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    char text[128];
    uint32_t len = 0;
    for (uint32_t i = 0; i < c->n_got; i++)
        for (uint32_t k = 0; k < table.lengths[c->got[i]]; k++)
            text[len++] = table.bytes[c->got[i]][k];
    CHECK_INT(c->text_end, len);
    for (uint32_t at = 0; at + 7 < len; at++) {
        struct client *stopped = client_make_text(story, 40);
        stopped->request.ignore_end = true;
        stopped->request.stops[0] = (struct byte_view){"never there", 11};
        stopped->request.stops[1] = (struct byte_view){text + at, 4};
        stopped->request.stops[2] = (struct byte_view){text + at + 1, 6};
        stopped->request.n_stops = 3;
        client_submit(&f, stopped);
        fixture_run(&f, &stopped, 1);
        check_answer(stopped, o.max_length);
        CHECK_INT(stopped->finish, FINISH_STOP);
        CHECK(stopped->text_end <= at);
        client_free(stopped);
    }
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler, refuses_what_can_never_fit)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_length = 50;
    o.max_seqs = 1;
    o.max_waiting = 2;
    fixture_open(&f, &o);
    int32_t tokens[64] = {0};
    struct client *c = client_make(tokens, 50, 1);
    CHECK_INT(scheduler_submit(f.scheduler, &c->request), SUBMIT_TOO_LONG);
    CHECK(strstr(c->request.error.message, "50 tokens") && strstr(c->request.error.message, "49"));
    client_free(c);
    struct client *fits[4];
    for (int i = 0; i < 4; i++)
        fits[i] = client_make(tokens, 49, 9);
    for (int i = 0; i < 3; i++)
        client_submit(&f, fits[i]);
    CHECK_INT(scheduler_submit(f.scheduler, &fits[3]->request), SUBMIT_FULL);
    CHECK(strstr(fits[3]->request.error.message, "3 requests"));
    fixture_run(&f, fits, 3);
    for (int i = 0; i < 3; i++)
        check_answer(fits[i], 50);
    client_submit(&f, fits[3]); /* there is room again */
    fixture_run(&f, fits + 3, 1);
    for (int i = 0; i < 4; i++)
        client_free(fits[i]);
    fixture_close(&f);
}

TEST(scheduler, no_cache_neither_matches_nor_inserts)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[4];
    for (int i = 0; i < 4; i++) {
        c[i] = client_make_text(story, 20);
        c[i]->request.ignore_end = true;
        c[i]->request.no_cache = i < 3;
    }
    client_submit(&f, c[0]);
    client_submit(&f, c[1]);
    fixture_run(&f, c, 2);
    CHECK_INT(fixture_stats(&f).n_owned, 0);
    client_submit(&f, c[2]);
    client_submit(&f, c[3]);
    scheduler_step(f.scheduler);
    CHECK_INT(fixture_stats(&f).n_running, 2); /* nobody sleeps for what will not be shared */
    fixture_run(&f, c + 2, 2);
    CHECK_INT(fixture_stats(&f).rows, 4 * (c[0]->request.n_tokens + 19));
    for (int i = 0; i < 4; i++) {
        check_answer(c[i], o.max_length);
        CHECK_INT(c[i]->request.prompt_cached, 0);
        client_free(c[i]);
    }
    fixture_close(&f);
}

TEST(scheduler, namespaces_do_not_share)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[3];
    for (uint32_t i = 0; i < 3; i++) {
        c[i] = client_make_text(story, 1);
        c[i]->request.ns = i % 2;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 3);
    CHECK_INT(fixture_stats(&f).rows, 2 * c[0]->request.n_tokens + 1);
    CHECK_INT(c[1]->request.prompt_cached, 0);
    CHECK_INT(c[2]->request.prompt_cached, c[0]->request.n_tokens - 1);
    for (int i = 0; i < 3; i++)
        client_free(c[i]);
    fixture_close(&f);
}

TEST(scheduler, idle_entries_expire)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.cache_ttl_ns = 30 * 1000 * 1000;
    fixture_open(&f, &o);
    struct client *c = client_make_text(story, 1);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    CHECK(fixture_stats(&f).n_owned > 0);
    uint64_t until_ns = clock_now_ns() + 2000000000u;
    while (fixture_stats(&f).n_owned && clock_now_ns() < until_ns)
        scheduler_step(f.scheduler);
    CHECK_INT(fixture_stats(&f).n_owned, 0);
    CHECK_INT(fixture_stats(&f).tree.expired_pages, c->request.n_tokens);
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler, sleeps_only_until_something_can_expire)
{
    for (int has_ttl = 0; has_ttl < 2; has_ttl++) {
        struct fixture f;
        struct fixture_options o = fixture_defaults();
        o.cache_ttl_ns = has_ttl * UINT64_C(60000000000);
        fixture_open(&f, &o);
        scheduler_step(f.scheduler);
        CHECK(scheduler_idle_ns(f.scheduler) == 0);
        struct client *c = client_make_text("a", 1);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        CHECK_INT(fixture_stats(&f).n_owned, 1);
        CHECK((scheduler_idle_ns(f.scheduler) > 0) == has_ttl);
        client_free(c);
        fixture_close(&f);
    }
}

TEST(scheduler, refuses_limits_that_leave_no_room)
{
    struct mock_options mock = {.n_vocab = FIXTURE_VOCAB, .fail_token = -1, .end_token = -1};
    struct engine_limits limits = {.n_pages = {1}, .max_rows = 4, .max_seqs = 4, .max_length = 100};
    struct engine *engine;
    struct scheduler *s;
    struct error err;
    CHECK(mock_engine_open(&engine, &mock, &limits, &err) == 0);
    struct scheduler_options options = {.engine = engine,
                                        .tokens = fixture_table(),
                                        .max_seqs = 4,
                                        .max_length = 100,
                                        .step_budget_ms = 100};
    CHECK(scheduler_open(&s, &options, &err) == -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK(strstr(err.message, "at most 1 positions"));
    engine_close(engine);
}

TEST(scheduler, refuses_a_cache_larger_than_the_tree_counts)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    f.engine->limits.n_pages[0] = SCHEDULER_MAX_PAGES + 1;
    struct scheduler_options options = {.engine = f.engine,
                                        .tokens = fixture_table(),
                                        .max_seqs = o.max_seqs,
                                        .max_length = o.max_length,
                                        .step_budget_ms = 1};
    struct scheduler *s;
    struct error err;
    CHECK_INT(scheduler_open(&s, &options, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    fixture_close(&f);
}

TEST(scheduler, closing_ends_everything_with_canceled)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_seqs = 2;
    fixture_open(&f, &o);
    struct client *c[5];
    for (int i = 0; i < 5; i++) {
        c[i] = client_make_text(story + i, 100);
        if (i < 4)
            client_submit(&f, c[i]);
    }
    scheduler_step(f.scheduler);
    scheduler_step(f.scheduler);
    client_submit(&f, c[4]); /* still in the queue */
    fixture_close(&f);
    for (int i = 0; i < 5; i++) {
        uint32_t last = atomic_load(&c[i]->request.ring_head) - 1;
        CHECK_INT(c[i]->request.ring[last % REQUEST_RING].type, EVENT_DONE);
        CHECK_INT(c[i]->request.ring[last % REQUEST_RING].finish, FINISH_CANCELED);
        client_free(c[i]);
    }
}
