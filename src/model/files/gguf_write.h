#ifndef RADISH_MODEL_FILES_GGUF_WRITE_H
#define RADISH_MODEL_FILES_GGUF_WRITE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "model/files/gguf.h"

/* Builds the head of a GGUF file (version 3). Values and tensors are added in any order; then the
 * head is written, and the caller writes the tensors' bytes in the order they were added, each
 * padded to GGUF_ALIGNMENT. gguf_write_head reports if an addition ran out of memory. */
enum { GGUF_ALIGNMENT = 32 };

struct gguf_writer {
    struct strbuf values, tensors;
    uint64_t n_values, n_tensors;
    uint64_t data_bytes; /* of the tensors so far, padded */
};

void gguf_writer_free(struct gguf_writer *w);
void gguf_add_value(struct gguf_writer *w, const struct gguf_value *value); /* a copy */
void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_add_f32(struct gguf_writer *w, const char *key, float value);
void gguf_add_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_add_string(struct gguf_writer *w, const char *key, const char *bytes, size_t len);
/* `items` are the numbers themselves, or struct byte_view. */
void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_type type, const void *items,
                    uint64_t count);
/* Appends the values of another head. */
void gguf_add_values(struct gguf_writer *w, const struct gguf_writer *from);
/* `dims` as in the file: the first runs fastest. */
void gguf_add_tensor(struct gguf_writer *w, struct byte_view name, enum tensor_type type,
                     uint32_t n_dims, const uint64_t *dims);
int gguf_write_head(const struct gguf_writer *w, FILE *out, const char *path, struct error *err);

static inline uint64_t gguf_padded(uint64_t size_bytes)
{
    return (size_bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

#endif
