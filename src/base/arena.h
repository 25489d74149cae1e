#ifndef RADISH_BASE_ARENA_H
#define RADISH_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Memory that is allocated piece by piece and freed all at once: a parsed document, a template's
 * tree, a request. Pieces are zeroed and aligned for any type.
 *
 *   blocks ──► [used .....|  free ] ──► [used ...........] ──► NULL
 *   spare  ──► [     free         ] ──► NULL                        kept by arena_reset
 *
 * A failed allocation sets `failed`, so a caller can build freely and check once at the end. */
struct arena {
    struct arena_block *blocks, *spare;
    size_t used_bytes;
    size_t limit_bytes; /* 0: none. Hostile input cannot take more than this */
    bool failed;
};

#define ARENA_INIT                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }

/* NULL when there is no memory or the limit is reached. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_alloc_array(struct arena *a, size_t count, size_t size); /* checks the product */
char *arena_copy(struct arena *a, const char *bytes, size_t len);    /* NUL-terminated copy */
void arena_free(struct arena *a);
/* The same for an arena that is reused: it keeps up to a megabyte of blocks, so later uses that
 * fit in them allocate nothing. */
void arena_reset(struct arena *a);

#endif
