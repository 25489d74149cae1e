#ifndef RADISH_MODEL_FILES_SAFETENSORS_H
#define RADISH_MODEL_FILES_SAFETENSORS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/files/checkpoint.h"
#include "model/files/model_file.h"

/* One safetensors file, mapped read-only. safetensors_open checks what the file claims as the
 * format's own library does: a header of at most 100 MB, tensors of known types whose shapes come
 * to the bytes that they are given, one after the other, with no hole, no overlap and nothing
 * behind the last one. A bad file gives "path: what is wrong" in one line.
 *
 *   n:8 │ header: n bytes of JSON, spaces at its end │ data, which offsets count from ...
 *
 *   {"__metadata__": {...}, "NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}
 *
 * The format keeps data aligned only if it was written so: a tensor may lie at any address. */
struct safetensors {
    struct model_file file;
    struct checkpoint_tensor *tensors; /* in the header's order; of more dimensions than
                                          CHECKPOINT_MAX_DIMS the first are taken together, a
                                          scalar has one of 1, what is empty counts as used */
    size_t n_tensors;
    struct arena memory; /* of the tensors and their names */
};

int safetensors_open(struct safetensors *s, const char *path, struct error *err);
/* The same from memory, which stays the caller's and outlives `s`; `path` only names it. */
int safetensors_open_memory(struct safetensors *s, const char *path, const void *bytes, size_t len,
                            struct error *err);
void safetensors_close(struct safetensors *s); /* also after a failed open, and twice */

#endif
