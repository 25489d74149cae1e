/* The slots for tensors in a model, and their sizes; see model_internal.h. Constant data, any
 * thread. */
#include "model/model_internal.h"

#include <stddef.h>

const struct slot_info slots[N_SLOTS] = {
#define LAYER(field) offsetof(struct layer_weights, field)
    [SLOT_ATTN_NORM] = {LAYER(attn_norm), NORM, ONE, EMBD},
    [SLOT_Q] = {LAYER(attn_q), MATRIX, Q_DIM, EMBD},
    [SLOT_K] = {LAYER(attn_k), MATRIX, KV_DIM, EMBD},
    [SLOT_V] = {LAYER(attn_v), MATRIX, KV_DIM, EMBD},
    [SLOT_Q_BIAS] = {LAYER(q_bias), VECTOR, ONE, Q_DIM},
    [SLOT_K_BIAS] = {LAYER(k_bias), VECTOR, ONE, KV_DIM},
    [SLOT_V_BIAS] = {LAYER(v_bias), VECTOR, ONE, KV_DIM},
    [SLOT_Q_NORM] = {LAYER(q_norm), NORM, ONE, Q_NORM_DIM},
    [SLOT_K_NORM] = {LAYER(k_norm), NORM, ONE, K_NORM_DIM},
    [SLOT_SINKS] = {LAYER(sinks), VECTOR, ONE, HEADS},
    [SLOT_ATTN_OUTPUT] = {LAYER(attn_output), MATRIX, EMBD, VALUES_DIM},
    [SLOT_OUTPUT_BIAS] = {LAYER(output_bias), VECTOR, ONE, EMBD},
    [SLOT_ATTN_POST_NORM] = {LAYER(attn_post_norm), NORM, ONE, EMBD},
    [SLOT_Q_A] = {LAYER(q_a), MATRIX, Q_RANK, EMBD},
    [SLOT_Q_A_BIAS] = {LAYER(q_a_bias), VECTOR, ONE, Q_RANK},
    [SLOT_Q_A_NORM] = {LAYER(q_a_norm), NORM, ONE, Q_RANK},
    [SLOT_Q_B] = {LAYER(q_b), MATRIX, MLA_Q_DIM, Q_RANK},
    [SLOT_KV_A] = {LAYER(kv_a), MATRIX, KV_A_DIM, EMBD},
    [SLOT_KV_A_BIAS] = {LAYER(kv_a_bias), VECTOR, ONE, KV_A_DIM},
    [SLOT_KV_A_NORM] = {LAYER(kv_a_norm), NORM, ONE, KV_RANK},
    [SLOT_K_B] = {LAYER(k_b), MATRIX, K_B_ROWS, NOPE_DIM},
    [SLOT_V_B] = {LAYER(v_b), MATRIX, V_B_ROWS, KV_RANK},
    [SLOT_FFN_NORM] = {LAYER(ffn_norm), NORM, ONE, EMBD},
    [SLOT_GATE] = {LAYER(ffn_gate), MATRIX, FF, EMBD},
    [SLOT_UP] = {LAYER(ffn_up), MATRIX, FF, EMBD},
    [SLOT_DOWN] = {LAYER(ffn_down), MATRIX, EMBD, FF},
    [SLOT_GATE_BIAS] = {LAYER(gate_bias), VECTOR, ONE, FF},
    [SLOT_UP_BIAS] = {LAYER(up_bias), VECTOR, ONE, FF},
    [SLOT_DOWN_BIAS] = {LAYER(down_bias), VECTOR, ONE, EMBD},
    [SLOT_FFN_POST_NORM] = {LAYER(ffn_post_norm), NORM, ONE, EMBD},
    [SLOT_ROUTER] = {LAYER(router), MATRIX, EXPERTS, EMBD},
    [SLOT_ROUTER_BIAS] = {LAYER(router_bias), VECTOR, ONE, EXPERTS},
    [SLOT_ROUTER_CORRECTION] = {LAYER(router_correction), VECTOR, ONE, EXPERTS},
    [SLOT_ROUTER_SCALE] = {LAYER(router_scale), VECTOR, ONE, EMBD},
    [SLOT_EXPERT_SCALE] = {LAYER(expert_scale), VECTOR, ONE, EXPERTS},
    [SLOT_SHARED_GATE] = {LAYER(shared_gate), MATRIX, SHARED_FF, EMBD},
    [SLOT_SHARED_UP] = {LAYER(shared_up), MATRIX, SHARED_FF, EMBD},
    [SLOT_SHARED_DOWN] = {LAYER(shared_down), MATRIX, EMBD, SHARED_FF},
    [SLOT_SHARED_ROUTER] = {LAYER(shared_router), VECTOR, ONE, EMBD},
    [SLOT_DENSE_POST_NORM] = {LAYER(dense_post_norm), NORM, ONE, EMBD},
    [SLOT_EXPERT_NORM] = {LAYER(expert_norm), NORM, ONE, EMBD},
    [SLOT_EXPERT_POST_NORM] = {LAYER(expert_post_norm), NORM, ONE, EMBD},
    [SLOT_LAYER_GATE] = {LAYER(layer_gate), MATRIX, LAYER_INPUT, EMBD},
    [SLOT_LAYER_OUTPUT] = {LAYER(layer_output), MATRIX, EMBD, LAYER_INPUT},
    [SLOT_LAYER_POST_NORM] = {LAYER(layer_post_norm), NORM, ONE, EMBD},
    [SLOT_OUT_SCALE] = {LAYER(out_scale), VECTOR, ONE, ONE},
#undef LAYER
#define EXPERT(field) offsetof(struct expert_weights, field)
    [SLOT_EXPERT_GATE] = {EXPERT(gate), MATRIX, EXPERT_FF, EMBD},
    [SLOT_EXPERT_UP] = {EXPERT(up), MATRIX, EXPERT_FF, EMBD},
    [SLOT_EXPERT_DOWN] = {EXPERT(down), MATRIX, EMBD, EXPERT_FF},
    [SLOT_EXPERT_GATE_BIAS] = {EXPERT(gate_bias), VECTOR, ONE, EXPERT_FF},
    [SLOT_EXPERT_UP_BIAS] = {EXPERT(up_bias), VECTOR, ONE, EXPERT_FF},
    [SLOT_EXPERT_DOWN_BIAS] = {EXPERT(down_bias), VECTOR, ONE, EMBD},
#undef EXPERT
#define MODEL(field) offsetof(struct model, field)
    [SLOT_TOKEN_EMBD] = {MODEL(token_embd), MATRIX, VOCAB, EMBD},
    [SLOT_OUTPUT_NORM] = {MODEL(output_norm), NORM, ONE, EMBD},
    [SLOT_OUTPUT] = {MODEL(output), MATRIX, VOCAB, EMBD},
    [SLOT_LAYER_EMBD] = {MODEL(layer_embd), MATRIX, VOCAB, LAYER_INPUTS},
    [SLOT_LAYER_PROJ] = {MODEL(layer_proj), MATRIX, LAYER_INPUTS, EMBD},
    [SLOT_LAYER_PROJ_NORM] = {MODEL(layer_proj_norm), NORM, ONE, LAYER_INPUT},
#undef MODEL
};

uint32_t extent_value(const struct hparams *h, uint32_t layer, enum extent extent)
{
    const struct layer_shape *shape = &h->layers[layer == NO_LAYER ? 0 : layer];
    const struct mla_shape *mla = &h->mla;
    uint32_t qk_dim = mla->nope_dim + mla->rope_dim;
    switch (extent) {
    case ONE: return 1;
    case EMBD: return h->n_embd;
    case Q_DIM: return shape->n_heads * (mla->kv_rank ? qk_dim : shape->key_dim);
    case KV_DIM: return shape->n_kv_heads * shape->key_dim;
    case VALUES_DIM: return shape->n_heads * (mla->kv_rank ? mla->value_dim : shape->value_dim);
    case Q_NORM_DIM: return (h->qk_norm == QK_NORM_HEADS ? 1 : shape->n_heads) * shape->key_dim;
    case K_NORM_DIM: return (h->qk_norm == QK_NORM_HEADS ? 1 : shape->n_kv_heads) * shape->key_dim;
    case HEADS: return shape->n_heads;
    case FF: return shape->n_ff;
    case EXPERTS: return h->router.n_experts;
    case EXPERT_FF: return h->router.n_ff;
    case SHARED_FF: return h->router.n_ff_shared;
    case LAYER_INPUT: return h->n_embd_layer;
    case LAYER_INPUTS: return h->n_embd_layer * h->n_layers;
    case Q_RANK: return mla->q_rank;
    case MLA_Q_DIM: return shape->n_heads * qk_dim;
    case KV_RANK: return mla->kv_rank;
    case KV_A_DIM: return mla->kv_rank + mla->rope_dim;
    case K_B_ROWS: return shape->n_heads * mla->kv_rank;
    case NOPE_DIM: return mla->nope_dim;
    case V_B_ROWS: return shape->n_heads * mla->value_dim;
    case VOCAB: return h->n_vocab;
    }
    return 0;
}
