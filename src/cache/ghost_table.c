/* The table of recent removals; see ghost_table.h. Owned by the scheduler's thread.
 *
 * Eviction must not wait on memory for the sake of later queries, so it only appends to the log.
 * The index is brought up to date when someone queries it. A mark whose ghost has since been
 * overwritten leads to a different digest and is skipped. */
#include "cache/ghost_table.h"

#include <stdlib.h>

/* Locates a ghost in the log: its number, and part of its digest, which rules out most other ghosts
 * without reading the log. */
struct ghost_mark {
    uint32_t number; /* low half; numbers start at 1; 0: none */
    uint32_t tag;
};

struct ghost_table {
    struct ghost log[GHOST_LOG];
    struct ghost_mark index[GHOST_SETS][GHOST_WAYS];
    uint64_t n_added, n_indexed;
};

int ghost_table_open(struct ghost_table **out, struct error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_MEMORY, "no memory for the table of removed entries");
    return 0;
}

void ghost_table_close(struct ghost_table *g)
{
    free(g);
}

struct ghost *ghost_table_add(struct ghost_table *g)
{
    return &g->log[++g->n_added % GHOST_LOG];
}

static struct ghost_mark *set_of(struct ghost_table *g, uint64_t digest)
{
    return g->index[digest % GHOST_SETS];
}

/* How long ago a mark was made; an unused mark is older than all others. */
static uint32_t age_of(uint64_t number, const struct ghost_mark *mark)
{
    return mark->number ? (uint32_t)number - mark->number : UINT32_MAX;
}

/* Replaces the oldest mark of the set. */
static void index_add(struct ghost_table *g, uint64_t number)
{
    uint64_t digest = g->log[number % GHOST_LOG].digest;
    struct ghost_mark *set = set_of(g, digest), *place = set;
    for (int i = 1; i < GHOST_WAYS; i++)
        if (age_of(number, &set[i]) > age_of(number, place))
            place = &set[i];
    *place = (struct ghost_mark){(uint32_t)number, (uint32_t)(digest >> 32)};
}

const struct ghost *ghost_table_find(struct ghost_table *g, uint64_t digest)
{
    if (g->n_added - g->n_indexed > GHOST_LOG)
        g->n_indexed = g->n_added - GHOST_LOG; /* older ones are already overwritten */
    while (g->n_indexed < g->n_added)
        index_add(g, ++g->n_indexed);
    const struct ghost_mark *set = set_of(g, digest);
    const struct ghost *found = NULL;
    uint32_t youngest = UINT32_MAX;
    for (int i = 0; i < GHOST_WAYS; i++) {
        const struct ghost *ghost = &g->log[set[i].number % GHOST_LOG];
        uint32_t age = age_of(g->n_added, &set[i]);
        if (set[i].tag == (uint32_t)(digest >> 32) && age < youngest && ghost->digest == digest) {
            found = ghost;
            youngest = age;
        }
    }
    return found;
}
