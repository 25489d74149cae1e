#ifndef RADISH_ENGINE_KV_SIZES_H
#define RADISH_ENGINE_KV_SIZES_H

#include "engine/engine.h"

/* How much KV of each group a cache gets.
 *
 * A conversation in the cache has a page of group 0 for each of its tokens. To resume at its end
 * it also needs, whatever its length, W - 1 pages of a group with a window of W, and one copy of a
 * recurrent state. A sequence that runs needs W window pages, and as many as its next chunk has
 * rows. Side pages often have more bytes than a page of group 0, so neither may starve the other.
 *
 * States: a quarter of the bytes, or three quarters where nothing else keeps KV, but never more
 * copies than positions. (The live states of running sequences are not of the cache.) Windows,
 * from what is left (several groups of them get as many pages each):
 *   - a quarter as many pages as positions: with W = 1024 the ends of conversations of 4,000
 *     tokens each, and all of shorter ones that nobody shares;
 *   - or what `max_seqs` sequences need at once, but no more than half of the bytes for that: with
 *     fewer pages fewer of them run at once, and no other harm is done;
 *   - fewer than that where a sequence of the length that is asked for would have no room else;
 *   - but always what one sequence needs, and never more than there are positions. */

/* What a page takes beside its KV, in the tables of those who keep track of it. In a small model
 * that is as much as the KV. */
struct kv_tables {
    uint32_t page_bytes[KV_MAX_GROUPS];
};
uint64_t kv_table_bytes(const struct kv_tables *tables, const uint32_t n_pages[KV_MAX_GROUPS]);
/* Of pages and tables together. */
uint64_t kv_all_bytes(const struct kv_group groups[KV_MAX_GROUPS], const struct kv_tables *tables,
                      const uint32_t n_pages[KV_MAX_GROUPS]);

/* The sequences that a cache is for. */
struct kv_use {
    uint32_t max_seqs;
    uint32_t chunk_rows; /* that a sequence computes at a time */
    uint32_t n_wanted;   /* positions that there are to be, if the budget has them; 0: any */
};

/* Divides a budget, out of which tables come too: a page of group 0 must take something. n_pages
 * is 0 for groups that there are not. */
void kv_split(uint64_t budget_bytes, const struct kv_group groups[KV_MAX_GROUPS], uint32_t n_groups,
              const struct kv_tables *tables, const struct kv_use *use,
              uint32_t n_pages[KV_MAX_GROUPS]);
/* The pages of a side group beside so many positions, where the number of bytes does not matter. */
uint32_t kv_side_pages(const struct kv_group *group, uint32_t n_positions,
                       const struct kv_use *use);

/* The pages of a group that so many sequences of n_tokens need to run at once. */
uint64_t kv_running_pages(const struct kv_group *group, uint32_t n_seqs, uint32_t n_tokens,
                          uint32_t chunk_rows);

/* Bytes that a conversation of so many tokens takes in the cache: at most, while nobody wants the
 * room of its interior side pages, and at least, so that it still goes on at its end. */
struct kv_bytes {
    uint64_t most, least;
};
struct kv_bytes kv_conversation_bytes(const struct kv_group groups[KV_MAX_GROUPS],
                                      uint32_t n_groups, uint32_t n_tokens);

#endif
