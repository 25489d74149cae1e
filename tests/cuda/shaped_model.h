#ifndef RADISH_TEST_SHAPED_MODEL_H
#define RADISH_TEST_SHAPED_MODEL_H

#include "base/arena.h"
#include "model/files/checkpoint_files.h"
#include "model/model.h"

/* Models with the shapes of real ones and random weights, made in memory: for tests on a device and
 * its benchmark. Weights have the scale at which outputs are about as large as inputs. */

/* The types of the matrices; `more` is of attn_v and ffn_down in every other layer. */
struct shaped_types {
    const char *name;
    enum tensor_type matrix, more, embd, output;
};

struct shaped_options {
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab;
    uint32_t n_experts, n_chosen, n_ff_expert; /* 0: no experts; else there is no dense block */
    uint32_t window;                           /* of two layers in three; 0: none has any */
    bool norms_qk, has_biases, has_sinks, is_gemma /* GELU, norms after the blocks, caps */;
    bool shares_layers; /* every other layer has the same matrices in memory */
    struct shaped_types types;
    uint64_t seed;
};

struct shaped_model {
    struct model model;
    struct checkpoint_files checkpoint; /* without a file */
    struct gguf gguf;
    struct arena arena;
    uint64_t seed;
};

/* By a name such as "q4_k", "bf16" or "q4_k_m"; false: unknown. */
bool shaped_types_named(const char *name, struct shaped_types *out);
/* By a name such as "llama8b"; false: unknown. Types are left out. */
bool shaped_options_named(const char *name, struct shaped_options *out);

/* 0, or -1 if memory ran out or a type's blocks do not fit the sizes. */
int shaped_model_open(struct shaped_model *m, const struct shaped_options *o, struct error *err);
void shaped_model_close(struct shaped_model *m);

#endif
