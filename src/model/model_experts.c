/* The router, and which layers have experts; see model.h. Used by the thread that loads. Files of
 * one family mark dense layers in five ways, and each file uses one or two; a layer has experts
 * unless one of them says otherwise. */
#include "model/model_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* GGUF has a number for the kind of scores, config.json a name. */
static int read_scores(struct loader *l)
{
    struct router *router = &l->m->hparams.router;
    uint32_t number = 0;
    char name[32] = "";
    router->scores = l->arch->scores;
    if (is_gguf(l)
            ? setting_u32(&l->settings, SETTING_EXPERT_SCORES, OPTIONAL, 0, UINT32_MAX, &number)
            : setting_text(&l->settings, SETTING_EXPERT_SCORES, name, sizeof name))
        return -1;
    if (number == 2 || strcmp(name, "sigmoid") == 0 ||
        strcmp(name, "noaux_tc") == 0) /* dots.llm1: the method that goes with it */
        router->scores = ROUTER_SIGMOID;
    else if (number == 3)
        router->scores = ROUTER_SOFTMAX_CHOSEN;
    else if (number > 3 || (name[0] && strcmp(name, "softmax") != 0))
        return refuse(l,
                      "%s is neither softmax nor sigmoid, the only functions that radish supports",
                      setting_name(&l->settings, SETTING_EXPERT_SCORES).text);
    else if ((number == 1 || name[0]) && router->scores == ROUTER_SIGMOID)
        router->scores = ROUTER_SOFTMAX;
    return 0;
}

/* Reads the method of choosing groups from its name; `has_groups`: whether groups are used at all.
 */
static int read_group_method(struct loader *l, bool *has_groups)
{
    struct router *router = &l->m->hparams.router;
    char name[32] = "";
    router->groups = l->arch->groups;
    *has_groups = true;
    if (!l->arch->groups_are_named || is_gguf(l))
        return 0;
    if (setting_text(&l->settings, SETTING_EXPERT_METHOD, name, sizeof name))
        return -1;
    if (strcmp(name, "noaux_tc") == 0)
        router->groups = GROUPS_BY_TOP2;
    else if (name[0] == '\0' || strcmp(name, "greedy") == 0)
        *has_groups = false;
    else if (strcmp(name, "group_limited_greedy") != 0)
        return refuse(l, "topk_method is \"%s\", which radish does not support", name);
    return 0;
}

static int read_groups(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct router *router = &l->m->hparams.router;
    bool has_groups;
    router->n_groups = router->n_chosen_groups = 1;
    if (read_group_method(l, &has_groups))
        return -1;
    if (!has_groups)
        return 0;
    if (setting_u32(s, SETTING_EXPERT_GROUPS, OPTIONAL, 1, router->n_experts, &router->n_groups) ||
        setting_u32(s, SETTING_EXPERT_GROUPS_CHOSEN, OPTIONAL, 1, router->n_groups,
                    &router->n_chosen_groups))
        return -1;
    uint32_t of_group = router->n_experts / router->n_groups;
    if (router->n_experts % router->n_groups)
        return refuse(l, "%" PRIu32 " experts do not make %" PRIu32 " equal groups",
                      router->n_experts, router->n_groups);
    if (router->n_groups > 1 && of_group < 2 && router->groups == GROUPS_BY_TOP2)
        return refuse(l,
                      "groups cannot be chosen by their two best experts when they have only one");
    if ((uint64_t)of_group * router->n_chosen_groups < router->n_chosen)
        return refuse(l, "%" PRIu32 " experts are chosen, more than %" PRIu32 " groups have",
                      router->n_chosen, router->n_chosen_groups);
    return 0;
}

static int read_shared(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct router *router = &l->m->hparams.router;
    uint32_t count = 0;
    if (setting_u32(s, SETTING_SHARED_EXPERTS, OPTIONAL, 0, MAX_EXPERTS, &count))
        return -1;
    if ((uint64_t)count * router->n_ff > MAX_WIDTH)
        return refuse(l, "%" PRIu32 " shared experts of %" PRIu32 " are wider than %d", count,
                      router->n_ff, MAX_WIDTH);
    router->n_ff_shared = count * router->n_ff;
    return setting_u32(s, SETTING_SHARED_FF, OPTIONAL, 0, MAX_WIDTH, &router->n_ff_shared);
}

/* The number of experts; 0 if a switch turns them off. */
static int read_count(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct router *router = &l->m->hparams.router;
    bool is_on = l->arch->experts != EXPERTS_BESIDE || is_gguf(l);
    if (setting_u32(s, SETTING_EXPERTS, OPTIONAL, 0, MAX_EXPERTS, &router->n_experts) ||
        setting_bool(s, SETTING_EXPERTS_SWITCH, &is_on))
        return -1;
    if (l->arch->experts == EXPERTS_NONE && router->n_experts > 0)
        return refuse(l,
                      "a mixture of experts (%s is %" PRIu32
                      "), which radish does not support for this architecture",
                      setting_name(s, SETTING_EXPERTS).text, router->n_experts);
    if (!is_on)
        router->n_experts = 0;
    return 0;
}

int read_experts(struct loader *l)
{
    const struct settings *s = &l->settings;
    struct router *router = &l->m->hparams.router;
    double scale = 1;
    if (read_count(l))
        return -1;
    if (router->n_experts == 0)
        return 0;
    if (setting_u32(s, SETTING_EXPERTS_CHOSEN, REQUIRED, 1, router->n_experts, &router->n_chosen))
        return -1;
    if (router->n_chosen == 0 || router->n_chosen > router->n_experts)
        return refuse(l, "%" PRIu32 " of %" PRIu32 " experts cannot be selected", router->n_chosen,
                      router->n_experts);
    if (setting_u32(s, SETTING_FF, OPTIONAL, 1, MAX_WIDTH, &router->n_ff) ||
        setting_u32(s, SETTING_EXPERT_FF, OPTIONAL, 1, MAX_WIDTH, &router->n_ff) ||
        read_scores(l) || read_groups(l) || read_shared(l) ||
        setting_bool(s, SETTING_EXPERT_NORMALIZES, &router->normalizes) ||
        setting_number(s, SETTING_EXPERT_SCALE, &scale))
        return -1;
    if (router->n_ff == 0)
        return refuse(l, "the key %s is missing", setting_name(s, SETTING_EXPERT_FF).text);
    router->scale = scale == 0 ? 1 : (float)scale; /* GGUF: 0 means none */
    router->normalize_eps = l->arch->normalize_eps;
    router->norms_input = l->arch->norms_router_input;
    return 0;
}

static int is_listed_dense(struct loader *l, uint32_t layer, bool *is)
{
    const struct settings *s = &l->settings;
    size_t n = setting_count(s, SETTING_DENSE_LIST);
    *is = false;
    if (n > MAX_LAYERS)
        return refuse(l, "mlp_only_layers has %zu items, more than %d", n, MAX_LAYERS);
    for (size_t i = 0; i < n; i++) {
        uint32_t listed = 0;
        if (setting_item_u32(s, SETTING_DENSE_LIST, i, 0, UINT32_MAX, &listed))
            return -1;
        *is |= listed == layer;
    }
    return 0;
}

static bool has_tensor(const struct loader *l, uint32_t layer, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "blk.%" PRIu32 ".%s.weight", layer, name);
    return checkpoint_find(l->m->checkpoint, text) != NULL;
}

int read_layer_experts(struct loader *l, uint32_t layer, bool *has)
{
    const struct settings *s = &l->settings;
    uint32_t n_dense = 0, step = 1, frequency = 1;
    bool is_dense;
    *has = l->m->hparams.router.n_experts > 0;
    if (!*has || l->arch->experts == EXPERTS_BESIDE)
        return 0;
    if (setting_count(s, SETTING_MLP_TYPES) > 0) {
        char type[32];
        if (setting_item_text(s, SETTING_MLP_TYPES, layer, type, sizeof type))
            return -1;
        *has = strcmp(type, "sparse") == 0;
        return *has || strcmp(type, "dense") == 0
                   ? 0
                   : refuse(l, "mlp_layer_types[%" PRIu32 "] is \"%s\", not dense or sparse", layer,
                            type);
    }
    if (setting_u32(s, SETTING_DENSE_LAYERS, OPTIONAL, 0, UINT32_MAX, &n_dense) ||
        setting_u32(s, SETTING_EXPERT_STEP, OPTIONAL, 1, MAX_LAYERS, &step) ||
        setting_u32(s, SETTING_EXPERT_FREQUENCY, OPTIONAL, 1, MAX_LAYERS, &frequency) ||
        is_listed_dense(l, layer, &is_dense))
        return -1;
    *has = layer >= n_dense && !is_dense && (layer + 1) % step == 0 && layer % frequency == 0;
    if (is_gguf(l)) /* it has no key for this */
        *has = *has && (has_tensor(l, layer, "ffn_gate_inp") || !has_tensor(l, layer, "ffn_gate"));
    return 0;
}
