#ifndef RADISH_ENGINE_KV_SIZES_H
#define RADISH_ENGINE_KV_SIZES_H

#include "engine/engine.h"

/* How much KV of each group a cache gets.
 *
 * A conversation in the cache has a page of group 0 for each of its tokens. To resume at its end it
 * also needs, whatever its length, W - 1 pages of a group with a window of W, and one copy of a
 * recurrent state. A running sequence needs W window pages, plus one for each row of its next
 * chunk. Side pages are often larger than pages of group 0, so neither may starve the other.
 *
 * States: a quarter of the bytes, or three quarters where nothing else keeps KV, but never more
 * copies than positions. (The live states of running sequences are not part of the cache.)
 *
 * Windows, from the rest (each of several groups gets the same number of pages):
 *   - a quarter as many pages as positions: with W = 1024, the ends of conversations of 4,000
 *     tokens each, and all of shorter ones that nobody shares;
 *   - or what `max_seqs` sequences need at once, but at most half of the bytes: fewer pages only
 *     mean that fewer sequences run at once;
 *   - fewer, if a sequence of the requested length would not fit otherwise;
 *   - but always what one sequence needs, and never more than there are positions. */

/* The bytes that a page takes besides its KV, in the tables that keep track of it. In a small model
 * that is as much as the KV. */
struct kv_tables {
    uint32_t page_bytes[KV_MAX_GROUPS];
};
uint64_t kv_table_bytes(const struct kv_tables *tables, const uint32_t n_pages[KV_MAX_GROUPS]);
/* The bytes of pages and tables together. */
uint64_t kv_all_bytes(const struct kv_group groups[KV_MAX_GROUPS], const struct kv_tables *tables,
                      const uint32_t n_pages[KV_MAX_GROUPS]);

/* The sequences that a cache is for. */
struct kv_use {
    uint32_t max_seqs;
    uint32_t chunk_rows; /* rows that a sequence computes at a time */
    uint32_t n_wanted;   /* number of positions wanted, if the budget allows; 0: any */
};

/* Divides a budget, which includes the tables; a page of group 0 must not have size 0. n_pages is 0
 * for groups that do not exist. */
void kv_split(uint64_t budget_bytes, const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
              const struct kv_tables *tables, const struct kv_use *use,
              uint32_t n_pages[KV_MAX_GROUPS]);
/* Number of pages of a side group for `n_positions`, if bytes do not matter. */
uint32_t kv_side_pages(const struct kv_group *group, uint32_t n_positions,
                       const struct kv_use *use);

/* Number of pages of a group that `n_seqs` sequences of n_tokens need to run at once. */
uint64_t kv_running_pages(const struct kv_group *group, uint32_t n_seqs, uint32_t n_tokens,
                          uint32_t chunk_rows);

/* Bytes that a conversation of `n_tokens` takes in the cache: at most, while nobody needs the room
 * of its interior side pages; and at least, so that it can still resume at its end. */
struct kv_bytes {
    uint64_t most, least;
};
struct kv_bytes kv_conversation_bytes(const struct kv_group groups[KV_MAX_GROUPS],
                                      uint32_t n_groups, uint32_t n_tokens);

#endif
