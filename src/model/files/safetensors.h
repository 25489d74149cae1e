#ifndef RADISH_MODEL_FILES_SAFETENSORS_H
#define RADISH_MODEL_FILES_SAFETENSORS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/files/checkpoint.h"
#include "model/files/model_file.h"

/* One safetensors file, mapped read-only. safetensors_open checks the file as the format's own
 * library does: a header of at most 100 MB, tensors of known types whose shapes match their sizes,
 * one after the other, with no gap, no overlap and nothing after the last one. A bad file gives a
 * one-line error, "path: what is wrong".
 *
 *   n:8 │ header: n bytes of JSON, padded with spaces │ data, where offsets start ...
 *
 *   {"__metadata__": {...}, "NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}
 *
 * The format does not guarantee alignment: a tensor may be at any address. */
struct safetensors {
    struct model_file file;
    struct checkpoint_tensor *tensors; /* in the header's order; beyond CHECKPOINT_MAX_DIMS the
                                          first dimensions are combined, a scalar has one of 1,
                                          an empty tensor counts as used */
    size_t n_tensors;
    struct arena memory; /* of the tensors and their names */
};

int safetensors_open(struct safetensors *s, const char *path, struct error *err);
/* The same from memory, which the caller owns and which outlives `s`; `path` is only a name. */
int safetensors_open_memory(struct safetensors *s, const char *path, const void *bytes, size_t len,
                            struct error *err);
void safetensors_close(struct safetensors *s); /* also after a failed open, and twice */

#endif
