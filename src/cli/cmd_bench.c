/* `radish bench`: how fast the engine is, without server or cache. Prefill is one prompt from
 * nothing; decode is one token at a time for each of some streams, behind a prompt of --depth. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli/command.h"
#include "cli/runtime.h"

static uint32_t n_prompt = 512, n_decode = 128, depth, n_streams = 1, repeats = 3;
static bool as_json;

static const struct option bench_options[] = {
    UINT("prompt p", &n_prompt, "N", 0, NO_MAX, "tokens of prefill (default 512)"),
    UINT("decode n", &n_decode, "N", 0, NO_MAX, "tokens of decode (default 128)"),
    UINT("depth d", &depth, "N", 0, NO_MAX, "tokens before the decoded ones (default 0)"),
    UINT("streams", &n_streams, "N", 1, 256, "sequences decoded at once (default 1)"),
    UINT("repeats r", &repeats, "N", 1, 1000,
         "runs of each, of which the best and the mean are shown (default 3)"),
    FLAG("json", &as_json, "as JSON"),
    {0},
};

/* Sequence s has the pages [s * length, (s + 1) * length). */
struct bench {
    struct engine *engine;
    uint32_t length;
    struct page_run *runs;  /* [n_streams] */
    struct batch_seq *seqs; /* [n_streams] */
    struct batch_row *rows; /* [max_rows] */
    float *logits;          /* [n_streams][n_vocab] */
};

static int32_t token_at(const struct bench *b, uint32_t stream, uint32_t position)
{
    return (int32_t)(hash_pair(stream, position) % b->engine->info.n_vocab);
}

static struct batch_row row_at(const struct bench *b, uint32_t stream, uint32_t position)
{
    return (struct batch_row){
        .token = token_at(b, stream, position),
        .position = position,
        .page = stream * b->length + position,
    };
}

static int prefill(struct bench *b, uint32_t stream, uint32_t n, struct error *err)
{
    for (uint32_t done = 0; done < n;) {
        uint32_t n_rows = n - done < b->engine->limits.max_rows ? n - done
                                                                : b->engine->limits.max_rows;
        for (uint32_t i = 0; i < n_rows; i++)
            b->rows[i] = row_at(b, stream, done + i);
        b->rows[n_rows - 1].output = done + n_rows == n ? OUTPUT_LOGITS : OUTPUT_NONE;
        done += n_rows;
        b->runs[stream].count = done;
        struct batch_seq seq = {.runs = &b->runs[stream], .n_runs = 1, .length = done};
        struct batch batch = {
            .seqs = &seq, .n_seqs = 1, .rows = b->rows, .n_rows = n_rows, .logits = b->logits};
        if (engine_forward(b->engine, &batch, err))
            return -1;
    }
    return 0;
}

static int decode(struct bench *b, struct error *err)
{
    for (uint32_t t = 0; t < n_decode; t++) {
        for (uint32_t s = 0; s < n_streams; s++) {
            b->rows[s] = row_at(b, s, depth + t);
            b->rows[s].seq = s;
            b->rows[s].output = OUTPUT_LOGITS;
            b->runs[s].count = depth + t + 1;
            b->seqs[s] = (struct batch_seq){
                .runs = &b->runs[s], .n_runs = 1, .length = depth + t + 1};
        }
        struct batch batch = {.seqs = b->seqs,
                              .n_seqs = n_streams,
                              .rows = b->rows,
                              .n_rows = n_streams,
                              .logits = b->logits};
        if (engine_forward(b->engine, &batch, err))
            return -1;
    }
    return 0;
}

/* Tokens a second: of the best run and of all runs. */
struct speed {
    double best, mean;
};

static int speed_measure(struct bench *b, bool decoding, struct speed *speed, struct error *err)
{
    uint64_t tokens = decoding ? (uint64_t)n_decode * n_streams : n_prompt;
    double total = 0;
    *speed = (struct speed){0};
    for (uint32_t i = 0; i < repeats && tokens; i++) {
        uint64_t start = clock_now_ns();
        if (decoding ? decode(b, err) : prefill(b, 0, n_prompt, err))
            return -1;
        double seconds = (double)(clock_now_ns() - start) / 1e9;
        total += seconds;
        speed->best = (double)tokens / seconds > speed->best ? (double)tokens / seconds
                                                             : speed->best;
    }
    speed->mean = tokens ? (double)tokens * repeats / total : 0;
    return 0;
}

static int bench_measure(struct bench *b, struct speed *prompt, struct speed *decoded,
                         struct error *err)
{
    if (speed_measure(b, false, prompt, err))
        return -1;
    for (uint32_t s = 0; s < n_streams && depth && n_decode; s++)
        if (prefill(b, s, depth, err))
            return -1;
    return speed_measure(b, true, decoded, err);
}

static int bench_open(struct bench *b, struct engine *engine, struct error *err)
{
    uint64_t length = (uint64_t)depth + n_decode > n_prompt ? (uint64_t)depth + n_decode : n_prompt;
    *b = (struct bench){
        .engine = engine,
        .length = (uint32_t)length,
        .runs = calloc(n_streams, sizeof *b->runs),
        .seqs = calloc(n_streams, sizeof *b->seqs),
        .rows = calloc(engine->limits.max_rows, sizeof *b->rows),
        .logits = calloc((size_t)n_streams * engine->info.n_vocab, sizeof *b->logits),
    };
    if (!b->runs || !b->seqs || !b->rows || !b->logits)
        return error_set(err, ERROR_MEMORY, "no memory for the benchmark");
    if (length > engine->limits.max_length || n_streams * length > engine->limits.n_pages ||
        n_streams > engine->limits.max_seqs)
        return error_set(err, ERROR_INPUT,
                         "%u stream%s of %" PRIu64
                         " tokens: too much for the context (-c) or the cache (--cache-size)",
                         n_streams, n_streams == 1 ? "" : "s", length);
    for (uint32_t s = 0; s < n_streams; s++)
        b->runs[s] = (struct page_run){.first = s * b->length};
    return 0;
}

static void bench_close(struct bench *b)
{
    free(b->runs);
    free(b->seqs);
    free(b->rows);
    free(b->logits);
}

static void speed_print(const struct runtime *r, struct speed prompt, struct speed decoded)
{
    if (!as_json) {
        printf("%s on %s\n", r->model_name, r->engine->info.name);
        if (n_prompt)
            printf("prefill %5u tokens             %9.1f tokens/s (mean %.1f)\n", n_prompt,
                   prompt.best, prompt.mean);
        if (n_decode)
            printf("decode  %5u tokens x %-3u at %-5u%9.1f tokens/s (mean %.1f)\n", n_decode,
                   n_streams, depth, decoded.best, decoded.mean);
        return;
    }
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "model", r->model_name);
    json_add_string(&w, "engine", r->engine->info.name);
    if (n_prompt) {
        json_add_int(&w, "prompt_tokens", n_prompt);
        json_add_double(&w, "prefill_tokens_per_second", prompt.best);
        json_add_double(&w, "prefill_tokens_per_second_mean", prompt.mean);
    }
    if (n_decode) {
        json_add_int(&w, "decode_tokens", n_decode);
        json_add_int(&w, "streams", n_streams);
        json_add_int(&w, "depth", depth);
        json_add_double(&w, "decode_tokens_per_second", decoded.best);
        json_add_double(&w, "decode_tokens_per_second_mean", decoded.mean);
    }
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}

static int bench_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_model_options, bench_options,
                                        runtime_engine_options, runtime_mock_options}};
    struct runtime runtime;
    struct bench bench;
    struct speed prompt = {0}, decoded = {0};
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    if (n_prompt == 0 && n_decode == 0) {
        error_set(&err, ERROR_INPUT, "nothing to measure: --prompt and --decode are both 0");
        return command_fail(command, &err, EXIT_USAGE);
    }
    if (n_streams > runtime_options.max_seqs)
        runtime_options.max_seqs = n_streams;
    if (runtime_open(&runtime, &err))
        return command_fail_option(command, &err);
    int failed = bench_open(&bench, runtime.engine, &err) ||
                 bench_measure(&bench, &prompt, &decoded, &err);
    if (!failed)
        speed_print(&runtime, prompt, decoded);
    bench_close(&bench);
    runtime_close(&runtime);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure prefill and decode speed",
    .usage = "-m FILE [OPTIONS]",
    .example = "radish bench -m model.gguf -p 512 -n 128 -t 2 --json",
    .run = bench_run,
};
