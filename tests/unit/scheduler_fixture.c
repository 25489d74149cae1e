/* See scheduler_fixture.h. */
#include "scheduler_fixture.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "batch_rows.h"
#include "naive_sampler.h"
#include "test.h"

enum { EVENTS_ALL = 1 << 30 };

static char letters[FIXTURE_VOCAB][2];
static const char *bytes[FIXTURE_VOCAB];
static uint32_t lengths[FIXTURE_VOCAB];
static bool is_end[FIXTURE_VOCAB];
static uint32_t window; /* of the fixture that was opened last */

__attribute__((constructor)) static void fill_table(void)
{
    for (int i = 0; i < FIXTURE_VOCAB; i++) {
        letters[i][0] = letters[i][1] = (char)('a' + i % 26);
        bytes[i] = letters[i];
        lengths[i] = i % 5 ? 1 : 2;
    }
    is_end[FIXTURE_END] = true;
}

struct token_table fixture_table(void)
{
    return (struct token_table){FIXTURE_VOCAB, bytes, lengths, is_end};
}

void mock_set_window(struct mock_options *mock, uint32_t w)
{
    mock->n_groups = w ? 2 : 1;
    mock->groups[1] = (struct kv_group){.kind = KV_WINDOW, .window = w};
}

void mock_add_state(struct mock_options *mock, uint32_t grain)
{
    uint32_t group = mock->n_groups ? mock->n_groups : 1;
    mock->n_groups = group + 1;
    mock->groups[group] = (struct kv_group){.kind = KV_STATE, .grain = grain};
}

struct fixture_options fixture_defaults(void)
{
    return (struct fixture_options){.n_pages = 4096,
                                    .max_rows = 256,
                                    .max_seqs = 16,
                                    .max_waiting = 64,
                                    .max_length = 1024,
                                    .step_budget_ms = 100,
                                    .mock = {.fail_token = -1}};
}

static void count_notify(void *context)
{
    struct fixture *f = context;
    __atomic_fetch_add(&f->n_notified, 1, __ATOMIC_RELAXED);
}

void fixture_open(struct fixture *f, const struct fixture_options *o)
{
    struct error err;
    struct mock_options mock = o->mock;
    struct engine_limits limits = {.n_pages = {o->n_pages},
                                   .n_slots = o->max_seqs,
                                   .max_rows = o->max_rows,
                                   .max_seqs = o->max_seqs,
                                   .max_length = o->max_length,
                                   .max_image_rows = o->max_image_rows};
    for (uint32_t g = 1; g < mock.n_groups; g++)
        limits.n_pages[g] = mock.groups[g].kind == KV_STATE ? o->n_state_pages : o->n_window_pages;
    *f = (struct fixture){0};
    log_set_level(LOG_ERROR); /* failures here are intended, and each would log a line */
    mock.n_vocab = FIXTURE_VOCAB;
    mock.end_token = FIXTURE_END;
    window = mock.n_groups > 1 ? mock.groups[1].window : 0;
    f->mock = mock;
    CHECK(mock_engine_open(&f->engine, &mock, &limits, &err) == 0);
    struct scheduler_options options = {.engine = f->engine,
                                        .tokens = fixture_table(),
                                        .max_seqs = o->max_seqs,
                                        .max_waiting = o->max_waiting,
                                        .max_length = o->max_length,
                                        .step_budget_ms = o->step_budget_ms,
                                        .state_interval = o->state_interval,
                                        .max_images = o->max_images,
                                        .cache_ttl_ns = o->cache_ttl_ns,
                                        .tenant_pages = o->tenant_pages,
                                        .notify = count_notify,
                                        .notify_context = f};
    CHECK(scheduler_open(&f->scheduler, &options, &err) == 0);
}

void fixture_close(struct fixture *f)
{
    scheduler_close(f->scheduler);
    engine_close(f->engine);
}

struct client *client_make(const int32_t *prompt, uint32_t n, uint32_t max_tokens)
{
    struct client *c = calloc(1, sizeof *c);
    c->prompt = malloc(n * sizeof *c->prompt);
    cache_tokens_text(prompt, n, c->prompt);
    CHECK(max_tokens <= FIXTURE_MAX_TOKENS);
    c->request.tokens = c->prompt;
    c->request.n_tokens = n;
    c->request.max_tokens = max_tokens;
    c->request.sampling = (struct sampling)SAMPLING_DEFAULT;
    c->request.sampling.temperature = 0;
    return c;
}

struct client *client_make_text(const char *prompt, uint32_t max_tokens)
{
    int32_t tokens[1024] = {0};
    uint32_t n = 0;
    for (; prompt[n]; n++)
        tokens[n] = (unsigned char)prompt[n] % (FIXTURE_VOCAB - 1);
    return client_make(tokens, n, max_tokens);
}

void client_ids(const struct client *c, int32_t *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = cache_token_payload(c->prompt[i]);
}

void client_free(struct client *c)
{
    free(c->request.logprobs_ring);
    free(c->request.prompt_logprobs);
    free(c->logprobs);
    free(c->prompt);
    free(c);
}

void client_ask_logprobs(struct client *c, bool of_answer, bool of_prompt, uint32_t n_top)
{
    struct request *r = &c->request;
    r->n_top_logprobs = n_top;
    if (of_answer) {
        r->logprobs_ring = malloc(REQUEST_RING * sizeof *r->logprobs_ring);
        c->logprobs = malloc(FIXTURE_MAX_TOKENS * sizeof *c->logprobs);
    }
    if (of_prompt)
        r->prompt_logprobs = malloc(r->n_tokens * sizeof *r->prompt_logprobs);
}

void client_submit(struct fixture *f, struct client *c)
{
    CHECK_INT(scheduler_submit(f->scheduler, &c->request), SUBMIT_OK);
}

uint32_t client_read(struct fixture *f, struct client *c, uint32_t most)
{
    struct sched_event event;
    uint32_t n = 0;
    for (; n < most && c->n_done == 0 && scheduler_next_event(f->scheduler, &c->request, &event);
         n++) {
        CHECK(event.text_end >= c->text_end);
        c->text_end = event.text_end;
        if (event.type == EVENT_STARTED) {
            CHECK(c->n_started == 0 && c->n_got == 0);
            c->n_started++;
        } else if (event.type == EVENT_TOKEN) {
            CHECK(c->n_started == 1 && c->n_got < FIXTURE_MAX_TOKENS);
            CHECK((event.logprobs != NULL) == (c->logprobs != NULL));
            const struct token_logprobs *prompt = c->request.prompt_logprobs;
            for (uint32_t i = 1; prompt && c->n_got == 0 && i < c->request.n_tokens; i++)
                CHECK(prompt[i].logprob <= 0 || !cache_token_is_text(c->prompt[i])); /* all */
            if (event.logprobs)
                c->logprobs[c->n_got] = *event.logprobs;
            c->got[c->n_got++] = event.token;
        } else {
            c->n_done++;
            c->finish = event.finish;
            CHECK_INT(c->request.n_generated, c->n_got);
        }
    }
    return n;
}

void fixture_run(struct fixture *f, struct client **clients, uint32_t n)
{
    bool again = true;
    while (again) {
        again = scheduler_step(f->scheduler);
        for (uint32_t i = 0; i < n; i++)
            again |= client_read(f, clients[i], EVENTS_ALL) > 0;
    }
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(clients[i]->n_done, 1);
}

struct scheduler_stats fixture_stats(struct fixture *f)
{
    struct scheduler_stats stats;
    scheduler_read_stats(f->scheduler, &stats);
    return stats;
}

/* Where the stop strings cut the text: the first end, the longest there; -1 for none. */
static int64_t find_stop(const char *text, uint32_t len, const struct request *r)
{
    for (uint32_t end = 1; end <= len; end++) {
        uint32_t longest = 0;
        for (uint32_t k = 0; k < r->n_stops; k++)
            if (r->stops[k].len <= end && r->stops[k].len > longest &&
                memcmp(text + end - r->stops[k].len, r->stops[k].bytes, r->stops[k].len) == 0)
                longest = r->stops[k].len;
        if (longest)
            return end - longest;
    }
    return -1;
}

static struct script_filter *paused;

const struct script_filter *script_paused(void)
{
    return paused;
}

static uint32_t tries_for_mask(const struct script_filter *f)
{
    return f->most_tries ? (uint32_t)(hash_pair(~f->seed, f->n_accepted) % f->most_tries) : 0;
}

static enum filter_progress script_make(struct token_filter *filter, uint32_t n_left,
                                        uint64_t until_ns)
{
    struct script_filter *f = (struct script_filter *)filter;
    f->n_wrong += f->is_asked || until_ns == 0 || n_left != f->n_in_all - f->n_accepted;
    if (f->n_tries >= tries_for_mask(f)) {
        paused = paused == f ? NULL : paused;
        return FILTER_READY;
    }
    if (paused && paused != f) {
        f->n_tries = 0;
        return FILTER_BUSY;
    }
    paused = f;
    f->n_tries++;
    f->n_pauses++;
    return FILTER_PAUSED;
}

static void script_drop(struct token_filter *filter)
{
    struct script_filter *f = (struct script_filter *)filter;
    f->n_wrong += paused != f; /* only one that has paused needs it */
    f->n_drops++;
    f->n_tries = 0;
    paused = NULL;
}

static const uint64_t *script_mask(struct token_filter *filter, uint32_t n_left)
{
    struct script_filter *f = (struct script_filter *)filter;
    uint64_t h = hash_pair(f->seed, f->n_accepted);
    const uint64_t end = UINT64_C(1) << FIXTURE_END;
    f->n_wrong += n_left == 0 || n_left != f->n_in_all - f->n_accepted || paused == f;
    f->n_wrong += f->n_tries < tries_for_mask(f);
    f->n_asked++;
    f->is_asked = true;
    f->mask = UINT64_MAX;
    if (h % 5 == 0)
        return NULL;
    f->mask = (h | UINT64_C(1) << h % FIXTURE_END) & ~end;
    if (f->has_ends || h % 11 == 0)
        f->mask |= end;
    return &f->mask;
}

static enum filter_verdict script_accept(struct token_filter *filter, int32_t token)
{
    struct script_filter *f = (struct script_filter *)filter;
    f->n_wrong += !f->is_asked || !(f->mask >> token & 1) || f->n_accepted == FIXTURE_MAX_TOKENS;
    f->is_asked = false;
    f->n_tries = 0;
    f->accepted[f->n_accepted++ % FIXTURE_MAX_TOKENS] = token;
    return f->n_accepted == f->end_at ? FILTER_END : FILTER_GO_ON;
}

void script_set(struct script_filter *f, uint64_t seed, struct client *c, uint32_t limit)
{
    static const struct token_filter_ops ops = {
        .make = script_make, .drop = script_drop, .mask = script_mask, .accept = script_accept};
    const struct request *r = &c->request;
    uint32_t room = limit - r->n_tokens;
    *f = (struct script_filter){.filter = {&ops}, .seed = seed};
    f->n_in_all = r->max_tokens < room ? r->max_tokens : room;
    c->request.filter = &f->filter;
}

void script_reset(struct script_filter *f)
{
    CHECK(paused != f); /* a filter that is left alone holds nothing */
    f->n_accepted = f->n_asked = f->n_wrong = 0;
    f->n_tries = f->most_tries = 0;
    f->is_asked = false;
}

/* A pick as the request asks for it. */
static int32_t pick(struct sampler *sampler, const float *logits, const struct request *r,
                    const int32_t *generated, uint32_t n_generated, uint32_t n_left)
{
    static const int32_t ends[] = {FIXTURE_END};
    uint64_t context[2 * FIXTURE_MAX_TOKENS + 1];
    uint32_t n = r->n_tokens + n_generated;
    CHECK(n < sizeof context / sizeof *context);
    for (uint32_t i = 0; i < n; i++)
        context[i] = i < r->n_tokens ? r->tokens[i] : cache_token_text(generated[i - r->n_tokens]);
    struct sampler_input in = {
        .sampling = &r->sampling,
        .generated = generated,
        .n_generated = n_generated,
        .context = context,
        .n_context = n,
        .n_tokens = FIXTURE_VOCAB,
        .dry_breakers = r->dry_breakers,
        .biases = r->biases,
        .n_biases = r->n_biases,
        .mask = r->filter ? r->filter->ops->mask(r->filter, n_left) : NULL,
        .banned = ends,
        .n_banned = n_generated < r->min_tokens || (r->filter && r->ignore_end),
    };
    int32_t token = sampler_pick(sampler, logits, &in);
    in.n_banned = 0;
    return token >= 0 ? token : sampler_pick(sampler, logits, &in);
}

/* logits [FIXTURE_VOCAB] of the row at position `p`, whose token follows those before it. */
static void plain_row(struct engine *e, int32_t token, uint32_t p, float *logits)
{
    uint32_t first = p >= window ? p - window + 1 : 0;
    struct page_run upto = {0, p + 1}, seen = {first, p + 1 - first};
    struct batch_seq seq = {.pages = {{&upto, 1, 0}, {&seen, 1, first}}, .length = p + 1};
    struct row_output output = {.wants = OUTPUT_LOGITS, .logits = logits};
    struct batch_row row = token_row(token, p, p, 0, &output);
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1};
    struct error err;
    CHECK(engine_forward(e, &batch, &err) == 0);
}

static struct plain_run generate(struct engine *e, struct sampler *sampler, const struct request *r,
                                 uint32_t limit, int32_t *out)
{
    struct plain_run run = {0};
    char text[2 * FIXTURE_MAX_TOKENS];
    uint32_t len = 0;
    float logits[FIXTURE_VOCAB];
    while (run.n_tokens < r->max_tokens && r->n_tokens + run.n_tokens < limit) {
        uint32_t total = r->n_tokens + run.n_tokens;
        for (uint32_t p = run.n_tokens ? total - 1 : 0; p < total; p++) {
            int32_t token = p < r->n_tokens ? (int32_t)r->tokens[p] : out[p - r->n_tokens];
            plain_row(e, token, p, logits);
        }
        uint32_t room = limit - total, left = r->max_tokens - run.n_tokens;
        int32_t token = pick(sampler, logits, r, out, run.n_tokens, left < room ? left : room);
        out[run.n_tokens++] = token;
        bool is_over = r->filter && r->filter->ops->accept(r->filter, token) == FILTER_END;
        if (is_end[token] && (is_over || !r->ignore_end)) {
            run.text_end = len;
            run.finish = FINISH_STOP;
            return run;
        }
        memcpy(text + len, bytes[token], lengths[token]);
        len += lengths[token];
        int64_t cut = find_stop(text, len, r);
        if (cut >= 0) {
            run.text_end = (uint64_t)cut;
            run.finish = FINISH_STOP;
            return run;
        }
        if (is_over) {
            run.text_end = len;
            run.finish = FINISH_STOP;
            return run;
        }
    }
    run.text_end = len;
    run.finish = FINISH_LENGTH;
    return run;
}

static struct engine *open_plain(uint32_t limit)
{
    struct engine *e;
    struct error err;
    struct mock_options mock = {
        .n_vocab = FIXTURE_VOCAB, .fail_token = -1, .end_token = FIXTURE_END};
    mock_set_window(&mock, window);
    struct engine_limits limits = {
        .n_pages = {limit, limit}, .max_rows = 1, .max_seqs = 1, .max_length = limit};
    CHECK(mock_engine_open(&e, &mock, &limits, &err) == 0);
    return e;
}

static void check_entry(const struct token_logprobs *got, const float *logits, int32_t token,
                        uint32_t n_top)
{
    struct naive sorted[FIXTURE_VOCAB];
    double total = 0;
    for (int i = 0; i < FIXTURE_VOCAB; i++) {
        sorted[i] = (struct naive){i, logits[i], 0};
        total += exp(logits[i]);
    }
    qsort(sorted, FIXTURE_VOCAB, sizeof *sorted, naive_order);
    CHECK(fabs(got->logprob - (logits[token] - log(total))) < 1e-5);
    CHECK_INT(got->n_top, n_top);
    for (uint32_t i = 0; i < n_top; i++) {
        CHECK_INT(got->top[i].token, sorted[i].id);
        CHECK(fabs(got->top[i].logprob - (sorted[i].logit - log(total))) < 1e-5);
    }
}

void check_logprobs(const struct client *c, uint32_t limit)
{
    const struct request *r = &c->request;
    if (!r->prompt_logprobs && !c->logprobs)
        return;
    struct engine *e = open_plain(limit);
    float logits[FIXTURE_VOCAB];
    bool has_prompt = r->prompt_logprobs &&
                      (c->n_got || c->finish == FINISH_LENGTH || c->finish == FINISH_STOP);
    if (has_prompt)
        CHECK(isnan(r->prompt_logprobs[0].logprob) && r->prompt_logprobs[0].n_top == 0);
    for (uint32_t p = 0; p + 1 < r->n_tokens + c->n_got; p++) {
        plain_row(e, p < r->n_tokens ? (int32_t)r->tokens[p] : c->got[p - r->n_tokens], p, logits);
        if (p + 1 < r->n_tokens && has_prompt)
            check_entry(&r->prompt_logprobs[p + 1], logits, (int32_t)r->tokens[p + 1],
                        r->n_top_logprobs);
        uint32_t at = p + 1 - r->n_tokens; /* of the answer */
        if (p + 1 >= r->n_tokens && c->logprobs)
            check_entry(&c->logprobs[at], logits, c->got[at], r->n_top_logprobs);
    }
    engine_close(e);
}

struct plain_run plain_run(const struct request *r, uint32_t limit, int32_t *out)
{
    struct sampler *sampler;
    struct error err;
    struct engine *e = open_plain(limit);
    CHECK(sampler_open(&sampler, FIXTURE_VOCAB, limit, &err) == 0);
    struct plain_run run = generate(e, sampler, r, limit, out);
    sampler_close(sampler);
    engine_close(e);
    return run;
}

void check_answer(const struct client *c, uint32_t limit)
{
    int32_t want[FIXTURE_MAX_TOKENS];
    struct plain_run run = plain_run(&c->request, limit, want);
    CHECK_INT(c->n_done, 1);
    CHECK_INT(c->n_started, 1);
    CHECK_INT(c->finish, run.finish);
    CHECK_INT(c->n_got, run.n_tokens);
    CHECK(memcmp(c->got, want, run.n_tokens * sizeof *want) == 0);
    CHECK_INT(c->text_end, run.text_end);
}

void check_beginning(const struct client *c, uint32_t limit)
{
    int32_t want[FIXTURE_MAX_TOKENS];
    struct plain_run run = plain_run(&c->request, limit, want);
    CHECK_INT(c->n_done, 1);
    CHECK(c->n_got <= run.n_tokens);
    CHECK(memcmp(c->got, want, c->n_got * sizeof *want) == 0);
}
