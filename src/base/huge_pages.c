/* Huge pages, where the system gives them. */
#include "base/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>

void huge_pages_wish(void *memory, size_t size_bytes)
{
    size_t before = -(uintptr_t)memory & (HUGE_PAGE - 1);
    if (size_bytes < before + HUGE_PAGE)
        return;
    size_t whole = (size_bytes - before) / HUGE_PAGE * HUGE_PAGE;
    madvise((uint8_t *)memory + before, whole, MADV_HUGEPAGE);
}
