#ifndef RADISH_MODEL_MODEL_H
#define RADISH_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/gguf.h"

/* A model is described, not coded: hyper-parameters from the file, weights as views into its
 * mapping. Both are read-only after model_open and shared by all threads. */
enum rope_kind {
    ROPE_NORM, /* rotates the pairs (2i, 2i+1): Llama in GGUF */
    ROPE_NEOX, /* rotates the pairs (i, i + dim/2): most others */
};

struct hparams {
    char arch[32];
    char name[128]; /* general.name, else the file's name */
    uint32_t n_layers;
    uint32_t n_embd;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t n_vocab;
    uint32_t n_context; /* as trained */
    enum rope_kind rope_kind;
    uint32_t rope_dim;
    float rope_base;
    float rope_scale; /* positions are multiplied by this: 1, or 1/factor of linear scaling */
    float norm_eps;
};

/* A matrix [rows][cols] (out x in) or a vector [1][cols]; data NULL when the model has none. */
struct weight {
    enum tensor_type type;
    uint32_t rows, cols;
    const void *data;
};

struct layer_weights {
    struct weight attn_norm;                             /* [n_embd] f32 */
    struct weight attn_q;                                /* [n_heads * head_dim][n_embd] */
    struct weight attn_k;                                /* [n_kv_heads * head_dim][n_embd] */
    struct weight attn_v;                                /* [n_kv_heads * head_dim][n_embd] */
    struct weight attn_output;                           /* [n_embd][n_heads * head_dim] */
    struct weight attn_q_bias, attn_k_bias, attn_v_bias; /* optional, f32 */
    struct weight ffn_norm;                              /* [n_embd] f32 */
    struct weight ffn_gate;                              /* [n_ff][n_embd] */
    struct weight ffn_up;                                /* [n_ff][n_embd] */
    struct weight ffn_down;                              /* [n_embd][n_ff] */
};

struct model {
    struct gguf gguf;
    struct hparams hparams;
    struct weight token_embd;     /* [n_vocab][n_embd] */
    struct weight output_norm;    /* [n_embd] f32 */
    struct weight output;         /* [n_vocab][n_embd]; token_embd itself when the head is tied */
    struct weight rope_freqs;     /* [rope_dim / 2] f32 divisors, optional (Llama 3) */
    struct layer_weights *layers; /* [n_layers] */
    uint64_t n_params;
    uint64_t weight_bytes;
};

int model_open(struct model *m, const char *path, struct error *err);
void model_close(struct model *m);
/* The name of the type that most of its weights have, by their bytes: "Q4_1". */
const char *model_quantisation(const struct model *m);

#endif
