/* Assembles the server: event loop, scheduler, workers, connections; handles signals and stopping.
 *
 *   signal 1 ─► no new answers ─► all answered ────────────────────────────────────────────► exit
 *                   ├─ shutdown_grace_ms ─► the rest end with an error ─► all sent ──────────┘
 *                   │                                └─ FLUSH_MS ────────────────────────────┤
 *   signal 2 ───────┴─────────────────────► the same, but for HURRY_MS at most ──────────────┘
 *   signal 3 ─► the process dies of it, whatever hangs (stop_signals.h)
 *
 * SIGHUP reloads the keys and the certificate.
 *
 * Connections are accepted until the last answer is sent, so that /health can say `stopping`.
 *
 * The event loop runs on the calling thread. The scheduler and the workers touch only one thing
 * here: the descriptor that wakes the loop. */
#include "serve/server.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/service_manager.h"
#include "prompt/grammar/store.h"
#include "prompt/replay_store.h"
#include "prompt/token_table.h"
#include "serve/api_cache.h"
#include "serve/completion/completion.h"
#include "serve/routes.h"
#include "serve/stop_signals.h"

enum {
    FLUSH_MS = 2000,
    HURRY_MS = 200,
    BODIES = 8,
    REPLAY_BYTES = 16 << 20, /* four million sampled tokens or less */
    GRAMMAR_BYTES = 64 << 20,
};

struct server {
    struct api api;
    struct event_base *base;
    int wake_fd;
    atomic_bool is_woken; /* the loop will run: no need to wake it again */
    struct event *wake, *grace, *stop, *sighup;
    bool had_terminal;
    bool failing; /* the grace period is over, or there was none */
};

/* Called from any thread. */
static void wake_loop(void *context)
{
    struct server *s = context;
    uint64_t one = 1;
    if (atomic_exchange(&s->is_woken, true))
        return;
    if (write(s->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        log_error("cannot wake the event loop: %s", strerror(errno));
}

static void wake_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct server *s = arg;
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("cannot read the wake-up count: %s", strerror(errno));
    atomic_exchange(&s->is_woken, false); /* before looking: later events wake it again */
    completions_pump(&s->api);
    cache_answers_pump(&s->api);
}

static void tick_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct server *s = arg;
    completions_tick(&s->api);
    cache_answers_pump(&s->api);
    if (s->api.completions || s->api.cache_answers)
        api_tick_soon(&s->api);
}

/* ---- stopping ----------------------------------------------------------------------------- */

static void drained(void *context)
{
    struct server *s = context; /* the api is its first member */
    event_base_loopbreak(s->base);
}

/* Fails every incomplete answer with an error; each has `flush_ms` to be sent. */
static void fail_answers(struct server *s, unsigned flush_ms)
{
    struct api_error e;
    struct timeval flush = timeval_from_ms(flush_ms);
    s->failing = true;
    api_error_set(&e, 503, NULL, "the server is stopping; the answer is not complete");
    e.code = "server_stopping";
    evtimer_add(s->grace, &flush);
    completions_fail(&s->api, &e);
}

static void grace_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct server *s = arg;
    if (s->failing) {
        event_base_loopbreak(s->base);
    } else {
        log_info("the grace period is over; answers cut off: %u", s->api.n_completions);
        fail_answers(s, FLUSH_MS);
    }
}

static void stop_begin(struct server *s, const char *signal_name)
{
    const uint32_t n = s->api.n_completions;
    char answers[80] = "";
    if (n)
        snprintf(answers, sizeof answers, "; %u %s %g s to finish", n,
                 n == 1 ? "answer in progress has" : "answers in progress have",
                 s->api.options->shutdown_grace_ms * 1e-3);
    s->api.stopping = true;
    log_info("%s: stopping%s", signal_name, answers);
    struct timeval grace = timeval_from_ms(s->api.options->shutdown_grace_ms);
    evtimer_add(s->grace, &grace);
    service_notify("STOPPING=1");
    http_server_drain(s->api.http);
}

static void signal_cb(evutil_socket_t number, short what, void *arg)
{
    (void)what;
    struct server *s = arg;
    const char *name = strsignal((int)number);
    if (s->failing) {
        event_base_loopbreak(s->base);
    } else if (s->api.stopping) {
        log_info("%s again: stopping at once; answers cut off: %u", name, s->api.n_completions);
        fail_answers(s, HURRY_MS);
    } else {
        stop_begin(s, name);
    }
}

static void stop_cb(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("cannot read the count of signals: %s", strerror(errno));
    for (int number; (number = stop_signals_next());)
        signal_cb(number, what, arg);
}

/* ---- reloading ---------------------------------------------------------------------------- */

/* Reads again what may change while the server runs. Whatever is wrong stays as it was. */
static void reload(struct server *s)
{
    struct error err;
    char text[160];
    struct api_keys *keys = s->api.options->keys;
    service_notify_reloading();
    http_server_reload_tls(s->api.http);
    if (api_keys_read(keys, &err)) {
        log_error("the keys stay as they were: %s", err.message);
    } else {
        api_keys_describe(keys, text, sizeof text);
        log_info("reloaded; %s", text);
    }
    service_notify("READY=1");
}

/* SIGHUP also says that the terminal is gone. Then nobody is left who would stop the server. */
static void hangup_cb(evutil_socket_t number, short what, void *arg)
{
    struct server *s = arg;
    if (s->had_terminal && !machine_has_terminal())
        signal_cb(number, what, arg);
    else
        reload(s);
}

/* ---- open and close ----------------------------------------------------------------------- */

static int loop_open(struct server *s, struct error *err)
{
    sigset_t hangup;
    s->base = event_base_new();
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!s->base || s->wake_fd < 0)
        return error_set(err, ERROR_IO, "cannot create an event loop: %s", strerror(errno));
    s->wake = event_new(s->base, s->wake_fd, EV_READ | EV_PERSIST, wake_cb, s);
    s->api.tick = evtimer_new(s->base, tick_cb, s);
    s->grace = evtimer_new(s->base, grace_cb, s);
    s->stop = event_new(s->base, stop_signals_serve(), EV_READ | EV_PERSIST, stop_cb, s);
    s->sighup = evsignal_new(s->base, SIGHUP, hangup_cb, s);
    if (!s->wake || !s->api.tick || !s->grace || !s->stop || !s->sighup ||
        event_add(s->wake, NULL) || event_add(s->stop, NULL) || event_add(s->sighup, NULL))
        return error_set(err, ERROR_IO, "cannot create the event loop's events");
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    pthread_sigmask(SIG_UNBLOCK, &hangup, NULL); /* it may have been held back until now */
    s->api.base = s->base;
    s->had_terminal = machine_has_terminal();
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static int tenants_begin(struct server *s, struct error *err)
{
    const struct server_options *o = s->api.options;
    struct error cause;
    s->api.tenants.share_cache = o->share_cache;
    for (size_t i = 0; i < o->n_shared_prompts; i++)
        if (tenants_share_prompt(&s->api.tenants, o->prompt, o->shared_prompts[i], &cause))
            return error_set(err, cause.code, "--shared-prompt %s", cause.message);
    return 0;
}

static int scheduler_begin(struct server *s, struct error *err)
{
    const struct server_options *o = s->api.options;
    const struct prompt_maker *tools = o->prompt->with_tools;
    if (token_table_make(&s->api.tokens, o->prompt->tokenizer,
                         tools ? &tools->style : &o->prompt->style, err))
        return -1;
    s->api.longest_token = 1;
    for (uint32_t i = 0; i < s->api.tokens.n_tokens; i++) {
        size_t len; /* includes control tokens, which are text in prompts, not in answers */
        tokenizer_bytes(o->prompt->tokenizer, (int32_t)i, &len);
        if (len > s->api.longest_token)
            s->api.longest_token = (uint32_t)len;
    }
    struct scheduler_options options = {.engine = o->engine,
                                        .tokens = s->api.tokens,
                                        .max_seqs = o->max_seqs,
                                        .max_waiting = o->max_waiting,
                                        .max_length = o->context,
                                        .step_budget_ms = o->step_budget_ms,
                                        .cache_ttl_ns = o->cache_ttl_ms * 1000000u,
                                        .tenant_pages = o->tenant_pages,
                                        .notify = wake_loop,
                                        .notify_context = s};
    struct error cause;
    if (scheduler_open(&s->api.scheduler, &options, &cause) == 0)
        return scheduler_start(s->api.scheduler, err);
    return error_set(err, cause.code, "%s%s", cause.message,
                     cause.code == ERROR_MEMORY ? ": give a smaller --cache-size" : "");
}

static int grammars_begin(struct server *s, struct error *err)
{
    s->api.grammars = grammar_store_open(GRAMMAR_BYTES);
    if (!s->api.grammars)
        return error_set(err, ERROR_MEMORY, "no memory for grammars");
    return token_vocabulary_open(&s->api.vocabulary, s->api.options->prompt->tokenizer, err);
}

static struct http_options http_options_of(const struct server_options *o)
{
    return (struct http_options){.listeners = o->listeners,
                                 .tls = o->tls,
                                 .max_connections = o->max_connections,
                                 .max_connections_per_address = o->max_connections_per_address,
                                 .max_header_bytes = o->max_header_bytes,
                                 .max_body_bytes = o->max_body_bytes,
                                 .max_bodies_bytes = BODIES * o->max_body_bytes,
                                 .max_unsent_bytes = o->max_unsent_bytes,
                                 .header_timeout_ms = o->header_timeout_ms,
                                 .body_timeout_ms = o->body_timeout_ms,
                                 .idle_timeout_ms = o->idle_timeout_ms,
                                 .write_timeout_ms = o->write_timeout_ms};
}

static int http_begin(struct server *s, struct error *err)
{
    struct http_options options = http_options_of(s->api.options);
    struct http_handler handler = api_handler(&s->api, drained);
    return http_server_open(&s->api.http, s->base, &options, &handler, err);
}

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

static void server_close(struct server *s)
{
    workers_close(s->api.workers);
    if (s->api.scheduler)
        scheduler_close(s->api.scheduler);
    completions_free(&s->api);
    cache_answers_free(&s->api);
    replay_store_close(s->api.replay);
    grammar_store_close(s->api.grammars);
    grammar_vocabulary_close(s->api.vocabulary);
    http_server_close(s->api.http);
    token_table_free(&s->api.tokens);
    tenants_free(&s->api.tenants);
    limiter_free(&s->api.limiter);
    event_release(s->wake);
    event_release(s->api.tick);
    event_release(s->grace);
    event_release(s->stop);
    event_release(s->sighup);
    if (s->base)
        event_base_free(s->base);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    free(s);
    libevent_global_shutdown();
}

/* Logs who has access, if that may be unexpected. */
static void keys_log(const struct api *api)
{
    char text[160];
    if (api->options->keys->n_keys) {
        api_keys_describe(api->options->keys, text, sizeof text);
        log_info("%s", text);
    } else if (!api->is_local_only) {
        log_warn("anyone who can reach %s can use this server; require keys with --api-key-file",
                 http_server_url(api->http));
    }
}

static void thinking_log(const struct api *api)
{
    const struct prompt_maker *p = api->options->prompt;
    if (p->thinking == THINKING_ON && p->chat_template && !p->style.think_begin &&
        !p->traits.has_thinking_switch)
        log_warn("--thinking on has no effect: '%s' does not support thinking",
                 api->options->model_name);
}

/* The most that clients can take: their connections, bodies and unsent answers; requests that are
 * being read; answers in progress, and one that is being written; the prompts and grammars of
 * requests that run or wait. For a moment those are twice as many as the queue has room for. */
static uint64_t requests_bound(const struct api *api)
{
    const struct server_options *o = api->options;
    const struct http_options http = http_options_of(o);
    const uint32_t n_requests = 2 * (o->max_seqs + o->max_waiting);
    const uint64_t request_bytes = o->context * (sizeof(int32_t) + sizeof(uint64_t)) +
                                   grammar_matcher_bound(api->vocabulary);
    return http_memory_bound(&http) + (uint64_t)WORKERS(o->n_workers) * REQUEST_ARENA_BYTES +
           2 * (uint64_t)o->max_unsent_bytes + n_requests * request_bytes +
           grammar_store_bound(GRAMMAR_BYTES, n_requests) - GRAMMAR_BYTES;
}

/* Logs the memory in use once the cache is full and every token has been used, and how much more
 * clients can take. */
static void memory_log(const struct api *api)
{
    const struct server_options *o = api->options;
    const struct engine_info *info = &o->engine->info;
    const double mib = 1 << 20;
    size_t grammars = grammar_vocabulary_reserved(api->vocabulary);
    uint64_t other = info->buffer_bytes + machine_heap_bytes() + o->start_bytes - grammars;
    char window[80] = "";
    if (info->n_groups > 1)
        snprintf(window, sizeof window, ", and %u of %u bytes for windows of %u",
                 o->engine->limits.n_pages[1], info->groups[1].page_bytes, info->groups[1].window);
    log_info("memory: packed weights %.1f MiB, embeddings %.1f MiB, cache (KV) up to %.1f MiB (%u "
             "tokens of %u bytes%s), other %.1f MiB, grammars up to %.1f MiB, requests at most "
             "%.1f MiB; context %u",
             (double)info->weight_bytes / mib, (double)info->table_bytes / mib,
             (double)info->kv_bytes / mib, o->engine->limits.n_pages[0], info->groups[0].page_bytes,
             window, (double)other / mib, (double)(grammars + GRAMMAR_BYTES) / mib,
             (double)requests_bound(api) / mib, o->context);
}

int server_run(const struct server_options *options, struct error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, ERROR_MEMORY, "no memory for the server");
    s->wake_fd = -1;
    api_init(&s->api, options);
    /* A connection has one job at a time, and jobs of those that hung up may still be running. */
    if (loop_open(s, err) || tenants_begin(s, err) || grammars_begin(s, err) ||
        scheduler_begin(s, err) ||
        (!options->no_token_replay && replay_store_open(&s->api.replay, REPLAY_BYTES, err)) ||
        workers_open(&s->api.workers, options->n_workers, 2 * options->max_connections, wake_loop,
                     s, err) ||
        http_begin(s, err)) {
        server_close(s);
        return -1;
    }
    keys_log(&s->api);
    thinking_log(&s->api);
    memory_log(&s->api);
    service_notify("READY=1");
    log_info("listening on %s (ready in %.2f s)", http_server_url(s->api.http),
             (double)(clock_now_ns() - options->start_ns) * 1e-9);
    event_base_dispatch(s->base);
    log_repeats();
    log_info("stopped");
    server_close(s);
    return 0;
}
