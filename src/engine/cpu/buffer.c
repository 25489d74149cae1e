/* Large zeroed memory straight from the system. Without MAP_NORESERVE a machine that does not
 * overcommit would refuse a cache that is sized for the worst case and never filled. */
#include "engine/cpu/buffer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

int buffer_map(struct buffer *b, size_t size_bytes, const char *what, struct error *err)
{
    *b = (struct buffer){0};
    if (size_bytes == 0)
        return 0;
    void *data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return error_set(err, ERROR_MEMORY, "cannot reserve %.1f MiB for %s: %s",
                         (double)size_bytes / (1 << 20), what, strerror(errno));
    *b = (struct buffer){data, size_bytes};
    return 0;
}

void buffer_unmap(struct buffer *b)
{
    if (b->data)
        munmap(b->data, b->size_bytes);
    *b = (struct buffer){0};
}
