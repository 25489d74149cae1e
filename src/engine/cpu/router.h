#ifndef RADISH_ENGINE_CPU_ROUTER_H
#define RADISH_ENGINE_CPU_ROUTER_H

#include "engine/cpu/kernels/elementwise.h"

/* Which experts a row goes to, from the router's logits for it. A function of the row alone. */
struct router_choice {
    uint32_t expert;
    float weight;
};

struct router_scratch {
    float *ranked;  /* [n_experts] what the choice is made by */
    float *groups;  /* [n_groups] */
    uint32_t *best; /* [n_chosen or n_chosen_groups, whichever is more] */
};

/* `logits` [n_experts], with the router's bias; they are used up. The chosen come best first, and
 * of equal ones the first. correction, expert_scale: as in struct layer_weights, may be NULL. */
void router_choose(const struct router *router, const struct elementwise_kernels *kernels,
                   const float *correction, const float *expert_scale, float *logits,
                   const struct router_scratch *scratch, struct router_choice *chosen);

#endif
