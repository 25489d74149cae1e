/* The table of what has gone; see ghost_table.h. Owned by the scheduler's thread. */
#include "cache/ghost_table.h"

#include <stdlib.h>

int ghost_table_open(struct ghost_table *g, struct error *err)
{
    g->ghosts = calloc((size_t)GHOST_SETS * GHOST_WAYS, sizeof *g->ghosts);
    if (!g->ghosts)
        return error_set(err, ERROR_MEMORY, "no memory for the table of what has gone");
    return 0;
}

void ghost_table_close(struct ghost_table *g)
{
    free(g->ghosts);
    *g = (struct ghost_table){0};
}

static struct ghost *set_of(const struct ghost_table *g, uint64_t digest)
{
    return &g->ghosts[digest % GHOST_SETS * GHOST_WAYS];
}

void ghost_table_add(struct ghost_table *g, const struct ghost *ghost)
{
    struct ghost *set = set_of(g, ghost->digest), *place = set;
    for (int i = 0; i < GHOST_WAYS; i++) {
        if (set[i].digest == ghost->digest) {
            place = &set[i];
            break;
        }
        if (set[i].gone_ns < place->gone_ns)
            place = &set[i];
    }
    *place = *ghost;
}

const struct ghost *ghost_table_find(const struct ghost_table *g, uint64_t digest)
{
    const struct ghost *set = set_of(g, digest);
    for (int i = 0; i < GHOST_WAYS; i++)
        if (set[i].digest == digest)
            return &set[i];
    return NULL;
}
