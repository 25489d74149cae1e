/* The choice of experts: by hand, and with equal scores or NaN. */
#include "test.h"

#include <math.h>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/router.h"

enum { MAX_EXPERTS = 16 };

static struct router_choice chosen[MAX_EXPERTS];

static void choose(const struct router *r, const float *correction, const float *expert_scale,
                   const float *logits)
{
    float copy[MAX_EXPERTS], ranked[MAX_EXPERTS], groups[MAX_EXPERTS];
    uint32_t best[MAX_EXPERTS];
    struct router_scratch scratch = {ranked, groups, best};
    memcpy(copy, logits, r->n_experts * sizeof *copy);
    router_choose(r, &elementwise_kernels_ref, correction, expert_scale, copy, &scratch, chosen);
}

static bool is_near(float got, double want)
{
    return fabs(got - want) < 1e-6;
}

TEST(router, softmax_over_all_or_the_chosen)
{
    const float logits[] = {1, 3, 2, 0};
    double all = exp(1) + exp(3) + exp(2) + exp(0), two = exp(3) + exp(2);
    struct router r = {
        .n_experts = 4, .n_chosen = 2, .n_groups = 1, .n_chosen_groups = 1, .scale = 1};
    choose(&r, NULL, NULL, logits);
    CHECK_INT(chosen[0].expert, 1);
    CHECK_INT(chosen[1].expert, 2);
    CHECK(is_near(chosen[0].weight, exp(3) / all) && is_near(chosen[1].weight, exp(2) / all));
    r.normalizes = true;
    r.scale = 2;
    choose(&r, NULL, NULL, logits);
    CHECK(is_near(chosen[0].weight, 2 * exp(3) / two));
    r.normalizes = false;
    r.scores = ROUTER_SOFTMAX_CHOSEN;
    choose(&r, NULL, (const float[]){1, 1, 10, 1}, logits);
    CHECK(is_near(chosen[0].weight, 2 * exp(3) / two));
    CHECK(is_near(chosen[1].weight, 20 * exp(2) / two));
}

/* A correction affects the choice and not the weights. */
TEST(router, corrected_sigmoids_normalised_with_eps)
{
    const float logits[] = {2, 1, 0, -1}, correction[] = {-1, 0, 0, 1};
    struct router r = {.n_experts = 4,
                       .n_chosen = 2,
                       .n_groups = 1,
                       .n_chosen_groups = 1,
                       .scores = ROUTER_SIGMOID,
                       .normalizes = true,
                       .normalize_eps = 0.5f,
                       .scale = 1};
    double first = 1 / (1 + exp(1)), second = 1 / (1 + exp(-1));
    choose(&r, correction, NULL, logits);
    CHECK_INT(chosen[0].expert, 3);
    CHECK_INT(chosen[1].expert, 1);
    CHECK(is_near(chosen[0].weight, first / (first + second + 0.5)));
    CHECK(is_near(chosen[1].weight, second / (first + second + 0.5)));
}

TEST(router, groups)
{
    /* The best of all is in the first group, the two best together in the second. */
    const float logits[] = {5, -9, -9, 3, 4, -9, 2, 1, 1};
    struct router r = {.n_experts = 9,
                       .n_chosen = 2,
                       .n_groups = 3,
                       .n_chosen_groups = 1,
                       .scores = ROUTER_SOFTMAX_CHOSEN,
                       .groups = GROUPS_BY_MAX,
                       .scale = 1};
    choose(&r, NULL, NULL, logits);
    CHECK_INT(chosen[0].expert, 0);
    CHECK_INT(chosen[1].expert, 1);
    r.groups = GROUPS_BY_TOP2;
    choose(&r, NULL, NULL, logits);
    CHECK_INT(chosen[0].expert, 4);
    CHECK_INT(chosen[1].expert, 3);
    /* Experts of another group are not chosen even if the others are below 0. */
    r.scores = ROUTER_SIGMOID;
    r.n_chosen = 3;
    const float down[] = {-1, -1, -1, -9, -9, -9, -9, -9, -9};
    choose(&r, down, NULL, logits);
    for (int i = 0; i < 3; i++)
        CHECK(chosen[i].expert < 3);
}

TEST(router, of_equal_ones_the_first)
{
    const float logits[] = {1, 2, 2, 1, 2, 1};
    struct router r = {.n_experts = 6,
                       .n_chosen = 5,
                       .n_groups = 1,
                       .n_chosen_groups = 1,
                       .scores = ROUTER_SOFTMAX_CHOSEN,
                       .scale = 1};
    const uint32_t want[] = {1, 2, 4, 0, 3};
    choose(&r, NULL, NULL, logits);
    for (int i = 0; i < 5; i++)
        CHECK_INT(chosen[i].expert, want[i]);
}

/* Each expert at most once, whatever the logits are. */
TEST(router, survives_what_is_no_number)
{
    const float logits[] = {NAN, NAN, 1, NAN, INFINITY, -INFINITY};
    for (int scores = ROUTER_SOFTMAX; scores <= ROUTER_SOFTMAX_CHOSEN; scores++) {
        struct router r = {.n_experts = 6,
                           .n_chosen = 4,
                           .n_groups = 2,
                           .n_chosen_groups = 2,
                           .scores = scores,
                           .scale = 1};
        uint32_t seen = 0;
        choose(&r, NULL, NULL, logits);
        for (int i = 0; i < 4; i++) {
            CHECK(chosen[i].expert < 6 && !(seen & 1u << chosen[i].expert));
            seen |= 1u << chosen[i].expert;
        }
    }
}
