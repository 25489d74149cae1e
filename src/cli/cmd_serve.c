/* `radish serve`: the HTTP server. */
#include <errno.h>
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
#include "serve/api/loading.h"
#include "serve/http/listener.h"
#include "serve/server.h"
#include "serve/stop_signals.h"

static struct server_options server = SERVER_OPTIONS_DEFAULT;
enum { DEFAULT_PORT = 8080, NO_PORT = 65536 };

static uint32_t port = NO_PORT, timeout_s, grace_s = 10, max_body_mib = 32;
static const char *host, *address, *alias, *log_level_name;
static const char *admin_key, *tool_format;
static struct string_list allowed_hosts, api_keys, api_key_files, shared_prompts;
static struct cache_size tenant_cache;

static const char *const fallback_names[] = {"none", "mock", NULL}; /* in enum order */

static const struct option serve_options[] = {
    STRING("host", &host, "HOST", "address to listen on (default 127.0.0.1)"),
    UINT("port", &port, "PORT", 0, 65535, "port to listen on (default 8080; 0: any free one)"),
    STRING("addr", &address, "HOST:PORT", "host and port in one: :8080 or 0.0.0.0:8080"),
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
    UINT("max-connections", &server.max_connections, "N", 1, 1e5,
         "most open connections; further ones get status 503 (default 1024)"),
    UINT("max-body-mib", &max_body_mib, "N", 1, 1024, "largest request body, in MiB (default 32)"),
    UINT("timeout", &timeout_s, "S", 0, 1e6,
         "stop an answer after this many seconds, checked once a second (default 0: never)"),
    UINT("shutdown-grace", &grace_s, "S", 0, 1e6,
         "seconds that running answers have to finish after SIGINT or SIGTERM (default 10)"),
    LIST("allowed-host", &allowed_hosts, "NAME",
         "also accept requests with this Host or Origin header (*: any); repeatable"),
    LIST("api-key", &api_keys, "[TENANT:]KEY",
         "accept only requests with a key; each tenant has its own cache; repeatable"),
    LIST("api-key-file", &api_key_files, "FILE",
         "file of keys, one [TENANT:]KEY or admin:KEY per line; hides them from `ps`; repeatable"),
    STRING("admin-key", &admin_key, "KEY",
           "key of the operator, who may inspect and clear the cache"),
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
    STRING("log-level", &log_level_name, "LEVEL",
           "how much to log: error, warn, info (default) or debug"),
    {0},
};

/* Splits "host:port", ":port" or "[::1]:port" into the two options. */
static int address_parse(struct error *err)
{
    static char address_host[256];
    char *end;
    const char *colon = strrchr(address, ':');
    long number = colon ? strtol(colon + 1, &end, 10) : -1;
    if (number < 0 || number > 65535 || !colon[1] || *end ||
        (size_t)(colon - address) >= sizeof address_host)
        return error_set(err, ERROR_INPUT, "--addr needs HOST:PORT or :PORT, not '%s'", address);
    if (port != NO_PORT || (host && colon > address))
        return error_set(err, ERROR_INPUT,
                         "--addr %s and --%s set the same thing: give only one of them", address,
                         port != NO_PORT ? "port" : "host");
    port = (uint32_t)number;
    if (colon > address) {
        snprintf(address_host, sizeof address_host, "%.*s", (int)(colon - address), address);
        host = address_host;
    }
    return 0;
}

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

/* Messages about a bad key must not contain the key. */
static int keys_read(struct error *err)
{
    struct error cause;
    for (size_t i = 0; i < api_keys.n; i++)
        if (api_keys_add(&server.keys, api_keys.items[i], &cause))
            return error_set(err, cause.code, "--api-key number %zu: %s", i + 1, cause.message);
    for (size_t i = 0; i < api_key_files.n; i++)
        if (api_keys_add_file(&server.keys, api_key_files.items[i], &cause))
            return error_set(err, cause.code, "--api-key-file %s", cause.message);
    if (admin_key && api_keys_add_admin(&server.keys, admin_key, &cause))
        return error_set(err, cause.code, "--admin-key: %s", cause.message);
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
    if (lonely && server.keys.n_keys == 0)
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
    enum log_level level;
    if (log_level_name) {
        if (!log_parse_level(log_level_name, &level))
            return error_set(err, ERROR_INPUT,
                             "--log-level must be one of error, warn, info, debug, not '%s'",
                             log_level_name);
        log_set_level(level);
    }
    if (address && address_parse(err))
        return -1;
    if (host)
        server.host = host;
    server.port = (uint16_t)(port == NO_PORT ? DEFAULT_PORT : port);
    server.request_timeout_ms = timeout_s * 1000;
    server.shutdown_grace_ms = grace_s * 1000;
    server.max_body_bytes = (size_t)max_body_mib << 20;
    server.allowed_hosts = allowed_hosts.items;
    server.n_allowed_hosts = allowed_hosts.n;
    return alias_parse(err) || tool_format_check(err) || keys_read(err) || tenants_read(err) ? -1
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

/* Binds the port before the model is loaded, so that a busy port fails at once. */
static int port_take(struct loading **loading, struct error *err)
{
    char url[HTTP_URL_SIZE];
    server.listen_fd = http_listen(server.host, server.port, err);
    if (server.listen_fd < 0 || loading_begin(loading, server.listen_fd, err))
        return -1;
    http_listener_url(server.listen_fd, url);
    if (runtime_options.engine != ENGINE_MOCK)
        log_info("loading %s; %s answers 503 until it is ready", runtime_options.model_path, url);
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

static int serve_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_default_model_options, serve_options,
                                        generate_options, runtime_template_options,
                                        runtime_batch_options, runtime_engine_options,
                                        runtime_mock_options}};
    struct runtime runtime;
    struct loading *loading = NULL;
    struct error err;
    int status;
    log_set_default(LOG_INFO);
    server.start_ns = clock_now_ns();
    server.start_bytes = machine_resident_bytes();
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    int failed = options_finish(&err) || stop_signals_catch(&err) || runtime_check_paths(&err) ||
                 port_take(&loading, &err) || runtime_open(&runtime, RUNTIME_ANSWERS, &err);
    loading_end(loading);
    if (failed && server.listen_fd > 0)
        close(server.listen_fd);
    if (!failed) {
        failed = serve_model(&runtime, &err);
        runtime_close(&runtime);
    }
    api_keys_free(&server.keys);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "serve a model over the APIs of OpenAI, llama-server and Ollama",
    .usage = "[-m PATH] [OPTIONS]",
    .example = "radish serve -m model.gguf --port 8080 --cache-size 2GiB",
    .operand_hint = "the model is given with -m PATH",
    .run = serve_run,
    .has_default_model = true,
};
