/* The table of edges; see edge_table.h. Owned by the scheduler's thread.
 *
 * A slot's home is where its hash points. Every operation keeps this invariant: no slot between an
 * edge's home and its slot is empty. Otherwise a search would stop before it finds the edge. */
#include "cache/edge_table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/huge_pages.h"

int edge_table_open(struct edge_table *e, uint32_t max_edges, struct error *err)
{
    uint64_t size = 8;
    while (size < (uint64_t)max_edges * 2)
        size *= 2;
    *e = (struct edge_table){.mask = size - 1};
    e->slots = calloc(size, sizeof *e->slots);
    if (!e->slots)
        return error_set(err, ERROR_MEMORY, "no memory for a table of %u edges", max_edges);
    huge_pages_wish(e->slots, size * sizeof *e->slots);
    return 0;
}

void edge_table_close(struct edge_table *e)
{
    free(e->slots);
    *e = (struct edge_table){0};
}

static uint64_t home_of(const struct edge_table *e, uint32_t parent, uint64_t token)
{
    return hash_pair(parent, token) & e->mask;
}

/* The slot of the edge, or the empty slot where it would go. */
static uint64_t slot_of(const struct edge_table *e, uint32_t parent, uint64_t token)
{
    uint64_t at = home_of(e, parent, token);
    while (e->slots[at].child && (e->slots[at].parent != parent || e->slots[at].token != token))
        at = (at + 1) & e->mask;
    return at;
}

uint32_t edge_table_find(const struct edge_table *e, uint32_t parent, uint64_t token)
{
    return e->slots[slot_of(e, parent, token)].child;
}

void edge_table_prefetch(const struct edge_table *e, uint32_t parent, uint64_t token)
{
    __builtin_prefetch(&e->slots[home_of(e, parent, token)], 1);
}

void edge_table_put(struct edge_table *e, uint32_t parent, uint64_t token, uint32_t child)
{
    assert(child);
    struct edge *slot = &e->slots[slot_of(e, parent, token)];
    if (!slot->child) {
        assert(e->count <= e->mask / 2);
        e->count++;
    }
    *slot = (struct edge){.token = token, .parent = parent, .child = child};
}

void edge_table_remove(struct edge_table *e, uint32_t parent, uint64_t token)
{
    uint64_t hole = slot_of(e, parent, token);
    assert(e->slots[hole].child);
    for (uint64_t at = (hole + 1) & e->mask; e->slots[at].child; at = (at + 1) & e->mask) {
        uint64_t home = home_of(e, e->slots[at].parent, e->slots[at].token);
        /* The edge may move back into the hole unless its home is after the hole. */
        if (((at - home) & e->mask) >= ((at - hole) & e->mask)) {
            e->slots[hole] = e->slots[at];
            hole = at;
        }
    }
    e->slots[hole].child = 0;
    e->count--;
}
