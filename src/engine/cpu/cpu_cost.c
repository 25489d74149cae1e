/* The least that a batch costs, from the shapes and formats of the weights; see struct engine_cost.
 * It counts the operations in the definition of a product (matmul_internal.h), which no kernel can
 * avoid; twice for a row of 16-bit activations. Of experts, it counts those that one row uses; a
 * batch of more rows reads more of them. */
#include "engine/cpu/cpu_internal.h"
#include "engine/cpu/kernels/matmul_internal.h"

/* Float operations per block of quants: its scales and mins, and the activation's scale. */
static uint64_t block_floats(struct quant_format f)
{
    return (uint64_t)f.parts * (1 + f.mins) + 1;
}

static void add_matrix(const struct cpu_engine *e, const struct packed_matrix *m, uint64_t *bytes,
                       struct engine_macs *macs)
{
    uint64_t times = e->quantized_kind == ACT_Q16 ? 2 : 1;
    *bytes += matrix_bytes(m);
    if (matrix_act_kind(m) == ACT_Q8) {
        macs->int8 += times * m->rows * m->cols;
        macs->floats += times * m->rows * m->blocks * block_floats(quant_formats[m->format]);
    } else {
        macs->floats += (uint64_t)m->rows * m->cols;
    }
}

/* Counts `n` matrices like this one. */
static void add_like(const struct cpu_engine *e, const struct packed_matrix *m, uint32_t n,
                     uint64_t *bytes, struct engine_macs *macs)
{
    uint64_t one_bytes = 0;
    struct engine_macs one = {0};
    if (m)
        add_matrix(e, m, &one_bytes, &one);
    *bytes += n * one_bytes;
    macs->int8 += n * one.int8;
    macs->floats += n * one.floats;
}

static void add_layer(const struct cpu_engine *e, uint32_t layer, struct engine_cost *cost)
{
    const struct hparams *hp = &e->model->hparams;
    const struct cpu_layer *l = &e->layers[layer];
    uint32_t n_heads = hp->layers[layer].n_heads;
    const struct packed_matrix *all[] = {
        l->q,         l->k,           l->v,          l->output,      l->gate,   l->up,
        l->down,      l->q_a,         l->q_b,        l->kv_a,        l->router, l->shared_gate,
        l->shared_up, l->shared_down, l->layer_gate, l->layer_output};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        add_like(e, all[i], 1, &cost->layer_bytes, &cost->layer_macs);
    if (l->k_b) {
        add_like(e, l->k_b[0], n_heads, &cost->layer_bytes, &cost->layer_macs);
        add_like(e, l->v_b[0], n_heads, &cost->layer_bytes, &cost->layer_macs);
    }
    if (l->experts) {
        const struct packed_matrix *expert[] = {l->experts->gate, l->experts->up, l->experts->down};
        for (size_t i = 0; i < sizeof expert / sizeof *expert; i++)
            add_like(e, expert[i], hp->router.n_chosen, &cost->layer_bytes, &cost->layer_macs);
    }
}

struct engine_cost cpu_cost(const struct cpu_engine *e)
{
    const struct hparams *hp = &e->model->hparams;
    struct engine_cost cost = {0};
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_shape *shape = &hp->layers[i];
        add_layer(e, i, &cost);
        cost.position_macs += (uint64_t)shape->n_heads * (shape->key_dim + shape->value_dim);
    }
    add_like(e, e->layer_proj, 1, &cost.layer_bytes, &cost.layer_macs);
    add_like(e, e->head, 1, &cost.head_bytes, &cost.head_macs);
    return cost;
}
