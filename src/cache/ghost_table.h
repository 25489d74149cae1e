#ifndef RADISH_CACHE_GHOST_TABLE_H
#define RADISH_CACHE_GHOST_TABLE_H

#include <stdint.h>

#include "base/error.h"

/* What has gone lately, so that a miss can be explained: the digest of a prefix leads to when and
 * why its last position went.
 *
 *   log    [ghost][ghost][ghost] ...       a ring; what goes is written down in order
 *   index  digest ──► set [][][][] ──► log, brought up to date when someone asks
 *
 * A memory of fixed size that forgets; nothing depends on it. What came back and went another way
 * may still be here with its earlier end, which is true and not the last. Owned by the scheduler's
 * thread. */
struct ghost {
    uint64_t digest;
    uint64_t gone_ns, last_used_ns;
    uint32_t why;  /* enum miss_reason */
    uint32_t side; /* MISS_WINDOW: for whose pages */
};

struct ghost_table;

enum { GHOST_LOG = 1 << 15, GHOST_WAYS = 4, GHOST_SETS = 1 << 14 };

int ghost_table_open(struct ghost_table **out, struct error *err);
void ghost_table_close(struct ghost_table *g);
/* A place in the log, to be written to at once. */
struct ghost *ghost_table_add(struct ghost_table *g);
/* The last that was added with the digest, or NULL. */
const struct ghost *ghost_table_find(struct ghost_table *g, uint64_t digest);

#endif
