/* `radish info`: describes a model without running it: family, sizes, weight types, chat template
 * features, and the memory it needs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/runtime.h"
#include "engine/kv_groups.h"
#include "engine/kv_sizes.h"
#include "model/architecture.h"
#include "model/rope_scaling.h"

static bool as_json;
static uint32_t n_streams = 1;

static const struct option info_options[] = {
    UINT("context c ctx-size", &runtime_options.context, "N", 2, NO_MAX,
         "show the memory for conversations of N tokens (default: the model's limit)"),
    UINT("streams", &n_streams, "N", 1, 4096,
         "show the memory for N conversations at the same time (default 1)"),
    FLAG("json", &as_json, "print the result as JSON"),
    {0},
};

/* What to report, collected once for both output formats. */
struct info {
    const struct model *model;
    const struct architecture *arch;
    struct prompt_maker prompt; /* without a tokenizer if the model lacks one */
    struct error no_tokenizer;  /* why the tokenizer is missing */
    char format[64];
    struct strbuf types, features, windows, ropes, sampling;
    uint32_t n_windowed, window, n_expert_layers, context; /* the widest window */
    uint64_t kv_bytes, table_bytes;                        /* for all streams */
};

static void describe_format(struct info *i)
{
    const struct checkpoint *c = i->model->checkpoint;
    bool is_mlx = c->config && json_get(c->config, "quantization");
    if (c->kind == CHECKPOINT_GGUF)
        snprintf(i->format, sizeof i->format, "GGUF version %u", c->gguf->version);
    else
        snprintf(i->format, sizeof i->format, "%s",
                 c->kind == CHECKPOINT_BIN ? "directory of bin_weights"
                 : is_mlx                  ? "MLX directory"
                                           : "Hugging Face directory");
}

/* "Q4_1 71.3 MiB, Q6_K 27.1 MiB": matrix types, largest first. */
static void describe_types(struct info *i)
{
    uint64_t bytes[N_TENSOR_TYPES] = {0};
    model_type_bytes(i->model, bytes);
    for (;;) {
        size_t most = 0;
        for (size_t t = 1; t < N_TENSOR_TYPES; t++)
            most = bytes[t] > bytes[most] ? t : most;
        if (bytes[most] == 0)
            return;
        strbuf_addf(&i->types, "%s%s %.1f MiB", i->types.len ? ", " : "",
                    tensor_type_info((uint32_t)most)->name, (double)bytes[most] / (1 << 20));
        bytes[most] = 0;
    }
}

/* "yes, tools (hermes), thinking (can be switched)", or what the template lacks. */
static void describe_template(struct info *i)
{
    const struct prompt_maker *p = &i->prompt;
    struct strbuf *out = &i->features;
    if (!p->chat_template) {
        strbuf_adds(out, p->tokenizer ? p->template_problem : "none");
        return;
    }
    if (!p->traits.renders) {
        strbuf_adds(out, "unusable: it raises an error for every conversation that was tried");
        return;
    }
    strbuf_adds(out, "yes");
    const struct prompt_maker *tools = p->with_tools ? p->with_tools : p;
    if (tools->traits.takes_tools)
        strbuf_addf(out, ", tools (%s%s)", tool_format_name(tools->style.tools),
                    p->with_tools ? ", with a template of their own" : "");
    if (p->style.think_begin)
        strbuf_addf(out, ", thinking%s", p->traits.has_thinking_switch ? " (can be switched)" : "");
    if (!p->traits.takes_system)
        strbuf_adds(out, ", no system messages");
}

static bool has_template(const struct info *i)
{
    return i->prompt.chat_template && i->prompt.traits.renders;
}

static bool takes_tools(const struct info *i)
{
    return i->prompt.with_tools || (has_template(i) && i->prompt.traits.takes_tools);
}

/* "20 layers see the last 512 tokens", for each window in layer order. */
static void describe_windows(struct info *i)
{
    const struct hparams *h = &i->model->hparams;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        uint32_t window = h->layers[l].window, n = 0;
        bool is_first = window > 0;
        for (uint32_t k = 0; k < h->n_layers; k++) {
            is_first &= k >= l || h->layers[k].window != window;
            n += h->layers[k].window == window;
        }
        if (is_first)
            strbuf_addf(&i->windows, "%s%u layer%s see%s the last %u tokens",
                        i->windows.len ? ", " : "", n, n == 1 ? "" : "s", n == 1 ? "s" : "",
                        window);
    }
}

/* "yarn x4": how positions are scaled, if they are. */
static void describe_ropes(struct info *i)
{
    static const char *const names[] = {
        [ROPE_SCALING_NONE] = "",         [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_YARN] = "yarn",     [ROPE_SCALING_LLAMA3] = "llama3",
        [ROPE_SCALING_LONG] = "longrope", [ROPE_SCALING_PROPORTIONAL] = "proportional",
    };
    const struct hparams *h = &i->model->hparams;
    for (uint32_t r = 0; r < h->n_ropes; r++) {
        const struct rope_spec *spec = h->ropes[r].spec;
        if (spec->scaling == ROPE_SCALING_NONE)
            continue;
        strbuf_addf(&i->ropes, "%s%s", i->ropes.len ? ", " : "", names[spec->scaling]);
        if (spec->factor > 1)
            strbuf_addf(&i->ropes, " x%g", spec->factor);
    }
}

static bool has_vision(const struct model *m)
{
    return m->checkpoint->config && json_get(m->checkpoint->config, "vision_config");
}

static void count_layers(struct info *i)
{
    const struct hparams *h = &i->model->hparams;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        i->n_windowed += h->layers[l].window > 0;
        i->window = h->layers[l].window > i->window ? h->layers[l].window : i->window;
        i->n_expert_layers += h->layers[l].has_experts;
    }
}

/* A stream needs all its positions in group 0. In a windowed group it needs the window plus the
 * rows of one batch. A server whose --cache-size covers both can run the stream. */
static void count_memory(struct info *i)
{
    const struct hparams *h = &i->model->hparams;
    struct kv_group groups[KV_MAX_GROUPS];
    uint32_t n_groups = kv_groups(h, (enum kv_type)runtime_options.kv_type, groups);
    i->context = runtime_options.context ? runtime_options.context : h->n_context;
    struct kv_tables tables = runtime_tables(n_groups);
    for (uint32_t g = 0; g < n_groups; g++) {
        uint64_t n = kv_running_pages(&groups[g], n_streams, i->context, RUNTIME_BATCH_ROWS);
        i->kv_bytes += n * groups[g].page_bytes;
        i->table_bytes += n * tables.page_bytes[g];
    }
}

static void end_token_add(struct json_writer *w, const struct tokenizer *t, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    json_add_bytes(w, NULL, bytes, len);
}

/* Adds the members that describe the tokenizer and what depends on it. */
static void tokenizer_add(struct json_writer *w, const struct info *i)
{
    const struct tokenizer *t = i->prompt.tokenizer;
    if (!t) {
        json_add_null(w, "tokenizer");
        json_add_string(w, "tokenizer_error", i->no_tokenizer.message);
        return;
    }
    struct sampling sampling = SAMPLING_USUAL;
    sampling_defaults_apply(&i->prompt.chat.sampling, &sampling);
    json_add_string(w, "tokenizer", tokenizer_kind_name(t));
    json_add_int(w, "tokens", tokenizer_size(t));
    json_array_begin(w, "end_tokens");
    for (uint32_t id = 0; id < tokenizer_size(t); id++)
        if (tokenizer_is_end(t, (int32_t)id))
            end_token_add(w, t, (int32_t)id);
    json_array_end(w);
    sampling_write_json(w, "default_sampling", &sampling);
}

static void print_json(const struct info *i)
{
    const struct model *m = i->model;
    const struct hparams *h = &m->hparams;
    const struct layer_shape *l = &h->layers[0];
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "name", h->name);
    json_add_string(&w, "architecture", h->arch);
    json_add_string(&w, "family", i->arch->title);
    json_add_string(&w, "format", i->format);
    json_add_int(&w, "parameters", (int64_t)m->n_params);
    json_add_int(&w, "weight_bytes", (int64_t)m->weight_bytes);
    json_add_string(&w, "quantization", model_quantisation(m));
    json_add_string(&w, "types", strbuf_str(&i->types));
    json_add_int(&w, "context", h->n_context);
    json_add_int(&w, "vocabulary", h->n_vocab);
    json_add_int(&w, "layers", h->n_layers);
    json_add_int(&w, "windowed_layers", i->n_windowed);
    json_add_int(&w, "window", i->window);
    json_add_string(&w, "rope_scaling", i->ropes.len ? strbuf_str(&i->ropes) : "none");
    json_add_int(&w, "embedding", h->n_embd);
    json_add_int(&w, "heads", l->n_heads);
    json_add_int(&w, "kv_heads", l->n_kv_heads);
    json_add_int(&w, "head_dim", l->key_dim);
    json_add_int(&w, "feed_forward", l->n_ff);
    json_add_int(&w, "experts", h->router.n_experts);
    json_add_int(&w, "experts_used", h->router.n_chosen);
    json_add_bool(&w, "tied_head", m->output.data == m->token_embd.data);
    tokenizer_add(&w, i);
    json_add_bool(&w, "chat_template", has_template(i));
    json_add_bool(&w, "tools", takes_tools(i));
    json_add_bool(&w, "thinking", has_template(i) && i->prompt.style.think_begin);
    json_add_bool(&w, "vision", has_vision(m));
    json_add_int(&w, "kv_context", i->context);
    json_add_int(&w, "kv_streams", n_streams);
    json_add_int(&w, "kv_bytes", (int64_t)i->kv_bytes);
    json_add_int(&w, "table_bytes", (int64_t)i->table_bytes);
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}

static void print_shape(const struct info *i)
{
    const struct hparams *h = &i->model->hparams;
    const struct layer_shape *l = &h->layers[0];
    printf("%-14s %u layers of %u, %u heads (%u for KV) of %u", "shape", h->n_layers, h->n_embd,
           l->n_heads, l->n_kv_heads, l->key_dim);
    if (l->n_ff)
        printf(", feed-forward %u", l->n_ff);
    printf("\n");
    if (i->n_expert_layers)
        printf("%-14s %u of %u per token, in %u layers\n", "experts", h->router.n_chosen,
               h->router.n_experts, i->n_expert_layers);
    if (i->n_windowed)
        printf("%-14s %s\n", "windows", strbuf_str(&i->windows));
    if (i->ropes.len)
        printf("%-14s %s\n", "rope scaling", strbuf_str(&i->ropes));
}

static void print_tokenizer(const struct info *i)
{
    const struct tokenizer *t = i->prompt.tokenizer;
    if (!t) {
        printf("%-14s missing: %s\n", "tokenizer", i->no_tokenizer.message);
        return;
    }
    printf("%-14s %s of %u tokens", "tokenizer", tokenizer_kind_name(t), tokenizer_size(t));
    size_t n = 0;
    for (uint32_t id = 0; id < tokenizer_size(t); id++) {
        size_t len;
        if (!tokenizer_is_end(t, (int32_t)id))
            continue;
        const char *bytes = tokenizer_bytes(t, (int32_t)id, &len);
        printf("%s%.*s", n++ ? ", " : ", ends at ", (int)len, bytes);
    }
    printf("%s\n", n ? "" : ", no end token");
}

static void print_text(const struct info *i)
{
    const struct model *m = i->model;
    const struct hparams *h = &m->hparams;
    const double mib = 1 << 20;
    printf("%-14s %s\n", "name", h->name);
    printf("%-14s %s (%s), %s\n", "architecture", i->arch->title, h->arch, i->format);
    printf("%-14s %.1f M in %.1f MiB\n", "parameters", (double)m->n_params / 1e6,
           (double)m->weight_bytes / mib);
    printf("%-14s %s\n", "weights", strbuf_str(&i->types));
    printf("%-14s %u tokens\n", "context", h->n_context);
    printf("%-14s %u tokens\n", "vocabulary", h->n_vocab);
    print_shape(i);
    print_tokenizer(i);
    printf("%-14s %s\n", "chat template", strbuf_str(&i->features));
    if (i->sampling.len)
        printf("%-14s %s\n", "sampling", strbuf_str(&i->sampling));
    if (has_vision(m))
        printf("%-14s yes, but radish runs only the text part\n", "vision");
    printf("%-14s %.0f MiB of weights; for %u conversation%s of %u tokens %.0f MiB of KV and up to "
           "%.0f MiB of tables\n",
           "memory", (double)m->weight_bytes / mib, n_streams, n_streams == 1 ? "" : "s",
           i->context, (double)i->kv_bytes / mib, (double)i->table_bytes / mib);
}

static int info_print(const struct model *model, struct error *err)
{
    struct info i = {.model = model, .arch = architecture_named(model->hparams.arch)};
    struct tokenizer *tokenizer;
    struct chat_defaults chat;
    if (runtime_check_context(model->hparams.n_context, err) ||
        (runtime_model_tokenizer(model, &tokenizer, &chat, &i.no_tokenizer) == 0 &&
         prompt_maker_open(&i.prompt, tokenizer, &chat, NULL, err)))
        return -1;
    describe_format(&i);
    describe_types(&i);
    describe_template(&i);
    describe_windows(&i);
    describe_ropes(&i);
    if (i.prompt.tokenizer)
        sampling_defaults_write(&i.sampling, &i.prompt.chat.sampling);
    count_layers(&i);
    count_memory(&i);
    (as_json ? print_json : print_text)(&i);
    strbuf_free(&i.types);
    strbuf_free(&i.features);
    strbuf_free(&i.windows);
    strbuf_free(&i.ropes);
    strbuf_free(&i.sampling);
    prompt_maker_close(&i.prompt);
    return 0;
}

static int info_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct model model;
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (set.operands.n)
        runtime_options.model_path = set.operands.items[0];
    if (!runtime_options.model_path) {
        error_set(&err, ERROR_INPUT, "no model given. Usage: radish info FILE|DIR");
        return command_fail(command, &err, EXIT_USAGE);
    }
    if (runtime_open_model(&model, runtime_options.context, &err))
        return command_fail(command, &err, EXIT_FAILED);
    int failed = info_print(&model, &err);
    model_close(&model);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_info = {
    .name = "info",
    .summary = "describe a model and the memory it needs",
    .usage = "FILE|DIR [-c N] [--streams N] [--json]",
    .example = "radish info model.gguf -c 8192 --streams 4",
    .tables = {runtime_model_options, info_options},
    .max_operands = 1,
    .run = info_run,
};
