#ifndef RADISH_CLI_PAIR_MAP_H
#define RADISH_CLI_PAIR_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Numbers pairs: each new (group, id) gets the next number, 0, 1, 2, ...; a known one keeps its
 * own. Zero-initialise. */
struct pair_map {
    struct pair_slot *slots; /* open addressing, at most half full */
    size_t n_slots;
    uint32_t count;
};

/* The pair's number; UINT32_MAX and `err` if memory or numbers run out. */
uint32_t pair_map_number(struct pair_map *m, uint32_t group, int64_t id, struct error *err);
void pair_map_free(struct pair_map *m);

#endif
