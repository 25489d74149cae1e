/* What a batch costs at least, from the shapes and formats of the weights; see struct engine_cost.
 * Counted is what the definition of a product in matmul_internal.h says and no kernel can save. */
#include "engine/cpu/cpu_internal.h"
#include "engine/cpu/matmul_internal.h"

/* The float operations on a block of quants: its scales and mins, and the activation's scale. */
static uint64_t block_floats(struct quant_format f)
{
    return (uint64_t)f.parts * (1 + f.mins) + 1;
}

static void add_matrix(const struct packed_matrix *m, uint64_t *bytes, struct engine_macs *macs)
{
    *bytes += matrix_bytes(m);
    if (matrix_act_kind(m) == ACT_Q8) {
        macs->int8 += (uint64_t)m->rows * m->cols;
        macs->floats += (uint64_t)m->rows * m->blocks * block_floats(quant_formats[m->format]);
    } else {
        macs->floats += (uint64_t)m->rows * m->cols;
    }
}

struct engine_cost cpu_cost(const struct cpu_engine *e)
{
    const struct hparams *hp = &e->model->hparams;
    struct engine_cost cost = {0};
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct cpu_layer *l = &e->layers[i];
        const struct packed_matrix *all[] = {l->q, l->k, l->v, l->output, l->gate, l->up, l->down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            add_matrix(all[j], &cost.layer_bytes, &cost.layer_macs);
    }
    add_matrix(e->head, &cost.head_bytes, &cost.head_macs);
    cost.position_macs = (uint64_t)2 * hp->n_layers * hp->n_heads * hp->head_dim;
    return cost;
}
