#ifndef RADISH_TEST_CACHE_WORLD_H
#define RADISH_TEST_CACHE_WORLD_H

#include "cache_model.h"

/* A side group of a world. */
struct world_side {
    uint32_t before, n_pages;
    bool is_sparse; /* a few positions have pages, as in a state; else the last ones, as in a window
                     */
};

/* The tree and the model side by side. Each step applies one random operation to both, and compares
 * their results and their contents. A world is a function of its configuration and its seed. */
struct world_config {
    const char *name;
    uint32_t n_pages, max_nodes, max_pinned;
    uint32_t alphabet, n_images, n_namespaces, n_handles, max_query;
    bool caps;
    struct world_side sides[TREE_MAX_SIDES];
    uint32_t n_sides;
    /* How many steps there are between two checks of the laws: 1 for small worlds. */
    uint32_t check_every;
};

struct world_totals {
    uint64_t n_steps;
    uint64_t lookups[MATCH_KINDS], misses[MISS_WINDOW + 1];
    uint64_t n_refused; /* operations that found no node */
    uint64_t evicted, expired, cleared;
    uint64_t interior[TREE_MAX_SIDES], tails[TREE_MAX_SIDES]; /* pages of the sides that went */
    uint64_t lacking[TREE_MAX_SIDES]; /* explanations that say so of the side */
    uint64_t
        n_adopted;    /* positions that came without a page of a side, of which the tree has one */
    uint64_t n_stale; /* lookups that were used after the tree had changed */
    uint64_t n_pinned, n_withdrawn;    /* pins and withdrawals made */
    uint64_t n_pins_taken;             /* pins that ended for another tenant's */
    uint64_t n_explained, n_forgotten; /* losses that the tree still knew of, and did not */
};

struct world;

struct world *world_open(const struct world_config *config, uint64_t seed);
void world_step(struct world *w);
/* Releases everything or nothing, checks that everything is given back, adds to the totals. */
void world_close(struct world *w, struct world_totals *totals);
/* A world must be closed before the model's memory of removals is full. */
bool world_is_old(const struct world *w);

extern const struct world_config world_configs[];
extern const uint32_t n_world_configs;

#endif
