#ifndef RADISH_CLI_TRACE_H
#define RADISH_CLI_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Recorded requests without their text: the length of each prompt, and the blocks of tokens that it
 * consists of. Equal ids are equal blocks. Two formats are read, told apart by their content:
 *
 *   one object per line (Mooncake), blocks of 512 tokens, of which the last may be partial:
 *     {"timestamp": 0, "input_length": 1030, "output_length": 52, "hash_ids": [7, 8, 9]}
 *
 *   one object (coding agents), ids for whole blocks only:
 *     {"block_size": 64, "requests": [{"t": 0.0, "in": 150, "out": 20, "hash_ids": [1, 2]},
 *                                     {"type": "subagent", "requests": [...]}]}
 *
 * Requests keep the order of the file; those of a sub-agent take its place. Times are not kept.
 * Answer lengths may be missing (0); everything else must be present and consistent.
 *
 *   tokens of a request   [ block 7: 512 tokens ][ block 8: 512 ][ block 9, its first 6 ]
 *
 * Tokens without an id (the end of an agent's prompt) are a block that equals no other. Token i
 * of block b is b * block_size + i, so that different blocks differ at every position. */
enum { TRACE_MAX_LENGTH = 1 << 24, TRACE_MAX_BLOCK_SIZE = 1 << 16 };

/* Tokens are in [0, TRACE_MAX_TOKENS), which leaves room for a vocabulary in 31 bits. */
enum { TRACE_MAX_TOKENS = INT32_MAX - (1 << 20) };

struct trace_request {
    uint32_t n_input, n_output; /* tokens, at least 1 and 0 */
    size_t first_block;         /* in trace.blocks; n_input says how many */
};

struct trace {
    uint32_t block_size;
    struct trace_request *requests; /* [n_requests], at least one */
    size_t n_requests;
    uint32_t *blocks; /* [n_blocks] of all requests, numbered 0 .. n_distinct - 1 */
    size_t n_blocks;
    uint32_t n_distinct;
};

/* The message names the file and the line or the request in it. "-" is standard input. */
int trace_read(struct trace *t, const char *path, struct error *err);
int trace_parse(struct trace *t, const char *text, size_t len, struct error *err);
void trace_free(struct trace *t);

static inline uint32_t trace_n_blocks(const struct trace *t, const struct trace_request *r)
{
    return (r->n_input + t->block_size - 1) / t->block_size;
}

/* Writes the request's cache tokens ([n_input]), whose ids are the trace's plus `offset`. */
void trace_tokens(const struct trace *t, const struct trace_request *r, int32_t offset,
                  uint64_t *out);

/* What a cache that never evicts would find: the longest common prefix of each request with any
 * earlier one, but never its last token, which must be computed for the logits. Computed from the
 * blocks alone, so that the prefix tree can be measured against it. */
struct trace_ideal {
    uint64_t asked;    /* prompt tokens of all requests */
    uint64_t hit;      /* of those, found */
    uint64_t distinct; /* tokens that such a cache would hold in the end, without answers */
};

int trace_ideal(const struct trace *t, struct trace_ideal *out, struct error *err);

#endif
