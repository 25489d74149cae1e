#ifndef RADISH_TEST_GGUF_BUILDER_H
#define RADISH_TEST_GGUF_BUILDER_H

#include <stdint.h>

#include "base/strbuf.h"
#include "model/files/gguf.h"
#include "test.h"

/* Writes GGUF files for tests: well-formed ones through the add functions, and broken ones because
 * every part is plain bytes that a test may also append to or overwrite by hand.
 *
 *   gguf_builder_finish:  magic version n_tensors n_pairs | pairs | infos | padding | data
 */
struct gguf_builder {
    uint32_t version;
    uint64_t n_tensors, n_pairs;
    uint64_t alignment;
    struct strbuf pairs, infos, data, file;
    size_t header_bytes; /* of the finished file: everything before the data */
};

static inline void build_u32(struct strbuf *to, uint32_t value)
{
    strbuf_add(to, &value, sizeof value);
}

static inline void build_u64(struct strbuf *to, uint64_t value)
{
    strbuf_add(to, &value, sizeof value);
}

static inline void build_string(struct strbuf *to, const char *string)
{
    build_u64(to, strlen(string));
    strbuf_adds(to, string);
}

/* The key and the type of a pair; the caller appends the value to `b->pairs`. */
static inline void build_key(struct gguf_builder *b, const char *key, uint32_t type)
{
    build_string(&b->pairs, key);
    build_u32(&b->pairs, type);
    b->n_pairs++;
}

static inline void build_key_u32(struct gguf_builder *b, const char *key, uint32_t value)
{
    build_key(b, key, GGUF_U32);
    build_u32(&b->pairs, value);
}

static inline void build_key_f32(struct gguf_builder *b, const char *key, float value)
{
    build_key(b, key, GGUF_F32);
    strbuf_add(&b->pairs, &value, sizeof value);
}

static inline void build_key_string(struct gguf_builder *b, const char *key, const char *value)
{
    build_key(b, key, GGUF_STRING);
    build_string(&b->pairs, value);
}

static inline void build_key_array(struct gguf_builder *b, const char *key, uint32_t item_type,
                                   uint64_t count)
{
    build_key(b, key, GGUF_ARRAY);
    build_u32(&b->pairs, item_type);
    build_u64(&b->pairs, count);
}

static inline void build_pad(struct strbuf *to, uint64_t alignment)
{
    while (to->len % alignment)
        strbuf_addc(to, 0);
}

/* A tensor's info as given, valid or not, without data. */
static inline void build_info(struct gguf_builder *b, const char *name, uint32_t type,
                              uint32_t n_dims, const uint64_t *dims, uint64_t offset)
{
    build_string(&b->infos, name);
    build_u32(&b->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        build_u64(&b->infos, dims[i]);
    build_u32(&b->infos, type);
    build_u64(&b->infos, offset);
    b->n_tensors++;
}

/* A tensor of dims[0] x dims[1] with data: small floats for F32, otherwise meaningless bytes. */
static inline void build_tensor(struct gguf_builder *b, const char *name, uint32_t type,
                                uint64_t cols, uint64_t rows)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    CHECK(info != NULL);
    build_pad(&b->data, b->alignment ? b->alignment : 32);
    build_info(b, name, type, rows > 1 ? 2 : 1, (uint64_t[]){cols, rows}, b->data.len);
    size_t size = cols / info->block_len * rows * info->block_bytes;
    for (size_t i = 0; i < size / 4 && type == TENSOR_F32; i++) {
        float value = 0.5f + (float)(i % 7) * 0.125f;
        strbuf_add(&b->data, &value, sizeof value);
    }
    for (size_t i = 0; i < size && type != TENSOR_F32; i++)
        strbuf_addc(&b->data, (char)(i * 37 % 64));
}

static inline void gguf_builder_finish(struct gguf_builder *b)
{
    strbuf_clear(&b->file);
    strbuf_adds(&b->file, "GGUF");
    build_u32(&b->file, b->version ? b->version : 3);
    build_u64(&b->file, b->n_tensors);
    build_u64(&b->file, b->n_pairs);
    strbuf_add(&b->file, b->pairs.data, b->pairs.len);
    strbuf_add(&b->file, b->infos.data, b->infos.len);
    b->header_bytes = b->file.len;
    if (b->data.len) {
        build_pad(&b->file, b->alignment ? b->alignment : 32);
        strbuf_add(&b->file, b->data.data, b->data.len);
    }
    CHECK(!b->file.failed);
}

static inline void gguf_builder_free(struct gguf_builder *b)
{
    strbuf_free(&b->pairs);
    strbuf_free(&b->infos);
    strbuf_free(&b->data);
    strbuf_free(&b->file);
}

#endif
