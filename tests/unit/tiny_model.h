#ifndef RADISH_TEST_TINY_MODEL_H
#define RADISH_TEST_TINY_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
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
    return (struct weight){type, rows, cols, data};
}

static inline struct weight tiny_vector(struct tiny_model *t, uint32_t n, float middle)
{
    struct weight w = tiny_weight(t, TENSOR_F32, 1, n);
    for (uint32_t i = 0; i < n; i++)
        ((float *)(uintptr_t)w.data)[i] = middle + 0.3f * tiny_random(t);
    return w;
}

static inline void tiny_open(struct tiny_model *t, const struct tiny_options *o)
{
    *t = (struct tiny_model){.seed = o->seed * 1000003};
    struct model *m = &t->model;
    m->hparams = (struct hparams){.arch = "tiny",
                                  .n_layers = o->n_layers,
                                  .n_embd = o->n_embd,
                                  .n_heads = o->n_heads,
                                  .n_kv_heads = o->n_kv_heads,
                                  .head_dim = o->head_dim,
                                  .n_ff = o->n_ff,
                                  .n_vocab = o->n_vocab,
                                  .n_context = 1024,
                                  .rope_kind = o->rope_kind,
                                  .rope_dim = o->rope_dim,
                                  .rope_base = 10000,
                                  .rope_scale = o->rope_scale > 0 ? o->rope_scale : 1,
                                  .norm_eps = 1e-5f};
    uint32_t q_dim = o->n_heads * o->head_dim, kv_dim = o->n_kv_heads * o->head_dim;
    m->token_embd = tiny_weight(t, o->matrix, o->n_vocab, o->n_embd);
    m->output = tiny_weight(t, o->matrix, o->n_vocab, o->n_embd);
    m->output_norm = tiny_vector(t, o->n_embd, 1);
    if (o->divisors)
        m->rope_freqs = tiny_vector(t, o->rope_dim / 2, 1.5f);
    m->layers = arena_alloc_array(&t->arena, o->n_layers, sizeof *m->layers);
    CHECK(m->layers != NULL);
    for (uint32_t i = 0; i < o->n_layers; i++) {
        struct layer_weights *l = &m->layers[i];
        l->attn_norm = tiny_vector(t, o->n_embd, 1);
        l->attn_q = tiny_weight(t, o->matrix, q_dim, o->n_embd);
        l->attn_k = tiny_weight(t, o->matrix, kv_dim, o->n_embd);
        l->attn_v = tiny_weight(t, o->matrix, kv_dim, o->n_embd);
        l->attn_output = tiny_weight(t, o->matrix, o->n_embd, q_dim);
        if (o->biases) {
            l->attn_q_bias = tiny_vector(t, q_dim, 0);
            l->attn_k_bias = tiny_vector(t, kv_dim, 0);
            l->attn_v_bias = tiny_vector(t, kv_dim, 0);
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
