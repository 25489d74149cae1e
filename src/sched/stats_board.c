/* A sequence lock without fences: every word is stored with release and loaded with acquire, so a
 * reader that sees one new word also sees the version that was set before it. */
#include "sched/stats_board.h"

#include <string.h>

void stats_board_write(struct stats_board *b, const struct scheduler_stats *stats)
{
    unsigned long long words[STATS_WORDS] = {0};
    memcpy(words, stats, sizeof *stats);
    unsigned version = atomic_load_explicit(&b->version, memory_order_relaxed);
    atomic_store_explicit(&b->version, version + 1, memory_order_relaxed);
    for (int i = 0; i < STATS_WORDS; i++)
        atomic_store_explicit(&b->words[i], words[i], memory_order_release);
    atomic_store_explicit(&b->version, version + 2, memory_order_release);
}

void stats_board_read(struct stats_board *b, struct scheduler_stats *stats)
{
    unsigned long long words[STATS_WORDS] = {0};
    unsigned before, after;
    do {
        before = atomic_load_explicit(&b->version, memory_order_acquire);
        for (int i = 0; i < STATS_WORDS; i++)
            words[i] = atomic_load_explicit(&b->words[i], memory_order_acquire);
        after = atomic_load_explicit(&b->version, memory_order_relaxed);
    } while (before != after || before % 2);
    memcpy(stats, words, sizeof *stats);
}
