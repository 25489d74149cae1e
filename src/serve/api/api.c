/* What the routes share: identifying requesters, and replies. Runs on the event loop's thread. */
#include "serve/api/api.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/hash.h"

/* What the bits of an answer depend on: the model, its quantization (in the file and at load), the
 * type of the KV, the build and the engine, which names its kernels and activations. */
static void fingerprint_make(struct api *api)
{
    const struct server_options *o = api->options;
    const char *engine = o->engine->info.fingerprint;
    static const char *const kv_types[] = {
        [KV_F16] = "", [KV_F32] = "/kv-f32", [KV_BF16] = "/kv-bf16"};
    snprintf(api->fingerprint, sizeof api->fingerprint, "%.48s/%.15s%s%.12s%s/radish-%s%s%s",
             o->model_name, o->quantisation, o->quantize ? "/to-" : "",
             o->quantize ? o->quantize : "", kv_types[o->engine->limits.kv_type], RADISH_VERSION,
             *engine ? "/" : "", engine);
}

void api_init(struct api *api, const struct server_options *options)
{
    *api = (struct api){.options = options, .started_unix = clock_unix_seconds()};
    api->rules = (struct host_rules){.bound = options->host,
                                     .allowed_hosts = options->allowed_hosts,
                                     .n_allowed_hosts = options->n_allowed_hosts,
                                     .allowed_origins = options->allowed_origins,
                                     .n_allowed_origins = options->n_allowed_origins,
                                     .own = &api->own_names,
                                     .has_keys = options->keys->n_keys > 0};
    api->is_local_only = http_listeners_are_local(options->listeners);
    own_names_find(&api->own_names);
    fingerprint_make(api);
}

void api_tick_soon(struct api *api)
{
    const struct timeval second = {.tv_sec = 1};
    if (!evtimer_pending(api->tick, NULL))
        evtimer_add(api->tick, &second);
}

/* The key of a request, or NULL: OpenAI's clients send `Authorization: Bearer KEY`, Anthropic's
 * `x-api-key: KEY`. */
static const char *key_of(const struct http_parser *p)
{
    static const char bearer[] = "bearer ";
    const char *value = http_parser_field(p, "authorization");
    if (value && strncasecmp(value, bearer, sizeof bearer - 1) == 0)
        return value + sizeof bearer - 1 + strspn(value + sizeof bearer - 1, " ");
    return http_parser_field(p, "x-api-key");
}

/* Reverse proxies add fields to tell for whom they ask. nginx adds none by default, but
 * before 1.29.7 it speaks HTTP/1.0, as browsers, SDKs and curl do not. */
static bool is_forwarded(const struct http_parser *p)
{
    if (p->minor_version == 0)
        return true;
    static const char *const fields[] = {
        "forwarded",          "via",         "x-forwarded-for",  "x-forwarded-host",
        "x-forwarded-proto",  "x-real-ip",   "x-forwarded-port", "x-forwarded-server",
        "x-forwarded-prefix", "x-client-ip", "true-client-ip",   "cf-connecting-ip"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (http_parser_field(p, fields[i]))
            return true;
    return false;
}

static bool is_local_admin(const struct api *api, const struct http_exchange *x)
{
    const struct http_parser *p = http_request(x);
    const char *host = http_parser_host(p);
    return api->is_local_only && host && authority_is_loopback(host) && !is_forwarded(p);
}

/* The number of a client without a key: its address or, as an IPv6 user has 2^64 of them, its /64
 * network. */
static uint64_t client_of(const char *peer)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, peer, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6))
        return hash_bytes(&v6, sizeof v6 / 2);
    return hash_bytes(peer, strlen(peer));
}

int api_identify(struct api *api, struct http_exchange *x, struct api_error *e)
{
    const struct server_options *o = api->options;
    struct access *a = access_of(x);
    if (o->keys->n_keys == 0) {
        a->who = (struct requester){.client = client_of(http_peer_address(x)),
                                    .is_admin = is_local_admin(api, x),
                                    .limits = o->limits};
        return 0;
    }
    const char *key = key_of(http_request(x));
    const struct api_key *found = key ? api_keys_find(o->keys, key, &a->who) : NULL;
    if (found) {
        /* An admin has to get through when others have used up theirs. */
        if (!found->is_admin)
            a->who.limits = limits_or(&found->limits, &o->limits);
        memcpy(a->key_name, found->name, sizeof a->key_name);
        return 0;
    }
    http_add_field(x, "WWW-Authenticate", "Bearer");
    /* OpenAI's words: LiteLLM recognizes them. */
    api_error_set(e, 401, NULL,
                  key ? "Incorrect API key provided"
                      : "this server needs an API key: send it as 'Authorization: Bearer KEY'");
    e->code = "invalid_api_key";
    return -1;
}

static bool is_name(const char *name, const char *model, size_t len)
{
    return strncmp(name, model, len) == 0 &&
           (name[len] == '\0' || strcmp(name + len, ":latest") == 0);
}

bool api_has_model(const struct api *api, const char *name)
{
    const char *other = api->options->other_names;
    bool found = is_name(name, api->options->model_name, strlen(api->options->model_name));
    while (other && *other && !found) {
        const size_t len = strcspn(other, ",");
        found = is_name(name, other, len);
        other += len + (other[len] == ',');
    }
    return found;
}

/* Ollama's clients look for "model 'x' not found". */
int api_model_not_found(const struct api *api, const char *name, struct api_error *e)
{
    const char *others = api->options->other_names;
    api_error_set(e, 404, "model", "model '%.100s' not found; this server has only '%s'%s%.200s%s",
                  name, api->options->model_name, others ? " (other names: " : "",
                  others ? others : "", others ? ")" : "");
    e->code = "model_not_found";
    return -1;
}

void api_reply_json(struct http_exchange *x, int status, const struct strbuf *json)
{
    if (json->failed) {
        struct api_error e;
        api_error_set(&e, 500, NULL, "not enough memory for the answer");
        api_reply_error(x, &e);
        return;
    }
    http_reply(x, status, "application/json", json->data, json->len);
}

/* A request rejected before its head is complete has a path once its first line is read; before
 * that, errors have OpenAI's form. */
void api_reply_error(struct http_exchange *x, const struct api_error *e)
{
    const struct http_parser *p = http_request(x);
    struct strbuf json = STRBUF_INIT;
    api_error_write(&json, e, error_form_of(p->target_at ? p->head.data + p->path_at : ""));
    access_identify(x);
    http_note(x, "%s", e->message);
    if (e->status == 501) /* OpenAI's SDKs retry other 5xx */
        http_add_field(x, "x-should-retry", "false");
    http_reply(x, e->status, "application/json", strbuf_str(&json), json.failed ? 0 : json.len);
    strbuf_free(&json);
}
