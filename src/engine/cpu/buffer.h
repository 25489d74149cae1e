#ifndef RADISH_ENGINE_CPU_BUFFER_H
#define RADISH_ENGINE_CPU_BUFFER_H

#include <stddef.h>

#include "base/error.h"

/* Memory that is reserved at start and touched on use: zeroed, aligned to a page. */
struct buffer {
    void *data;
    size_t size_bytes;
};

/* `what` names it in the error's message. A size of 0 gives an empty buffer. */
int buffer_map(struct buffer *b, size_t size_bytes, const char *what, struct error *err);
void buffer_unmap(struct buffer *b); /* harmless on a zeroed or unmapped one */

#endif
