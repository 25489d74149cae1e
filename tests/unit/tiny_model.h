#ifndef RADISH_TEST_TINY_MODEL_H
#define RADISH_TEST_TINY_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "model/files/checkpoint_files.h"
#include "model/model.h"
#include "test.h"

/* Small models with random weights, made in memory, for tests of the engine. */
struct tiny_options {
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
    enum rope_kind rope_kind;
    uint32_t rope_dim;
    float rope_scale;        /* 0: 1 */
    bool biases, divisors;   /* on q, k and v; of rope's frequencies */
    enum tensor_type matrix; /* F32, Q8_0 or Q4_1 */
    uint64_t seed;
};

struct tiny_model {
    struct model model;
    struct checkpoint_files checkpoint; /* without a file */
    struct gguf gguf;
    struct arena arena;
    uint64_t seed;
};

static inline float tiny_random(struct tiny_model *t)
{
    return (float)(hash_mix(t->seed++) >> 40) / (1 << 23) - 1.0f;
}

/* A tensor of about unit output for unit input. */
static inline struct weight tiny_weight(struct tiny_model *t, enum tensor_type type, uint32_t rows,
                                        uint32_t cols)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    CHECK_INT(cols % info->block_len, 0);
    size_t n_blocks = (size_t)rows * cols / info->block_len;
    uint8_t *data = arena_alloc(&t->arena, n_blocks * info->block_bytes);
    CHECK(data != NULL);
    float scale = 1.5f / sqrtf((float)cols);
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *block = data + b * info->block_bytes;
        if (type == TENSOR_F32) {
            float value = tiny_random(t) * scale;
            memcpy(block, &value, sizeof value);
            continue;
        }
        for (uint32_t i = 0; i < info->block_bytes; i++)
            block[i] = (uint8_t)hash_mix(t->seed++);
        float step = scale * (1.2f + tiny_random(t)) / (type == TENSOR_Q4_1 ? 8 : 128);
        uint16_t halves[2] = {f32_to_f16(step), f32_to_f16(-7.0f * step)};
        memcpy(block, halves, type == TENSOR_Q4_1 ? 4 : 2);
    }
    return weight_make(type, rows, cols, data);
}

static inline const float *tiny_vector(struct tiny_model *t, uint32_t n, float middle)
{
    float *v = arena_alloc_array(&t->arena, n, sizeof *v);
    CHECK(v != NULL);
    for (uint32_t i = 0; i < n; i++)
        v[i] = middle + 0.3f * tiny_random(t);
    return v;
}

static inline struct rope tiny_rope(struct tiny_model *t, const struct tiny_options *o)
{
    struct rope rope = {.kind = o->rope_kind, .dim = o->rope_dim, .amplitude = 1};
    const float *divisors = o->divisors ? tiny_vector(t, o->rope_dim / 2, 1.5f) : NULL;
    rope.frequencies = arena_alloc_array(&t->arena, o->rope_dim / 2, sizeof *rope.frequencies);
    CHECK(rope.frequencies != NULL);
    for (uint32_t i = 0; i < o->rope_dim / 2; i++)
        rope.frequencies[i] = (double)(o->rope_scale > 0 ? o->rope_scale : 1) /
                              pow(10000, 2.0 * i / o->rope_dim) / (divisors ? divisors[i] : 1);
    return rope;
}

static inline void tiny_open(struct tiny_model *t, const struct tiny_options *o)
{
    *t = (struct tiny_model){.seed = o->seed * 1000003};
    struct model *m = &t->model;
    t->checkpoint.c.gguf = &t->gguf;
    m->checkpoint = &t->checkpoint.c;
    m->hparams = (struct hparams){.arch = "tiny",
                                  .n_layers = o->n_layers,
                                  .n_embd = o->n_embd,
                                  .n_vocab = o->n_vocab,
                                  .n_context = 1024,
                                  .embd_scale = 1,
                                  .residual_scale = 1,
                                  .logit_scale = 1,
                                  .norm_eps = 1e-5f,
                                  .ropes = {tiny_rope(t, o)},
                                  .n_ropes = 1};
    m->hparams.layers = arena_alloc_array(&t->arena, o->n_layers, sizeof *m->hparams.layers);
    CHECK(m->hparams.layers != NULL);
    uint32_t q_dim = o->n_heads * o->head_dim, kv_dim = o->n_kv_heads * o->head_dim;
    m->token_embd = tiny_weight(t, o->matrix, o->n_vocab, o->n_embd);
    m->output = tiny_weight(t, o->matrix, o->n_vocab, o->n_embd);
    m->output_norm = tiny_vector(t, o->n_embd, 1);
    m->layers = arena_alloc_array(&t->arena, o->n_layers, sizeof *m->layers);
    CHECK(m->layers != NULL);
    for (uint32_t i = 0; i < o->n_layers; i++) {
        m->hparams.layers[i] = (struct layer_shape){.n_heads = o->n_heads,
                                                    .n_kv_heads = o->n_kv_heads,
                                                    .key_dim = o->head_dim,
                                                    .value_dim = o->head_dim,
                                                    .kv_layer = i,
                                                    .attn_scale = 1 / sqrtf((float)o->head_dim),
                                                    .n_ff = o->n_ff};
        struct layer_weights *l = &m->layers[i];
        l->out_scale = 1;
        l->attn_norm = tiny_vector(t, o->n_embd, 1);
        l->attn_q = tiny_weight(t, o->matrix, q_dim, o->n_embd);
        l->attn_k = tiny_weight(t, o->matrix, kv_dim, o->n_embd);
        l->attn_v = tiny_weight(t, o->matrix, kv_dim, o->n_embd);
        l->attn_output = tiny_weight(t, o->matrix, o->n_embd, q_dim);
        if (o->biases) {
            l->q_bias = tiny_vector(t, q_dim, 0);
            l->k_bias = tiny_vector(t, kv_dim, 0);
            l->v_bias = tiny_vector(t, kv_dim, 0);
        }
        l->ffn_norm = tiny_vector(t, o->n_embd, 1);
        l->ffn_gate = tiny_weight(t, o->matrix, o->n_ff, o->n_embd);
        l->ffn_up = tiny_weight(t, o->matrix, o->n_ff, o->n_embd);
        l->ffn_down = tiny_weight(t, o->matrix, o->n_embd, o->n_ff);
    }
}

static inline void tiny_close(struct tiny_model *t)
{
    arena_free(&t->arena);
}

#endif
