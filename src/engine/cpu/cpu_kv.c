/* Memory for keys and values, by group and layer, and one attention object for each shape of
 * layer. A model with windows may be opened without pages for them; windowed layers then keep
 * their KV in the pages of the others and only mask. */
#include <assert.h>
#include <stdlib.h>

#include "engine/cpu/cpu_internal.h"
#include "engine/kv_groups.h"

/* The group whose pages hold the layer's KV. */
static uint32_t group_of(const struct cpu_engine *e, uint32_t layer)
{
    return e->engine.info.n_groups == 1 ? 0 : kv_layer_group(&e->model->hparams, layer);
}

/* Assigns places to the layers of a group, and returns how many bytes a position takes in each
 * part. */
static uint32_t place_layers(struct cpu_engine *e, uint32_t group, size_t *row_bytes)
{
    const struct hparams *hp = &e->model->hparams;
    size_t value_bytes = kv_type_bytes(e->engine.limits.kv_type),
           n_pages = e->engine.limits.n_pages[group];
    uint8_t *at = e->kv[group].data;
    uint32_t n_parts = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        struct cpu_kv *kv = &e->layers[i].kv;
        if (group_of(e, i) != group)
            continue;
        if (!kv_layer_keeps(hp, i)) {
            uint32_t from = hp->layers[i].kv_layer;
            assert(from < i && kv_layer_keys(hp, from) == kv_layer_keys(hp, i) &&
                   kv_layer_values(hp, from) == kv_layer_values(hp, i));
            assert(hp->layers[i].window || !hp->layers[from].window);
            *kv = e->layers[from].kv;
            continue;
        }
        *kv = (struct cpu_kv){.group = group,
                              .key_bytes = kv_layer_keys(hp, i) * value_bytes,
                              .value_bytes = kv_layer_values(hp, i) * value_bytes};
        kv->keys = at;
        kv->values = at + n_pages * kv->key_bytes;
        at = kv->values + n_pages * kv->value_bytes;
        row_bytes[n_parts++] = kv->key_bytes;
        if (kv->value_bytes)
            row_bytes[n_parts++] = kv->value_bytes;
    }
    return n_parts;
}

static int group_open(struct cpu_engine *e, uint32_t group, struct error *err)
{
    struct kv_group *info = &e->engine.info.groups[group];
    uint32_t n_pages = e->engine.limits.n_pages[group];
    if (info->page_bytes == UINT32_MAX ||
        (info->page_bytes && n_pages > SIZE_MAX / 2 / info->page_bytes))
        return error_set(err, ERROR_LIMIT, "a cache of %u positions does not fit in memory",
                         n_pages);
    uint64_t bytes = (uint64_t)n_pages * info->page_bytes;
    size_t *row_bytes = calloc(2 * (size_t)e->model->hparams.n_layers, sizeof *row_bytes);
    if (!row_bytes)
        return error_set(err, ERROR_MEMORY, "no memory for the KV cache");
    e->engine.info.kv_bytes += bytes;
    int rc = bytes ? buffer_map(&e->kv[group], bytes, "the KV cache", err) : 0;
    if (rc == 0) {
        uint32_t n_parts = place_layers(e, group, row_bytes);
        rc = kv_touch_open(&e->kv_touch[group], e->kv[group].data, group, row_bytes, n_parts,
                           n_pages, err);
    }
    free(row_bytes);
    return rc;
}

/* Opens the attention for a layer's shape, unless an earlier layer has the same shape. */
static int open_attention(struct cpu_engine *e, uint32_t layer, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    const struct layer_shape *shape = &hp->layers[layer];
    const struct engine_limits *limits = &e->engine.limits;
    for (uint32_t i = 0; i < layer; i++) {
        const struct layer_shape *other = &hp->layers[i];
        if (other->n_heads == shape->n_heads && other->n_kv_heads == shape->n_kv_heads &&
            other->key_dim == shape->key_dim && other->value_dim == shape->value_dim &&
            other->window == shape->window && group_of(e, i) == group_of(e, layer)) {
            e->layers[layer].attention = e->layers[i].attention;
            return 0;
        }
    }
    struct attention_shape wanted = {
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .key_dim = shape->key_dim,
        .value_dim = shape->value_dim,
        .values_in_keys = hp->mla.kv_rank > 0,
        .window = shape->window,
        .group = group_of(e, layer),
        .kv_type = limits->kv_type,
        .max_rows = limits->max_rows,
        .max_length = limits->max_length,
        .n_threads = e->engine.info.n_threads,
    };
    if (attention_open(&e->layers[layer].attention, &wanted, e->kernels->vector, err))
        return -1;
    e->attentions[e->n_attentions++] = e->layers[layer].attention;
    return 0;
}

int cpu_kv_open(struct cpu_engine *e, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    struct engine_info *info = &e->engine.info;
    info->n_groups = kv_groups(hp, e->engine.limits.kv_type, info->groups);
    if (e->engine.limits.n_pages[1] == 0)
        info->n_groups = kv_groups_join(info->groups, info->n_groups);
    for (uint32_t g = 0; g < info->n_groups; g++)
        if (group_open(e, g, err))
            return -1;
    e->attentions = calloc(hp->n_layers, sizeof *e->attentions);
    if (!e->attentions)
        return error_set(err, ERROR_MEMORY, "no memory for attention");
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (open_attention(e, i, err))
            return -1;
    return 0;
}

void cpu_kv_close(struct cpu_engine *e)
{
    for (uint32_t i = 0; i < e->n_attentions; i++)
        attention_close(e->attentions[i]);
    free(e->attentions);
    for (int g = 0; g < KV_MAX_GROUPS; g++) {
        buffer_unmap(&e->kv[g]);
        kv_touch_close(&e->kv_touch[g]);
    }
}
