#ifndef RADISH_CACHE_CACHE_TOKEN_H
#define RADISH_CACHE_CACHE_TOKEN_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* What the tree compares: one word for each KV position.
 *
 *   63    56 55              32 31                            0
 *   [ kind ][ owner            ][ text id, coordinate, sizes   ]
 *   [ kind ][ index of the image: 28 ][ offset: 14 ][ last: 14 ]      position `offset` of 0..last
 *
 * Equal words always mean equal inputs: ids are ids, and images are numbered by the SHA-256 of
 * their pixels and processing parameters (image_table.h). The owner keeps tenants apart after a
 * shared prefix; 0 means everyone. */
enum cache_token_kind {
    CACHE_TOKEN_TEXT,
    CACHE_TOKEN_COORDINATE, /* a bin */
    CACHE_TOKEN_SIZE,       /* two bins of 16 bits */
    CACHE_TOKEN_IMAGE,
};

enum {
    CACHE_MAX_OWNER = (1 << 24) - 1,
    CACHE_MAX_IMAGE = (1 << 28) - 1,
    CACHE_MAX_IMAGE_LENGTH = 1 << 14, /* KV positions of one image */
};

static inline uint64_t cache_token_owned(enum cache_token_kind kind, uint32_t owner,
                                         uint32_t payload)
{
    assert(kind != CACHE_TOKEN_IMAGE && owner <= CACHE_MAX_OWNER);
    return (uint64_t)kind << 56 | (uint64_t)owner << 32 | payload;
}

static inline uint64_t cache_token_text(int32_t id)
{
    return cache_token_owned(CACHE_TOKEN_TEXT, 0, (uint32_t)id);
}

static inline uint64_t cache_token_coordinate(uint32_t bin)
{
    return cache_token_owned(CACHE_TOKEN_COORDINATE, 0, bin);
}

static inline uint64_t cache_token_size(uint16_t width_bin, uint16_t height_bin)
{
    return cache_token_owned(CACHE_TOKEN_SIZE, 0, (uint32_t)width_bin << 16 | height_bin);
}

/* Converts a tokenizer's ids to cache tokens without an owner. */
static inline void cache_tokens_text(const int32_t *ids, uint32_t n, uint64_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = cache_token_text(ids[i]);
}

/* Position `offset` of an image of `length` positions. */
static inline uint64_t cache_token_image(uint32_t image, uint32_t offset, uint32_t length)
{
    assert(image <= CACHE_MAX_IMAGE && length <= CACHE_MAX_IMAGE_LENGTH && offset < length);
    return (uint64_t)CACHE_TOKEN_IMAGE << 56 | (uint64_t)image << 28 | (uint64_t)offset << 14 |
           (length - 1);
}

static inline enum cache_token_kind cache_token_kind(uint64_t token)
{
    return (enum cache_token_kind)(token >> 56);
}

static inline bool cache_token_is_text(uint64_t token)
{
    return cache_token_kind(token) == CACHE_TOKEN_TEXT;
}

/* A text token's id; the bins of a coordinate or of sizes. */
static inline int32_t cache_token_payload(uint64_t token)
{
    return (int32_t)(uint32_t)token;
}

static inline bool cache_token_is_image(uint64_t token)
{
    return cache_token_kind(token) == CACHE_TOKEN_IMAGE;
}

static inline uint32_t cache_token_owner(uint64_t token)
{
    return cache_token_is_image(token) ? 0 : (uint32_t)(token >> 32) & CACHE_MAX_OWNER;
}

static inline uint32_t cache_token_image_index(uint64_t token)
{
    return token >> 28 & CACHE_MAX_IMAGE;
}

/* Number of positions of its image up to and including this one; 0: not an image. */
static inline uint32_t cache_token_image_begun(uint64_t token)
{
    return cache_token_is_image(token) ? (uint32_t)(token >> 14 & 0x3fff) + 1 : 0;
}

/* Whether a sequence may be cut after the token: not inside an image. */
static inline bool cache_token_is_whole(uint64_t token)
{
    return !cache_token_is_image(token) || (token >> 14 & 0x3fff) == (token & 0x3fff);
}

/* Whether a token may follow another: an image's positions must be complete and in order. */
static inline bool cache_token_follows(uint64_t token, uint64_t before)
{
    return cache_token_image_begun(token) > 1 ? token - before == 1 << 14
                                              : cache_token_is_whole(before);
}

/* Requests share prefixes only within a namespace: a tenant (0: everyone), an adapter (-1: none,
 * which is not adapter 0) and, if the first tokens of a model depend on it, an image (-1: none).
 * Different namespaces never have the same number. */
static inline uint64_t cache_namespace(uint32_t tenant, int32_t adapter, int32_t image)
{
    assert(tenant < 1 << 20 && adapter >= -1 && adapter < 0xffff && image >= -1 &&
           image < CACHE_MAX_IMAGE);
    return (uint64_t)tenant << 44 | (uint64_t)(adapter + 1) << 28 | (uint32_t)(image + 1);
}

/* The same namespace with another adapter. */
static inline uint64_t cache_namespace_with_adapter(uint64_t ns, int32_t adapter)
{
    assert(adapter >= -1 && adapter < 0xffff);
    return (ns & ~((uint64_t)0xffff << 28)) | (uint64_t)(adapter + 1) << 28;
}

static inline uint32_t cache_namespace_tenant(uint64_t ns)
{
    return (uint32_t)(ns >> 44);
}

/* Whose tokens these are: the namespace's tenant or, after a shared prompt, the last one's owner.
 * 0: everyone's. */
static inline uint32_t cache_tenant(uint64_t ns, uint64_t last)
{
    const uint32_t tenant = cache_namespace_tenant(ns);
    return tenant ? tenant : cache_token_owner(last);
}

#endif
