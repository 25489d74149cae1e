/* Weights that engines are to compute with in another type than the file's: `--quantize`. The model
 * only says so; the values change when an engine packs them. */
#include <stddef.h>

#include "model/model_internal.h"
#include "model/requantize.h"

/* The matrices of a layer, but for the router: what it chooses must not depend on rounding. */
static const size_t layer_matrices[] = {
    offsetof(struct layer_weights, attn_q),       offsetof(struct layer_weights, attn_k),
    offsetof(struct layer_weights, attn_v),       offsetof(struct layer_weights, attn_output),
    offsetof(struct layer_weights, q_a),          offsetof(struct layer_weights, q_b),
    offsetof(struct layer_weights, kv_a),         offsetof(struct layer_weights, k_b),
    offsetof(struct layer_weights, v_b),          offsetof(struct layer_weights, ffn_gate),
    offsetof(struct layer_weights, ffn_up),       offsetof(struct layer_weights, ffn_down),
    offsetof(struct layer_weights, shared_gate),  offsetof(struct layer_weights, shared_up),
    offsetof(struct layer_weights, shared_down),  offsetof(struct layer_weights, layer_gate),
    offsetof(struct layer_weights, layer_output),
};

static void convert(struct weight *w, enum tensor_type type, bool matters)
{
    enum tensor_type fitting = requantize_choose(type, w->cols, matters);
    bool to_float = tensor_type_is_float(type);
    if (!w->data || tensor_type_is_float(fitting) != to_float ||
        (!tensor_type_is_float(w->type) && !to_float) || fitting == w->type)
        return;
    w->is_converted = true;
    w->converted_type = fitting;
}

void model_convert(struct model *m, enum tensor_type type)
{
    convert(&m->output, type, true);
    convert(&m->layer_proj, type, false);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        struct layer_weights *l = &m->layers[i];
        for (size_t j = 0; j < sizeof layer_matrices / sizeof *layer_matrices; j++)
            convert((struct weight *)((char *)l + layer_matrices[j]), type, false);
        for (uint32_t x = 0; l->experts && x < m->hparams.router.n_experts; x++) {
            convert(&l->experts[x].gate, type, false);
            convert(&l->experts[x].up, type, false);
            convert(&l->experts[x].down, type, false);
        }
    }
}
