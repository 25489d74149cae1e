#ifndef RADISH_SCHED_STATS_BOARD_H
#define RADISH_SCHED_STATS_BOARD_H

#include <stdatomic.h>

#include "sched/scheduler.h"

/* The scheduler writes its numbers here once a step, and any thread reads them. The writer never
 * waits; a reader retries if a step was published while it copied. `version` is odd while the words
 * are being written. */
enum { STATS_WORDS = (sizeof(struct scheduler_stats) + 7) / 8 };

struct stats_board {
    atomic_uint version;
    atomic_ullong words[STATS_WORDS];
};

void stats_board_write(struct stats_board *b, const struct scheduler_stats *stats);
void stats_board_read(struct stats_board *b, struct scheduler_stats *stats);

#endif
