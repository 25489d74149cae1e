/* What a completion says when all of its choices are done, whole or as the end of a stream,
 * and the counts that go into the log. Runs on the event loop's thread. */
#include "base/log.h"
#include "serve/completion/completion_internal.h"

/* The choices of a prompt share it; what any of them had to compute was not cached. */
static uint32_t cached_of(const struct completion *c, uint32_t prompt)
{
    uint32_t n = (uint32_t)c->params.n, cached = UINT32_MAX;
    for (uint32_t i = prompt * n; i < (prompt + 1) * n; i++)
        if (c->choices[i].cached < cached)
            cached = c->choices[i].cached;
    return cached;
}

static struct completion_usage usage_of(const struct completion *c)
{
    struct completion_usage u = {0};
    for (uint32_t i = 0; i < c->n_prompts; i++) {
        u.prompt_tokens += (uint32_t)c->prompts[i].tokens.len;
        u.cached_tokens += cached_of(c, i);
    }
    for (uint32_t i = 0; i < c->n_choices; i++) {
        u.completion_tokens += c->choices[i].n_tokens;
        u.reasoning_tokens += answer_reasoning_tokens(&c->choices[i].answer);
    }
    return u;
}

void answer_note(struct completion *c)
{
    uint64_t first_ns = 0;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct choice *o = &c->choices[i];
        if (o->n_tokens && (!first_ns || o->request.first_token_ns < first_ns))
            first_ns = o->request.first_token_ns;
    }
    const char *tenant = api_keys_tenant_name(&c->api->options->keys, c->requester.tenant);
    if (tenant)
        http_note(c->x, "tenant %s", tenant);
    if (c->n_choices == 0)
        return;
    const struct completion_usage usage = usage_of(c);
    http_note(c->x, "prompt %u, cached %u, generated %u", usage.prompt_tokens, usage.cached_tokens,
              usage.completion_tokens);
    if (c->prompts[0].n_replayed)
        http_note(c->x, "replayed %zu", c->prompts[0].n_replayed);
    if (first_ns)
        http_note(c->x, "first token %.1f ms", (double)(first_ns - c->began_ns) * 1e-6);
}

static void reply_whole(struct completion *c)
{
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    struct completion_usage usage = usage_of(c);
    const bool is_chat = c->kind == REQUEST_CHAT;
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", c->id);
    json_add_string(&w, "object", is_chat ? "chat.completion" : "text_completion");
    json_add_int(&w, "created", c->created);
    json_add_string(&w, "model", c->api->options->model_name);
    json_add_string(&w, "system_fingerprint", c->api->fingerprint);
    json_array_begin(&w, "choices");
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct choice *o = &c->choices[i];
        json_object_begin(&w, NULL);
        json_add_int(&w, "index", i);
        if (is_chat)
            answer_add_message(&w, &o->answer);
        else
            answer_add_text(&w, &o->answer);
        json_add_string(&w, "finish_reason", answer_finish_name(&o->answer, o->finish));
        json_object_end(&w);
    }
    json_array_end(&w);
    usage_add(&w, &usage);
    if (c->explain)
        explain_add(&w, c);
    json_object_end(&w);
    answer_note(c);
    api_reply_json(c->x, 200, &json);
    strbuf_free(&json);
}

/* Pins have a budget: a refused one is no error, because the prompt is in the cache. */
static void pin_add(struct json_writer *w, const struct completion *c)
{
    const struct request *r = &c->choices[0].request;
    json_add_bool(w, "pinned", r->is_pinned);
    json_add_double(w, "pinned_s", r->is_pinned ? (double)(r->pin_ns / 1000000) / 1e3 : 0);
    if (r->pin_ns && !r->is_pinned)
        json_add_string(
            w, "reason",
            "as much of the cache, or of this tenant's part of it, is pinned as may be; "
            "the prompt is cached, and goes when it was not used for longest");
}

static void reply_warm(struct completion *c)
{
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    const struct completion_usage usage = usage_of(c);
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", c->id);
    json_add_string(&w, "object", "cache.warm");
    json_add_int(&w, "created", c->created);
    json_add_string(&w, "model", c->api->options->model_name);
    json_add_int(&w, "prompt_tokens", usage.prompt_tokens);
    json_add_int(&w, "cached_tokens", usage.cached_tokens);
    json_add_int(&w, "computed_tokens", (int64_t)usage.prompt_tokens - usage.cached_tokens);
    pin_add(&w, c);
    if (c->explain)
        explain_add(&w, c);
    json_object_end(&w);
    answer_note(c);
    api_reply_json(c->x, 200, &json);
    strbuf_free(&json);
}

static void stream_finish(struct completion *c)
{
    struct completion_usage usage = usage_of(c);
    struct strbuf events = STRBUF_INIT;
    if (c->params.include_usage)
        sse_usage(&c->sse, &events, &usage);
    if (c->explain) {
        struct strbuf json = STRBUF_INIT;
        explain_add(&(struct json_writer){.out = &json}, c);
        sse_member(&c->sse, &events, &json);
        strbuf_free(&json);
    }
    sse_done(&events);
    if (!events.failed) /* a stream without its end is seen to be cut off, a part of an event not */
        http_stream_write(c->x, events.data, events.len);
    strbuf_free(&events);
    answer_note(c);
    http_stream_end(c->x);
}

void answer_send(struct completion *c)
{
    if (log_enabled(LOG_DEBUG))
        explain_log(c);
    if (c->streaming)
        stream_finish(c);
    else if (c->kind == REQUEST_WARM)
        reply_warm(c);
    else
        reply_whole(c);
}
