#ifndef RADISH_TEST_RANDOM_MODEL_H
#define RADISH_TEST_RANDOM_MODEL_H

#include "tiny_model.h"

/* Small models of features drawn at random from all that model/model.h has. */
enum random_kind {
    RANDOM_DENSE,   /* heads, norms, activations, biases, scales, windows, shared KV */
    RANDOM_EXPERTS, /* and a mixture of experts */
    RANDOM_LATENT,  /* latent attention, with and without experts */
    RANDOM_GEMMA,   /* what only Gemma 4 has: per-layer inputs, blocks side by side */
    RANDOM_KINDS
};

/* `matrix`: TENSOR_F32, or a type of blocks of 32. */
void random_model_open(struct tiny_model *t, enum random_kind kind, enum tensor_type matrix,
                       uint64_t seed);
/* What was drawn, for a test that fails. */
const char *random_model_text(const struct tiny_model *t);

#endif
