#ifndef RADISH_CACHE_EDGE_TABLE_H
#define RADISH_CACHE_EDGE_TABLE_H

#include <stdint.h>

#include "base/error.h"

/* The edges of all nodes in one open-addressing table: (parent, first token) -> child.
 *
 *   slots  [ ][p,t,c][p,t,c][ ][p,t,c][ ] ...     a power of two, at least half of them empty
 *              ▲ home of both ▲
 *
 * Linear probing; a removal shifts later entries back, so that there are no tombstones and searches
 * stay as short as the cluster allows. Sized at open; nothing is allocated later. */
struct edge {
    uint64_t token;
    uint32_t parent;
    uint32_t child; /* 0: the slot is empty */
};

enum { EDGE_MOST_BYTES = 4 * sizeof(struct edge) }; /* the most memory for each edge */

struct edge_table {
    struct edge *slots;
    uint64_t mask;
    uint32_t count;
};

int edge_table_open(struct edge_table *e, uint32_t max_edges, struct error *err);
void edge_table_close(struct edge_table *e);
uint32_t edge_table_find(const struct edge_table *e, uint32_t parent, uint64_t token); /* or 0 */
/* Prefetches the memory of the edge. */
void edge_table_prefetch(const struct edge_table *e, uint32_t parent, uint64_t token);
/* Adds the edge, or points it to another child. */
void edge_table_put(struct edge_table *e, uint32_t parent, uint64_t token, uint32_t child);
void edge_table_remove(struct edge_table *e, uint32_t parent, uint64_t token); /* must be there */

#endif
