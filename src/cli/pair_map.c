/* See pair_map.h. Lookups are exact: pairs are compared, not only their hashes. */
#include "cli/pair_map.h"

#include <stdlib.h>

#include "base/hash.h"

enum { FIRST_SLOTS = 1024 };

struct pair_slot {
    int64_t id;
    uint32_t group;
    uint32_t number_plus_1; /* 0: empty */
};

static struct pair_slot *slot_find(const struct pair_map *m, uint32_t group, int64_t id)
{
    size_t at = hash_pair(group, (uint64_t)id) & (m->n_slots - 1);
    while (m->slots[at].number_plus_1 && (m->slots[at].group != group || m->slots[at].id != id))
        at = (at + 1) & (m->n_slots - 1);
    return &m->slots[at];
}

static int map_grow(struct pair_map *m, struct error *err)
{
    struct pair_map larger = {.n_slots = m->n_slots ? 2 * m->n_slots : FIRST_SLOTS,
                              .count = m->count};
    larger.slots = calloc(larger.n_slots, sizeof *larger.slots);
    if (!larger.slots)
        return error_set(err, ERROR_MEMORY, "no memory for %zu blocks", larger.n_slots / 2);
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].number_plus_1)
            *slot_find(&larger, m->slots[i].group, m->slots[i].id) = m->slots[i];
    free(m->slots);
    *m = larger;
    return 0;
}

uint32_t pair_map_number(struct pair_map *m, uint32_t group, int64_t id, struct error *err)
{
    if (m->count >= m->n_slots / 2 && map_grow(m, err))
        return UINT32_MAX;
    struct pair_slot *slot = slot_find(m, group, id);
    if (slot->number_plus_1)
        return slot->number_plus_1 - 1;
    if (m->count == UINT32_MAX - 1) {
        error_set(err, ERROR_LIMIT, "more than %u distinct blocks", m->count);
        return UINT32_MAX;
    }
    *slot = (struct pair_slot){.id = id, .group = group, .number_plus_1 = ++m->count};
    return m->count - 1;
}

void pair_map_free(struct pair_map *m)
{
    free(m->slots);
    *m = (struct pair_map){0};
}
