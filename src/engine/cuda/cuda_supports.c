/* What the engine cannot compute, named by what a user could look up. Pure. */
#include "engine/cuda/cuda_internal.h"

_Static_assert((int)CUDA_KV_F16 == (int)KV_F16 && (int)CUDA_KV_F32 == (int)KV_F32 &&
                   (int)CUDA_KV_BF16 == (int)KV_BF16,
               "kernels know enum kv_type");
_Static_assert((int)CUDA_SILU == (int)ACTIVATION_SILU &&
                   (int)CUDA_GELU_TANH == (int)ACTIVATION_GELU_TANH &&
                   (int)CUDA_GELU == (int)ACTIVATION_GELU &&
                   (int)CUDA_SWIGLU_OAI == (int)ACTIVATION_SWIGLU_OAI,
               "kernels know enum activation");
_Static_assert((int)CUDA_SOFTMAX == (int)ROUTER_SOFTMAX &&
                   (int)CUDA_SIGMOID == (int)ROUTER_SIGMOID &&
                   (int)CUDA_SOFTMAX_CHOSEN == (int)ROUTER_SOFTMAX_CHOSEN,
               "kernels know enum router_scores");

enum {
    MAX_EXPERTS = 1024, /* of choose_experts and group_rows */
    MAX_GRID_Y = 65535,
};

static const char *missing_of_model(const struct hparams *hp)
{
    return hp->mla.kv_rank                      ? "latent attention (MLA)"
           : hp->norm != NORM_RMS               ? "layer norms that subtract the mean"
           : hp->is_parallel                    ? "parallel blocks"
           : hp->n_embd_layer                   ? "per-layer inputs"
           : hp->router.norms_input             ? "routers with a norm of their own"
           : hp->router.n_ff_shared             ? "shared experts"
           : hp->router.n_groups > 1            ? "groups of experts"
           : hp->router.n_experts > MAX_EXPERTS ? "more than 1,024 experts"
                                                : NULL;
}

/* Blocks of product_f32 are counted in the grid's second dimension. */
static bool is_head_too_large(const struct model *m)
{
    return cuda_pack_shape(&m->output).format == FORMAT_F32 &&
           m->output.rows > MAX_GRID_Y * F32_OUTPUTS;
}

static const char *missing_of_layer(const struct layer_shape *shape, const struct layer_weights *w,
                                    enum kv_type kv_type)
{
    bool is_odd = kv_type != KV_F32 && (shape->key_dim % 8 || shape->value_dim % 8);
    return shape->norms_values || shape->values_are_keys ? "values that are made from keys"
           : shape->has_experts && shape->n_ff           ? "experts beside a dense block"
           : shape->key_dim > ATTENTION_MAX_DIM || shape->value_dim > ATTENTION_MAX_DIM
               ? "attention heads of more than 256 values"
           : is_odd ? "attention heads that are no multiple of 8 values (try --kv-type f32)"
           : w->out_scale != 1.0f ? "scaled layers"
                                  : NULL;
}

int cuda_engine_supports(const struct model *model, const struct engine_limits *limits,
                         struct error *err)
{
    struct cuda_plan_limits plan;
    const char *missing = missing_of_model(&model->hparams);
    if (!missing && is_head_too_large(model))
        missing = "heads of so many tokens in F32";
    for (uint32_t i = 0; i < model->hparams.n_layers && !missing; i++)
        missing = missing_of_layer(&model->hparams.layers[i], &model->layers[i], limits->kv_type);
    if (!missing && cuda_layout_shapes(model, &plan, NULL, CUDA_MAX_GROUPS, NULL))
        missing = "so many kinds of attention layers";
    if (!missing)
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
                     "the CUDA engine has no %s yet, which this model (%s) needs: use --engine cpu",
                     missing, model->hparams.arch);
}
