#ifndef RADISH_BASE_HUGE_PAGES_H
#define RADISH_BASE_HUGE_PAGES_H

#include <stddef.h>

enum { HUGE_PAGE = 2 << 20 };

/* Asks the system to back untouched memory with huge pages where whole ones fit, so that scattered
 * reads of large arrays need fewer page table walks. It is only a hint: without it everything is
 * slower, but works. */
void huge_pages_wish(void *memory, size_t size_bytes);

#endif
