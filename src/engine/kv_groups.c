/* How layers keep KV; see kv_groups.h. Any thread. A model with windows has two groups even if
 * every layer has a window, because the pages of group 0 also represent positions. */
#include "engine/kv_groups.h"

bool kv_layer_keeps(const struct hparams *h, uint32_t layer)
{
    return h->layers[layer].kv_layer == layer;
}

uint32_t kv_layer_group(const struct hparams *h, uint32_t layer)
{
    return h->layers[h->layers[layer].kv_layer].window ? 1 : 0;
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

uint32_t kv_groups(const struct hparams *h, enum kv_type type,
                   struct kv_group groups[KV_MAX_GROUPS])
{
    for (int i = 0; i < KV_MAX_GROUPS; i++)
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
    groups[0].window = 0;
    if (groups[1].n_layers == 0)
        return 1;
    groups[1].kind = KV_WINDOW;
    return 2;
}

uint32_t kv_groups_join(struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups)
{
    uint32_t n = 1;
    for (uint32_t i = 1; i < n_groups; i++) {
        struct kv_group g = groups[i];
        groups[i] = (struct kv_group){0};
        if (g.kind == KV_WINDOW) {
            groups[0].n_layers += g.n_layers;
            groups[0].page_bytes = add_capped(groups[0].page_bytes, g.page_bytes);
        } else {
            groups[n++] = g;
        }
    }
    return n;
}
