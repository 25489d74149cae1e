/* The pool of pages: a bitmap and a cursor. Owned by the scheduler's thread.
 *
 * A search begins at the cursor and takes the best of the first runs it finds, so a sequence gets
 * long extents without scanning the whole map. The pool stores how many pages nodes own (n_owned)
 * but never changes that number: the tree does, when it claims pages and before it gives them back.
 */
#include "cache/page_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/huge_pages.h"
#include "base/log.h"

enum { WORD_BITS = 64, RUNS_LOOKED_AT = 64 };

static uint32_t word_count(uint32_t n_pages)
{
    return n_pages / WORD_BITS + (n_pages % WORD_BITS != 0);
}

uint32_t page_pool_page_bytes(void)
{
    const struct page_pool *pool = NULL;
    return sizeof *pool->token + sizeof *pool->digest + sizeof *pool->next + sizeof *pool->prev +
           1; /* for its bits */
}

int page_pool_open(struct page_pool *pool, uint32_t n_pages, struct error *err)
{
    assert(n_pages > 0 && n_pages < PAGE_NONE);
    *pool = (struct page_pool){.n_pages = n_pages, .n_free = n_pages};
    pool->token = calloc(n_pages, sizeof *pool->token);
    pool->digest = calloc(n_pages, sizeof *pool->digest);
    pool->next = calloc(n_pages, sizeof *pool->next);
    pool->prev = calloc(n_pages, sizeof *pool->prev);
    pool->free_map = calloc(word_count(n_pages), sizeof *pool->free_map);
    pool->any_map = calloc(word_count(word_count(n_pages)), sizeof *pool->any_map);
    if (!pool->token || !pool->digest || !pool->next || !pool->prev || !pool->free_map ||
        !pool->any_map) {
        page_pool_close(pool);
        return error_set(err, ERROR_MEMORY, "no memory for the tables of %u pages", n_pages);
    }
    huge_pages_wish(pool->token, n_pages * sizeof *pool->token);
    huge_pages_wish(pool->digest, n_pages * sizeof *pool->digest);
    huge_pages_wish(pool->next, n_pages * sizeof *pool->next);
    huge_pages_wish(pool->prev, n_pages * sizeof *pool->prev);
    memset(pool->free_map, 0xff, n_pages / WORD_BITS * sizeof *pool->free_map);
    if (n_pages % WORD_BITS)
        pool->free_map[n_pages / WORD_BITS] = ((uint64_t)1 << n_pages % WORD_BITS) - 1;
    for (uint32_t i = 0; i < word_count(n_pages); i++)
        pool->any_map[i / WORD_BITS] |= (uint64_t)1 << i % WORD_BITS;
    return 0;
}

void page_pool_close(struct page_pool *pool)
{
    free(pool->token);
    free(pool->digest);
    free(pool->next);
    free(pool->prev);
    free(pool->free_map);
    free(pool->any_map);
    *pool = (struct page_pool){0};
}

bool page_pool_is_free(const struct page_pool *pool, uint32_t page)
{
    assert(page < pool->n_pages);
    return pool->free_map[page / WORD_BITS] >> page % WORD_BITS & 1;
}

/* The first page in [from, end) whose bit is `bit`; `end` if there is none. */
static uint32_t find_bit(const struct page_pool *pool, uint32_t from, uint32_t end, bool bit)
{
    const uint64_t flip = bit ? 0 : UINT64_MAX;
    for (uint64_t page = from; page < end; page = (page | (WORD_BITS - 1)) + 1) {
        uint64_t word = (pool->free_map[page / WORD_BITS] ^ flip) >> page % WORD_BITS;
        if (word == 0)
            continue;
        page += (uint64_t)__builtin_ctzll(word);
        return page < end ? (uint32_t)page : end;
    }
    return end;
}

/* The first free page in [from, end); `end` if there is none. */
static uint32_t find_free(const struct page_pool *pool, uint32_t from, uint32_t end)
{
    uint64_t word = from / WORD_BITS, last = word_count(end);
    if (from < end && pool->free_map[word] >> from % WORD_BITS)
        return find_bit(pool, from, end, true);
    for (word++; word < last; word = (word | (WORD_BITS - 1)) + 1) {
        uint64_t any = pool->any_map[word / WORD_BITS] >> word % WORD_BITS;
        if (any == 0)
            continue;
        word += (uint64_t)__builtin_ctzll(any);
        return word < last ? find_bit(pool, (uint32_t)(word * WORD_BITS), end, true) : end;
    }
    return end;
}

/* The free run that begins at a free page, at most `want` long. */
static struct page_run run_at(const struct page_pool *pool, uint32_t first, uint32_t want)
{
    uint32_t end = want < pool->n_pages - first ? first + want : pool->n_pages;
    return (struct page_run){first, find_bit(pool, first, end, false) - first};
}

/* The longest of the first few runs from the cursor on, wrapping around at the end of the map. */
static struct page_run find_run(const struct page_pool *pool, uint32_t want)
{
    struct page_run best = {0, 0};
    uint32_t from = pool->cursor, end = pool->n_pages, looked_at = 0;
    while (looked_at < RUNS_LOOKED_AT && best.count < want) {
        uint32_t page = find_free(pool, from, end);
        if (page == end) {
            if (end != pool->n_pages || pool->cursor == 0)
                break;
            from = 0;
            end = pool->cursor;
            continue;
        }
        struct page_run run = run_at(pool, page, want);
        if (run.count > best.count)
            best = run;
        from = page + run.count < end ? page + run.count : end;
        looked_at++;
    }
    return best;
}

/* Flips the bits of a run, which must all be `from` now. */
static void flip(struct page_pool *pool, struct page_run run, bool from)
{
    assert(run.first < pool->n_pages && run.count <= pool->n_pages - run.first);
    assert(find_bit(pool, run.first, run.first + run.count, !from) == run.first + run.count);
    (void)from;
    uint64_t page = run.first, end = page + run.count;
    while (page < end) {
        uint64_t shift = page % WORD_BITS, bits = WORD_BITS - shift;
        if (bits > end - page)
            bits = end - page;
        uint64_t word = page / WORD_BITS, bit = (uint64_t)1 << word % WORD_BITS;
        pool->free_map[word] ^= UINT64_MAX >> (WORD_BITS - bits) << shift;
        if (pool->free_map[word])
            pool->any_map[word / WORD_BITS] |= bit;
        else
            pool->any_map[word / WORD_BITS] &= ~bit;
        page += bits;
    }
}

struct page_run page_pool_take(struct page_pool *pool, uint32_t want, uint32_t after)
{
    if (want == 0 || pool->n_free == 0)
        return (struct page_run){0, 0};
    struct page_run run;
    if (after < pool->n_pages - 1 && page_pool_is_free(pool, after + 1))
        run = run_at(pool, after + 1, want);
    else
        run = find_run(pool, want);
    assert(run.count > 0);
    flip(pool, run, true);
    pool->n_free -= run.count;
    uint32_t end = run.first + run.count;
    pool->cursor = end < pool->n_pages ? end : 0;
    pool->end = end > pool->end ? end : pool->end;
    return run;
}

void page_pool_give(struct page_pool *pool, struct page_run run)
{
    assert(run.count <= page_pool_private(pool));
    flip(pool, run, false);
    pool->n_free += run.count;
    /* Pages that were taken last and come back unused are the first to be taken again: extents stay
     * whole, and memory that was never touched stays untouched. */
    if (run.first + run.count == pool->cursor)
        pool->cursor = run.first;
}

bool page_pool_check(const struct page_pool *pool)
{
    uint64_t n_free = 0;
    for (uint32_t i = 0; i < word_count(pool->n_pages); i++)
        n_free += (uint64_t)__builtin_popcountll(pool->free_map[i]);
    if (n_free != pool->n_free) {
        log_error("page pool: %llu pages are free, the counter says %u", (unsigned long long)n_free,
                  pool->n_free);
        return false;
    }
    for (uint32_t i = 0; i < word_count(pool->n_pages); i++) {
        if ((pool->any_map[i / WORD_BITS] >> i % WORD_BITS & 1) != (pool->free_map[i] != 0)) {
            log_error("page pool: the summary is wrong about pages %u on", i * WORD_BITS);
            return false;
        }
    }
    if (pool->n_pages % WORD_BITS &&
        pool->free_map[pool->n_pages / WORD_BITS] >> pool->n_pages % WORD_BITS) {
        log_error("page pool: pages past the last one (%u) are marked free", pool->n_pages);
        return false;
    }
    if ((uint64_t)pool->n_free + pool->n_owned > pool->n_pages) {
        log_error("page pool: %u free and %u owned are more than %u pages", pool->n_free,
                  pool->n_owned, pool->n_pages);
        return false;
    }
    if (pool->cursor >= pool->n_pages) {
        log_error("page pool: the cursor %u is past the last page", pool->cursor);
        return false;
    }
    return true;
}
