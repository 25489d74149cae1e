/* Where images are in a sequence; see regions.h. Owned by the scheduler's thread, but opened by the
 * thread that submits. */
#include "sched/regions.h"

#include <assert.h>
#include <stdlib.h>

#include "cache/cache_token.h"

static uint32_t count_images(const uint64_t *tokens, uint32_t n_tokens)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_tokens; i++)
        n += cache_token_image_begun(tokens[i]) == 1;
    return n;
}

int regions_open(struct regions *r, const uint64_t *tokens, uint32_t n_tokens,
                 const struct image_shape *(*shape_of)(const void *context, uint32_t index),
                 const void *context)
{
    uint32_t n = count_images(tokens, n_tokens);
    *r = (struct regions){0};
    if (n == 0)
        return 0;
    r->spans = calloc(n, sizeof *r->spans);
    r->images = calloc(n, sizeof *r->images);
    if (!r->spans || !r->images)
        return -1;
    uint32_t rope = 0;
    for (uint32_t i = 0; i < n_tokens;) {
        if (!cache_token_is_image(tokens[i])) {
            rope++;
            i++;
            continue;
        }
        uint32_t source = cache_token_image_index(tokens[i]);
        const struct image_shape *shape = shape_of(context, source);
        r->spans[r->n] = (struct region){i, shape->length};
        r->images[r->n++] = (struct seq_image){.source = source,
                                               .number = IMAGE_NONE,
                                               .rope_first = rope,
                                               .position_span = shape->position_span,
                                               .grid_cols = shape->grid_cols};
        r->longest = shape->length > r->longest ? shape->length : r->longest;
        rope += shape->position_span;
        i += shape->length;
    }
    assert(r->n == n);
    return 0;
}

void regions_close(struct regions *r)
{
    free(r->spans);
    free(r->images);
    *r = (struct regions){0};
}

uint32_t regions_find(const struct regions *r, uint32_t position)
{
    uint32_t low = 0, high = r->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (r->spans[middle].first + r->spans[middle].count > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint32_t regions_whole(const struct regions *r, uint32_t from, uint32_t n)
{
    uint32_t end = from + n;
    for (uint32_t i = regions_find(r, from); i < r->n && r->spans[i].first < end; i++)
        if (r->images[i].state != REGION_ENCODED || r->spans[i].first + r->spans[i].count > end)
            return r->spans[i].first - from;
    return n;
}

uint32_t regions_least(const struct regions *r, uint32_t from)
{
    uint32_t i = regions_find(r, from);
    if (i == r->n || r->spans[i].first > from)
        return 1;
    assert(r->spans[i].first == from);
    return r->images[i].state == REGION_ENCODED ? r->spans[i].count : 0;
}

void regions_rope(const struct regions *r, uint32_t position, uint32_t out[ROPE_AXES])
{
    uint32_t i = regions_find(r, position), rope = position, offset = 0, cols = 0;
    if (i < r->n && r->spans[i].first <= position) {
        offset = position - r->spans[i].first;
        cols = r->images[i].grid_cols;
        rope = r->images[i].rope_first;
    } else if (i > 0) {
        const struct seq_image *last = &r->images[i - 1];
        rope = last->rope_first + last->position_span + position - r->spans[i - 1].first -
               r->spans[i - 1].count;
    }
    /* Time, row, column: the axes of models that place images on a grid. */
    for (uint32_t axis = 0; axis < ROPE_AXES; axis++)
        out[axis] = rope + (cols == 0   ? offset
                            : axis == 1 ? offset / cols
                            : axis == 2 ? offset % cols
                                        : 0);
}
