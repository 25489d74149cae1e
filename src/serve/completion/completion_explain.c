/* Why no more of a prompt was cached, and which earlier answers were replayed: the member `radish`
 * of an answer, and a line of the log. Runs on the event loop's thread, at the end of an answer.
 *
 * In a namespace that tenants share, the cached continuation may be another tenant's text. Its
 * tokens have an owner: show them only to that tenant and the operator. The log has positions and
 * reasons, but no text of the conversation. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "prompt/unicode/utf8_stream.h"
#include "serve/completion/completion_internal.h"

enum { TEXT_TOKENS = 8 };

/* What was found, in the terms of the answer. */
struct finding {
    bool is_disabled;        /* the cache was not used */
    enum miss_reason reason; /* MISS_NONE: no more could have been cached */
    uint32_t position;       /* of the first token that was not cached */
    int32_t message;         /* its message; -1: in the template's text */
    int32_t precedes;        /* then the next message; -1: none */
    struct strbuf prompt_text, cached_text, before;
    bool is_still_here;    /* window: the tokens are; only their windows were evicted */
    double gone_s, idle_s; /* evicted, expired, cleared, window */
    uint32_t gone_tokens;  /* ... at least this much of the prompt */
    const char *tenant;    /* namespace: its owner, and how much it has */
    uint32_t ns_length;    /* 0: unknown */
};

static const char *role_of(const struct completion *c, int32_t message)
{
    return message >= 0 && (size_t)message < c->input.n_roles ? c->input.roles[message].name : NULL;
}

static void place_find(struct finding *f, const struct prompt *p)
{
    size_t i = 0;
    while (i < p->n_map && p->map[i].token_end <= f->position)
        i++;
    f->message = i < p->n_map && p->map[i].source >= 0 ? p->map[i].source : -1;
    f->precedes = -1;
    for (; i < p->n_map && f->message < 0 && f->precedes < 0; i++)
        if (p->map[i].source >= 0)
            f->precedes = p->map[i].source;
}

/* Adds ids as valid UTF-8 text, with special tokens spelled out. */
static void ids_add(const struct completion *c, const int32_t *ids, size_t n, struct strbuf *out)
{
    const struct tokenizer *tokenizer = c->api->options->prompt->tokenizer;
    struct utf8_stream utf8 = {0};
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(tokenizer, ids[i], &len);
        utf8_stream_add(&utf8, bytes, len, out);
    }
    utf8_stream_end(&utf8, out);
}

static const char *tenant_name(const struct completion *c, uint32_t tenant)
{
    const char *name = api_keys_tenant_name(c->api->options->keys, tenant);
    return name ? name : "everyone";
}

/* After a shared prompt the tree may continue with tokens of another tenant. This tenant must not
 * see them; only the operator is told whose they are, if they would have matched. */
static void anothers_hide(const struct completion *c, struct finding *f)
{
    const struct request *r = &c->running.choices[0].request;
    uint32_t owner = r->miss.n_tokens ? cache_token_owner(r->miss.tokens[0]) : 0;
    if (f->reason != MISS_DIVERGED || !owner || owner == c->requester.tenant)
        return;
    bool is_same = (uint32_t)r->miss.tokens[0] == (uint32_t)r->tokens[f->position];
    f->reason = is_same && c->requester.is_admin ? MISS_NAMESPACE : MISS_NEVER_SEEN;
    if (f->reason == MISS_NAMESPACE)
        f->tenant = tenant_name(c, owner);
}

/* True for a token that the requester owns, or in its own namespace. */
static bool is_own(const struct completion *c, uint64_t token)
{
    uint32_t owner = cache_token_owner(token), tenant = c->requester.tenant;
    uint64_t ns = c->running.choices[0].request.ns;
    return tenant && tenant == (owner ? owner : cache_namespace_tenant(ns));
}

/* Adds the cached continuation, as far as the requester may read it: the operator all of it, a
 * tenant its own, and clients without a key nothing, because they share with strangers. */
static void cached_text_add(const struct completion *c, const struct miss *miss, struct strbuf *out)
{
    int32_t ids[MISS_MAX_TOKENS];
    size_t n = 0;
    for (; n < miss->n_tokens && cache_token_kind(miss->tokens[n]) == CACHE_TOKEN_TEXT; n++) {
        if (!is_own(c, miss->tokens[n]) && !c->requester.is_admin)
            break;
        ids[n] = (int32_t)(uint32_t)miss->tokens[n];
    }
    ids_add(c, ids, n, out);
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? round((double)(to_ns - from_ns) * 1e-6) / 1e3 : 0;
}

/* NULL: nothing to report. */
static const char *reason_name(const struct finding *f)
{
    static const char *const names[] = {
        [MISS_NONE] = NULL,
        [MISS_NEVER_SEEN] = "never_seen",
        [MISS_DIVERGED] = "diverged",
        [MISS_EVICTED] = "evicted",
        [MISS_EXPIRED] = "expired",
        [MISS_CLEARED] = "cleared",
        [MISS_NAMESPACE] = "namespace",
        [MISS_WINDOW] = "window",
    };
    return f->is_disabled ? "disabled" : names[f->reason];
}

static bool was_here(const struct finding *f)
{
    return f->reason == MISS_EVICTED || f->reason == MISS_EXPIRED || f->reason == MISS_CLEARED ||
           (f->reason == MISS_WINDOW && !f->is_still_here);
}

static void finding_free(struct finding *f)
{
    strbuf_free(&f->prompt_text);
    strbuf_free(&f->cached_text);
    strbuf_free(&f->before);
}

/* Adds the texts around the position. */
static void texts_add(const struct completion *c, struct finding *f)
{
    const struct request *r = &c->running.choices[0].request;
    uint32_t left = r->n_tokens - f->position;
    uint32_t n_before = min_u32(f->position, TEXT_TOKENS);
    place_find(f, c->input.prompts);
    const int32_t *ids = c->input.prompts[0].tokens.ids + f->position;
    ids_add(c, ids, min_u32(left, TEXT_TOKENS), &f->prompt_text);
    ids_add(c, ids - n_before, n_before, &f->before);
}

static struct finding finding_make(const struct completion *c)
{
    const struct request *r = &c->running.choices[0].request;
    const struct miss *miss = &r->miss;
    struct finding f = {.is_disabled = r->no_cache};
    if (!f.is_disabled && (miss->reason == MISS_NONE || miss->position + 1 >= r->n_tokens))
        return f;
    if (!f.is_disabled) {
        f.reason = miss->reason;
        f.position = miss->position;
    }
    texts_add(c, &f);
    anothers_hide(c, &f);
    if (f.reason == MISS_DIVERGED)
        cached_text_add(c, miss, &f.cached_text);
    f.is_still_here = f.reason == MISS_WINDOW && miss->gone_ns == 0;
    if (f.is_still_here)
        f.gone_tokens = miss->gone_length;
    if (was_here(&f)) {
        f.gone_s = seconds_between(miss->gone_ns, r->submitted_ns);
        f.idle_s = seconds_between(miss->last_used_ns, miss->gone_ns);
        f.gone_tokens = miss->gone_length;
    }
    if (miss->reason == MISS_NAMESPACE) {
        f.tenant = tenant_name(c, cache_namespace_tenant(miss->ns));
        f.ns_length = miss->ns_length;
    }
    return f;
}

/* ---- for a person ------------------------------------------------------------------------- */

static void place_describe(const struct completion *c, const struct finding *f, struct strbuf *out)
{
    if (c->kind == REQUEST_TEXT)
        strbuf_adds(out, "the prompt");
    else if (f->message >= 0)
        strbuf_addf(out, "message %d", f->message);
    else if (f->precedes >= 0)
        strbuf_addf(out, "the template's text before message %d", f->precedes);
    else
        strbuf_adds(out, "the template's text after the last message");
    const char *role = role_of(c, f->message >= 0 ? f->message : f->precedes);
    if (role)
        strbuf_addf(out, " (%s)", role);
}

static void seconds_describe(double seconds, struct strbuf *out)
{
    if (seconds < 120)
        strbuf_addf(out, "%.3g s", seconds);
    else if (seconds < 7200)
        strbuf_addf(out, "%.0f minutes", seconds / 60);
    else
        strbuf_addf(out, "%.0f hours", seconds / 3600);
}

/* "... was evicted 3 s ago, after 40 s without use". */
static void gone_describe(const struct finding *f, const char *what, struct strbuf *out)
{
    strbuf_addf(out, " was cached (%u token%s of it), but was %s ", f->gone_tokens,
                f->gone_tokens == 1 ? "" : "s", what);
    seconds_describe(f->gone_s, out);
    strbuf_adds(out, " ago, after ");
    seconds_describe(f->idle_s, out);
    strbuf_adds(out, " without use");
}

/* The message whose answer was replayed completely, if its last token is the missing one; else
 * -1. */
static int32_t last_sampled_of(const struct completion *c, const struct finding *f)
{
    const struct prompt *p = c->input.prompts;
    for (size_t i = 0; i < p->n_replays && f->reason == MISS_NEVER_SEEN; i++)
        if (p->replays[i].n_tokens == p->replays[i].n_sampled &&
            p->replays[i].first_token + p->replays[i].n_tokens == f->position + 1)
            return p->replays[i].message;
    return -1;
}

/* Token ids are compared, not texts: the same text has many tokenizations. */
static bool is_same_text(const struct finding *f)
{
    size_t n = min_size(f->prompt_text.len, f->cached_text.len);
    return n && memcmp(f->prompt_text.data, f->cached_text.data, n) == 0;
}

static void divergence_describe(const struct completion *c, const struct finding *f,
                                struct strbuf *out)
{
    const char *role = role_of(c, f->message);
    strbuf_adds(out, " is ");
    json_write_string(out, strbuf_str(&f->prompt_text), f->prompt_text.len);
    strbuf_adds(out, ", but the cache continues with ");
    if (f->cached_text.len)
        json_write_string(out, strbuf_str(&f->cached_text), f->cached_text.len);
    else
        strbuf_adds(out, "something else");
    if (!is_same_text(f))
        return;
    strbuf_adds(out, ": the shown parts are the same text in different tokens");
    if (!c->input.replays && role && strcmp(role, "assistant") == 0)
        strbuf_adds(out, ", because exact token replay is off");
}

/* For layers with a window, the positions before this one are needed too. */
static void window_describe(const struct finding *f, struct strbuf *out)
{
    if (f->is_still_here)
        strbuf_addf(
            out,
            " is cached (%u token%s of it), but not what layers with a window need to continue "
            "there: that was evicted",
            f->gone_tokens, f->gone_tokens == 1 ? "" : "s");
    else
        gone_describe(f, "dropped when layers with a window needed room", out);
}

/* Says why the prompt is not cached from the position on. */
static void reason_describe(const struct completion *c, const struct finding *f, struct strbuf *out)
{
    bool is_capped = c->api->options->tenant_pages && c->requester.tenant;
    switch (f->reason) {
    case MISS_NONE:
    case MISS_NEVER_SEEN:
        strbuf_adds(out, " is new: ");
        json_write_string(out, strbuf_str(&f->prompt_text), f->prompt_text.len);
        break;
    case MISS_DIVERGED: divergence_describe(c, f, out); break;
    case MISS_EVICTED:
        gone_describe(f, "evicted to make room", out);
        strbuf_addf(out, "; a larger --cache-size%s would have kept it",
                    is_capped ? " or --tenant-cache-size" : "");
        break;
    case MISS_EXPIRED:
        gone_describe(f, "dropped", out);
        strbuf_adds(out, "; a longer --cache-ttl would have kept it");
        break;
    case MISS_CLEARED: gone_describe(f, "cleared", out); break;
    case MISS_NAMESPACE:
        strbuf_addf(out, " is cached for tenant '%s', but tenants do not share their caches",
                    f->tenant);
        break;
    case MISS_WINDOW:
        window_describe(f, out);
        strbuf_adds(out, "; a larger --cache-size would have kept it");
        break;
    }
}

/* Writes one sentence. */
static void finding_describe(const struct completion *c, const struct finding *f,
                             struct strbuf *out)
{
    int32_t answer = last_sampled_of(c, f);
    if (f->is_disabled) {
        strbuf_adds(out, c->api->options->no_prefix_cache
                             ? "The server runs with --no-prefix-cache."
                             : "The request said cache_prompt: false.");
    } else if (answer >= 0) {
        strbuf_addf(out,
                    "The first %u tokens were cached, up to the last one sampled for message %d "
                    "(assistant): that token is computed only when something follows it.",
                    f->position, answer);
    } else {
        if (f->position)
            strbuf_addf(out, "The first %u tokens were cached; what follows in ", f->position);
        else
            strbuf_adds(out, "Nothing was cached: the start of ");
        place_describe(c, f, out);
        reason_describe(c, f, out);
        strbuf_addc(out, '.');
    }
}

/* ---- for a program ------------------------------------------------------------------------ */

static void add_index(struct json_writer *w, const char *key, int32_t index)
{
    if (index >= 0)
        json_add_int(w, key, index);
    else
        json_add_null(w, key);
}

static void add_text(struct json_writer *w, const char *key, const struct strbuf *text)
{
    json_add_bytes(w, key, strbuf_str(text), text->len);
}

static void miss_add(struct json_writer *w, const struct completion *c, const struct finding *f)
{
    const char *role = role_of(c, f->message);
    struct strbuf detail = STRBUF_INIT;
    json_object_begin(w, "miss");
    json_add_int(w, "position", f->position);
    add_index(w, "message", f->message);
    if (role)
        json_add_string(w, "role", role);
    else
        json_add_null(w, "role");
    if (f->message < 0)
        add_index(w, "precedes_message", f->precedes);
    json_add_string(w, "reason", reason_name(f));
    add_text(w, "before", &f->before);
    add_text(w, "prompt_text", &f->prompt_text);
    if (f->cached_text.len)
        add_text(w, "cached_text", &f->cached_text);
    if (was_here(f)) {
        json_add_int(w, "gone_tokens", f->gone_tokens);
        json_add_double(w, "gone_s", f->gone_s);
        json_add_double(w, "idle_s", f->idle_s);
    }
    if (f->tenant) {
        json_add_string(w, "tenant", f->tenant);
        add_index(w, "tenant_tokens", f->ns_length ? (int32_t)f->ns_length : -1);
    }
    finding_describe(c, f, &detail);
    add_text(w, "detail", &detail);
    json_object_end(w);
    strbuf_free(&detail);
}

/* The replay of one message, if any. */
static void replay_add(struct json_writer *w, const struct prompt *p, int32_t message)
{
    const struct prompt_replay *found = NULL;
    for (size_t i = 0; i < p->n_replays; i++)
        if (p->replays[i].message == message)
            found = &p->replays[i];
    json_object_begin(w, NULL);
    json_add_int(w, "message", message);
    json_add_int(w, "tokens", found ? (int64_t)found->n_tokens : 0);
    json_add_int(w, "sampled", found ? (int64_t)found->n_sampled : 0);
    json_add_string(w, "stopped", found ? replay_stop_name(found->stop) : "unknown");
    if (found)
        json_add_int(w, "position", (int64_t)(found->first_token + found->n_tokens));
    json_object_end(w);
}

static void replays_add(struct json_writer *w, const struct completion *c)
{
    if (!c->input.replays) {
        json_add_null(w, "replay");
        return;
    }
    json_array_begin(w, "replay");
    for (size_t i = 0; i < c->input.n_roles; i++)
        if (strcmp(c->input.roles[i].name, "assistant") == 0)
            replay_add(w, c->input.prompts, (int32_t)i);
    json_array_end(w);
}

void explain_add(struct json_writer *w, const struct completion *c)
{
    const struct choice *o = &c->running.choices[0];
    struct finding f = finding_make(c);
    json_object_begin(w, "radish");
    json_add_int(w, "prompt_tokens", o->request.n_tokens);
    json_add_int(w, "cached_tokens", o->cached);
    json_add_int(w, "shared_tokens", o->request.prompt_shared);
    json_add_int(w, "computed_tokens", (int64_t)o->request.n_tokens - o->cached);
    json_add_int(w, "replayed_tokens", (int64_t)c->input.prompts->n_replayed);
    replays_add(w, c);
    if (reason_name(&f))
        miss_add(w, c, &f);
    else
        json_add_null(w, "miss");
    json_object_end(w);
    finding_free(&f);
}

void explain_log(const struct completion *c)
{
    const struct choice *o = &c->running.choices[0];
    struct finding f = finding_make(c);
    struct strbuf why = STRBUF_INIT;
    if (reason_name(&f)) {
        strbuf_addf(&why, "; then %s, in ", reason_name(&f));
        place_describe(c, &f, &why);
    }
    log_debug("%s: prompt %u, cached %u, shared %u, replayed %zu%s", c->output.id,
              o->request.n_tokens, o->cached, o->request.prompt_shared,
              c->input.prompts->n_replayed, strbuf_str(&why));
    strbuf_free(&why);
    finding_free(&f);
}
