#ifndef RADISH_TEST_CACHE_WORLD_PARTS_H
#define RADISH_TEST_CACHE_WORLD_PARTS_H

/* What the files of a world share; see cache_world.h. */
#include "cache_world.h"

#include "base/hash.h"
#include "test.h"

enum { N_DIGESTS = 1 << 12, MAX_HANDLES = 16, MAX_QUERY = 256, MAX_IMAGES = 8 };

struct handle {
    node_id node;
    int at;
    uint32_t needs[TREE_MAX_SIDES]; /* of the last positions, if there are enough */
};

struct query {
    uint64_t ns, tokens[MAX_QUERY];
    uint32_t n;
    uint32_t images[MAX_QUERY], n_images; /* held while the query lives */
};

struct world {
    const struct world_config *config;
    struct page_pool pool, side_pools[TREE_MAX_SIDES];
    struct image_table *images;
    struct prefix_tree *tree;
    struct naive naive;
    struct handle handles[MAX_HANDLES];
    uint32_t n_handles;
    uint64_t random, now;
    struct world_totals totals;
    struct query query;
    /* Digests of paths as reported in events, some of the last. */
    struct {
        uint64_t path, digest;
    } digests[N_DIGESTS];
    uint32_t path[/* n_pages */];
};

static inline uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)((hash_mix(w->random++) >> 32) * n >> 32);
}

/* Writes the positions from the root to one into w->path; how many. */
uint32_t path_of(struct world *w, int at);
/* Held until query_end. A `whole` one may be inserted. */
struct query *make_query(struct world *w, bool whole);
void query_end(struct world *w);
/* Looks up a query, and then perhaps changes both, so that the match may be outdated. */
struct tree_match match_early(struct world *w, const struct query *q);

/* ---- looking in (cache_world_look.c) ---- */

/* The tree lists and outlines exactly what it contains. */
void check_list(struct world *w);
void check_outline(struct world *w);
void do_explain(struct world *w);
/* The tree knows what it could evict if some handles were gone and a query had one. */
void check_evictable(struct world *w);

#endif
