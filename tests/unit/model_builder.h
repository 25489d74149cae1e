#ifndef RADISH_TEST_MODEL_BUILDER_H
#define RADISH_TEST_MODEL_BUILDER_H

#include "gguf_builder.h"

/* A tiny Llama with matrices of many types, valid or with one thing wrong. */
enum { EMBD = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FF = 64, VOCAB = 6, LAYERS = 2 };

/* One thing to change: a key or tensor to omit, a key to replace or add, or a tensor to give
 * another type or shape (added if the model has no tensor of that name). */
struct tweak {
    const char *without;
    const char *key;
    enum gguf_type type;
    const char *string;
    double number;
    const char *tensor;
    uint32_t tensor_type;
    uint64_t cols, rows;
};

static inline void put_key(struct gguf_builder *b, const struct tweak *t)
{
    float f32 = (float)t->number;
    switch (t->type) {
    case GGUF_STRING: build_key_string(b, t->key, t->string); break;
    case GGUF_F32: build_key_f32(b, t->key, f32); break;
    case GGUF_I32:
        build_key(b, t->key, GGUF_I32);
        build_u32(&b->pairs, (uint32_t)(int32_t)t->number);
        break;
    default: build_key_u32(b, t->key, (uint32_t)t->number);
    }
}

/* True if the tweak has handled this key. */
static inline bool tweaked(struct gguf_builder *b, const struct tweak *t, const char *key,
                           bool *put)
{
    if (t->without && strcmp(t->without, key) == 0)
        return true;
    if (!t->key || strcmp(t->key, key) != 0)
        return false;
    put_key(b, t);
    *put = true;
    return true;
}

static inline void add_tensor(struct gguf_builder *b, const struct tweak *t, const char *name,
                              uint32_t type, uint64_t cols, uint64_t rows, bool *put)
{
    if (t->without && strcmp(t->without, name) == 0)
        return;
    if (t->tensor && strcmp(t->tensor, name) == 0) {
        build_tensor(b, name, t->tensor_type, t->cols, t->rows);
        *put = true;
        return;
    }
    build_tensor(b, name, type, cols, rows);
}

static inline void add_layer(struct gguf_builder *b, const struct tweak *t, int layer, bool *put)
{
    static const struct {
        const char *name;
        uint32_t type, cols, rows;
    } tensors[] = {
        {"attn_norm.weight", TENSOR_F32, EMBD, 1},
        {"attn_q.weight", TENSOR_Q8_0, EMBD, HEADS * HEAD_DIM},
        {"attn_k.weight", TENSOR_Q4_1, EMBD, KV_HEADS * HEAD_DIM},
        {"attn_v.weight", TENSOR_F16, EMBD, KV_HEADS * HEAD_DIM},
        {"attn_output.weight", TENSOR_Q4_0, HEADS * HEAD_DIM, EMBD},
        {"ffn_norm.weight", TENSOR_F32, EMBD, 1},
        {"ffn_gate.weight", TENSOR_Q5_0, EMBD, FF},
        {"ffn_up.weight", TENSOR_Q5_1, EMBD, FF},
        {"ffn_down.weight", TENSOR_BF16, FF, EMBD},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, tensors[i].name);
        add_tensor(b, t, name, tensors[i].type, tensors[i].cols, tensors[i].rows, put);
    }
}

static inline void add_keys(struct gguf_builder *b, const struct tweak *t, bool *put)
{
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {
        {"llama.block_count", LAYERS},
        {"llama.context_length", 128},
        {"llama.embedding_length", EMBD},
        {"llama.feed_forward_length", FF},
        {"llama.attention.head_count", HEADS},
        {"llama.attention.head_count_kv", KV_HEADS},
        {"llama.rope.dimension_count", HEAD_DIM},
        {"llama.vocab_size", VOCAB},
    };
    if (!tweaked(b, t, "general.architecture", put))
        build_key_string(b, "general.architecture", "llama");
    if (!tweaked(b, t, "general.name", put))
        build_key_string(b, "general.name", "Tiny");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!tweaked(b, t, keys[i].name, put))
            build_key_u32(b, keys[i].name, keys[i].value);
    if (!tweaked(b, t, "llama.attention.layer_norm_rms_epsilon", put))
        build_key_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (!tweaked(b, t, "tokenizer.ggml.tokens", put)) {
        build_key_array(b, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
        for (int i = 0; i < VOCAB; i++)
            build_string(&b->pairs, (char[]){(char)('a' + i), 0});
    }
}

static inline void build_model(struct gguf_builder *b, const struct tweak *t)
{
    bool key_put = false, tensor_put = false;
    add_keys(b, t, &key_put);
    if (t->key && !key_put)
        put_key(b, t);
    add_tensor(b, t, "token_embd.weight", TENSOR_Q8_0, EMBD, VOCAB, &tensor_put);
    add_tensor(b, t, "output_norm.weight", TENSOR_F32, EMBD, 1, &tensor_put);
    for (int layer = 0; layer < LAYERS; layer++)
        add_layer(b, t, layer, &tensor_put);
    if (t->tensor && !tensor_put)
        build_tensor(b, t->tensor, t->tensor_type, t->cols, t->rows);
    gguf_builder_finish(b);
}

#endif
