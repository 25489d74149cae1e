/* Sets of code points as sorted ranges. Surrogates are not characters and cannot be spelled in
 * UTF-8, so they are removed from every set, including negated ones. */
#include "prompt/unicode/code_set.h"

#include <stdlib.h>
#include <string.h>

enum { SURROGATE_FIRST = 0xd800, SURROGATE_LAST = 0xdfff };

static int range_compare(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Appends [first, last] without the surrogates; joins it to the previous range if they touch. */
static void range_append(struct code_range *out, size_t *n, uint32_t first, uint32_t last)
{
    if (last > CODE_MAX)
        last = CODE_MAX;
    if (first < SURROGATE_FIRST && last >= SURROGATE_FIRST) {
        range_append(out, n, first, SURROGATE_FIRST - 1);
        first = SURROGATE_LAST + 1;
    } else if (first >= SURROGATE_FIRST && first <= SURROGATE_LAST) {
        first = SURROGATE_LAST + 1;
    }
    if (first > last)
        return;
    if (*n && first <= out[*n - 1].last + 1) {
        if (last > out[*n - 1].last)
            out[*n - 1].last = last;
        return;
    }
    out[(*n)++] = (struct code_range){first, last};
}

struct code_set code_set_new(struct arena *arena, const struct code_range *ranges, size_t n,
                             bool negated)
{
    struct code_range *sorted = arena_alloc_array(arena, n + 1, sizeof *sorted);
    /* Removing the surrogates adds at most one range; negating adds one more. */
    struct code_range *out = arena_alloc_array(arena, n + 3, sizeof *out);
    if (!sorted || !out)
        return (struct code_set){NULL, 0};
    if (n)
        memcpy(sorted, ranges, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, range_compare);
    size_t n_out = 0;
    uint32_t next = 0; /* negated: the first undecided code point */
    for (size_t i = 0; i < n; i++) {
        if (!negated) {
            range_append(out, &n_out, sorted[i].first, sorted[i].last);
            continue;
        }
        if (sorted[i].first > next)
            range_append(out, &n_out, next, sorted[i].first - 1);
        if (sorted[i].last >= next)
            next = sorted[i].last < CODE_MAX ? sorted[i].last + 1 : CODE_MAX + 1;
    }
    if (negated)
        range_append(out, &n_out, next, CODE_MAX);
    return (struct code_set){out, n_out};
}

struct code_set code_set_intersect(struct arena *arena, struct code_set a, struct code_set b)
{
    struct code_range *out = arena_alloc_array(arena, a.n + b.n + 1, sizeof *out);
    if (!out)
        return (struct code_set){NULL, 0};
    size_t n = 0;
    for (size_t i = 0, j = 0; i < a.n && j < b.n;) {
        uint32_t first = a.ranges[i].first > b.ranges[j].first ? a.ranges[i].first
                                                               : b.ranges[j].first;
        uint32_t last = a.ranges[i].last < b.ranges[j].last ? a.ranges[i].last : b.ranges[j].last;
        if (first <= last)
            out[n++] = (struct code_range){first, last};
        if (a.ranges[i].last < b.ranges[j].last)
            i++;
        else
            j++;
    }
    return (struct code_set){out, n};
}

bool code_set_contains(struct code_set set, uint32_t code)
{
    size_t low = 0, high = set.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set.ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set.n && set.ranges[low].first <= code;
}

bool code_set_is_one(struct code_set set)
{
    return set.n == 1 && set.ranges[0].first == set.ranges[0].last;
}
