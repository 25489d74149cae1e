/* Writes the header of a GGUF file; see gguf_write.h. Owned by the caller. Numbers are little
 * endian and unaligned, as gguf.c reads them. */
#include "model/files/gguf_write.h"

#include <errno.h>
#include <string.h>

static const uint8_t type_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static void add_number(struct strbuf *out, uint64_t value, int size)
{
    char bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = (char)(value >> (8 * i));
    strbuf_add(out, bytes, (size_t)size);
}

static void add_string(struct strbuf *out, struct byte_view s)
{
    add_number(out, s.len, 8);
    strbuf_add(out, s.bytes, s.len);
}

void gguf_writer_free(struct gguf_writer *w)
{
    strbuf_free(&w->values);
    strbuf_free(&w->tensors);
}

void gguf_add_value(struct gguf_writer *w, const struct gguf_value *value)
{
    struct strbuf *out = &w->values;
    bool is_array = value->type == GGUF_ARRAY;
    enum gguf_type item = is_array ? value->item_type : value->type;
    uint64_t count = is_array ? value->count : 1;
    w->n_values++;
    add_string(out, value->key);
    add_number(out, value->type, 4);
    if (is_array) {
        add_number(out, item, 4);
        add_number(out, count, 8);
    }
    if (item != GGUF_STRING)
        strbuf_add(out, value->data, count * type_bytes[item]);
    for (uint64_t i = 0; item == GGUF_STRING && i < count; i++)
        add_string(out, value->strings[i]);
}

void gguf_add_values(struct gguf_writer *w, const struct gguf_writer *from)
{
    strbuf_add(&w->values, strbuf_str(&from->values), from->values.len);
    w->values.failed = w->values.failed || from->values.failed;
    w->n_values += from->n_values;
}

static void add_scalar(struct gguf_writer *w, const char *key, enum gguf_type type,
                       const void *data)
{
    gguf_add_value(w, &(struct gguf_value){.key = {key, strlen(key)}, .type = type, .data = data});
}

void gguf_add_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                        (uint8_t)(value >> 24)};
    add_scalar(w, key, GGUF_U32, bytes);
}

void gguf_add_f32(struct gguf_writer *w, const char *key, float value)
{
    add_scalar(w, key, GGUF_F32, &value);
}

void gguf_add_bool(struct gguf_writer *w, const char *key, bool value)
{
    add_scalar(w, key, GGUF_BOOL, &(uint8_t){value});
}

void gguf_add_string(struct gguf_writer *w, const char *key, const char *bytes, size_t len)
{
    gguf_add_value(w, &(struct gguf_value){.key = {key, strlen(key)},
                                           .type = GGUF_STRING,
                                           .strings = &(struct byte_view){bytes, len}});
}

void gguf_add_array(struct gguf_writer *w, const char *key, enum gguf_type type, const void *items,
                    uint64_t count)
{
    bool is_text = type == GGUF_STRING;
    gguf_add_value(w, &(struct gguf_value){.key = {key, strlen(key)},
                                           .type = GGUF_ARRAY,
                                           .item_type = type,
                                           .count = count,
                                           .data = is_text ? NULL : items,
                                           .strings = is_text ? (struct byte_view *)items : NULL});
}

void gguf_add_tensor(struct gguf_writer *w, struct byte_view name, enum tensor_type type,
                     uint32_t n_dims, const uint64_t *dims)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    uint64_t n_values = 1;
    w->n_tensors++;
    add_string(&w->tensors, name);
    add_number(&w->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        add_number(&w->tensors, dims[i], 8);
        n_values *= dims[i];
    }
    add_number(&w->tensors, type, 4);
    add_number(&w->tensors, w->data_bytes, 8);
    w->data_bytes += gguf_padded(n_values / info->block_len * info->block_bytes);
}

int gguf_write_head(const struct gguf_writer *w, FILE *out, const char *path, struct error *err)
{
    static const char zeros[GGUF_ALIGNMENT];
    struct strbuf head = STRBUF_INIT;
    strbuf_add(&head, "GGUF", 4);
    add_number(&head, 3, 4);
    add_number(&head, w->n_tensors, 8);
    add_number(&head, w->n_values, 8);
    size_t size = head.len + w->values.len + w->tensors.len;
    bool failed = head.failed || w->values.failed || w->tensors.failed;
    bool written = !failed && fwrite(head.data, 1, head.len, out) == head.len &&
                   fwrite(strbuf_str(&w->values), 1, w->values.len, out) == w->values.len &&
                   fwrite(strbuf_str(&w->tensors), 1, w->tensors.len, out) == w->tensors.len &&
                   fwrite(zeros, 1, gguf_padded(size) - size, out) == gguf_padded(size) - size;
    strbuf_free(&head);
    if (failed)
        return error_set(err, ERROR_MEMORY, "%s: no memory for its header", path);
    return written ? 0 : error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
}
