#ifndef RADISH_GOLDEN_MODEL_H
#define RADISH_GOLDEN_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"

/* A golden of tests/models: a tiny random model of one architecture as a Hugging Face directory,
 * and transformers' logits behind every token of a prompt. Made by tools/make_model_goldens.py; the
 * generator of the weights is described in tools/model_draw.py. A model has two forms: the one that
 * transformers writes, and the one that is found on hubs (older keys, other names and layouts,
 * tensors to be ignored). Both mean the same. */
enum { GOLDEN_MAX_DIMS = 4 };

struct golden_tensor {
    const char *name;
    const struct json *spec; /* how it is drawn */
    uint32_t shape[GOLDEN_MAX_DIMS];
    uint32_t n_dims;
    bool is_bytes; /* data are bytes, not floats */
    bool is_used;  /* first form: a hub tensor is cut from it */
    size_t count;
    void *data; /* [count] float, or uint8_t */
};

struct golden_form {
    const struct json *config; /* for config.json */
    struct golden_tensor *tensors;
    uint32_t n_tensors;
};

struct golden {
    struct arena arena;
    struct golden_form plain, hub;
    uint32_t context; /* to open the model for, see model_options */
    uint32_t n_tokens, n_vocab;
    int32_t *tokens; /* [n_tokens] */
    float *logits;   /* [n_tokens][n_vocab] */
};

/* Reads tests/models/NAME.json and draws its tensors, whose sums must be those of the golden. */
void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);

/* Float tensors are written as F32, or as BF16, which loses nothing. */
enum golden_type { GOLDEN_F32, GOLDEN_BF16 };

/* Writes config.json and model.safetensors, or n_shards files and their index, to `directory`. */
void golden_write(const struct golden_form *form, enum golden_type type, uint32_t n_shards,
                  const char *directory);

#endif
