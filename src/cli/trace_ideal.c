/* What a cache that never evicts would find in a trace; see trace.h. A path of blocks is numbered
 * by its parent path and its last block. For each path we keep the most tokens of that last block
 * that any request had. No tokens are compared and nothing is evicted: this must stay simple enough
 * to trust. */
#include "cli/trace.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "cli/pair_map.h"

/* Adds a request. `lengths` has room for one path per block of the trace. Returns how many of the
 * request's tokens were already known, or UINT32_MAX on failure. */
static uint32_t request_add(const struct trace *t, const struct trace_request *r,
                            struct pair_map *paths, uint32_t *lengths, struct error *err)
{
    uint32_t hit = 0, path = UINT32_MAX;
    bool is_known = true; /* all tokens so far */
    for (uint32_t begin = 0; begin < r->n_input; begin += t->block_size) {
        uint32_t length = min_u32(t->block_size, r->n_input - begin);
        path = pair_map_number(paths, path, t->blocks[r->first_block + begin / t->block_size], err);
        if (path == UINT32_MAX)
            return UINT32_MAX;
        if (is_known)
            hit += min_u32(length, lengths[path]);
        is_known = is_known && lengths[path] >= length;
        if (lengths[path] < length)
            lengths[path] = length;
    }
    return min_u32(hit, r->n_input - 1);
}

int trace_ideal(const struct trace *t, struct trace_ideal *out, struct error *err)
{
    struct pair_map paths = {0};
    uint32_t *lengths = calloc(t->n_blocks, sizeof *lengths);
    *out = (struct trace_ideal){0};
    int failed = lengths ? 0
                         : error_set(err, ERROR_MEMORY, "no memory for %zu blocks", t->n_blocks);
    for (size_t i = 0; i < t->n_requests && !failed; i++) {
        const struct trace_request *r = &t->requests[i];
        uint32_t hit = request_add(t, r, &paths, lengths, err);
        failed = hit == UINT32_MAX ? -1 : 0;
        out->asked += r->n_input;
        out->hit += hit;
    }
    for (uint32_t i = 0; i < paths.count; i++)
        out->distinct += lengths[i];
    pair_map_free(&paths);
    free(lengths);
    return failed;
}
