/* `radish replay`: measures the cache's hit rate on recorded requests and the time of its
 * operations. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/replay.h"

static const char *pages_text = "0";
static uint32_t n_clients = 16, max_output = 16;
static bool as_json;

static const struct option replay_options[] = {
    STRING("pages", &pages_text, "N",
           "cache size in tokens, or 5% of the trace's distinct tokens (default 0: fits them all)"),
    UINT("max-seqs parallel np", &n_clients, "N", 1, 1024,
         "requests running at the same time (default 16)"),
    UINT("max-output", &max_output, "N", 0, 1 << 20,
         "longest answer in tokens; later prompts never contain answers (default 16)"),
    FLAG("json", &as_json, "print the result as JSON"),
    {0},
};

static const char *const kind_names[OP_KINDS] = {"match", "insert", "evict"};

/* The requested cache size. */
struct cache_pages {
    double number;
    bool is_percent; /* of the distinct tokens */
};

static int pages_parse(const char *text, struct cache_pages *pages, struct error *err)
{
    char *end;
    errno = 0;
    pages->number = strtod(text, &end);
    pages->is_percent = strcmp(end, "%") == 0;
    if (end != text && !errno && (pages->is_percent || !*end) && pages->number >= 0 &&
        pages->number <= SCHEDULER_MAX_PAGES)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "--pages needs a number of tokens up to %d or a share such as 5%%, not '%s'",
                     SCHEDULER_MAX_PAGES, text);
}

/* --pages 0 means enough pages for everything. */
static int pages_choose(const struct cache_pages *pages, const struct trace *t,
                        const struct trace_ideal *ideal, struct replay_options *options,
                        struct error *err)
{
    if (pages->number == 0)
        return replay_pages(t, ideal, options, &options->n_pages, err);
    double n = pages->is_percent ? pages->number * (double)ideal->distinct / 100 : pages->number;
    if (n < 2 || n > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_INPUT,
                         "--pages %s is %.0f tokens, but the cache holds from 2 to %d", pages_text,
                         n, SCHEDULER_MAX_PAGES);
    options->n_pages = (uint32_t)n;
    return 0;
}

static double share_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static uint64_t progress_start_ns;

static void progress_show(const struct trace *t, size_t n_done, uint64_t asked, uint64_t hit)
{
    enum { WIDTH = 30 };
    static const char full[] = "##############################";
    static const char empty[] = "..............................";
    double done = share_of(n_done, t->n_requests);
    double spent_s = (double)(clock_now_ns() - progress_start_ns) / 1e9;
    int n_full = (int)(done * WIDTH);
    fprintf(stderr, "\r[%.*s%.*s] %zu of %zu requests, hit rate %.1f%%", n_full, full,
            WIDTH - n_full, empty, n_done, t->n_requests, 100 * share_of(hit, asked));
    if (done > 0)
        fprintf(stderr, ", %.0f s left\033[K", spent_s / done - spent_s);
    else
        fprintf(stderr, "\033[K");
}

/* Formats a number as "53,012,345". */
static const char *with_commas(uint64_t number, char out[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, number), to = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = '\0';
    return out;
}

static void number_print(const char *name, uint64_t number, const char *note)
{
    char text[32];
    printf("%-10s %15s  %s\n", name, with_commas(number, text), note);
}

static void text_print(const struct trace *t, const struct trace_ideal *ideal,
                       const struct replay_result *r)
{
    char note[128];
    number_print("requests", t->n_requests, "");
    if (r->n_refused)
        number_print("refused", r->n_refused, "requests longer than the cache");
    snprintf(note, sizeof note, "tokens, %.2f%% of the distinct ones",
             100 * share_of(r->n_pages, ideal->distinct));
    number_print("cache", r->n_pages, note);
    number_print("asked", r->asked, "prompt tokens");
    snprintf(note, sizeof note, "%.2f%% of asked, %.2f%% of ideal",
             100 * share_of(r->hit, r->asked), 100 * share_of(r->hit, ideal->hit));
    number_print("hit", r->hit, note);
    snprintf(note, sizeof note, "%.2f%% of asked, with a cache that never evicts",
             100 * share_of(ideal->hit, r->asked));
    number_print("ideal", ideal->hit, note);
    number_print("computed", r->computed, "prompt tokens");
    number_print("generated", r->generated, "tokens");
    number_print("evicted", r->stats.tree.evicted_pages, "tokens");
    number_print("expired", r->stats.tree.expired_pages, "tokens");
    number_print("preempted", r->stats.preempted, "times");
    printf("\n%-10s %15s %12s %12s %12s   microseconds\n", "", "count", "mean", "p99", "max");
    for (int i = 0; i < OP_KINDS; i++) {
        const struct op_histogram *h = &r->times.kinds[i];
        char count[32];
        printf("%-10s %15s %12.2f %12.2f %12.2f\n", kind_names[i], with_commas(h->count, count),
               share_of(h->total_ns, h->count) / 1e3,
               (double)op_histogram_percentile(h, 0.99) / 1e3, (double)h->max_ns / 1e3);
    }
    printf("longest eviction in one step: %.2f microseconds\n",
           (double)r->times.max_step_evict_ns / 1e3);
    printf("\n%.2f s, %.0f prompt tokens/s\n", r->seconds, (double)r->asked / r->seconds);
}

static void times_write(struct json_writer *w, const struct op_times *times)
{
    json_object_begin(w, "times_us");
    for (int i = 0; i < OP_KINDS; i++) {
        const struct op_histogram *h = &times->kinds[i];
        json_object_begin(w, kind_names[i]);
        json_add_int(w, "count", (int64_t)h->count);
        json_add_double(w, "mean", share_of(h->total_ns, h->count) / 1e3);
        json_add_double(w, "p99", (double)op_histogram_percentile(h, 0.99) / 1e3);
        json_add_double(w, "max", (double)h->max_ns / 1e3);
        json_object_end(w);
    }
    json_add_double(w, "max_evict_in_step", (double)times->max_step_evict_ns / 1e3);
    json_object_end(w);
}

static void json_print(const struct trace *t, const struct trace_ideal *ideal,
                       const struct replay_result *r)
{
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_int(&w, "requests", (int64_t)t->n_requests);
    json_add_int(&w, "refused", (int64_t)r->n_refused);
    json_add_int(&w, "pages", r->n_pages);
    json_add_int(&w, "distinct", (int64_t)ideal->distinct);
    json_add_int(&w, "asked", (int64_t)r->asked);
    json_add_int(&w, "hit", (int64_t)r->hit);
    json_add_int(&w, "ideal", (int64_t)ideal->hit);
    json_add_double(&w, "hit_rate", share_of(r->hit, r->asked));
    json_add_double(&w, "share_of_ideal", share_of(r->hit, ideal->hit));
    json_add_int(&w, "computed", (int64_t)r->computed);
    json_add_int(&w, "generated", (int64_t)r->generated);
    json_add_int(&w, "evicted", (int64_t)r->stats.tree.evicted_pages);
    json_add_int(&w, "expired", (int64_t)r->stats.tree.expired_pages);
    json_add_int(&w, "preempted", (int64_t)r->stats.preempted);
    json_add_int(&w, "steps", (int64_t)r->steps);
    times_write(&w, &r->times);
    json_add_double(&w, "seconds", r->seconds);
    json_add_double(&w, "tokens_per_second", (double)r->asked / r->seconds);
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}

/* Runs everything that needs the trace. */
static int trace_replay(const struct trace *t, const struct cache_pages *pages, struct error *err)
{
    bool is_terminal = isatty(STDERR_FILENO);
    struct replay_options options = {.n_clients = n_clients,
                                     .max_output = max_output,
                                     .progress = is_terminal ? progress_show : NULL};
    struct trace_ideal ideal;
    if (trace_ideal(t, &ideal, err) || pages_choose(pages, t, &ideal, &options, err))
        return -1;
    struct replay_result *result = malloc(sizeof *result); /* too large for the stack */
    if (!result)
        return error_set(err, ERROR_MEMORY, "no memory for the result");
    progress_start_ns = clock_now_ns();
    int failed = replay_run(t, &options, result, err);
    if (is_terminal)
        fprintf(stderr, "\r\033[K");
    if (!failed)
        (as_json ? json_print : text_print)(t, &ideal, result);
    free(result);
    return failed;
}

static int replay_main(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct cache_pages pages;
    struct trace trace;
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (set.operands.n == 0) {
        error_set(&err, ERROR_INPUT, "no trace given. Usage: radish replay TRACE");
        return command_fail(command, &err, EXIT_USAGE);
    }
    if (pages_parse(pages_text, &pages, &err))
        return command_fail(command, &err, EXIT_USAGE);
    if (trace_read(&trace, set.operands.items[0], &err))
        return command_fail(command, &err, EXIT_FAILED);
    int failed = trace_replay(&trace, &pages, &err);
    trace_free(&trace);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_replay = {
    .name = "replay",
    .summary = "run recorded requests through the cache, without a model",
    .usage = "TRACE [--pages N] [--json]",
    .example = "radish replay conversation_trace.jsonl --pages 5%",
    .tables = {replay_options},
    .max_operands = 1,
    .run = replay_main,
};
