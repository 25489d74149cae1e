#ifndef RADISH_BASE_PAGE_RUN_H
#define RADISH_BASE_PAGE_RUN_H

#include <stdint.h>

#define PAGE_NONE UINT32_MAX

/* Pages first .. first + count - 1 hold consecutive KV positions. The only type that the cache and
 * the engines share: a sequence's page table is an array of these. */
struct page_run {
    uint32_t first, count;
};

#endif
