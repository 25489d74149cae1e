/* See test_memory.h: the other side of the linker's --wrap. */
#include "test_memory.h"

#include <stdbool.h>
#include <stddef.h>

static _Thread_local bool ends;
static _Thread_local uint32_t left;
static _Thread_local uint64_t taken;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void memory_ends_after(uint32_t n)
{
    ends = true;
    left = n;
}

void memory_is_back(void)
{
    ends = false;
}

uint64_t memory_taken(void)
{
    return taken;
}

/* C lets an allocator give NULL for no bytes. This one does, and nobody may take it for a failure.
 */
static bool fails(size_t size)
{
    taken += size;
    if (size == 0)
        return true;
    if (!ends)
        return false;
    if (left == 0)
        return true;
    left--;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __real_aligned_alloc(alignment, size);
}
