/* Random mixes of requests: whatever the pool, the budget, the cancels, the failures and the slow
 * readers, each answer is the one that the request gives alone. The scheduler checks conservation
 * itself after each step (debug builds). */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

enum { MAX_CLIENTS = 24, MAX_PROMPT = 160 };

struct mix {
    uint64_t state;
    struct fixture fixture;
    struct fixture_options options;
    bool is_pressed; /* short prompts, long answers: they outgrow the pool */
    bool has_window; /* a second group, often with barely the required pages */
    uint32_t limit, n_clients;
    struct client *clients[MAX_CLIENTS];
    uint32_t arrives[MAX_CLIENTS]; /* at which step */
    uint32_t cancels[MAX_CLIENTS]; /* at which step, 0: never */
    uint32_t clears;               /* how often, in steps; 0: never */
    struct cache_query query;
    struct script_filter filters[MAX_CLIENTS];
    bool is_slow[MAX_CLIENTS];
    bool is_canceled[MAX_CLIENTS];
};

static uint32_t pick(struct mix *m, uint32_t n)
{
    m->state = hash_mix(m->state);
    return (uint32_t)(m->state >> 33) % n;
}

/* Prompts are cut from a few stems, often diverge, and are sometimes the same. */
static struct client *random_client(struct mix *m)
{
    int32_t tokens[MAX_PROMPT];
    uint32_t longest = m->limit - 1 < MAX_PROMPT ? m->limit - 1 : MAX_PROMPT;
    uint32_t n = 1 + pick(m, m->is_pressed && longest > 30 ? 30 : longest), stem = pick(m, 3),
             common = pick(m, n + 1);
    uint64_t tail = pick(m, 2) ? 0 : pick(m, 4);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(i < common ? stem : 100 + stem * 8 + tail, i) % 60);
    uint32_t max_tokens = pick(m, 8) ? 1 + pick(m, m->is_pressed ? 400 : 80) : pick(m, 2);
    struct client *c = client_make(tokens, n, max_tokens);
    struct request *r = &c->request;
    r->ns = pick(m, 6) ? 0 : cache_namespace(1, -1, -1);
    r->no_cache = pick(m, 8) == 0;
    if (pick(m, 6) == 0) {
        r->n_public = pick(m, n + 1);
        r->owner = 1 + pick(m, 2);
    }
    r->tenant = pick(m, 3);
    r->client = pick(m, 3);
    r->pin_ns = pick(m, 12) ? 0 : 1 + (uint64_t)pick(m, 3) * 1000000;
    r->explain = r->explain_others = pick(m, 4) == 0;
    r->ignore_end = m->is_pressed || pick(m, 2);
    if (pick(m, 2)) {
        r->sampling.temperature = 0.5f + (float)pick(m, 10) / 10;
        r->sampling.seed = pick(m, 1000);
        r->sampling.choice = pick(m, 3);
        r->sampling.top_k = pick(m, 3) ? 0 : 1 + (int32_t)pick(m, 20);
        r->sampling.top_p = pick(m, 3) ? 1.0f : 0.8f;
        r->sampling.frequency_penalty = pick(m, 3) ? 0.0f : 0.7f;
    }
    if (pick(m, 3) == 0) {
        r->sampling.typical_p = pick(m, 3) ? 1.0f : 0.7f;
        r->sampling.xtc_probability = pick(m, 3) ? 0.0f : 0.5f;
        r->sampling.top_n_sigma = pick(m, 3) ? 0.0f : 1.5f;
        r->sampling.dry_multiplier = pick(m, 2) ? 0.0f : 1.0f;
        static const uint64_t breakers = 0x1248;
        r->dry_breakers = pick(m, 2) ? &breakers : NULL;
        static const struct logit_bias biases[] = {{3, -100}, {9, 2.5f}, {FIXTURE_END, 1.5f}};
        r->biases = biases;
        r->n_biases = pick(m, 4);
        r->min_tokens = pick(m, 2) * pick(m, 40);
    }
    static const char *const stops[] = {"ab", "eef", "h", "mnn", "xyz"};
    r->n_stops = pick(m, 5) ? 0 : 1 + pick(m, 2);
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const char *stop = stops[pick(m, 5)];
        r->stops[i] = byte_view_of(stop);
    }
    return c;
}

/* Log probabilities and a filter, for some. */
static void ask_more(struct mix *m, uint32_t i)
{
    struct client *c = m->clients[i];
    if (pick(m, 4) == 0)
        client_ask_logprobs(c, pick(m, 2), pick(m, 2), pick(m, REQUEST_MAX_TOP_LOGPROBS + 1));
    if (pick(m, 4) == 0) {
        script_set(&m->filters[i], m->state, c, m->limit);
        m->filters[i].end_at = pick(m, 2) ? 0 : 1 + pick(m, 40);
        m->filters[i].has_ends = pick(m, 2);
        m->filters[i].most_tries = pick(m, 2) * pick(m, 6);
    }
}

/* The filter was told each token once, in order, and asked before each. */
static void check_filter(struct mix *m, uint32_t i)
{
    struct client *c = m->clients[i];
    struct script_filter *f = &m->filters[i];
    if (!c->request.filter)
        return;
    CHECK_INT(f->n_wrong, 0);
    CHECK_INT(f->n_accepted, c->n_got);
    CHECK(f->n_asked >= c->n_got);
    CHECK(memcmp(f->accepted, c->got, c->n_got * sizeof *c->got) == 0);
    script_reset(f); /* for the plain run */
}

/* Another choice of an earlier request. */
static void follow(struct mix *m, uint32_t i)
{
    struct client *leader = m->clients[pick(m, i)], *c = m->clients[i];
    const struct request *from = &leader->request;
    struct request *r = &c->request;
    c->prompt = realloc(c->prompt, from->n_tokens * sizeof *c->prompt);
    memcpy(c->prompt, leader->prompt, from->n_tokens * sizeof *c->prompt);
    r->tokens = c->prompt;
    r->n_tokens = from->n_tokens;
    r->ns = from->ns;
    r->n_public = from->n_public;
    r->owner = from->owner;
    r->no_cache = from->no_cache;
    r->leader = from;
    r->tenant = from->tenant;
    r->client = from->client;
}

static void open_mix(struct mix *m)
{
    struct fixture_options *o = &m->options;
    o->n_pages = 12 + pick(m, 2) * pick(m, 200) + pick(m, 60);
    m->is_pressed = pick(m, 3) == 0;
    if (m->is_pressed)
        o->n_pages = 150 + pick(m, 200);
    o->max_seqs = 1 + pick(m, 6);
    o->max_rows = o->max_seqs + pick(m, 40);
    o->max_waiting = MAX_CLIENTS;
    o->max_length = 8 + pick(m, 300) + (m->is_pressed ? 100 : 0);
    o->step_budget_ms = 1 + pick(m, 50);
    o->mock.is_async = pick(m, 2);
    o->mock.fail_every = pick(m, 3) ? 0 : 2 + pick(m, 12);
    o->mock.fail_token = pick(m, 4) ? -1 : (int32_t)pick(m, 60);
    o->mock.nan_every = pick(m, 5) ? 0 : 5 + pick(m, 60);
    o->tenant_pages = pick(m, 3) ? 0 : 8 + pick(m, 100);
    o->cache_ttl_ns = pick(m, 6) ? 0 : 1 + (uint64_t)pick(m, 2) * 1000000;
    m->clears = pick(m, 4) ? 0 : 1 + pick(m, 20);
    m->limit = o->max_length < o->n_pages ? o->max_length : o->n_pages;
    if (m->has_window) {
        uint32_t window = 1 + pick(m, pick(m, 4) ? 8 : 40);
        mock_set_window(&o->mock, window);
        o->n_window_pages = window + pick(m, 2) * pick(m, 2 * window * o->max_seqs) +
                            pick(m, 2) * pick(m, 60);
    }
    fixture_open(&m->fixture, o);
    m->n_clients = 1 + pick(m, MAX_CLIENTS);
    for (uint32_t i = 0; i < m->n_clients; i++) {
        m->clients[i] = random_client(m);
        m->arrives[i] = pick(m, 2) ? 0 : pick(m, 60);
        if (i && pick(m, 2) == 0)
            follow(m, i);
        ask_more(m, i);
        m->cancels[i] = pick(m, 4) ? 0 : m->arrives[i] + pick(m, 40);
        m->is_slow[i] = pick(m, 4) == 0;
    }
}

/* One turn of the world: arrivals, a step, readers, cancels. False once everything is done. */
static bool turn_mix(struct mix *m, uint32_t now)
{
    struct scheduler *s = m->fixture.scheduler;
    for (uint32_t i = 0; i < m->n_clients; i++) {
        if (m->arrives[i] == now)
            client_submit(&m->fixture, m->clients[i]);
        if (m->cancels[i] && m->cancels[i] == now && m->arrives[i] <= now) {
            scheduler_cancel(s, &m->clients[i]->request);
            m->is_canceled[i] = true;
        }
    }
    if (m->clears && now % m->clears == 0 && (now == 0 || atomic_load(&m->query.is_done))) {
        m->query = (struct cache_query){.type = QUERY_CLEAR, .in_one_namespace = pick(m, 2)};
        CHECK(scheduler_query(s, &m->query));
    }
    bool worked = scheduler_step(s);
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < m->n_clients; i++) {
        if (m->arrives[i] > now)
            continue;
        if (!m->is_slow[i] || !worked || pick(m, 20) == 0)
            worked |= client_read(&m->fixture, m->clients[i], m->is_slow[i] ? 3 : 1000) > 0;
        n_done += m->clients[i]->n_done;
    }
    CHECK(worked || now < 100); /* it never stands still with work to do */
    struct scheduler_stats stats = fixture_stats(&m->fixture);
    const struct pool_stats *w = &stats.sides[0];
    CHECK_INT(stats.n_free + stats.n_owned + stats.n_private, stats.n_pages);
    CHECK_INT(w->n_free + w->n_owned + w->n_private, w->n_pages);
    CHECK_INT(w->n_pages, m->has_window ? m->options.n_window_pages : 0);
    CHECK(stats.n_running <= m->options.max_seqs);
    return n_done < m->n_clients;
}

/* The totals are those of the requests. */
static void check_counts(struct mix *m)
{
    struct scheduler_stats stats = fixture_stats(&m->fixture);
    uint64_t prompt = 0, cached = 0, shared = 0;
    for (uint32_t i = 0; i < m->n_clients; i++) {
        const struct request *r = &m->clients[i]->request;
        CHECK(r->prompt_cached <= r->n_tokens && r->prompt_shared <= r->prompt_cached);
        bool is_scored = r->prompt_logprobs && r->n_tokens > 1; /* one token has nothing to score */
        CHECK(!(r->no_cache || is_scored) || r->prompt_cached == 0);
        prompt += m->clients[i]->n_started ? r->n_tokens : 0;
        cached += r->prompt_cached;
        shared += r->prompt_shared;
    }
    CHECK_INT(stats.prompt_tokens, prompt);
    CHECK_INT(stats.cached_tokens, cached);
    CHECK_INT(stats.shared_tokens, shared);
}

static void check_mix(struct mix *m)
{
    check_counts(m);
    for (uint32_t i = 0; i < m->n_clients; i++) {
        struct client *c = m->clients[i];
        bool broke = c->finish == FINISH_CANCELED || c->finish == FINISH_ERROR;
        CHECK(c->finish != FINISH_CANCELED || m->is_canceled[i]);
        CHECK(c->finish != FINISH_ERROR || m->options.mock.fail_every ||
              m->options.mock.nan_every || m->options.mock.fail_token >= 0);
        check_filter(m, i);
        check_logprobs(c, m->limit);
        if (broke)
            check_beginning(c, m->limit);
        else
            check_answer(c, m->limit);
    }
    struct scheduler_stats stats = fixture_stats(&m->fixture);
    CHECK_INT(stats.n_private + stats.sides[0].n_private, 0);
    CHECK_INT(stats.n_running + stats.n_waiting, 0);
    CHECK_INT(stats.stopped + stats.ran_out + stats.canceled + stats.failed, m->n_clients);
}

static void run_mixes(bool has_window)
{
    uint64_t preempted = 0, failed = 0, canceled = 0, evicted = 0, cached = 0;
    uint64_t forked = 0, retried = 0, shared = 0, cleared = 0, filtered = 0, scored = 0;
    uint64_t interior = 0, tails = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct mix m = {
            .state = seed * 977, .options = fixture_defaults(), .has_window = has_window};
        open_mix(&m);
        for (uint32_t now = 0; turn_mix(&m, now); now++)
            CHECK(now < 100000);
        check_mix(&m);
        struct scheduler_stats stats = fixture_stats(&m.fixture);
        preempted += stats.preempted;
        failed += stats.failed;
        canceled += stats.canceled;
        evicted += stats.tree.evicted_pages;
        cached += stats.cached_tokens;
        forked += stats.forked;
        retried += stats.retried;
        shared += stats.shared_tokens;
        cleared += stats.tree.cleared_pages;
        interior += stats.tree.sides[0].evicted_interior;
        tails += stats.tree.sides[0].evicted_tails;
        for (uint32_t i = 0; i < m.n_clients; i++) {
            const struct client *c = m.clients[i];
            filtered += c->request.filter && c->finish == FINISH_STOP;
            scored += c->request.prompt_logprobs && c->n_got > 0;
            client_free(m.clients[i]);
        }
        fixture_close(&m.fixture);
    }
    /* The mixes are only useful if all this happened in them. */
    CHECK(preempted > 100 && failed > 200 && canceled > 200 && evicted > 10000 && cached > 5000);
    CHECK(forked > (has_window ? 20 : 50) && retried > 100 && shared > 1000 && cleared > 1000);
    CHECK(filtered > 200 && scored > 200);
    CHECK(has_window ? interior > 10000 && tails > 1000 : interior + tails == 0);
}

TEST(scheduler_random, every_answer_is_the_plain_one)
{
    run_mixes(false);
}

TEST(scheduler_random, every_answer_is_the_plain_one_with_a_window)
{
    run_mixes(true);
}

struct trie_entry {
    uint64_t digest;
};

static int order_digests(const void *a, const void *b)
{
    uint64_t x = ((const struct trie_entry *)a)->digest, y = ((const struct trie_entry *)b)->digest;
    return x < y ? -1 : x > y;
}

/* How many different positions the prompts have: what an ideal cache computes. */
static uint32_t count_positions(struct client **clients, uint32_t n)
{
    struct trie_entry *all = malloc(n * MAX_PROMPT * sizeof *all);
    uint32_t n_all = 0, n_different = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *r = &clients[i]->request;
        uint64_t digest = r->ns;
        for (uint32_t k = 0; k < r->n_tokens; k++) {
            uint32_t owner = k < r->n_public ? 0 : r->owner;
            digest = hash_pair(digest, hash_pair(owner, (uint32_t)r->tokens[k]));
            all[n_all++].digest = digest;
        }
    }
    qsort(all, n_all, sizeof *all, order_digests);
    for (uint32_t i = 0; i < n_all; i++)
        n_different += i == 0 || all[i].digest != all[i - 1].digest;
    free(all);
    return n_different;
}

/* With enough pages for all, no prompt position is computed twice except the last of each prompt,
 * whatever the order and time of the requests. A second group does not change that. */
TEST(scheduler_random, computes_no_more_than_an_ideal_cache)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct mix m = {.state = seed * 31 + 5, .options = fixture_defaults(), .limit = 1024};
        m.has_window = seed % 2;
        mock_set_window(&m.options.mock, m.has_window ? 1 + (uint32_t)seed % 40 : 0);
        m.options.n_window_pages = m.has_window ? 8192 : 0;
        m.options.n_pages = 8192;
        m.options.max_seqs = 1 + pick(&m, 16);
        m.options.max_rows = m.options.max_seqs + pick(&m, 40);
        fixture_open(&m.fixture, &m.options);
        m.n_clients = MAX_CLIENTS;
        for (uint32_t i = 0; i < m.n_clients; i++) {
            m.clients[i] = random_client(&m);
            m.clients[i]->request.no_cache = false;
            m.arrives[i] = pick(&m, 40);
        }
        for (uint32_t now = 0; turn_mix(&m, now); now++)
            CHECK(now < 100000);
        uint64_t decoded = 0;
        for (uint32_t i = 0; i < m.n_clients; i++)
            decoded += m.clients[i]->n_got ? m.clients[i]->n_got - 1 : 0;
        uint64_t rows = fixture_stats(&m.fixture).rows;
        CHECK(rows - decoded <= count_positions(m.clients, m.n_clients) + m.n_clients);
        check_mix(&m);
        for (uint32_t i = 0; i < m.n_clients; i++)
            client_free(m.clients[i]);
        fixture_close(&m.fixture);
    }
}
