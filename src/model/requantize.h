#ifndef RADISH_MODEL_REQUANTIZE_H
#define RADISH_MODEL_REQUANTIZE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/parallel.h"
#include "model/checkpoint.h"

/* Writes a model again, as a GGUF file with its matrices in another type. Vectors, routers and what
 * the type's blocks do not fit stay as they are; the embedding and the head, where errors are seen
 * most, get at least 6 bits. The file appears under its name when it is whole. */
struct requantize_options {
    enum tensor_type type;
    bool again; /* also what is quantised already, and loses by it */
    void (*progress)(void *context, double done);
    void *context;
};

struct requantize_result {
    uint64_t bytes_before, bytes_after; /* of tensors */
    uint32_t n_changed, n_tensors;
};

int requantize(const struct checkpoint *from, const char *to_path, struct parallel *pool,
               const struct requantize_options *options, struct requantize_result *result,
               struct error *err);

/* The type that a matrix gets: `type`, one that its width fits, or more bits where it matters. The
 * engine asks the same when weights are quantised as they are loaded. */
enum tensor_type requantize_choose(enum tensor_type type, uint64_t cols, bool matters);

#endif
