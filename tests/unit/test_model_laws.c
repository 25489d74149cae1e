/* The law of the cache on real architectures: the scheduler with the CPU engine on the goldens of
 * tests/models, with windowed layers and without. Whatever is shared, evicted, forked, canceled or
 * preempted, each answer has the tokens, and the log probabilities to the last bit, that its
 * request gives alone: computed here with one sequence, no cache and no scheduler. And a
 * conversation longer than the window is computed once. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "batch_rows.h"
#include "engine/cpu/cpu_engine.h"
#include "golden_model.h"
#include "scheduler_fixture.h"
#include "test.h"

enum {
    MAX_LENGTH = 256,
    MAX_ROWS = 24,
    MAX_SEQS = 5,
    MAX_VOCAB = 128,
    N_CLIENTS = 13,
    N_MIXES = 4,
    MANY_PAGES = 2048,
};

/* A golden's model, and an engine of its own for the plain runs. */
struct world {
    struct model model;
    struct engine *plain;
    struct sampler *sampler;
    uint32_t n_vocab;
    uint32_t window; /* 0: all layers see everything */
    int32_t end;
};

static struct token_table make_table(const struct world *w)
{
    static const char *bytes[MAX_VOCAB];
    static uint32_t lengths[MAX_VOCAB];
    static bool is_end[MAX_VOCAB];
    for (uint32_t i = 0; i < w->n_vocab; i++) {
        bytes[i] = "x";
        lengths[i] = 1;
        is_end[i] = (int32_t)i == w->end;
    }
    return (struct token_table){w->n_vocab, bytes, lengths, is_end};
}

static struct engine *open_engine(const struct world *w, struct engine_limits limits)
{
    struct engine *e;
    struct error err;
    if (cpu_engine_open(&e, &w->model, &limits, &(struct cpu_options){.n_threads = 1}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

static void world_open(struct world *w, const char *name)
{
    struct golden golden;
    struct error err;
    char directory[512];
    *w = (struct world){0};
    log_set_level(LOG_ERROR);
    golden_open(&golden, name);
    snprintf(directory, sizeof directory, "%s/laws-%s", test_scratch_dir(), name);
    golden_write(&golden.plain, GOLDEN_F32, 1, directory);
    if (model_open(&w->model, directory, &(struct model_options){.context = golden.context}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    golden_close(&golden);
    w->plain = open_engine(w, (struct engine_limits){.n_pages = {MAX_LENGTH, MAX_LENGTH},
                                                     .max_rows = MAX_LENGTH,
                                                     .max_seqs = 1,
                                                     .max_length = MAX_LENGTH});
    w->n_vocab = w->plain->info.n_vocab;
    w->window = w->plain->info.n_groups > 1 ? w->plain->info.groups[1].window : 0;
    w->end = (int32_t)w->n_vocab - 1;
    CHECK(w->n_vocab <= MAX_VOCAB && w->plain->info.bit_exact);
    CHECK(sampler_open(&w->sampler, w->n_vocab, MAX_LENGTH, &err) == 0);
}

static void world_close(struct world *w)
{
    sampler_close(w->sampler);
    engine_close(w->plain);
    model_close(&w->model);
}

static void open_scheduler(const struct world *w, struct fixture *f, uint32_t n_pages,
                           uint32_t n_window_pages)
{
    struct error err;
    struct engine_limits limits = {.n_pages = {n_pages, w->window ? n_window_pages : 0},
                                   .max_rows = MAX_ROWS,
                                   .max_seqs = MAX_SEQS,
                                   .max_length = MAX_LENGTH};
    *f = (struct fixture){.engine = open_engine(w, limits)};
    struct scheduler_options options = {.engine = f->engine,
                                        .tokens = make_table(w),
                                        .max_seqs = MAX_SEQS,
                                        .max_waiting = N_CLIENTS,
                                        .max_length = MAX_LENGTH,
                                        .step_budget_ms = 1000};
    if (scheduler_open(&f->scheduler, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* Computes positions begin .. end - 1 of a sequence in pages 0, 1, ... of both groups, and returns
 * the logits of the last one. */
static void feed_plain(struct world *w, const int32_t *tokens, uint32_t begin, uint32_t end,
                       float *logits)
{
    struct batch_row rows[MAX_LENGTH];
    struct page_run run = {0, end};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = end};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = end - begin};
    struct error err;
    for (uint32_t p = begin; p < end; p++)
        rows[p - begin] = token_row(tokens[p], p, p, 0, p + 1 == end ? WANTS_LOGITS : NULL);
    CHECK(forward_rows(w->plain, &batch, rows, logits, &err) == 0);
}

/* The answer, complete or cut off, must begin like that of the request alone; returns the number of
 * tokens compared. */
static uint32_t check_tokens(struct world *w, const struct client *c)
{
    const struct request *r = &c->request;
    float logits[MAX_VOCAB];
    int32_t tokens[MAX_LENGTH];
    uint32_t n = r->n_tokens, n_fed = 0;
    CHECK(n + c->n_got <= MAX_LENGTH);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_payload(r->tokens[i]);
    for (uint32_t i = 0; i < c->n_got; i++) {
        struct token_logprobs want;
        feed_plain(w, tokens, n_fed, n, logits);
        n_fed = n;
        int32_t token = sampler_pick(w->sampler, logits,
                                     &(struct sampler_input){.sampling = &r->sampling,
                                                             .generated = tokens + r->n_tokens,
                                                             .n_generated = i,
                                                             .n_tokens = w->n_vocab});
        CHECK(sampler_logprobs(w->sampler, logits, token, 1, &want));
        CHECK_INT(c->got[i], token);
        CHECK(memcmp(&c->logprobs[i].logprob, &want.logprob, sizeof want.logprob) == 0);
        CHECK(memcmp(&c->logprobs[i].top[0], &want.top[0], sizeof want.top[0]) == 0);
        tokens[n++] = token;
    }
    return c->n_got;
}

/* The answer is also complete: it ends where it may, and not before. */
static void check_whole(const struct world *w, const struct client *c, uint32_t limit)
{
    const struct request *r = &c->request;
    uint32_t room = limit - r->n_tokens, most = r->max_tokens < room ? r->max_tokens : room;
    bool ends = false;
    for (uint32_t i = 0; i < c->n_got && !r->ignore_end; i++) {
        ends = c->got[i] == w->end;
        CHECK(!ends || i + 1 == c->n_got);
    }
    CHECK_INT(c->finish, ends ? FINISH_STOP : FINISH_LENGTH);
    CHECK(ends || c->n_got == most);
}

/* ---- conversations ---- */

/* The whole conversation; the last answer's last token was never fed. */
struct talk {
    int32_t tokens[MAX_LENGTH];
    uint32_t n;
    uint64_t seed;
};

/* The next turn: some words, and an answer to everything. Returns how much was cached. */
static uint32_t talk_on(struct world *w, struct fixture *f, struct talk *t, uint32_t n_words)
{
    enum { ANSWER = 7 };
    CHECK(t->n + n_words + ANSWER <= MAX_LENGTH);
    for (uint32_t i = 0; i < n_words; i++, t->n++)
        t->tokens[t->n] = (int32_t)(hash_pair(t->seed, t->n) % w->n_vocab);
    struct client *c = client_make(t->tokens, t->n, ANSWER);
    c->request.ignore_end = true;
    c->request.sampling.temperature = t->seed % 2 ? 1 : 0;
    c->request.sampling.seed = t->n;
    client_ask_logprobs(c, true, false, 1);
    client_submit(f, c);
    fixture_run(f, &c, 1);
    CHECK_INT(check_tokens(w, c), ANSWER);
    memcpy(t->tokens + t->n, c->got, sizeof(int32_t) * ANSWER);
    t->n += ANSWER;
    uint32_t cached = c->request.prompt_cached;
    client_free(c);
    return cached;
}

static void check_talk(struct world *w)
{
    struct fixture f;
    struct talk t = {.seed = 1};
    open_scheduler(w, &f, MANY_PAGES, MANY_PAGES);
    CHECK_INT(talk_on(w, &f, &t, 2 * MAX_ROWS + 1), 0);
    for (uint32_t turn = 0; turn < 8; turn++) {
        uint32_t n = t.n;
        CHECK_INT(talk_on(w, &f, &t, 1 + turn * 3), n - 1);
    }
    CHECK(t.n > 10 * w->window);
    CHECK_INT(fixture_stats(&f).rows, t.n - 1); /* nothing was computed twice */
    fixture_close(&f);
}

/* Window pages for the ends of all conversations and hardly more: other requests evict pages, but
 * interior pages that nobody needs go first, so that each conversation resumes at its last token.
 */
static void check_talks_under_pressure(struct world *w)
{
    enum { TALKS = 3, TURNS = 5 };
    struct fixture f;
    struct talk talks[TALKS];
    uint32_t tail = w->window + w->window / 8 + 1;
    uint32_t n_window_pages = TALKS * tail + w->window + MAX_ROWS;
    open_scheduler(w, &f, MANY_PAGES, n_window_pages);
    for (uint32_t i = 0; i < TALKS; i++) {
        talks[i] = (struct talk){.seed = 10 + i};
        CHECK_INT(talk_on(w, &f, &talks[i], 30 + i * 10), 0);
    }
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t i = 0; i < TALKS; i++) {
            uint32_t n = talks[i].n;
            CHECK_INT(talk_on(w, &f, &talks[i], 3 + turn * 4 + i), n - 1);
        }
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.tree.sides[0].evicted_tails + stats.tree.evicted_pages, 0);
    CHECK(w->window ? stats.tree.sides[0].evicted_interior > 2 * n_window_pages
                    : stats.tree.sides[0].evicted_interior == 0);
    fixture_close(&f);
}

/* ---- random mixes ---- */

struct mix {
    uint64_t state;
    struct world *world;
    struct fixture fixture;
    uint32_t n_pages, limit, n_clients;
    struct client *clients[N_CLIENTS];
    bool is_canceled[N_CLIENTS];
    bool is_pressed; /* short prompts and long answers, that outgrow the pool */
};

/* What happened in all mixes of a model; all of it must occur for the test to be worth anything. */
struct counts {
    uint64_t cached, evicted, preempted, canceled, forked, interior, tails, compared, followed;
    bool seen[MAX_VOCAB]; /* tokens in answers */
};

static uint32_t pick(struct mix *m, uint32_t n)
{
    m->state = hash_mix(m->state);
    return (uint32_t)(m->state >> 33) % n;
}

/* The prompt of a new request: one of its own with a common beginning, an earlier one, or the next
 * turn after an answer. Returns its length. */
static uint32_t random_prompt(struct mix *m, struct counts *counts, int32_t *tokens)
{
    const struct client *from = m->n_clients ? m->clients[pick(m, m->n_clients)] : NULL;
    uint32_t n = 0, n_words = 1 + pick(m, m->is_pressed ? 12 : 40), stem = pick(m, 2);
    uint32_t common = pick(m, n_words + 1);
    if (from && pick(m, 3)) {
        n = from->request.n_tokens;
        client_ids(from, tokens, n);
        if (from->n_done && pick(m, 4)) {
            memcpy(tokens + n, from->got, from->n_got * sizeof *tokens);
            n += from->n_got;
            counts->followed++;
        }
        n_words = pick(m, 10);
        common = 0;
    }
    for (uint32_t i = 0; i < n_words && n < m->limit; i++, n++)
        tokens[n] = (int32_t)(hash_pair(i < common ? stem : m->state, i) % m->world->n_vocab);
    return n < m->limit ? n : m->limit - 1;
}

/* A new request, or another choice of an earlier one. */
static void add_client(struct mix *m, const struct request *leader, struct counts *counts)
{
    int32_t tokens[2 * MAX_LENGTH];
    uint32_t n = leader ? leader->n_tokens : random_prompt(m, counts, tokens);
    uint32_t max_tokens = m->is_pressed ? 70 + pick(m, 30) : 1 + pick(m, 16);
    for (uint32_t i = 0; leader && i < n; i++)
        tokens[i] = cache_token_payload(leader->tokens[i]);
    struct client *c = client_make(tokens, n, max_tokens);
    struct request *r = &c->request;
    r->leader = leader;
    r->no_cache = leader ? leader->no_cache : pick(m, 8) == 0;
    r->ignore_end = m->is_pressed || pick(m, 2);
    if (leader || pick(m, 2)) {
        r->sampling.temperature = 0.5f + (float)pick(m, 10) / 10;
        r->sampling.seed = pick(m, 1000);
        r->sampling.choice = leader ? m->n_clients : 0;
        r->sampling.top_k = pick(m, 3) ? 0 : 20;
    }
    client_ask_logprobs(c, true, false, 1);
    client_submit(&m->fixture, c);
    m->clients[m->n_clients++] = c;
}

/* Arrivals, a step, readers, a cancel. False once everything is done. */
static bool turn_mix(struct mix *m, struct counts *counts)
{
    bool is_due = m->is_pressed || pick(m, 6) == 0;
    if (m->n_clients < N_CLIENTS && is_due) {
        add_client(m, NULL, counts);
        const struct request *first = &m->clients[m->n_clients - 1]->request;
        while (m->n_clients < N_CLIENTS && pick(m, 3) == 0)
            add_client(m, first, counts);
    }
    if (m->n_clients && pick(m, 100) == 0) {
        uint32_t i = pick(m, m->n_clients);
        if (!m->clients[i]->n_done) {
            scheduler_cancel(m->fixture.scheduler, &m->clients[i]->request);
            m->is_canceled[i] = true;
        }
    }
    scheduler_step(m->fixture.scheduler);
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < m->n_clients; i++) {
        client_read(&m->fixture, m->clients[i], UINT32_MAX);
        n_done += m->clients[i]->n_done;
    }
    struct scheduler_stats stats = fixture_stats(&m->fixture);
    const struct pool_stats *w = &stats.sides[0];
    CHECK_INT(stats.n_free + stats.n_owned + stats.n_private, stats.n_pages);
    CHECK_INT(w->n_free + w->n_owned + w->n_private, w->n_pages);
    return n_done < N_CLIENTS;
}

static void check_clients(struct mix *m, struct counts *counts)
{
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        struct client *c = m->clients[i];
        counts->compared += check_tokens(m->world, c);
        if (c->finish == FINISH_CANCELED)
            CHECK(m->is_canceled[i]);
        else
            check_whole(m->world, c, m->limit);
        for (uint32_t k = 0; k < c->n_got; k++)
            counts->seen[c->got[k]] = true;
    }
    for (uint32_t i = 0; i < N_CLIENTS; i++)
        client_free(m->clients[i]);
}

static void run_mix(struct world *w, uint64_t seed, struct counts *counts)
{
    struct mix m = {.state = seed, .world = w, .is_pressed = seed % 2};
    m.n_pages = m.is_pressed ? 200 + pick(&m, 50) : 60 + pick(&m, 100);
    m.limit = m.n_pages < MAX_LENGTH ? m.n_pages : MAX_LENGTH;
    open_scheduler(w, &m.fixture, m.n_pages, w->window * (1 + pick(&m, MAX_SEQS)) + pick(&m, 30));
    for (uint32_t now = 0; turn_mix(&m, counts); now++)
        CHECK(now < 100000);
    check_clients(&m, counts);
    struct scheduler_stats stats = fixture_stats(&m.fixture);
    CHECK_INT(stats.n_private + stats.sides[0].n_private + stats.failed, 0);
    counts->cached += stats.cached_tokens;
    counts->evicted += stats.tree.evicted_pages;
    counts->preempted += stats.preempted;
    counts->canceled += stats.canceled;
    counts->forked += stats.forked;
    counts->interior += stats.tree.sides[0].evicted_interior;
    counts->tails += stats.tree.sides[0].evicted_tails;
    fixture_close(&m.fixture);
}

static void check_mixes(struct world *w)
{
    struct counts counts = {0};
    uint32_t n_seen = 0;
    for (uint64_t i = 0; i < N_MIXES; i++)
        run_mix(w, i, &counts);
    for (uint32_t i = 0; i < w->n_vocab; i++)
        n_seen += counts.seen[i];
    CHECK(counts.compared > 1000 && n_seen > w->n_vocab / 2);
    CHECK(counts.cached > 200 && counts.evicted > 500 && counts.preempted > 0);
    CHECK(counts.canceled > 2 && counts.forked > 2 && counts.followed > 2);
    CHECK(w->window ? counts.interior > 50 && counts.tails > 50
                    : counts.interior + counts.tails == 0);
}

/* ---- the models ---- */

static void check_model(const char *name, uint32_t window)
{
    struct world w;
    world_open(&w, name);
    CHECK_INT(w.window, window);
    check_talk(&w);
    check_talks_under_pressure(&w);
    check_mixes(&w);
    world_close(&w);
}

#define MODEL_TEST(name_, window_)                                                                 \
    TEST(model_laws, name_)                                                                        \
    {                                                                                              \
        check_model(#name_, window_);                                                              \
    }

MODEL_TEST(gemma3, 8)
MODEL_TEST(gemma4, 8)
MODEL_TEST(gpt_oss, 8)
MODEL_TEST(exaone4, 8)
MODEL_TEST(mistral, 8) /* every layer */
MODEL_TEST(llama3, 0)
MODEL_TEST(deepseek_v3, 0)
MODEL_TEST(qwen3_moe, 0)
