/* Reads config.json: the part that describes the text model, and how weights are quantized.
 * Careful: most quantization methods keep tensors under the usual names but change their meaning.
 * If radish does not know the method, nothing in the model can be trusted. */
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/files/checkpoint_files.h"

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_NESTING = 3, DEFAULT_BLOCK = 128, MAX_BLOCK = 1 << 16 };

/* Keys of the whole model that also apply to its text part: those it does not set itself and, in
 * any case, the special tokens, as in transformers' generation. */
static const struct inherited {
    const char *key;
    bool is_outer_first;
} inherited[] = {
    {"torch_dtype", false},         {"dtype", false},        {"tie_word_embeddings", false},
    {"quantization_config", false}, {"quantization", false}, {"bos_token_id", true},
    {"eos_token_id", true},         {"pad_token_id", true},
};

static bool is_set(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    return value && value->type != JSON_NULL;
}

static bool is_inherited(const struct json *inner, const struct json *outer,
                         const struct inherited *rule)
{
    return is_set(outer, rule->key) && (rule->is_outer_first || !is_set(inner, rule->key));
}

/* The inner object, with the keys that it inherits. */
static const struct json *merge(struct arena *memory, const struct json *inner,
                                const struct json *outer)
{
    struct json *merged = json_new(memory, JSON_OBJECT);
    json_each (member, inner) {
        bool is_replaced = false;
        for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
            is_replaced |= strcmp(member->key, inherited[i].key) == 0 &&
                           is_inherited(inner, outer, &inherited[i]);
        struct json *copy = is_replaced ? NULL : json_share(memory, member);
        if (!merged || (!copy && !is_replaced))
            return NULL;
        if (copy) {
            copy->key = member->key;
            copy->key_len = member->key_len;
            json_link(merged, copy);
        }
    }
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited && merged; i++)
        if (is_inherited(inner, outer, &inherited[i]))
            json_append(memory, merged, inherited[i].key,
                        json_share(memory, json_get(outer, inherited[i].key)));
    return memory->failed ? NULL : merged;
}

/* The text part may be nested: "thinker_config" has a "text_config". */
static int find_text_config(struct checkpoint_files *f, struct error *err)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config",
                                       "thinker_config"};
    f->c.text_config = f->c.config;
    for (int level = 0; level < MAX_NESTING; level++) {
        const struct json *inner = NULL;
        for (size_t i = 0; i < sizeof keys / sizeof *keys && !inner; i++) {
            const struct json *value = json_get(f->c.text_config, keys[i]);
            inner = json_is(value, JSON_OBJECT) ? value : NULL;
        }
        if (!inner)
            return 0;
        f->c.text_config = merge(&f->memory, inner, f->c.text_config);
        if (!f->c.text_config)
            return checkpoint_no_memory(&f->c, err);
    }
    return 0;
}

static int refuse_method(const struct checkpoint_files *f, const char *method, const char *detail,
                         struct error *err)
{
    static const char *const names[][2] = {
        {"awq", "AWQ"},       {"gptq", "GPTQ"},   {"aqlm", "AQLM"},         {"eetq", "EETQ"},
        {"hqq", "HQQ"},       {"vptq", "VPTQ"},   {"spqr", "SpQR"},         {"higgs", "HIGGS"},
        {"bitnet", "BitNet"}, {"nvfp4", "NVFP4"}, {"modelopt", "ModelOpt"},
    };
    const char *name = method;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(method, names[i][0]) == 0)
            name = names[i][1];
    return checkpoint_refuse(&f->c, err,
                             "quantized with %s%s, which radish does not read; use a GGUF, MLX or "
                             "FP8 version, or one that is not quantized",
                             shown_name(name, strlen(name)).text, detail);
}

/* compressed-tensors has many formats. radish reads plain FP8: one scale for a tensor, a row or a
 * block, and no zero points. */
static bool is_plain_fp8(const struct json *config)
{
    static const char *const strategies[] = {"tensor", "channel", "block"};
    const struct json *groups = json_get(config, "config_groups");
    const struct json *sparsity = json_get(json_get(config, "sparsity_config"), "format");
    bool is_plain = json_equals(json_get(config, "format"), "float-quantized") &&
                    json_is(groups, JSON_OBJECT) && (!sparsity || json_equals(sparsity, "dense"));
    for (const struct json *group = is_plain ? groups->first : NULL; group; group = group->next) {
        const struct json *weights = json_get(group, "weights"), *strategy;
        int64_t bits = 0;
        strategy = json_get(weights, "strategy");
        bool is_known = false;
        for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
            is_known |= json_equals(strategy, strategies[i]);
        is_plain &= is_known && json_equals(json_get(weights, "type"), "float") &&
                    json_to_int64(json_get(weights, "num_bits"), &bits) && bits == 8;
    }
    return is_plain;
}

static int refuse_compressed(const struct checkpoint_files *f, const struct json *config,
                             struct error *err)
{
    struct strbuf detail = STRBUF_INIT;
    const struct json *format = json_get(config, "format");
    bool is_float = json_equals(format, "float-quantized");
    if (json_is(format, JSON_STRING))
        strbuf_addf(&detail, " (%s%s)", shown_name(format->text, format->text_len).text,
                    is_float ? ", but not plain FP8 with a scale per tensor, row or block" : "");
    int rc = refuse_method(f, "compressed-tensors", strbuf_str(&detail), err);
    strbuf_free(&detail);
    return rc;
}

static void read_block_size(struct checkpoint_files *f, const struct json *config)
{
    const struct json *size = json_get(config, "weight_block_size");
    uint64_t rows, cols;
    f->block_rows = f->block_cols = DEFAULT_BLOCK;
    if (json_is(size, JSON_ARRAY) && size->count == 2 && json_to_uint64(size->first, &rows) &&
        json_to_uint64(size->last, &cols) && rows > 0 && cols > 0 && rows <= MAX_BLOCK &&
        cols <= MAX_BLOCK) {
        f->block_rows = (uint32_t)rows;
        f->block_cols = (uint32_t)cols;
    }
}

static int read_method(struct checkpoint_files *f, const struct json *config, struct error *err)
{
    const struct json *method = json_get(config, "quant_method");
    if (!json_is(method, JSON_STRING)) {
        /* MLX also writes its settings here; old versions of bitsandbytes wrote no method. */
        if (is_set(config, "group_size") && is_set(config, "bits"))
            f->mlx = config;
        else if (is_set(config, "load_in_4bit") || is_set(config, "load_in_8bit"))
            return refuse_method(f, "bitsandbytes", "", err);
        return 0;
    }
    if (json_equals(method, "compressed-tensors"))
        return is_plain_fp8(config) ? 0 : refuse_compressed(f, config, err);
    if (json_equals(method, "modelopt") && json_equals(json_get(config, "quant_algo"), "FP8"))
        return 0;
    if (json_equals(method, "fp8") || json_equals(method, "mxfp8") || json_equals(method, "mxfp4"))
        return 0;
    return refuse_method(f, method->text, "", err);
}

/* The quantisation is given for the whole model, or for its text part. */
static int read_quantisation(struct checkpoint_files *f, struct error *err)
{
    const struct json *mlx = json_get(f->c.text_config, "quantization");
    const struct json *config = json_get(f->c.text_config, "quantization_config");
    read_block_size(f, config);
    if (json_is(mlx, JSON_OBJECT))
        f->mlx = mlx;
    else if (json_is(config, JSON_OBJECT))
        return read_method(f, config, err);
    return 0;
}

static void read_raw_type(struct checkpoint_files *f)
{
    const struct json *dtype = json_get(f->c.text_config, "torch_dtype");
    if (!json_is(dtype, JSON_STRING))
        dtype = json_get(f->c.text_config, "dtype");
    f->raw_type = json_equals(dtype, "float16")    ? TENSOR_F16
                  : json_equals(dtype, "bfloat16") ? TENSOR_BF16
                                                   : TENSOR_F32;
}

static int parse_config(struct checkpoint_files *f, const char *path, struct strbuf *text,
                        struct error *err)
{
    struct error why = {0};
    if (file_read(path, MAX_CONFIG_BYTES, text, err))
        return -1;
    f->config_hash = hash_bytes(strbuf_str(text), text->len);
    f->c.config = json_parse_file(&f->memory, strbuf_str(text), text->len, &why);
    if (!f->c.config)
        return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT, "%s: %s",
                         path, why.message);
    if (f->c.config->type != JSON_OBJECT)
        return error_set(err, ERROR_FORMAT, "%s: not a JSON object", path);
    return 0;
}

int checkpoint_read_config(struct checkpoint_files *f, struct error *err)
{
    struct strbuf path = STRBUF_INIT, text = STRBUF_INIT;
    strbuf_addf(&path, "%s/config.json", f->c.path);
    int rc = path.failed ? checkpoint_no_memory(&f->c, err)
                         : parse_config(f, strbuf_str(&path), &text, err);
    strbuf_free(&path);
    strbuf_free(&text);
    if (rc || find_text_config(f, err) || read_quantisation(f, err))
        return -1;
    read_raw_type(f);
    return 0;
}
