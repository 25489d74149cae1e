#ifndef RADISH_ENGINE_CPU_KERNELS_BUFFER_H
#define RADISH_ENGINE_CPU_KERNELS_BUFFER_H

#include <stddef.h>

#include "base/error.h"
#include "base/huge_pages.h"

/* Memory that is reserved at start and touched on use: zeroed and page-aligned. Large buffers are
 * aligned to huge pages, which a core reads nearly twice as fast. */
struct buffer {
    void *data;
    size_t size_bytes;
    void *map; /* the mapping that contains data */
    size_t map_bytes;
};

/* `what` names the buffer in the error message. */
int buffer_map(struct buffer *b, size_t size_bytes, const char *what, struct error *err);
void buffer_unmap(struct buffer *b); /* harmless on a zeroed or unmapped one */

#endif
