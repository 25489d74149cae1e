/* `radish quantize`: writes a model as a GGUF file with smaller weights. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "model/convert/gguf_export.h"
#include "model/convert/requantize.h"
#include "model/quant/quantize.h"
#include "prompt/tokenizer/export.h"

static const char *type_name = "q8_0";
static uint32_t n_threads;
static bool again;

static const struct option quantize_options[] = {
    STRING("type", &type_name, "TYPE",
           "weight type: q8_0 (default), q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, "
           "f16, bf16, f32"),
    UINT("threads t", &n_threads, "N", 1, PARALLEL_MAX_THREADS,
         "threads (default: one for each fast core that this process may use)"),
    FLAG("allow-requantize", &again,
         "also convert weights that are already quantized, which loses precision"),
    {0},
};

static void progress_show(void *context, double done)
{
    (void)context;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rquantizing %3d%%", (int)(done * 100));
}

/* The input cannot be overwritten while it is read. Two different names may refer to the same
 * file. */
static int check_paths(const char *in, const char *out, struct error *err)
{
    struct stat from, to;
    if (stat(out, &to) != 0)
        return 0;
    if (S_ISDIR(to.st_mode))
        return error_set(err, ERROR_INPUT,
                         "%s is a directory; name the output file, such as %s/NAME.gguf", out, out);
    if (stat(in, &from) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return error_set(err, ERROR_INPUT,
                         "%s is the input file: choose another name for the output", out);
    return 0;
}

static int export_model(const char *in, const char *out, struct parallel *pool,
                        const struct requantize_options *options, struct requantize_result *result,
                        struct error *err)
{
    struct gguf_writer tokenizer = {0};
    enum tokenizer_written written;
    struct model model;
    if (model_open(&model, in, NULL, err))
        return -1;
    int failed = tokenizer_export(in, model.hparams.n_vocab, &tokenizer, &written, err) ||
                 gguf_export(&model, &tokenizer, out, pool, options, result, err);
    if (!failed && written == TOKENIZER_NONE)
        log_warn("%s has no tokenizer, so %s has none either", in, out);
    if (!failed && written == TOKENIZER_ODD)
        log_warn("%s stores its tokenizer as tokenizer.huggingface.json, which other programs may "
                 "not read",
                 out);
    gguf_writer_free(&tokenizer);
    model_close(&model);
    return failed;
}

static int write_model(const char *in, const char *out, struct requantize_options *options,
                       struct requantize_result *result, struct error *err)
{
    struct checkpoint *from = NULL;
    struct parallel *pool = NULL;
    struct cpu_topology cpus;
    if (n_threads == 0 && cpu_topology_open(&cpus, err) == 0) {
        n_threads = cpu_topology_threads(&cpus);
        cpu_topology_close(&cpus);
    }
    int failed = check_paths(in, out, err) || checkpoint_open(&from, in, err) ||
                 parallel_open(&pool, n_threads ? n_threads : 1, NULL, err);
    if (!failed)
        failed = from->kind == CHECKPOINT_GGUF ? requantize(from, out, pool, options, result, err)
                                               : export_model(in, out, pool, options, result, err);
    parallel_close(pool);
    checkpoint_close(from);
    return failed;
}

static int quantize_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct requantize_options options = {.progress = progress_show};
    struct requantize_result result;
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    options.again = again;
    if (set.operands.n != 2) {
        error_set(&err, ERROR_INPUT,
                  "give an input and an output. Usage: radish quantize IN OUT.gguf");
        return command_fail(command, &err, EXIT_USAGE);
    }
    if (!quantize_type(type_name, &options.type)) {
        error_set(&err, ERROR_INPUT, "--type must be one of %s, not '%s'", quantize_names(),
                  type_name);
        return command_fail(command, &err, EXIT_USAGE);
    }
    const char *in = set.operands.items[0], *out = set.operands.items[1];
    int failed = write_model(in, out, &options, &result, &err);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    if (failed)
        return command_fail(command, &err, err.code == ERROR_INPUT ? EXIT_USAGE : EXIT_FAILED);
    printf("%s: %u of %u tensors converted, from %.1f MiB to %.1f MiB\n", out, result.n_changed,
           result.n_tensors, (double)result.bytes_before / (1 << 20),
           (double)result.bytes_after / (1 << 20));
    return EXIT_OK;
}

const struct command command_quantize = {
    .name = "quantize",
    .summary = "write a model as a GGUF file with smaller weights",
    .usage = "IN OUT.gguf [--type q4_k]",
    .example = "radish quantize ~/models/Qwen3-0.6B qwen3-q4_k.gguf --type q4_k",
    .operand_hint = "the type is given with --type, such as --type q4_k",
    .tables = {quantize_options},
    .max_operands = 2,
    .run = quantize_run,
};
