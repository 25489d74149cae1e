/* The model's matrices in the form that kernels stream: which ones there are, and where they go.
 * Each head's part of a latent's matrices is packed as a separate matrix, because a head's rows
 * need not fill whole panels. */
#include <stdlib.h>

#include "engine/cpu/cpu_internal.h"

/* Counts first (no lists yet), then fills. */
struct weight_list {
    const struct weight **weights;
    struct packed_matrix ***places;
    uint32_t n;
};

static void list_add(struct weight_list *list, const struct weight *w, struct packed_matrix **place)
{
    if (!w->data)
        return;
    if (list->weights) {
        list->weights[list->n] = w;
        list->places[list->n] = place;
    }
    list->n++;
}

static void list_layer(struct weight_list *list, const struct layer_weights *w, struct cpu_layer *l)
{
    const struct {
        const struct weight *weight;
        struct packed_matrix **place;
    } all[] = {{&w->ffn_gate, &l->gate},
               {&w->ffn_up, &l->up},
               {&w->ffn_down, &l->down},
               {&w->attn_q, &l->q},
               {&w->attn_k, &l->k},
               {&w->attn_v, &l->v},
               {&w->attn_output, &l->output},
               {&w->q_a, &l->q_a},
               {&w->q_b, &l->q_b},
               {&w->kv_a, &l->kv_a},
               {&w->router, &l->router},
               {&w->shared_gate, &l->shared_gate},
               {&w->shared_up, &l->shared_up},
               {&w->shared_down, &l->shared_down},
               {&w->layer_gate, &l->layer_gate},
               {&w->layer_output, &l->layer_output}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        list_add(list, all[i].weight, all[i].place);
}

/* The largest comes first, so that no thread starts on it last. */
static void list_weights(struct cpu_engine *e, struct weight_list *list, struct weight **head_parts)
{
    const struct model *m = e->model;
    const struct hparams *hp = &m->hparams;
    list_add(list, &m->output, &e->head);
    list_add(list, &m->layer_proj, &e->layer_proj);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        struct cpu_layer *l = &e->layers[i];
        list_layer(list, &m->layers[i], l);
        for (uint32_t x = 0; l->experts && x < hp->router.n_experts; x++) {
            const struct expert_weights *w = &m->layers[i].experts[x];
            list_add(list, &w->gate, &l->experts[x].gate);
            list_add(list, &w->up, &l->experts[x].up);
            list_add(list, &w->down, &l->experts[x].down);
        }
        for (uint32_t h = 0; l->k_b && h < hp->layers[i].n_heads; h++) {
            list_add(list, &head_parts[i][2 * h], &l->k_b[h]);
            list_add(list, &head_parts[i][2 * h + 1], &l->v_b[h]);
        }
    }
}

/* Allocates the lists of matrices in a layer: of experts, and of the heads of a latent, whose
 * weights are sliced. */
static int lists_open(struct cpu_engine *e, struct weight **head_parts, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_weights *w = &e->model->layers[i];
        struct cpu_layer *l = &e->layers[i];
        uint32_t n_heads = hp->layers[i].n_heads;
        if (hp->layers[i].has_experts &&
            !(l->experts = arena_alloc_array(&e->memory, hp->router.n_experts, sizeof *l->experts)))
            return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
        if (hp->mla.kv_rank == 0)
            continue;
        l->k_b = arena_alloc_array(&e->memory, n_heads, sizeof *l->k_b);
        l->v_b = arena_alloc_array(&e->memory, n_heads, sizeof *l->v_b);
        head_parts[i] = arena_alloc_array(&e->memory, 2 * (size_t)n_heads, sizeof **head_parts);
        if (!l->k_b || !l->v_b || !head_parts[i])
            return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
        for (uint32_t h = 0; h < n_heads; h++) {
            uint32_t n_k = hp->mla.kv_rank, n_v = hp->mla.value_dim;
            head_parts[i][2 * h] = weight_slice(&w->k_b, h * n_k, 1, n_k);
            head_parts[i][2 * h + 1] = weight_slice(&w->v_b, h * n_v, 1, n_v);
        }
    }
    return 0;
}

static int load(struct cpu_engine *e, struct weight_list *list, struct error *err)
{
    const struct cpu_options *o = &e->options;
    const struct checkpoint *checkpoint = e->model->checkpoint;
    if (weight_store_open(&e->weights, checkpoint, list->weights, list->n, err) ||
        weight_store_load(&e->weights, e->pool, o->pack_cache, o->progress, o->progress_context,
                          err))
        return -1;
    for (uint32_t i = 0; i < list->n; i++)
        *list->places[i] = e->weights.matrices[i];
    e->engine.info.weight_bytes = e->weights.size_bytes;
    e->engine.info.table_bytes = model_table_bytes(e->model);
    return 0;
}

int cpu_weights_open(struct cpu_engine *e, struct error *err)
{
    struct weight **head_parts = arena_alloc_array(&e->memory, e->model->hparams.n_layers,
                                                   sizeof *head_parts);
    if (!head_parts)
        return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    if (lists_open(e, head_parts, err))
        return -1;
    struct weight_list list = {0};
    list_weights(e, &list, head_parts);
    list.weights = calloc(list.n, sizeof *list.weights);
    list.places = calloc(list.n, sizeof *list.places);
    list.n = 0;
    int rc = -1;
    if (!list.weights || !list.places) {
        error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    } else {
        list_weights(e, &list, head_parts);
        rc = load(e, &list, err);
    }
    free(list.weights);
    free(list.places);
    return rc;
}
