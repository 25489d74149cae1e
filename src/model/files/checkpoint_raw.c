/* Raw files of weights: DIR/bin_weights/layer0.attn.q_proj.bin and the like contain only
 * little-endian numbers, a matrix row by row as in Hugging Face's files. Names are mapped to the
 * canonical ones when the checkpoint is opened. The caller gives the shape of each tensor, which is
 * checked against the file's size. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "model/files/checkpoint_files.h"

enum { MAX_STEM_BYTES = 200 };

/* Spellings that exporters use, and their canonical forms. */
struct alias {
    const char *from, *to;
};

static const struct alias model_aliases[] = {
    {"tok_embeddings", "embed_tokens"}, {"embeddings", "embed_tokens"}, {"final_norm", "norm"},
    {"final_layernorm", "norm"},        {"output_norm", "norm"},
};

static const struct alias layer_aliases[] = {
    {"attn_norm", "input_layernorm"},
    {"attention_norm", "input_layernorm"},
    {"input_norm", "input_layernorm"},
    {"post_layernorm", "post_attention_layernorm"},
    {"post_attn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"mlp_norm", "post_attention_layernorm"},
};

static const struct alias block_aliases[] = {
    {"attn.", "self_attn."},
    {"attention.", "self_attn."},
    {"ffn.", "mlp."},
    {"feed_forward.", "mlp."},
};

static bool take_front(const char **at, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*at, prefix, len) != 0)
        return false;
    *at += len;
    return true;
}

static bool take_end(char *text, const char *suffix)
{
    size_t len = strlen(text), n = strlen(suffix);
    if (len <= n || strcmp(text + len - n, suffix) != 0)
        return false;
    text[len - n] = '\0';
    return true;
}

/* The layer number in "layer12.", "layers.12.", "layer_12." and the like; otherwise -1. */
static long take_layer(const char **at)
{
    const char *from = *at;
    if (!take_front(at, "layer"))
        return -1;
    take_front(at, "s");
    if (**at == '.' || **at == '_')
        ++*at;
    char *end;
    long layer = ascii_is_digit(**at) ? strtol(*at, &end, 10) : -1;
    if (layer < 0 || (*end != '.' && *end != '_')) {
        *at = from;
        return -1;
    }
    *at = end + 1;
    return layer;
}

static const char *replace(const char *name, const struct alias *aliases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, aliases[i].from) == 0)
            return aliases[i].to;
    return name;
}

/* The canonical name of a file: "layer0.attn.q_proj.bin" is model.layers.0.self_attn.q_proj.weight.
 */
static char *canonical_name(struct arena *memory, const char *file_name)
{
    char stem[MAX_STEM_BYTES + 1], name[MAX_STEM_BYTES + 64];
    snprintf(stem, sizeof stem, "%s", file_name);
    take_end(stem, ".bin");
    bool is_bias = take_end(stem, ".bias") || take_end(stem, "_bias");
    if (!is_bias)
        take_end(stem, ".weight");
    const char *end = is_bias ? "bias" : "weight", *at = stem, *block = "";
    take_front(&at, "model.");
    long layer = take_layer(&at);
    if (layer < 0) {
        at = replace(at, model_aliases, sizeof model_aliases / sizeof *model_aliases);
        if (strcmp(at, "output") == 0)
            at = "lm_head";
        snprintf(name, sizeof name, "%s%s.%s", strcmp(at, "lm_head") == 0 ? "" : "model.", at, end);
        return arena_copy(memory, name, strlen(name));
    }
    for (size_t i = 0; i < sizeof block_aliases / sizeof *block_aliases && !*block; i++)
        if (take_front(&at, block_aliases[i].from))
            block = block_aliases[i].to;
    if (!*block)
        at = replace(at, layer_aliases, sizeof layer_aliases / sizeof *layer_aliases);
    snprintf(name, sizeof name, "model.layers.%ld.%s%s.%s", layer, block, at, end);
    return arena_copy(memory, name, strlen(name));
}

static uint64_t value_bytes(enum tensor_type type)
{
    return type == TENSOR_F32 ? 4 : 2;
}

int checkpoint_add_raw(struct checkpoint_files *f, const char *file_name, struct error *err)
{
    const struct model_file *raw = &f->raws[f->n_raws++];
    struct checkpoint_tensor *t = &f->c.tensors[f->c.n_tensors++];
    *t = (struct checkpoint_tensor){
        .name = canonical_name(&f->memory, file_name),
        .type = f->raw_type,
        .n_dims = 1,
        .dims = {raw->len / value_bytes(f->raw_type), 1, 1, 1},
        .data = raw->bytes,
        .size_bytes = raw->len,
    };
    f->c.file_bytes += raw->len;
    return t->name ? 0 : checkpoint_no_memory(&f->c, err);
}

int checkpoint_raw_type(const struct checkpoint_files *f, const struct checkpoint_tensor *t,
                        uint64_t n, enum tensor_type *out, struct error *err)
{
    uint64_t bytes;
    *out = f->raw_type;
    if (!__builtin_mul_overflow(n, value_bytes(*out), &bytes) && bytes == t->size_bytes)
        return 0;
    *out = TENSOR_F32; /* exporters keep norms in F32, whatever the rest is */
    if (!__builtin_mul_overflow(n, value_bytes(*out), &bytes) && bytes == t->size_bytes)
        return 0;
    const char *path = f->raws[t - f->c.tensors].path;
    if (f->raw_type == TENSOR_F32)
        return error_set(err, ERROR_FORMAT,
                         "%s: %zu bytes, expected %" PRIu64 " for %" PRIu64
                         " values of float32, which is what config.json's torch_dtype says",
                         path, t->size_bytes, n * 4, n);
    return error_set(err, ERROR_FORMAT,
                     "%s: %zu bytes, expected %" PRIu64 " or %" PRIu64 " for %" PRIu64
                     " values of %s or float32",
                     path, t->size_bytes, n * 2, n * 4, n,
                     f->raw_type == TENSOR_F16 ? "float16" : "bfloat16");
}

int checkpoint_raw_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err)
{
    enum tensor_type type = f->raw_type;
    uint64_t n_rows = rows ? rows : t->size_bytes / value_bytes(type) / cols;
    if (n_rows == 0 || n_rows > UINT32_MAX)
        return checkpoint_refuse_shape(&f->c, t, rows ? rows : 1, cols, err);
    if (checkpoint_raw_type(f, t, n_rows * cols, &type, err))
        return -1;
    *out = weight_make(type, (uint32_t)n_rows, cols, t->data);
    t->is_used = true;
    return 0;
}
