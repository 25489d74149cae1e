#ifndef RADISH_ENGINE_KV_GROUPS_H
#define RADISH_ENGINE_KV_GROUPS_H

#include "engine/engine.h"

/* What a position's KV takes in each group of layers, from the model alone. A layer that reads
 * another's keys and values keeps none, and of a latent (MLA) only the keys are kept, whose
 * beginning is the value. The window of the second group is the largest of its layers'; a layer
 * masks by its own. */

/* Whether the layer keeps KV of its own. */
bool kv_layer_keeps(const struct hparams *h, uint32_t layer);
/* The group that the layer's KV lies in, its own or what it reads. */
enum kv_group_id kv_layer_group(const struct hparams *h, uint32_t layer);
/* Values that a position of the layer has as keys, and as values beside them. */
uint32_t kv_layer_keys(const struct hparams *h, uint32_t layer);
uint32_t kv_layer_values(const struct hparams *h, uint32_t layer);

/* Gives how many groups there are: 2 with windowed layers, else 1. A page_bytes of UINT32_MAX
 * stands for that many or more. */
uint32_t kv_groups(const struct hparams *h, enum kv_type type, struct kv_group groups[KV_GROUPS]);

/* Both groups as one, for an engine that is to keep windowed layers' KV in the pages of the first.
 */
struct kv_group kv_groups_joined(const struct kv_group groups[KV_GROUPS]);

#endif
