/* Reads safetensors: maps the file, parses its JSON header and checks every claim against the
 * actual bytes. Read-only afterwards, any thread. The header is untrusted: its numbers are compared
 * with the file's size before any arithmetic, and memory for parsing is limited by the header's
 * size. */
#include "model/files/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum {
    MAX_HEADER_BYTES = 100 * 1000 * 1000, /* the limit of the format's own library */
    MAX_RANK = 64,
    /* A tensor's entry takes seven values or more: 15 times its text, if its name is short. */
    TREE_BYTES_PER_BYTE = 32,
    MIN_TREE_BYTES = 1 << 20,
};

static const struct dtype {
    const char *name;
    enum tensor_type type;
    uint32_t bits;
} dtypes[] = {
    {"BF16", TENSOR_BF16, 16},      {"F32", TENSOR_F32, 32},     {"F16", TENSOR_F16, 16},
    {"U32", TENSOR_U32, 32},        {"U8", TENSOR_U8, 8},        {"F8_E4M3", TENSOR_F8_E4M3, 8},
    {"F8_E5M2", TENSOR_F8_E5M2, 8}, {"F8_E8M0", TENSOR_E8M0, 8}, {"F4", TENSOR_FP4, 4},
    {"F64", TENSOR_F64, 64},        {"I64", TENSOR_I64, 64},     {"U64", TENSOR_U64, 64},
    {"I32", TENSOR_I32, 32},        {"I16", TENSOR_I16, 16},     {"U16", TENSOR_U16, 16},
    {"I8", TENSOR_I8, 8},           {"BOOL", TENSOR_BOOL, 8},
};

/* Where a tensor is in the data, to check for holes and overlaps. */
struct extent {
    uint64_t begin, end;
    const struct json *entry;
};

struct reader {
    struct safetensors *s;
    uint64_t data_bytes; /* after the header */
    struct extent *extents;
    struct error *err;
};

/* "path: what is wrong". */
__attribute__((format(printf, 2, 3))) static int bad(const struct reader *r, const char *format,
                                                     ...)
{
    char what[360];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(r->err, ERROR_FORMAT, "%s: %s", r->s->file.path, what);
}

static int no_memory(const struct reader *r)
{
    return error_set(r->err, ERROR_MEMORY, "%s: no memory for its list of tensors",
                     r->s->file.path);
}

static struct shown_name name_of(const struct json *entry)
{
    return shown_name(entry->key, entry->key_len);
}

/* The header's JSON, whose values live in `tree`. */
static const struct json *read_header(struct reader *r, struct arena *tree)
{
    struct model_file *file = &r->s->file;
    uint64_t len;
    if (file->len < sizeof len) {
        bad(r, "not a safetensors file: it has only %zu bytes", file->len);
        return NULL;
    }
    if (model_file_copy(file, sizeof len, r->err))
        return NULL;
    memcpy(&len, file->bytes, sizeof len);
    const char *text = (const char *)file->bytes + sizeof len;
    if (file->len > sizeof len && *text != '{') {
        bad(r, "not a safetensors file: no header begins at its byte 8");
        return NULL;
    }
    if (len > MAX_HEADER_BYTES) {
        bad(r, "not a safetensors file: a header of %" PRIu64 " bytes, more than %d", len,
            MAX_HEADER_BYTES);
        return NULL;
    }
    if (len > file->len - sizeof len) {
        bad(r,
            "the file ends (%zu bytes) inside its header of %" PRIu64
            " bytes; is the download incomplete?",
            file->len, len);
        return NULL;
    }
    if (model_file_copy(file, sizeof len + len, r->err))
        return NULL;
    r->data_bytes = file->len - sizeof len - len;
    tree->limit_bytes = MIN_TREE_BYTES + TREE_BYTES_PER_BYTE * (size_t)len;
    struct error why = {0};
    const struct json *header = json_parse(tree, text, (size_t)len, &why);
    if (!header)
        error_set(r->err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT,
                  "%s: its header: %s", file->path, why.message);
    else if (header->type != JSON_OBJECT)
        bad(r, "its header is not a JSON object");
    return json_is(header, JSON_OBJECT) ? header : NULL;
}

static int read_dtype(struct reader *r, const struct json *entry, struct checkpoint_tensor *t,
                      uint32_t *bits)
{
    const struct json *dtype = json_get(entry, "dtype");
    if (!json_is(dtype, JSON_STRING))
        return bad(r, "the tensor %s has no dtype", name_of(entry).text);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (json_equals(dtype, dtypes[i].name)) {
            t->type = dtypes[i].type;
            *bits = dtypes[i].bits;
            return 0;
        }
    return bad(r, "the tensor %s has the dtype %s, which radish does not read", name_of(entry).text,
               shown_name(dtype->text, dtype->text_len).text);
}

/* The shape, and the number of values in it. */
static int read_shape(struct reader *r, const struct json *entry, struct checkpoint_tensor *t,
                      uint64_t *n)
{
    const struct json *shape = json_get(entry, "shape");
    if (!json_is(shape, JSON_ARRAY) || shape->count > MAX_RANK)
        return bad(r, "the tensor %s has no shape, or one with more than %d numbers",
                   name_of(entry).text, MAX_RANK);
    size_t folded = shape->count > CHECKPOINT_MAX_DIMS ? shape->count - CHECKPOINT_MAX_DIMS : 0;
    size_t at = 0;
    *n = 1;
    t->n_dims = shape->count ? (uint32_t)(shape->count - folded) : 1;
    for (int i = 0; i < CHECKPOINT_MAX_DIMS; i++)
        t->dims[i] = 1;
    json_each (number, shape) {
        uint64_t dim;
        if (!json_to_uint64(number, &dim))
            return bad(r, "the tensor %s has a shape that is not made of whole numbers",
                       name_of(entry).text);
        if (__builtin_mul_overflow(*n, dim, n) ||
            __builtin_mul_overflow(t->dims[at < folded ? 0 : at - folded], dim,
                                   &t->dims[at < folded ? 0 : at - folded]))
            return bad(r, "the tensor %s has more values than a 64-bit count can hold",
                       name_of(entry).text);
        at++;
    }
    return 0;
}

static int read_extent(struct reader *r, const struct json *entry, struct extent *out)
{
    const struct json *offsets = json_get(entry, "data_offsets");
    if (!json_is(offsets, JSON_ARRAY) || offsets->count != 2 ||
        !json_to_uint64(offsets->first, &out->begin) || !json_to_uint64(offsets->last, &out->end))
        return bad(r, "the tensor %s has no data_offsets with two whole numbers",
                   name_of(entry).text);
    if (out->begin > out->end)
        return bad(r, "the data of the tensor %s ends (%" PRIu64 ") before it begins (%" PRIu64 ")",
                   name_of(entry).text, out->end, out->begin);
    if (out->end > r->data_bytes)
        return bad(r,
                   "the file ends %" PRIu64
                   " bytes before the end of the tensor %s; is the download incomplete?",
                   out->end - r->data_bytes, name_of(entry).text);
    out->entry = entry;
    return 0;
}

static int read_tensor(struct reader *r, const struct json *entry, struct extent *extent,
                       struct checkpoint_tensor *t)
{
    uint32_t bits = 0;
    uint64_t n = 0, n_bits;
    if (entry->type != JSON_OBJECT)
        return bad(r, "the entry of the tensor %s is not an object", name_of(entry).text);
    if (entry->key_len == 0 || strlen(entry->key) != entry->key_len)
        return bad(r, "a tensor's name is empty or has a NUL in it: %s", name_of(entry).text);
    if (read_dtype(r, entry, t, &bits) || read_shape(r, entry, t, &n) ||
        read_extent(r, entry, extent))
        return -1;
    if (__builtin_mul_overflow(n, bits, &n_bits) || n_bits % 8 ||
        n_bits / 8 != extent->end - extent->begin)
        return bad(r,
                   "the tensor %s has %" PRIu64 " bytes, which does not match its shape and dtype",
                   name_of(entry).text, extent->end - extent->begin);
    t->size_bytes = (size_t)(n_bits / 8);
    t->is_ignored = n == 0;
    t->data = r->s->file.bytes + (r->s->file.len - r->data_bytes) + extent->begin;
    t->name = arena_copy(&r->s->memory, entry->key, entry->key_len);
    return t->name ? 0 : no_memory(r);
}

static int extent_compare(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    int begins = (x->begin > y->begin) - (x->begin < y->begin);
    return begins ? begins : (x->end > y->end) - (x->end < y->end);
}

/* Every byte after the header belongs to exactly one tensor. */
static int check_extents(struct reader *r, size_t n)
{
    uint64_t end = 0;
    qsort(r->extents, n, sizeof *r->extents, extent_compare);
    for (size_t i = 0; i < n; i++) {
        const struct extent *e = &r->extents[i];
        if (e->begin < end)
            return bad(r, "the tensor %s shares bytes with the tensor %s", name_of(e->entry).text,
                       name_of(r->extents[i - 1].entry).text);
        if (e->begin > end)
            return bad(r, "a hole of %" PRIu64 " bytes before the data of the tensor %s",
                       e->begin - end, name_of(e->entry).text);
        end = e->end;
    }
    if (end != r->data_bytes)
        return bad(r, "%" PRIu64 " bytes follow the data of its last tensor", r->data_bytes - end);
    return 0;
}

static int read_tensors(struct reader *r, const struct json *header)
{
    struct safetensors *s = r->s;
    s->tensors = arena_alloc_array(&s->memory, header->count + 1, sizeof *s->tensors);
    r->extents = calloc(header->count + 1, sizeof *r->extents);
    if (!s->tensors || !r->extents)
        return no_memory(r);
    json_each (entry, header) {
        if (entry->key_len == 12 && memcmp(entry->key, "__metadata__", 12) == 0)
            continue;
        if (read_tensor(r, entry, &r->extents[s->n_tensors], &s->tensors[s->n_tensors]))
            return -1;
        s->n_tensors++;
    }
    return check_extents(r, s->n_tensors);
}

static int read_file(struct safetensors *s, struct error *err)
{
    struct reader r = {.s = s, .err = err};
    struct arena tree = ARENA_INIT;
    const struct json *header = read_header(&r, &tree);
    int rc = header ? read_tensors(&r, header) : -1;
    free(r.extents);
    arena_free(&tree);
    if (rc)
        safetensors_close(s);
    return rc;
}

int safetensors_open(struct safetensors *s, const char *path, struct error *err)
{
    *s = (struct safetensors){0};
    return model_file_open(&s->file, path, err) ? -1 : read_file(s, err);
}

int safetensors_open_memory(struct safetensors *s, const char *path, const void *bytes, size_t len,
                            struct error *err)
{
    *s = (struct safetensors){0};
    return model_file_open_memory(&s->file, path, bytes, len, err) ? -1 : read_file(s, err);
}

void safetensors_close(struct safetensors *s)
{
    model_file_close(&s->file);
    arena_free(&s->memory);
    *s = (struct safetensors){0};
}
