#ifndef RADISH_ENGINE_KV_GROUPS_H
#define RADISH_ENGINE_KV_GROUPS_H

#include "engine/engine.h"
#include "model/model.h"

/* The groups of a model's layers and the size of a position in each, derived from the model alone.
 * A layer that reads another's keys and values keeps none. With latent attention (MLA) only the
 * keys are kept; the value is the first part of the key. Windowed layers form one group with the
 * largest of their windows; each layer masks by its own. */

static inline uint32_t kv_type_bytes(enum kv_type type)
{
    return type == KV_F32 ? 4 : 2;
}

/* Whether the layer keeps its own KV. */
bool kv_layer_keeps(const struct hparams *h, uint32_t layer);
/* Index of the group that holds the layer's KV: its own, or the KV that it reads. */
uint32_t kv_layer_group(const struct hparams *h, uint32_t layer);
/* Number of elements in the keys of a position of the layer; and in its separate values. */
uint32_t kv_layer_keys(const struct hparams *h, uint32_t layer);
uint32_t kv_layer_values(const struct hparams *h, uint32_t layer);

/* Returns how many groups there are; the others are zeroed. A page_bytes of UINT32_MAX means that
 * many or more. */
uint32_t kv_groups(const struct hparams *h, enum kv_type type,
                   struct kv_group groups[KV_MAX_GROUPS]);

/* Merges the windowed group into group 0, for an engine that keeps the KV of all layers in the
 * pages of group 0. Returns how many groups are left. */
uint32_t kv_groups_join(struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups);

#endif
