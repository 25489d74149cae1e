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

/* What a model is read from, whichever files hold it: tensors by name, and settings.
 *
 *   model.gguf, any part of a split one        settings: GGUF keys; names as GGUF has them
 *   DIR/config.json  + *.safetensors           settings: config.json (Hugging Face, MLX)
 *   DIR/config.json  + bin_weights/ *.bin      settings: config.json; shapes from who asks
 *   DIR with one GGUF, split or not            as that GGUF
 *
 * Everything in the files is checked against their sizes when it is opened. Files stay mapped until
 * checkpoint_close. In directories a tensor is asked for by its canonical name
 * ("model.layers.0...", "model.embed_tokens", "model.norm", "lm_head"), whatever prefix the files
 * have for "model." and for the head ("language_model.model.", "model.language_model.", none, ...).
 * A companion of a tensor (scales, biases) is found by checkpoint_weight and counts as used with
 * it. Ignored from the beginning is what is known to belong to no text model: towers and projectors
 * of images and sound, layers beyond those that config.json counts, tables of rotations, scales of
 * activations. */
enum checkpoint_kind { CHECKPOINT_GGUF, CHECKPOINT_SAFETENSORS, CHECKPOINT_BIN };

enum { CHECKPOINT_MAX_DIMS = 4 };

struct checkpoint_tensor {
    const char *name; /* as the file has it, NUL-terminated */
    enum tensor_type type;
    uint32_t n_dims;
    uint64_t dims[CHECKPOINT_MAX_DIMS]; /* the last runs fastest, as Hugging Face writes them; those
                                           that are not used, at the end, are 1; of a raw file one,
                                           the number of values */
    const void *data;                   /* of safetensors at any address; a weight's is aligned */
    size_t size_bytes;
    bool is_used;    /* it is a part of the model, or beside one */
    bool is_ignored; /* it is known to be none */
};

struct checkpoint {
    enum checkpoint_kind kind;
    char *path;                     /* as given */
    const struct gguf *gguf;        /* CHECKPOINT_GGUF: the (first) file, for its keys; else NULL */
    const struct json *config;      /* else: config.json */
    const struct json *text_config; /* the part of it that describes the text model, with what the
                                       whole says of types, quantisation, ties and end tokens */
    struct checkpoint_tensor *tensors;
    size_t n_tensors;
    uint64_t file_bytes; /* of all files with tensors */
};

int checkpoint_open(struct checkpoint **out, const char *path, struct error *err);
void checkpoint_close(struct checkpoint *c);

/* The tensor of that name, canonical or the file's own, or NULL. */
struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, const char *name);

/* Makes a weight of the tensor of that name (in a directory "model.layers.0.self_attn.q_proj", the
 * module's name, whose tensors are "NAME.weight" with "NAME.scales" or "NAME.weight_scale_inv", or
 * "NAME_blocks" and "NAME_scales"; a full name works, too). Dimensions before the last are taken
 * together as rows: a stack of n experts has n times the rows of one. `rows` (0: as many as there
 * are) and `cols` are what is expected, and all that gives a raw file its shape. 1: there is none.
 * -1: it cannot be read or has another shape; the error says which and why. Marks what it used. */
int checkpoint_weight(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols,
                      struct weight *out, struct error *err);

/* The floats of a tensor of `n` values, of any shape, F32, F16, BF16 or F64, into `out`. 1: there
 * is none. -1: it is not of that size or type. Marks it used. */
int checkpoint_vector(struct checkpoint *c, const char *name, float *out, uint64_t n,
                      struct error *err);

/* Tells the system that the files' pages are not needed for now. */
void checkpoint_forget(const struct checkpoint *c);
/* Of what the files hold, so that what was made from them can be told to be of them: names, shapes,
 * types and sizes, times of the files, samples of their bytes, and config.json. */
uint64_t checkpoint_hash(const struct checkpoint *c);

#endif
