#ifndef RADISH_MODEL_ARCHITECTURE_H
#define RADISH_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "model/settings.h"

/* The table of architectures: a row says what a family of models is made of, in terms that the one
 * loader understands. Nothing outside the table asks which architecture a model has; a new one
 * that combines existing features is a new row, and a golden.
 *
 *   config.json, GGUF ──settings──► row ──► hparams ──► names of tensors ──► weights */

/* The places for tensors. Those of a layer first. */
enum slot {
    SLOT_ATTN_NORM,
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_Q_BIAS,
    SLOT_K_BIAS,
    SLOT_V_BIAS,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_SINKS,
    SLOT_ATTN_OUTPUT,
    SLOT_OUTPUT_BIAS,
    SLOT_ATTN_POST_NORM,
    SLOT_Q_A,
    SLOT_Q_A_BIAS,
    SLOT_Q_A_NORM,
    SLOT_Q_B,
    SLOT_KV_A,
    SLOT_KV_A_BIAS,
    SLOT_KV_A_NORM,
    SLOT_K_B,
    SLOT_V_B,
    SLOT_FFN_NORM,
    SLOT_GATE,
    SLOT_UP,
    SLOT_DOWN,
    SLOT_GATE_BIAS,
    SLOT_UP_BIAS,
    SLOT_DOWN_BIAS,
    SLOT_FFN_POST_NORM,
    SLOT_ROUTER,
    SLOT_ROUTER_BIAS,
    SLOT_ROUTER_CORRECTION,
    SLOT_ROUTER_SCALE,
    SLOT_EXPERT_SCALE,
    SLOT_SHARED_ROUTER,
    SLOT_SHARED_GATE,
    SLOT_SHARED_UP,
    SLOT_SHARED_DOWN,
    SLOT_DENSE_POST_NORM,
    SLOT_EXPERT_NORM,
    SLOT_EXPERT_POST_NORM,
    SLOT_LAYER_GATE,
    SLOT_LAYER_OUTPUT,
    SLOT_LAYER_POST_NORM,
    SLOT_OUT_SCALE,
    /* Of each expert. */
    SLOT_EXPERT_GATE,
    SLOT_EXPERT_UP,
    SLOT_EXPERT_DOWN,
    SLOT_EXPERT_GATE_BIAS,
    SLOT_EXPERT_UP_BIAS,
    SLOT_EXPERT_DOWN_BIAS,
    /* Of the model. */
    SLOT_TOKEN_EMBD,
    SLOT_OUTPUT_NORM,
    SLOT_OUTPUT,
    SLOT_LAYER_EMBD,
    SLOT_LAYER_PROJ,
    SLOT_LAYER_PROJ_NORM,
    N_SLOTS
};

/* How a slot's values lie in a tensor. */
enum layout {
    LAYOUT_WHOLE,
    LAYOUT_QKV,              /* rows of q, then k, then v */
    LAYOUT_HALVES,           /* gate, then up */
    LAYOUT_PAIRS,            /* a row of gate, a row of up, ... */
    LAYOUT_TRANSPOSED,       /* [in][out], in a tensor of exactly that name */
    LAYOUT_TRANSPOSED_PAIRS, /* columns of gate and up alternate */
    LAYOUT_KV_B,             /* of MLA: for each head its part of k_b, transposed, and of v_b */
};

/* A name that a slot's tensor may have: after "blk.N." or "model.layers.N." if it belongs to a
 * layer. "%u": one tensor for each expert; else a stack of all. Modules are named without their
 * ".weight". */
struct tensor_name {
    enum slot slot;
    const char *name;
    enum layout layout;
};

/* The names to try for a slot, in order: those of the row or, if it has none for that slot, the
 * common ones. */
struct tensor_names {
    const struct tensor_name *names;
    size_t count;
};
extern const struct tensor_names gguf_names, config_names;
struct architecture;
struct tensor_names architecture_names(const struct architecture *a, bool is_gguf, enum slot slot);

enum { NORMS_BEFORE = 1, NORMS_AFTER = 2, NORMS_BOTH = 3 }; /* each block */
enum rope_layers {
    ROPE_EVERYWHERE,
    ROPE_IN_WINDOWS,  /* only, if there are any */
    ROPE_BY_INTERVAL, /* not in every n-th layer */
    ROPE_BY_SWITCH,   /* in all or none */
};
enum window_layers {
    WINDOW_NOWHERE,
    WINDOW_EVERYWHERE,
    WINDOW_BY_PERIOD, /* but in every n-th layer */
    WINDOW_FROM_LAYER,
};
enum attn_scale {
    ATTN_SCALE_HEAD,   /* 1 / sqrt(key_dim) */
    ATTN_SCALE_FACTOR, /* the file's */
    ATTN_SCALE_SCALAR, /* 1 / sqrt(the file's) */
    ATTN_SCALE_ONE,
};
enum layer_experts {
    EXPERTS_NONE,
    EXPERTS_INSTEAD, /* of the dense block, where a layer has them */
    EXPERTS_BESIDE,  /* it */
};

enum router_correction { CORRECTION_NONE, CORRECTION_OPTIONAL, CORRECTION_REQUIRED };

enum { MAX_NAMES = 4 };

struct architecture {
    const char *title;            /* for people: "Gemma 3" */
    const char *types[MAX_NAMES]; /* config.json's model_type; the first is the row's name */
    const char *gguf;             /* general.architecture; NULL: none */
    /* What it is called in a GGUF file that is written, if not that: without experts, with. */
    const char *written_as[2];
    /* GGUF: the row is meant only where this is set, and where `when_is` is not 0, to that; or
     * where it is not set and there are tensors whose names end so. */
    bool has_when;
    enum setting when;
    uint32_t when_is;
    const char *when_tensor;
    const struct setting_default *defaults;
    size_t n_defaults;
    const struct tensor_name *gguf_names, *config_names; /* that differ */
    size_t n_gguf_names, n_config_names;

    enum norm_kind norm;
    unsigned norms;    /* NORMS_BEFORE, ... */
    bool adds_to_norm; /* directories hold the norms' weights without their 1 */
    enum qk_norm qk_norm;
    bool qk_norm_is_optional;
    enum activation activation; /* where the file names none */
    bool gelu_is_tanh;          /* where it names "gelu", as early files do */
    bool needs_biases;          /* on q, k and v; others have them where the file does */
    bool is_parallel;
    bool has_sinks;
    bool has_temperature;

    enum rope_kind rope, gguf_rope; /* llama.cpp reorders the rows of some models */
    enum rope_layers rope_layers;
    bool has_local_rope; /* windowed layers have their own base, and no scaling */
    bool needs_scaling;  /* plain rope is never meant */
    bool yarn_is_exact;  /* GGUF does not say that the ramp's ends are not rounded */

    enum window_layers window;
    uint32_t window_period;
    bool ends_full;         /* the last layer has no window */
    bool needs_layer_types; /* without them its layers would be recurrent */

    bool scales_embd; /* by sqrt(n_embd) */
    bool divides_logits;
    enum attn_scale attn_scale;
    uint32_t wide_scale_layers; /* GGUF: models with this many layers scale by n_embd / n_heads */

    enum layer_experts experts;
    enum router_scores scores;
    enum router_groups groups;
    bool groups_are_named; /* by topk_method */
    float normalize_eps;
    enum router_correction correction;
    bool has_router_bias;
    bool norms_router_input;
    bool gates_shared;    /* see layer_weights.shared_router */
    bool shared_is_dense; /* without experts, only the shared block remains */

    bool has_mla;
    bool norms_values;
    bool shares_keys; /* as values, in layers without a window */
    bool has_layer_inputs;
    bool has_out_scale;
};

/* The i-th row, or NULL after the last; the row with a name (hparams.arch), or NULL. */
const struct architecture *architecture_at(size_t i);
const struct architecture *architecture_named(const char *name);

/* The row for an open checkpoint; `s` gets its prefix and defaults. NULL: not supported; the error
 * says what is missing. */
const struct architecture *architecture_find(struct settings *s);

/* Words for what a row is made of: "sliding windows", "experts". Returns how many. */
enum { MAX_FEATURES = 32 };
size_t architecture_features(const struct architecture *a, const char *out[MAX_FEATURES]);

#endif
