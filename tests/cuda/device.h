#ifndef RADISH_TEST_DEVICE_H
#define RADISH_TEST_DEVICE_H

#include "engine_source.h"
#include "shaped_model.h"

/* What tests on a device share. */

/* Where the engines under test come from; opened by main. */
extern struct engine_source device_source;

enum { DEVICE_MAX_TOKENS = 512, DEVICE_MAX_ROWS = 256, DEVICE_MAX_SEQS = 8, DEVICE_PAGES = 4096 };

struct engine_limits device_limits(const struct model *m, enum kv_type kv_type);
/* An engine under test; fails the test. */
struct engine *device_engine(const struct model *m, const struct engine_limits *limits);

/* A model that computes in floats with the very values that kernels use: each matrix is packed,
 * unpacked, and a matrix of floats. Vectors, tables of embeddings and layers are the model's. */
struct exact_model {
    struct model model;
    struct arena arena;
    bool is_bf16; /* some matrix meets activations in BF16 */
    bool is_f32;  /* all matrices are floats */
};

void exact_model_open(struct exact_model *x, const struct model *m);
void exact_model_close(struct exact_model *x);
/* Every row's logits, by the CPU engine in floats. */
void exact_logits(const struct exact_model *x, const int32_t *tokens, uint32_t n, float *logits);

/* n tokens, drawn. */
void device_tokens(int32_t *tokens, uint32_t n, uint32_t n_vocab, uint64_t seed);

/* Shapes with all that real models have in small: several pieces of columns, heads of 64 to 256,
 * windows, experts, biases, sinks. NULL past the last. */
struct device_shape {
    const char *name;
    struct shaped_options options;
};
const struct device_shape *device_shape_at(uint32_t index);
/* By name; fails the test. */
void device_shape_open(struct shaped_model *m, const char *shape, const char *type);

#endif
