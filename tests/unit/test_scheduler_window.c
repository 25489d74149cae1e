/* The scheduler with layers that see a window: conversations that continue, prompts and answers
 * longer than all window pages, forks, preemption, and window pages that are hardly enough. The
 * mock engine makes its logits from exactly the window of a row, so a page that is wrong shows in
 * the answer. */
#include <stdlib.h>
#include <string.h>

#include "scheduler_fixture.h"
#include "sched/state.h"
#include "test.h"
#include "test_death.h"

enum { LIMIT = 1024, W = 20, TAIL = W + W / 8 };

static struct fixture_options windowed(uint32_t n_window_pages)
{
    struct fixture_options o = fixture_defaults();
    mock_set_window(&o.mock, W);
    o.n_window_pages = n_window_pages;
    o.max_rows = 48;
    return o;
}

static void run_one(struct fixture *f, struct client *c)
{
    client_submit(f, c);
    fixture_run(f, &c, 1);
}

static struct client *client_of(uint32_t n, uint32_t seed, uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * 7 + seed * 13 + i * i % 11) % (FIXTURE_VOCAB - 1));
    struct client *c = client_make(tokens, n, max_tokens);
    c->request.ignore_end = true;
    return c;
}

/* A conversation as its client has it; the last answer's last token was never fed. */
struct talk {
    int32_t tokens[LIMIT];
    uint32_t n, seed;
};

/* The next turn: some words, and an answer to everything. Returns how much was cached. */
static uint32_t talk_on(struct fixture *f, struct talk *t, uint32_t n_words, uint32_t n_answer)
{
    for (uint32_t i = 0; i < n_words; i++, t->n++)
        t->tokens[t->n] = (int32_t)((t->n * 5 + t->seed * 17 + t->n * t->n % 7) % 60);
    struct client *c = client_make(t->tokens, t->n, n_answer);
    c->request.ignore_end = true;
    run_one(f, c);
    check_answer(c, LIMIT);
    memcpy(t->tokens + t->n, c->got, c->n_got * sizeof *c->got);
    t->n += c->n_got;
    uint32_t cached = c->request.prompt_cached;
    client_free(c);
    return cached;
}

TEST(scheduler_window, a_conversation_goes_on_at_its_last_token)
{
    struct fixture f;
    struct fixture_options o = windowed(4096);
    struct talk t = {.seed = 1};
    fixture_open(&f, &o);
    CHECK_INT(talk_on(&f, &t, 70, 9), 0);
    for (uint32_t turn = 0; turn < 12; turn++) {
        uint32_t n = t.n;
        CHECK_INT(talk_on(&f, &t, 3 + turn * 5, 11), n - 1);
    }
    CHECK(t.n > 500);
    CHECK_INT(fixture_stats(&f).tree.sides[0].evicted_interior, 0); /* nobody wanted them */
    fixture_close(&f);
}

/* Several conversations; the window pages hold their ends and little more. */
TEST(scheduler_window, conversations_go_on_under_pressure)
{
    enum { TALKS = 4 };
    struct fixture f;
    struct fixture_options o = windowed(TALKS * TAIL + W + 48 + 8);
    struct talk talks[TALKS];
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < TALKS; i++) {
        talks[i] = (struct talk){.seed = i};
        CHECK_INT(talk_on(&f, &talks[i], 60 + i * 30, 8), 0);
    }
    for (uint32_t turn = 0; turn < 10; turn++) {
        for (uint32_t i = 0; i < TALKS; i++) {
            uint32_t n = talks[i].n;
            CHECK_INT(talk_on(&f, &talks[i], 10 + turn * 3 + i, 12), n - 1);
        }
    }
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK(stats.n_owned > 5 * o.n_window_pages);
    CHECK(stats.tree.sides[0].evicted_interior > 1000);
    CHECK_INT(stats.tree.sides[0].evicted_tails, 0);
    CHECK_INT(stats.tree.evicted_pages, 0);
    /* With too many conversations, the least recently used ones are evicted whole. */
    struct talk more = {0};
    for (uint32_t i = 0; i < TALKS; i++) {
        more = (struct talk){.seed = 77 + i};
        talk_on(&f, &more, 100, 30);
    }
    stats = fixture_stats(&f);
    CHECK(stats.tree.sides[0].evicted_tails > 0 && stats.tree.evicted_pages >= talks[0].n - 1);
    CHECK_INT(talk_on(&f, &talks[0], 5, 2), 0);
    uint32_t n = more.n;
    CHECK_INT(talk_on(&f, &more, 5, 2), n - 1);
    fixture_close(&f);
}

/* A model that thinks: the next turn has the question, and only the end of the answer. */
static uint32_t think_on(struct fixture *f, struct talk *t, bool keeps_prompt)
{
    for (uint32_t i = 0; i < 30; i++, t->n++)
        t->tokens[t->n] = (int32_t)((t->n * 5 + t->seed * 17) % 60);
    struct client *c = client_make(t->tokens, t->n, 2 * W);
    c->request.ignore_end = true;
    c->request.keeps_prompt = keeps_prompt;
    run_one(f, c);
    check_answer(c, LIMIT);
    uint32_t cached = c->request.prompt_cached;
    memcpy(t->tokens + t->n, c->got + c->n_got - 5, 5 * sizeof *c->got);
    t->n += 5;
    client_free(c);
    return cached;
}

TEST(scheduler_window, the_end_of_a_prompt_is_kept_where_thoughts_are_dropped)
{
    enum { TALKS = 4, TURNS = 8 };
    uint32_t cached[2] = {0}, most = 0;
    for (int keeps = 0; keeps < 2; keeps++) {
        struct fixture f;
        struct fixture_options o = windowed(3 * TALKS * TAIL + W + 48 + 8);
        struct talk talks[TALKS];
        fixture_open(&f, &o);
        most = 0;
        for (uint32_t i = 0; i < TALKS; i++)
            talks[i] = (struct talk){.seed = i};
        for (uint32_t turn = 0; turn < TURNS; turn++)
            for (uint32_t i = 0; i < TALKS; i++) {
                most += turn ? talks[i].n - 5 : 0; /* the prompt before */
                cached[keeps] += think_on(&f, &talks[i], keeps);
            }
        fixture_close(&f);
    }
    CHECK_INT(cached[1], most);
    CHECK(cached[0] < most - most / 5);
}

/* Several conversations begin with the same prompt. One of them continues, the others are evicted
 * by other requests; still the next one resumes at the end of the common prefix. */
TEST(scheduler_window, a_shared_prompt_is_gone_on_from_when_one_conversation_is_left)
{
    enum { SHARED = 200, TALKS = 3 };
    struct fixture f;
    struct fixture_options o = windowed(8 * TAIL + W + 48);
    struct talk talks[TALKS], other, last = {.seed = 0};
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < SHARED; i++, last.n++)
        last.tokens[i] = (int32_t)(i * 11 % 60);
    for (uint32_t i = 0; i < TALKS; i++) {
        talks[i] = last;
        talks[i].seed = i + 1;
        CHECK_INT(talk_on(&f, &talks[i], 40, 10), i ? SHARED : 0);
    }
    for (uint32_t i = 0; i < 12; i++) {
        other = (struct talk){.seed = 50 + i};
        CHECK_INT(talk_on(&f, &other, 60, 10), 0);
        uint32_t n = talks[0].n;
        CHECK_INT(talk_on(&f, &talks[0], 20, 10), n - 1);
    }
    CHECK(fixture_stats(&f).tree.sides[0].evicted_tails > 2 * TAIL); /* the two, and others */
    last.seed = 99;
    CHECK_INT(talk_on(&f, &last, 40, 10), SHARED);
    fixture_close(&f);
}

TEST(scheduler_window, prompts_and_answers_may_be_longer_than_all_window_pages)
{
    for (uint32_t n_window = W; n_window <= 4 * W; n_window += 7) {
        struct fixture f;
        struct fixture_options o = windowed(n_window);
        fixture_open(&f, &o);
        struct client *c = client_of(400, 3, 300);
        run_one(&f, c);
        check_answer(c, LIMIT);
        struct scheduler_stats stats = fixture_stats(&f);
        CHECK_INT(stats.rows, 400 + 300 - 1);
        CHECK_INT(stats.sides[0].n_private, 0);
        CHECK_INT(stats.preempted, 0);
        client_free(c);
        /* Again. The prompt's end was evicted when there was not even room for two windows. */
        c = client_of(400, 3, 0);
        c->request.explain = true;
        run_one(&f, c);
        CHECK(c->request.prompt_cached == 0 ||
              (n_window > 2 * W && c->request.prompt_cached == 399));
        CHECK(c->request.prompt_cached || c->request.miss.reason == MISS_WINDOW);
        client_free(c);
        c = client_of(400, 3, 50); /* and now its end is, computed again */
        run_one(&f, c);
        check_answer(c, LIMIT);
        CHECK_INT(c->request.prompt_cached, 399);
        client_free(c);
        fixture_close(&f);
    }
}

/* The same prompt again and again, and choices that start together: no row twice. */
TEST(scheduler_window, choices_fork_with_their_window)
{
    enum { CHOICES = 4, PROMPT = 100 };
    struct fixture f;
    struct fixture_options o = windowed(16 * (W + 48));
    struct client *choices[CHOICES];
    fixture_open(&f, &o);
    uint64_t rows = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < CHOICES; i++) {
            choices[i] = client_of(PROMPT, 1, 60);
            choices[i]->request.sampling.temperature = 1;
            choices[i]->request.sampling.seed = 5 + round;
            choices[i]->request.sampling.choice = i;
            choices[i]->request.leader = i ? &choices[0]->request : NULL;
            client_submit(&f, choices[i]);
        }
        fixture_run(&f, choices, CHOICES);
        rows += round ? 1 : PROMPT;
        CHECK_INT(choices[0]->request.prompt_cached, round ? PROMPT - 1 : 0);
        for (uint32_t i = 0; i < CHOICES; i++) {
            CHECK(i == 0 || choices[i]->request.prompt_cached == PROMPT);
            check_answer(choices[i], LIMIT);
            rows += choices[i]->n_got - 1;
            client_free(choices[i]);
        }
    }
    CHECK_INT(fixture_stats(&f).forked, 2 * (CHOICES - 1));
    CHECK_INT(fixture_stats(&f).rows, rows);
    fixture_close(&f);
}

/* Many at once on as few window pages as one needs, or a few: they run one after another, or a few
 * at a time, and nobody is preempted for a window page. */
TEST(scheduler_window, few_window_pages_let_few_run)
{
    enum { CLIENTS = 12 };
    static const uint32_t sizes[] = {W, W + 1, 2 * W, 2 * W + 5, 3 * W, 12 * (W + 48)};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct fixture f;
        struct fixture_options o = windowed(sizes[k]);
        struct client *clients[CLIENTS];
        uint32_t most = 0, n_done = 0;
        fixture_open(&f, &o);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            clients[i] = client_of(50 + i * 9, i % 5, 40);
            clients[i]->request.no_cache = i % 4 == 3;
            client_submit(&f, clients[i]);
        }
        while (n_done < CLIENTS) {
            CHECK(scheduler_step(f.scheduler));
            struct scheduler_stats stats = fixture_stats(&f);
            most = stats.n_running > most ? stats.n_running : most;
            n_done = 0;
            for (uint32_t i = 0; i < CLIENTS; i++) {
                client_read(&f, clients[i], UINT32_MAX);
                n_done += clients[i]->n_done;
            }
        }
        CHECK(most <= sizes[k] / W && (most == sizes[k] / W || most >= 4));
        CHECK_INT(fixture_stats(&f).preempted, 0);
        CHECK_INT(fixture_stats(&f).sides[0].n_private, 0);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            check_answer(clients[i], LIMIT);
            client_free(clients[i]);
        }
        fixture_close(&f);
    }
}

/* Answers outgrow the first pool: a preempted sequence continues with the same bits. */
TEST(scheduler_window, a_preempted_sequence_goes_on)
{
    enum { CLIENTS = 6 };
    struct fixture f;
    struct fixture_options o = windowed(6 * W);
    struct client *clients[CLIENTS];
    o.n_pages = 400;
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = client_of(20, i, 250);
        client_submit(&f, clients[i]);
    }
    fixture_run(&f, clients, CLIENTS);
    CHECK(fixture_stats(&f).preempted > 0);
    CHECK_INT(fixture_stats(&f).n_private + fixture_stats(&f).sides[0].n_private, 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check_answer(clients[i], 400);
        client_free(clients[i]);
    }
    fixture_close(&f);
}

/* One computes a long prompt that others wait for, with window pages for a part of it only. */
TEST(scheduler_window, a_flight_is_shared)
{
    enum { CLIENTS = 3, PROMPT = 300 };
    struct fixture f;
    struct fixture_options o = windowed(CLIENTS * (W + 48));
    struct client *clients[CLIENTS];
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = client_of(PROMPT, 1, 20);
        clients[i]->prompt[PROMPT - 1] = (int32_t)i; /* they differ in the last token */
        client_submit(&f, clients[i]);
    }
    fixture_run(&f, clients, CLIENTS);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        check_answer(clients[i], LIMIT);
        CHECK_INT(clients[i]->request.prompt_cached, i ? PROMPT - 1 : 0);
        client_free(clients[i]);
    }
    CHECK_INT(fixture_stats(&f).shared_tokens, (CLIENTS - 1) * (PROMPT - 1));
    fixture_close(&f);
}

/* A batch that was stopped may be planned again with fewer rows. */
TEST(scheduler_window, runs_cover_what_the_rows_see_and_no_more)
{
    uint32_t pages[16];
    struct page_run runs[16];
    struct cache cache = {.n_sides = 1, .sides = {{.kind = KV_WINDOW, .before = 3}}};
    struct sequence seq = {.capacity = 16, .n_computed = 5};
    seq.sides[0] = (struct seq_side){.pages = pages, .runs = runs, .n_reserved = 16};
    for (uint32_t i = 0; i < 16; i++)
        pages[i] = 100 + i + i / 4; /* runs of four */
    for (uint32_t round = 0; round < 4; round++) {
        const struct seq_side *x = &seq.sides[0];
        uint32_t length = round % 2 ? 8 : 14, n = 0;
        seq_window_set_runs(&seq, &cache, 0, length);
        CHECK_INT(x->from, 2);
        CHECK_INT(x->to, length);
        CHECK_INT(runs[x->first_run].first, pages[2]);
        for (uint32_t i = x->first_run; i < x->end_run; i++)
            n += runs[i].count;
        CHECK_INT(n, length - 2);
    }
}

TEST(scheduler_window, tables_of_pages_take_memory)
{
    CHECK_INT(scheduler_side_page_bytes(), page_pool_page_bytes());
    CHECK(scheduler_page_bytes(0) > page_pool_page_bytes());
    CHECK(scheduler_page_bytes(2) > scheduler_page_bytes(1));
    CHECK(scheduler_page_bytes(1) > scheduler_page_bytes(0));
}

TEST(scheduler_window, clearing_gives_back_both)
{
    struct fixture f;
    struct fixture_options o = windowed(100);
    struct talk t = {.seed = 4};
    fixture_open(&f, &o);
    talk_on(&f, &t, 200, 20);
    uint32_t n_window = fixture_stats(&f).sides[0].n_owned;
    CHECK(n_window >= TAIL && n_window <= 100);
    struct cache_query q = {.type = QUERY_CLEAR};
    CHECK(scheduler_query(f.scheduler, &q));
    while (!atomic_load(&q.is_done))
        CHECK(scheduler_step(f.scheduler));
    CHECK_INT(q.n_cleared, 219);
    CHECK_INT(q.n_cleared_side[0], n_window);
    CHECK_INT(fixture_stats(&f).sides[0].n_free, 100);
    fixture_close(&f);
}

TEST(scheduler_window, too_few_window_pages_are_refused)
{
    struct mock_options mock = {
        .n_vocab = FIXTURE_VOCAB, .fail_token = -1, .end_token = FIXTURE_END};
    struct engine_limits limits = {
        .n_pages = {100, W - 1}, .max_rows = 8, .max_seqs = 2, .max_length = 100};
    struct scheduler *s;
    struct engine *e;
    struct error err;
    mock_set_window(&mock, W);
    CHECK_INT(mock_engine_open(&e, &mock, &limits, &err), 0);
    struct scheduler_options options = {.engine = e,
                                        .tokens = fixture_table(),
                                        .max_seqs = 2,
                                        .max_length = 100,
                                        .step_budget_ms = 100};
    CHECK_INT(scheduler_open(&s, &options, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK(strstr(err.message, "19") && strstr(err.message, "20"));
    options.max_length = W - 1; /* no sequence is longer than that */
    CHECK_INT(scheduler_open(&s, &options, &err), 0);
    scheduler_close(s);
    engine_close(e);
}

/* What a step is expected to cost depends on the positions that its rows look back at. */
TEST(scheduler_window, adds_up_the_positions_of_a_batch)
{
    struct fixture f;
    struct fixture_options o = windowed(64);
    fixture_open(&f, &o);
    struct client *c = client_of(30, 1, 20);
    client_submit(&f, c);
    scheduler_step(f.scheduler);
    CHECK_INT(f.scheduler->work.rows, 30);
    CHECK_INT(f.scheduler->work.positions, 29 * 30 / 2);
    fixture_run(&f, &c, 1);
    client_free(c);
    fixture_close(&f);
}

/* Pages of each group are counted after each step. */
TEST(scheduler_window, notices_a_lost_page)
{
    struct fixture f;
    struct fixture_options o = windowed(64);
    fixture_open(&f, &o);
    struct client *c = client_of(30, 1, 20);
    client_submit(&f, c);
    scheduler_step(f.scheduler);
    CHECK_INT(f.scheduler->n_running, 1);
    CHECK_ABORTS({
        f.scheduler->running[0]->n_private++;
        scheduler_step(f.scheduler);
    });
    CHECK_ABORTS({
        f.scheduler->cache.pool.n_free--;
        scheduler_step(f.scheduler);
    });
    CHECK_ABORTS({
        f.scheduler->cache.sides[0].pool.n_free--;
        scheduler_step(f.scheduler);
    });
    fixture_run(&f, &c, 1);
    client_free(c);
    fixture_close(&f);
}
