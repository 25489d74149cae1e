/* Reads GGUF: maps the file, walks its header once and checks every claim against the actual bytes,
 * so that callers need not check again. Read-only afterwards, any thread. Counts and lengths are
 * untrusted 64-bit numbers: nothing is added or multiplied before it is compared with the rest of
 * the file, and nothing is allocated for a count that the file is too short to hold. */
#include "model/files/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "model/files/model_file.h"

enum {
    MAX_ENTRIES = 1 << 24, /* of pairs, of tensors, of strings in an array */
    MAX_NAME_BYTES = 65535,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8, /* required by the format; enough for every tensor type */
    MAX_ALIGNMENT = 1 << 20,
    MIN_PAIR_BYTES = 8 + 1 + 4 + 1,           /* length, key, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, name, n_dims, one dim, type, offset */
};

/* Open addressing over entries: a slot holds an entry's number plus one, or 0 if empty.
 *
 *   slots   [0] [3] [0] [1] [2] [0] [0] [0]     a power of two, at most half full
 *                ▼ values[2].key or tensors[2].name */
struct name_table {
    uint32_t *slots;
    size_t mask;
};

struct gguf_index {
    struct name_table values, tensors;
    struct model_file file;
};

/* The state of the walk. A failed read sets `err`, and reading stops. */
struct reader {
    struct gguf *g;
    size_t at; /* never past g->map_bytes */
    struct error *err;
};

static size_t remaining(const struct reader *r)
{
    return r->g->map_bytes - r->at;
}

static struct shown_name show(struct byte_view name)
{
    return shown_name(name.bytes, name.len);
}

/* "path: at offset N: what is wrong". */
__attribute__((format(printf, 3, 4))) static int bad(const struct reader *r, size_t offset,
                                                     const char *format, ...)
{
    char what[320];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set_at(r->err, ERROR_FORMAT, offset, "%s: at offset %zu: %s", r->g->path, offset,
                        what);
}

static int no_memory(const struct reader *r)
{
    return error_set(r->err, ERROR_MEMORY, "%s: no memory for the file's index", r->g->path);
}

/* Takes the next `len` bytes, which the file has, as a copy that no other program can change. */
static const uint8_t *take(struct reader *r, size_t len)
{
    struct gguf_index *index = r->g->index;
    if (model_file_copy(&index->file, r->at + len, r->err))
        return NULL;
    r->at += len;
    return r->g->map + r->at - len;
}

/* The next `len` bytes, or NULL with an error. `what` names them: "the type of key x". */
static const void *read_bytes(struct reader *r, size_t len, const char *what)
{
    if (len > remaining(r)) {
        bad(r, r->at, "the file ends (%zu bytes) inside %s: is it cut short?", r->g->map_bytes,
            what);
        return NULL;
    }
    return take(r, len);
}

static int read_u32(struct reader *r, uint32_t *out, const char *what)
{
    const void *bytes = read_bytes(r, sizeof *out, what);
    if (!bytes)
        return -1;
    memcpy(out, bytes, sizeof *out);
    return 0;
}

static int read_u64(struct reader *r, uint64_t *out, const char *what)
{
    const void *bytes = read_bytes(r, sizeof *out, what);
    if (!bytes)
        return -1;
    memcpy(out, bytes, sizeof *out);
    return 0;
}

static int read_string(struct reader *r, struct byte_view *out, const char *what)
{
    size_t start = r->at;
    uint64_t len;
    if (read_u64(r, &len, what))
        return -1;
    if (len > remaining(r))
        return bad(r, start,
                   "%s claims %" PRIu64 " bytes, more than the file has left: is it cut short?",
                   what, len);
    out->bytes = (const char *)take(r, (size_t)len);
    out->len = (size_t)len;
    return out->bytes ? 0 : -1;
}

/* A key or a tensor's name: `kind` says which. */
static int read_name(struct reader *r, struct byte_view *out, const char *kind)
{
    size_t start = r->at;
    if (read_string(r, out, kind))
        return -1;
    if (out->len == 0)
        return bad(r, start, "%s is empty", kind);
    if (out->len > MAX_NAME_BYTES)
        return bad(r, start, "%s is %zu bytes long, more than %d", kind, out->len, MAX_NAME_BYTES);
    return 0;
}

static int read_count(struct reader *r, size_t *out, const char *what)
{
    size_t start = r->at;
    uint64_t count;
    if (read_u64(r, &count, "the header"))
        return -1;
    if (count > MAX_ENTRIES)
        return bad(r, start, "the file claims %" PRIu64 " %s, more than %d", count, what,
                   MAX_ENTRIES);
    *out = (size_t)count;
    return 0;
}

static int table_open(const struct reader *r, struct name_table *t, size_t n)
{
    size_t n_slots = 8;
    while (n_slots < 2 * n)
        n_slots *= 2;
    t->slots = calloc(n_slots, sizeof *t->slots);
    if (!t->slots)
        return no_memory(r);
    t->mask = n_slots - 1;
    return 0;
}

typedef const struct byte_view *(*name_of)(const struct gguf *g, size_t i);

static const struct byte_view *value_name(const struct gguf *g, size_t i)
{
    return &g->values[i].key;
}

static const struct byte_view *tensor_name(const struct gguf *g, size_t i)
{
    return &g->tensors[i].name;
}

/* The slot that holds the name, or the empty slot where it belongs. */
static uint32_t *table_slot(const struct gguf *g, const struct name_table *t, name_of name_at,
                            struct byte_view name)
{
    for (size_t i = hash_bytes(name.bytes, name.len);; i++) {
        uint32_t *slot = &t->slots[i & t->mask];
        if (*slot == 0)
            return slot;
        const struct byte_view *other = name_at(g, *slot - 1);
        if (byte_view_equal(*other, name))
            return slot;
    }
}

static size_t scalar_bytes(enum gguf_type type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    case GGUF_STRING:
    case GGUF_ARRAY: break;
    }
    return 0;
}

static int read_type(struct reader *r, enum gguf_type *out, struct byte_view key)
{
    size_t start = r->at;
    uint32_t type;
    if (read_u32(r, &type, "a value's type"))
        return -1;
    if (type > GGUF_F64)
        return bad(r, start, "key %s has the unknown type %" PRIu32, show(key).text, type);
    *out = (enum gguf_type)type;
    return 0;
}

/* Reads `count` strings into separate memory. The array is walked before it is allocated, so that
 * memory depends on what the file holds and not on what it claims. */
static int read_strings(struct reader *r, struct gguf_value *v)
{
    size_t start = r->at;
    struct byte_view string;
    for (uint64_t i = 0; i < v->count; i++)
        if (read_string(r, &string, "a string"))
            return -1;
    v->strings = calloc(v->count ? (size_t)v->count : 1, sizeof *v->strings);
    if (!v->strings)
        return no_memory(r);
    r->at = start;
    for (uint64_t i = 0; i < v->count; i++)
        if (read_string(r, &v->strings[i], "a string"))
            return -1;
    return 0;
}

static int read_scalars(struct reader *r, struct gguf_value *v, enum gguf_type type)
{
    size_t start = r->at, size = scalar_bytes(type);
    if (v->count > remaining(r) / size)
        return bad(r, start,
                   "key %s claims %" PRIu64
                   " values, more than the file has left: is it cut short?",
                   show(v->key).text, v->count);
    v->data = take(r, (size_t)v->count * size);
    if (!v->data)
        return -1;
    if (type == GGUF_BOOL)
        for (size_t i = start; i < r->at; i++)
            if (r->g->map[i] > 1)
                return bad(r, i, "key %s holds a boolean of %u", show(v->key).text, r->g->map[i]);
    return 0;
}

static int read_array(struct reader *r, struct gguf_value *v)
{
    size_t start = r->at;
    if (read_type(r, &v->item_type, v->key))
        return -1;
    if (v->item_type == GGUF_ARRAY)
        return bad(r, start, "key %s is an array of arrays, which radish does not read",
                   show(v->key).text);
    start = r->at;
    if (read_u64(r, &v->count, "an array's length"))
        return -1;
    if (v->item_type != GGUF_STRING)
        return read_scalars(r, v, v->item_type);
    if (v->count > MAX_ENTRIES || v->count > remaining(r) / sizeof(uint64_t))
        return bad(r, start,
                   "key %s claims %" PRIu64
                   " strings, more than the file can hold: is it cut short?",
                   show(v->key).text, v->count);
    return read_strings(r, v);
}

static int read_value(struct reader *r, struct gguf_value *v)
{
    if (read_name(r, &v->key, "a key") || read_type(r, &v->type, v->key))
        return -1;
    if (v->type == GGUF_ARRAY)
        return read_array(r, v);
    v->count = 1;
    return v->type == GGUF_STRING ? read_strings(r, v) : read_scalars(r, v, v->type);
}

static int read_values(struct reader *r, size_t count)
{
    struct gguf *g = r->g;
    struct gguf_index *index = g->index;
    if (count > remaining(r) / MIN_PAIR_BYTES)
        return bad(
            r, r->at,
            "the file is too short for the %zu key-value pairs that it claims: is it cut short?",
            count);
    g->values = calloc(count ? count : 1, sizeof *g->values);
    if (!g->values)
        return no_memory(r);
    if (table_open(r, &index->values, count))
        return -1;
    for (size_t i = 0; i < count; i++) {
        size_t start = r->at;
        g->n_values = i + 1; /* before reading: close frees what a failed read has allocated */
        if (read_value(r, &g->values[i]))
            return -1;
        uint32_t *slot = table_slot(g, &index->values, value_name, g->values[i].key);
        if (*slot)
            return bad(r, start, "the key %s appears twice", show(g->values[i].key).text);
        *slot = (uint32_t)i + 1;
    }
    return 0;
}

/* Types that only other programs read, so that the error can name them. */
static const char *foreign_type_name(uint32_t type)
{
    static const char *const names[] = {
        [4] = "Q4_2", [5] = "Q4_3", [9] = "Q8_1", [15] = "Q8_K", [24] = "I8",
        [25] = "I16", [26] = "I32", [27] = "I64", [28] = "F64",
    };
    const char *name = type < sizeof names / sizeof *names ? names[type] : NULL;
    return name ? name : "unknown";
}

/* Computes a tensor's size in bytes from its dimensions and type. */
static int tensor_measure(struct reader *r, struct gguf_tensor *t, size_t start)
{
    const struct tensor_type_info *info = tensor_type_info((uint32_t)t->type);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return bad(r, start, "tensor %s has more values than a 64-bit count can hold",
                       show(t->name).text);
    if (t->dims[0] % info->block_len)
        return bad(r, start,
                   "tensor %s has rows of %" PRIu64 ", not a multiple of %s's block of %u",
                   show(t->name).text, t->dims[0], info->name, info->block_len);
    if (__builtin_mul_overflow(n / info->block_len, info->block_bytes, &t->size_bytes))
        return bad(r, start, "tensor %s has more bytes than a 64-bit count can hold",
                   show(t->name).text);
    return 0;
}

/* Reads one tensor's info. The address of its data is known only after the last one: `offset` keeps
 * its place. */
static int read_tensor(struct reader *r, struct gguf_tensor *t, uint64_t *offset)
{
    size_t start = r->at;
    uint32_t type;
    if (read_name(r, &t->name, "a tensor's name") || read_u32(r, &t->n_dims, "a tensor's shape"))
        return -1;
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return bad(r, start, "tensor %s has %" PRIu32 " dimensions, not 1 to %d",
                   show(t->name).text, t->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && read_u64(r, &t->dims[i], "a tensor's shape"))
            return -1;
        if (t->dims[i] == 0)
            return bad(r, start, "tensor %s has a dimension of 0", show(t->name).text);
    }
    if (read_u32(r, &type, "a tensor's type"))
        return -1;
    if (type >= N_GGUF_TYPES || !tensor_type_info(type))
        return bad(r, start, "tensor %s is of type %" PRIu32 " (%s), which radish does not read",
                   show(t->name).text, type, foreign_type_name(type));
    t->type = (enum tensor_type)type;
    if (read_u64(r, offset, "a tensor's offset"))
        return -1;
    return tensor_measure(r, t, start);
}

static int read_alignment(struct reader *r, size_t *out)
{
    const struct gguf_value *v = gguf_find(r->g, "general.alignment");
    uint64_t alignment = DEFAULT_ALIGNMENT;
    if (v) {
        size_t where = (size_t)((const uint8_t *)v->key.bytes - r->g->map);
        if (!gguf_get_u64(r->g, "general.alignment", &alignment))
            return bad(r, where, "general.alignment is not a whole number");
        if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || alignment & (alignment - 1))
            return bad(r, where,
                       "general.alignment is %" PRIu64 ", not a power of two from %d to %d",
                       alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    }
    *out = (size_t)alignment;
    return 0;
}

/* Points each tensor at its data. Tensors may share bytes, because nothing is ever written there.
 */
static int place_tensors(struct reader *r, const uint64_t *offsets)
{
    struct gguf *g = r->g;
    size_t alignment = DEFAULT_ALIGNMENT;
    if (read_alignment(r, &alignment))
        return -1;
    size_t header_bytes = r->at;
    size_t padding = (alignment - header_bytes % alignment) % alignment;
    size_t data_bytes = padding < remaining(r) ? remaining(r) - padding : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        size_t where = (size_t)((const uint8_t *)t->name.bytes - g->map);
        if (offsets[i] % alignment)
            return bad(r, where, "tensor %s has data at %" PRIu64 ", not a multiple of %zu",
                       show(t->name).text, offsets[i], alignment);
        if (offsets[i] > data_bytes || t->size_bytes > data_bytes - offsets[i])
            return bad(r, where,
                       "the data of tensor %s (%zu bytes at %" PRIu64 " of %zu) is not in the file:"
                       " is it cut short?",
                       show(t->name).text, t->size_bytes, offsets[i], data_bytes);
        t->data = g->map + header_bytes + padding + offsets[i];
    }
    return 0;
}

static int read_tensors(struct reader *r, size_t count)
{
    struct gguf *g = r->g;
    struct gguf_index *index = g->index;
    if (count > remaining(r) / MIN_TENSOR_BYTES)
        return bad(r, r->at,
                   "the file is too short for the %zu tensors that it claims: is it cut short?",
                   count);
    uint64_t *offsets = calloc(count ? count : 1, sizeof *offsets);
    g->tensors = calloc(count ? count : 1, sizeof *g->tensors);
    int rc = offsets && g->tensors ? table_open(r, &index->tensors, count) : no_memory(r);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        size_t start = r->at;
        rc = read_tensor(r, &g->tensors[i], &offsets[i]);
        if (rc)
            break;
        uint32_t *slot = table_slot(g, &index->tensors, tensor_name, g->tensors[i].name);
        if (*slot)
            rc = bad(r, start, "the tensor %s appears twice", show(g->tensors[i].name).text);
        *slot = (uint32_t)i + 1;
    }
    if (rc == 0) {
        g->n_tensors = count;
        rc = place_tensors(r, offsets);
    }
    free(offsets);
    return rc;
}

/* Text instead of a model is what failed downloads leave. */
static int bad_magic(const struct reader *r, const uint8_t start[4])
{
    bool is_text = true;
    for (int i = 0; i < 4; i++)
        is_text = is_text && start[i] >= ' ' && start[i] <= '~';
    if (!is_text)
        return bad(r, 0, "not a GGUF file: it begins with the bytes %02x %02x %02x %02x", start[0],
                   start[1], start[2], start[3]);
    return bad(r, 0, "not a GGUF file: it begins with \"%.4s\"%s", (const char *)start,
               start[0] == '<' ? " (a web page? download the file itself, with curl -L)"
               : memcmp(start, "vers", 4) == 0 ? " (a Git LFS pointer? run git lfs pull)"
                                               : "");
}

static int read_version(struct reader *r)
{
    static const uint8_t magic[4] = {'G', 'G', 'U', 'F'};
    const uint8_t *start = read_bytes(r, sizeof magic, "the first four bytes, \"GGUF\"");
    if (!start)
        return -1;
    if (memcmp(start, magic, sizeof magic) != 0)
        return bad_magic(r, start);
    size_t where = r->at;
    uint32_t version;
    if (read_u32(r, &version, "the version"))
        return -1;
    uint32_t swapped = __builtin_bswap32(version);
    if (version > 0xffff && swapped <= 0xffff)
        return bad(r, where,
                   "a big-endian GGUF file (version %" PRIu32 "), which radish does not"
                   " read; convert it to little endian",
                   swapped);
    if (version == 1)
        return bad(r, where, "GGUF version 1, which radish does not read; convert it to version 3");
    if (version != 2 && version != 3)
        return bad(r, where, "GGUF version %" PRIu32 ": radish reads versions 2 and 3", version);
    r->g->version = version;
    return 0;
}

static int read_file(struct reader *r)
{
    size_t n_tensors = 0, n_values = 0;
    if (read_version(r) || read_count(r, &n_tensors, "tensors") ||
        read_count(r, &n_values, "key-value pairs"))
        return -1;
    return read_values(r, n_values) || read_tensors(r, n_tensors) ? -1 : 0;
}

static int gguf_begin(struct gguf *g, const char *path, struct error *err)
{
    *g = (struct gguf){.index = calloc(1, sizeof(struct gguf_index))};
    return g->index ? 0 : error_set(err, ERROR_MEMORY, "%s: no memory", path);
}

/* Reads the file if `rc` says that it is open; on an error, closes everything. */
static int gguf_finish(struct gguf *g, int rc, struct error *err)
{
    if (rc == 0) {
        const struct model_file *file = &((struct gguf_index *)g->index)->file;
        g->path = file->path;
        g->map = file->bytes;
        g->map_bytes = file->len;
        g->mtime_ns = file->mtime_ns;
        rc = read_file(&(struct reader){.g = g, .err = err});
    }
    if (rc)
        gguf_close(g);
    return rc;
}

int gguf_open(struct gguf *g, const char *path, struct error *err)
{
    if (gguf_begin(g, path, err))
        return -1;
    struct gguf_index *index = g->index;
    return gguf_finish(g, model_file_open(&index->file, path, err), err);
}

int gguf_open_memory(struct gguf *g, const char *path, const void *bytes, size_t len,
                     struct error *err)
{
    if (gguf_begin(g, path, err))
        return -1;
    struct gguf_index *index = g->index;
    return gguf_finish(g, model_file_open_memory(&index->file, path, bytes, len, err), err);
}

static void entries_free(struct gguf *g)
{
    struct gguf_index *index = g->index;
    for (size_t i = 0; i < g->n_values; i++)
        free(g->values[i].strings);
    free(g->values);
    free(g->tensors);
    free(index->values.slots);
    free(index->tensors.slots);
    g->values = NULL;
    g->tensors = NULL;
    g->n_values = g->n_tensors = 0;
    index->values = index->tensors = (struct name_table){0};
}

void gguf_close(struct gguf *g)
{
    struct gguf_index *index = g->index;
    if (index) {
        entries_free(g);
        model_file_close(&index->file);
        free(index);
    }
    *g = (struct gguf){0};
}

int gguf_check(const struct gguf *g, struct error *err)
{
    const struct gguf_index *index = g->index;
    return model_file_check(&index->file, err);
}

int gguf_settle(struct gguf *g, struct file_part *parts, size_t n_parts, bool keeps_file,
                struct error *err)
{
    struct gguf_index *index = g->index;
    if (model_file_settle(&index->file, parts, n_parts, keeps_file, err))
        return -1;
    if (!keeps_file)
        entries_free(g);
    return 0;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_index *index = g->index;
    struct byte_view name = {key, strlen(key)};
    if (g->n_values == 0)
        return NULL;
    uint32_t slot = *table_slot(g, &index->values, value_name, name);
    return slot ? &g->values[slot - 1] : NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    const struct gguf_index *index = g->index;
    struct byte_view wanted = {name, strlen(name)};
    if (g->n_tensors == 0)
        return NULL;
    uint32_t slot = *table_slot(g, &index->tensors, tensor_name, wanted);
    return slot ? &g->tensors[slot - 1] : NULL;
}

/* A number from the mapping, copied because it may be unaligned. */
union number {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
};

/* Unsigned values above INT64_MAX wrap around; gguf_get_u64 converts them back. */
static int64_t load_i64(enum gguf_type type, const void *at)
{
    union number n;
    memcpy(&n, at, scalar_bytes(type));
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL: return n.u8;
    case GGUF_I8: return n.i8;
    case GGUF_U16: return n.u16;
    case GGUF_I16: return n.i16;
    case GGUF_U32: return n.u32;
    case GGUF_I32: return n.i32;
    case GGUF_U64:
    case GGUF_I64: return n.i64;
    default: break;
    }
    assert(!"an integer");
    return 0;
}

static double load_f64(enum gguf_type type, const void *at)
{
    union number n;
    memcpy(&n, at, scalar_bytes(type));
    switch (type) {
    case GGUF_F32: return (double)n.f32;
    case GGUF_F64: return n.f64;
    case GGUF_U64: return (double)n.u64;
    default: return (double)load_i64(type, at);
    }
}

static bool is_float(enum gguf_type type)
{
    return type == GGUF_F32 || type == GGUF_F64;
}

static bool is_integer(enum gguf_type type)
{
    return type != GGUF_BOOL && scalar_bytes(type) > 0 && !is_float(type);
}

bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || !is_integer(v->type))
        return false;
    int64_t number = load_i64(v->type, v->data);
    if (number < 0 && v->type != GGUF_U64)
        return false;
    *out = (uint64_t)number;
    return true;
}

bool gguf_get_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || !(is_float(v->type) || is_integer(v->type)))
        return false;
    *out = load_f64(v->type, v->data);
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || v->type != GGUF_BOOL)
        return false;
    *out = load_i64(GGUF_BOOL, v->data) != 0;
    return true;
}

bool gguf_get_string(const struct gguf *g, const char *key, struct byte_view *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (!v || v->type != GGUF_STRING)
        return false;
    *out = v->strings[0];
    return true;
}

static const void *array_item(const struct gguf_value *array, uint64_t i)
{
    assert(array->type == GGUF_ARRAY && i < array->count && array->item_type != GGUF_STRING);
    return (const uint8_t *)array->data + i * scalar_bytes(array->item_type);
}

double gguf_array_f64(const struct gguf_value *array, uint64_t i)
{
    return load_f64(array->item_type, array_item(array, i));
}

int64_t gguf_array_i64(const struct gguf_value *array, uint64_t i)
{
    return load_i64(array->item_type, array_item(array, i));
}
