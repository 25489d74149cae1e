/* Large zeroed memory directly from the system. Without MAP_NORESERVE, a machine that does not
 * overcommit would refuse a cache that is sized for the worst case and never filled. */
#include "engine/cpu/kernels/buffer.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

int buffer_map(struct buffer *b, size_t size_bytes, const char *what, struct error *err)
{
    size_t extra = size_bytes >= HUGE_PAGE ? HUGE_PAGE : 0; /* room to align in */
    void *map = mmap(NULL, size_bytes + extra, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return error_set(err, ERROR_MEMORY, "cannot reserve %.1f MiB for %s: %s",
                         (double)size_bytes / (1 << 20), what, strerror(errno));
    *b = (struct buffer){map, size_bytes, map, size_bytes + extra};
    if (extra) {
        b->data = (uint8_t *)map + (-(uintptr_t)map & (HUGE_PAGE - 1));
        huge_pages_wish(b->data, size_bytes);
    }
    return 0;
}

void buffer_unmap(struct buffer *b)
{
    if (b->map)
        munmap(b->map, b->map_bytes);
    *b = (struct buffer){0};
}
