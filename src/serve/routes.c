/* The router: checks who sends a request, and finds the function that answers it. Runs on the
 * event loop's thread, so nothing here may be slow. Route and requester are determined once, from
 * the header, and kept with the exchange until the body has arrived. Check Host and Origin before
 * anything else: any web page can make a browser send these requests. */
#include "serve/routes.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/json.h"
#include "serve/api_cache.h"
#include "serve/api_llama.h"
#include "serve/api_ollama.h"
#include "serve/completion/completion.h"

#define MODELS_PREFIX "/models/"

enum { MAX_ALLOW = 64 };

/* A path may be given without it. */
static const char v1[] = "/v1";

/* ---- the routes --------------------------------------------------------------------------- */

/* Ollama's clients look here first. */
static void get_root(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)api, (void)who;
    static const char text[] = "radish is running\n";
    http_reply(x, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
}

static void get_health(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    json_object_begin(&w, NULL);
    json_add_string(&w, "status", api->stopping ? "stopping" : "ok");
    if (api->options->is_fallback)
        json_add_string(&w, "fallback", "mock");
    json_object_end(&w);
    api_reply_json(x, api->stopping ? 503 : 200, &json);
    strbuf_free(&json);
}

/* With several names, all of them. */
static void aliases_add(struct json_writer *w, const struct server_options *o)
{
    const char *other = o->other_names;
    if (!other)
        return;
    json_array_begin(w, "aliases");
    json_add_string(w, NULL, o->model_name);
    while (*other) {
        const size_t len = strcspn(other, ",");
        json_add_bytes(w, NULL, other, len);
        other += len + (other[len] == ',');
    }
    json_array_end(w);
}

static void model_write(struct json_writer *w, const struct api *api)
{
    json_object_begin(w, NULL);
    json_add_string(w, "id", api->options->model_name);
    aliases_add(w, api->options);
    json_add_string(w, "object", "model");
    json_add_int(w, "created", api->started_unix);
    json_add_string(w, "owned_by", "radish");
    json_add_int(w, "context_window", api->options->context);
    json_add_int(w, "max_model_len", api->options->context);
    sampling_write_json(w, "default_sampling", &api->options->sampling);
    json_object_end(w);
}

static void get_models(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    json_object_begin(&w, NULL);
    json_add_string(&w, "object", "list");
    json_array_begin(&w, "data");
    model_write(&w, api);
    json_array_end(&w);
    json_object_end(&w);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

/* The path of a request. A slash at its end is ignored. */
static void request_path(const struct http_parser *p, struct strbuf *path)
{
    http_parser_path(p, path);
    if (path->len > 1 && path->data[path->len - 1] == '/')
        path->data[--path->len] = '\0';
}

static void get_model(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf path = STRBUF_INIT, json = STRBUF_INIT;
    request_path(http_request(x), &path);
    const char *model = api->options->model_name;
    const char *name = path.failed ? model
                                   : strstr(path.data, MODELS_PREFIX) + strlen(MODELS_PREFIX);
    if (!api_has_model(api, name)) {
        struct api_error e;
        api_model_not_found(api, name, &e);
        api_reply_error(x, &e);
    } else {
        model_write(&(struct json_writer){.out = &json}, api);
        json.failed |= path.failed;
        api_reply_json(x, 200, &json);
    }
    strbuf_free(&path);
    strbuf_free(&json);
}

static void get_stats(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct scheduler_stats s;
    scheduler_read_stats(api->scheduler, &s);
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"connections", http_server_connections(api->http)},
        {"completions", api->n_completions},
        {"running", s.n_running},
        {"waiting", s.n_waiting},
        {"pages", s.n_pages},
        {"pages_free", s.n_free},
        {"pages_cached", s.n_owned},
        {"pages_private", s.n_private},
        {"window_pages", s.sides[0].n_pages},
        {"window_pages_free", s.sides[0].n_free},
        {"window_pages_cached", s.sides[0].n_owned},
        {"window_pages_private", s.sides[0].n_private},
        {"steps", s.steps},
        {"rows", s.rows},
        {"prompt_tokens", s.prompt_tokens},
        {"cached_tokens", s.cached_tokens},
        {"generated_tokens", s.generated_tokens},
        {"finished", s.stopped + s.ran_out},
        {"canceled", s.canceled},
        {"failed", s.failed},
        {"preempted", s.preempted},
        {"cache_nodes", s.tree.n_nodes},
        {"cache_evictable", s.tree.n_evictable},
        {"cache_evicted", s.tree.evicted_pages},
        {"cache_expired", s.tree.expired_pages},
        {"window_evicted_interior", s.tree.sides[0].evicted_interior},
        {"window_evicted_tails", s.tree.sides[0].evicted_tails},
        {"lookups_missed", s.lookups[MATCH_MISS]},
        {"lookups_common", s.lookups[MATCH_COMMON]},
        {"lookups_supersequence", s.lookups[MATCH_SUPERSEQUENCE]},
        {"lookups_prefix", s.lookups[MATCH_PREFIX]},
        {"keys_compared", api->options->keys->n_compared},
    };
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    json_object_begin(&w, NULL);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        json_add_int(&w, members[i].name, (int64_t)members[i].value);
    json_object_end(&w);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

static void post_chat(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_CHAT);
}

static void post_text(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_TEXT);
}

static void post_llama(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_LLAMA);
}

static void post_infill(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_INFILL);
}

static void post_tokenize(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_TOKENIZE);
}

static void post_detokenize(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_DETOKENIZE);
}

static void post_render(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_RENDER);
}

static void post_count(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_COUNT);
}

static void post_warm(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_WARM);
}

const struct route api_routes[] = {
    {"/v1/chat/completions", HTTP_POST, ROUTE_METERED, post_chat,
     "a chat completion, whole or streamed (OpenAI)", NULL},
    {"/v1/completions", HTTP_POST, ROUTE_METERED, post_text,
     "a text completion, whole or streamed (OpenAI)", NULL},
    {"/completion", HTTP_POST, ROUTE_METERED, post_llama,
     "a text completion, whole or streamed (llama-server)", NULL},
    {"/infill", HTTP_POST, ROUTE_METERED, post_infill,
     "the text at an editor's cursor (llama-server)", NULL},
    {"/props", HTTP_GET, 0, llama_props,
     "the model and the default request settings (llama-server)", NULL},
    {"/slots", HTTP_GET, ROUTE_ADMIN | ROUTE_QUIET, llama_slots,
     "what is running now, without any text (llama-server)", NULL},
    {"/tokenize", HTTP_POST, ROUTE_METERED | ROUTE_TEXT, post_tokenize, "the tokens of a text",
     NULL},
    {"/detokenize", HTTP_POST, ROUTE_METERED, post_detokenize, "the text of a list of tokens",
     NULL},
    {"/apply-template", HTTP_POST, ROUTE_METERED, post_render,
     "a conversation as the model's chat template renders it", NULL},
    {"/v1/chat/completions/input_tokens", HTTP_POST, ROUTE_METERED, post_count,
     "the number of tokens in a conversation's prompt (llama-server)", NULL},
    {"/v1/cache/warm", HTTP_POST, ROUTE_METERED, post_warm,
     "computes a prompt and caches it for later", NULL},
    {"/v1/models", HTTP_GET, 0, get_models, "the loaded model, as a list", NULL},
    {"/v1" MODELS_PREFIX, HTTP_GET, 0, get_model, "the model and its context window", NULL},
    {"/v1/cache", HTTP_GET, ROUTE_OWN, cache_list_begin,
     "cache statistics, and the cache's entries, one page at a time; a tenant gets only its "
     "entries",
     cache_list_params},
    {"/v1/cache", HTTP_DELETE, ROUTE_ADMIN, cache_clear_begin,
     "clears everything that is not in use, and says how much that was", cache_clear_params},
    {"/v1/cache/tree", HTTP_GET, ROUTE_ADMIN, cache_tree_begin,
     "the cache as nested nodes, most recently used first", cache_tree_params},
    {"/v1/health", HTTP_GET, ROUTE_OPEN | ROUTE_QUIET, get_health,
     "`{\"status\":\"ok\"}`; 503 and `stopping` while the server shuts down, 503 and an error "
     "while "
     "the model loads; has `\"fallback\":\"mock\"` if the model failed to load (`--fallback mock`)",
     NULL},
    {"/stats", HTTP_GET, ROUTE_ADMIN | ROUTE_QUIET, get_stats, "scheduler and cache counters",
     NULL},
    {"/", HTTP_GET, ROUTE_OPEN | ROUTE_QUIET, get_root, "`radish is running`", NULL},
    {"/api/chat", HTTP_POST, ROUTE_ANY_TYPE | ROUTE_METERED, ollama_chat_begin,
     "a chat completion, streamed unless `stream` is false (Ollama)", NULL},
    {"/api/generate", HTTP_POST, ROUTE_ANY_TYPE | ROUTE_METERED, ollama_generate_begin,
     "an answer to a prompt, or the continuation of a raw prompt (Ollama)", NULL},
    {"/api/show", HTTP_POST, ROUTE_ANY_TYPE | ROUTE_METERED, ollama_show_begin,
     "the model's template, parameters and capabilities (Ollama)", NULL},
    {"/api/tags", HTTP_GET, 0, ollama_get_tags, "the loaded model, as a list (Ollama)", NULL},
    {"/api/ps", HTTP_GET, 0, ollama_get_ps,
     "the loaded model, as a list of running models (Ollama)", NULL},
    {"/api/version", HTTP_GET, ROUTE_OPEN, ollama_get_version,
     "the version of Ollama whose API this is, and radish's own", NULL},
    {"/api/embed", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "501: radish has no embeddings", NULL},
    {"/api/embeddings", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "the same as `/api/embed`", NULL},
    {"/api/pull", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "501: the model is set with `-m`",
     NULL},
    {"/api/push", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "the same as `/api/pull`", NULL},
    {"/api/create", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "the same as `/api/pull`", NULL},
    {"/api/copy", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "the same as `/api/pull`", NULL},
    {"/api/delete", HTTP_DELETE, 0, ollama_refuse, "the same as `/api/pull`", NULL},
    {"/api/blobs/", HTTP_GET, 0, ollama_refuse, "the same as `/api/pull`, but 404", NULL},
    {"/api/blobs/", HTTP_POST, ROUTE_ANY_TYPE, ollama_refuse, "the same as `/api/pull`, but 404",
     NULL},
};
const size_t n_api_routes = sizeof api_routes / sizeof *api_routes;

/* True if `path` is that one; a '/' at the end of `pattern` matches anything after it. */
static bool path_matches(const char *pattern, const char *path)
{
    size_t len = strlen(pattern);
    bool open = len > 1 && pattern[len - 1] == '/';
    return open ? strncmp(path, pattern, len) == 0 && path[len] : strcmp(path, pattern) == 0;
}

static bool route_has_path(const struct route *route, const char *path)
{
    static const size_t n = sizeof v1 - 1;
    bool may_lack_v1 = strncmp(route->path, v1, n) == 0 && route->path[n] == '/';
    return path_matches(route->path, path) || (may_lack_v1 && path_matches(route->path + n, path));
}

static bool route_has_method(const struct route *route, enum http_method method)
{
    return method == route->method || (method == HTTP_HEAD && route->method == HTTP_GET);
}

/* Writes the Allow header of a path: "GET, HEAD, DELETE, OPTIONS", or "" if there is no such path.
 * NULL stands for all paths. */
static void allow_write(const char *path, char *out, size_t size)
{
    static const struct {
        enum http_method method;
        const char *name;
    } methods[] = {{HTTP_GET, "GET, HEAD, "}, {HTTP_POST, "POST, "}, {HTTP_DELETE, "DELETE, "}};
    size_t len = 0;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        bool has = false;
        for (size_t i = 0; i < n_api_routes; i++)
            has |= api_routes[i].method == methods[m].method &&
                   (!path || route_has_path(&api_routes[i], path));
        if (has)
            len += (size_t)snprintf(out + len, size - len, "%s", methods[m].name);
    }
    snprintf(out + len, size - len, "%s", len ? "OPTIONS" : "");
}

static const struct route *route_find(const char *path, enum http_method method)
{
    for (size_t i = 0; i < n_api_routes; i++)
        if (route_has_path(&api_routes[i], path) && route_has_method(&api_routes[i], method))
            return &api_routes[i];
    return NULL;
}

/* ---- checks before the body --------------------------------------------------------------- */

static int check_host(const struct api *api, const struct http_exchange *x, struct api_error *e)
{
    const char *host = http_parser_host(http_request(x));
    if (!host || host_is_allowed(&api->rules, host, http_local_address(x)))
        return 0;
    return api_error_set(e, 403, NULL,
                         "the host '%.100s' is not a name of this machine. If you trust it, start "
                         "the server with --allowed-host %.100s, or require keys with --api-key",
                         host, host);
}

/* Browsers say which page sends a request. An allowed page is told that it may read the answer. */
static int check_origin(const struct api *api, struct http_exchange *x, struct api_error *e)
{
    const char *origin = http_parser_field(http_request(x), "origin");
    if (!origin)
        return 0;
    const char *host = http_parser_host(http_request(x));
    if (!origin_is_allowed(&api->rules, origin, host))
        return api_error_set(e, 403, NULL,
                             "pages from the origin '%.100s' may not use this server. If you trust "
                             "them, start the server with --allowed-origin %.100s",
                             origin, origin);
    http_add_field(x, "Access-Control-Allow-Origin", origin);
    http_add_field(x, "Access-Control-Expose-Headers",
                   "x-request-id, x-radish-ignored, x-radish-replayed-tokens, retry-after, "
                   "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
                   "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                   "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
    http_add_field(x, "Vary", "Origin");
    return 0;
}

/* Browsers add Origin to every POST to another origin, and Sec-Fetch-* to requests to loopback; a
 * page cannot remove them. Referer is for older browsers. */
static bool may_be_from_page(const struct http_parser *p)
{
    return http_parser_field(p, "origin") || http_parser_field(p, "sec-fetch-site") ||
           http_parser_field(p, "sec-fetch-mode") || http_parser_field(p, "referer");
}

/* A page can send some other types without a preflight, as forms do, but not JSON. So JSON is
 * required if the request may come from a page. */
static int check_content_type(const struct http_exchange *x, const struct route *route,
                              struct api_error *e)
{
    static const char json[] = "application/json";
    const char *type = http_parser_field(http_request(x), "content-type");
    size_t len = type ? strcspn(type, "; \t") : 0;
    if (len == sizeof json - 1 && strncasecmp(type, json, len) == 0)
        return 0;
    if ((route->flags & ROUTE_ANY_TYPE) && !may_be_from_page(http_request(x)))
        return 0;
    return api_error_set(e, 415, NULL,
                         "the Content-Type must be application/json, not '%.100s'; with curl, add "
                         "-H 'Content-Type: application/json'",
                         type ? type : "");
}

static int check_content_encoding(struct http_exchange *x, struct api_error *e)
{
    const char *encoding = http_parser_field(http_request(x), "content-encoding");
    if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0)
        return 0;
    http_add_field(x, "Accept-Encoding", "identity");
    return api_error_set(
        e, 415, NULL, "the Content-Encoding '%.100s' is not supported: send the body uncompressed",
        encoding);
}

/* While the server is stopping, it starts nothing new. */
static int check_stopping(const struct api *api, struct http_exchange *x, struct api_error *e)
{
    if (!api->stopping)
        return 0;
    http_add_field(x, "Retry-After", "5");
    api_error_set(e, 503, NULL, "the server is stopping");
    e->code = "server_stopping";
    return -1;
}

static int check_admin(const struct api *api, const struct requester *who, struct api_error *e)
{
    if (who->is_admin)
        return 0;
    return api_error_set(
        e, 403, NULL,
        api->options->keys->n_keys
            ? "this request needs an admin's key (--admin-key, or role=admin in a key file)"
            : "only an admin may do this. Without keys, that is who asks from the server's own "
              "machine, not through a proxy, while the server listens only there; else start the "
              "server with --admin-key, and give its clients keys, too");
}

/* Finds out who sends the request, and whether they may use the route. If the path does not exist
 * (`route` is NULL), only those who have a key are told so. */
static int check_requester(struct api *api, struct http_exchange *x, const struct route *route,
                           struct api_error *e)
{
    const struct requester *who = &access_of(x)->who;
    const unsigned flags = route ? route->flags : 0;
    if (flags & ROUTE_OPEN)
        return 0;
    if (api_identify(api, x, e))
        return -1;
    http_set_client(x, hash_pair(who->tenant, who->client));
    if ((flags & ROUTE_ADMIN) || ((flags & ROUTE_OWN) && !who->tenant))
        return check_admin(api, who, e);
    return 0;
}

/* Sets the error for a path that does not exist, and returns -1. Paths below a listed one get the
 * same message. */
static int refuse_path(const struct http_parser *p, const char *path, struct api_error *e)
{
    static const char embeddings[] = "radish does not support embeddings";
    static const char reranking[] = "radish does not support reranking";
    static const struct {
        const char *path;
        int status;
        const char *message;
    } known[] = {
        {"/embeddings", 501, embeddings},
        {"/embedding", 501, embeddings},
        {"/rerank", 501, reranking},
        {"/reranking", 501, reranking},
        {"/responses", 501,
         "radish does not have OpenAI's Responses API yet; use /v1/chat/completions"},
        {"/messages", 501,
         "radish does not have Anthropic's Messages API yet; use /v1/chat/completions"},
        {"/audio", 501, "radish does not support audio"},
        {"/images", 501, "radish does not generate images"},
        {"/lora-adapters", 501, "radish does not support LoRA adapters"},
        {"/metrics", 404, "no such route; counters are at /stats"},
        {"/stats", 404, "no such route; counters are at /stats"},
    };
    const char *bare = path + (strncmp(path, "/v1/", 4) == 0 ? sizeof v1 - 1 : 0);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t len = strlen(known[i].path);
        if (strncmp(bare, known[i].path, len) == 0 && (!bare[len] || bare[len] == '/'))
            return api_error_set(e, known[i].status, NULL, "%s", known[i].message);
    }
    return api_error_set(e, 404, NULL, "no route %.200s; chat is at %s", http_parser_target(p),
                         error_form_of(path) == ERRORS_OLLAMA ? "/api/chat"
                                                              : "/v1/chat/completions");
}

/* Sets the error for a request that has no route, and returns -1. */
static int refuse_route(struct http_exchange *x, const struct strbuf *path, struct api_error *e)
{
    const struct http_parser *p = http_request(x);
    char allow[MAX_ALLOW];
    if (path->failed)
        return api_error_set(e, 503, NULL, "not enough memory for this request; try again soon");
    if (p->method == HTTP_OTHER || p->method == HTTP_CONNECT || p->method == HTTP_TRACE)
        return api_error_set(e, 501, NULL, "unknown method %.40s", http_parser_method(p));
    allow_write(strbuf_str(path), allow, sizeof allow);
    if (!*allow)
        return refuse_path(p, strbuf_str(path), e);
    http_add_field(x, "Allow", allow);
    return api_error_set(e, 405, NULL, "%.200s accepts %s, not %s", strbuf_str(path), allow,
                         http_parser_method(p));
}

/* Answers OPTIONS, which browsers send before a request. It needs no key. */
static void reply_options(struct http_exchange *x, const char *path)
{
    const struct http_parser *p = http_request(x);
    char allow[MAX_ALLOW];
    allow_write(path, allow, sizeof allow);
    if (!*allow) {
        struct api_error e;
        api_error_set(&e, 404, NULL, "no route %.200s", http_parser_target(p));
        api_reply_error(x, &e);
        return;
    }
    http_add_field(x, "Allow", allow);
    if (http_parser_field(p, "access-control-request-method")) {
        const char *fields = http_parser_field(p, "access-control-request-headers");
        http_add_field(x, "Access-Control-Allow-Methods", allow);
        if (fields)
            http_add_field(x, "Access-Control-Allow-Headers", fields);
        http_add_field(x, "Access-Control-Max-Age", "600");
    }
    http_reply(x, 200, "text/plain", "", 0);
}

/* A text that is too long is not even received. In JSON, a byte takes six at most. */
static int check_length(const struct api *api, struct http_exchange *x, const struct route *route,
                        struct api_error *e)
{
    enum { ESCAPED_BYTES = 6, OTHER_BYTES = 64 << 10 };
    const size_t most = completion_text_limit(api) * ESCAPED_BYTES + OTHER_BYTES;
    if (!(route->flags & ROUTE_TEXT))
        return 0;
    http_limit_body(x, most);
    if (http_request(x)->content_length <= most)
        return 0;
    return api_error_set(e, 413, "content",
                         "the request has %" PRIu64 " bytes, but at most %zu bytes of text are "
                         "tokenized at once: send it in parts",
                         http_request(x)->content_length, completion_text_limit(api));
}

/* Checks the header of a request that is not OPTIONS. */
static void route_head(struct api *api, struct http_exchange *x)
{
    const struct http_parser *p = http_request(x);
    struct strbuf path = STRBUF_INIT;
    struct api_error e;
    request_path(p, &path);
    const struct route *route = route_find(strbuf_str(&path), p->method);
    access_of(x)->route = route;
    bool posts = route && route->method == HTTP_POST;
    if (check_requester(api, x, route, &e) || (!route && refuse_route(x, &path, &e)) ||
        (posts && (check_content_type(x, route, &e) || check_content_encoding(x, &e) ||
                   check_stopping(api, x, &e) || check_length(api, x, route, &e))) ||
        ((route->flags & ROUTE_METERED) && access_admit(&api->limiter, x, &e)))
        api_reply_error(x, &e);
    else if (route->flags & ROUTE_QUIET)
        http_log_quietly(x);
    strbuf_free(&path);
}

/* Called when the header is complete; on_request follows when the body is. */
static void on_head(void *context, struct http_exchange *x)
{
    struct api *api = context;
    const struct http_parser *p = http_request(x);
    struct api_error e;
    access_identify(x);
    if (check_host(api, x, &e) || check_origin(api, x, &e)) {
        api_reply_error(x, &e);
    } else if (p->method != HTTP_OPTIONS) {
        route_head(api, x);
    } else if (strcmp(http_parser_target(p), "*") == 0) {
        reply_options(x, NULL);
    } else {
        struct strbuf path = STRBUF_INIT;
        request_path(p, &path);
        reply_options(x, strbuf_str(&path));
        strbuf_free(&path);
    }
}

/* Called with a complete request whose header was accepted. */
static void on_request(void *context, struct http_exchange *x)
{
    struct api *api = context;
    const struct access *a = access_of(x);
    const struct requester who = a->who; /* a copy: answering clears it */
    struct api_error e;
    /* The server may have started to stop while the body arrived. */
    if (a->route->method == HTTP_POST && check_stopping(api, x, &e))
        api_reply_error(x, &e);
    else
        a->route->run(api, x, &who);
}

static void on_refused(void *context, struct http_exchange *x, int status, const char *message)
{
    const struct api *api = context;
    struct api_error e;
    const size_t most = http_request(x)->max_body_bytes;
    if (status == 413 && most < api->options->max_body_bytes)
        api_error_set(&e, status, NULL, "%s here: %zu bytes", message, most);
    else if (status == 413)
        api_error_set(&e, status, NULL, "%s: %zu MiB (--max-body-mib)", message, most >> 20);
    else
        api_error_set(&e, status, NULL, "%s", message);
    if (status == 503)
        http_add_field(x, "Retry-After", "2");
    api_reply_error(x, &e);
}

static void on_room(void *context, struct http_exchange *x)
{
    (void)context;
    completion_room(x);
}

static void on_hangup(void *context, struct http_exchange *x)
{
    completion_hangup(context, x);
    cache_answer_hangup(context, x);
}

static bool on_withdraw(void *context, struct http_exchange *x)
{
    return completion_withdraw(context, x);
}

static void on_over(void *context, struct http_exchange *x, const struct http_outcome *outcome)
{
    struct api *api = context;
    const struct access *a = access_of(x);
    if (a->is_admitted)
        limiter_end(&api->limiter, a->who.meter);
    access_log(api->options->keys, x, outcome);
}

struct http_handler api_handler(struct api *api, void (*drained)(void *context))
{
    return (struct http_handler){.context = api,
                                 .head = on_head,
                                 .request = on_request,
                                 .refused = on_refused,
                                 .room = on_room,
                                 .hangup = on_hangup,
                                 .withdraw = on_withdraw,
                                 .drained = drained,
                                 .over = on_over};
}
