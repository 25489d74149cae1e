/* `radish info`: what a model file holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/runtime.h"

static bool as_json;

static const struct option info_options[] = {
    FLAG("json", &as_json, "as JSON"),
    {0},
};

/* "Q4_1 x 210, F32 x 61": the tensor types, in order of first appearance. */
static void types_describe(const struct gguf *g, struct strbuf *out)
{
    for (size_t i = 0; i < g->n_tensors; i++) {
        size_t before = 0, count = 0;
        for (size_t j = 0; j < g->n_tensors; j++) {
            before += j < i && g->tensors[j].type == g->tensors[i].type;
            count += g->tensors[j].type == g->tensors[i].type;
        }
        if (!before)
            strbuf_addf(out, "%s%s x %zu", out->len ? ", " : "",
                        tensor_type_info(g->tensors[i].type)->name, count);
    }
}

static void info_print_json(const struct model *m, const char *types, size_t template_len)
{
    const struct hparams *h = &m->hparams;
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "name", h->name);
    json_add_string(&w, "architecture", h->arch);
    json_add_int(&w, "parameters", (int64_t)m->n_params);
    json_add_int(&w, "weight_bytes", (int64_t)m->weight_bytes);
    json_add_int(&w, "context", h->n_context);
    json_add_int(&w, "vocabulary", h->n_vocab);
    json_add_int(&w, "layers", h->n_layers);
    json_add_int(&w, "embedding", h->n_embd);
    json_add_int(&w, "heads", h->n_heads);
    json_add_int(&w, "kv_heads", h->n_kv_heads);
    json_add_int(&w, "head_dim", h->head_dim);
    json_add_int(&w, "feed_forward", h->n_ff);
    json_add_double(&w, "rope_base", (double)h->rope_base);
    json_add_bool(&w, "tied_head", m->output.data == m->token_embd.data);
    json_add_string(&w, "tensors", types);
    json_add_bool(&w, "chat_template", template_len > 0);
    json_add_int(&w, "gguf_version", m->gguf.version);
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}

static void info_print_text(const struct model *m, const char *types, size_t template_len)
{
    const struct hparams *h = &m->hparams;
    printf("%-14s %s\n", "name", h->name);
    printf("%-14s %s, GGUF version %u\n", "architecture", h->arch, m->gguf.version);
    printf("%-14s %.1f M in %.1f MiB\n", "parameters", (double)m->n_params / 1e6,
           (double)m->weight_bytes / (1 << 20));
    printf("%-14s %s\n", "tensors", types);
    printf("%-14s %u tokens\n", "context", h->n_context);
    printf("%-14s %u tokens\n", "vocabulary", h->n_vocab);
    printf("%-14s %u layers of %u, %u heads (%u for KV) of %u, feed-forward %u\n", "shape",
           h->n_layers, h->n_embd, h->n_heads, h->n_kv_heads, h->head_dim, h->n_ff);
    printf("%-14s %" PRIu64 " bytes a token (f16)\n", "KV", kv_page_bytes(h, KV_F16));
    printf("%-14s %s\n", "chat template", template_len ? "yes" : "none");
}

static int info_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_model_options, info_options}, .max_operands = 1};
    struct model model;
    struct strbuf types = STRBUF_INIT;
    struct gguf_string chat_template = {0};
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (set.operands.n)
        runtime_options.model_path = set.operands.items[0];
    if (!runtime_options.model_path) {
        error_set(&err, ERROR_INPUT, "which file? usage: radish info FILE");
        return command_fail(command, &err, EXIT_USAGE);
    }
    if (runtime_open_model(&model, &err))
        return command_fail(command, &err, EXIT_FAILED);
    gguf_get_string(&model.gguf, "tokenizer.chat_template", &chat_template);
    types_describe(&model.gguf, &types);
    (as_json ? info_print_json : info_print_text)(&model, strbuf_str(&types), chat_template.len);
    strbuf_free(&types);
    model_close(&model);
    return EXIT_OK;
}

const struct command command_info = {
    .name = "info",
    .summary = "say what a model file holds",
    .usage = "FILE [--json]",
    .example = "radish info model.gguf",
    .run = info_run,
};
