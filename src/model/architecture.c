/* Finds the row of the table for a checkpoint, and rejects an architecture without one by name; see
 * architecture.h. Any thread. One GGUF architecture may be several rows ("llama" is also Mixtral);
 * a key then tells them apart. */
#include "model/architecture_rows.h"

#include <stdio.h>
#include <string.h>

const struct architecture *architecture_at(size_t i)
{
    return i < n_architecture_rows ? &architecture_rows[i] : NULL;
}

/* Architectures that radish knows but cannot run, under the names of both kinds of file. */
static const char recurrent[] = "has recurrent layers, which radish cannot run yet";
static const char two_parts[] = "is an encoder-decoder, which radish cannot run";
static const char no_text[] = "is an encoder, which does not generate text";
static const char chunked[] = "uses chunked attention, which radish cannot run";
static const char sparse[] = "uses sparse attention, which radish cannot run yet";

static const struct refusal {
    const char *name, *why;
} refusals[] = {
    {"arwkv7", recurrent},
    {"bamba", recurrent},
    {"falcon-h1", recurrent},
    {"falcon_h1", recurrent},
    {"falcon_mamba", recurrent},
    {"jamba", recurrent},
    {"kimi-linear", recurrent},
    {"kimi_linear", recurrent},
    {"lfm2", recurrent},
    {"lfm2_moe", recurrent},
    {"lfm2moe", recurrent},
    {"mamba", recurrent},
    {"mamba2", recurrent},
    {"minimax", recurrent},
    {"minimax-01", recurrent},
    {"nemotron_h", recurrent},
    {"nemotron_h_moe", recurrent},
    {"olmo_hybrid", recurrent},
    {"plamo2", recurrent},
    {"qwen35", recurrent},
    {"qwen35moe", recurrent},
    {"qwen3_5", recurrent},
    {"qwen3_5_moe", recurrent},
    {"qwen3_5_moe_text", recurrent},
    {"qwen3_5_text", recurrent},
    {"qwen3_next", recurrent},
    {"qwen3next", recurrent},
    {"recurrent_gemma", recurrent},
    {"rwkv", recurrent},
    {"rwkv6", recurrent},
    {"rwkv6qwen2", recurrent},
    {"rwkv7", recurrent},
    {"xlstm", recurrent},
    {"zamba", recurrent},
    {"zamba2", recurrent},
    {"bart", two_parts},
    {"longt5", two_parts},
    {"marian", two_parts},
    {"mbart", two_parts},
    {"mt5", two_parts},
    {"pegasus", two_parts},
    {"t5", two_parts},
    {"t5gemma", two_parts},
    {"t5gemma2", two_parts},
    {"umt5", two_parts},
    {"whisper", two_parts},
    {"bert", no_text},
    {"distilbert", no_text},
    {"gemma-embedding", no_text},
    {"modernbert", no_text},
    {"nomic-bert", no_text},
    {"roberta", no_text},
    {"t5encoder", no_text},
    {"xlm-roberta", no_text},
    {"llama4", chunked},
    {"llama4_text", chunked},
    {"deepseek32", sparse},
    {"deepseek_v32", sparse},
    {"glm-dsa", sparse},
    {"glm_moe_dsa", sparse},
};

/* Lists the first name of as many rows as fit, not every spelling. */
static const struct architecture *refuse_name(const struct settings *s, const char *name)
{
    char known[300] = "";
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (strcmp(name, refusals[i].name) == 0) {
            settings_refuse(s, "the architecture \"%s\" %s", name, refusals[i].why);
            return NULL;
        }
    size_t i = 0, len = 0;
    for (; i < n_architecture_rows; i++) {
        const char *row = architecture_rows[i].types[0];
        if (len + strlen(row) + 3 > sizeof known)
            break;
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", row);
    }
    settings_refuse(s, "radish does not support the architecture \"%s\"; it supports: %s%s", name,
                    known, i < n_architecture_rows ? " and others" : "");
    return NULL;
}

static bool has_type(const struct architecture *a, const char *name)
{
    for (size_t i = 0; i < MAX_NAMES && a->types[i]; i++)
        if (strcmp(a->types[i], name) == 0)
            return true;
    return false;
}

static bool has_tensor(const struct checkpoint *c, const char *end)
{
    size_t end_len = strlen(end);
    for (size_t i = 0; i < c->n_tensors; i++) {
        size_t len = strlen(c->tensors[i].name);
        if (len >= end_len && strcmp(c->tensors[i].name + len - end_len, end) == 0)
            return true;
    }
    return false;
}

/* Whether the keys that distinguish rows with the same GGUF name match this row. */
static bool is_meant(const struct settings *s, const struct architecture *a)
{
    uint32_t value = 0;
    struct settings quiet = *s;
    quiet.err = NULL;
    quiet.n_defaults = 0;
    if (setting_u32(&quiet, a->when, OPTIONAL, 0, UINT32_MAX, &value))
        return false;
    if (a->when_tensor && !setting_is_set(s, a->when))
        return has_tensor(s->checkpoint, a->when_tensor);
    return a->when_is ? value == a->when_is : value > 0;
}

static const struct architecture *find_gguf(struct settings *s, const char *name)
{
    const struct architecture *found = NULL;
    for (size_t i = 0; i < n_architecture_rows; i++) {
        const struct architecture *a = &architecture_rows[i];
        if (!a->gguf || strcmp(a->gguf, name) != 0)
            continue;
        s->prefix = a->gguf;
        if (a->has_when ? is_meant(s, a) : !found)
            found = a;
    }
    return found;
}

static const struct architecture *find_config(const char *name)
{
    for (size_t i = 0; i < n_architecture_rows; i++)
        if (has_type(&architecture_rows[i], name))
            return &architecture_rows[i];
    return NULL;
}

struct tensor_names architecture_names(const struct architecture *a, bool is_gguf, enum slot slot)
{
    struct tensor_names own = is_gguf ? (struct tensor_names){a->gguf_names, a->n_gguf_names}
                                      : (struct tensor_names){a->config_names, a->n_config_names};
    for (size_t i = 0; i < own.count; i++)
        if (own.names[i].slot == slot)
            return own;
    return is_gguf ? gguf_names : config_names;
}

const struct architecture *architecture_named(const char *name)
{
    return find_config(name);
}

const struct architecture *architecture_find(struct settings *s)
{
    char name[64];
    const struct architecture *found;
    if (s->checkpoint->kind == CHECKPOINT_GGUF) {
        struct byte_view arch;
        if (!gguf_get_string(s->checkpoint->gguf, "general.architecture", &arch)) {
            settings_refuse(s, "the key general.architecture is missing or not a string");
            return NULL;
        }
        copy_plain(name, sizeof name, arch.bytes, arch.len);
        found = find_gguf(s, name);
    } else {
        const struct json *type = json_get(s->checkpoint->text_config, "model_type");
        if (!type)
            type = json_get(s->checkpoint->config, "model_type");
        if (!json_is(type, JSON_STRING)) {
            settings_refuse(s, "the key model_type of config.json is missing or not a string");
            return NULL;
        }
        copy_plain(name, sizeof name, type->text, type->text_len);
        found = find_config(name);
    }
    if (!found)
        return refuse_name(s, name);
    s->defaults = found->defaults;
    s->n_defaults = found->n_defaults;
    return found;
}

static bool has_default(const struct architecture *a, enum setting id)
{
    for (size_t i = 0; i < a->n_defaults; i++)
        if (a->defaults[i].id == id)
            return true;
    return false;
}

size_t architecture_features(const struct architecture *a, const char *out[MAX_FEATURES])
{
    const struct {
        bool has;
        const char *word;
    } features[] = {
        {a->norm == NORM_LAYER, "layer norm"},
        {a->norms == NORMS_AFTER, "norms after each block"},
        {a->norms == NORMS_BOTH, "norms before and after each block"},
        {a->is_parallel, "parallel blocks"},
        {a->qk_norm == QK_NORM_HEADS, "QK norm"},
        {a->qk_norm == QK_NORM_EACH_HEAD, "QK norm with weights per head"},
        {a->qk_norm == QK_NORM_WHOLE, "QK norm over all heads"},
        {a->norms_values, "value norm"},
        {a->needs_biases, "biases on q, k and v"},
        {a->has_mla, "multi-head latent attention"},
        {a->window == WINDOW_BY_PERIOD, "sliding windows in most layers"},
        {a->window == WINDOW_EVERYWHERE || a->window == WINDOW_FROM_LAYER, "sliding windows"},
        {a->rope == ROPE_NORM && !a->has_mla, "interleaved rope"},
        {has_default(a, SETTING_ROPE_PART), "partial rope"},
        {a->has_local_rope, "a different rope in windows"},
        {a->rope_layers == ROPE_IN_WINDOWS || a->rope_layers == ROPE_BY_INTERVAL,
         "layers without rope"},
        {a->has_temperature, "attention temperature"},
        {a->has_sinks, "attention sinks"},
        {a->shares_keys, "layers that share KV"},
        {has_default(a, SETTING_ATTN_SOFTCAP), "soft caps"},
        {a->attn_scale == ATTN_SCALE_FACTOR, "scale factors"},
        {has_default(a, SETTING_LOGIT_SCALE), "logit scale"},
        {a->scales_embd, "scaled embeddings"},
        {a->activation == ACTIVATION_GELU_TANH, "GELU"},
        {a->activation == ACTIVATION_SWIGLU_OAI, "clamped SwiGLU"},
        {a->experts != EXPERTS_NONE, "experts"},
        {a->scores == ROUTER_SIGMOID, "sigmoid scores"},
        {a->groups_are_named || a->groups == GROUPS_BY_TOP2, "groups of experts"},
        {a->gates_shared, "gated shared expert"},
        {a->has_layer_inputs, "per-layer embeddings"},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].has)
            out[n++] = features[i].word;
    return n;
}
