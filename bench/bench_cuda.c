/* Benchmarks an engine in a plug-in on models with the shapes of real ones and random weights:
 *
 *   bench_cuda --so build/radish-cuda.so [--shape llama8b] [--type q4_k_m] [--what decode,prefill]
 *
 * Each figure is the best of five after a warm-up, with the median beside it. "limit" is what
 * reading the weights and the KV once takes of the time; for prefill there are TFLOP/s instead. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/cuda/engine_source.h"
#include "../tests/cuda/shaped_model.h"
#include "base/clock.h"
#include "base/hash.h"

enum {
    MAX_STREAMS = 64,
    N_REPEATS = 5,
    N_STEPS = 32, /* of decoding, in a repeat */
    SHORT_CONTEXT = 128,
    LONG_CONTEXT = 16384,
    MAX_PREFILL = 4096,
};

struct bench {
    struct engine *engine;
    const struct model *model;
    double read_bytes_per_s;
    uint32_t max_rows;
    bool has_experts;
    struct batch_row *rows; /* [max_rows] */
    struct row_output outputs[MAX_STREAMS];
    struct row_best best[MAX_STREAMS];
    float log_sums[MAX_STREAMS];
    struct batch_seq seqs[MAX_STREAMS];
    struct page_run runs[MAX_STREAMS];
    uint64_t submit_ns, wait_ns, n_batches;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_cuda: %s\n", what);
    exit(1);
}

static void forward(struct bench *b, uint32_t n_seqs, uint32_t n_rows)
{
    const struct batch batch = {
        .seqs = b->seqs, .rows = b->rows, .n_seqs = n_seqs, .n_rows = n_rows};
    struct error err;
    uint64_t start = clock_now_ns();
    if (engine_submit(b->engine, &batch, &err))
        fail(err.message);
    uint64_t submitted = clock_now_ns();
    if (engine_wait(b->engine, &err))
        fail(err.message);
    b->submit_ns += submitted - start;
    b->wait_ns += clock_now_ns() - submitted;
    b->n_batches++;
}

/* A stream's pages lie one after the other, from `room` times its number on. */
static void set_row(struct bench *b, uint32_t row, uint32_t seq, uint32_t room, int32_t token,
                    uint32_t position, bool wants_best)
{
    uint32_t page = seq * room + position;
    b->outputs[seq] = (struct row_output){
        .wants = OUTPUT_BEST, .best = &b->best[seq], .n_best = 1, .log_sum = &b->log_sums[seq]};
    b->rows[row] = (struct batch_row){.value = token,
                                      .seq = seq,
                                      .position = position,
                                      .rope = {position, position, position, position},
                                      .pages = {page, page, page},
                                      .output = wants_best ? &b->outputs[seq] : NULL};
}

static void set_seq(struct bench *b, uint32_t index, uint32_t room, uint32_t stream,
                    uint32_t length)
{
    b->runs[index] = (struct page_run){stream * room, length};
    const struct page_view view = {&b->runs[index], 1, 0};
    b->seqs[index] = (struct batch_seq){.pages = {view, view, view}, .length = length};
}

/* Computes positions 0 .. n - 1 of one stream in chunks of max_rows. */
static void prefill(struct bench *b, uint32_t stream, uint32_t room, uint32_t n)
{
    uint32_t n_vocab = b->model->hparams.n_vocab;
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = n - begin < b->max_rows ? n : begin + b->max_rows;
        for (uint32_t p = begin; p < end; p++) {
            set_row(b, p - begin, stream, room, (int32_t)(hash_pair(stream, p) % n_vocab), p,
                    p + 1 == n);
            b->rows[p - begin].seq = 0;
        }
        set_seq(b, 0, room, stream, end);
        forward(b, 1, end - begin);
    }
    if (!isfinite(b->best[stream].logit))
        fail("a logit is not a number");
}

/* One step of all streams: each takes the token that it preferred. */
static void decode_step(struct bench *b, uint32_t n_streams, uint32_t room, uint32_t position)
{
    for (uint32_t s = 0; s < n_streams; s++) {
        set_row(b, s, s, room, b->best[s].token, position, true);
        set_seq(b, s, room, s, position + 1);
    }
    forward(b, n_streams, n_streams);
    for (uint32_t s = 0; s < n_streams; s++)
        if (!isfinite(b->best[s].logit))
            fail("a logit is not a number");
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t page_bytes(const struct engine *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->info.n_groups; i++)
        bytes += e->info.groups[i].page_bytes;
    return bytes;
}

/* `ns` sorted, of `n_tokens` each; `bytes` that a step reads, 0: unknown. */
static void print_decode(const struct bench *b, const char *what, uint32_t n_streams,
                         const uint64_t *ns, uint64_t bytes)
{
    double steps = N_STEPS, tokens = steps * n_streams, best_s = (double)ns[0] * 1e-9;
    char limit[32] = "-";
    if (bytes && b->read_bytes_per_s > 0)
        snprintf(limit, sizeof limit, "%.1f%%",
                 100 * (double)bytes * steps / b->read_bytes_per_s / best_s);
    printf("%-22s %10.1f %10.1f %10.3f %10.3f %10.3f %9s\n", what, tokens / best_s,
           tokens / ((double)ns[N_REPEATS / 2] * 1e-9), best_s * 1e3 / steps,
           (double)b->submit_ns * 1e-6 / (double)b->n_batches,
           (double)b->wait_ns * 1e-6 / (double)b->n_batches, limit);
    fflush(stdout);
}

/* The least that a step reads: weights, and the KV of all streams. */
static uint64_t step_bytes(const struct bench *b, uint32_t n_streams, uint32_t position)
{
    const struct engine_cost *cost = &b->engine->info.cost;
    if (cost->layer_bytes == 0 || (b->has_experts && n_streams > 1))
        return 0;
    return cost->layer_bytes + cost->head_bytes +
           (uint64_t)n_streams * position * page_bytes(b->engine);
}

static void clear_times(struct bench *b)
{
    b->submit_ns = b->wait_ns = b->n_batches = 0;
}

static void bench_decode(struct bench *b, uint32_t n_streams, uint32_t context)
{
    uint64_t ns[N_REPEATS];
    uint32_t room = context + N_STEPS;
    char what[64];
    for (uint32_t s = 0; s < n_streams; s++)
        prefill(b, s, room, context);
    for (uint32_t i = 0; i < 8; i++)
        decode_step(b, n_streams, room, context + i);
    clear_times(b);
    for (uint32_t r = 0; r < N_REPEATS; r++) {
        uint64_t start = clock_now_ns();
        for (uint32_t i = 0; i < N_STEPS; i++)
            decode_step(b, n_streams, room, context + i);
        ns[r] = clock_now_ns() - start;
    }
    qsort(ns, N_REPEATS, sizeof *ns, compare_u64);
    snprintf(what, sizeof what, "decode %u x %u", n_streams, context);
    print_decode(b, what, n_streams, ns, step_bytes(b, n_streams, context + N_STEPS / 2));
}

static void bench_prefill(struct bench *b, uint32_t n)
{
    uint64_t ns[N_REPEATS];
    char what[64];
    prefill(b, 0, n, n);
    clear_times(b);
    for (uint32_t r = 0; r < N_REPEATS; r++) {
        uint64_t start = clock_now_ns();
        prefill(b, 0, n, n);
        ns[r] = clock_now_ns() - start;
    }
    qsort(ns, N_REPEATS, sizeof *ns, compare_u64);
    const struct engine_cost *cost = &b->engine->info.cost;
    double best_s = (double)ns[0] * 1e-9;
    double macs = (double)(cost->layer_macs.floats + cost->layer_macs.int8) * n +
                  (double)cost->position_macs * n * (n + 1) / 2;
    snprintf(what, sizeof what, "prefill %u by %u", n, b->max_rows);
    printf("%-22s %10.1f %10.1f %10.3f %10.3f %10.3f %7.1f T\n", what, n / best_s,
           n / ((double)ns[N_REPEATS / 2] * 1e-9), best_s * 1e3,
           (double)b->submit_ns * 1e-6 / (double)b->n_batches,
           (double)b->wait_ns * 1e-6 / (double)b->n_batches, 2 * macs / best_s * 1e-12);
    fflush(stdout);
}

struct options {
    const char *so, *shape, *type, *what;
    bool is_cpu;
    uint32_t max_rows;
    double read_gbs;
};

static struct options read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"so", required_argument, NULL, 's'},     {"shape", required_argument, NULL, 'm'},
        {"type", required_argument, NULL, 't'},   {"what", required_argument, NULL, 'w'},
        {"rows", required_argument, NULL, 'r'},   {"read-gbs", required_argument, NULL, 'g'},
        {"engine", required_argument, NULL, 'e'}, {0}};
    struct options o = {.so = "build/radish-cuda.so",
                        .shape = "llama8b",
                        .type = "q4_k_m",
                        .what = "decode,prefill,long",
                        .max_rows = 512};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 's': o.so = optarg; break;
        case 'm': o.shape = optarg; break;
        case 't': o.type = optarg; break;
        case 'w': o.what = optarg; break;
        case 'r': o.max_rows = (uint32_t)atoi(optarg); break;
        case 'g': o.read_gbs = atof(optarg); break;
        case 'e': o.is_cpu = strcmp(optarg, "cpu") == 0; break;
        default:
            fail("options: --so PATH --shape NAME --type NAME --what decode,prefill,long "
                 "--rows N --read-gbs N --engine cpu|cuda");
        }
    return o;
}

static void run(struct bench *b, const char *what)
{
    static const uint32_t streams[] = {1, 8, 32, 64}, prompts[] = {512, MAX_PREFILL};
    printf("%-22s %10s %10s %10s %10s %10s %9s\n", "", "tokens/s", "median", "ms", "submit ms",
           "wait ms", "limit");
    for (uint32_t i = 0; i < 4 && strstr(what, "decode"); i++)
        bench_decode(b, streams[i], SHORT_CONTEXT);
    for (uint32_t i = 0; i < 2 && strstr(what, "prefill"); i++)
        bench_prefill(b, prompts[i]);
    if (strstr(what, "long"))
        bench_decode(b, 1, LONG_CONTEXT);
}

int main(int argc, char **argv)
{
    static struct shaped_model model;
    static struct bench b;
    struct options o = read_options(argc, argv);
    struct shaped_options shape;
    struct engine_source source;
    struct error err;
    if (!shaped_options_named(o.shape, &shape) || !shaped_types_named(o.type, &shape.types))
        fail("no such shape or type");
    if (o.max_rows < MAX_STREAMS)
        fail("--rows must be at least 64");
    log_set_level(LOG_WARN);
    uint64_t start = clock_now_ns();
    if (shaped_model_open(&model, &shape, &err))
        fail(err.message);
    double made_s = (double)(clock_now_ns() - start) * 1e-9;
    start = clock_now_ns();
    const uint32_t n_pages = LONG_CONTEXT + N_STEPS;
    const struct engine_limits limits = {.n_pages = {n_pages},
                                         .max_rows = o.max_rows,
                                         .max_seqs = MAX_STREAMS,
                                         .max_length = n_pages};
    if (engine_source_open(&source, o.is_cpu ? NULL : o.so, &err) ||
        engine_source_engine(&source, &b.engine, &model.model, &limits, &err))
        fail(err.message);
    struct machine_limits best = {.read_bytes_per_s = o.read_gbs * 1e9};
    if (o.read_gbs <= 0 && engine_measure(b.engine, 200, &best, &err))
        fail(err.message);
    b.model = &model.model;
    b.max_rows = o.max_rows;
    b.has_experts = shape.n_experts > 0;
    b.read_bytes_per_s = best.read_bytes_per_s;
    b.rows = calloc(o.max_rows, sizeof *b.rows);
    if (!b.rows)
        fail("no memory");
    printf("%s %s on %s: weights %.2f GB, made in %.1f s, loaded in %.1f s, reads %.0f GB/s\n",
           o.shape, o.type, b.engine->info.name, (double)b.engine->info.weight_bytes * 1e-9, made_s,
           (double)(clock_now_ns() - start) * 1e-9, b.read_bytes_per_s * 1e-9);
    run(&b, o.what);
    engine_close(b.engine);
    engine_source_close(&source);
    shaped_model_close(&model);
    free(b.rows);
    return 0;
}
