/* Weights that engines compute with in another type than the file's: `--quantize`. The model only
 * records this; the values change when an engine packs them. */
#include <stddef.h>

#include "base/log.h"
#include "model/model_internal.h"
#include "model/quant/quantize.h"

/* The matrices of a layer, except the router: its choice must not depend on rounding. */
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

struct conversion {
    enum tensor_type type;
    uint32_t n, n_kept; /* matrices, and those already quantised */
};

static void convert(struct conversion *c, struct weight *w, bool matters)
{
    if (!w->data)
        return;
    enum tensor_type fitting = quantize_choose(c->type, w->cols, matters);
    bool to_float = tensor_type_is_float(c->type), was_float = tensor_type_is_float(w->type);
    c->n++;
    if (fitting == w->type)
        return;
    if (!was_float && !to_float) {
        c->n_kept++;
        return;
    }
    if (tensor_type_is_float(fitting) != to_float)
        return;
    w->is_converted = true;
    w->converted_type = fitting;
}

void model_convert(struct model *m, enum tensor_type type)
{
    struct conversion c = {.type = type};
    convert(&c, &m->output, true);
    convert(&c, &m->layer_proj, false);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        struct layer_weights *l = &m->layers[i];
        for (size_t j = 0; j < sizeof layer_matrices / sizeof *layer_matrices; j++)
            convert(&c, (struct weight *)((char *)l + layer_matrices[j]), false);
        for (uint32_t x = 0; l->experts && x < m->hparams.router.n_experts; x++) {
            convert(&c, &l->experts[x].gate, false);
            convert(&c, &l->experts[x].up, false);
            convert(&c, &l->experts[x].down, false);
        }
    }
    if (c.n_kept)
        log_warn("--quantize %s: %u of %u matrices are already quantized and stay as they are; "
                 "they can only be converted to f32, f16 or bf16",
                 tensor_type_info(type)->name, c.n_kept, c.n);
}
