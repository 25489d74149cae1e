#ifndef RADISH_MODEL_CONVERT_REQUANTIZE_H
#define RADISH_MODEL_CONVERT_REQUANTIZE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/parallel.h"
#include "model/files/checkpoint.h"
#include "model/files/gguf_write.h"

/* model/convert/ writes models to new files: in another type, or from a directory to GGUF. */

/* Writes the tensors of a model as a GGUF file, with matrices in another type. Vectors, routers and
 * matrices that do not fit the type's blocks stay as they are; the embedding and the head, where
 * errors matter most, get at least 6 bits. The file appears under its name once it is complete. */
struct requantize_options {
    enum tensor_type type;
    bool again; /* also requantise quantised matrices, which lose accuracy */
    void (*progress)(void *context, double done);
    void *context;
};

struct requantize_result {
    uint64_t bytes_before, bytes_after; /* of tensors */
    uint32_t n_changed, n_tensors;
};

/* Rewrites a GGUF file, with all of its keys. */
int requantize(const struct checkpoint *from, const char *to_path, struct parallel *pool,
               const struct requantize_options *options, struct requantize_result *result,
               struct error *err);

/* Reorders the rows of heads from rotated halves to adjacent pairs: of every `period` rows, `n`
 * from `first` on. */
struct row_pairs {
    uint32_t period, first, n; /* n 0: rows keep their order */
};

/* A tensor to write, and the weights that its rows come from, in order. */
struct tensor_source {
    const char *name;
    const struct weight *parts;
    uint32_t n_parts;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* as in the file: the first runs fastest */
    struct row_pairs pairs;
    bool is_wide; /* as F32 if it stays a float */
};

/* What to write: `head` has the values; those that name the type are added. `check` verifies the
 * file before it gets its name. */
struct tensor_file {
    const char *from; /* for messages */
    const char *path;
    struct gguf_writer *head;
    const struct tensor_source *tensors;
    size_t n_tensors;
    int (*check)(void *context, const char *path, struct error *err);
    void *context;
    const struct checkpoint
        *checkpoint; /* the tensors', which must not change meanwhile; or NULL */
};

int tensor_file_write(const struct tensor_file *file, struct parallel *pool,
                      const struct requantize_options *options, struct requantize_result *result,
                      struct error *err);

#endif
