/* Request ids, the limits of who asks, and a line in the log for each request. Runs on the event
 * loop's thread. */
#include "serve/api/access.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "serve/api/random_id.h"

#define OWN_PREFIX "req-"

enum { MAX_PATH = 200 }; /* in the log */

static_assert(sizeof(struct access) <= HTTP_MEMORY_BYTES, "it lies in the exchange");

struct access *access_of(struct http_exchange *x)
{
    return http_memory(x);
}

/* ---- ids ---------------------------------------------------------------------------------- */

static bool is_sane(const char *id)
{
    size_t len = 0;
    while (id[len] > 0x20 && id[len] < 0x7f)
        len++;
    return len > 0 && len <= REQUEST_ID_MAX && !id[len];
}

void access_identify(struct http_exchange *x)
{
    struct access *a = access_of(x);
    const struct http_parser *p = http_request(x);
    if (a->id[0])
        return;
    const char *given = http_parser_head_done(p) ? http_parser_field(p, "x-request-id") : NULL;
    if (given && is_sane(given))
        snprintf(a->id, sizeof a->id, "%s", given);
    else
        random_id(a->id, OWN_PREFIX, 32);
    http_add_field(x, "x-request-id", a->id);
}

void access_answer_id(struct http_exchange *x, const char *prefix, char *out, size_t size)
{
    enum { n = sizeof OWN_PREFIX - 1 };
    const char *id = access_of(x)->id;
    char own[n + RANDOM_ID_LETTERS + 1];
    if (strncmp(id, OWN_PREFIX, n) != 0 || strlen(id) != n + RANDOM_ID_LETTERS)
        random_id(own, OWN_PREFIX, 32);
    else
        memcpy(own, id, sizeof own);
    snprintf(out, size, "%s%s", prefix, own + n);
}

/* ---- limits ------------------------------------------------------------------------------- */

/* As OpenAI writes durations: "120ms", "1.5s", "6m0s". */
static void duration_write(uint64_t ns, char *out, size_t size)
{
    const uint64_t ms = (ns + 999999) / 1000000;
    if (ms < 1000)
        snprintf(out, size, "%" PRIu64 "ms", ms);
    else if (ms < 60000)
        snprintf(out, size, "%gs", (double)ms * 1e-3);
    else
        snprintf(out, size, "%" PRIu64 "m%" PRIu64 "s", ms / 60000, ms % 60000 / 1000);
}

/* The three fields of one limit per minute, called "requests" or "tokens". */
static void level_add(struct http_exchange *x, const char *what, const struct limit_level *level)
{
    char name[48], value[32];
    if (!level->limit)
        return;
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
    snprintf(value, sizeof value, "%" PRIu32, level->limit);
    http_add_field(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
    snprintf(value, sizeof value, "%" PRIu32, level->left);
    http_add_field(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
    duration_write(level->full_in_ns, value, sizeof value);
    http_add_field(x, name, value);
}

static void levels_add(const struct limiter *l, struct http_exchange *x, uint64_t now_ns)
{
    const uint32_t meter = access_of(x)->who.meter;
    const struct limit_level requests = limiter_level(l, meter, LIMIT_REQUESTS_PER_MINUTE, now_ns),
                             tokens = limiter_level(l, meter, LIMIT_TOKENS_PER_MINUTE, now_ns);
    level_add(x, "requests", &requests);
    level_add(x, "tokens", &tokens);
}

static int refuse(struct http_exchange *x, const struct limit_refusal *r, struct api_error *e)
{
    static const char *const what[] = {[LIMIT_REQUESTS_AT_ONCE] = "requests at once",
                                       [LIMIT_REQUESTS_PER_MINUTE] = "requests a minute",
                                       [LIMIT_TOKENS_PER_MINUTE] = "tokens a minute"};
    char after[24], wait[32];
    snprintf(after, sizeof after, "%" PRIu64, r->wait_ns / 1000000000 + 1);
    http_add_field(x, "Retry-After", after);
    duration_write(r->wait_ns, wait, sizeof wait);
    if (r->limit == LIMIT_REQUESTS_AT_ONCE)
        api_error_set(e, 429, NULL,
                      "your limit is %" PRIu32 " %s; try again when one of them is answered",
                      r->allowed, what[r->limit]);
    else
        api_error_set(e, 429, NULL, "your limit is %" PRIu32 " %s; try again in %s", r->allowed,
                      what[r->limit], wait);
    e->code = "rate_limit_exceeded";
    return -1;
}

int access_admit(struct limiter *l, struct http_exchange *x, struct api_error *e)
{
    struct access *a = access_of(x);
    struct limit_refusal refusal;
    const uint64_t now_ns = clock_now_ns();
    a->is_admitted = limiter_begin(l, a->who.client, &a->who.limits, now_ns, &a->who.meter,
                                   &refusal);
    levels_add(l, x, now_ns);
    return a->is_admitted ? 0 : refuse(x, &refusal, e);
}

/* ---- the log ------------------------------------------------------------------------------ */

/* One request, as far as it is known. */
struct line {
    const struct access *a;
    const struct http_outcome *outcome;
    const char *method, *path, *tenant, *peer; /* NULL: unknown */
    int path_len;
    double ms;
};

static void text_write(const struct line *l, struct strbuf *out)
{
    const struct access *a = l->a;
    strbuf_addf(out, "%s %.*s %d %.1f ms: ", l->method, l->path_len, l->path, l->outcome->status,
                l->ms);
    if (l->tenant)
        strbuf_addf(out, "tenant %s, ", l->tenant);
    if (a->has_usage)
        strbuf_addf(out, "prompt %u, cached %u, generated %u, ", a->prompt_tokens, a->cached_tokens,
                    a->generated_tokens);
    if (a->first_token_ms > 0)
        strbuf_addf(out, "first token %.1f ms, ", (double)a->first_token_ms);
    if (*l->outcome->note)
        strbuf_addf(out, "%s, ", l->outcome->note);
    if (a->key_name[0])
        strbuf_addf(out, "key %s, ", a->key_name);
    else
        strbuf_addf(out, "from %s, ", l->peer);
    strbuf_addf(out, "id %s%s", a->id, l->outcome->hung_up ? " (the client hung up)" : "");
}

/* The members between the braces. */
static void members_write(const struct line *l, struct strbuf *out)
{
    const struct access *a = l->a;
    struct json_writer w = {.out = out};
    json_add_string(&w, "id", a->id);
    json_add_string(&w, "client", l->peer);
    if (a->key_name[0])
        json_add_string(&w, "key", a->key_name);
    if (l->tenant)
        json_add_string(&w, "tenant", l->tenant);
    json_add_string(&w, "method", l->method);
    json_add_bytes(&w, "path", l->path, (size_t)l->path_len);
    json_add_int(&w, "status", l->outcome->status);
    json_add_double(&w, "duration_ms", l->ms);
    if (a->has_usage) {
        json_add_int(&w, "prompt_tokens", a->prompt_tokens);
        json_add_int(&w, "cached_tokens", a->cached_tokens);
        json_add_int(&w, "generated_tokens", a->generated_tokens);
    }
    if (a->first_token_ms > 0)
        json_add_double(&w, "first_token_ms", (double)a->first_token_ms);
    if (l->outcome->hung_up)
        json_add_bool(&w, "hung_up", true);
    if (*l->outcome->note)
        json_add_string(&w, "note", l->outcome->note);
}

void access_log(const struct api_keys *keys, struct http_exchange *x,
                const struct http_outcome *outcome)
{
    struct strbuf text = STRBUF_INIT;
    const enum log_level level = outcome->is_quiet ? LOG_DEBUG : LOG_INFO;
    const struct http_parser *p = http_request(x);
    const struct access *a = access_of(x);
    if (!log_enabled(level))
        return;
    struct line line = {.a = a,
                        .outcome = outcome,
                        .method = p->method_at ? http_parser_method(p) : "-",
                        .path = p->target_at ? http_parser_target(p) : "-",
                        .tenant = keys ? api_keys_tenant_name(keys, a->who.tenant) : NULL,
                        .peer = http_peer_address(x),
                        .ms = (double)(outcome->duration_ns / 1000) * 1e-3};
    const size_t len = strcspn(line.path, "?");
    line.path_len = (int)(len < MAX_PATH ? len : MAX_PATH);
    if (log_get_format() == LOG_JSON) {
        members_write(&line, &text);
        log_members(level, text.data, text.len);
    } else {
        text_write(&line, &text);
        log_write(level, "%s", strbuf_str(&text));
    }
    strbuf_free(&text);
}
