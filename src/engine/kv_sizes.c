/* Divides a budget of bytes between the groups of KV; see kv_sizes.h. Pure; any thread. If every
 * layer has a window or a state, a page of group 0 has no KV at all. It then costs only its entry
 * in the tables. */
#include "engine/kv_sizes.h"
#include "base/minmax.h"

#include <assert.h>

enum {
    POSITIONS_PER_WINDOW_PAGE = 4,
    POSITIONS_PER_STATE = 256, /* if memory does not limit it */
    STATES_OF_SEQ = 2,         /* at the end of a prompt, and one before */
    SHARES = 4,                /* of the bytes; states get one, or all but one */
};

static uint32_t to_u32(uint64_t n)
{
    return (uint32_t)min_u64(n, UINT32_MAX);
}

/* Window pages in use by `n_seqs` sequences at once. */
static uint64_t window_pages(uint32_t window, uint32_t n_seqs, uint32_t chunk_rows)
{
    return ((uint64_t)window + chunk_rows) * n_seqs;
}

uint64_t kv_running_pages(const struct kv_group *group, uint32_t n_seqs, uint32_t n_tokens,
                          uint32_t chunk_rows)
{
    uint64_t all = (uint64_t)n_seqs * n_tokens;
    switch (group->kind) {
    case KV_FULL: return all;
    case KV_WINDOW: return min_u64(window_pages(group->window, n_seqs, chunk_rows), all);
    case KV_STATE: break;
    }
    return (uint64_t)n_seqs * STATES_OF_SEQ;
}

uint64_t kv_table_bytes(const struct kv_tables *tables, const uint32_t n_pages[KV_MAX_GROUPS])
{
    uint64_t sum = 0;
    for (int g = 0; g < KV_MAX_GROUPS; g++)
        sum += (uint64_t)n_pages[g] * tables->page_bytes[g];
    return sum;
}

uint64_t kv_all_bytes(const struct kv_group groups[KV_MAX_GROUPS], const struct kv_tables *tables,
                      const uint32_t n_pages[KV_MAX_GROUPS])
{
    uint64_t sum = kv_table_bytes(tables, n_pages);
    for (int g = 0; g < KV_MAX_GROUPS; g++)
        sum += (uint64_t)n_pages[g] * groups[g].page_bytes;
    return sum;
}

/* Copies of the state, from a share of the budget; positions take `page` bytes each. */
static uint64_t split_states(uint64_t budget_bytes, uint64_t state, uint64_t page, bool has_kv)
{
    uint64_t share = has_kv ? budget_bytes / SHARES : budget_bytes - budget_bytes / SHARES;
    return min_u64(max_u64(share / state, STATES_OF_SEQ), budget_bytes / (page + state));
}

/* Window pages, at most `same`: one for each position, as if all layers were in one group. `side`
 * is the size of one in bytes. */
static uint64_t split_windows(uint64_t budget_bytes, uint32_t window, uint64_t side, uint64_t page,
                              uint64_t same, const struct kv_use *use)
{
    uint64_t quarter = budget_bytes / (POSITIONS_PER_WINDOW_PAGE * page + side);
    uint64_t running = min_u64(window_pages(window, use->max_seqs, use->chunk_rows),
                               budget_bytes / 2 / side);
    uint64_t n = max_u64(quarter, running), wanted = use->n_wanted * page;
    if (use->n_wanted)
        n = min_u64(n, budget_bytes > wanted ? (budget_bytes - wanted) / side : 0);
    return min_u64(max_u64(n, window_pages(window, 1, use->chunk_rows)), same);
}

void kv_split(uint64_t budget_bytes, const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
              const struct kv_tables *tables, const struct kv_use *use,
              uint32_t n_pages[KV_MAX_GROUPS])
{
    uint64_t page = (uint64_t)groups[0].page_bytes + tables->page_bytes[0];
    uint64_t side = 0, state = 0; /* bytes of a page in all groups of the kind */
    uint32_t window = 0;
    bool has_kv = groups[0].page_bytes > 0;
    assert(page > 0);
    for (uint32_t g = 1; g < n_groups; g++) {
        bool is_state = groups[g].kind == KV_STATE;
        *(is_state ? &state : &side) += (uint64_t)groups[g].page_bytes + tables->page_bytes[g];
        has_kv |= !is_state;
        if (groups[g].window > window)
            window = groups[g].window;
    }
    uint64_t n_states = state ? to_u32(split_states(budget_bytes, state, page, has_kv)) : 0;
    uint64_t left = budget_bytes - n_states * state, same = left / (page + side), n = 0;
    if (side)
        n = split_windows(left, window, side, page, same, use);
    /* If window pages are hardly enough for one sequence, they limit its length. */
    n_pages[0] = to_u32(n < same ? (left - n * side) / page : same);
    for (uint32_t g = 1; g < KV_MAX_GROUPS; g++)
        n_pages[g] = g >= n_groups ? 0 : to_u32(groups[g].kind == KV_STATE ? n_states : n);
}

uint32_t kv_side_pages(const struct kv_group *group, uint32_t n_positions, const struct kv_use *use)
{
    uint64_t share = n_positions / POSITIONS_PER_WINDOW_PAGE;
    uint64_t running = window_pages(group->window, use->max_seqs, use->chunk_rows);
    if (group->kind == KV_STATE) {
        share = n_positions / POSITIONS_PER_STATE;
        running = (uint64_t)use->max_seqs * STATES_OF_SEQ;
    }
    return to_u32(min_u64(n_positions, max_u64(share, running)));
}

struct kv_bytes kv_conversation_bytes(const struct kv_group groups[KV_MAX_GROUPS],
                                      uint32_t n_groups, uint32_t n_tokens)
{
    struct kv_bytes sum = {0};
    for (uint32_t g = 0; g < n_groups; g++) {
        uint64_t most = n_tokens, least = n_tokens;
        if (groups[g].kind == KV_WINDOW)
            least = min_u64(n_tokens, groups[g].window - 1);
        if (groups[g].kind == KV_STATE) {
            most = min_u64(n_tokens, STATES_OF_SEQ);
            least = min_u64(n_tokens, 1);
        }
        sum.most += most * groups[g].page_bytes;
        sum.least += least * groups[g].page_bytes;
    }
    return sum;
}
