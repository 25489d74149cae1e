/* See sched_world.h. Prompts are cut from a few stems, so that sequences share prefixes, diverge
 * and repeat; they contain images, and tokens of other kinds. */
#include "sched_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "mock_oracle.h"
#include "sched/scheduler.h"
#include "test.h"

enum {
    VOCAB = 48,
    END = VOCAB - 1,
    CLIENTS = 10,
    IMAGES = 6,
    ADAPTERS = 3,
    MAX_PROMPT = 120,
    MAX_LENGTH = 160,
};

struct client {
    struct request request;
    bool is_busy, is_slow;
    uint64_t prompt[MAX_PROMPT];
    uint32_t adapter; /* 1 + index, 0: none */
    struct oracle oracle;
    struct token_logprobs ring[REQUEST_RING];
    struct token_logprobs scores[MAX_PROMPT];
    uint32_t n_got;
};

struct sched_world {
    uint64_t seed, state;
    struct mock_options mock;
    struct engine *engine;
    struct scheduler *scheduler;
    struct request_image images[IMAGES];
    uint64_t adapters[ADAPTERS]; /* the engine's numbers; 0: not loaded */
    struct client clients[CLIENTS];
    struct scheduler_stats stats;
    struct sched_totals totals;
};

static const char *letters[VOCAB];
static uint32_t lengths[VOCAB];
static bool is_end[VOCAB];
static const char *const adapter_paths[ADAPTERS] = {"red", "green", "blue"};

static uint32_t pick(struct sched_world *w, uint32_t n)
{
    w->state = hash_mix(w->state);
    return (uint32_t)(w->state >> 33) % n;
}

/* ---- the engine ---- */

static void add_group(struct sched_world *w, enum kv_kind kind)
{
    struct kv_group *g = &w->mock.groups[w->mock.n_groups++];
    static const uint32_t grains[] = {1, 4, 16};
    g->kind = kind;
    g->sees_regions = kind != KV_STATE && pick(w, 2);
    if (kind == KV_WINDOW)
        g->window = 2 + pick(w, 20);
    if (kind == KV_STATE)
        g->grain = grains[pick(w, 3)];
}

static void choose_groups(struct sched_world *w)
{
    static const enum kv_kind sides[][2] = {
        {KV_WINDOW, KV_STATE}, {KV_STATE, KV_WINDOW}, {KV_WINDOW, KV_WINDOW}};
    add_group(w, KV_FULL);
    uint32_t n = pick(w, 8) ? 2 : pick(w, 2), which = pick(w, 3);
    for (uint32_t i = 0; i < n; i++)
        add_group(w, sides[which][i]);
    w->mock.no_full_layers = n > 0 && pick(w, 4) == 0;
    w->totals.n_worlds[w->mock.n_groups]++;
}

static void choose_trouble(struct sched_world *w)
{
    w->mock.fail_every = pick(w, 3) ? 0 : 20 + pick(w, 200);
    w->mock.nan_every = pick(w, 3) ? 0 : 30 + pick(w, 300);
    w->mock.lose_every = pick(w, 4) ? 0 : 100 + pick(w, 400);
    w->mock.fail_image_every = pick(w, 4) ? 0 : 10 + pick(w, 20);
    w->mock.fail_token = -1;
    w->mock.end_token = pick(w, 2) ? END : -1;
}

static void open_engine(struct sched_world *w)
{
    struct error err;
    bool is_small = pick(w, 3) == 0; /* hardly enough for the running sequences */
    uint32_t n_seqs = 1 + pick(w, 5), n_pages = MAX_LENGTH + pick(w, is_small ? 80 : 2000);
    struct engine_limits limits = {.n_pages = {n_pages},
                                   .n_slots = n_seqs,
                                   .max_rows = 40 + pick(w, 60),
                                   .max_seqs = n_seqs,
                                   .max_length = MAX_LENGTH,
                                   .max_image_rows = 32 + pick(w, 100)};
    for (uint32_t g = 1; g < w->mock.n_groups; g++)
        limits.n_pages[g] = w->mock.groups[g].kind == KV_STATE
                                ? 1 + pick(w, is_small ? 6 : 60)
                                : w->mock.groups[g].window + 24 + pick(w, is_small ? 60 : 600);
    CHECK(mock_engine_open(&w->engine, &w->mock, &limits, &err) == 0);
    struct scheduler_options options = {.engine = w->engine,
                                        .tokens = {VOCAB, letters, lengths, is_end},
                                        .max_seqs = n_seqs,
                                        .max_waiting = CLIENTS,
                                        .max_length = MAX_LENGTH,
                                        .step_budget_ms = 50,
                                        .state_interval = pick(w, 2) * (8 + pick(w, 40)),
                                        .cache_ttl_ns = pick(w, 8) ? 0 : 3000000};
    CHECK(scheduler_open(&w->scheduler, &options, &err) == 0);
}

static void make_images(struct sched_world *w)
{
    for (uint32_t i = 0; i < IMAGES; i++) {
        struct request_image *image = &w->images[i];
        uint32_t rows = 1 + pick(w, 4), cols = 1 + pick(w, 5);
        bool is_grid = pick(w, 2);
        image->shape = (struct image_shape){.length = rows * cols,
                                            .position_span = is_grid ? (rows > cols ? rows : cols)
                                                                     : rows * cols,
                                            .grid_rows = is_grid ? (uint16_t)rows : 0,
                                            .grid_cols = is_grid ? (uint16_t)cols : 0};
        memset(image->sha256, (int)i + 1, sizeof image->sha256);
    }
}

struct sched_world *sched_world_open(uint64_t seed)
{
    struct sched_world *w = calloc(1, sizeof *w);
    CHECK(w);
    log_set_level(LOG_ERROR); /* what fails here fails on purpose */
    is_end[END] = true;
    for (uint32_t i = 0; i < VOCAB; i++)
        letters[i] = "";
    w->seed = seed;
    w->state = hash_mix(seed);
    w->mock = (struct mock_options){.n_vocab = VOCAB,
                                    .rope_axes = 1 + pick(w, ROPE_AXES),
                                    .max_region = 20,
                                    .is_async = pick(w, 16) == 0};
    choose_groups(w);
    choose_trouble(w);
    make_images(w);
    open_engine(w);
    return w;
}

/* ---- requests ---- */

/* The inputs of an image, as the oracle takes them; its first row's rope position moves on. */
static void feed_image(struct client *c, const struct request_image *image, uint32_t *rope)
{
    struct oracle_input inputs[32];
    const struct image_shape *shape = &image->shape;
    for (uint32_t i = 0; i < shape->length; i++) {
        uint32_t row = shape->grid_cols ? i / shape->grid_cols : i;
        uint32_t col = shape->grid_cols ? i % shape->grid_cols : i;
        uint32_t still = shape->grid_cols ? 0 : i;
        inputs[i] = (struct oracle_input){
            .source = ROW_IMAGE,
            .value = (int32_t)i,
            .rope = {*rope + still, *rope + row, *rope + col, *rope + still}};
        memcpy(inputs[i].sha256, image->sha256, sizeof inputs[i].sha256);
    }
    oracle_append(&c->oracle, inputs, shape->length, true);
    *rope += shape->position_span;
}

static void feed_word(struct client *c, uint64_t token, uint32_t *rope)
{
    static const enum row_source sources[] = {[CACHE_TOKEN_TEXT] = ROW_TOKEN,
                                              [CACHE_TOKEN_COORDINATE] = ROW_COORDINATE,
                                              [CACHE_TOKEN_SIZE] = ROW_SIZE};
    struct oracle_input input = {.source = sources[cache_token_kind(token)],
                                 .value = cache_token_payload(token),
                                 .rope = {*rope, *rope, *rope, *rope}};
    oracle_append(&c->oracle, &input, 1, false);
    ++*rope;
}

/* One word of a stem: mostly text, now and then a coordinate, a size, or a whole image. */
static uint32_t add_word(struct sched_world *w, struct client *c, uint64_t h, uint32_t n,
                         uint32_t *rope)
{
    if (h % 16 == 0) {
        uint32_t which = (uint32_t)(h >> 8) % IMAGES, length = w->images[which].shape.length;
        if (n + length > MAX_PROMPT)
            return 0;
        for (uint32_t i = 0; i < length; i++)
            c->prompt[n + i] = cache_token_image(which, i, length);
        feed_image(c, &w->images[which], rope);
        w->totals.n_images++;
        return length;
    }
    c->prompt[n] = h % 16 == 1   ? cache_token_coordinate((uint32_t)(h >> 8) % 1024)
                   : h % 16 == 2 ? cache_token_size((uint16_t)((h >> 8) % 1024), 7)
                                 : cache_token_text((int32_t)((h >> 8) % (VOCAB - 1)));
    feed_word(c, c->prompt[n], rope);
    return 1;
}

static uint32_t make_prompt(struct sched_world *w, struct client *c)
{
    uint32_t want = 1 + pick(w, MAX_PROMPT - 1), stem = pick(w, 2), common = pick(w, 4) * 40;
    uint64_t tail = pick(w, 3);
    uint32_t n = 0, rope = 0, word = 0;
    for (; n < want; word++) {
        uint64_t h = hash_pair(w->seed + (n < common ? stem : 100 + stem * 8 + tail), word);
        uint32_t added = add_word(w, c, h, n, &rope);
        if (added == 0)
            break;
        n += added;
    }
    if (n == 0)
        feed_word(c, c->prompt[n++] = cache_token_text(1), &rope);
    return n;
}

static bool is_in_use(const struct sched_world *w, uint32_t adapter)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (w->clients[i].is_busy && w->clients[i].adapter == adapter)
            return true;
    return false;
}

/* Adapters are loaded on demand and unloaded now and then; a reloaded adapter counts as a new one.
 */
static uint32_t choose_adapter(struct sched_world *w)
{
    struct error err;
    uint32_t which = pick(w, 4) ? 0 : 1 + pick(w, ADAPTERS);
    if (which == 0)
        return 0;
    uint64_t *number = &w->adapters[which - 1];
    if (*number && pick(w, 8) == 0 && !is_in_use(w, which)) {
        engine_unload_adapter(w->engine, *number);
        *number = 0;
    }
    if (*number == 0) {
        if (engine_load_adapter(w->engine, adapter_paths[which - 1], number, &err)) {
            *number = 0;
            return 0; /* the device is lost, for now */
        }
        w->totals.n_adapters++;
    }
    return which;
}

static void client_send(struct sched_world *w, struct client *c)
{
    struct request *r = &c->request;
    c->adapter = choose_adapter(w);
    oracle_open(&c->oracle, &w->mock, c->adapter ? adapter_paths[c->adapter - 1] : NULL);
    uint32_t n = make_prompt(w, c);
    *r = (struct request){.tokens = c->prompt,
                          .n_tokens = n,
                          .images = w->images,
                          .n_images = IMAGES,
                          .adapter = c->adapter ? w->adapters[c->adapter - 1] : 0,
                          .max_tokens = pick(w, 12) ? 1 + pick(w, pick(w, 4) ? 12 : 120) : 0,
                          .ns = pick(w, 6) ? 0 : cache_namespace(1, -1, -1),
                          .sampling = SAMPLING_DEFAULT,
                          .logprobs_ring = c->ring,
                          .prompt_logprobs = pick(w, 8) ? NULL : c->scores,
                          .ignore_end = pick(w, 2),
                          .no_cache = pick(w, 8) == 0,
                          .keeps_prompt = pick(w, 3) == 0,
                          .tenant = pick(w, 3),
                          .client = pick(w, 2),
                          .pin_ns = pick(w, 12) ? 0 : 1000000};
    if (pick(w, 6) == 0) {
        r->n_public = pick(w, n + 1);
        r->owner = 1 + pick(w, 2);
    }
    r->sampling.temperature = 1;
    r->sampling.seed = w->state;
    c->n_got = 0;
    c->is_slow = pick(w, 8) == 0;
    c->is_busy = scheduler_submit(w->scheduler, r) == SUBMIT_OK;
    w->totals.n_requests += c->is_busy;
    if (!c->is_busy)
        oracle_close(&c->oracle);
}

/* Another choice of a request in progress. */
static void client_follow(struct sched_world *w, struct client *c, const struct client *leader)
{
    c->request = leader->request;
    c->adapter = leader->adapter;
    memcpy(c->prompt, leader->prompt, sizeof c->prompt);
    c->request.tokens = c->prompt;
    c->request.leader = &leader->request;
    c->request.logprobs_ring = c->ring;
    c->request.prompt_logprobs = NULL;
    c->request.sampling.choice = 1 + pick(w, 5);
    c->n_got = 0;
    c->is_slow = false;
    oracle_copy(&c->oracle, &leader->oracle);
    oracle_cut(&c->oracle, leader->request.n_tokens);
    c->is_busy = scheduler_submit(w->scheduler, &c->request) == SUBMIT_OK;
    w->totals.n_forked += c->is_busy;
    if (!c->is_busy)
        oracle_close(&c->oracle);
}

/* ---- what comes back ---- */

/* The log probability of a token after the position. */
static void check_logprob(struct sched_world *w, const struct client *c, uint32_t position,
                          int32_t token, float got)
{
    float logits[VOCAB], scratch[VOCAB];
    const struct oracle_cell *cell = &c->oracle.cells[position];
    struct row_output out = {.wants = OUTPUT_LOGITS, .logits = logits};
    double total = 0;
    struct mock_options plain = w->mock;
    plain.nan_every = 0;
    mock_give_output(&plain, cell->digest, cell->last, scratch, &out);
    for (uint32_t i = 0; i < VOCAB; i++)
        total += exp(logits[i]);
    double want = logits[token] - log(total);
    if (!(fabs(want - got) < 1e-4))
        test_fail(__FILE__, __LINE__, "token %d after position %u has log probability %g, not %g",
                  token, position, got, want);
}

static void check_scores(struct sched_world *w, const struct client *c)
{
    const struct request *r = &c->request;
    for (uint32_t i = 1; r->prompt_logprobs && i < r->n_tokens; i++) {
        if (!cache_token_is_text(c->prompt[i]))
            CHECK(isnan(c->scores[i].logprob));
        else
            check_logprob(w, c, i - 1, cache_token_payload(c->prompt[i]), c->scores[i].logprob);
    }
}

static void take_token(struct sched_world *w, struct client *c, const struct sched_event *event)
{
    uint32_t n = c->request.n_tokens + c->n_got;
    uint32_t rope = 0;
    CHECK(c->oracle.n == n && event->logprobs);
    if (c->n_got++ == 0)
        check_scores(w, c);
    check_logprob(w, c, n - 1, event->token, event->logprobs->logprob);
    for (uint32_t i = 0; i < c->request.n_tokens;) {
        bool is_image = cache_token_is_image(c->prompt[i]);
        const struct image_shape *shape =
            is_image ? &w->images[cache_token_image_index(c->prompt[i])].shape : NULL;
        rope += is_image ? shape->position_span : 1;
        i += is_image ? shape->length : 1;
    }
    rope += c->n_got - 1;
    feed_word(c, cache_token_text(event->token), &rope);
    w->totals.n_tokens++;
}

static void client_read(struct sched_world *w, struct client *c)
{
    struct sched_event event;
    while (c->is_busy && scheduler_next_event(w->scheduler, &c->request, &event)) {
        if (event.type == EVENT_TOKEN)
            take_token(w, c, &event);
        if (event.type != EVENT_DONE)
            continue;
        c->is_busy = false;
        CHECK(c->request.n_generated == c->n_got);
        w->totals.n_failed += event.finish == FINISH_ERROR;
        w->totals.n_canceled += event.finish == FINISH_CANCELED;
        oracle_close(&c->oracle);
    }
}

/* Those that follow must be read before the one that they follow is sent again. */
static bool is_followed(const struct sched_world *w, const struct client *c)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (w->clients[i].is_busy && w->clients[i].request.leader == &c->request)
            return true;
    return false;
}

void sched_world_step(struct sched_world *w)
{
    struct client *c = &w->clients[pick(w, CLIENTS)], *other = &w->clients[pick(w, CLIENTS)];
    uint64_t n_lost = w->stats.n_lost;
    if (!c->is_busy && !is_followed(w, c)) {
        if (other != c && other->is_busy && !other->request.leader && pick(w, 4) == 0)
            client_follow(w, c, other);
        else if (pick(w, 3) == 0)
            client_send(w, c);
    } else if (c->is_busy && pick(w, 100) == 0) {
        scheduler_cancel(w->scheduler, &c->request);
    }
    scheduler_step(w->scheduler);
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (!w->clients[i].is_slow || pick(w, 60) == 0)
            client_read(w, &w->clients[i]);
    scheduler_read_stats(w->scheduler, &w->stats);
    if (w->stats.n_lost != n_lost)
        memset(w->adapters, 0, sizeof w->adapters);
    w->totals.n_steps++;
}

static void add_stats(struct sched_world *w, struct sched_totals *t)
{
    const struct scheduler_stats *s = &w->stats;
    t->n_encoded += s->n_encoded;
    t->n_preempted += s->preempted;
    t->n_retried += s->retried;
    t->n_lost += s->n_lost;
    t->prompt_tokens += s->prompt_tokens;
    t->cached_tokens += s->cached_tokens;
    for (int i = 0; i < 2; i++) {
        t->interior[i] += s->tree.sides[i].evicted_interior;
        t->tails[i] += s->tree.sides[i].evicted_tails;
    }
}

void sched_world_close(struct sched_world *w, struct sched_totals *totals)
{
    const uint64_t *from = (const uint64_t *)&w->totals;
    uint64_t *to = (uint64_t *)totals;
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (w->clients[i].is_busy)
            scheduler_cancel(w->scheduler, &w->clients[i].request);
    for (bool is_busy = true; is_busy;) {
        is_busy = scheduler_step(w->scheduler);
        for (uint32_t i = 0; i < CLIENTS; i++)
            client_read(w, &w->clients[i]);
    }
    scheduler_read_stats(w->scheduler, &w->stats);
    CHECK(w->stats.n_running + w->stats.n_waiting + w->stats.n_private == 0);
    for (int i = 0; i < 2; i++)
        CHECK(w->stats.sides[i].n_private == 0);
    add_stats(w, &w->totals);
    for (size_t i = 0; i < sizeof *totals / sizeof *to; i++)
        to[i] += from[i];
    scheduler_close(w->scheduler);
    engine_close(w->engine);
    free(w);
}
