#ifndef RADISH_CACHE_GHOST_TABLE_H
#define RADISH_CACHE_GHOST_TABLE_H

#include <stdint.h>

#include "base/error.h"

/* What has gone lately, so that a miss can be explained: the digest of a prefix leads to when and
 * why its last position went.
 *
 *   digest ──► set [way][way][way][way]      the one that went longest ago makes room
 *
 * A memory of fixed size that forgets; nothing depends on it. What came back and went another way
 * may still be here with its earlier end, which is true and not the last. Owned by the scheduler's
 * thread. */
struct ghost {
    uint64_t digest; /* 0: empty */
    uint64_t gone_ns, last_used_ns;
    uint64_t why; /* enum miss_reason */
};

struct ghost_table {
    struct ghost *ghosts; /* [GHOST_SETS][GHOST_WAYS] */
};

enum { GHOST_WAYS = 4, GHOST_SETS = 1 << 14 };

int ghost_table_open(struct ghost_table *g, struct error *err);
void ghost_table_close(struct ghost_table *g);
void ghost_table_add(struct ghost_table *g, const struct ghost *ghost);
const struct ghost *ghost_table_find(const struct ghost_table *g, uint64_t digest); /* or NULL */

#endif
