/* Measures the rows of the benchmark on one engine. Prefill computes one prompt in the largest
 * batches the engine accepts; decode computes one token at a time for each stream. Both start after
 * `depth` tokens. Tokens depend only on stream and position, so a row can reuse pages that an
 * earlier row filled. */
#include "cli/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

/* How long to measure the machine, before the first row and after each run of a row. */
enum { FIRST_PROBE_MS = 400, PROBE_MS = 50 };

/* Sequence s owns the pages [s * length, (s + 1) * length). */
struct rig {
    struct engine *engine;
    uint32_t length, n_streams; /* the maximum over all rows */
    struct page_run *runs;      /* [n_streams] */
    struct batch_seq *seqs;     /* [n_streams] */
    uint32_t *filled;           /* [n_streams] positions whose KV is filled */
    struct batch_row *rows;     /* [max_rows] */
    struct row_output *outputs; /* [n_streams] */
    float *logits;              /* [n_streams][n_vocab] */
    bool without_limits;
};

static struct batch_row row_at(const struct rig *rig, uint32_t stream, uint32_t position)
{
    return (struct batch_row){
        .value = (int32_t)(hash_pair(stream, position) % rig->engine->info.n_vocab),
        .position = position,
        .rope = {position},
        .pages = {stream * rig->length + position},
    };
}

/* Computes positions [begin, end) of a stream. */
static int prefill(struct rig *rig, uint32_t stream, uint32_t begin, uint32_t end,
                   struct error *err)
{
    uint32_t max_rows = rig->engine->limits.max_rows;
    for (uint32_t n_rows; begin < end; begin += n_rows) {
        n_rows = end - begin < max_rows ? end - begin : max_rows;
        for (uint32_t i = 0; i < n_rows; i++)
            rig->rows[i] = row_at(rig, stream, begin + i);
        if (begin + n_rows == end)
            rig->rows[n_rows - 1].output = &rig->outputs[0];
        rig->runs[stream].count = begin + n_rows;
        struct batch_seq seq = {.pages = {{&rig->runs[stream], 1, 0}}, .length = begin + n_rows};
        struct batch batch = {.seqs = &seq, .n_seqs = 1, .rows = rig->rows, .n_rows = n_rows};
        if (engine_forward(rig->engine, &batch, err))
            return -1;
    }
    return 0;
}

static int decode(struct rig *rig, const struct bench_row *row, struct error *err)
{
    for (uint32_t position = row->depth; position < row->depth + row->tokens; position++) {
        for (uint32_t s = 0; s < row->streams; s++) {
            rig->rows[s] = row_at(rig, s, position);
            rig->rows[s].seq = s;
            rig->rows[s].output = &rig->outputs[s];
            rig->runs[s].count = position + 1;
            rig->seqs[s] = (struct batch_seq){.pages = {{&rig->runs[s], 1, 0}},
                                              .length = position + 1};
        }
        struct batch batch = {
            .seqs = rig->seqs, .n_seqs = row->streams, .rows = rig->rows, .n_rows = row->streams};
        if (engine_forward(rig->engine, &batch, err))
            return -1;
    }
    return 0;
}

/* Computes the positions before the row's own tokens, unless an earlier row already did. */
static int fill_depth(struct rig *rig, const struct bench_row *row, struct error *err)
{
    for (uint32_t s = 0; s < row->streams; s++) {
        if (rig->filled[s] < row->depth) {
            if (prefill(rig, s, rig->filled[s], row->depth, err))
                return -1;
            rig->filled[s] = row->depth;
        }
    }
    return 0;
}

static struct engine_times times_since(const struct engine_times *before,
                                       const struct engine_times *now)
{
    return (struct engine_times){now->products_ns - before->products_ns,
                                 now->attention_ns - before->attention_ns,
                                 now->other_ns - before->other_ns};
}

/* Measures read bandwidth afresh; peak compute figures only rise. */
static int probe(struct rig *rig, uint32_t ms, struct machine_limits *limits, struct error *err)
{
    limits->read_bytes_per_s = 0;
    return rig->without_limits ? 0 : engine_measure(rig->engine, ms, limits, err);
}

static int row_measure(struct rig *rig, struct bench_row *row, uint32_t repeats, struct error *err)
{
    double tokens = (double)row->tokens * row->streams, total_s = 0;
    if (fill_depth(rig, row, err) || probe(rig, PROBE_MS, &row->limits, err))
        return -1;
    double read_of_best = 0;
    for (uint32_t i = 0; i < repeats; i++) {
        struct engine_times before = rig->engine->times;
        double read_before = row->limits.read_bytes_per_s;
        uint64_t start_ns = clock_now_ns();
        if (row->test == BENCH_DECODE ? decode(rig, row, err)
                                      : prefill(rig, 0, row->depth, row->depth + row->tokens, err))
            return -1;
        double seconds = (double)(clock_now_ns() - start_ns) / 1e9;
        struct engine_times times = times_since(&before, &rig->engine->times);
        if (probe(rig, PROBE_MS, &row->limits, err))
            return -1;
        total_s += seconds;
        if (tokens / seconds > row->best) {
            row->best = tokens / seconds;
            row->times = times;
            read_of_best = fmax(read_before, row->limits.read_bytes_per_s);
        }
    }
    row->limits.read_bytes_per_s = read_of_best;
    row->mean = tokens * repeats / total_s;
    row->work = bench_work_of(row, &rig->engine->info, rig->engine->limits.max_rows);
    return 0;
}

static uint32_t list_max(const struct number_list *list)
{
    uint32_t max = 0;
    for (size_t i = 0; i < list->n; i++)
        max = list->items[i] > max ? list->items[i] : max;
    return max;
}

static int rig_open(struct rig *rig, const struct bench *b, struct engine *engine,
                    struct error *err)
{
    uint32_t prompt = list_max(&b->prompts), decoded = list_max(&b->decodes);
    uint64_t length = (uint64_t)list_max(&b->depths) + (prompt > decoded ? prompt : decoded);
    uint32_t n_streams = decoded ? list_max(&b->streams) : 1;
    *rig = (struct rig){
        .engine = engine,
        .without_limits = b->without_limits,
        .length = (uint32_t)length,
        .n_streams = n_streams,
        .runs = calloc(n_streams, sizeof *rig->runs),
        .seqs = calloc(n_streams, sizeof *rig->seqs),
        .filled = calloc(n_streams, sizeof *rig->filled),
        .rows = calloc(engine->limits.max_rows, sizeof *rig->rows),
        .outputs = calloc(n_streams, sizeof *rig->outputs),
        .logits = calloc((size_t)n_streams * engine->info.n_vocab, sizeof *rig->logits),
    };
    if (!rig->runs || !rig->seqs || !rig->filled || !rig->rows || !rig->outputs || !rig->logits)
        return error_set(err, ERROR_MEMORY, "no memory for the benchmark");
    if (length > engine->limits.max_length || n_streams * length > engine->limits.n_pages[0])
        return error_set(err, ERROR_INPUT,
                         "%u stream%s of %" PRIu64
                         " tokens do not fit into the context (-c) or the cache (--cache-size)",
                         n_streams, n_streams == 1 ? "" : "s", length);
    for (uint32_t s = 0; s < n_streams; s++) {
        float *logits = rig->logits + (size_t)s * engine->info.n_vocab;
        rig->runs[s] = (struct page_run){.first = s * rig->length};
        rig->outputs[s] = (struct row_output){.wants = OUTPUT_LOGITS, .logits = logits};
    }
    return 0;
}

static void rig_close(struct rig *rig)
{
    free(rig->runs);
    free(rig->seqs);
    free(rig->filled);
    free(rig->rows);
    free(rig->outputs);
    free(rig->logits);
}

static void progress_show(const struct bench *b, const struct bench_row *row)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K");
    if (row)
        fprintf(stderr, "measuring %u of %u: %s of %u tokens after %u", b->n_rows + 1, b->n_planned,
                row->test == BENCH_DECODE ? "decode" : "prefill", row->tokens, row->depth);
}

/* 0 tokens skip the test. */
static int row_add(struct bench *b, struct rig *rig, struct bench_row row, struct error *err)
{
    if (row.tokens == 0)
        return 0;
    progress_show(b, &row);
    struct machine_limits *all = &b->engines[row.engine].limits;
    row.limits = *all;
    if (row_measure(rig, &row, b->repeats, err))
        return -1;
    double most = fmax(all->read_bytes_per_s, row.limits.read_bytes_per_s);
    *all = row.limits;
    all->read_bytes_per_s = most;
    b->rows[b->n_rows++] = row;
    return 0;
}

static int rows_measure(struct bench *b, struct rig *rig, uint32_t engine, struct error *err)
{
    if (probe(rig, FIRST_PROBE_MS, &b->engines[engine].limits, err))
        return -1;
    for (size_t d = 0; d < b->depths.n; d++) {
        struct bench_row row = {.engine = engine, .depth = b->depths.items[d], .streams = 1};
        for (size_t p = 0; p < b->prompts.n; p++) {
            row.tokens = b->prompts.items[p];
            if (row_add(b, rig, row, err))
                return -1;
        }
        row.test = BENCH_DECODE;
        for (size_t n = 0; n < b->decodes.n; n++) {
            for (size_t s = 0; s < b->streams.n; s++) {
                row.tokens = b->decodes.items[n];
                row.streams = b->streams.items[s];
                if (row_add(b, rig, row, err))
                    return -1;
            }
        }
    }
    return 0;
}

int bench_run(struct bench *b, struct runtime *runtime, struct error *err)
{
    struct rig rig;
    uint32_t index = b->n_engines++;
    struct bench_engine *engine = &b->engines[index];
    uint32_t n_threads = runtime->engine->info.n_threads;
    *engine = (struct bench_engine){.n_threads = n_threads ? n_threads : runtime_options.n_threads};
    strcpy(engine->name, runtime->engine->info.name);
    strcpy(b->model_name, runtime->model_name);
    int failed = rig_open(&rig, b, runtime->engine, err) || rows_measure(b, &rig, index, err);
    progress_show(b, NULL);
    rig_close(&rig);
    return failed ? -1 : 0;
}
