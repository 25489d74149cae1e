#ifndef RADISH_ENGINE_KV_SIZES_H
#define RADISH_ENGINE_KV_SIZES_H

#include "engine/engine.h"

/* How much KV of each group a cache gets.
 *
 * A conversation in the cache has a page of the first group for each of its tokens, and to go on at
 * its end it needs W - 1 window pages, whatever its length; a sequence that runs needs W of them,
 * and as many as its next chunk has rows. A window page often has more bytes than a page of the
 * first group, because more layers have windows, so neither may starve the other:
 *   - a quarter as many window pages as positions: with W = 1024 the ends of conversations of 4,000
 *     tokens each, and all of shorter ones that nobody shares;
 *   - or what `max_seqs` sequences need at once, but no more than half of the bytes for that: with
 *     fewer pages fewer of them run at once, and no other harm is done;
 *   - fewer than that where a sequence of the length that is asked for would have no room else;
 *   - but always what one sequence needs, and never more than there are positions. */

/* What a page takes beside its KV, in the tables of those who keep track of it. In a small model
 * that is as much as the KV. */
struct kv_tables {
    uint32_t page_bytes, window_page_bytes;
};
uint64_t kv_table_bytes(const struct kv_tables *tables, uint64_t n_pages, uint64_t n_window_pages);

/* Divides a budget, out of which tables come too: a page must take something. Without a second
 * group (its window is 0) all of it goes to the first. n_wanted: positions that there are to be, if
 * the budget has them; 0: as it comes. */
void kv_split(uint64_t budget_bytes, const struct kv_group groups[KV_GROUPS],
              const struct kv_tables *tables, uint32_t max_seqs, uint32_t chunk_rows,
              uint32_t n_wanted, uint32_t *n_pages, uint32_t *n_window_pages);
/* The window pages beside so many positions, where the number of bytes does not matter. */
uint32_t kv_window_pages(uint32_t n_pages, uint32_t window, uint32_t max_seqs, uint32_t chunk_rows);

/* The window pages of so many sequences of n_tokens that run at once. */
uint64_t kv_running_pages(const struct kv_group groups[KV_GROUPS], uint32_t n_seqs,
                          uint32_t n_tokens, uint32_t chunk_rows);

/* Bytes that a conversation of so many tokens takes in the cache: at most, while nobody wants the
 * room of its interior window pages, and at least, so that it still goes on at its end. */
struct kv_bytes {
    uint64_t most, least;
};
struct kv_bytes kv_conversation_bytes(const struct kv_group groups[KV_GROUPS], uint32_t n_tokens);

#endif
