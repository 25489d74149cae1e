/* Opens an engine as the command line asks: opens the model, sizes the KV pool, packs the weights
 * (with progress on a terminal) and opens the prompt maker. */
#include "cli/runtime.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "cli/terminal/terminal.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/kv_groups.h"
#include "engine/kv_sizes.h"
#include "model/files/model_path.h"
#include "model/quant/quantize.h"
#include "sched/scheduler.h"

enum { MOCK_CONTEXT = 8192, MOCK_PAGE_BYTES = 8 };

#define DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"
#define LEAST_RESERVE ((uint64_t)512 << 20)

static const char *const engine_names[] = {"auto", "cpu", "cuda", "mock", NULL}; /* in enum order */
static const char *const pinning_names[] = {"off", "auto", "on", NULL};    /* as enum pinning */
static const char *const kv_type_names[] = {"f16", "f32", "bf16", NULL};   /* as enum kv_type */
static const char *const activation_names[] = {"q8", "q16", NULL};         /* in enum order */
static const char *const pack_cache_names[] = {"off", "auto", "on", NULL}; /* in enum order */

struct runtime_options runtime_options = {
    .max_seqs = 16,
    .pinning = PIN_AUTO,
    .pack_cache = PACK_CACHE_AUTO,
    .mock = {.fail_token = -1, .end_token = -1},
};

const struct option runtime_model_options[] = {
    STRING("model m", &runtime_options.model_path, "PATH",
           "the model: a GGUF file or a Hugging Face directory"),
    {0},
};

const struct option runtime_default_model_options[] = {
    STRING("model m", &runtime_options.model_path, "PATH",
           "GGUF file or Hugging Face directory (default: the small model that `make serve` "
           "downloads)"),
    {0},
};

const struct option runtime_engine_options[] = {
    CHOICE("engine", &runtime_options.engine, "NAME", engine_names,
           "auto (default: a GPU if there is one), cpu, cuda or mock (needs no model; nonsense)"),
    STRING("device dev", &runtime_options.device, "GPU",
           "number or UUID of the GPU, as `nvidia-smi -L` prints them (default: the first)"),
    SHARE("gpu-memory", &runtime_options.gpu_memory, "SHARE",
          "GPU memory to use for weights, buffers and cache: 20GiB, or 0.9 (default) of the free"),
    UINT("threads t", &runtime_options.n_threads, "N", 1, PARALLEL_MAX_THREADS,
         "compute threads (default: one for each fast core that this process may use)"),
    CHOICE("pin", &runtime_options.pinning, "WHEN", pinning_names,
           "pin each compute thread to one CPU: on, off or auto (default)"),
    UINT("context c ctx-size", &runtime_options.context, "N", 0, NO_MAX,
         "longest conversation in tokens, answers included (default: the model's limit)"),
    SIZE("cache-size", &runtime_options.cache_size, "SIZE",
         "cache memory: 2GiB, 100000t (tokens) or max (default: 1/5 of memory, 256MiB to 8GiB)"),
    TOKENS("-max_tokens", &runtime_options.cache_size, "N", 2,
           "cache size in tokens, like --cache-size Nt; not the same option as --max-tokens"),
    STRING("quantize", &runtime_options.quantize, "TYPE",
           "quantize float weights while loading: q8_0, q4_k, ... (f32: convert all weights to "
           "floats)"),
    CHOICE("kv-type", &runtime_options.kv_type, "TYPE", kv_type_names,
           "type of the cached keys and values: f16 (default), f32 or bf16"),
    CHOICE("activations", &runtime_options.activations, "TYPE", activation_names,
           "activations with quantized weights: q8 (default), or q16: more exact, slower prefill"),
    CHOICE("pack-cache", &runtime_options.pack_cache, "WHEN", pack_cache_names,
           "save packed weights next to the model: on, off or auto (default: if packing is slow)"),
    STRING("kernels", &runtime_options.kernels, "NAME",
           "CPU kernels: scalar, avx2, avx512, avx512-vnni or amx (default: the fastest here)"),
    {0},
};

const struct option runtime_batch_options[] = {
    UINT("max-seqs parallel np", &runtime_options.max_seqs, "N", 1, 1024,
         "most conversations computed at the same time (default 16)"),
    {0},
};

const struct option runtime_template_options[] = {
    STRING("chat-template-file", &runtime_options.template_path, "FILE",
           "use this Jinja chat template instead of the model's own"),
    {0},
};

/* CONTRIBUTING.md describes them. */
const struct option runtime_mock_options[] = {
    UINT("mock-row-cost-us", &runtime_options.mock.row_cost_us, "N", 0, 1e6, NULL),
    UINT("mock-batch-cost-us", &runtime_options.mock.batch_cost_us, "N", 0, 1e7, NULL),
    UINT("mock-fail-every", &runtime_options.mock.fail_every, "N", 0, NO_MAX, NULL),
    UINT("mock-nan-every", &runtime_options.mock.nan_every, "N", 0, NO_MAX, NULL),
    UINT("mock-window", &runtime_options.mock.groups[1].window, "N", 0, 1e6, NULL),
    {0},
};

/* The same path as in tools/setup.sh. */
void runtime_default_model_path(struct strbuf *out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        strbuf_addf(out, "%s/radish/" DEFAULT_MODEL, cache);
    else
        strbuf_addf(out, "%s/.cache/radish/" DEFAULT_MODEL, home ? home : "");
}

/* Chooses the model for a command that was given none. */
static int default_model_choose(const struct command *command, struct error *err)
{
    static struct strbuf path = STRBUF_INIT;
    if (!command->has_default_model)
        return error_set(err, ERROR_INPUT,
                         "which model? Give a GGUF file or a directory with -m PATH");
    runtime_default_model_path(&path);
    if (access(strbuf_str(&path), R_OK) != 0 && command_config_path())
        return error_set(err, ERROR_INPUT,
                         "no model given: add a line `model = PATH` to %s, where PATH is a GGUF "
                         "file or a Hugging Face directory",
                         command_config_path());
    if (access(strbuf_str(&path), R_OK) != 0)
        return error_set(
            err, ERROR_INPUT,
            "no model given, and the default model is not at %s. Run `make chat` or "
            "`make serve` in radish's source folder to download it, or give a GGUF file or a "
            "directory with -m PATH",
            strbuf_str(&path));
    runtime_options.model_path = strbuf_str(&path);
    return 0;
}

bool runtime_parse(const struct command *command, struct option_set *set, int argc, char **argv,
                   int *status)
{
    struct error err;
    if (!command_parse(command, set, argc, argv, status))
        return false;
    if (runtime_options.model_path || runtime_options.engine == ENGINE_MOCK ||
        default_model_choose(command, &err) == 0)
        return true;
    *status = command_fail(command, &err, EXIT_USAGE);
    return false;
}

/* Resolves --model to a path, once: there is only one model. */
static int path_find(struct error *err)
{
    static struct strbuf path = STRBUF_INIT;
    if (path.len)
        return 0;
    if (model_path_find(&path, runtime_options.model_path, err)) {
        strbuf_free(&path);
        return -1;
    }
    runtime_options.model_path = strbuf_str(&path);
    return 0;
}

int runtime_open_model(struct model *m, uint32_t context, struct error *err)
{
    struct model_options options = {.context = context};
    enum tensor_type type;
    if (runtime_options.quantize) {
        if (!quantize_type(runtime_options.quantize, &type))
            return error_set(err, ERROR_INPUT, "--quantize must be one of %s, not '%s'",
                             quantize_names(), runtime_options.quantize);
        options.quantize = &type;
    }
    if (path_find(err))
        return -1;
    return model_open(m, runtime_options.model_path, &options, err);
}

/* `n_vocab`: rows of the embedding; 0 if unknown. */
static int checkpoint_tokenizer(const struct checkpoint *c, uint32_t n_vocab,
                                struct tokenizer **out, struct chat_defaults *chat,
                                struct error *err)
{
    return c->kind == CHECKPOINT_GGUF ? tokenizer_open(out, chat, c->gguf, err)
                                      : tokenizer_open_directory(out, chat, c->path, n_vocab, err);
}

int runtime_open_tokenizer(struct tokenizer **out, struct chat_defaults *chat, struct error *err)
{
    struct checkpoint *c;
    struct stat info;
    int failed;
    if (path_find(err))
        return -1;
    const char *path = runtime_options.model_path;
    if (checkpoint_open(&c, path, err) == 0) {
        failed = checkpoint_tokenizer(c, 0, out, chat, err);
        checkpoint_close(c);
    } else { /* a directory may have a tokenizer but no model */
        failed = stat(path, &info) != 0 || !S_ISDIR(info.st_mode) ||
                 tokenizer_open_directory(out, chat, path, 0, err);
    }
    return failed ? -1 : 0;
}

static void progress_show(void *context, double done)
{
    static int last = -1;
    int percent = (int)(done * 100);
    if (percent == last || !terminal_takes_escapes(STDERR_FILENO))
        return;
    last = percent;
    fprintf(stderr, "\rloading %s: %d%%", (const char *)context, percent);
}

/* What the cache may take, where an engine keeps it. */
struct cache_room {
    uint64_t default_bytes, max_bytes; /* without --cache-size; with --cache-size max */
};

static uint64_t default_cache_bytes(uint64_t memory_bytes)
{
    const uint64_t least = 256u << 20, most = (uint64_t)8 << 30;
    uint64_t share = memory_bytes / 5;
    return share < least ? least : share > most ? most : share;
}

/* --cache-size max: the memory left after the weights, in their packed form, and a reserve for
 * activations, requests and the rest of the machine. */
static uint64_t largest_cache_bytes(uint64_t weight_bytes)
{
    uint64_t bytes = machine_free_memory_bytes(), reserve = bytes / 10;
    uint64_t taken = weight_bytes + weight_bytes / 4 +
                     (reserve > LEAST_RESERVE ? reserve : LEAST_RESERVE);
    return bytes > taken ? bytes - taken : 0;
}

static struct cache_room machine_room(uint64_t weight_bytes)
{
    return (struct cache_room){.default_bytes = default_cache_bytes(machine_memory_bytes()),
                               .max_bytes = largest_cache_bytes(weight_bytes)};
}

struct kv_tables runtime_tables(uint32_t n_groups)
{
    struct kv_tables tables = {{scheduler_page_bytes(n_groups - 1)}};
    for (uint32_t g = 1; g < n_groups; g++)
        tables.page_bytes[g] = scheduler_side_page_bytes();
    return tables;
}

static uint32_t cap_pages(uint64_t n)
{
    return n < SCHEDULER_MAX_PAGES ? (uint32_t)n : SCHEDULER_MAX_PAGES;
}

static struct kv_use kv_use_of(const struct engine_limits *limits)
{
    return (struct kv_use){limits->max_seqs, limits->max_rows, runtime_options.context};
}

/* Computes the number of pages per pool from the groups' page sizes and the room. The caller checks
 * whether they are enough. */
static void pages_choose(const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
                         const struct cache_room *room, struct engine_limits *limits)
{
    const struct cache_size *size = &runtime_options.cache_size;
    const struct kv_tables tables = runtime_tables(n_groups);
    const struct kv_use use = kv_use_of(limits);
    uint64_t bytes = size->is_max  ? room->max_bytes
                     : size->bytes ? size->bytes
                                   : room->default_bytes;
    uint32_t *n_pages = limits->n_pages;
    if (size->tokens) {
        n_pages[0] = cap_pages(size->tokens);
        for (uint32_t g = 1; g < n_groups; g++)
            n_pages[g] = kv_side_pages(&groups[g], n_pages[0], &use);
    } else {
        kv_split(bytes, groups, n_groups, &tables, &use, n_pages);
    }
    n_pages[0] = cap_pages(n_pages[0]);
    for (uint32_t g = 1; g < n_groups; g++)
        n_pages[g] = n_pages[g] < n_pages[0] ? n_pages[g] : n_pages[0];
}

static uint64_t cache_bytes(const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
                            const uint32_t n_pages[KV_MAX_GROUPS])
{
    const struct kv_tables tables = runtime_tables(n_groups);
    return kv_all_bytes(groups, &tables, n_pages);
}

static int cache_too_small(const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
                           struct error *err)
{
    uint32_t one_of_each[KV_MAX_GROUPS] = {0};
    for (uint32_t g = 0; g < n_groups; g++)
        one_of_each[g] = 1;
    return error_set(err, ERROR_INPUT,
                     "--cache-size is too small: it must hold at least 2 tokens, and one takes "
                     "%" PRIu64 " bytes",
                     cache_bytes(groups, n_groups, one_of_each));
}

static int machine_pages(const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
                         uint64_t weight_bytes, struct engine_limits *limits, struct error *err)
{
    const struct cache_room room = machine_room(weight_bytes);
    pages_choose(groups, n_groups, &room, limits);
    if (limits->n_pages[0] < 2 && runtime_options.cache_size.is_max)
        return error_set(err, ERROR_INPUT,
                         "--cache-size max leaves no memory for a conversation: %" PRIu64
                         " MiB are free, and the weights take %" PRIu64 " MiB",
                         machine_free_memory_bytes() >> 20, weight_bytes >> 20);
    if (limits->n_pages[0] < 2)
        return cache_too_small(groups, n_groups, err);
    uint64_t all = cache_bytes(groups, n_groups, limits->n_pages);
    if (all > machine_memory_bytes())
        return error_set(err, ERROR_INPUT,
                         "a cache of %u tokens takes %" PRIu64 " MiB, but this machine has %" PRIu64
                         " MiB of memory: give a smaller --cache-size",
                         limits->n_pages[0], all >> 20, machine_memory_bytes() >> 20);
    return 0;
}

/* The engine may need tables of the pages' number, so its own part is looked at twice: with no
 * pages, and with those that fit beside that. */
static int device_pages(const struct runtime *r, const struct kv_group groups[KV_MAX_GROUPS],
                        uint32_t n_groups, struct engine_limits *limits, struct error *err)
{
    const struct engine_plugin *ops = r->device.plugin.ops;
    const struct plugin_device *device = r->device.device;
    const struct cache_size *size = &runtime_options.cache_size;
    struct device_room room;
    uint64_t engine_bytes, all = 0;
    char text[200];
    for (int pass = 0; pass < 2; pass++) {
        if (ops->needs(&engine_bytes, &r->model, limits, err) ||
            device_room_find(&room, device, &runtime_options.gpu_memory, engine_bytes, err))
            return -1;
        uint64_t usual = default_cache_bytes(device->total_bytes), left = room.cache_bytes;
        const struct cache_room cache = {.default_bytes = usual < left ? usual : left,
                                         .max_bytes = left};
        pages_choose(groups, n_groups, &cache, limits);
        all = cache_bytes(groups, n_groups, limits->n_pages);
    }
    if (limits->n_pages[0] < 2 && (size->bytes || size->tokens))
        return cache_too_small(groups, n_groups, err);
    device_room_describe(&room, text, sizeof text);
    if (limits->n_pages[0] < 2 || all > room.cache_bytes)
        return error_set(err, ERROR_MEMORY,
                         "the cache does not fit on %s: it takes %" PRIu64
                         " MiB for %u tokens, weights and buffers take %" PRIu64
                         " MiB, and radish may use %s. Give a smaller --cache-size, or "
                         "--engine cpu",
                         device->name, all >> 20, limits->n_pages[0], engine_bytes >> 20, text);
    return 0;
}

/* Beyond its trained context a model eventually writes nonsense. `trained` includes any position
 * scaling that its file specifies. */
int runtime_check_context(uint32_t trained, struct error *err)
{
    if (runtime_options.context == 1)
        return error_set(err, ERROR_INPUT,
                         "-c 1 leaves no room for an answer: it must be at least 2");
    if (runtime_options.context <= trained)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "-c %u is more than the %u tokens that the model supports: use -c %u or less, "
                     "or leave it out",
                     runtime_options.context, trained, trained);
}

static int context_choose(struct runtime *r, uint32_t trained, struct engine_limits *limits,
                          struct error *err)
{
    if (runtime_check_context(trained, err))
        return -1;
    r->context = runtime_options.context ? runtime_options.context : trained;
    uint32_t most = limits->n_pages[0];
    if (r->context > most) {
        log_warn("the cache holds %u tokens, so the context is %u instead of %u: for more, raise "
                 "--cache-size",
                 most, most, r->context);
        r->context = most;
    }
    limits->max_length = r->context;
    return 0;
}

static struct engine_limits limits_from_options(void)
{
    return (struct engine_limits){
        .max_rows = RUNTIME_BATCH_ROWS > runtime_options.max_seqs ? RUNTIME_BATCH_ROWS
                                                                  : runtime_options.max_seqs,
        .max_seqs = runtime_options.max_seqs,
        .kv_type = (enum kv_type)runtime_options.kv_type,
    };
}

/* The mock has no trained limit. */
static uint32_t mock_context(void)
{
    return runtime_options.context > MOCK_CONTEXT ? runtime_options.context : MOCK_CONTEXT;
}

static int mock_open(struct runtime *r, struct error *err)
{
    struct engine_limits limits = limits_from_options();
    struct mock_options mock = runtime_options.mock;
    mock.n_groups = mock.groups[1].window ? 2 : 1;
    mock.groups[0] = (struct kv_group){KV_FULL, 1, MOCK_PAGE_BYTES};
    if (mock.n_groups > 1)
        mock.groups[1] = (struct kv_group){KV_WINDOW, 1, MOCK_PAGE_BYTES, mock.groups[1].window};
    if (prompt_maker_open_bytes(&r->prompt, runtime_options.template_path, err) ||
        machine_pages(mock.groups, mock.n_groups, 0, &limits, err))
        return -1;
    if (!runtime_options.cache_size.bytes && !runtime_options.cache_size.tokens) {
        const struct kv_use use = kv_use_of(&limits);
        limits.n_pages[0] = 16 * MOCK_CONTEXT;
        for (uint32_t g = 1; g < mock.n_groups; g++)
            limits.n_pages[g] = kv_side_pages(&mock.groups[g], limits.n_pages[0], &use);
    }
    mock.n_vocab = tokenizer_size(r->prompt.tokenizer);
    mock.end_token = tokenizer_eos(r->prompt.tokenizer);
    strcpy(r->model_name, "mock");
    r->quantisation = "none";
    return context_choose(r, mock_context(), &limits, err)
               ? -1
               : mock_engine_open(&r->engine, &mock, &limits, err);
}

/* More threads than CPUs are slower, because each phase waits for the slowest one. That earns only
 * a warning: the user may know better. */
static int threads_check(struct error *err)
{
    struct cpu_topology cpus;
    uint32_t n = runtime_options.n_threads;
    if (cpu_topology_open(&cpus, err))
        return -1;
    if (n > cpu_topology_available(&cpus))
        log_warn(
            "-t %u is more than the %u CPUs that this process may use, which is usually slower%s",
            n, cpu_topology_available(&cpus),
            runtime_options.pinning == PIN_ON && n > cpus.n_cpus ? "; they are not pinned" : "");
    cpu_topology_close(&cpus);
    return 0;
}

int runtime_model_tokenizer(const struct model *m, struct tokenizer **out,
                            struct chat_defaults *chat, struct error *err)
{
    return checkpoint_tokenizer(m->checkpoint, m->hparams.n_vocab, out, chat, err);
}

static int prompts_open(struct runtime *r, enum runtime_use use, struct error *err)
{
    struct tokenizer *tokenizer;
    struct chat_defaults chat;
    if (runtime_model_tokenizer(&r->model, &tokenizer, &chat, err))
        return use == RUNTIME_COMPUTES ? 0 : -1;
    return prompt_maker_open(&r->prompt, tokenizer, &chat, runtime_options.template_path, err);
}

/* The cache may limit the context so much that the model's short-context RoPE frequencies apply. */
static int rope_follow(struct runtime *r, struct error *err)
{
    uint32_t opened = runtime_options.context ? runtime_options.context
                                              : r->model.hparams.n_context;
    uint32_t most = r->model.hparams.n_context_short;
    if (most == 0 || opened <= most || r->context > most)
        return 0;
    model_close(&r->model);
    return runtime_open_model(&r->model, r->context, err);
}

static struct plugin_options device_options(struct runtime *r)
{
    return (struct plugin_options){.device = runtime_options.device,
                                   .log_level = log_get_level(),
                                   .progress = progress_show,
                                   .progress_context = r->model_name};
}

/* Finds out whether a device computes the open model, and opens its plug-in if so. */
static int device_try(struct runtime *r, const struct engine_limits *limits, struct error *err)
{
    const struct plugin_options options = device_options(r);
    uint64_t bytes;
    if (device_engine_open(&r->device, &options, err))
        return -1;
    const struct engine_plugin *ops = r->device.plugin.ops;
    if (ops->needs(&bytes, &r->model, limits, err) == 0 && ops->measure(r->device.device, err) == 0)
        return 0;
    device_engine_close(&r->device);
    return -1;
}

/* --engine auto: a device if there is one that computes this model, else the CPU. A wrong --device
 * is an error. */
static int engine_choose(struct runtime *r, const struct engine_limits *limits, struct error *err)
{
    const bool is_auto = runtime_options.engine == ENGINE_AUTO;
    struct error why;
    if (runtime_options.engine != ENGINE_CPU) {
        if (device_try(r, limits, &why) == 0) {
            log_info("engine: %s on %s", r->device.plugin.ops->name, r->device.device->name);
            return 0;
        }
        if (!is_auto || why.code == ERROR_INPUT)
            return error_set(err, why.code, "%s", why.message);
        cpu_choice_log(&why);
    }
    if (runtime_options.device || runtime_options.gpu_memory.bytes ||
        runtime_options.gpu_memory.fraction > 0)
        log_warn("--device and --gpu-memory have no effect: the model runs on the CPU");
    return threads_check(err);
}

static int cpu_open(struct runtime *r, const struct engine_limits *limits, struct error *err)
{
    const struct cpu_options options = {
        .n_threads = runtime_options.n_threads,
        .pinning = (enum pinning)runtime_options.pinning,
        .activations = (enum activation_type)runtime_options.activations,
        .pack_cache = (enum pack_cache_mode)runtime_options.pack_cache,
        .kernels = runtime_options.kernels,
        .progress = progress_show,
        .progress_context = r->model_name,
    };
    return cpu_engine_open(&r->engine, &r->model, limits, &options, err);
}

/* The plug-in lets go of the device once the engine has it, so that the engine can reset it. */
static int device_open(struct runtime *r, const struct engine_limits *limits, struct error *err)
{
    const struct plugin_options options = device_options(r);
    int failed = r->device.plugin.ops->open(&r->engine, &r->model, limits, &options, err);
    device_engine_release(&r->device);
    return failed;
}

/* Makes the model independent of its files: what engines read of it afterwards goes to memory. */
static int files_settle(struct runtime *r, struct error *err)
{
    uint64_t tables = model_table_bytes(&r->model), left = machine_free_memory_bytes();
    if (tables > left)
        return error_set(err, ERROR_MEMORY,
                         "%s: its embeddings take %" PRIu64 " MiB of memory, but only %" PRIu64
                         " MiB are free",
                         r->model.checkpoint->path, tables >> 20, left >> 20);
    return model_settle(&r->model, r->engine->ops->reopen != NULL, err);
}

/* The memory that the model takes: a table that is also the head is there twice. */
static uint64_t model_memory_bytes(const struct model *m)
{
    bool is_tied = m->output.data == m->token_embd.data;
    return m->weight_bytes + (is_tied ? weight_bytes(&m->token_embd) : 0);
}

/* The model's engine: on a device or on the CPU. */
static int model_open_engine(struct runtime *r, enum runtime_use use, struct error *err)
{
    struct engine_limits limits = limits_from_options();
    struct kv_group groups[KV_MAX_GROUPS];
    if (runtime_open_model(&r->model, runtime_options.context, err))
        return -1;
    limits.max_length = runtime_options.context ? runtime_options.context
                                                : r->model.hparams.n_context;
    uint32_t n_groups = kv_groups(&r->model.hparams, limits.kv_type, groups);
    if (use == RUNTIME_COMPUTES)
        n_groups = kv_groups_join(groups, n_groups);
    if (engine_choose(r, &limits, err))
        return -1;
    const bool is_cpu = !r->device.plugin.ops;
    if ((is_cpu ? machine_pages(groups, n_groups, model_memory_bytes(&r->model), &limits, err)
                : device_pages(r, groups, n_groups, &limits, err)) ||
        context_choose(r, r->model.hparams.n_context, &limits, err) || rope_follow(r, err) ||
        prompts_open(r, use, err))
        return -1;
    r->model_context = r->model.hparams.n_context;
    model_path_name(r->model_name, sizeof r->model_name, runtime_options.model_path);
    r->quantisation = model_quantisation(&r->model);
    return (is_cpu ? cpu_open : device_open)(r, &limits, err) || files_settle(r, err) ? -1 : 0;
}

static int fallback_open(struct runtime *r, struct error *err)
{
    char name[sizeof r->model_name];
    log_error("the model failed to load: %s", err->message);
    log_warn("--fallback mock: the mock engine runs instead; its answers are nonsense");
    runtime_close(r);
    if (mock_open(r, err))
        return -1;
    model_path_name(name, sizeof name, runtime_options.model_path);
    snprintf(r->model_name, sizeof r->model_name, "mock (fallback of %.90s)", name);
    r->is_fallback = true;
    return 0;
}

int runtime_check_paths(struct error *err)
{
    const char *path = runtime_options.template_path;
    if (path && strcmp(path, "-") != 0 && access(path, R_OK) != 0)
        return error_set(err, ERROR_IO, "--chat-template-file %s: %s", path, strerror(errno));
    bool is_needed = runtime_options.engine != ENGINE_MOCK &&
                     runtime_options.fallback == FALLBACK_NONE;
    return is_needed ? path_find(err) : 0;
}

int runtime_open(struct runtime *r, enum runtime_use use, struct error *err)
{
    *r = (struct runtime){0};
    if (runtime_check_paths(err))
        return -1;
    int failed = runtime_options.engine == ENGINE_MOCK ? mock_open(r, err)
                                                       : model_open_engine(r, use, err);
    /* Wrong options remain an error. */
    if (failed && runtime_options.fallback == FALLBACK_MOCK && err->code != ERROR_INPUT)
        failed = fallback_open(r, err);
    if (terminal_takes_escapes(STDERR_FILENO))
        fprintf(stderr, "\r\033[K"); /* erases the progress line */
    if (failed)
        runtime_close(r);
    else
        prompt_maker_set_thinking(&r->prompt, (enum thinking_mode)runtime_options.thinking);
    return failed;
}

void runtime_close(struct runtime *r)
{
    engine_close(r->engine);
    device_engine_close(&r->device);
    prompt_maker_close(&r->prompt);
    model_close(&r->model);
    *r = (struct runtime){0};
}
