#ifndef RADISH_ENGINE_CPU_KERNELS_BUFFER_H
#define RADISH_ENGINE_CPU_KERNELS_BUFFER_H

#include <stddef.h>

#include "base/error.h"
#include "base/huge_pages.h"

/* Memory that is reserved at start and touched on use: zeroed, aligned to a page; a large one to
 * huge pages, through which a core reads nearly twice as fast. */
struct buffer {
    void *data;
    size_t size_bytes;
    void *map; /* data lies in it */
    size_t map_bytes;
};

/* `what` names it in the error's message. */
int buffer_map(struct buffer *b, size_t size_bytes, const char *what, struct error *err);
void buffer_unmap(struct buffer *b); /* harmless on a zeroed or unmapped one */

#endif
