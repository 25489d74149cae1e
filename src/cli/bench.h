#ifndef RADISH_CLI_BENCH_H
#define RADISH_CLI_BENCH_H

#include "cli/args.h"
#include "cli/runtime.h"

/* `radish bench` in three parts: bench_run.c measures, bench_limit.c computes what would be
 * possible, bench_report.c prints. A row of the table is one combination of the options' values. */

enum bench_test { BENCH_PREFILL, BENCH_DECODE };

/* The least that one run takes: see struct engine_cost. */
struct bench_work {
    uint32_t n_batches;
    double bytes, int8_macs, float_macs;
    double attention_macs; /* the part of float_macs that is attention's */
};

struct bench_row {
    enum bench_test test;
    uint32_t engine; /* index into bench.engines */
    uint32_t tokens; /* of the prompt, or decoded by each stream */
    uint32_t depth;  /* tokens before them */
    uint32_t streams;
    double best, mean;         /* tokens a second, of all streams */
    struct bench_work work;    /* of one run */
    struct engine_times times; /* of the best run */
    /* Peaks are the best that the benchmark saw so far. Reading is as fast as it was directly
     * before or after the best run: what memory gives changes with what else the machine does, or
     * with where a host has put a virtual machine's processors. All zero: not measured, or not
     * known. */
    struct machine_limits limits;
};

/* The engine is opened anew for each number of threads. */
struct bench_engine {
    char name[sizeof((struct engine_info *)0)->name];
    uint32_t n_threads;
    struct machine_limits limits; /* the best of all rows */
};

struct bench {
    struct number_list prompts, decodes, depths, streams, threads;
    uint32_t repeats;
    bool without_limits;

    char model_name[sizeof((struct runtime *)0)->model_name];
    struct bench_engine engines[NUMBER_LIST_MAX];
    uint32_t n_engines;
    struct bench_row *rows; /* [n_rows], those that are measured, with room for n_planned */
    uint32_t n_rows, n_planned;
};

/* Measures every row on the opened engine, in turns with what the machine can do. */
int bench_run(struct bench *b, struct runtime *runtime, struct error *err);

/* What a run of the row takes on an engine with these figures; only test, tokens, depth and
 * streams of the row count. */
struct bench_work bench_work_of(const struct bench_row *row, const struct engine_info *info,
                                uint32_t max_rows);

/* How fast the row could be on the machine. At best, reading and computing overlap; integer and
 * float multiply-adds do not, because they use the same units of a core. */
struct bench_limit {
    double tokens_per_s; /* 0: not known */
    bool is_memory;      /* bound by reading, not by computing */
    double reached;      /* of it, 0 .. 1 */
    double attention;    /* attention's multiply-adds in its own time, of the float peak */
    double products;     /* those of the products in theirs, of the peaks */
};
struct bench_limit bench_limit_of(const struct bench_row *row);

void bench_print_table(const struct bench *b);
void bench_print_json(const struct bench *b);

#endif
