/* What a completion sends, as a stream or whole, through its API's writer, and the counts that go
 * into the log. Runs on the event loop's thread. */
#include "base/clock.h"
#include "base/log.h"
#include "serve/completion/completion_internal.h"

/* The choices of a prompt share it; tokens that any of them had to compute were not cached. Choices
 * that have not started have computed nothing. */
static uint32_t cached_of(const struct completion *c, uint32_t prompt)
{
    uint32_t n = choices_per_prompt(c), cached = UINT32_MAX;
    for (uint32_t i = prompt * n; i < (prompt + 1) * n; i++) {
        const struct choice *o = &c->running.choices[i];
        if (o->is_started && o->cached < cached)
            cached = o->cached;
    }
    return cached == UINT32_MAX ? 0 : cached;
}

static struct answer_usage usage_of(const struct completion *c)
{
    struct answer_usage u = {0};
    for (uint32_t i = 0; i < c->input.n_prompts; i++) {
        u.prompt_tokens += (uint32_t)c->input.prompts[i].tokens.len;
        u.cached_tokens += cached_of(c, i);
    }
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        u.completion_tokens += c->running.choices[i].n_tokens;
        u.reasoning_tokens += answer_reasoning_tokens(&c->running.choices[i].answer);
    }
    u.timings = &c->running.choices[0].timings;
    u.total_ns = clock_now_ns() - c->output.began_ns;
    return u;
}

void answer_note(struct completion *c)
{
    struct access *a = access_of(c->x);
    if (c->preparing || c->running.n_choices == 0)
        return;
    uint64_t first_ns = 0;
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        const struct choice *o = &c->running.choices[i];
        if (o->n_tokens && (!first_ns || o->request.first_token_ns < first_ns))
            first_ns = o->request.first_token_ns;
    }
    const struct answer_usage usage = usage_of(c);
    a->has_usage = true;
    a->prompt_tokens = usage.prompt_tokens;
    a->cached_tokens = usage.cached_tokens;
    a->generated_tokens = usage.completion_tokens;
    if (c->input.prompts[0].n_replayed)
        http_note(c->x, "replayed %zu", c->input.prompts[0].n_replayed);
    if (first_ns)
        a->first_token_ms = (float)((double)(first_ns - c->output.began_ns) * 1e-6);
}

/* ---- whole answers ---- */

/* The likelihood of a choice: the mean of its tokens, so that long answers have no disadvantage. */
static double likeliness(const struct choice *o)
{
    return o->n_tokens ? o->logprob_sum / o->n_tokens : 0;
}

/* Marks choices that are not among the `n` best of their prompt with FINISH_NONE, and renumbers the
 * others. In a tie the first is better. */
static void keep_best(struct completion *c)
{
    const uint32_t made = choices_per_prompt(c), n = (uint32_t)c->input.params.n;
    uint32_t index = 0;
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        struct choice *o = &c->running.choices[i];
        const uint32_t first = i - i % made;
        uint32_t n_better = 0;
        for (uint32_t k = first; k < first + made; k++) {
            double other = likeliness(&c->running.choices[k]), own = likeliness(o);
            n_better += other > own || (other == own && k < i);
        }
        if (n_better < n)
            o->answer.content.index = index++;
        else
            o->finish = FINISH_NONE;
    }
}

static void choices_write(struct json_writer *w, const struct completion *c)
{
    for (uint32_t i = 0; i < c->running.n_choices; i++) {
        struct choice *o = &c->running.choices[i];
        if (o->finish != FINISH_NONE)
            c->output.writer->whole_choice(w, &c->output.head, &o->answer.content,
                                           answer_finish_of(&o->answer, o->finish));
    }
}

/* An object for each choice, in an array if there are several. */
static void list_write(struct json_writer *w, struct completion *c)
{
    struct strbuf extra = STRBUF_INIT;
    if (c->input.explain) {
        explain_add(&(struct json_writer){.out = &extra}, c);
        c->output.head.extra = &extra;
    }
    const bool is_array = c->running.n_choices > 1;
    if (is_array)
        json_array_begin(w, NULL);
    choices_write(w, c);
    if (is_array)
        json_array_end(w);
    c->output.head.extra = NULL;
    w->out->failed |= extra.failed;
    strbuf_free(&extra);
}

/* The first answer once more, as llama-server's own API has it: with the prompt and the settings.
 */
static void verbose_add(struct json_writer *w, const struct completion *c)
{
    struct choice *o = c->running.choices;
    while (o->finish == FINISH_NONE) /* it is not among the best */
        o++;
    o->answer.content.logprobs.n_given = 0; /* they are given twice */
    strbuf_adds(w->out, ",\"__verbose\":");
    llama_writer.whole_choice(&(struct json_writer){.out = w->out}, &c->output.head,
                              &o->answer.content, answer_finish_of(&o->answer, o->finish));
}

static void reply_whole(struct completion *c)
{
    const struct answer_writer *writer = c->output.writer;
    const struct answer_usage usage = usage_of(c);
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    if (choices_per_prompt(c) > c->input.params.n)
        keep_best(c);
    if (writer->is_list) {
        list_write(&w, c);
    } else {
        json_object_begin(&w, NULL);
        writer->whole_begin(&w, &c->output.head);
        choices_write(&w, c);
        writer->whole_end(&w, &usage);
        if (c->input.params.verbose)
            verbose_add(&w, c);
        if (c->input.explain)
            explain_add(&w, c);
        json_object_end(&w);
    }
    answer_note(c);
    api_reply_json(c->x, 200, &json);
    strbuf_free(&json);
}

/* Pins have a budget: a rejected pin is not an error, because the prompt is still cached. */
static void pin_add(struct json_writer *w, const struct completion *c)
{
    const struct request *r = &c->running.choices[0].request;
    json_add_bool(w, "pinned", r->is_pinned);
    json_add_double(w, "pinned_s", r->is_pinned ? (double)(r->pin_ns / 1000000) / 1e3 : 0);
    if (r->pin_ns && !r->is_pinned)
        json_add_string(w, "reason",
                        "too much of the cache, or of this tenant's part of it, is pinned already; "
                        "the prompt is cached, but not pinned");
}

static void reply_warm(struct completion *c)
{
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    const struct answer_usage usage = usage_of(c);
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", c->output.id);
    json_add_string(&w, "object", "cache.warm");
    json_add_int(&w, "created", c->output.head.created);
    json_add_string(&w, "model", c->output.head.model);
    json_add_int(&w, "prompt_tokens", usage.prompt_tokens);
    json_add_int(&w, "cached_tokens", usage.cached_tokens);
    json_add_int(&w, "computed_tokens", (int64_t)usage.prompt_tokens - usage.cached_tokens);
    pin_add(&w, c);
    if (c->input.explain)
        explain_add(&w, c);
    json_object_end(&w);
    answer_note(c);
    api_reply_json(c->x, 200, &json);
    strbuf_free(&json);
}

/* ---- streams ---- */

bool stream_begin(struct completion *c)
{
    struct completion_output *o = &c->output;
    struct strbuf *events = &c->api->events;
    o->stream = o->writer->open(&o->head);
    if (!o->stream)
        return false;
    http_add_field(c->x, "Cache-Control", "no-cache");
    http_add_field(c->x, "X-Accel-Buffering", "no");
    http_stream_begin(c->x, o->writer->media_type);
    o->sent_ns = clock_now_ns(); /* the head: silence starts here */
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        answer_stream(&c->running.choices[i].answer, o->writer, o->stream);
    strbuf_clear(events);
    o->writer->begin(o->stream, events);
    stream_write(c, events);
    http_stream_flush(c->x);
    return true;
}

void stream_write(struct completion *c, const struct strbuf *events)
{
    if (events->failed) /* an incomplete event must not be sent */
        c->output.lost_events = true;
    if (events->len == 0 || c->output.lost_events)
        return;
    http_stream_write(c->x, events->data, events->len);
    c->output.sent_ns = clock_now_ns();
}

void stream_heartbeat(struct completion *c)
{
    struct strbuf *events = &c->api->events;
    strbuf_clear(events);
    c->output.writer->heartbeat(c->output.stream, events);
    stream_write(c, events);
    http_stream_flush(c->x);
}

void stream_fail(struct completion *c, const struct api_error *e)
{
    struct strbuf event = STRBUF_INIT;
    c->output.writer->error(c->output.stream, &event, e);
    if (!event.failed)
        http_stream_write(c->x, event.data, event.len);
    answer_note(c);
    http_note(c->x, "failed: %s", e->message);
    http_stream_end(c->x);
    strbuf_free(&event);
}

static void stream_finish(struct completion *c)
{
    const struct answer_usage usage = usage_of(c);
    struct strbuf events = STRBUF_INIT, extra = STRBUF_INIT;
    if (c->input.explain)
        explain_add(&(struct json_writer){.out = &extra}, c);
    c->output.writer->end(c->output.stream, &events, &usage, c->input.explain ? &extra : NULL);
    /* Clients notice a stream without its end, but not an incomplete event. */
    if (!events.failed && !extra.failed)
        http_stream_write(c->x, events.data, events.len);
    strbuf_free(&events);
    strbuf_free(&extra);
    answer_note(c);
    http_stream_end(c->x);
}

void answer_send(struct completion *c)
{
    if (log_enabled(LOG_DEBUG))
        explain_log(c);
    if (c->output.stream)
        stream_finish(c);
    else if (c->kind == REQUEST_WARM)
        reply_warm(c);
    else
        reply_whole(c);
}
