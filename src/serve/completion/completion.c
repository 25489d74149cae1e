/* The life of chat completions, from the request's body to the last byte of the answer. Runs on the
 * event loop's thread; the worker's part is in completion_prepare.c.
 *
 * An answer and its work end separately. When the exchange is over (`x` is NULL), the scheduler may
 * still hold the requests. Each belongs to the completion again, and may be freed, only after its
 * EVENT_DONE has been read. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "prompt/grammar/store.h"
#include "serve/completion/completion_internal.h"

#define HEARTBEAT_NS  10000000000u
#define RETRY_AFTER_S "2"

/* For one turn of the event loop. */
enum {
    PUMP_NS = 2000000,      /* then others have their turn */
    PUMP_EVENTS = 64,       /* of one completion, shared by its choices */
    PUMP_BYTES = 64 * 1024, /* collected before they are written */
};

/* ---- made and freed ----------------------------------------------------------------------- */

/* The body has been freed, or is freed now. */
static void body_release(struct completion *c)
{
    strbuf_free(&c->input.body);
    http_body_freed(c->api->http, c->x, c->input.body_bytes);
    c->input.body_bytes = 0;
}

static void choice_free(struct choice *o)
{
    answer_free(&o->answer);
    answer_filter_close(o->filter);
    free(o->logprobs);
    free(o->prompt_logprobs);
    token_list_free(&o->sampled);
}

void completion_unprepare(struct completion *c)
{
    struct completion_input *in = &c->input;
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        choice_free(&c->running.choices[i]);
    free(c->running.choices);
    request_params_free(&in->params);
    arena_free(&in->kept);
    for (uint32_t i = 0; i < in->n_prompts; i++) {
        prompt_free(&in->prompts[i]);
        if (in->echoes)
            strbuf_free(&in->echoes[i]);
    }
    free(in->prompts);
    free(in->echoes);
    tool_set_free(in->tools);
    tool_set_free(in->callable);
    grammar_store_leave(c->api->grammars, in->bounds.grammar);
    free(in->dry_breakers);
    free(in->roles);
    strbuf_free(&c->output.reply);
    c->running = (struct completion_answers){0};
    c->input = (struct completion_input){
        .body = in->body, .body_bytes = in->body_bytes, .explain = in->explain};
    c->output.head.model = c->api->options->model_name;
    c->kind = c->route_kind;
}

static void completion_free(struct completion *c)
{
    assert(c->running.n_live == 0 && !c->preparing);
    struct api *api = c->api;
    answers_forget(c);
    completion_unprepare(c);
    body_release(c);
    if (c->output.stream)
        c->output.writer->close(c->output.stream);
    strbuf_free(&c->output.settings);
    *(c->prev ? &c->prev->next : &api->completions) = c->next;
    if (api->next_pumped == c)
        api->next_pumped = c->next;
    if (c->next)
        c->next->prev = c->prev;
    api->n_completions--;
    free(c);
}

static void cancel_live(struct completion *c)
{
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        if (c->running.choices[i].live)
            scheduler_cancel(c->api->scheduler, &c->running.choices[i].request);
}

/* The client is gone: stops the work and frees what can be freed. */
static void completion_abandon(struct completion *c)
{
    c->x = NULL;
    atomic_store(&c->unwanted, true);
    if (c->preparing && workers_withdraw(c->api->workers, &c->job))
        c->preparing = false;
    if (c->preparing)
        return;
    cancel_live(c);
    if (c->running.n_live == 0)
        completion_free(c);
}

static void completion_fail(struct completion *c, const struct api_error *e)
{
    struct http_exchange *x = c->x;
    if (x && c->output.stream) {
        stream_fail(c, e);
    } else if (x) {
        answer_note(c);
        if (e->status == 429 || e->status == 503)
            http_add_field(x, "Retry-After", RETRY_AFTER_S);
        api_reply_error(x, e);
    }
    completion_abandon(c);
}

/* ---- begun -------------------------------------------------------------------------------- */

/* The id prefix and writer of each kind of request. */
static const struct {
    const char *id_prefix;
    const struct answer_writer *writer; /* NULL: the answer is radish's own, not an API's */
} kinds[] = {
    [REQUEST_CHAT] = {"chatcmpl-", &chat_writer},
    [REQUEST_TEXT] = {"cmpl-", &text_writer},
    [REQUEST_LLAMA] = {"cmpl-", &llama_writer},
    [REQUEST_INFILL] = {"cmpl-", &llama_writer},
    [REQUEST_WARM] = {"warm-", NULL},
    [REQUEST_RENDER] = {"req-", NULL},
    [REQUEST_COUNT] = {"req-", NULL},
    [REQUEST_TOKENIZE] = {"req-", NULL},
    [REQUEST_DETOKENIZE] = {"req-", NULL},
    [REQUEST_OLLAMA_CHAT] = {"chat-", &ollama_chat_writer},
    [REQUEST_OLLAMA_GENERATE] = {"gen-", &ollama_generate_writer},
    [REQUEST_OLLAMA_SHOW] = {"req-", NULL},
};

static void output_init(struct completion *c)
{
    struct completion_output *o = &c->output;
    access_answer_id(c->x, kinds[c->kind].id_prefix, o->id, sizeof o->id);
    o->writer = kinds[c->kind].writer;
    o->head = (struct answer_head){.id = o->id,
                                   .model = c->api->options->model_name,
                                   .fingerprint = c->api->fingerprint,
                                   .created = clock_unix_seconds()};
    o->began_ns = clock_now_ns();
}

/* A header can ask for an explanation without changing the body. */
static bool asks_for_explanation(const struct http_exchange *x)
{
    const char *value = http_parser_field(http_request(x), "x-radish-explain");
    return value && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0);
}

void completion_begin(struct api *api, struct http_exchange *x, const struct requester *who,
                      enum request_kind kind)
{
    struct api_error e;
    struct completion *c = calloc(1, sizeof *c);
    if (!c) {
        api_error_set(&e, 503, NULL, "not enough memory for this request; try again soon");
        api_reply_error(x, &e);
        return;
    }
    c->api = api;
    c->kind = c->route_kind = kind;
    c->requester = *who;
    c->x = x;
    c->input.explain = asks_for_explanation(x);
    c->input.body = http_take_body(x);
    c->input.body_bytes = c->input.body.len;
    c->job.run = completion_prepare;
    c->job.tenant = who->tenant;
    c->job.client = who->client;
    c->job.n_bytes = c->input.body.len;
    c->job.unwanted = &c->unwanted;
    output_init(c);
    c->next = api->completions;
    if (c->next)
        c->next->prev = c;
    api->completions = c;
    api->n_completions++;
    api_tick_soon(api);
    http_set_user(x, c);
    c->preparing = workers_submit(api->workers, &c->job);
    if (!c->preparing) {
        api_error_set(&e, 429, NULL, "too many requests are being read; try again soon");
        completion_fail(c, &e);
    }
}

/* Logs it once for each client and set of fields; forgets them when the table is full. */
static void log_ignored(struct api *api, const struct http_exchange *x, const char *fields)
{
    const char *agent = http_parser_field(http_request(x), "user-agent");
    const char *peer = http_peer_address(x);
    uint64_t key = hash_pair(hash_bytes(fields, strlen(fields)), hash_bytes(peer, strlen(peer)));
    if (agent)
        key = hash_pair(key, hash_bytes(agent, strlen(agent)));
    key |= 1; /* 0 is an empty slot */
    if (api->n_seen >= API_SEEN_SLOTS / 2) {
        memset(api->seen, 0, sizeof api->seen);
        api->n_seen = 0;
    }
    uint64_t at = key >> 1;
    for (; api->seen[at % API_SEEN_SLOTS]; at++)
        if (api->seen[at % API_SEEN_SLOTS] == key)
            return;
    api->seen[at % API_SEEN_SLOTS] = key;
    api->n_seen++;
    log_info("%s sends unknown fields, which are ignored: %s", peer, fields);
}

static void request_fill(struct completion *c, uint32_t choice)
{
    const struct request_params *p = &c->input.params;
    const struct prompt *prompt = prompt_of(c, choice);
    struct choice *o = &c->running.choices[choice];
    struct request *r = &o->request;
    uint32_t first = choice - choice % choices_per_prompt(c); /* of the same prompt */
    r->tokens = c->input.cache_tokens[choice / choices_per_prompt(c)];
    r->n_tokens = (uint32_t)prompt->tokens.len;
    r->max_tokens = completion_max_tokens(c, prompt);
    r->min_tokens = (uint32_t)p->min_tokens;
    r->tenant = c->requester.tenant;
    r->client = c->requester.client;
    tenant_place(&c->api->tenants, c->requester.tenant, prompt->tokens.ids, r->n_tokens, r);
    r->sampling = p->sampling;
    r->sampling.choice = choice - first;
    r->dry_breakers = c->input.dry_breakers;
    r->biases = p->biases;
    r->n_biases = p->n_biases;
    r->filter = answer_filter_base(o->filter);
    r->logprobs_ring = o->logprobs;
    r->n_top_logprobs = (uint32_t)p->top_logprobs;
    r->wants_drawn_logprobs = p->post_sampling_probs;
    r->prompt_logprobs = o->prompt_logprobs;
    memcpy(r->stops, p->stops, sizeof r->stops);
    r->n_stops = p->n_stops;
    r->stop_tokens = p->stop_tokens;
    r->n_stop_tokens = p->n_stop_tokens;
    r->min_indent = (uint32_t)p->n_indent;
    r->line_limit_ns = p->t_max_predict_ms > 0 ? (uint64_t)p->t_max_predict_ms * 1000000 : 0;
    r->wants_progress = p->return_progress && p->stream;
    r->ignore_end = p->ignore_end;
    r->no_cache = !p->cache_prompt || c->api->options->no_prefix_cache;
    r->leader = choice > first ? &c->running.choices[first].request : NULL;
    r->explain = choice == 0 && c->input.wants_map;
    r->explain_others = r->explain && c->requester.is_admin;
    /* Templates drop the thinking of earlier turns. */
    r->keeps_prompt = c->kind == REQUEST_CHAT && c->api->options->prompt->style.think_begin;
    r->pin_ns = (uint64_t)((double)p->pin_s * 1e3 + 0.5) * 1000000; /* in whole milliseconds */
}

static void queue_full_error(const struct completion *c, struct api_error *e)
{
    api_error_set(e, 429, NULL, "the queue is full (--max-waiting %u); try again soon",
                  c->api->options->max_waiting);
    e->code = "queue_full";
}

/* The error for a choice that the scheduler rejected. It is never too long: the worker has already
 * checked the prompt against the same limit. */
static void submit_error(const struct completion *c, const struct request *r, struct api_error *e)
{
    if (r->error.code == ERROR_MEMORY)
        api_error_set(e, 503, NULL, "%s; try again soon", r->error.message);
    else
        queue_full_error(c, e);
}

/* Submits every choice to the scheduler; false with `e` set if one is rejected. */
static bool submit_choices(struct completion *c, struct api_error *e)
{
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        struct choice *o = &c->running.choices[i];
        request_fill(c, i);
        if (scheduler_submit(c->api->scheduler, &o->request) != SUBMIT_OK) {
            submit_error(c, &o->request, e);
            return false;
        }
        o->live = true;
        c->running.n_live++;
    }
    return true;
}

/* Draws a seed for a request without one. */
static void seed_choose(struct completion *c)
{
    struct request_params *p = &c->input.params;
    if (p->seeded || c->api->options->is_seeded)
        return;
    if (getrandom(&p->sampling.seed, sizeof p->sampling.seed, 0) < 0)
        p->sampling.seed = c->output.began_ns;
    if (request_is_llama(c->kind) || p->verbose)
        p->sampling.seed &= UINT32_MAX; /* reported in the answer; clients read 32 bits */
}

/* Fills the start of the answer; false if out of memory. */
static bool head_fill(struct completion *c)
{
    const struct request_params *p = &c->input.params;
    struct answer_head *head = &c->output.head;
    seed_choose(c);
    head->n_choices = c->running.n_choices;
    head->may_call = c->input.tools;
    head->include_usage = p->include_usage;
    head->has_functions = p->functions_asked;
    if (!request_is_llama(c->kind) && !p->verbose)
        return true;
    settings_write(&(struct json_writer){.out = &c->output.settings}, NULL, p, &c->api->tokens);
    head->settings = strbuf_str(&c->output.settings);
    head->fields = c->input.fields;
    head->n_fields = c->input.n_fields;
    head->has_tokens = p->return_tokens;
    head->has_drawn_probs = p->post_sampling_probs;
    return !c->output.settings.failed;
}

/* Charges tokens to the client's limit. */
static void tokens_charge(struct completion *c, uint64_t n)
{
    const struct requester *who = &c->requester;
    if (who->meter)
        limiter_charge(&c->api->limiter, who->meter, who->client, n, clock_now_ns());
}

static void prompts_charge(struct completion *c)
{
    for (uint32_t i = 0; i < c->input.n_prompts; i++)
        tokens_charge(c, c->input.prompts[i].tokens.len);
}

/* Called when the worker is done. */
static void completion_prepared(struct completion *c)
{
    struct api_error e;
    c->preparing = false;
    body_release(c);
    if (!c->x) {
        completion_free(c);
        return;
    }
    if (c->input.params.ignored.len) {
        http_add_field(c->x, "x-radish-ignored", strbuf_str(&c->input.params.ignored));
        log_ignored(c->api, c->x, strbuf_str(&c->input.params.ignored));
    }
    if (c->input.failed) {
        completion_fail(c, &c->input.error);
        return;
    }
    if (c->running.n_choices == 0) { /* the worker did everything */
        api_reply_json(c->x, 200, &c->output.reply);
        completion_abandon(c);
        return;
    }
    prompts_charge(c);
    if (c->input.prompts[0].n_replayed) {
        char number[24];
        snprintf(number, sizeof number, "%zu", c->input.prompts[0].n_replayed);
        http_add_field(c->x, "x-radish-replayed-tokens", number);
    }
    if (!head_fill(c)) {
        api_error_set(&e, 503, NULL, "not enough memory for the answer");
        completion_fail(c, &e);
        return;
    }
    if (!submit_choices(c, &e)) {
        completion_fail(c, &e);
        return;
    }
    if (c->input.params.stream && !stream_begin(c)) {
        api_error_set(&e, 503, NULL, "not enough memory for the answer");
        completion_fail(c, &e);
    }
}

/* ---- running ------------------------------------------------------------------------------ */

/* However an answer ended, the cache holds its sampled tokens. */
static void keep_answer(struct completion *c, uint32_t index)
{
    struct choice *o = &c->running.choices[index];
    if (o->sampled.len && o->finish != FINISH_ERROR)
        replay_store_add(c->api->replay, replay_namespace(c), prompt_of(c, index)->digest,
                         o->sampled.ids, o->sampled.len);
    token_list_free(&o->sampled);
}

/* Sends the prompt's text, before the first token of the answer or its end. */
static void give_echo(struct completion *c, uint32_t index, struct strbuf *events)
{
    struct choice *o = &c->running.choices[index];
    const struct request *r = &o->request;
    const struct tokenizer *t = c->api->options->prompt->tokenizer;
    const int32_t *ids = prompt_of(c, index)->tokens.ids;
    o->is_echoed = true;
    if (!c->input.echoes)
        return;
    /* The prompt's first choice holds its scores; see waits_for_scores. */
    const uint32_t n = choices_per_prompt(c);
    const struct token_logprobs *scores = c->running.choices[index - index % n].prompt_logprobs;
    for (uint32_t i = 0; scores && i < r->n_tokens; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], &len);
        logprob_list_add(&o->answer.content.logprobs, ids[i], bytes, len, &scores[i]);
    }
    const struct strbuf *text = &c->input.echoes[index / n];
    answer_echo(&o->answer, strbuf_str(text), text->len, events);
}

/* Reports the prompt's progress if the client asked for it. */
static void give_progress(struct completion *c, struct choice *o, uint32_t done,
                          struct strbuf *events)
{
    const struct request *r = &o->request;
    const struct answer_progress progress = {.total = r->n_tokens,
                                             .cached = o->cached,
                                             .processed = done,
                                             .elapsed_ns = clock_now_ns() - r->admitted_ns};
    if (r->wants_progress && c->output.stream && c->output.writer->progress)
        c->output.writer->progress(c->output.stream, events, &o->answer.content, &progress);
}

void choice_time(struct choice *o, uint64_t now_ns)
{
    const struct request *r = &o->request;
    uint64_t first_ns = r->first_token_ns ? r->first_token_ns : now_ns;
    o->timings = (struct answer_timings){.cached_tokens = o->cached,
                                         .computed_tokens = r->n_tokens - o->cached,
                                         .predicted_tokens = o->n_tokens,
                                         .prompt_ns = first_ns - r->admitted_ns,
                                         .predicted_ns = now_ns - first_ns};
    o->answer.content.timings = &o->timings;
}

static void take_token(struct completion *c, struct choice *o, const struct sched_event *event,
                       struct strbuf *events)
{
    const struct token_table *tokens = &c->api->tokens;
    bool is_known = (uint32_t)event->token < tokens->n_tokens; /* a padded vocabulary has more */
    if (answer_is_over(&o->answer))
        return;
    o->n_tokens++;
    tokens_charge(c, 1);
    if (event->logprobs)
        o->logprob_sum += (double)event->logprobs->logprob;
    if (c->input.replays && !o->lost_ids)
        o->lost_ids = !token_list_add(&o->sampled, event->token);
    if (c->input.params.timings_per_token)
        choice_time(o, clock_now_ns());
    answer_token(&o->answer, event->token, is_known ? tokens->bytes[event->token] : "",
                 is_known ? tokens->lengths[event->token] : 0, event->text_end, event->logprobs,
                 events);
    if (answer_is_over(&o->answer))
        scheduler_cancel(c->api->scheduler, &o->request);
}

/* The prompt's text, token by token, with special tokens spelled out. */
static void prompt_spell(const struct completion *c, uint32_t index, struct strbuf *out)
{
    const struct token_list *tokens = &prompt_of(c, index)->tokens;
    for (size_t i = 0; i < tokens->len; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(c->api->options->prompt->tokenizer, tokens->ids[i],
                                            &len);
        strbuf_add(out, bytes, len);
    }
}

static void take_end(struct completion *c, uint32_t index, const struct sched_event *event,
                     struct strbuf *events)
{
    struct choice *o = &c->running.choices[index];
    struct answer_content *content = &o->answer.content;
    const struct request *r = &o->request;
    answer_end(&o->answer, event->text_end, events);
    o->finish = event->finish;
    if (o->finish == FINISH_CANCELED && answer_is_over(&o->answer))
        o->finish = FINISH_STOP;
    keep_answer(c, index);
    o->cached = r->prompt_cached; /* less than at the start if it was preempted */
    choice_time(o, r->done_ns);
    content->stopping_word = r->stopped_by;
    content->is_truncated = o->finish == FINISH_LENGTH &&
                            r->n_tokens + o->n_tokens >= c->api->options->context;
    if (request_is_llama(c->kind) || c->input.params.verbose)
        prompt_spell(c, index, &content->prompt);
    o->live = false;
    c->running.n_live--;
    if (c->output.stream && (o->finish == FINISH_STOP || o->finish == FINISH_LENGTH))
        c->output.writer->finish(c->output.stream, events, content,
                                 answer_finish_of(&o->answer, o->finish));
}

static void take_event(struct completion *c, uint32_t index, const struct sched_event *event,
                       struct strbuf *events)
{
    struct choice *o = &c->running.choices[index];
    bool is_answer = event->type == EVENT_TOKEN || event->type == EVENT_DONE;
    if (is_answer && !o->is_echoed)
        give_echo(c, index, events);
    switch (event->type) {
    case EVENT_STARTED:
        o->is_started = true;
        o->cached = event->prompt_done;
        give_progress(c, o, event->prompt_done, events);
        return;
    case EVENT_PROGRESS: give_progress(c, o, event->prompt_done, events); return;
    case EVENT_TOKEN: take_token(c, o, event, events); return;
    case EVENT_DONE: take_end(c, index, event, events); return;
    }
}

/* A prompt's scores are computed by its first choice; the others wait until they are complete. */
static bool waits_for_scores(const struct completion *c, uint32_t index)
{
    const struct choice *first = &c->running.choices[index - index % choices_per_prompt(c)];
    return first != &c->running.choices[index] && first->prompt_logprobs && first->live &&
           !first->is_echoed;
}

/* Hands the collected events to the stream, which then knows whether it has room for more. */
static void events_write(struct completion *c, struct strbuf *events)
{
    if (c->x && c->output.stream)
        stream_write(c, events);
    strbuf_clear(events);
}

/* Takes a choice's events while there is room to write them. The scheduler may refill the ring as
 * fast as it is read, so one turn takes at most `limit`; true if it stopped for that. */
static bool pump_choice(struct completion *c, uint32_t index, uint32_t limit, struct strbuf *events)
{
    struct choice *o = &c->running.choices[index];
    struct sched_event event;
    if (waits_for_scores(c, index))
        return false;
    for (uint32_t n = 0; n < limit; n++) {
        bool has_room = !c->output.stream || !c->x || http_stream_has_room(c->x);
        if (!o->live || !has_room || !scheduler_next_event(c->api->scheduler, &o->request, &event))
            return false;
        take_event(c, index, &event, events);
        if (events->len >= PUMP_BYTES)
            events_write(c, events);
    }
    return o->live;
}

/* Waiting helps only if other answers are in the way. */
static void too_large_error(const struct completion *c, struct api_error *e)
{
    const size_t most = c->api->options->max_unsent_bytes;
    api_error_set(e, c->n_bytes > most ? 400 : 503, NULL,
                  "there is no room for an answer of %zu MiB or more%s (--max-unsent-mib %zu): "
                  "stream it, or ask for fewer choices, tokens or log probabilities",
                  c->n_bytes >> 20, c->n_bytes > most ? "" : " beside the others", most >> 20);
    e->code = "answer_too_large";
}

/* The error of a failed choice, if any. */
static bool failed_choice(const struct completion *c, struct api_error *e)
{
    if (c->is_too_large) {
        too_large_error(c, e);
        return true;
    }
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        const struct choice *o = &c->running.choices[i];
        if (c->output.lost_events || answer_failed(&o->answer)) {
            api_error_set(e, 503, NULL, "not enough memory for the answer");
            return true;
        }
        if (!o->live && o->finish == FINISH_ERROR) {
            const struct error *error = &o->request.error;
            if (error->code == ERROR_INPUT)
                api_error_set(e, 400, "logit_bias", "%s", error->message);
            else if (error->code == ERROR_LIMIT) /* it made room for others */
                queue_full_error(c, e);
            else
                api_error_set(e, 500, NULL, "generating the answer failed: %s", error->message);
            return true;
        }
        if (!o->live && o->finish == FINISH_CANCELED) {
            api_error_set(e, 503, NULL, "the server canceled the answer");
            return true;
        }
    }
    return false;
}

/* Sends what is ready, and the end of the answer if it has arrived. The rest waits for the loop's
 * next turn, after other connections had theirs. */
static void completion_pump(struct completion *c)
{
    struct strbuf *events = &c->api->events;
    struct api_error e;
    bool has_more = false;
    strbuf_clear(events);
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        has_more |= pump_choice(c, i, 1 + PUMP_EVENTS / c->running.n_choices, events);
    events_write(c, events);
    answers_count(c);
    if (has_more)
        workers_wake(c->api->workers);
    if (!c->x) {
        if (c->running.n_live == 0)
            completion_free(c);
    } else if (failed_choice(c, &e)) {
        completion_fail(c, &e);
    } else if (c->running.n_live == 0) {
        answer_send(c);
        completion_abandon(c);
    } else if (c->output.stream) {
        http_stream_flush(c->x);
    }
}

void completions_pump(struct api *api)
{
    for (struct job *job; (job = workers_finished(api->workers));)
        completion_prepared(completion_of(job));
    const uint64_t end_ns = clock_now_ns() + PUMP_NS;
    struct completion *c = api->next_pumped ? api->next_pumped : api->completions;
    while (c && clock_now_ns() < end_ns) {
        api->next_pumped = c->next; /* stays true if that is freed */
        if (!c->preparing)
            completion_pump(c);
        c = api->next_pumped;
    }
    if (c)
        workers_wake(api->workers);
}

void completion_hangup(struct api *api, struct http_exchange *x)
{
    (void)api;
    struct completion *c = http_user(x);
    if (!c)
        return;
    answer_note(c);
    completion_abandon(c);
}

bool completion_withdraw(struct api *api, struct http_exchange *x)
{
    struct completion *c = http_user(x);
    if (!c || !c->preparing || !workers_withdraw(api->workers, &c->job))
        return false;
    c->preparing = false;
    completion_free(c);
    http_set_user(x, NULL);
    return true;
}

void completion_room(struct http_exchange *x)
{
    struct completion *c = http_user(x);
    if (c && !c->preparing)
        completion_pump(c);
}

static void fail_late(struct completion *c)
{
    struct api_error e;
    api_error_set(&e, 504, NULL, "the answer was not complete after %g s (--timeout)",
                  c->api->options->request_timeout_ms * 1e-3);
    e.code = "timeout";
    completion_fail(c, &e);
}

void completions_tick(struct api *api)
{
    uint64_t now = clock_now_ns(), limit_ns = api->options->request_timeout_ms * UINT64_C(1000000);
    for (struct completion *c = api->completions, *next; c; c = next) {
        next = c->next;
        if (!c->x)
            continue;
        if (limit_ns && now - c->output.began_ns >= limit_ns)
            fail_late(c);
        else if (c->output.stream && now - c->output.sent_ns > HEARTBEAT_NS &&
                 http_stream_has_room(c->x))
            stream_heartbeat(c);
    }
}

void completions_fail(struct api *api, const struct api_error *e)
{
    for (struct completion *c = api->completions, *next; c; c = next) {
        next = c->next;
        if (c->x)
            completion_fail(c, e);
    }
}

void completions_free(struct api *api)
{
    strbuf_free(&api->events);
    for (struct completion *c; (c = api->completions);) {
        c->preparing = false;
        c->running.n_live = 0;
        completion_free(c);
    }
}
