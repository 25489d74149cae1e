#ifndef RADISH_CACHE_PAGE_POOL_H
#define RADISH_CACHE_PAGE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/page_run.h"

/* Pages are integers here: one page is one KV position, no matter where the engine keeps it.
 *
 *             page_pool_take                 prefix_tree_insert claims it
 *     free ───────────────────► private to ───────────────────────────────► owned by
 *      ▲ ◄───────────────────── a sequence                                  one node
 *      │      page_pool_give                                                  │
 *      └──────────────────────────────────────────────────────────────────────┘
 *                                eviction, expiry
 *
 * free + owned + private = n_pages, always (page_pool_check). Owned by the scheduler's thread. */

struct page_pool {
    uint32_t n_pages;
    uint32_t n_free;
    uint32_t n_owned;   /* by nodes of the tree, which maintains this count */
    uint64_t *token;    /* [n_pages] the cache token at the page, for owned pages */
    uint32_t *next;     /* [n_pages] the next page of the node's chain, for owned pages */
    uint32_t *prev;     /* [n_pages] the one before it, so that a chain is cut at its end */
    uint64_t *digest;   /* [n_pages] of all tokens up to the page's, for owned pages; the tree's */
    uint64_t *free_map; /* one bit per page: 1 is free */
    uint64_t *any_map;  /* one bit per word of the free map: 1 if not zero, so a search can skip */
    uint32_t cursor;    /* where the next search begins */
    uint32_t end;       /* pages from here on were never taken */
};

/* Memory that the pool takes per page. */
uint32_t page_pool_page_bytes(void);

int page_pool_open(struct page_pool *pool, uint32_t n_pages, struct error *err);
void page_pool_close(struct page_pool *pool);

/* Takes up to `want` consecutive free pages, preferring to continue at `after` + 1 (PAGE_NONE: no
 * preference). Returns the run; its count is 0 only when nothing is free. */
struct page_run page_pool_take(struct page_pool *pool, uint32_t want, uint32_t after);
void page_pool_give(struct page_pool *pool, struct page_run run);
bool page_pool_is_free(const struct page_pool *pool, uint32_t page);
static inline uint32_t page_pool_private(const struct page_pool *pool)
{
    return pool->n_pages - pool->n_free - pool->n_owned;
}
/* Recounts everything; false (and a log line) if the pool is inconsistent. */
bool page_pool_check(const struct page_pool *pool);

#endif
