#ifndef RADISH_MODEL_MODEL_INTERNAL_H
#define RADISH_MODEL_MODEL_INTERNAL_H

#include "model/architecture.h"
#include "model/model.h"
#include "model/settings.h"

/* Private to the files model*.c: a model being loaded, and the steps in order. Each returns 0, or
 * -1 with a one-line error. */
struct loader {
    struct model *m;
    const struct architecture *arch;
    struct settings settings;
    uint32_t context;             /* context to open it for; 0: as trained */
    bool has_windows;             /* in any layer */
    enum presence qk_norm;        /* whether the norms have weights, if the row has them */
    uint32_t n_prediction_layers; /* after the last */
    bool is_tied;                 /* the head is tied, according to config.json */
};

#define refuse(l, ...) settings_refuse(&(l)->settings, __VA_ARGS__)
int refuse_memory(const struct loader *l);

static inline bool is_gguf(const struct loader *l)
{
    return l->m->checkpoint->kind == CHECKPOINT_GGUF;
}

enum {
    MAX_LAYERS = 1024,
    MAX_HEADS = 4096,
    MAX_WIDTH = 1 << 20, /* of embeddings, heads and feed-forward layers */
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 28,
    MAX_EXPERTS = 1 << 14,
};

/* Sizes, layers, router, scales (model_shape.c, model_experts.c); then the ropes, which need them
 * (model_rope.c); then the weights (model_weights.c). */
int read_shape(struct loader *l);
int read_experts(struct loader *l);
int read_layer_experts(struct loader *l, uint32_t layer, bool *has);
int read_ropes(struct loader *l);
int take_weights(struct loader *l);

/* The floats of a tensor that belongs to no layer; NULL: there is none (model_weights.c). */
int take_floats(struct loader *l, const char *name, uint64_t n, float **out);

/* Copy part of a matrix in another order (weight_copy.c), into the model's memory. Float types
 * stay; others become F32. */
int copy_transposed(struct loader *l, const struct weight *from, uint32_t n_stacks, uint32_t first,
                    uint32_t step, struct weight *out);
int copy_kv_b(struct loader *l, const struct weight *from, bool is_key, struct weight *out);

/* Names for a tensor's two dimensions; hyper-parameters give their values. */
enum extent {
    ONE,
    EMBD,
    Q_DIM,
    KV_DIM,
    VALUES_DIM, /* of all heads together, the input of attn_output */
    Q_NORM_DIM,
    K_NORM_DIM,
    HEADS,
    FF,
    EXPERTS,
    EXPERT_FF,
    SHARED_FF,
    LAYER_INPUT,
    LAYER_INPUTS, /* of all layers */
    Q_RANK,
    MLA_Q_DIM,
    KV_RANK,
    KV_A_DIM,
    K_B_ROWS,
    NOPE_DIM,
    V_B_ROWS,
    VOCAB,
};

enum slot_kind { MATRIX, VECTOR, NORM };

struct slot_info {
    size_t place; /* in struct layer_weights, expert_weights, or model */
    enum slot_kind kind;
    enum extent rows, cols;
};
extern const struct slot_info slots[N_SLOTS];

enum { NO_LAYER = UINT32_MAX }; /* a tensor of the model itself */
uint32_t extent_value(const struct hparams *h, uint32_t layer, enum extent extent);

/* Marks the matrices that engines convert to another type. */
void model_convert(struct model *m, enum tensor_type type);

#endif
