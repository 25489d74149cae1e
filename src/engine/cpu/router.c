/* Chooses experts; see router.h. Any thread, each with its own scratch memory. The correction
 * affects the choice but not the weights, which come from the uncorrected scores. */
#include "engine/cpu/router.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The indices of the k largest, by size and then by index. NaN comes last. */
static void best_of(const float *values, uint32_t n, uint32_t k, uint32_t *best)
{
    uint32_t found = 0;
    assert(k <= n);
    for (uint32_t i = 0; i < n; i++) {
        if (found == k && !(values[i] > values[best[k - 1]]))
            continue;
        uint32_t at = found < k ? found++ : k - 1;
        for (; at > 0 && values[i] > values[best[at - 1]]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
}

static float group_score(const float *scores, uint32_t n, enum router_groups groups)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (scores[i] > first) {
            second = first;
            first = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return groups == GROUPS_BY_MAX || n == 1 ? first : first + second;
}

/* Excludes the experts of all groups except the best ones. */
static void choose_groups(const struct router *router, const struct router_scratch *s)
{
    uint32_t n = router->n_experts / router->n_groups;
    for (uint32_t g = 0; g < router->n_groups; g++)
        s->groups[g] = group_score(s->ranked + g * n, n, router->groups);
    best_of(s->groups, router->n_groups, router->n_chosen_groups, s->best);
    for (uint32_t g = 0; g < router->n_groups; g++) {
        bool is_chosen = false;
        for (uint32_t i = 0; i < router->n_chosen_groups; i++)
            is_chosen |= s->best[i] == g;
        for (uint32_t i = 0; i < n && !is_chosen; i++)
            s->ranked[g * n + i] = -INFINITY;
    }
}

/* The weights are the scores of the chosen experts. */
static void finish_weights(const struct router *router, const struct elementwise_kernels *kernels,
                           const float *expert_scale, float *weights, struct router_choice *chosen)
{
    float sum = 0.0f;
    if (router->scores == ROUTER_SOFTMAX_CHOSEN)
        kernels->softmax(weights, router->n_chosen);
    for (uint32_t i = 0; i < router->n_chosen; i++)
        sum += weights[i];
    for (uint32_t i = 0; i < router->n_chosen; i++) {
        float weight = router->normalizes ? weights[i] / (sum + router->normalize_eps) : weights[i];
        weight *= router->scale;
        chosen[i].weight = expert_scale ? weight * expert_scale[chosen[i].expert] : weight;
    }
}

void router_choose(const struct router *router, const struct elementwise_kernels *kernels,
                   const float *correction, const float *expert_scale, float *logits,
                   const struct router_scratch *scratch, struct router_choice *chosen)
{
    uint32_t n = router->n_experts;
    if (router->scores == ROUTER_SOFTMAX)
        kernels->softmax(logits, n);
    else if (router->scores == ROUTER_SIGMOID)
        kernels->sigmoid(logits, n);
    for (uint32_t i = 0; i < n; i++)
        scratch->ranked[i] = correction ? logits[i] + correction[i] : logits[i];
    if (router->n_chosen_groups < router->n_groups)
        choose_groups(router, scratch);
    best_of(scratch->ranked, n, router->n_chosen, scratch->best);
    for (uint32_t i = 0; i < router->n_chosen; i++) {
        chosen[i].expert = scratch->best[i];
        scratch->ranked[i] = logits[scratch->best[i]];
    }
    finish_weights(router, kernels, expert_scale, scratch->ranked, chosen);
}
