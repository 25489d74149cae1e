/* `radish serve`: the HTTP server. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/runtime.h"
#include "cli/serve_network.h"
#include "serve/api/loading.h"
#include "serve/http/host_rules.h"
#include "serve/server.h"
#include "serve/stop_signals.h"

static struct server_options server = SERVER_OPTIONS_DEFAULT;

static uint32_t timeout_s, grace_s = 10;
static const char *alias;
static const char *admin_key, *limits, *tool_format;
static int log_format;
static struct string_list allowed_hosts, allowed_origins, api_keys, api_key_files, shared_prompts;
static struct cache_size tenant_cache;

enum { LEVEL_NOT_GIVEN = -1 };
static int log_level = LEVEL_NOT_GIVEN; /* enum log_level */

static const char *const log_level_names[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_formats[] = {"text", "json", NULL};    /* in enum order */
static const char *const fallback_names[] = {"none", "mock", NULL}; /* in enum order */

static const struct option serve_options[] = {
    CHOICE("fallback", &runtime_options.fallback, "ENGINE", fallback_names,
           "if the model fails to load: none (default) exits; mock serves nonsense answers"),
    STRING("alias a", &alias, "NAME",
           "name of the model in the API, or several with commas (default: the file's name)"),
    UINT("max-waiting", &server.max_waiting, "N", 0, 1e6,
         "most requests in the queue; further ones get status 429 (default 256)"),
    UINT("step-budget-ms", &server.step_budget_ms, "MS", 1, 10000,
         "target time for one step, which limits the gap between tokens (default 50)"),
    DURATION(
        "cache-ttl", &server.cache_ttl_ms, "TIME",
        "drop cache entries unused for this long: 90s, 2h or 30 (minutes); 0: never (default 30m)"),
    FLAG("no-prefix-cache", &server.no_prefix_cache,
         "compute every prompt from the start: reuse nothing from earlier requests"),
    FLAG("no-token-replay", &server.no_token_replay,
         "tokenize earlier answers again instead of reusing the tokens they were generated with"),
    UINT("timeout", &timeout_s, "S", 0, 1e6,
         "stop an answer after this many seconds, checked once a second (default 0: never)"),
    UINT("shutdown-grace", &grace_s, "S", 0, 1e6,
         "seconds that running answers have to finish after SIGINT or SIGTERM (default 10)"),
    LIST("allowed-host", &allowed_hosts, "NAME",
         "also accept requests for this host name (*: any); repeatable"),
    LIST("allowed-origin", &allowed_origins, "ORIGIN",
         "also let web pages from here use the server: https://chat.example (*: any); repeatable"),
    LIST("api-key", &api_keys, "[TENANT:]KEY",
         "accept only requests with a key; each tenant has its own cache; repeatable"),
    LIST("api-key-file", &api_key_files, "FILE",
         "file of keys and settings, or sha256:DIGESTs (printf %s KEY | sha256sum); repeatable"),
    STRING("admin-key", &admin_key, "KEY",
           "key of an admin, who may inspect and clear the cache and read /stats; all other "
           "requests then need a key, too"),
    STRING("limits", &limits, "LIMITS",
           "default of each key, or each address if there are no keys: requests-per-minute=60,..."),
    FLAG("share-cache", &server.share_cache,
         "let tenants share one cache; response times then reveal what others have asked"),
    LIST("shared-prompt", &shared_prompts, "FILE",
         "file with a system prompt that is cached once for all tenants; repeatable"),
    SIZE("tenant-cache-size", &tenant_cache, "SIZE",
         "most cache one tenant may use: 256MiB, or 10000t for tokens (default: no limit)"),
    STRING("tool-format", &tool_format, "NAME",
           "tool call format: hermes, qwen-coder, llama3, mistral, ... (default: detected)"),
    FLAG("strict-fields", &server.strict_fields, "reject requests with unknown fields"),
    FLAG("strict-model", &server.strict_model, "reject requests that name another model"),
    CHOICE("log-level", &log_level, "LEVEL", log_level_names,
           "how much to log: error, warn, info (default) or debug"),
    CHOICE("log-format", &log_format, "FORMAT", log_formats,
           "how to log: text (default), or json, an object per line"),
    {0},
};

/* Splits "NAME, NAME, ..." into the first name, which the API shows, and the others. */
static int alias_parse(struct error *err)
{
    static char names[1024]; /* "first\0second,third" */
    char *end = names, *others = NULL;
    if (!alias)
        return 0;
    if (strlen(alias) >= sizeof names)
        return error_set(err, ERROR_INPUT, "--alias has more than %zu bytes", sizeof names - 1);
    for (const char *rest = alias;; rest++) {
        rest += strspn(rest, " ");
        const size_t width = strcspn(rest, ",");
        size_t len = width;
        while (len && rest[len - 1] == ' ')
            len--;
        if (len == 0)
            return error_set(err, ERROR_INPUT, "--alias '%s' has an empty name", alias);
        if (end > names)
            *end++ = others ? ',' : '\0';
        if (end > names && !others)
            others = end;
        memcpy(end, rest, len);
        end += len;
        rest += width;
        if (!*rest)
            break;
    }
    *end = '\0';
    server.other_names = others;
    alias = names;
    return 0;
}

static int keys_read(struct error *err)
{
    static struct api_keys keys;
    keys.sources = (struct key_sources){.lines = api_keys.items,
                                        .n_lines = api_keys.n,
                                        .files = api_key_files.items,
                                        .n_files = api_key_files.n,
                                        .admin_key = admin_key};
    server.keys = &keys;
    return api_keys_read(&keys, err);
}

/* For keys without limits of their own or, without keys, for each address. */
static int limits_parse(struct error *err)
{
    struct error cause;
    return limits && limits_read(&server.limits, limits, &cause)
               ? error_set(err, cause.code, "--limits: %s", cause.message)
               : 0;
}

static int origins_check(struct error *err)
{
    for (size_t i = 0; i < allowed_origins.n; i++)
        if (!origin_is_valid(allowed_origins.items[i]))
            return error_set(err, ERROR_INPUT,
                             "--allowed-origin '%s' is not an origin: write SCHEME://HOST or "
                             "SCHEME://HOST:PORT, such as https://chat.example, or *",
                             allowed_origins.items[i]);
    return 0;
}

static int tool_format_check(struct error *err)
{
    enum tool_format format;
    struct strbuf names = STRBUF_INIT;
    if (!tool_format || tool_format_find(tool_format, &format))
        return 0;
    for (int i = 0; i < TOOL_FORMATS; i++)
        strbuf_addf(&names, "%s%s", i ? ", " : "", tool_format_name((enum tool_format)i));
    error_set(err, ERROR_INPUT, "--tool-format '%s' is not one of %s", tool_format,
              strbuf_str(&names));
    strbuf_free(&names);
    return -1;
}

/* Options that need tenants but have none probably mean that --api-key was forgotten. */
static int tenants_read(struct error *err)
{
    bool caps = tenant_cache.bytes || tenant_cache.tokens || tenant_cache.is_max;
    const char *lonely = server.share_cache ? "share-cache"
                         : shared_prompts.n ? "shared-prompt"
                         : caps             ? "tenant-cache-size"
                                            : NULL;
    if (lonely && server.keys->n_keys == 0)
        return error_set(err, ERROR_INPUT,
                         "--%s needs tenants: give each one a key with --api-key TENANT:KEY",
                         lonely);
    if (server.share_cache && (shared_prompts.n || caps))
        return error_set(err, ERROR_INPUT,
                         "--%s has no effect with --share-cache: give only one of them",
                         shared_prompts.n ? "shared-prompt" : "tenant-cache-size");
    if (tenant_cache.is_max)
        return error_set(err, ERROR_INPUT,
                         "--tenant-cache-size needs a number, such as 256MiB or 10000t");
    for (size_t i = 0; i < shared_prompts.n; i++) /* fail before the model is loaded */
        if (access(shared_prompts.items[i], R_OK) != 0)
            return error_set(err, ERROR_IO, "--shared-prompt %s: %s", shared_prompts.items[i],
                             strerror(errno));
    server.shared_prompts = shared_prompts.items;
    server.n_shared_prompts = shared_prompts.n;
    return 0;
}

/* Converts the cap to pages, which needs a loaded model. */
static int tenant_pages_count(const struct runtime *r, struct error *err)
{
    uint32_t most = r->engine->limits.n_pages[0];
    if (!tenant_cache.bytes && !tenant_cache.tokens)
        return 0;
    /* A page counts in all groups and includes its table entries, as in the cache's budget. */
    struct kv_tables tables = runtime_tables(r->engine->info.n_groups);
    uint64_t table_bytes = kv_table_bytes(&tables, r->engine->limits.n_pages);
    uint32_t page_bytes = (uint32_t)((r->engine->info.kv_bytes + table_bytes) / most);
    uint64_t n = tenant_cache.tokens ? tenant_cache.tokens : tenant_cache.bytes / page_bytes;
    if (n < 2)
        return error_set(
            err, ERROR_INPUT,
            "--tenant-cache-size is too small: it must hold at least 2 tokens, and one "
            "takes %u bytes",
            page_bytes);
    server.tenant_pages = n < most ? (uint32_t)n : most;
    return 0;
}

static int options_finish(struct error *err)
{
    if (log_level != LEVEL_NOT_GIVEN)
        log_set_level((enum log_level)log_level);
    log_set_format((enum log_format)log_format);
    server.request_timeout_ms = timeout_s * 1000;
    server.shutdown_grace_ms = grace_s * 1000;
    server.allowed_hosts = allowed_hosts.items;
    server.n_allowed_hosts = allowed_hosts.n;
    server.allowed_origins = allowed_origins.items;
    server.n_allowed_origins = allowed_origins.n;
    return serve_network_finish(&server, err) || alias_parse(err) || tool_format_check(err) ||
                   keys_read(err) || tenants_read(err) || limits_parse(err) || origins_check(err)
               ? -1
               : 0;
}

/* Sampling for requests that set none. */
static void sampling_choose(const struct prompt_maker *prompt)
{
    const struct sampling_defaults options = generate_options_sampling();
    struct strbuf text = STRBUF_INIT;
    server.sampling = generate_sampling(prompt);
    server.is_seeded = generate_is_seeded();
    server.default_max_tokens = generate_max_tokens;
    sampling_write(&text, &server.sampling, &prompt->chat.sampling, &options);
    log_info("sampling defaults: %s", strbuf_str(&text));
    strbuf_free(&text);
}

/* Answers clients from now on, while the model is loaded. */
static int network_begin(struct loading **loading, struct error *err)
{
    struct strbuf urls = STRBUF_INIT;
    if (serve_network_open(&server, err) ||
        loading_begin(loading, server.listeners, server.tls, err))
        return -1;
    http_listeners_write(server.listeners, server.tls != NULL, &urls);
    if (runtime_options.engine != ENGINE_MOCK)
        log_info("loading %s; %s answers 503 until it is ready", runtime_options.model_path,
                 strbuf_str(&urls));
    strbuf_free(&urls);
    return 0;
}

/* What clients can see about the model. The mock engine has none. */
static struct model_facts facts_of(const struct model *m)
{
    const struct hparams *h = &m->hparams;
    struct stat file;
    if (!m->checkpoint)
        return (struct model_facts){.modified_unix = clock_unix_seconds()};
    return (struct model_facts){
        .architecture = h->arch,
        .format = m->checkpoint->kind == CHECKPOINT_GGUF ? "gguf" : "safetensors",
        .n_params = m->n_params,
        .file_bytes = m->checkpoint->file_bytes,
        .modified_unix = stat(m->checkpoint->path, &file) ? 0 : file.st_mtime,
        .n_layers = h->n_layers,
        .n_embd = h->n_embd,
        .n_heads = h->layers[0].n_heads,
        .n_kv_heads = h->layers[0].n_kv_heads};
}

/* Clients see the model's file name, not its path. */
static const char *basename_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static int serve_model(struct runtime *r, struct error *err)
{
    log_info("%s on %s", r->model_name, r->engine->info.name);
    if (!r->prompt.chat_template)
        log_warn("%s, so chat requests are rejected: give one with --chat-template-file FILE",
                 r->prompt.template_problem);
    if (tool_format) { /* validated with the options */
        tool_format_find(tool_format, &r->prompt.style.tools);
        if (r->prompt.with_tools)
            r->prompt.with_tools->style.tools = r->prompt.style.tools;
    }
    sampling_choose(&r->prompt);
    server.engine = r->engine;
    server.prompt = &r->prompt;
    server.model_name = alias && !r->is_fallback ? alias : r->model_name;
    server.is_fallback = r->is_fallback;
    if (r->is_fallback)
        server.other_names = NULL;
    server.model_context = r->model_context;
    server.quantisation = r->quantisation;
    server.quantize = r->is_fallback ? NULL : runtime_options.quantize;
    server.model = facts_of(&r->model);
    if (runtime_options.model_path)
        server.model_file = basename_of(runtime_options.model_path);
    server.context = r->context;
    server.max_seqs = runtime_options.max_seqs;
    return tenant_pages_count(r, err) || server_run(&server, err) ? -1 : 0;
}

/* A service may be told to reload before it has loaded: the server does so when it runs. In a
 * terminal, SIGHUP still ends the command. */
static void hangup_hold(void)
{
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    if (!machine_has_terminal())
        pthread_sigmask(SIG_BLOCK, &hangup, NULL);
}

static int serve_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct runtime runtime;
    struct loading *loading = NULL;
    struct error err;
    int status;
    log_set_default(LOG_INFO);
    hangup_hold();
    server.start_ns = clock_now_ns();
    server.start_bytes = machine_resident_bytes();
    machine_heap_is_lean();
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    int failed = options_finish(&err) || stop_signals_catch(&err) || runtime_check_paths(&err) ||
                 network_begin(&loading, &err) || runtime_open(&runtime, RUNTIME_ANSWERS, &err);
    loading_end(loading);
    if (!failed) {
        failed = serve_model(&runtime, &err);
        runtime_close(&runtime);
    }
    serve_network_close(&server);
    if (server.keys)
        api_keys_free(server.keys);
    stop_signals_end();
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "serve a model over the APIs of OpenAI, llama-server and Ollama",
    .usage = "[-m PATH] [OPTIONS]",
    .example = "radish serve -m model.gguf --port 8080 --cache-size 2GiB",
    .operand_hint = "the model is given with -m PATH",
    .tables = {runtime_default_model_options, command_config_options, serve_network_options,
               serve_options, generate_options, runtime_template_options, runtime_batch_options,
               runtime_engine_options, runtime_mock_options},
    .run = serve_run,
    .has_default_model = true,
};
