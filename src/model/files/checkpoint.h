#ifndef RADISH_MODEL_FILES_CHECKPOINT_H
#define RADISH_MODEL_FILES_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "model/files/gguf.h"
#include "model/quant/weight.h"

/* model/files/ finds, reads and writes the files that models come in. Nothing here knows
 * architectures. */

/* The source of a model, whatever its files: tensors by name, and settings. model.gguf, any part of
 * a split one settings: GGUF keys; GGUF's names
 *   DIR/config.json  + *.safetensors           settings: config.json (Hugging Face, MLX)
 *   DIR/config.json  + bin_weights/ *.bin      settings: config.json; the caller gives shapes
 *   DIR with one GGUF, split or not            as that GGUF
 *
 * Everything in the files is checked against their sizes on open. Files stay mapped until
 * checkpoint_settle or checkpoint_close. In directories a tensor is asked for by its canonical name
 * ("model.layers.0...", "model.embed_tokens", "model.norm", "lm_head"), whatever prefix the files
 * have for "model." and for the head ("language_model.model.", "model.language_model.", none, ...).
 * checkpoint_weight finds a tensor's companions (scales, biases) and marks them as used with it.
 * Tensors that are known not to belong to the text model are ignored from the start: image and
 * audio towers and projectors, layers beyond those that config.json counts, rotation tables,
 * activation scales. */
enum checkpoint_kind { CHECKPOINT_GGUF, CHECKPOINT_SAFETENSORS, CHECKPOINT_BIN };

enum { CHECKPOINT_MAX_DIMS = 4 };

struct checkpoint_tensor {
    const char *name; /* as in the file, NUL-terminated */
    enum tensor_type type;
    uint32_t n_dims;
    uint64_t dims[CHECKPOINT_MAX_DIMS]; /* the last runs fastest, as Hugging Face writes them;
                                           unused ones, at the end, are 1; a raw file has one: its
                                           number of values */
    const void *data;                   /* unaligned in safetensors; a weight's data is aligned */
    size_t size_bytes;
    bool is_used;    /* it is part of the model, or a companion */
    bool is_ignored; /* it is known not to be part of the model */
};

struct checkpoint {
    enum checkpoint_kind kind;
    char *path;                     /* as given */
    const struct gguf *gguf;        /* CHECKPOINT_GGUF: the (first) file, for its keys; else NULL */
    const struct json *config;      /* otherwise: config.json */
    const struct json *text_config; /* its part that describes the text model, plus what the whole
                                       says about types, quantisation, ties and end tokens */
    struct checkpoint_tensor *tensors;
    size_t n_tensors;
    uint64_t file_bytes; /* of all files with tensors */
};

int checkpoint_open(struct checkpoint **out, const char *path, struct error *err);
void checkpoint_close(struct checkpoint *c);

/* The tensor with that name, canonical or the file's own, or NULL. */
struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, const char *name);

/* Makes a weight from the tensor with that name (in a directory "model.layers.0.self_attn.q_proj",
 * the module's name, whose tensors are "NAME.weight" with "NAME.scales" or "NAME.weight_scale_inv",
 * or "NAME_blocks" and "NAME_scales"; a full name works, too). Dimensions before the last are
 * combined as rows: a stack of n experts has n times the rows of one. `rows` (0: any number) and
 * `cols` are the expected shape; a raw file has no other. 1: no such tensor. -1: it cannot be read
 * or has another shape; the error says which and why. Marks the tensors it used. */
int checkpoint_weight(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols,
                      struct weight *out, struct error *err);

/* Reads a tensor of `n` values of any shape, F32, F16, BF16 or F64, into `out`. 1: no such tensor.
 * -1: wrong size or type. Marks it as used. */
int checkpoint_vector(struct checkpoint *c, const char *name, float *out, uint64_t n,
                      struct error *err);

/* Fails if a file has changed since it was opened. */
int checkpoint_check(const struct checkpoint *c, struct error *err);
/* Ends the use of the files, as in model_file.h: of tensors' data and of GGUF keys, only `parts`
 * can still be read. Parts that are not in a file were copied earlier, and stay. `keeps_files`: the
 * rest stays mapped. */
int checkpoint_settle(struct checkpoint *c, const struct file_part *parts, size_t n_parts,
                      bool keeps_files, struct error *err);
/* A hash of the files' contents, to recognise what was made from them: covers names, shapes, types
 * and sizes, the files' times, samples of their bytes, and config.json. */
uint64_t checkpoint_hash(const struct checkpoint *c);

#endif
