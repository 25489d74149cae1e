#ifndef RADISH_CACHE_GHOST_TABLE_H
#define RADISH_CACHE_GHOST_TABLE_H

#include <stdint.h>

#include "base/error.h"

/* Recent removals, so that a miss can be explained: maps the digest of a prefix to when and why its
 * last position was removed.
 *
 *   log    [ghost][ghost][ghost] ...       a ring; removals are appended in order
 *   index  digest ──► set [][][][] ──► log, updated on lookup
 *
 * Its size is fixed and it forgets; nothing depends on it. A prefix that came back and was removed
 * again for another reason may still be listed with its earlier removal, which is true but not the
 * latest. Owned by the scheduler's thread. */
struct ghost {
    uint64_t digest;
    uint64_t gone_ns, last_used_ns;
    uint32_t why;  /* enum miss_reason */
    uint32_t side; /* MISS_WINDOW: the side whose pages were needed */
};

struct ghost_table;

enum { GHOST_LOG = 1 << 15, GHOST_WAYS = 4, GHOST_SETS = 1 << 14 };

int ghost_table_open(struct ghost_table **out, struct error *err);
void ghost_table_close(struct ghost_table *g);
/* A new entry in the log, for the caller to fill in at once. */
struct ghost *ghost_table_add(struct ghost_table *g);
/* The last entry added with the digest, or NULL. */
const struct ghost *ghost_table_find(struct ghost_table *g, uint64_t digest);

#endif
