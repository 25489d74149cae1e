/* See shaped_model.h. A matrix is drawn from a small pool of random blocks, which is as good as
 * random for sums and as fast as copying. */
#include "shaped_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "model/quant/quantize.h"

enum { POOL_BLOCKS = 256, FLOATS_BLOCK = 64 /* values of a type without blocks */ };

bool shaped_types_named(const char *name, struct shaped_types *out)
{
    enum tensor_type type;
    if (strcasecmp(name, "q4_k_m") == 0)
        *out = (struct shaped_types){"q4_k_m", TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_Q4_K, TENSOR_Q6_K};
    else if (strcasecmp(name, "mxfp4") == 0)
        *out = (struct shaped_types){"mxfp4", TENSOR_MXFP4, TENSOR_MXFP4, TENSOR_BF16, TENSOR_BF16};
    else if (quantize_type(name, &type))
        *out = (struct shaped_types){tensor_type_info(type)->name, type, type, type, type};
    else
        return false;
    return true;
}

bool shaped_options_named(const char *name, struct shaped_options *out)
{
    static const struct {
        const char *name;
        struct shaped_options options;
    } shapes[] = {
        {"llama8b", {32, 4096, 14336, 32, 8, 128, 128256}},
        {"llama1b", {16, 2048, 8192, 32, 8, 64, 128256}},
        {"qwen30b-a3b", {48, 2048, 0, 32, 4, 128, 151936, 128, 8, 768, .norms_qk = true}},
        {"tiny", {4, 256, 768, 4, 2, 64, 1000}},
        {"tiny-moe", {4, 256, 0, 4, 2, 64, 1000, 16, 4, 256, .norms_qk = true}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) {
            *out = shapes[i].options;
            out->shares_layers = true;
            return true;
        }
    return false;
}

/* ---- numbers ------------------------------------------------------------------------------ */

static float draw(struct shaped_model *m)
{
    return (float)(hash_mix(m->seed++) >> 40) / (1 << 23) - 1.0f;
}

/* Blocks whose values have the standard deviation `deviation`. */
static void fill_pool(struct shaped_model *m, enum tensor_type type, uint32_t len, float deviation,
                      uint8_t *pool)
{
    static const float code_deviation = 2.93f; /* of 4-bit floats */
    float values[256];
    size_t bytes = (size_t)len / tensor_type_info(type)->block_len *
                   tensor_type_info(type)->block_bytes;
    for (uint32_t b = 0; b < POOL_BLOCKS; b++, pool += bytes) {
        for (uint32_t i = 0; i < len; i++)
            values[i] = draw(m) * sqrtf(3) * deviation;
        if (type != TENSOR_MXFP4) {
            quantize(type, values, pool, len);
            continue;
        }
        pool[0] = (uint8_t)(127 + lrintf(log2f(deviation / code_deviation)));
        for (uint32_t i = 1; i < bytes; i++)
            pool[i] = (uint8_t)hash_mix(m->seed++);
    }
}

static void *take(struct shaped_model *m, size_t bytes, struct error *err)
{
    void *memory = err->code == ERROR_NONE ? arena_alloc(&m->arena, bytes) : NULL;
    if (!memory && err->code == ERROR_NONE)
        error_set(err, ERROR_MEMORY, "no memory for a model of random weights");
    return memory;
}

/* After an error, which stays as it is, nothing more is drawn. */
static struct weight draw_scaled(struct shaped_model *m, enum tensor_type type, uint32_t rows,
                                 uint32_t cols, float deviation, struct error *err)
{
    _Alignas(float) uint8_t pool[POOL_BLOCKS * 256];
    const struct tensor_type_info *info = tensor_type_info(type);
    uint32_t len = info->block_len > 1 ? info->block_len : FLOATS_BLOCK;
    size_t bytes = (size_t)len / info->block_len * info->block_bytes;
    if (err->code == ERROR_NONE && cols % info->block_len)
        error_set(err, ERROR_INPUT, "%s has no rows of %u values", info->name, cols);
    if (err->code != ERROR_NONE)
        return (struct weight){0};
    size_t all = (size_t)rows * (cols / info->block_len) * info->block_bytes;
    uint8_t *data = take(m, all, err);
    fill_pool(m, type, len, deviation, pool);
    uint64_t state = m->seed++;
    for (size_t at = 0; data && at < all; at += bytes) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t n = all - at < bytes ? all - at : bytes;
        memcpy(data + at, pool + (state >> 33) % POOL_BLOCKS * bytes, n);
    }
    return weight_make(type, rows, cols, data);
}

static struct weight draw_matrix(struct shaped_model *m, enum tensor_type type, uint32_t rows,
                                 uint32_t cols, struct error *err)
{
    return draw_scaled(m, type, rows, cols, 1 / sqrtf((float)cols), err);
}

static const float *draw_vector(struct shaped_model *m, uint32_t n, float middle, struct error *err)
{
    float *v = take(m, n * sizeof *v, err);
    for (uint32_t i = 0; v && i < n; i++)
        v[i] = middle + 0.2f * draw(m);
    return v;
}

/* ---- the model ---------------------------------------------------------------------------- */

static void draw_attention(struct shaped_model *m, const struct shaped_options *o,
                           enum tensor_type more, struct layer_weights *l, struct error *err)
{
    uint32_t n_q = o->n_heads * o->head_dim, n_kv = o->n_kv_heads * o->head_dim;
    l->attn_norm = draw_vector(m, o->n_embd, 1, err);
    l->attn_q = draw_matrix(m, o->types.matrix, n_q, o->n_embd, err);
    l->attn_k = draw_matrix(m, o->types.matrix, n_kv, o->n_embd, err);
    l->attn_v = draw_matrix(m, more, n_kv, o->n_embd, err);
    l->attn_output = draw_matrix(m, o->types.matrix, o->n_embd, n_q, err);
    if (o->has_biases) {
        l->q_bias = draw_vector(m, n_q, 0, err);
        l->k_bias = draw_vector(m, n_kv, 0, err);
        l->v_bias = draw_vector(m, n_kv, 0, err);
        l->output_bias = draw_vector(m, o->n_embd, 0, err);
    }
    if (o->norms_qk) {
        l->q_norm = draw_vector(m, o->head_dim, 1, err);
        l->k_norm = draw_vector(m, o->head_dim, 1, err);
    }
    if (o->has_sinks)
        l->sinks = draw_vector(m, o->n_heads, 0.5f, err);
    if (o->is_gemma)
        l->attn_post_norm = draw_vector(m, o->n_embd, 1, err);
}

static void draw_experts(struct shaped_model *m, const struct shaped_options *o,
                         enum tensor_type more, struct layer_weights *l, struct error *err)
{
    l->router = draw_matrix(m, TENSOR_F32, o->n_experts, o->n_embd, err);
    l->experts = take(m, o->n_experts * sizeof *l->experts, err);
    for (uint32_t i = 0; l->experts && i < o->n_experts; i++) {
        struct expert_weights *x = &l->experts[i];
        *x = (struct expert_weights){
            .gate = draw_matrix(m, o->types.matrix, o->n_ff_expert, o->n_embd, err),
            .up = draw_matrix(m, o->types.matrix, o->n_ff_expert, o->n_embd, err),
            .down = draw_matrix(m, more, o->n_embd, o->n_ff_expert, err),
        };
        if (o->has_biases) {
            x->gate_bias = draw_vector(m, o->n_ff_expert, 0, err);
            x->up_bias = draw_vector(m, o->n_ff_expert, 0, err);
            x->down_bias = draw_vector(m, o->n_embd, 0, err);
        }
    }
}

static void draw_layer(struct shaped_model *m, const struct shaped_options *o, uint32_t index,
                       struct error *err)
{
    struct layer_weights *l = &m->model.layers[index];
    enum tensor_type more = index % 2 ? o->types.more : o->types.matrix;
    if (o->shares_layers && index >= 2) {
        *l = m->model.layers[index - 2];
        return;
    }
    *l = (struct layer_weights){.out_scale = 1};
    draw_attention(m, o, more, l, err);
    l->ffn_norm = draw_vector(m, o->n_embd, 1, err);
    if (o->is_gemma)
        l->ffn_post_norm = draw_vector(m, o->n_embd, 1, err);
    if (o->n_experts) {
        draw_experts(m, o, more, l, err);
        return;
    }
    l->ffn_gate = draw_matrix(m, o->types.matrix, o->n_ff, o->n_embd, err);
    l->ffn_up = draw_matrix(m, o->types.matrix, o->n_ff, o->n_embd, err);
    l->ffn_down = draw_matrix(m, more, o->n_embd, o->n_ff, err);
}

static struct rope make_rope(struct shaped_model *m, uint32_t dim, struct error *err)
{
    struct rope rope = {.kind = ROPE_NEOX, .dim = dim, .amplitude = 1};
    rope.frequencies = take(m, dim / 2 * sizeof *rope.frequencies, err);
    for (uint32_t i = 0; rope.frequencies && i < dim / 2; i++)
        rope.frequencies[i] = 1 / pow(500000, 2.0 * i / dim);
    return rope;
}

static void make_hparams(struct shaped_model *m, const struct shaped_options *o, struct error *err)
{
    struct hparams *hp = &m->model.hparams;
    *hp = (struct hparams){.arch = "shaped",
                           .n_layers = o->n_layers,
                           .n_embd = o->n_embd,
                           .n_vocab = o->n_vocab,
                           .n_context = 131072,
                           .norm_eps = 1e-5f,
                           .activation = o->is_gemma ? ACTIVATION_GELU_TANH : ACTIVATION_SILU,
                           .qk_norm = o->norms_qk ? QK_NORM_HEADS : QK_NORM_NONE,
                           .embd_scale = 1,
                           .residual_scale = 1,
                           .logit_scale = 1,
                           .attn_softcap = o->is_gemma ? 50 : 0,
                           .logit_softcap = o->is_gemma ? 30 : 0,
                           .ropes = {make_rope(m, o->head_dim, err)},
                           .n_ropes = 1};
    if (o->n_experts)
        hp->router = (struct router){.n_experts = o->n_experts,
                                     .n_chosen = o->n_chosen,
                                     .n_ff = o->n_ff_expert,
                                     .n_groups = 1,
                                     .n_chosen_groups = 1,
                                     .normalizes = true,
                                     .scale = 1};
    hp->layers = take(m, o->n_layers * sizeof *hp->layers, err);
    for (uint32_t i = 0; hp->layers && i < o->n_layers; i++)
        hp->layers[i] = (struct layer_shape){.n_heads = o->n_heads,
                                             .n_kv_heads = o->n_kv_heads,
                                             .key_dim = o->head_dim,
                                             .value_dim = o->head_dim,
                                             .window = i % 3 != 2 ? o->window : 0,
                                             .is_windowed = o->window && i % 3 != 2,
                                             .kv_layer = i,
                                             .attn_scale = 1 / sqrtf((float)o->head_dim),
                                             .n_ff = o->n_experts ? 0 : o->n_ff,
                                             .has_experts = o->n_experts > 0};
}

int shaped_model_open(struct shaped_model *m, const struct shaped_options *o, struct error *err)
{
    struct model *model = &m->model;
    *m = (struct shaped_model){.seed = o->seed * 1000003};
    *err = (struct error){0};
    m->checkpoint.c.gguf = &m->gguf;
    model->checkpoint = &m->checkpoint.c;
    make_hparams(m, o, err);
    model->token_embd = draw_scaled(m, o->types.embd, o->n_vocab, o->n_embd, 1, err);
    model->output_norm = draw_vector(m, o->n_embd, 1, err);
    model->output = draw_matrix(m, o->types.output, o->n_vocab, o->n_embd, err);
    model->layers = take(m, o->n_layers * sizeof *model->layers, err);
    for (uint32_t i = 0; model->layers && i < o->n_layers; i++)
        draw_layer(m, o, i, err);
    if (err->code == ERROR_NONE)
        return 0;
    shaped_model_close(m);
    return -1;
}

void shaped_model_close(struct shaped_model *m)
{
    arena_free(&m->arena);
}
