/* How a budget of bytes is divided between the groups of KV; see kv_sizes.h. Pure; any thread.
 * What a newcomer gets wrong: a page of the first group may have no KV at all, where every layer
 * has a window. It still has its place in tables, which is then all that it takes. */
#include "engine/kv_sizes.h"

#include <assert.h>

enum { POSITIONS_PER_WINDOW_PAGE = 4 };

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t to_u32(uint64_t n)
{
    return (uint32_t)min_u64(n, UINT32_MAX);
}

/* Window pages that are in use by so many sequences at once. */
static uint64_t running_pages(uint32_t window, uint32_t n_seqs, uint32_t chunk_rows)
{
    return ((uint64_t)window + chunk_rows) * n_seqs;
}

uint64_t kv_running_pages(const struct kv_group groups[KV_GROUPS], uint32_t n_seqs,
                          uint32_t n_tokens, uint32_t chunk_rows)
{
    uint32_t window = groups[KV_WINDOW].window;
    return window ? min_u64(running_pages(window, n_seqs, chunk_rows), (uint64_t)n_seqs * n_tokens)
                  : 0;
}

uint64_t kv_table_bytes(const struct kv_tables *tables, uint64_t n_pages, uint64_t n_window_pages)
{
    return n_pages * tables->page_bytes + n_window_pages * tables->window_page_bytes;
}

void kv_split(uint64_t budget_bytes, const struct kv_group groups[KV_GROUPS],
              const struct kv_tables *tables, uint32_t max_seqs, uint32_t chunk_rows,
              uint32_t n_wanted, uint32_t *n_pages, uint32_t *n_window_pages)
{
    uint64_t page = (uint64_t)groups[KV_FULL].page_bytes + tables->page_bytes;
    uint64_t window_page = (uint64_t)groups[KV_WINDOW].page_bytes + tables->window_page_bytes;
    uint32_t window = groups[KV_WINDOW].window;
    assert(page > 0);
    *n_window_pages = 0;
    if (window == 0) {
        *n_pages = to_u32(budget_bytes / page);
        return;
    }
    /* As many of both: what there would be without a second group, and the most that it may be. */
    uint64_t same = budget_bytes / (page + window_page);
    uint64_t quarter = budget_bytes / (POSITIONS_PER_WINDOW_PAGE * page + window_page);
    uint64_t running = min_u64(running_pages(window, max_seqs, chunk_rows),
                               budget_bytes / 2 / window_page);
    uint64_t n = max_u64(quarter, running);
    if (n_wanted)
        n = min_u64(
            n, budget_bytes > n_wanted * page ? (budget_bytes - n_wanted * page) / window_page : 0);
    n = max_u64(n, running_pages(window, 1, chunk_rows));
    /* Where the window pages are hardly enough for one sequence, no sequence may be longer. */
    *n_window_pages = to_u32(min_u64(n, same));
    *n_pages = to_u32(n < same ? (budget_bytes - n * window_page) / page : same);
}

uint32_t kv_window_pages(uint32_t n_pages, uint32_t window, uint32_t max_seqs, uint32_t chunk_rows)
{
    if (window == 0)
        return 0;
    uint64_t running = running_pages(window, max_seqs, chunk_rows);
    return to_u32(min_u64(n_pages, max_u64(n_pages / POSITIONS_PER_WINDOW_PAGE, running)));
}

struct kv_bytes kv_conversation_bytes(const struct kv_group groups[KV_GROUPS], uint32_t n_tokens)
{
    uint64_t all = (uint64_t)n_tokens * groups[KV_FULL].page_bytes;
    uint32_t before = groups[KV_WINDOW].window ? groups[KV_WINDOW].window - 1 : 0;
    uint64_t window_page = groups[KV_WINDOW].page_bytes;
    return (struct kv_bytes){all + n_tokens * window_page,
                             all + min_u64(n_tokens, before) * window_page};
}
