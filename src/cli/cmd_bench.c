/* `radish bench`: measures the engine without the server or the cache and compares it with the
 * machine's limits. Options take lists, as in llama-bench; every combination is a row. */
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/runtime.h"

static struct bench bench = {
    .prompts = {{512}, 1},
    .decodes = {{128}, 1},
    .depths = {{0}, 1},
    .streams = {{1}, 1},
    .threads = {{0}, 1},
    .repeats = 3,
};
static bool as_json;

static const struct option bench_options[] = {
    UINTS("prompt p", &bench.prompts, "N,...", 0, NO_MAX,
          "prompt lengths to measure, in tokens; 0: no prefill (default 512)"),
    UINTS("decode n", &bench.decodes, "N,...", 0, NO_MAX,
          "answer lengths to measure, in tokens; 0: no decode (default 128)"),
    UINTS("depth d", &bench.depths, "N,...", 0, NO_MAX,
          "tokens already in the context before the measured ones (default 0)"),
    UINTS("streams", &bench.streams, "N,...", 1, 256,
          "sequences decoded at the same time (default 1)"),
    UINTS("threads t", &bench.threads, "N,...", 0, 1024,
          "compute threads (default: one for each fast core that this process may use)"),
    UINT("repeats r", &bench.repeats, "N", 1, 1000,
         "runs of each test; the best and the mean are shown (default 3)"),
    FLAG("no-limits", &bench.without_limits,
         "do not measure the machine's limits (memory bandwidth, arithmetic)"),
    FLAG("json", &as_json, "print the result as JSON"),
    {0},
};

/* Counts the nonzero numbers of a list. */
static uint32_t count_tests(const struct number_list *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->items[i] > 0;
    return n;
}

static int plan_rows(struct error *err)
{
    uint32_t n_prompts = count_tests(&bench.prompts), n_decodes = count_tests(&bench.decodes);
    if (n_prompts == 0 && n_decodes == 0)
        return error_set(err, ERROR_INPUT, "nothing to measure: --prompt and --decode are both 0");
    for (size_t i = 0; n_decodes && i < bench.streams.n; i++)
        if (bench.streams.items[i] > runtime_options.max_seqs)
            runtime_options.max_seqs = bench.streams.items[i];
    bench.n_planned = (uint32_t)(bench.threads.n * bench.depths.n) *
                      (n_prompts + n_decodes * (uint32_t)bench.streams.n);
    bench.rows = calloc(bench.n_planned, sizeof *bench.rows);
    return bench.rows ? 0 : error_set(err, ERROR_MEMORY, "no memory for the benchmark");
}

static int run_with_threads(uint32_t n_threads, struct error *err)
{
    struct runtime runtime;
    runtime_options.n_threads = n_threads;
    if (runtime_open(&runtime, RUNTIME_COMPUTES, err))
        return -1;
    int failed = bench_run(&bench, &runtime, err);
    runtime_close(&runtime);
    return failed;
}

static int command_bench_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct error err;
    int status, failed;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    failed = plan_rows(&err);
    for (size_t i = 0; !failed && i < bench.threads.n; i++)
        failed = run_with_threads(bench.threads.items[i], &err);
    if (!failed && as_json)
        bench_print_json(&bench);
    else if (!failed)
        bench_print_table(&bench);
    free(bench.rows);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure prefill and decode speed, and the machine's limits",
    .usage = "-m PATH [OPTIONS]",
    .notes = "columns:\n"
             "  tokens/s, mean   speed of the best run, and the mean of all runs\n"
             "  limit, reached   speed that the machine's limits allow, and the share reached\n"
             "  MB/token         bytes of weights and cache read for a token, in millions\n"
             "  int8 MMAC        integer multiply-adds for a token, in millions\n"
             "  float MMAC       floating-point multiply-adds for a token, in millions\n"
             "  products         share of the time spent in products with the weights\n"
             "  attention        share of the time spent in attention\n"
             "  other            share of the time spent in everything else\n"
             "  attention/peak   speed of attention, as a share of the machine's float limit\n",
    .example = "radish bench -m model.gguf -p 512,2048 -n 128 -d 0,3000 -t 2",
    .operand_hint = "the model is given with -m PATH",
    .tables = {runtime_model_options, command_config_options, bench_options, runtime_engine_options,
               runtime_mock_options},
    .run = command_bench_run,
};
