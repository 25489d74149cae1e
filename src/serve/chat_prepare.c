/* The slow part of a chat completion: its body read, its conversation rendered and tokenised. Runs
 * on a worker, which owns the completion's upper half meanwhile; only `unwanted` is shared with the
 * event loop. What a newcomer gets wrong: nothing parsed survives it, so what the answer needs of
 * the request is copied at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/chat_internal.h"

int context_error_set(struct api_error *e, const struct completion *c, const char *how,
                      size_t n_tokens)
{
    const struct server_options *options = c->api->options;
    bool is_cut = options->context >= options->engine->limits.n_pages;
    api_error_set(e, 400, "messages",
                  "this model's maximum context length is %u tokens here%s, but the conversation "
                  "takes %s%zu, and the answer needs one at least; shorten it, or start the server "
                  "with a larger %s",
                  options->context, is_cut ? ", as many as the cache holds" : "", how, n_tokens,
                  is_cut ? "--cache-size" : "-c");
    e->code = "context_length_exceeded";
    return -1;
}

/* Megabytes of text take a tokenizer seconds. What cannot fit even if every token were the longest
 * of the vocabulary is refused without it. */
static int refuse_hopeless(struct completion *c)
{
    size_t n_bytes = 0, longest = c->api->longest_token ? c->api->longest_token : 1;
    json_each (message, c->params.messages)
        json_each (member, message)
            n_bytes += member->text_len;
    if (n_bytes / longest <= c->api->options->context)
        return 0;
    return context_error_set(&c->error, c, "at least ", n_bytes / longest);
}

/* What the prompt and the answer may take of the context. */
static int fit_context(struct completion *c)
{
    const struct server_options *options = c->api->options;
    struct chat_params *p = &c->params;
    const size_t n_tokens = c->prompt.tokens.len;
    if (n_tokens == 0)
        return api_error_set(&c->error, 400, "messages", "the conversation is empty");
    if (n_tokens >= options->context)
        return context_error_set(&c->error, c, "", n_tokens);
    int64_t left = (int64_t)(options->context - n_tokens);
    if (p->max_tokens == 0)
        p->max_tokens = options->default_max_tokens ? options->default_max_tokens : left;
    if (p->max_tokens > left)
        p->max_tokens = left;
    if (c->kind == CHAT_WARM)
        p->max_tokens = 0;
    return 0;
}

/* What the fields alone do not tell: whether this server serves such a request. */
static int check_offer(struct completion *c)
{
    const struct server_options *options = c->api->options;
    const struct chat_params *p = &c->params;
    if (options->strict_model && p->model && strcmp(p->model, options->model_name) != 0) {
        api_error_set(&c->error, 404, "model", "there is no model '%.100s' here, only '%s'",
                      p->model, options->model_name);
        c->error.code = "model_not_found";
        return -1;
    }
    if (c->kind == CHAT_WARM && options->no_prefix_cache)
        return api_error_set(&c->error, 501, NULL,
                             "there is no cache to warm: the server runs with --no-prefix-cache");
    uint32_t most = options->max_seqs + options->max_waiting;
    if (p->n > most)
        return api_error_set(&c->error, 400, "n", "'n' is %lld, but this server takes %u at once",
                             (long long)p->n, most);
    return 0;
}

uint64_t replay_namespace(const struct completion *c)
{
    return cache_namespace(c->requester.tenant, -1, -1);
}

/* What only a warming may leave out. */
static int unbegin_answer(struct completion *c)
{
    struct chat_params *p = &c->params;
    if (!p->extra && !(p->extra = json_new(&p->arena, JSON_OBJECT)))
        return -1;
    json_append(&p->arena, p->extra, "add_generation_prompt", json_new_bool(&p->arena, false));
    return p->arena.failed ? -1 : 0;
}

static int make_prompt(struct completion *c)
{
    const struct chat_params *p = &c->params;
    struct error err;
    if (!p->add_generation_prompt && unbegin_answer(c))
        return api_error_set(&c->error, 503, NULL,
                             "there is no memory for this request; try again soon");
    c->explain |= p->explain;
    c->wants_map = c->explain || log_enabled(LOG_DEBUG);
    c->replays = p->replay && c->api->replay;
    struct prompt_input in = {.messages = p->messages,
                              .extra = p->extra,
                              .replay = c->replays ? c->api->replay : NULL,
                              .ns = replay_namespace(c),
                              .want_map = c->wants_map};
    if (prompt_maker_chat(c->api->options->prompt, &in, &c->prompt, &err) == 0)
        return 0;
    switch (err.code) {
    case ERROR_INPUT:
    case ERROR_LIMIT:
        /* With variables of the client's, they may be what the template does not take. */
        return api_error_set(&c->error, 400, p->extra ? NULL : "messages", "%s", err.message);
    case ERROR_FORMAT: /* there is no template: no request can be right */
        return api_error_set(&c->error, 501, NULL, "%s", err.message);
    default: return api_error_set(&c->error, 500, NULL, "%s", err.message);
    }
}

static int prepare(struct completion *c)
{
    if (chat_params_read(&c->params, c->kind, strbuf_str(&c->body), c->body.len,
                         c->api->options->strict_fields, &c->error))
        return -1;
    return check_offer(c) || refuse_hopeless(c) || make_prompt(c) || fit_context(c) ? -1 : 0;
}

/* Without the memory for it, an explanation names no roles. */
static void keep_roles(struct completion *c)
{
    size_t n = c->params.messages ? c->params.messages->count : 0;
    if (!c->wants_map || n == 0 || !(c->roles = calloc(n, sizeof *c->roles)))
        return;
    json_each (message, c->params.messages) {
        const struct json *role = json_get(message, "role");
        snprintf(c->roles[c->n_roles++].name, sizeof c->roles->name, "%s", role->text);
    }
}

/* A parsed request takes many times its bytes, and an answer may wait and run for long: all that
 * is kept of it is the stop strings and, for an explanation, the roles. */
static void let_go_of_request(struct completion *c)
{
    struct chat_params *p = &c->params;
    keep_roles(c);
    for (uint32_t i = 0; i < p->n_stops; i++)
        strbuf_add(&c->stops, p->stops[i].bytes, p->stops[i].len);
    if (c->stops.failed)
        return; /* then the request keeps them */
    const char *bytes = strbuf_str(&c->stops);
    for (uint32_t i = 0; i < p->n_stops; bytes += p->stops[i++].len)
        p->stops[i].bytes = bytes;
    arena_free(&p->arena);
    p->model = NULL;
    p->messages = p->extra = NULL;
}

void completion_prepare(struct job *job)
{
    struct completion *c = completion_of(job);
    if (!atomic_load(&c->unwanted))
        c->failed = prepare(c) != 0;
    let_go_of_request(c);
    strbuf_free(&c->body);
}
