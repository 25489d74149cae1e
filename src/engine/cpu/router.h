#ifndef RADISH_ENGINE_CPU_ROUTER_H
#define RADISH_ENGINE_CPU_ROUTER_H

#include "engine/cpu/kernels/elementwise.h"

/* Chooses the experts of a row from the router's logits. The choice depends on the row alone. */
struct router_choice {
    uint32_t expert;
    float weight;
};

struct router_scratch {
    float *ranked;  /* [n_experts] the scores that decide */
    float *groups;  /* [n_groups] */
    uint32_t *best; /* [n_chosen or n_chosen_groups, whichever is more] */
};

/* `logits` [n_experts] include the router's bias, and are overwritten. The chosen experts come best
 * first; ties: the lower index first. correction, expert_scale: as in struct layer_weights, may be
 * NULL. */
void router_choose(const struct router *router, const struct elementwise_kernels *kernels,
                   const float *correction, const float *expert_scale, float *logits,
                   const struct router_scratch *scratch, struct router_choice *chosen);

#endif
