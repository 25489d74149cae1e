/* A growing list of blocks; an allocation larger than a block gets its own. Free memory in a block
 * is always zero. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A large arena grows by large blocks, which go back to the system when they are freed. */
enum { BLOCK_BYTES = 16 * 1024, MAX_SPARE = 64, LARGE_BLOCK_BYTES = BLOCK_BYTES * MAX_SPARE };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    alignas(max_align_t) char data[];
};

static struct arena_block *block_add(struct arena *a, size_t size)
{
    size_t usual = a->used_bytes < LARGE_BLOCK_BYTES ? BLOCK_BYTES : LARGE_BLOCK_BYTES;
    size_t bytes = size > usual ? size : usual;
    struct arena_block *b = bytes == BLOCK_BYTES ? a->spare : NULL;
    if (b)
        a->spare = b->next;
    else
        b = calloc(1, sizeof *b + bytes);
    if (!b)
        return NULL;
    b->size = bytes;
    b->next = a->blocks;
    a->blocks = b;
    return b;
}

static void *no_piece(struct arena *a)
{
    a->failed = true;
    return NULL;
}

void *arena_alloc(struct arena *a, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size > SIZE_MAX / 2)
        return no_piece(a);
    size = (size + align - 1) & ~(align - 1);
    if (a->limit_bytes && size > a->limit_bytes - a->used_bytes)
        return no_piece(a);
    struct arena_block *b = a->blocks;
    if (!b || size > b->size - b->used) {
        b = block_add(a, size);
        if (!b)
            return no_piece(a);
    }
    void *piece = b->data + b->used;
    b->used += size;
    a->used_bytes += size;
    return piece;
}

void *arena_alloc_array(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size)
        return no_piece(a);
    return arena_alloc(a, count * size);
}

char *arena_copy(struct arena *a, const char *bytes, size_t len)
{
    char *copy = len < SIZE_MAX ? arena_alloc(a, len + 1) : no_piece(a);
    if (copy && len)
        memcpy(copy, bytes, len);
    return copy;
}

static void blocks_free(struct arena_block *b)
{
    for (struct arena_block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

void arena_free(struct arena *a)
{
    blocks_free(a->blocks);
    blocks_free(a->spare);
    *a = (struct arena){.limit_bytes = a->limit_bytes};
}

void arena_reset(struct arena *a)
{
    struct arena_block *b = a->blocks, *spare = a->spare, *next;
    size_t n_spare = 0;
    for (const struct arena_block *s = spare; s; s = s->next)
        n_spare++;
    for (; b; b = next) {
        next = b->next;
        if (b->size > BLOCK_BYTES || n_spare == MAX_SPARE) {
            free(b);
            continue;
        }
        memset(b->data, 0, b->used);
        b->used = 0;
        b->next = spare;
        spare = b;
        n_spare++;
    }
    *a = (struct arena){.spare = spare, .limit_bytes = a->limit_bytes};
}
