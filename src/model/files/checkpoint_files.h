#ifndef RADISH_MODEL_FILES_CHECKPOINT_FILES_H
#define RADISH_MODEL_FILES_CHECKPOINT_FILES_H

#include "base/arena.h"
#include "model/files/checkpoint.h"
#include "model/files/model_file.h"
#include "model/files/safetensors.h"

/* Private to checkpoint_*.c: an open checkpoint with its files.
 *
 *   slots   [0] [3] [0] [1] [2] [0] [0] [0]     a power of two, at most half full
 *                ▼ c.tensors[2].name             a tensor's number plus one; 0: empty
 */
struct checkpoint_files {
    struct checkpoint c; /* first: the public part */
    struct gguf *ggufs;  /* the parts of a split file, in order */
    size_t n_ggufs;
    struct safetensors *shards;
    size_t n_shards;
    struct model_file *raws; /* of bin_weights */
    size_t n_raws;
    struct arena memory; /* names, config.json, aligned copies of data */
    uint64_t config_hash;
    uint32_t *slots;
    size_t slot_mask;
    const char *text_prefix;         /* the files' prefix for "model." of a canonical name */
    const char *head_prefix;         /* the files' prefix before "lm_head" */
    const struct json *mlx;          /* "quantization" of MLX, or NULL */
    uint32_t block_rows, block_cols; /* of FP8, from config.json */
    enum tensor_type raw_type;       /* of bin_weights, from config.json */
};

/* Sets the error "path: what is wrong", about the whole checkpoint. */
__attribute__((format(printf, 3, 4))) int checkpoint_refuse(const struct checkpoint *c,
                                                            struct error *err, const char *format,
                                                            ...);
int checkpoint_no_memory(const struct checkpoint *c, struct error *err);

/* Makes room for `n` tensors; and the table of their names once they are there. Duplicate names are
 * refused. */
int checkpoint_reserve(struct checkpoint_files *f, size_t n, struct error *err);
int checkpoint_index(struct checkpoint_files *f, struct error *err);
/* Finds a tensor by its name in the file. */
struct checkpoint_tensor *checkpoint_lookup(const struct checkpoint_files *f, const char *name);

int checkpoint_open_gguf(struct checkpoint_files *f, const char *path, struct error *err);
int checkpoint_open_directory(struct checkpoint_files *f, const char *path, struct error *err);

/* Reads DIR/config.json, and refuses unsupported quantisation. */
int checkpoint_read_config(struct checkpoint_files *f, struct error *err);
/* Finds the prefixes and marks the tensors that no text model uses. */
int checkpoint_read_names(struct checkpoint_files *f, struct error *err);

/* Adds the file of bin_weights that was opened last, under the canonical name for its own. Its
 * tensor has one dimension: the number of values that the file has in config.json's type. */
int checkpoint_add_raw(struct checkpoint_files *f, const char *file_name, struct error *err);
/* Makes a weight from a raw tensor. */
int checkpoint_raw_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err);
/* Finds the type in which it has `n` values; -1, with the error set: none. */
int checkpoint_raw_type(const struct checkpoint_files *f, const struct checkpoint_tensor *t,
                        uint64_t n, enum tensor_type *out, struct error *err);

/* Each makes a weight from a tensor of a safetensors file and its companions. */
int checkpoint_fp8_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err);
int checkpoint_blocks_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                             uint32_t cols, struct weight *out, struct error *err);
int checkpoint_mlx_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err);
/* Sets the scale of all values of a weight, `unit` times the one number of the tensor with that end
 * in the place of ".weight", if it is there. GGUF may have one for each expert of a stack, which is
 * left to who takes the stack apart (model_weights.c). */
int checkpoint_whole_scale(struct checkpoint_files *f, struct checkpoint_tensor *t, const char *end,
                           float unit, struct weight *out, struct error *err);
/* Marks a tensor as used, and aligns its data for its type, with a copy if needed. */
int checkpoint_align(struct checkpoint_files *f, struct checkpoint_tensor *t, struct error *err);
/* The product of all dimensions but the last `n_last`. */
uint64_t checkpoint_rows(const struct checkpoint_tensor *t, uint32_t n_last);
/* Whether `n_rows` is as expected: `rows`, or any number (0). */
bool checkpoint_fits(uint64_t n_rows, uint32_t rows);

/* A shape as text, in the order of the kind of file. */
struct shape_text {
    char text[96];
};

struct shape_text checkpoint_shape_text(const struct checkpoint *c, const uint64_t *dims,
                                        uint32_t n_dims);
/* "the tensor NAME has the shape X, expected Y"; one dimension is expected if `rows` is 1. */
int checkpoint_refuse_shape(const struct checkpoint *c, const struct checkpoint_tensor *t,
                            uint64_t rows, uint64_t cols, struct error *err);

#endif
