#ifndef RADISH_TEST_MOCK_ORACLE_H
#define RADISH_TEST_MOCK_ORACLE_H

#include "engine/mock/mock_engine.h"

/* The expected output of the mock engine for a sequence, from its inputs alone: no pages, slots or
 * batches. Written independently of the engine, as simply as possible. The cost of a token is
 * proportional to the size of its windows. */

/* One position. */
struct oracle_input {
    enum row_source source;
    int32_t value;
    unsigned char sha256[32]; /* ROW_IMAGE: of its image */
    uint32_t rope[ROPE_AXES];
};

struct oracle_cell {
    int32_t last;                 /* its token, or -1 */
    uint32_t first;               /* of its region, or its own position */
    uint64_t input;               /* from the embedding, the rope positions and the adapter */
    uint64_t region;              /* inputs of its region; 0: it is in none */
    uint64_t chain;               /* what group 0 keeps */
    uint64_t all;                 /* sum of those, weighed, up to here */
    uint64_t side[KV_MAX_GROUPS]; /* what a windowed group keeps; the state */
    uint64_t digest;              /* what its outputs are made from */
};

struct oracle {
    const struct mock_options *options; /* stay */
    uint64_t adapter;
    struct oracle_cell *cells; /* [n] */
    uint32_t n, capacity;
};

/* adapter: its path, or NULL. */
void oracle_open(struct oracle *o, const struct mock_options *options, const char *adapter);
void oracle_close(struct oracle *o);
/* Adds a plain token at the next position, with that as its rope positions; returns its digest. */
uint64_t oracle_token(struct oracle *o, int32_t token);
/* n inputs, as a region or one by one. */
void oracle_append(struct oracle *o, const struct oracle_input *inputs, uint32_t n, bool is_region);
/* Keeps the first n. */
void oracle_cut(struct oracle *o, uint32_t n);
void oracle_copy(struct oracle *to, const struct oracle *from);
/* Fails the test unless the outputs in `out` are right for the row at the position. */
void oracle_check(const struct oracle *o, uint32_t position, const struct row_output *out);

#endif
