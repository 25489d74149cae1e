#ifndef RADISH_PROMPT_UNICODE_CODE_SET_H
#define RADISH_PROMPT_UNICODE_CODE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct code_range {
    uint32_t first, last; /* code points, both included */
};

/* A set of code points: sorted ranges that neither overlap nor touch and contain no surrogates.
 * Immutable, in an arena or a table (unicode_tables.h). Out of memory: `n` is 0 and the arena has
 * `failed` set. */
struct code_set {
    const struct code_range *ranges;
    size_t n;
};

#define CODE_MAX 0x10ffffu

/* Makes a set from ranges in any order, or (negated) from all other code points. */
struct code_set code_set_new(struct arena *arena, const struct code_range *ranges, size_t n,
                             bool negated);
struct code_set code_set_intersect(struct arena *arena, struct code_set a, struct code_set b);
bool code_set_contains(struct code_set set, uint32_t code);
bool code_set_is_one(struct code_set set); /* exactly one code point */

#endif
