#ifndef RADISH_BASE_HUGE_PAGES_H
#define RADISH_BASE_HUGE_PAGES_H

#include <stddef.h>

enum { HUGE_PAGE = 2 << 20 };

/* Asks the system to back memory that has not been touched yet with huge pages, where whole ones
 * lie in it: large arrays that are read here and there are then found without a walk through the
 * page tables. A wish: without it all is slower, no more. */
void huge_pages_wish(void *memory, size_t size_bytes);

#endif
