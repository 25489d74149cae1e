#ifndef RADISH_MODEL_FILES_GGUF_H
#define RADISH_MODEL_FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/byte_view.h"
#include "base/error.h"
#include "model/files/model_file.h"
#include "model/quant/quant.h"

/* A GGUF file (version 2 or 3, little endian): its header is in memory, its tensors are mapped
 * read-only. gguf_open checks every count,
 * length, offset and type against the file's size, so that what it returns can be used without
 * further checks; a bad file gives "path: at offset N: what is wrong".
 *
 *   header │ key-value pairs │ tensor infos │ padding │ tensor data (mmap) ...
 */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_value {
    struct byte_view key; /* in the mapping, as are the strings */
    enum gguf_type type;
    enum gguf_type item_type;  /* of an array */
    uint64_t count;            /* of an array */
    const void *data;          /* scalar, first number of an array: in the mapping, unaligned */
    struct byte_view *strings; /* array of strings: `count` of them; string: one */
};

enum { GGUF_MAX_DIMS = 4 };

struct gguf_tensor {
    struct byte_view name;
    enum tensor_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] runs fastest; unused ones are 1 */
    const void *data;             /* in the mapping */
    size_t size_bytes;
};

struct gguf {
    char *path;
    const uint8_t *map;
    size_t map_bytes;
    int64_t mtime_ns; /* of the file */
    uint32_t version;
    struct gguf_value *values; /* in file order */
    size_t n_values;
    struct gguf_tensor *tensors; /* in file order */
    size_t n_tensors;
    void *index; /* hash tables by name, private to gguf.c */
};

int gguf_open(struct gguf *g, const char *path, struct error *err);
/* The same from memory, which the caller owns, is aligned for any type and outlives `g`; `path` is
 * only for messages. */
int gguf_open_memory(struct gguf *g, const char *path, const void *bytes, size_t len,
                     struct error *err);
void gguf_close(struct gguf *g); /* also after a failed open, and twice */
/* The tensors' file as in model_file.h. A settled file has no keys and no tensors any more, only
 * the parts that were kept. */
int gguf_check(const struct gguf *g, struct error *err);
int gguf_settle(struct gguf *g, struct file_part *parts, size_t n_parts, bool keeps_file,
                struct error *err);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Each gets the value if the key exists with a suitable type and range; otherwise returns false. */
bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_get_f64(const struct gguf *g, const char *key, double *out);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_get_string(const struct gguf *g, const char *key, struct byte_view *out);
/* Item `i` of a numeric array; the caller has checked type and count. */
double gguf_array_f64(const struct gguf_value *array, uint64_t i);
int64_t gguf_array_i64(const struct gguf_value *array, uint64_t i);

#endif
