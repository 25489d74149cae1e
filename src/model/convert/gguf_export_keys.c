/* The keys of a GGUF file for a model from a directory; see gguf_export.h. Used by the thread that
 * writes. Values that follow from the architecture's row or its GGUF defaults are written only if
 * llama.cpp's converter writes them too; readers know them from the architecture's name. */
#include "model/convert/gguf_export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"
#include "model/rope_scaling.h"

struct keys {
    struct gguf_writer *head;
    const struct hparams *h;
    const struct architecture *a;
    const char *prefix;
    struct settings settings; /* of the directory */
};

struct key_name {
    char text[128];
};

static struct key_name key_name(const struct keys *k, const char *key)
{
    struct key_name n;
    snprintf(n.text, sizeof n.text, "%s.%s", k->prefix, key);
    return n;
}

static void add_u32(const struct keys *k, enum setting id, uint32_t value)
{
    gguf_add_u32(k->head, key_name(k, setting_gguf_key(id)).text, value);
}

static void add_f32(const struct keys *k, enum setting id, double value)
{
    gguf_add_f32(k->head, key_name(k, setting_gguf_key(id)).text, (float)value);
}

static void add_bool(const struct keys *k, enum setting id, bool value)
{
    gguf_add_bool(k->head, key_name(k, setting_gguf_key(id)).text, value);
}

static void add_text(const struct keys *k, enum setting id, const char *value)
{
    gguf_add_string(k->head, key_name(k, setting_gguf_key(id)).text, value, strlen(value));
}

/* The value that a reader uses if the key is missing. */
static double gguf_default(const struct keys *k, enum setting id, double otherwise)
{
    for (size_t i = 0; i < k->a->n_defaults; i++)
        if (k->a->defaults[i].id == id && !isnan(k->a->defaults[i].gguf))
            return k->a->defaults[i].gguf;
    return otherwise;
}

static void add_unless(const struct keys *k, enum setting id, double value, double otherwise)
{
    if (value != gguf_default(k, id, otherwise))
        add_f32(k, id, value);
}

/* A number for all layers, or a list if they differ. */
static void add_layers(const struct keys *k, enum setting id, const uint32_t *values)
{
    uint32_t n = k->h->n_layers, i = 1;
    while (i < n && values[i] == values[0])
        i++;
    if (i == n)
        add_u32(k, id, values[0]);
    else
        gguf_add_array(k->head, key_name(k, setting_gguf_key(id)).text, GGUF_U32, values, n);
}

static int add_sizes(const struct keys *k)
{
    const struct hparams *h = k->h;
    uint32_t context = h->n_context, ff = 0, values[MAX_LAYERS];
    if (setting_u32(&k->settings, SETTING_CONTEXT, OPTIONAL, 1, MAX_CONTEXT, &context))
        return -1;
    add_u32(k, SETTING_LAYERS, h->n_layers);
    add_u32(k, SETTING_CONTEXT, context);
    add_u32(k, SETTING_EMBD, h->n_embd);
    add_u32(k, SETTING_VOCAB, h->n_vocab);
    add_f32(k, h->norm == NORM_LAYER ? SETTING_LAYER_NORM_EPS : SETTING_NORM_EPS, h->norm_eps);
    if (setting_count(&k->settings, SETTING_FF) == 0 &&
        setting_u32(&k->settings, SETTING_FF, OPTIONAL, 1, MAX_WIDTH, &ff))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++) { /* not used by layers with experts */
        values[i] = ff ? ff : h->router.n_ff;
        for (uint32_t j = 0; j < h->n_layers && !h->layers[i].n_ff; j++)
            values[i] = h->layers[j].n_ff ? h->layers[j].n_ff : values[i];
        values[i] = h->layers[i].n_ff ? h->layers[i].n_ff : values[i];
    }
    add_layers(k, SETTING_FF, values);
    return 0;
}

/* The first layer of a kind, or NULL. */
static const struct layer_shape *layer_of(const struct hparams *h, bool is_windowed)
{
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (h->layers[i].is_windowed == is_windowed)
            return &h->layers[i];
    return NULL;
}

static void add_heads(const struct keys *k)
{
    const struct hparams *h = k->h;
    const struct mla_shape *mla = &h->mla;
    const struct layer_shape *full = layer_of(h, false), *windowed = layer_of(h, true);
    uint32_t heads[MAX_LAYERS] = {0}, kv_heads[MAX_LAYERS] = {0};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        heads[i] = h->layers[i].n_heads;
        kv_heads[i] = h->layers[i].n_kv_heads;
    }
    add_layers(k, SETTING_HEADS, heads);
    add_layers(k, SETTING_KV_HEADS, kv_heads);
    full = full ? full : &h->layers[0];
    add_u32(k, SETTING_HEAD_DIM, full->key_dim);
    add_u32(k, SETTING_VALUE_DIM, full->value_dim);
    if (windowed && (windowed->key_dim != full->key_dim || k->a->has_layer_inputs)) {
        add_u32(k, SETTING_WINDOW_HEAD_DIM, windowed->key_dim);
        gguf_add_u32(k->head, key_name(k, "attention.value_length_swa").text, windowed->value_dim);
    }
    if (mla->kv_rank == 0)
        return;
    if (mla->q_rank)
        add_u32(k, SETTING_Q_RANK, mla->q_rank);
    add_u32(k, SETTING_KV_RANK, mla->kv_rank);
    add_u32(k, SETTING_MLA_KEY_DIM, mla->nope_dim + mla->rope_dim);
    add_u32(k, SETTING_MLA_VALUE_DIM, mla->value_dim);
}

static int add_windows(const struct keys *k)
{
    const struct hparams *h = k->h;
    uint32_t window = 0, period = k->a->window_period;
    uint8_t pattern[MAX_LAYERS];
    bool is_usual = !k->a->ends_full;
    if (!layer_of(h, true))
        return 0;
    if (setting_u32(&k->settings, SETTING_WINDOW, OPTIONAL, 0, UINT32_MAX, &window))
        return -1;
    add_u32(k, SETTING_WINDOW, window);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool expected = k->a->window == WINDOW_BY_PERIOD ? (i + 1) % period != 0 : true;
        pattern[i] = h->layers[i].is_windowed;
        is_usual = is_usual && pattern[i] == expected;
    }
    if (!is_usual)
        gguf_add_array(k->head, key_name(k, setting_gguf_key(SETTING_WINDOW_PATTERN)).text,
                       GGUF_BOOL, pattern, h->n_layers);
    return 0;
}

/* YaRN's logarithm and amplitude, as read_gguf_yarn in model_rope.c reads them. */
static void add_yarn(const struct keys *k, const struct rope *rope)
{
    const struct rope_spec *spec = rope->spec;
    double all = spec->mscale_all_dim, amplitude = yarn_mscale(spec->factor, 1);
    add_f32(k, SETTING_ROPE_BETA_FAST, spec->beta_fast);
    add_f32(k, SETTING_ROPE_BETA_SLOW, spec->beta_slow);
    if (all > 0) {
        add_f32(k, SETTING_ROPE_LOG_MULTIPLIER, k->a->has_mla ? all / 10 : all);
        amplitude = yarn_mscale(spec->factor, k->a->has_mla ? all : 1) /
                    yarn_mscale(spec->factor, all);
    }
    if (fabs(rope->amplitude / amplitude - 1) > 1e-6)
        add_f32(k, SETTING_ROPE_AMPLITUDE, rope->amplitude / amplitude);
}

static void add_scaling(const struct keys *k, const struct rope *rope, uint32_t trained)
{
    const struct rope_spec *spec = rope->spec;
    bool is_stretched = k->h->n_context != trained;
    if (spec->scaling == ROPE_SCALING_LINEAR || spec->scaling == ROPE_SCALING_YARN) {
        add_text(k, SETTING_ROPE_TYPE, spec->scaling == ROPE_SCALING_YARN ? "yarn" : "linear");
        add_f32(k, SETTING_ROPE_FACTOR, spec->factor);
    }
    if (spec->scaling == ROPE_SCALING_LONG ||
        (spec->scaling == ROPE_SCALING_YARN && (spec->original != trained || is_stretched)))
        add_u32(k, SETTING_ROPE_ORIGINAL, (uint32_t)spec->original);
    if (spec->scaling == ROPE_SCALING_YARN)
        add_yarn(k, rope);
    if (spec->scaling == ROPE_SCALING_LONG)
        add_f32(k, SETTING_ROPE_AMPLITUDE, rope->amplitude);
}

static int add_ropes(const struct keys *k)
{
    const struct hparams *h = k->h;
    const struct rope *rope = NULL, *local = NULL;
    uint32_t trained = h->n_context;
    if (setting_u32(&k->settings, SETTING_CONTEXT, OPTIONAL, 1, MAX_CONTEXT, &trained))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool is_local = h->layers[i].is_windowed && k->a->has_local_rope;
        const struct rope **of = is_local ? &local : &rope;
        if (!*of && h->layers[i].rope != ROPE_NONE)
            *of = &h->ropes[h->layers[i].rope];
    }
    if (k->a->rope_layers == ROPE_BY_SWITCH)
        add_bool(k, SETTING_ROPE_SWITCH, rope != NULL);
    if (local) {
        add_f32(k, SETTING_ROPE_LOCAL_BASE, local->spec->base);
        if (!rope || local->dim != rope->dim || k->a->has_layer_inputs)
            add_u32(k, SETTING_ROPE_LOCAL_DIM, local->dim);
    }
    rope = rope ? rope : local;
    if (rope) {
        add_f32(k, SETTING_ROPE_BASE, rope->spec->base);
        add_u32(k, SETTING_ROPE_DIM, rope->dim);
        add_scaling(k, rope, trained);
    }
    if (h->temperature_scale != 0) {
        add_f32(k, SETTING_TEMPERATURE, h->temperature_scale);
        add_u32(k, SETTING_TEMPERATURE_LENGTH, h->temperature_length);
    }
    return 0;
}

static int add_scales(const struct keys *k)
{
    const struct hparams *h = k->h;
    const struct layer_shape *layer = &h->layers[0];
    bool is_wide = h->n_layers == k->a->wide_scale_layers;
    double logit_scale = NAN;
    float usual = 1 / sqrtf((float)(is_wide ? h->n_embd / layer->n_heads : layer->key_dim));
    if (setting_number(&k->settings, SETTING_LOGIT_SCALE, &logit_scale))
        return -1;
    if (!isnan(logit_scale)) /* as in the file: some models divide by it */
        add_f32(k, SETTING_LOGIT_SCALE, logit_scale);
    if (!k->a->scales_embd)
        add_unless(k, SETTING_EMBD_SCALE, h->embd_scale, 1);
    add_unless(k, SETTING_RESIDUAL_SCALE, h->residual_scale, 1);
    if (k->a->attn_scale == ATTN_SCALE_FACTOR ||
        (k->a->attn_scale == ATTN_SCALE_SCALAR && layer->attn_scale != usual))
        add_f32(k, SETTING_ATTN_SCALE, layer->attn_scale);
    if (h->attn_softcap > 0 || gguf_default(k, SETTING_ATTN_SOFTCAP, 0) > 0)
        add_f32(k, SETTING_ATTN_SOFTCAP, h->attn_softcap);
    if (h->logit_softcap > 0 || gguf_default(k, SETTING_LOGIT_SOFTCAP, 0) > 0)
        add_f32(k, SETTING_LOGIT_SOFTCAP, h->logit_softcap);
    return 0;
}

static int add_experts(const struct keys *k)
{
    static const uint32_t numbers[] = {
        [ROUTER_SOFTMAX] = 1, [ROUTER_SIGMOID] = 2, [ROUTER_SOFTMAX_CHOSEN] = 3};
    const struct hparams *h = k->h;
    const struct router *router = &h->router;
    uint32_t n_dense = 0, n_shared = 0;
    if (router->n_experts == 0)
        return 0;
    if (setting_u32(&k->settings, SETTING_SHARED_EXPERTS, OPTIONAL, 0, MAX_EXPERTS, &n_shared))
        return -1;
    while (n_dense < h->n_layers && !h->layers[n_dense].has_experts)
        n_dense++;
    add_u32(k, SETTING_EXPERTS, router->n_experts);
    add_u32(k, SETTING_EXPERTS_CHOSEN, router->n_chosen);
    add_u32(k, SETTING_EXPERT_FF, router->n_ff);
    if (n_shared)
        add_u32(k, SETTING_SHARED_EXPERTS, n_shared);
    else if (router->n_ff_shared)
        add_u32(k, SETTING_SHARED_FF, router->n_ff_shared);
    if (router->n_groups > 1) {
        add_u32(k, SETTING_EXPERT_GROUPS, router->n_groups);
        add_u32(k, SETTING_EXPERT_GROUPS_CHOSEN, router->n_chosen_groups);
    }
    if (k->a->scores != ROUTER_SOFTMAX_CHOSEN)
        add_u32(k, SETTING_EXPERT_SCORES, numbers[router->scores]);
    if (router->normalizes != (gguf_default(k, SETTING_EXPERT_NORMALIZES, 0) != 0))
        add_bool(k, SETTING_EXPERT_NORMALIZES, router->normalizes);
    add_unless(k, SETTING_EXPERT_SCALE, router->scale, 1);
    if (n_dense > 0 || k->a->has_mla)
        add_u32(k, SETTING_DENSE_LAYERS, n_dense);
    return 0;
}

static void add_inputs(const struct keys *k)
{
    uint32_t n_shared = 0;
    for (uint32_t i = 0; i < k->h->n_layers; i++)
        n_shared += k->h->layers[i].kv_layer != i;
    if (!k->a->has_layer_inputs)
        return;
    add_u32(k, SETTING_LAYER_INPUT, k->h->n_embd_layer);
    add_u32(k, SETTING_KV_SHARED, n_shared);
}

int gguf_export_keys(const struct model *m, const struct architecture *a, struct gguf_writer *head,
                     struct error *err)
{
    struct keys k = {head, &m->hparams, a, NULL, {.checkpoint = m->checkpoint, .err = err}};
    k.settings.defaults = a->defaults;
    k.settings.n_defaults = a->n_defaults;
    k.prefix = a->written_as[m->hparams.router.n_experts > 0];
    k.prefix = k.prefix ? k.prefix : a->gguf;
    if (!k.prefix)
        return settings_refuse(&k.settings, "the architecture %s has no name in GGUF", a->types[0]);
    gguf_add_string(head, "general.architecture", k.prefix, strlen(k.prefix));
    gguf_add_string(head, "general.type", "model", 5);
    gguf_add_string(head, "general.name", m->hparams.name, strlen(m->hparams.name));
    if (add_sizes(&k))
        return -1;
    add_heads(&k);
    add_inputs(&k);
    return add_windows(&k) || add_ropes(&k) || add_scales(&k) || add_experts(&k) ? -1 : 0;
}
