/* From settings to hyperparameters, layer by layer; see model.h. Used by the thread that loads.
 * Whether a layer is of the windowed kind, and whether its window hides anything, are two
 * different questions; rope and head sizes depend on the first. */
#include "model/model_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rejects keys of config.json that would change the computation in a way that radish does not
 * support. */
static int refuse_features(const struct loader *l)
{
    static const struct {
        const char *key, *except; /* refused unless null, false, 0, or this string */
        const char *what;
    } features[] = {
        {"attention_chunk_size", NULL, "attention in chunks"},
        {"alibi", NULL, "ALiBi"},
        {"clip_qkv", NULL, "clipped queries, keys and values"},
        {"is_encoder_decoder", NULL, "an encoder and a decoder"},
        {"normalization_function", "rmsnorm", "another normalization"},
        {"use_bidirectional_attention", "vision", "attention to later positions"},
    };
    if (is_gguf(l)) {
        const struct gguf_value *causal;
        char key[96];
        snprintf(key, sizeof key, "%s.attention.causal", l->settings.prefix);
        causal = gguf_find(l->m->checkpoint->gguf, key);
        if (causal && causal->type == GGUF_BOOL && !*(const uint8_t *)causal->data)
            return refuse(l, "%s is false: attention to later positions, which radish cannot run",
                          key);
        return 0;
    }
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const struct json *v = json_get(l->m->checkpoint->text_config, features[i].key);
        bool is_off = !v || v->type == JSON_NULL || (v->type == JSON_BOOL && !v->boolean) ||
                      (v->type == JSON_NUMBER && v->number == 0) ||
                      (features[i].except && json_equals(v, features[i].except));
        if (!is_off)
            return refuse(l, "the key %s of config.json asks for %s, which radish cannot run",
                          features[i].key, features[i].what);
    }
    const struct json *causal = json_get(l->m->checkpoint->text_config, "is_causal");
    if (json_is(causal, JSON_BOOL) && !causal->boolean)
        return refuse(l, "is_causal is false: attention to later positions, which radish cannot "
                         "run");
    return 0;
}

static int read_activation(struct loader *l)
{
    static const struct {
        const char *name;
        enum activation activation;
    } names[] = {
        {"silu", ACTIVATION_SILU},
        {"swish", ACTIVATION_SILU},
        {"gelu", ACTIVATION_GELU},
        {"gelu_new", ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
    };
    struct hparams *h = &l->m->hparams;
    char name[48] = "";
    double alpha = 1.702;
    h->activation = l->arch->activation;
    if (setting_text(&l->settings, SETTING_ACTIVATION, name, sizeof name))
        return -1;
    if (h->activation == ACTIVATION_SWIGLU_OAI) {
        if (setting_number(&l->settings, SETTING_SWIGLU_ALPHA, &alpha) ||
            setting_positive(&l->settings, SETTING_SWIGLU_LIMIT, OPTIONAL, &h->activation_limit))
            return -1;
        return fabs(alpha - 1.702) < 1e-6
                   ? 0
                   : refuse(l, "swiglu_alpha is %g; radish supports only 1.702", alpha);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) {
            h->activation = names[i].activation;
            if (h->activation == ACTIVATION_GELU && l->arch->gelu_is_tanh)
                h->activation = ACTIVATION_GELU_TANH;
            return 0;
        }
    return name[0] ? refuse(l, "%s is \"%s\"; radish supports silu, gelu and gelu_pytorch_tanh",
                            setting_name(&l->settings, SETTING_ACTIVATION).text, name)
                   : 0;
}

static int read_scales(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct hparams *h = &l->m->hparams;
    double attn_cap = 0, logit_cap = 0;
    h->embd_scale = h->residual_scale = h->logit_scale = 1;
    if (setting_positive(s, SETTING_EMBD_SCALE, OPTIONAL, &h->embd_scale) ||
        setting_positive(s, SETTING_RESIDUAL_SCALE, OPTIONAL, &h->residual_scale) ||
        setting_positive(s, SETTING_LOGIT_SCALE, OPTIONAL, &h->logit_scale) ||
        setting_number(s, SETTING_ATTN_SOFTCAP, &attn_cap) ||
        setting_number(s, SETTING_LOGIT_SOFTCAP, &logit_cap))
        return -1;
    if (attn_cap < 0 || logit_cap < 0)
        return refuse(
            l, "%s is %g, which is below 0",
            setting_name(s, attn_cap < 0 ? SETTING_ATTN_SOFTCAP : SETTING_LOGIT_SOFTCAP).text,
            attn_cap < 0 ? attn_cap : logit_cap);
    h->attn_softcap = (float)attn_cap;
    h->logit_softcap = (float)logit_cap;
    if (l->arch->scales_embd)
        h->embd_scale = sqrtf((float)h->n_embd);
    if (l->arch->divides_logits)
        h->logit_scale = 1 / h->logit_scale;
    return 0;
}

/* The kind of a layer by its name in layer_types. */
static int read_layer_type(struct loader *l, uint32_t i, bool *is_windowed)
{
    static const char *const recurrent[] = {
        "linear_attention", "mamba", "mamba2", "recurrent", "conv", "gdn", "ssm"};
    char type[48];
    if (setting_item_text(&l->settings, SETTING_LAYER_TYPES, i, type, sizeof type))
        return -1;
    *is_windowed = strcmp(type, "sliding_attention") == 0;
    if (*is_windowed || strcmp(type, "full_attention") == 0 || strcmp(type, "attention") == 0)
        return 0;
    for (size_t r = 0; r < sizeof recurrent / sizeof *recurrent; r++)
        if (strcmp(type, recurrent[r]) == 0)
            return refuse(l,
                          "layer %" PRIu32 " is \"%s\": it has recurrent layers, which radish "
                          "cannot run yet",
                          i, type);
    return refuse(l, "layer %" PRIu32 " is \"%s\", which radish does not support", i, type);
}

/* A list of zeros and ones, a string of Ls and Gs, or a period; if the file has none, the row's
 * period. */
static int read_window_pattern(struct loader *l, uint32_t i, bool *is_windowed)
{
    const struct settings *s = &l->settings;
    uint32_t period = l->arch->window_period, flag = 0;
    char letters[64] = "";
    if (setting_count(s, SETTING_WINDOW_PATTERN) > 0) {
        if (setting_item_u32(s, SETTING_WINDOW_PATTERN, i, 0, 1, &flag))
            return -1;
        *is_windowed = flag;
        return 0;
    }
    const struct json *v = is_gguf(l) ? NULL
                                      : json_get(l->m->checkpoint->text_config,
                                                 setting_name(s, SETTING_WINDOW_PATTERN).text);
    if (json_is(v, JSON_STRING)) {
        if (setting_text(s, SETTING_WINDOW_PATTERN, letters, sizeof letters))
            return -1;
        size_t n = strlen(letters);
        if (n == 0 || strspn(letters, "LG") != n)
            return refuse(l, "sliding_window_pattern is \"%s\"; expected only L and G", letters);
        *is_windowed = letters[i % n] == 'L';
        return 0;
    }
    if (setting_u32(s, SETTING_WINDOW_PATTERN, OPTIONAL, 0, MAX_LAYERS, &period))
        return -1;
    *is_windowed = period == 0 ? is_gguf(l) : (i + 1) % period != 0;
    return 0;
}

static int read_window_kind(struct loader *l, uint32_t i, bool *is_windowed)
{
    uint32_t from = 0;
    if (is_gguf(l) && setting_count(&l->settings, SETTING_WINDOW_PATTERN) > 0)
        return read_window_pattern(l, i, is_windowed);
    switch (l->arch->window) {
    case WINDOW_NOWHERE: *is_windowed = false; return 0;
    case WINDOW_EVERYWHERE: *is_windowed = true; return 0;
    case WINDOW_BY_PERIOD: return read_window_pattern(l, i, is_windowed);
    case WINDOW_FROM_LAYER:
        if (setting_u32(&l->settings, SETTING_WINDOW_FROM, OPTIONAL, 0, UINT32_MAX, &from))
            return -1;
        *is_windowed = i >= from;
        return 0;
    }
    return 0;
}

/* A list has one item per layer; some also count prediction layers (MTP). */
static int check_count(const struct loader *l, enum setting id)
{
    size_t n = setting_count(&l->settings, id), n_layers = l->m->hparams.n_layers;
    if (n == 0 || n == n_layers || n == n_layers + l->n_prediction_layers)
        return 0;
    return refuse(l, "%s has %zu items for %zu layers", setting_name(&l->settings, id).text, n,
                  n_layers);
}

static int read_windows(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct hparams *h = &l->m->hparams;
    uint32_t window = 0;
    bool is_on = true, has_types = setting_count(s, SETTING_LAYER_TYPES) > 0;
    if (setting_u32(s, SETTING_WINDOW, OPTIONAL, 0, UINT32_MAX, &window) ||
        setting_bool(s, SETTING_WINDOW_SWITCH, &is_on) || check_count(l, SETTING_LAYER_TYPES) ||
        check_count(l, SETTING_WINDOW_PATTERN))
        return -1;
    if (l->arch->needs_layer_types && !is_gguf(l) && !has_types)
        return refuse(l, "the key layer_types is missing, so its layers are recurrent, which "
                         "radish cannot run yet");
    for (uint32_t i = 0; i < h->n_layers; i++) {
        bool is_windowed = false;
        if (has_types ? read_layer_type(l, i, &is_windowed) : read_window_kind(l, i, &is_windowed))
            return -1;
        if (l->arch->ends_full && i + 1 == h->n_layers)
            is_windowed = false;
        is_windowed = is_windowed && is_on && window > 0;
        h->layers[i].is_windowed = is_windowed;
        h->layers[i].window = is_windowed ? window : 0;
        l->has_windows |= is_windowed;
    }
    return 0;
}

/* Reads layers that differ from the rest, by their number in an object. */
static int read_layer_overrides(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    const struct json *object;
    if (setting_object(&l->settings, SETTING_PER_LAYER, &object))
        return -1;
    if (!object)
        return 0;
    json_each (layer, object) {
        char *end, name[96];
        unsigned long i = strtoul(layer->key, &end, 10);
        snprintf(name, sizeof name, "per_layer_config.%.16s", layer->key);
        if (end == layer->key || *end || i >= h->n_layers || layer->type != JSON_OBJECT)
            return refuse(l, "%s is not an object for one of %" PRIu32 " layers", name,
                          h->n_layers);
        struct layer_shape *shape = &h->layers[i];
        struct setting_member at = {layer, name};
        json_each (member, layer)
            if (strcmp(member->key, "head_dim") != 0 &&
                strcmp(member->key, "num_key_value_heads") != 0)
                return refuse(l, "%s.%.40s is an override that radish does not support", name,
                              member->key);
        if (member_u32(&l->settings, at, "head_dim", 1, MAX_WIDTH, &shape->key_dim) ||
            member_u32(&l->settings, at, "num_key_value_heads", 1, MAX_HEADS, &shape->n_kv_heads))
            return -1;
    }
    return 0;
}

/* The size of a head, which depends on the kind of layer and of file. */
static int read_head_dim(struct loader *l, uint32_t i)
{
    const struct settings *s = &l->settings;
    struct layer_shape *shape = &l->m->hparams.layers[i];
    uint32_t n_embd = l->m->hparams.n_embd;
    shape->key_dim = n_embd / shape->n_heads;
    if (setting_u32(s, SETTING_HEAD_DIM, OPTIONAL, 1, MAX_WIDTH, &shape->key_dim))
        return -1;
    bool is_derived = shape->key_dim == n_embd / shape->n_heads &&
                      !setting_is_set(s, SETTING_HEAD_DIM);
    if (is_derived && n_embd % shape->n_heads)
        return refuse(l,
                      "an embedding of %" PRIu32 " is not a multiple of %" PRIu32
                      " heads, and %s is missing",
                      n_embd, shape->n_heads, setting_name(s, SETTING_HEAD_DIM).text);
    if (shape->is_windowed)
        return setting_u32(s, SETTING_WINDOW_HEAD_DIM, OPTIONAL, 1, MAX_WIDTH, &shape->key_dim);
    if (setting_is_set(s, SETTING_PER_LAYER))
        return 0;
    bool shares = false;
    if (setting_bool(s, SETTING_VALUES_ARE_KEYS, &shares) ||
        setting_u32(s, SETTING_GLOBAL_HEAD_DIM, OPTIONAL, 1, MAX_WIDTH, &shape->key_dim))
        return -1;
    return shares
               ? setting_u32(s, SETTING_GLOBAL_KV_HEADS, OPTIONAL, 1, MAX_HEADS, &shape->n_kv_heads)
               : 0;
}

static int check_sharing(const struct loader *l, const struct layer_shape *shape)
{
    return shape->n_heads % shape->n_kv_heads == 0
               ? 0
               : refuse(l, "%" PRIu32 " heads cannot share %" PRIu32 " key-value heads",
                        shape->n_heads, shape->n_kv_heads);
}

static int read_heads(struct loader *l, uint32_t i)
{
    const struct settings *s = &l->settings;
    struct layer_shape *shape = &l->m->hparams.layers[i];
    if (setting_count(s, SETTING_HEADS) > 0
            ? setting_item_u32(s, SETTING_HEADS, i, 1, MAX_HEADS, &shape->n_heads)
            : setting_u32(s, SETTING_HEADS, REQUIRED, 1, MAX_HEADS, &shape->n_heads))
        return -1;
    shape->n_kv_heads = shape->n_heads;
    if (setting_count(s, SETTING_KV_HEADS) > 0) {
        if (setting_item_u32(s, SETTING_KV_HEADS, i, 0, MAX_HEADS, &shape->n_kv_heads))
            return -1;
        if (shape->n_kv_heads == 0)
            return refuse(l,
                          "layer %" PRIu32 " has no key-value heads: it has recurrent layers, "
                          "which radish cannot run yet",
                          i);
    } else if (setting_u32(s, SETTING_KV_HEADS, OPTIONAL, 1, MAX_HEADS, &shape->n_kv_heads)) {
        return -1;
    }
    return check_sharing(l, shape) || read_head_dim(l, i) ? -1 : 0;
}

static int check_heads(const struct loader *l, uint32_t i)
{
    const struct layer_shape *shape = &l->m->hparams.layers[i];
    uint32_t value_dim = shape->key_dim;
    if (check_sharing(l, shape))
        return -1;
    if (!shape->is_windowed &&
        setting_u32(&l->settings, SETTING_VALUE_DIM, OPTIONAL, 1, MAX_WIDTH, &value_dim))
        return -1;
    if (value_dim != shape->key_dim)
        return refuse(l,
                      "keys of %" PRIu32 " and values of %" PRIu32
                      " differ in length, which radish cannot run",
                      shape->key_dim, value_dim);
    if ((uint64_t)shape->n_heads * shape->key_dim > MAX_WIDTH)
        return refuse(l, "%" PRIu32 " heads of %" PRIu32 " are wider than %d", shape->n_heads,
                      shape->key_dim, MAX_WIDTH);
    return 0;
}

/* Reads the sizes of multi-head latent attention. Old GGUF files have the sizes of heads in the
 * keys where new ones have those of the latent. */
static int read_mla(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct mla_shape *mla = &l->m->hparams.mla;
    uint32_t key_dim = 0;
    if (!l->arch->has_mla)
        return 0;
    if (setting_u32(s, SETTING_KV_RANK, REQUIRED, 1, MAX_WIDTH, &mla->kv_rank) ||
        setting_u32(s, SETTING_Q_RANK, OPTIONAL, 1, MAX_WIDTH, &mla->q_rank) ||
        setting_u32(s, SETTING_MLA_ROPE_DIM, REQUIRED, 1, MAX_WIDTH, &mla->rope_dim))
        return -1;
    mla->norm_eps = 1e-6f; /* of latents, whatever the model's own is */
    if (!is_gguf(l))
        return setting_u32(s, SETTING_NOPE_DIM, REQUIRED, 1, MAX_WIDTH, &mla->nope_dim) ||
                       setting_u32(s, SETTING_MLA_VALUE_DIM, REQUIRED, 1, MAX_WIDTH,
                                   &mla->value_dim)
                   ? -1
                   : 0;
    bool is_new = setting_is_set(s, SETTING_MLA_KEY_DIM);
    if (setting_u32(s, is_new ? SETTING_MLA_KEY_DIM : SETTING_HEAD_DIM, REQUIRED, 1, MAX_WIDTH,
                    &key_dim) ||
        setting_u32(s, is_new ? SETTING_MLA_VALUE_DIM : SETTING_VALUE_DIM, REQUIRED, 1, MAX_WIDTH,
                    &mla->value_dim))
        return -1;
    if (key_dim <= mla->rope_dim)
        return refuse(l, "keys of %" PRIu32 " leave nothing beside the %" PRIu32 " that are turned",
                      key_dim, mla->rope_dim);
    mla->nope_dim = key_dim - mla->rope_dim;
    return 0;
}

/* Attention as computed in the latent space: one KV head, whose values are the first part of the
 * keys. */
static int read_latent_heads(struct loader *l, uint32_t i)
{
    const struct mla_shape *mla = &l->m->hparams.mla;
    struct layer_shape *shape = &l->m->hparams.layers[i];
    if (setting_u32(&l->settings, SETTING_HEADS, REQUIRED, 1, MAX_HEADS, &shape->n_heads))
        return -1;
    shape->n_kv_heads = 1;
    shape->key_dim = mla->kv_rank + mla->rope_dim;
    shape->value_dim = mla->kv_rank;
    shape->attn_scale = 1 / sqrtf((float)(mla->nope_dim + mla->rope_dim));
    uint64_t widest = (uint64_t)mla->nope_dim + mla->rope_dim;
    widest = widest > shape->key_dim ? widest : shape->key_dim;
    widest = widest > mla->value_dim ? widest : mla->value_dim;
    if (shape->n_heads * widest > MAX_WIDTH)
        return refuse(l, "%" PRIu32 " heads of %" PRIu64 " are wider than %d", shape->n_heads,
                      widest, MAX_WIDTH);
    return 0;
}

static int read_attn_scale(struct loader *l, struct layer_shape *shape)
{
    const struct settings *s = &l->settings;
    const struct hparams *h = &l->m->hparams;
    float scalar = (float)shape->key_dim;
    shape->attn_scale = 1 / sqrtf(scalar);
    switch (l->arch->attn_scale) {
    case ATTN_SCALE_HEAD: return 0;
    case ATTN_SCALE_ONE: shape->attn_scale = 1; return 0;
    case ATTN_SCALE_FACTOR:
        return setting_positive(s, SETTING_ATTN_SCALE, OPTIONAL, &shape->attn_scale);
    case ATTN_SCALE_SCALAR:
        if (is_gguf(l) && h->n_layers == l->arch->wide_scale_layers)
            scalar = (float)(h->n_embd / shape->n_heads);
        if (setting_positive(s, SETTING_ATTN_SCALAR, OPTIONAL, &scalar))
            return -1;
        shape->attn_scale = 1 / sqrtf(scalar);
        return is_gguf(l) ? setting_positive(s, SETTING_ATTN_SCALE, OPTIONAL, &shape->attn_scale)
                          : 0;
    }
    return 0;
}

/* The last layers may read the keys and values of the last earlier layer of their kind. */
static int read_shared_kv(struct loader *l, uint32_t *first)
{
    struct hparams *h = &l->m->hparams;
    uint32_t n_shared = 0;
    if (setting_u32(&l->settings, SETTING_KV_SHARED, OPTIONAL, 0, h->n_layers - 1, &n_shared))
        return -1;
    *first = h->n_layers - n_shared;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        uint32_t from = i < *first ? i : *first;
        while (i >= *first && from > 0 &&
               h->layers[from - 1].is_windowed != h->layers[i].is_windowed)
            from--;
        if (i >= *first && from == 0)
            return refuse(l,
                          "layer %" PRIu32 " shares keys and values, but no layer of its kind "
                          "has any",
                          i);
        h->layers[i].kv_layer = i < *first ? i : from - 1;
    }
    return 0;
}

static int check_shared_kv(const struct loader *l, uint32_t i)
{
    const struct layer_shape *own = &l->m->hparams.layers[i];
    const struct layer_shape *from = &l->m->hparams.layers[own->kv_layer];
    if (own->n_kv_heads == from->n_kv_heads && own->key_dim == from->key_dim)
        return 0;
    return refuse(l,
                  "layer %" PRIu32 " shares keys and values of layer %" PRIu32
                  ", which has heads of another size or number",
                  i, own->kv_layer);
}

static int read_ff(struct loader *l, uint32_t i, uint32_t first_shared)
{
    const struct settings *s = &l->settings;
    const struct router *router = &l->m->hparams.router;
    struct layer_shape *shape = &l->m->hparams.layers[i];
    bool is_double = false;
    if (setting_count(s, SETTING_FF) > 0
            ? setting_item_u32(s, SETTING_FF, i, 1, MAX_WIDTH, &shape->n_ff)
            : setting_u32(s, SETTING_FF, REQUIRED, 1, MAX_WIDTH, &shape->n_ff))
        return -1;
    if (setting_bool(s, SETTING_DOUBLE_WIDE, &is_double) ||
        read_layer_experts(l, i, &shape->has_experts))
        return -1;
    if (is_double && i >= first_shared)
        shape->n_ff *= 2;
    if (l->arch->shared_is_dense && router->n_experts == 0 && !is_gguf(l) &&
        setting_u32(s, SETTING_SHARED_FF, OPTIONAL, 1, MAX_WIDTH, &shape->n_ff))
        return -1;
    if (shape->has_experts && l->arch->experts == EXPERTS_INSTEAD)
        shape->n_ff = 0;
    return 0;
}

static int read_layers(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    bool shares = false;
    uint32_t first_shared;
    if (check_count(l, SETTING_HEADS) || check_count(l, SETTING_KV_HEADS) ||
        check_count(l, SETTING_FF) || read_shared_kv(l, &first_shared) ||
        setting_bool(&l->settings, SETTING_VALUES_ARE_KEYS, &shares))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (l->arch->has_mla ? read_latent_heads(l, i) : read_heads(l, i))
            return -1;
    if (read_layer_overrides(l))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_shape *shape = &h->layers[i];
        if (!l->arch->has_mla) {
            if (check_heads(l, i) || read_attn_scale(l, shape))
                return -1;
            shape->value_dim = shape->key_dim;
        }
        shape->norms_values = l->arch->norms_values;
        shape->values_are_keys = l->arch->shares_keys && shares && !shape->is_windowed;
        if (check_shared_kv(l, i) || read_ff(l, i, first_shared))
            return -1;
    }
    return 0;
}

static int read_sizes(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct hparams *h = &l->m->hparams;
    enum setting eps = l->arch->norm == NORM_LAYER ? SETTING_LAYER_NORM_EPS : SETTING_NORM_EPS;
    if (setting_u32(s, SETTING_LAYERS, REQUIRED, 1, MAX_LAYERS, &h->n_layers) ||
        setting_u32(s, SETTING_EMBD, REQUIRED, 1, MAX_WIDTH, &h->n_embd) ||
        setting_u32(s, SETTING_CONTEXT, REQUIRED, 1, MAX_CONTEXT, &h->n_context) ||
        setting_positive(s, eps, REQUIRED, &h->norm_eps) ||
        setting_u32(s, SETTING_PREDICTION_LAYERS, OPTIONAL, 0, MAX_LAYERS, &l->n_prediction_layers))
        return -1;
    uint32_t longer = 0; /* Command R has two lengths, and the first is not the trained one */
    if (setting_u32(s, SETTING_LONGER_CONTEXT, OPTIONAL, 0, MAX_CONTEXT, &longer))
        return -1;
    h->n_context = longer > h->n_context ? longer : h->n_context;
    if (is_gguf(l)) { /* n_layers includes them there */
        if (l->n_prediction_layers >= h->n_layers)
            return refuse(l, "%s is %" PRIu32 " of %" PRIu32 " layers",
                          setting_name(s, SETTING_PREDICTION_LAYERS).text, l->n_prediction_layers,
                          h->n_layers);
        h->n_layers -= l->n_prediction_layers;
    }
    h->norm = l->arch->norm;
    h->is_parallel = l->arch->is_parallel;
    h->qk_norm = l->arch->qk_norm;
    l->is_tied = true; /* if the file does not say, and has no head */
    return setting_bool(s, SETTING_TIED, &l->is_tied);
}

/* Whether q and k are normed, if the row leaves that to the file. */
static int read_qk_norm(struct loader *l)
{
    bool has = l->arch->qk_norm != QK_NORM_NONE;
    if (!has || l->arch->qk_norm_is_optional)
        if (setting_bool(&l->settings, SETTING_QK_NORM, &has))
            return -1;
    if (has && l->arch->qk_norm == QK_NORM_NONE)
        return refuse(l,
                      "use_qk_norm is true, which radish does not support for this architecture");
    l->qk_norm = l->arch->qk_norm_is_optional && (is_gguf(l) || !has) ? OPTIONAL : REQUIRED;
    return 0;
}

int read_shape(struct loader *l)
{
    struct model *m = l->m;
    struct hparams *h = &m->hparams;
    if (refuse_features(l) || read_sizes(l))
        return -1;
    m->layers = arena_alloc_array(&m->memory, h->n_layers, sizeof *m->layers);
    h->layers = arena_alloc_array(&m->memory, h->n_layers, sizeof *h->layers);
    if (!m->layers || !h->layers)
        return refuse_memory(l);
    if (l->arch->has_layer_inputs && setting_u32(&l->settings, SETTING_LAYER_INPUT, OPTIONAL, 0,
                                                 MAX_WIDTH / h->n_layers, &h->n_embd_layer))
        return -1;
    return read_activation(l) || read_scales(l) || read_qk_norm(l) || read_windows(l) ||
                   read_experts(l) || read_mla(l) || read_layers(l)
               ? -1
               : 0;
}
