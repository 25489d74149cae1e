/* Prints the benchmark's results as a table or JSON. Empty columns, such as limits that were not
 * measured, are left out. */
#include "cli/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/strbuf.h"

static const char *const test_names[] = {"prefill", "decode"}; /* as enum bench_test */

static double tokens_of(const struct bench_row *row)
{
    return (double)row->tokens * row->streams;
}

static const struct bench_engine *engine_of(const struct bench *b, const struct bench_row *row)
{
    return &b->engines[row->engine];
}

static double time_ns(const struct bench_row *row)
{
    return (double)row->times.products_ns + (double)row->times.attention_ns +
           (double)row->times.other_ns;
}

/* Which kinds of figures are known; the same for all rows. */
struct known {
    bool threads, work, times, limits;
};

static struct known known_of(const struct bench *b)
{
    const struct bench_row *row = &b->rows[0];
    return (struct known){
        .threads = b->n_engines > 1,
        .work = row->work.n_batches > 0,
        .times = time_ns(row) > 0,
        .limits = bench_limit_of(row).tokens_per_s > 0,
    };
}

/* One line of a Markdown table. */
enum { MAX_COLUMNS = 16, CELL_SIZE = 32 };

struct line {
    char cells[MAX_COLUMNS][CELL_SIZE];
    uint32_t n;
    bool is_head; /* column names instead of figures */
};

__attribute__((format(printf, 3, 4))) static void cell_add(struct line *line, const char *name,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (line->is_head)
        snprintf(line->cells[line->n++], CELL_SIZE, "%s", name);
    else
        vsnprintf(line->cells[line->n++], CELL_SIZE, format, arguments);
    va_end(arguments);
}

static void share_add(struct line *line, const char *name, double share)
{
    cell_add(line, name, "%.0f%%", share * 100);
}

/* The table line for row i; -1 is the header. */
static struct line line_make(const struct bench *b, struct known known, int i)
{
    const struct bench_row *row = &b->rows[i < 0 ? 0 : i];
    const struct bench_limit limit = bench_limit_of(row);
    const double millions = tokens_of(row) * 1e6, whole_ns = time_ns(row);
    struct line line = {.is_head = i < 0};
    char streams[16] = "", depth[16] = "";
    if (row->streams > 1)
        snprintf(streams, sizeof streams, " x%u", row->streams);
    if (row->depth > 0)
        snprintf(depth, sizeof depth, " @ d%u", row->depth);
    cell_add(&line, "test", "%s %u%s%s", test_names[row->test], row->tokens, streams, depth);
    if (known.threads)
        cell_add(&line, "threads", "%u", engine_of(b, row)->n_threads);
    cell_add(&line, "tokens/s", "%.1f", row->best);
    cell_add(&line, "mean", "%.1f", row->mean);
    if (known.limits) {
        cell_add(&line, "limit", "%.1f", limit.tokens_per_s);
        share_add(&line, "reached", limit.reached);
    }
    if (known.work) {
        cell_add(&line, "MB/token", "%.2f", row->work.bytes / millions);
        cell_add(&line, "int8 MMAC", "%.1f", row->work.int8_macs / millions);
        cell_add(&line, "float MMAC", "%.1f", row->work.float_macs / millions);
    }
    if (known.times) {
        share_add(&line, "products", (double)row->times.products_ns / whole_ns);
        share_add(&line, "attention", (double)row->times.attention_ns / whole_ns);
        share_add(&line, "other", (double)row->times.other_ns / whole_ns);
    }
    if (known.limits && row->test == BENCH_PREFILL)
        share_add(&line, "attention/peak", limit.attention);
    else if (known.limits)
        cell_add(&line, "attention/peak", "-");
    return line;
}

static void line_print(const struct line *line, const int *widths)
{
    for (uint32_t c = 0; c < line->n; c++)
        printf("| %*s ", c == 0 ? -widths[c] : widths[c], line->cells[c]);
    printf("|\n");
    for (uint32_t c = 0; line->is_head && c < line->n; c++)
        printf("|%s%.*s%s", c == 0 ? ":" : "-", widths[c], "--------------------------------",
               c == 0 ? "-" : ":");
    printf("%s", line->is_head ? "|\n" : "");
}

struct figure {
    char text[32];
};

/* Three digits, or more if the number is larger. */
static struct figure billions(double value)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, value < 100e9 ? "%.3g" : "%.0f", value * 1e-9);
    return f;
}

static void engines_print(const struct bench *b)
{
    for (uint32_t i = 0; i < b->n_engines; i++) {
        const struct bench_engine *e = &b->engines[i];
        printf("%s on %s", b->model_name, e->name);
        if (e->limits.read_bytes_per_s > 0)
            printf(": memory %s GB/s, int8 %s GMAC/s, float %s GMAC/s",
                   billions(e->limits.read_bytes_per_s).text,
                   billions(e->limits.int8_macs_per_s).text,
                   billions(e->limits.float_macs_per_s).text);
        printf("\n");
    }
}

void bench_print_table(const struct bench *b)
{
    struct known known = known_of(b);
    int widths[MAX_COLUMNS] = {0};
    for (int i = -1; i < (int)b->n_rows; i++) {
        struct line line = line_make(b, known, i);
        for (uint32_t c = 0; c < line.n; c++)
            if ((int)strlen(line.cells[c]) > widths[c])
                widths[c] = (int)strlen(line.cells[c]);
    }
    engines_print(b);
    printf("\n");
    for (int i = -1; i < (int)b->n_rows; i++) {
        struct line line = line_make(b, known, i);
        line_print(&line, widths);
    }
}

static void engine_write(struct json_writer *w, const struct bench_engine *e)
{
    json_object_begin(w, NULL);
    json_add_string(w, "engine", e->name);
    json_add_int(w, "threads", e->n_threads);
    if (e->limits.read_bytes_per_s > 0) {
        json_object_begin(w, "limits");
        json_add_double(w, "memory_bytes_per_second", e->limits.read_bytes_per_s);
        json_add_double(w, "int8_macs_per_second", e->limits.int8_macs_per_s);
        json_add_double(w, "float_macs_per_second", e->limits.float_macs_per_s);
        json_add_int(w, "cache_bytes", (int64_t)e->limits.cache_bytes);
        json_object_end(w);
    }
    json_object_end(w);
}

static void row_write(struct json_writer *w, const struct bench *b, const struct bench_row *row,
                      struct known known)
{
    const struct bench_limit limit = bench_limit_of(row);
    const double tokens = tokens_of(row), whole_ns = time_ns(row);
    json_object_begin(w, NULL);
    json_add_string(w, "test", test_names[row->test]);
    json_add_int(w, "tokens", row->tokens);
    json_add_int(w, "depth", row->depth);
    json_add_int(w, "streams", row->streams);
    json_add_int(w, "threads", engine_of(b, row)->n_threads);
    json_add_double(w, "tokens_per_second", row->best);
    json_add_double(w, "tokens_per_second_mean", row->mean);
    if (known.work) {
        json_add_double(w, "bytes_per_token", row->work.bytes / tokens);
        json_add_double(w, "int8_macs_per_token", row->work.int8_macs / tokens);
        json_add_double(w, "float_macs_per_token", row->work.float_macs / tokens);
        json_add_double(w, "attention_macs_per_token", row->work.attention_macs / tokens);
    }
    if (known.times) {
        json_add_double(w, "products_share_of_time", (double)row->times.products_ns / whole_ns);
        json_add_double(w, "attention_share_of_time", (double)row->times.attention_ns / whole_ns);
        json_add_double(w, "other_share_of_time", (double)row->times.other_ns / whole_ns);
    }
    if (known.limits) {
        json_add_double(w, "memory_bytes_per_second", row->limits.read_bytes_per_s);
        json_add_double(w, "limit_tokens_per_second", limit.tokens_per_s);
        json_add_double(w, "share_of_limit", limit.reached);
        json_add_string(w, "bound_by", limit.is_memory ? "memory" : "compute");
        json_add_double(w, "products_share_of_peak", limit.products);
        json_add_double(w, "attention_share_of_float_peak", limit.attention);
    }
    json_object_end(w);
}

/* Writes the first row of a test, for callers that want a single figure. */
static void first_write(struct json_writer *w, const struct bench *b, enum bench_test test,
                        const char *key)
{
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (b->rows[i].test == test) {
            json_add_double(w, key, b->rows[i].best);
            return;
        }
    }
}

void bench_print_json(const struct bench *b)
{
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    struct known known = known_of(b);
    json_object_begin(&w, NULL);
    json_add_string(&w, "model", b->model_name);
    json_add_string(&w, "engine", b->engines[0].name);
    first_write(&w, b, BENCH_PREFILL, "prefill_tokens_per_second");
    first_write(&w, b, BENCH_DECODE, "decode_tokens_per_second");
    json_array_begin(&w, "engines");
    for (uint32_t i = 0; i < b->n_engines; i++)
        engine_write(&w, &b->engines[i]);
    json_array_end(&w);
    json_array_begin(&w, "rows");
    for (uint32_t i = 0; i < b->n_rows; i++)
        row_write(&w, b, &b->rows[i], known);
    json_array_end(&w);
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}
