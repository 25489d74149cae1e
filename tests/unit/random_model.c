/* See random_model.h. */
#include "random_model.h"

#include <stdio.h>

static uint32_t below(struct tiny_model *t, uint32_t n)
{
    return (uint32_t)((hash_mix(t->seed++) >> 32) * n >> 32);
}

static bool coin(struct tiny_model *t)
{
    return below(t, 2);
}

/* A vector, or none half of the time. */
static const float *maybe(struct tiny_model *t, bool wanted, uint32_t n, float middle)
{
    return wanted && coin(t) ? tiny_vector(t, n, middle) : NULL;
}

static void draw_ropes(struct tiny_model *t, uint32_t dim)
{
    struct hparams *hp = &t->model.hparams;
    hp->n_ropes = 1 + below(t, MAX_ROPES);
    for (uint32_t i = 0; i < hp->n_ropes; i++) {
        struct tiny_options o = {.rope_kind = coin(t) ? ROPE_NORM : ROPE_NEOX,
                                 .rope_dim = dim > 4 && !hp->mla.kv_rank && coin(t) ? dim / 4 * 2
                                                                                    : dim,
                                 .rope_scale = 0.5f + 0.5f * (float)below(t, 3),
                                 .divisors = coin(t)};
        hp->ropes[i] = tiny_rope(t, &o);
        hp->ropes[i].amplitude = coin(t) ? 1 : 1.1f;
    }
}

static void draw_router(struct tiny_model *t, uint32_t unit)
{
    struct router *r = &t->model.hparams.router;
    static const uint32_t groups[][2] = {{1, 1}, {1, 1}, {2, 1}, {4, 2}, {3, 3}};
    const uint32_t *g = groups[below(t, 5)];
    *r = (struct router){.n_experts = g[0] * (2 + below(t, 4)),
                         .n_ff = unit * (1 + below(t, 2)),
                         .n_ff_shared = coin(t) ? unit * (1 + below(t, 2)) : 0,
                         .scores = below(t, 3),
                         .n_groups = g[0],
                         .n_chosen_groups = g[1],
                         .groups = below(t, 2),
                         .normalizes = coin(t),
                         .normalize_eps = coin(t) ? 1e-20f : 0.01f,
                         .scale = coin(t) ? 1 : 1.7f};
    r->n_chosen = 1 + below(t, r->n_experts / r->n_groups * r->n_chosen_groups);
    if (r->n_chosen > 4)
        r->n_chosen = 4;
}

static void draw_shapes(struct tiny_model *t, enum random_kind kind, uint32_t unit)
{
    struct hparams *hp = &t->model.hparams;
    bool in_blocks = unit == 32;
    uint32_t dims[] = {unit, in_blocks ? 64 : unit / 2, in_blocks ? 32 : unit * 3 / 4};
    uint32_t windows[] = {1, 7, 40};
    bool has_windows = coin(t), varies = coin(t), shares = coin(t);
    uint32_t n_kv = 1 + below(t, 2), group = 1 + below(t, 3), window = windows[below(t, 3)];
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        struct layer_shape *s = &hp->layers[i];
        bool is_windowed = has_windows && i % 3 != 2;
        uint32_t dim = varies && is_windowed ? dims[0] : dims[hash_pair(t->seed / 1000003, 5) % 3];
        *s = (struct layer_shape){.n_kv_heads = varies && is_windowed ? 2 : n_kv,
                                  .key_dim = dim,
                                  .value_dim = dim,
                                  .window = is_windowed ? window + (varies ? i : 0) : 0,
                                  .rope = coin(t) ? below(t, hp->n_ropes) : 0,
                                  .kv_layer = i,
                                  .attn_scale = (coin(t) ? 1 : 0.7f) / sqrtf((float)dim),
                                  .n_ff = unit * (1 + below(t, 3))};
        if (below(t, 6) == 0)
            s->rope = ROPE_NONE;
        s->n_heads = s->n_kv_heads * group;
        if (kind == RANDOM_EXPERTS || kind == RANDOM_GEMMA || (kind == RANDOM_LATENT && i > 0))
            s->has_experts = hp->router.n_experts > 0 && (i > 0 || coin(t));
        if (s->has_experts && kind != RANDOM_GEMMA && below(t, 4))
            s->n_ff = 0;
        if (kind == RANDOM_GEMMA) {
            s->norms_values = coin(t);
            s->values_are_keys = coin(t);
        } else if (below(t, 3) == 0) {
            s->value_dim = dims[below(t, 3)];
        }
        if (shares && i >= 3 && hp->layers[i - 3].kv_layer == i - 3) {
            struct layer_shape own = *s;
            *s = hp->layers[i - 3];
            s->window = s->window ? own.window : 0;
            s->n_ff = own.n_ff;
            s->has_experts = own.has_experts;
            s->n_heads = s->n_kv_heads * (1 + below(t, 3));
        }
    }
}

static void draw_latent_shapes(struct tiny_model *t, uint32_t unit)
{
    struct hparams *hp = &t->model.hparams;
    hp->mla = (struct mla_shape){.q_rank = coin(t) ? unit : 0,
                                 .kv_rank = unit == 32 ? 64 : unit + 4,
                                 .nope_dim = unit,
                                 .rope_dim = 8,
                                 .value_dim = unit == 32 ? 32 : unit - 2,
                                 .norm_eps = 1e-6f};
    uint32_t n_heads = 1 + below(t, 5);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        struct layer_shape *s = &hp->layers[i];
        s->n_heads = n_heads;
        s->n_kv_heads = 1;
        s->key_dim = hp->mla.kv_rank + hp->mla.rope_dim;
        s->value_dim = hp->mla.kv_rank;
        s->kv_layer = i;
        s->attn_scale = 1 / sqrtf((float)(hp->mla.nope_dim + hp->mla.rope_dim));
    }
}

static void draw_attention(struct tiny_model *t, uint32_t layer, enum tensor_type matrix,
                           bool biases, bool norms_qk, bool has_sinks)
{
    const struct hparams *hp = &t->model.hparams;
    const struct layer_shape *s = &hp->layers[layer];
    struct layer_weights *l = &t->model.layers[layer];
    uint32_t n_q = s->n_heads * s->key_dim, n_k = s->n_kv_heads * s->key_dim;
    uint32_t n_v = s->n_kv_heads * s->value_dim;
    l->attn_q = tiny_weight(t, matrix, n_q, hp->n_embd);
    l->q_bias = maybe(t, biases, n_q, 0);
    if (norms_qk)
        l->q_norm = tiny_vector(t, hp->qk_norm == QK_NORM_HEADS ? s->key_dim : n_q, 1);
    if (has_sinks)
        l->sinks = tiny_vector(t, s->n_heads, 0.5f);
    l->attn_output = tiny_weight(t, matrix, hp->n_embd, s->n_heads * s->value_dim);
    if (s->kv_layer != layer)
        return;
    l->attn_k = tiny_weight(t, matrix, n_k, hp->n_embd);
    l->k_bias = maybe(t, biases, n_k, 0);
    if (norms_qk)
        l->k_norm = tiny_vector(t, hp->qk_norm == QK_NORM_HEADS ? s->key_dim : n_k, 1);
    if (s->values_are_keys)
        return;
    l->attn_v = tiny_weight(t, matrix, n_v, hp->n_embd);
    l->v_bias = maybe(t, biases, n_v, 0);
}

static void draw_latent(struct tiny_model *t, uint32_t layer, enum tensor_type matrix, bool biases)
{
    const struct hparams *hp = &t->model.hparams;
    const struct mla_shape *mla = &hp->mla;
    struct layer_weights *l = &t->model.layers[layer];
    uint32_t n_heads = hp->layers[layer].n_heads, n_q = n_heads * (mla->nope_dim + mla->rope_dim);
    if (mla->q_rank) {
        l->q_a = tiny_weight(t, matrix, mla->q_rank, hp->n_embd);
        l->q_a_bias = maybe(t, biases, mla->q_rank, 0);
        l->q_a_norm = tiny_vector(t, mla->q_rank, 1);
        l->q_b = tiny_weight(t, matrix, n_q, mla->q_rank);
    } else {
        l->attn_q = tiny_weight(t, matrix, n_q, hp->n_embd);
    }
    l->kv_a = tiny_weight(t, matrix, mla->kv_rank + mla->rope_dim, hp->n_embd);
    l->kv_a_bias = maybe(t, biases, mla->kv_rank + mla->rope_dim, 0);
    l->kv_a_norm = tiny_vector(t, mla->kv_rank, 1);
    l->k_b = tiny_weight(t, matrix, n_heads * mla->kv_rank, mla->nope_dim);
    l->v_b = tiny_weight(t, matrix, n_heads * mla->value_dim, mla->kv_rank);
    l->attn_output = tiny_weight(t, matrix, hp->n_embd, n_heads * mla->value_dim);
}

static void draw_experts(struct tiny_model *t, uint32_t layer, enum random_kind kind,
                         enum tensor_type matrix, bool biases)
{
    const struct hparams *hp = &t->model.hparams;
    const struct router *r = &hp->router;
    struct layer_weights *l = &t->model.layers[layer];
    uint32_t n = hp->n_embd;
    l->router = tiny_weight(t, coin(t) ? TENSOR_F32 : matrix, r->n_experts, n);
    l->router_bias = maybe(t, biases, r->n_experts, 0);
    l->router_correction = maybe(t, r->scores != ROUTER_SOFTMAX_CHOSEN, r->n_experts, -0.2f);
    l->expert_scale = maybe(t, kind == RANDOM_GEMMA, r->n_experts, 1);
    if (r->norms_input)
        l->router_scale = tiny_vector(t, n, (float)(4 * sqrt(n)));
    l->experts = arena_alloc_array(&t->arena, r->n_experts, sizeof *l->experts);
    CHECK(l->experts != NULL);
    for (uint32_t e = 0; e < r->n_experts; e++) {
        struct expert_weights *x = &l->experts[e];
        x->gate = tiny_weight(t, matrix, r->n_ff, n);
        x->up = tiny_weight(t, matrix, r->n_ff, n);
        x->down = tiny_weight(t, matrix, n, r->n_ff);
        x->gate_bias = maybe(t, biases, r->n_ff, 0);
        x->up_bias = maybe(t, biases, r->n_ff, 0);
        x->down_bias = maybe(t, biases, n, 0);
    }
    if (r->n_ff_shared) {
        l->shared_gate = tiny_weight(t, matrix, r->n_ff_shared, n);
        l->shared_up = tiny_weight(t, matrix, r->n_ff_shared, n);
        l->shared_down = tiny_weight(t, matrix, n, r->n_ff_shared);
        l->shared_router = maybe(t, coin(t), n, 0);
    }
    l->dense_post_norm = maybe(t, kind == RANDOM_GEMMA, n, 1);
    l->expert_norm = maybe(t, kind == RANDOM_GEMMA, n, 1);
    l->expert_post_norm = maybe(t, kind == RANDOM_GEMMA, n, 1);
}

static void draw_feed_forward(struct tiny_model *t, uint32_t layer, enum tensor_type matrix,
                              bool biases)
{
    const struct hparams *hp = &t->model.hparams;
    struct layer_weights *l = &t->model.layers[layer];
    uint32_t n_ff = hp->layers[layer].n_ff;
    if (n_ff == 0)
        return;
    l->ffn_gate = tiny_weight(t, matrix, n_ff, hp->n_embd);
    if (hp->activation == ACTIVATION_SWIGLU_OAI || below(t, 5))
        l->ffn_up = tiny_weight(t, matrix, n_ff, hp->n_embd);
    l->ffn_down = tiny_weight(t, matrix, hp->n_embd, n_ff);
    l->gate_bias = maybe(t, biases, n_ff, 0);
    l->up_bias = maybe(t, biases, n_ff, 0);
    l->down_bias = maybe(t, biases, hp->n_embd, 0);
}

static void draw_layer(struct tiny_model *t, uint32_t layer, enum random_kind kind,
                       enum tensor_type matrix, const bool coins[6])
{
    const struct hparams *hp = &t->model.hparams;
    struct layer_weights *l = &t->model.layers[layer];
    bool has_posts = coins[1], has_norms = !has_posts || coins[2];
    uint32_t n = hp->n_embd;
    l->out_scale = coins[5] ? 0.9f : 1;
    if (has_norms)
        l->attn_norm = tiny_vector(t, n, 1);
    if (has_norms && !hp->is_parallel)
        l->ffn_norm = tiny_vector(t, n, 1);
    if (has_posts) {
        l->attn_post_norm = tiny_vector(t, n, 1);
        l->ffn_post_norm = tiny_vector(t, n, 1);
    }
    if (hp->mla.kv_rank)
        draw_latent(t, layer, matrix, coins[0]);
    else
        draw_attention(t, layer, matrix, coins[0], coins[3], coins[4]);
    l->output_bias = maybe(t, coins[0], n, 0);
    draw_feed_forward(t, layer, matrix, coins[0]);
    if (hp->layers[layer].has_experts)
        draw_experts(t, layer, kind, matrix, coins[0]);
    if (hp->n_embd_layer) {
        l->layer_gate = tiny_weight(t, matrix, hp->n_embd_layer, n);
        l->layer_output = tiny_weight(t, matrix, n, hp->n_embd_layer);
        l->layer_post_norm = maybe(t, true, n, 1);
    }
}

static void draw_hparams(struct tiny_model *t, enum random_kind kind, uint32_t unit)
{
    struct hparams *hp = &t->model.hparams;
    *hp = (struct hparams){.arch = "random",
                           .n_layers = 2 + below(t, 4),
                           .n_embd = unit == 32 ? 32 * (1 + below(t, 2)) : 33 + below(t, 24),
                           .n_vocab = 60 + below(t, 40),
                           .n_context = 1024,
                           .norm = coin(t) ? NORM_RMS : NORM_LAYER,
                           .norm_eps = 1e-5f,
                           .activation = below(t, kind == RANDOM_GEMMA ? 3 : 4),
                           .activation_limit = 1.5f,
                           .is_parallel = below(t, 3) == 0,
                           .qk_norm = QK_NORM_HEADS + below(t, 3),
                           .embd_scale = coin(t) ? 1 : 3.5f,
                           .residual_scale = coin(t) ? 1 : 0.6f,
                           .logit_scale = coin(t) ? 1 : 0.3f,
                           .attn_softcap = below(t, 3) ? 0 : 2,
                           .logit_softcap = below(t, 3) ? 0 : 5,
                           .temperature_scale = below(t, 3) ? 0 : 0.3f,
                           .temperature_length = 1 + below(t, 30)};
    hp->layers = arena_alloc_array(&t->arena, hp->n_layers, sizeof *hp->layers);
    t->model.layers = arena_alloc_array(&t->arena, hp->n_layers, sizeof *t->model.layers);
    CHECK(hp->layers && t->model.layers);
    if (kind != RANDOM_DENSE)
        draw_router(t, unit);
    if (kind == RANDOM_LATENT && coin(t))
        hp->router = (struct router){0};
    if (kind == RANDOM_LATENT) {
        hp->mla.kv_rank = 1; /* all of a rope's values are turned */
        draw_ropes(t, 8);
        draw_shapes(t, kind, unit);
        draw_latent_shapes(t, unit);
        return;
    }
    draw_ropes(t, unit / 2);
    if (kind == RANDOM_GEMMA) {
        hp->router.norms_input = coin(t);
        hp->n_embd_layer = coin(t) ? unit : 0;
    }
    draw_shapes(t, kind, unit);
}

void random_model_open(struct tiny_model *t, enum random_kind kind, enum tensor_type matrix,
                       uint64_t seed)
{
    *t = (struct tiny_model){.seed = (seed * RANDOM_KINDS + kind) * 1000003};
    struct model *m = &t->model;
    struct hparams *hp = &m->hparams;
    uint32_t unit = matrix == TENSOR_F32 ? 16 + 4 * below(t, 4) : 32;
    bool coins[6];
    t->checkpoint.c.gguf = &t->gguf;
    m->checkpoint = &t->checkpoint.c;
    draw_hparams(t, kind, unit);
    for (int i = 0; i < 6; i++)
        coins[i] = coin(t);
    m->token_embd = tiny_weight(t, matrix, hp->n_vocab, hp->n_embd);
    m->output = coin(t) ? m->token_embd : tiny_weight(t, matrix, hp->n_vocab, hp->n_embd);
    m->output_norm = below(t, 4) ? tiny_vector(t, hp->n_embd, 1) : NULL;
    if (hp->n_embd_layer) {
        uint32_t n = hp->n_layers * hp->n_embd_layer;
        m->layer_embd = tiny_weight(t, matrix, hp->n_vocab, n);
        m->layer_proj = tiny_weight(t, matrix, n, hp->n_embd);
        m->layer_proj_norm = tiny_vector(t, hp->n_embd_layer, 1);
    }
    for (uint32_t i = 0; i < hp->n_layers; i++)
        draw_layer(t, i, kind, matrix, coins);
}

const char *random_model_text(const struct tiny_model *t)
{
    static char text[2048];
    const struct hparams *hp = &t->model.hparams;
    const struct router *r = &hp->router;
    int at = snprintf(text, sizeof text,
                      "embd %u norm %d act %d parallel %d qk norm %d caps %g %g temp %g ple %u "
                      "router %u/%u groups %u/%u kind %d scores %d shared %u own %d;",
                      hp->n_embd, hp->norm, hp->activation, hp->is_parallel, hp->qk_norm,
                      hp->attn_softcap, hp->logit_softcap, hp->temperature_scale, hp->n_embd_layer,
                      r->n_chosen, r->n_experts, r->n_chosen_groups, r->n_groups, r->groups,
                      r->scores, r->n_ff_shared, r->norms_input);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_shape *s = &hp->layers[i];
        const struct layer_weights *l = &t->model.layers[i];
        at += snprintf(text + at, sizeof text - (size_t)at,
                       " [heads %u/%u of %u/%u window %u rope %u kv %u ff %u experts %d norms "
                       "%d%d%d%d qk %d sinks %d]",
                       s->n_heads, s->n_kv_heads, s->key_dim, s->value_dim, s->window, s->rope,
                       s->kv_layer, s->n_ff, s->has_experts, !!l->attn_norm, !!l->attn_post_norm,
                       !!l->ffn_norm, !!l->ffn_post_norm, !!l->q_norm, !!l->sinks);
    }
    return text;
}
