/* Memory for the rows of a batch: one mapping, sized at open for the largest layer. The layout is
 * computed twice, first without memory to find its size, so it must not depend on the contents. */
#include <stdlib.h>

#include "engine/cpu/cpu_internal.h"

/* Hands out parts of one mapping; without a mapping, only adds up their sizes. */
struct layout {
    uint8_t *base;
    size_t used_bytes;
    enum act_kind quantized_kind;
};

static void *layout_take(struct layout *l, size_t size_bytes)
{
    void *piece = l->base ? l->base + l->used_bytes : NULL;
    l->used_bytes += (size_bytes + 63) / 64 * 64;
    return piece;
}

static float *layout_rows(struct layout *l, size_t rows, size_t width)
{
    return layout_take(l, rows * width * sizeof(float));
}

static size_t quantized_bytes(const struct layout *l, uint32_t rows, uint32_t width)
{
    return activations_bytes(l->quantized_kind, rows, width);
}

/* Values per row in the largest layer. */
struct widths {
    uint32_t q, attended, k, v, gate;
    uint32_t input; /* of any product but those of experts */
};

static void raise_to(uint32_t *width, uint32_t n)
{
    if (*width < n)
        *width = n;
}

static struct widths widths_of(const struct hparams *hp)
{
    const struct mla_shape *mla = &hp->mla;
    struct widths w = {.gate = hp->n_embd_layer, .input = hp->n_embd};
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_shape *s = &hp->layers[i];
        raise_to(&w.q, s->n_heads * s->key_dim);
        raise_to(&w.attended, s->n_heads * s->value_dim);
        raise_to(&w.k, s->n_kv_heads * s->key_dim);
        raise_to(&w.v, s->n_kv_heads * s->value_dim);
        raise_to(&w.gate, s->n_ff);
        raise_to(&w.input, s->n_heads * (mla->kv_rank ? mla->value_dim : s->value_dim));
    }
    raise_to(&w.input, w.gate);
    raise_to(&w.input, mla->q_rank);
    return w;
}

static void layout_latent_rows(struct layout *l, const struct hparams *hp, uint32_t rows,
                               struct cpu_rows *r)
{
    const struct mla_shape *mla = &hp->mla;
    uint32_t n_heads = 0, head_dim = mla->nope_dim > mla->kv_rank ? mla->nope_dim : mla->kv_rank;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        raise_to(&n_heads, hp->layers[i].n_heads);
    r->q_a = layout_rows(l, rows, mla->q_rank);
    r->q_a_normed = layout_rows(l, rows, mla->q_rank);
    r->q_full = layout_rows(l, rows, (size_t)n_heads * (mla->nope_dim + mla->rope_dim));
    r->heads = layout_rows(l, rows, (size_t)n_heads * head_dim);
    r->heads_quantized = layout_take(l, n_heads * quantized_bytes(l, rows, head_dim));
    r->values = layout_rows(l, rows, (size_t)n_heads * mla->value_dim);
}

static void layout_expert_rows(struct layout *l, const struct hparams *hp, uint32_t rows,
                               struct cpu_rows *r)
{
    uint32_t n_shared = hp->router.n_ff_shared;
    r->expert_normed = layout_rows(l, rows, hp->n_embd);
    r->router_normed = layout_rows(l, rows, hp->n_embd);
    r->router_quantized = layout_take(l, quantized_bytes(l, rows, hp->n_embd));
    if (n_shared == 0)
        return;
    r->shared_gate = layout_rows(l, rows, n_shared);
    r->shared_up = layout_rows(l, rows, n_shared);
    r->shared_added = layout_rows(l, rows, hp->n_embd);
    r->shared_quantized = layout_take(l, quantized_bytes(l, rows, n_shared));
}

static struct cpu_rows layout_layer_rows(struct layout *l, const struct hparams *hp, uint32_t rows)
{
    struct widths w = widths_of(hp);
    struct cpu_rows r = {
        .normed = layout_rows(l, rows, hp->n_embd),
        .k = layout_rows(l, rows, w.k),
        .v = layout_rows(l, rows, w.v),
        .gate = layout_rows(l, rows, w.gate),
        .up = layout_rows(l, rows, w.gate),
        .added = layout_rows(l, rows, hp->n_embd),
    };
    r.quantized = layout_take(l, quantized_bytes(l, rows, w.input));
    if (hp->mla.kv_rank)
        layout_latent_rows(l, hp, rows, &r);
    if (cpu_has_experts(hp))
        layout_expert_rows(l, hp, rows, &r);
    return r;
}

static void layout_gathered(struct layout *l, const struct hparams *hp, struct cpu_gathered *g)
{
    const struct router *router = &hp->router;
    uint32_t n_best = router->n_chosen > router->n_groups ? router->n_chosen : router->n_groups;
    uint32_t widest = hp->n_embd > router->n_ff ? hp->n_embd : router->n_ff;
    g->input = layout_rows(l, ROW_UNIT, hp->n_embd);
    g->up = layout_rows(l, ROW_UNIT, router->n_ff);
    g->quantized = layout_take(l, quantized_bytes(l, ROW_UNIT, widest));
    g->router.ranked = layout_rows(l, 1, router->n_experts);
    g->router.groups = layout_rows(l, 1, router->n_groups);
    g->router.best = layout_take(l, n_best * sizeof *g->router.best);
}

static void layout_experts(struct layout *l, const struct hparams *hp, uint32_t rows,
                           uint32_t n_threads, struct cpu_experts *x)
{
    const struct router *router = &hp->router;
    size_t n_slots = (size_t)rows * router->n_chosen;
    x->logits = layout_rows(l, rows, router->n_experts);
    x->choices = layout_take(l, n_slots * sizeof *x->choices);
    x->slot_of = layout_take(l, n_slots * sizeof *x->slot_of);
    x->row_of = layout_take(l, n_slots * sizeof *x->row_of);
    x->next_slot = layout_take(l, (router->n_experts + 1) * sizeof *x->next_slot);
    x->items = layout_take(l, (n_slots / ROW_UNIT + router->n_experts) * sizeof *x->items);
    x->hidden = layout_rows(l, n_slots, router->n_ff);
    x->out = layout_rows(l, n_slots, hp->n_embd);
    for (uint32_t t = 0; t < n_threads; t++)
        layout_gathered(l, hp, &x->gathered[t]);
}

static void state_layout(struct cpu_engine *e, struct layout *l)
{
    const struct hparams *hp = &e->model->hparams;
    struct cpu_state *s = &e->state;
    struct widths w = widths_of(hp);
    uint32_t rows = e->engine.limits.max_rows, n_threads = e->engine.info.n_threads;
    size_t n_inputs = (size_t)hp->n_layers * hp->n_embd_layer;
    s->x = layout_rows(l, rows, hp->n_embd);
    s->q = layout_rows(l, rows, w.q);
    s->attended = layout_rows(l, rows, w.attended);
    for (uint32_t i = 0; i < hp->n_ropes; i++) {
        s->cos[i] = layout_rows(l, rows, hp->ropes[i].dim);
        s->sin[i] = layout_rows(l, rows, hp->ropes[i].dim);
    }
    s->layer_inputs = layout_rows(l, rows, n_inputs);
    s->outputs = layout_take(l, rows * sizeof *s->outputs);
    s->best_logits = layout_rows(l, BEST_ROWS, hp->n_vocab);
    s->shared = layout_layer_rows(l, hp, rows);
    for (uint32_t t = 0; t < n_threads; t++) {
        s->own[t] = layout_layer_rows(l, hp, CHUNK_ROWS);
        s->layer_embd[t] = layout_rows(l, 1, n_inputs);
    }
    if (cpu_has_experts(hp))
        layout_experts(l, hp, rows, n_threads, &s->experts);
}

int cpu_state_open(struct cpu_engine *e, struct error *err)
{
    struct cpu_state *s = &e->state;
    uint32_t n_threads = e->engine.info.n_threads;
    s->own = calloc(n_threads, sizeof *s->own);
    s->layer_embd = calloc(n_threads, sizeof *s->layer_embd);
    s->experts.gathered = calloc(n_threads, sizeof *s->experts.gathered);
    e->taken = calloc(cpu_phases(&e->model->hparams), sizeof *e->taken);
    if (!s->own || !s->layer_embd || !s->experts.gathered || !e->taken)
        return error_set(err, ERROR_MEMORY, "no memory for the rows of a batch");
    struct layout measured = {NULL, 0, e->quantized_kind};
    state_layout(e, &measured);
    if (buffer_map(&e->state_memory, measured.used_bytes, "the rows of a batch", err))
        return -1;
    state_layout(e, &(struct layout){e->state_memory.data, 0, e->quantized_kind});
    return 0;
}

void cpu_state_close(struct cpu_engine *e)
{
    buffer_unmap(&e->state_memory);
    free(e->state.own);
    free(e->state.layer_embd);
    free(e->state.experts.gathered);
    free(e->taken);
}
