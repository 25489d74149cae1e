#ifndef RADISH_MODEL_MODEL_H
#define RADISH_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/files/checkpoint.h"
#include "model/quant/weight.h"

/* model/ describes models: settings, the table of architectures, shapes, ropes, and weights by
 * role. Its rooms: quant and files below it, convert above. */

/* A model is described, not coded: its layers and their sizes, and weights as views into its
 * files. All of it is read-only after model_open and shared by all threads.
 *
 * This is the one decoder that every engine computes. A part without a weight (NULL) is left out;
 * a factor that the model lacks is 1, and a cap is 0:
 *
 *   x = token_embd[token] * embd_scale
 *   for each layer:
 *     a    = norm(x, attn_norm)
 *     q, k, v from a: + bias, q and k normed, rope, q * temperature(position)
 *     o    = attn_output · softmax(cap(q·k * attn_scale), sinks) v  + bias
 *     y    = x + norm(o, attn_post_norm) * residual_scale
 *     f    = is_parallel ? a : norm(y, ffn_norm)
 *     x    = y + norm(ffn(f), ffn_post_norm) * residual_scale
 *     x   += per-layer input (see layer_weights)
 *     x   *= out_scale
 *   logits = cap(output · norm(x, output_norm) * logit_scale)
 *
 *   ffn(f) = dense(f) + share * shared experts(f) + sum over the chosen of weight * expert(f)
 *   dense(f) = down · (activation(gate · f) * (up · f))
 *   cap(z) = softcap * tanh(z / softcap) */

enum norm_kind {
    NORM_RMS,
    NORM_LAYER, /* the mean is subtracted first */
};

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU, /* exact, with erf */
    /* gpt-oss: gate <= limit, |up| <= limit; gate * sigmoid(1.702 gate) * (up + 1) */
    ACTIVATION_SWIGLU_OAI,
};

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEADS,     /* each head, with one weight for all */
    QK_NORM_EACH_HEAD, /* each head, with its own weight */
    QK_NORM_WHOLE,     /* all heads at once */
};

enum { MAX_ROPES = 3, ROPE_NONE = 255 };

enum rope_kind {
    ROPE_NORM, /* rotates the pairs (2i, 2i+1): Llama in GGUF */
    ROPE_NEOX, /* rotates the pairs (i, i + dim/2): most others */
};

/* How q and k are rotated: pair i by position * frequencies[i]. The scaling that the model asks
 * for (linear, YaRN, Llama 3, longrope, proportional) is already in the frequencies. */
struct rope_spec;
struct rope {
    enum rope_kind kind;
    uint32_t dim;        /* values of a head that are rotated: the first ones, except in MLA */
    double *frequencies; /* [dim / 2] radians per position */
    float amplitude;     /* of cos and sin */
    const struct rope_spec *spec; /* they were made from; see rope_scaling.h */
};

/* Multi-head latent attention: keys and values are made from a latent vector, which is what the
 * cache holds. Computed in one form for prefill and decode, with the queries taken to the latent
 * space: a key is [latent | rope part], and the value is the latent itself. 0s: not MLA. */
struct mla_shape {
    uint32_t q_rank;    /* of the queries' own bottleneck; 0: none */
    uint32_t kv_rank;   /* the latent */
    uint32_t nope_dim;  /* of a head's query and key: the part that is not rotated, */
    uint32_t rope_dim;  /* and the rotated part after it */
    uint32_t value_dim; /* of a head */
    float norm_eps;     /* of q_a_norm and kv_a_norm, which are NORM_RMS */
};

/* How a layer attends. */
struct layer_shape {
    uint32_t n_heads, n_kv_heads;
    uint32_t key_dim, value_dim; /* of a head as attention sees it; MLA: kv_rank + rope_dim,
                                    kv_rank, with one KV head, and values are the keys' beginning */
    uint32_t window;             /* positions seen, including its own; 0: all */
    bool is_windowed;  /* by kind, also where the window spans the context and `window` is 0 */
    uint32_t rope;     /* index of hparams.ropes, or ROPE_NONE */
    uint32_t kv_layer; /* whose keys and values it reads: its own, or an earlier one's */
    float attn_scale;
    uint32_t n_ff; /* of the dense block; 0: none */
    bool has_experts;
    bool norms_values;    /* each head's v, without a weight (Gemma 4) */
    bool values_are_keys; /* v is what k is before norm and rope (Gemma 4) */
};

enum router_scores { ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_SOFTMAX_CHOSEN /* of those chosen */ };
enum router_groups { GROUPS_BY_MAX, GROUPS_BY_TOP2 /* the sum of a group's two best */ };

struct router {
    uint32_t n_experts, n_chosen;
    uint32_t n_ff;        /* of an expert */
    uint32_t n_ff_shared; /* of the shared experts as one block; 0: none */
    enum router_scores scores;
    uint32_t n_groups, n_chosen_groups; /* 1 and 1: none. Experts of other groups are not chosen,
                                           even where a correction makes all scores negative */
    enum router_groups groups;
    bool normalizes;     /* weights of the chosen add up to 1, before `scale` */
    float normalize_eps; /* added to that sum */
    float scale;
    /* Gemma 4: the router's input is x (before ffn_norm), normed without a weight, times
     * router_scale and 1/sqrt(n_embd). */
    bool norms_input;
};

struct hparams {
    char arch[32];  /* the row of the table: "llama" */
    char name[128]; /* the model's own name, else that of the file or directory */
    uint32_t n_layers;
    uint32_t n_embd;
    uint32_t n_vocab;         /* rows of the embedding */
    uint32_t n_context;       /* as trained, with the scaling that the file asks for */
    uint32_t n_context_short; /* longrope: up to this many it uses other frequencies; 0: the same */
    enum norm_kind norm;
    float norm_eps;
    enum activation activation;
    float activation_limit; /* ACTIVATION_SWIGLU_OAI */
    bool is_parallel;
    enum qk_norm qk_norm; /* how, where a layer has q_norm and k_norm */
    float embd_scale, residual_scale, logit_scale;
    float attn_softcap, logit_softcap;
    /* temperature(p) = 1 + scale * log(1 + floor(p / length)), on q; scale 0: none */
    float temperature_scale;
    uint32_t temperature_length;
    struct rope ropes[MAX_ROPES];
    uint32_t n_ropes;
    struct mla_shape mla;
    struct router router;
    uint32_t n_embd_layer;      /* of a per-layer input; 0: none */
    struct layer_shape *layers; /* [n_layers] */
};

struct expert_weights {
    struct weight gate, up; /* [router.n_ff][n_embd] */
    struct weight down;     /* [n_embd][router.n_ff] */
    const float *gate_bias, *up_bias, *down_bias;
};

/* Vectors are floats in the model's own memory, whatever type the file has (Gemma's norms with 1
 * added); NULL: none. */
struct layer_weights {
    const float *attn_norm;               /* [n_embd] */
    struct weight attn_q, attn_k, attn_v; /* [heads * dim][n_embd]; k, v absent where kv_layer is
                                             another's, v where values_are_keys */
    const float *q_bias, *k_bias, *v_bias;
    const float *q_norm, *k_norm; /* [key_dim], or [heads * key_dim] */
    const float *sinks;           /* [n_heads] one more score for the softmax, without a value */
    struct weight attn_output;    /* [n_embd][n_heads * value_dim] */
    const float *output_bias;     /* [n_embd] */
    const float *attn_post_norm;  /* [n_embd] */

    /* MLA, instead of attn_q (if q_rank), attn_k, attn_v */
    struct weight q_a;                /* [q_rank][n_embd] */
    const float *q_a_bias, *q_a_norm; /* [q_rank] */
    struct weight q_b;  /* [n_heads * (nope_dim + rope_dim)][q_rank]; attn_q without q_rank */
    struct weight kv_a; /* [kv_rank + rope_dim][n_embd] */
    const float *kv_a_bias, *kv_a_norm; /* [kv_rank + rope_dim], [kv_rank] */
    struct weight k_b; /* [n_heads * kv_rank][nope_dim]: a head's query to the latent space */
    struct weight v_b; /* [n_heads * value_dim][kv_rank]: the attended latent to values */

    const float *ffn_norm;                    /* [n_embd] */
    struct weight ffn_gate, ffn_up, ffn_down; /* [n_ff][n_embd], ..., [n_embd][n_ff] */
    const float *gate_bias, *up_bias, *down_bias;
    const float *ffn_post_norm; /* [n_embd] */

    struct weight router;           /* [n_experts][n_embd] */
    const float *router_bias;       /* [n_experts] added to the logits */
    const float *router_correction; /* [n_experts] added to scores for the choice only */
    const float *router_scale;      /* [n_embd], see router.norms_input */
    const float *expert_scale;      /* [n_experts] times the weight of a chosen one (Gemma 4) */
    struct expert_weights *experts; /* [n_experts] */
    struct weight shared_gate, shared_up, shared_down; /* n_ff_shared wide */
    const float *shared_router; /* [n_embd] share = sigmoid(shared_router · f); NULL: 1 */
    /* Gemma 4: dense block and experts side by side, each between norms of its own:
     * norm(dense(f), dense_post_norm) + norm(experts(norm(y, expert_norm)), expert_post_norm) */
    const float *dense_post_norm, *expert_norm, *expert_post_norm; /* [n_embd] */

    /* Per-layer input (Gemma 4), with p the layer's part of what model.layer_* give:
     * x += norm(layer_output · (activation(layer_gate · x) * p), layer_post_norm) */
    struct weight layer_gate;     /* [n_embd_layer][n_embd] */
    struct weight layer_output;   /* [n_embd][n_embd_layer] */
    const float *layer_post_norm; /* [n_embd] */
    float out_scale;
};

struct model {
    struct checkpoint *checkpoint;
    struct hparams hparams;
    struct weight token_embd; /* [n_vocab][n_embd] */
    const float *output_norm; /* [n_embd] */
    struct weight output;     /* [n_vocab][n_embd]; token_embd itself when the head is tied */
    /* Per-layer inputs: p = (norm(layer_proj · x0 / sqrt(n_embd), layer_proj_norm) of each layer's
     * part + layer_embd[token] * sqrt(n_embd_layer)) / sqrt(2), x0 the embedded token */
    struct weight layer_embd;     /* [n_vocab][n_layers * n_embd_layer] */
    struct weight layer_proj;     /* [n_layers * n_embd_layer][n_embd] */
    const float *layer_proj_norm; /* [n_embd_layer] */
    struct layer_weights *layers; /* [n_layers] */
    uint64_t n_params;
    uint64_t weight_bytes; /* in the files */
    struct arena memory;   /* for everything that is not in the files */
};

struct model_options {
    /* The type that matrices are to be computed in: floats as any, what is quantised as floats
     * only. NULL: as they are. */
    const enum tensor_type *quantize;
    uint32_t context; /* that it is opened for, which selects longrope's factors; 0: as trained */
};

/* `path`: a GGUF file (any part of a split one) or a directory. `options` NULL: the defaults. */
int model_open(struct model *m, const char *path, const struct model_options *options,
               struct error *err);
void model_close(struct model *m);
/* Once an engine has its weights: makes the model independent of its files, whatever happens to
 * them. Of its weights, only the tables of embeddings can be read afterwards, and no GGUF key.
 * Fails if a file changed since it was opened. `keeps_files`: for an engine that may read the
 * weights again, everything else stays as it is; it must look whether they have changed then
 * (checkpoint_check). */
int model_settle(struct model *m, bool keeps_files, struct error *err);
/* The bytes of those tables. */
uint64_t model_table_bytes(const struct model *m);
/* Adds up the bytes of its matrices by type. */
void model_type_bytes(const struct model *m, uint64_t bytes[N_TENSOR_TYPES]);
/* The name of the type of most of its weights, by bytes: "Q4_1". */
const char *model_quantisation(const struct model *m);

#endif
