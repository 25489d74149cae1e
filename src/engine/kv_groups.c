/* How layers keep KV; see kv_groups.h. Any thread.
 * What a newcomer gets wrong: a model with windows has two groups even if every layer has one, for
 * the first group's pages also stand for positions. */
#include "engine/kv_groups.h"

bool kv_layer_keeps(const struct hparams *h, uint32_t layer)
{
    return h->layers[layer].kv_layer == layer;
}

enum kv_group_id kv_layer_group(const struct hparams *h, uint32_t layer)
{
    return h->layers[h->layers[layer].kv_layer].window ? KV_WINDOW : KV_FULL;
}

uint32_t kv_layer_keys(const struct hparams *h, uint32_t layer)
{
    return h->layers[layer].n_kv_heads * h->layers[layer].key_dim;
}

uint32_t kv_layer_values(const struct hparams *h, uint32_t layer)
{
    return h->mla.kv_rank ? 0 : h->layers[layer].n_kv_heads * h->layers[layer].value_dim;
}

static uint32_t add_capped(uint32_t a, uint64_t b)
{
    return b < UINT32_MAX - a ? a + (uint32_t)b : UINT32_MAX;
}

uint32_t kv_groups(const struct hparams *h, enum kv_type type, struct kv_group groups[KV_GROUPS])
{
    for (int i = 0; i < KV_GROUPS; i++)
        groups[i] = (struct kv_group){0};
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct kv_group *g = &groups[kv_layer_group(h, i)];
        if (h->layers[i].window > g->window)
            g->window = h->layers[i].window;
        if (!kv_layer_keeps(h, i))
            continue;
        uint64_t values = (uint64_t)kv_layer_keys(h, i) + kv_layer_values(h, i);
        g->n_layers++;
        g->page_bytes = add_capped(g->page_bytes, values * kv_type_bytes(type));
    }
    return groups[KV_WINDOW].n_layers ? 2 : 1;
}

struct kv_group kv_groups_joined(const struct kv_group groups[KV_GROUPS])
{
    const struct kv_group *full = &groups[KV_FULL], *window = &groups[KV_WINDOW];
    return (struct kv_group){.n_layers = full->n_layers + window->n_layers,
                             .page_bytes = add_capped(full->page_bytes, window->page_bytes)};
}
