/* Attention over pages: processes one block after another and merges the results. The arithmetic is
 * in the vector kernels. Nothing here may depend on which rows share a tile. Keys that a row does
 * not see are masked in its scores and never multiplied with its values, so not even an infinity
 * there can reach it. */
#include "engine/cpu/attention_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv_groups.h"

enum { N_ARRAYS = 7 };

/* Sets the lengths of a thread's arrays, in floats, in order; returns their sum. */
static size_t scratch_lengths(const struct attention *a, size_t lengths[N_ARRAYS])
{
    size_t n_kv = a->shape.n_kv_heads, queries = (size_t)a->tile_rows * a->group, sum = 0;
    size_t widest = a->key_width > a->value_width ? a->key_width : a->value_width;
    lengths[0] = n_kv * queries * a->key_width;
    lengths[1] = n_kv * queries * a->stride;
    lengths[2] = queries * a->stride;
    lengths[3] = queries * ATTENTION_BLOCK;
    lengths[4] = KEY_TILE * widest;
    lengths[5] = (size_t)KEY_TILE * a->key_width;
    lengths[6] = a->stride;
    for (int i = 0; i < N_ARRAYS; i++)
        sum += lengths[i];
    return sum;
}

static int scratch_open(struct attention *a, struct error *err)
{
    size_t lengths[N_ARRAYS], n_floats = scratch_lengths(a, lengths);
    size_t n_raw = (size_t)a->raw_blocks * a->shape.n_heads * a->stride;
    if (buffer_map(&a->memory, (a->shape.n_threads * n_floats + n_raw) * sizeof(float), "attention",
                   err))
        return -1;
    float *at = a->memory.data;
    for (uint32_t t = 0; t < a->shape.n_threads; t++) {
        struct scratch *s = &a->scratch[t];
        float **arrays[N_ARRAYS] = {&s->q,      &s->states, &s->partial, &s->scores,
                                    &s->loaded, &s->turned, &s->sink};
        for (int i = 0; i < N_ARRAYS; at += lengths[i++])
            *arrays[i] = at;
    }
    a->raw = at;
    return 0;
}

static int plan_open(struct attention *a, struct error *err)
{
    size_t max_rows = a->shape.max_rows, n_threads = a->shape.n_threads;
    a->max_tiles = (uint32_t)(8 * max_rows + n_threads);
    a->leaves = calloc(max_rows, sizeof *a->leaves);
    a->order = calloc(max_rows, sizeof *a->order);
    a->tiles = calloc(a->max_tiles, sizeof *a->tiles);
    a->cuts = calloc(n_threads + 1, sizeof *a->cuts);
    a->raw_at = calloc(max_rows, sizeof *a->raw_at);
    a->raw_rows = calloc(max_rows, sizeof *a->raw_rows);
    a->scratch = calloc(n_threads, sizeof *a->scratch);
    if (!a->leaves || !a->order || !a->tiles || !a->cuts || !a->raw_at || !a->raw_rows ||
        !a->scratch)
        return error_set(err, ERROR_MEMORY, "no memory for attention");
    return 0;
}

/* Enough for the partials of the longest row. */
static uint32_t count_raw_blocks(const struct attention *a)
{
    const struct attention_shape *shape = &a->shape;
    uint32_t longest = (shape->max_length + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    uint32_t in_window = shape->window / ATTENTION_BLOCK + 2;
    if (shape->window > 0 && in_window < longest)
        longest = in_window;
    size_t room = RAW_BYTES / ((size_t)shape->n_heads * a->stride * sizeof(float));
    uint32_t many = room < RAW_BLOCKS ? (uint32_t)room : RAW_BLOCKS;
    return longest > many ? longest : many;
}

static struct kv_layout make_layout(const struct attention_shape *shape, uint32_t dim)
{
    size_t head_bytes = (size_t)dim * kv_type_bytes(shape->kv_type);
    return (struct kv_layout){head_bytes * shape->n_kv_heads, head_bytes, dim};
}

int attention_open(struct attention **out, const struct attention_shape *shape,
                   const struct vector_kernels *kernels, struct error *err)
{
    assert(shape->n_heads % shape->n_kv_heads == 0);
    assert(!shape->values_in_keys || shape->value_dim <= shape->key_dim);
    struct attention *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(err, ERROR_MEMORY, "no memory for attention");
    a->shape = *shape;
    a->kernels = kernels;
    a->group = shape->n_heads / shape->n_kv_heads;
    a->key_width = attention_dim(shape->key_dim);
    a->value_width = attention_dim(shape->value_dim);
    a->stride = attention_stride(a->value_width);
    a->tile_rows = a->group < TILE_QUERIES ? TILE_QUERIES / a->group : 1;
    a->many_queries = a->key_width < WIDE_DIM ? kernels->many_queries : kernels->many_wide_queries;
    a->raw_blocks = count_raw_blocks(a);
    a->key_layout = make_layout(shape, shape->key_dim);
    a->value_layout = shape->values_in_keys ? a->key_layout : make_layout(shape, shape->value_dim);
    a->value_layout.dim = shape->value_dim;
    if (plan_open(a, err) || scratch_open(a, err)) {
        attention_close(a);
        return -1;
    }
    *out = a;
    return 0;
}

void attention_close(struct attention *a)
{
    if (!a)
        return;
    buffer_unmap(&a->memory);
    free(a->leaves);
    free(a->order);
    free(a->tiles);
    free(a->cuts);
    free(a->raw_at);
    free(a->raw_rows);
    free(a->scratch);
    free(a);
}

size_t attention_bytes(const struct attention *a)
{
    return a->memory.size_bytes;
}

/* Copies the queries of a tile to [kv head][row][query head of it], padded and scaled. */
static void gather_queries(const struct attention *a, const struct tile *tile,
                           const struct attention_io *io, float *out)
{
    uint32_t n_heads = a->shape.n_heads, dim = a->shape.key_dim;
    for (uint32_t kv = 0; kv < a->shape.n_kv_heads; kv++) {
        for (uint32_t r = 0; r < tile->n_rows; r++) {
            const float *row = io->q + (size_t)a->order[tile->first + r] * n_heads * dim;
            for (uint32_t g = 0; g < a->group; g++, out += a->key_width) {
                const float *head = row + (size_t)(kv * a->group + g) * dim;
                for (uint32_t d = 0; d < dim; d++)
                    out[d] = head[d] * io->scale;
                for (uint32_t d = dim; d < a->key_width; d++)
                    out[d] = 0.0f;
            }
        }
    }
}

/* The keys of a block that a row sees. */
static struct key_range visible_keys(const struct attention *a, const struct batch_row *row,
                                     uint32_t block)
{
    uint32_t base = block * ATTENTION_BLOCK, first = first_seen(a, row), end = row->position + 1;
    if (end <= base || first >= base + ATTENTION_BLOCK)
        return (struct key_range){0, 0};
    return (struct key_range){first > base ? first - base : 0,
                              end - base < ATTENTION_BLOCK ? end - base : ATTENTION_BLOCK};
}

/* The keys of a block that the rows of a tile see. Rows are in order of position, or all see all of
 * it. */
static void find_visible(const struct attention *a, struct scratch *s, const struct tile *tile,
                         uint32_t block)
{
    for (uint32_t r = 0; r < tile->n_rows; r++)
        s->ranges[r] = visible_keys(a, tile_row(a, tile, r), block);
    s->first_row = 0;
    s->end_row = tile->n_rows;
    while (s->first_row < s->end_row && s->ranges[s->first_row].end == 0)
        s->first_row++;
    while (s->end_row > s->first_row && s->ranges[s->end_row - 1].end == 0)
        s->end_row--;
    s->keys = (struct key_range){0, 0};
    if (s->first_row < s->end_row)
        s->keys = (struct key_range){s->ranges[s->first_row].begin, s->ranges[s->end_row - 1].end};
}

/* A position in a sequence's page runs; it only moves forward. */
struct run_cursor {
    struct page_view table;
    uint32_t index;
    uint32_t first_position; /* of runs[index] */
};

/* Finds the pages of the block's keys, as runs, into the scratch. Pages of earlier positions may be
 * gone and are not read. */
static void find_pages(struct scratch *s, struct run_cursor *cursor, uint32_t block)
{
    const struct page_run *runs = cursor->table.runs;
    uint32_t first = block * ATTENTION_BLOCK + s->keys.begin, count = s->keys.end - s->keys.begin;
    assert(first >= cursor->first_position);
    while (cursor->first_position + runs[cursor->index].count <= first)
        cursor->first_position += runs[cursor->index++].count;
    s->n_runs = 0;
    uint32_t index = cursor->index, skip = first - cursor->first_position;
    for (; count > 0; index++, skip = 0) {
        assert(index < cursor->table.n_runs);
        struct page_run run = {runs[index].first + skip, runs[index].count - skip};
        if (run.count > count)
            run.count = count;
        if (run.count == 0)
            continue;
        s->runs[s->n_runs++] = run;
        count -= run.count;
    }
}

/* Prefetches a key or value of one head into the second-level cache. A row holds several heads, so
 * one head is read with gaps; prefetching makes that ten times as fast. */
static void fetch_row(const struct kv_layout *layout, const uint8_t *row)
{
    for (size_t i = 0; i < layout->head_bytes; i += 64)
        __builtin_prefetch(row + i, 0, 2);
}

/* Prefetches all keys (or values) of the block for one head. */
static void fetch_rows(const struct scratch *s, const struct kv_layout *layout, const uint8_t *base,
                       uint32_t kv)
{
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const uint8_t *row = base + s->runs[i].first * layout->row_bytes + kv * layout->head_bytes;
        for (uint32_t j = 0; j < s->runs[i].count; j++, row += layout->row_bytes)
            fetch_row(layout, row);
    }
}

/* Sets pointers to the keys (or values) in places first .. end - 1 of the block. Places before the
 * first visible key, and after the end, point to another key. Also prefetches the same places of
 * the next block: pages are usually consecutive, and if not, nothing is lost. */
static void find_rows(struct scratch *s, const struct kv_layout *layout, const uint8_t *base,
                      uint32_t kv, uint32_t first, uint32_t end)
{
    uint32_t seen = first > s->keys.begin ? first : s->keys.begin, skip = seen - s->keys.begin;
    uint32_t n = seen - first, count = end - first, i = 0;
    for (; skip >= s->runs[i].count; i++)
        skip -= s->runs[i].count;
    for (base += kv * layout->head_bytes; n < count; i++, skip = 0) {
        const uint8_t *row = base + (s->runs[i].first + skip) * layout->row_bytes;
        for (uint32_t j = skip; j < s->runs[i].count && n < count; j++, row += layout->row_bytes) {
            if (s->has_next)
                fetch_row(layout, row + ATTENTION_BLOCK * layout->row_bytes);
            s->rows[n++] = row;
        }
    }
    for (; n < KEY_TILE; n++)
        s->rows[n] = s->rows[count - 1];
    for (n = 0; n < seen - first; n++)
        s->rows[n] = s->rows[seen - first];
}

/* The part of places first .. end - 1 that a row sees. */
static struct key_range clip(struct key_range range, uint32_t first, uint32_t end)
{
    range.begin = range.begin > first ? range.begin : first;
    range.end = range.end < end ? range.end : end;
    return range;
}

/* Adds the tile of values in places first .. end - 1 to the partials. Rows that see the same part
 * of it are processed together. */
static void add_values(const struct attention *a, struct scratch *s, uint32_t first, uint32_t end,
                       bool many, float *partials)
{
    for (uint32_t row = s->first_row, next; row < s->end_row; row = next) {
        struct key_range range = clip(s->ranges[row], first, end);
        for (next = row + 1; next < s->end_row; next++) {
            struct key_range other = clip(s->ranges[next], first, end);
            if (other.begin != range.begin || other.end != range.end)
                break;
        }
        if (range.begin >= range.end)
            continue;
        uint32_t skip = range.begin - first, n_keys = range.end - range.begin;
        uint32_t n_queries = (next - row) * a->group;
        const float *weights = s->scores + row * a->group * ATTENTION_BLOCK + range.begin;
        float *out = partials + row * a->group * a->stride;
        if (many)
            a->kernels->values_many(weights, n_queries, n_keys, s->loaded + skip * VECTOR_LANES,
                                    a->value_width, out);
        else
            a->kernels->values_few(a->shape.kv_type, s->rows + skip, n_keys, a->value_layout.dim,
                                   weights, n_queries, a->value_width, out);
    }
}

/* The scores of n queries with the block's keys. */
static void make_scores(const struct attention *a, struct scratch *s, const uint8_t *keys,
                        uint32_t kv, const float *q, uint32_t n, float *scores)
{
    const struct kv_layout *layout = &a->key_layout;
    for (uint32_t k = s->keys.begin / KEY_TILE * KEY_TILE; k < s->keys.end; k += KEY_TILE) {
        uint32_t end = k + KEY_TILE < s->keys.end ? k + KEY_TILE : s->keys.end;
        find_rows(s, layout, keys, kv, k, end);
        if (n < a->many_queries) {
            a->kernels->scores_few(a->shape.kv_type, s->rows, end - k, layout->dim, q, n,
                                   a->key_width, scores + k);
            continue;
        }
        a->kernels->kv_load(a->shape.kv_type, s->rows, end - k, layout->dim, s->loaded);
        a->kernels->transpose(s->loaded, a->key_width, s->turned);
        a->kernels->scores_many(q, n, s->turned, a->key_width, scores + k);
    }
}

/* Turns the scores of one query into weights; their maximum and sum go to its partial. */
static void weigh_scores(const struct attention *a, float softcap, struct key_range range,
                         float *scores, float *partial)
{
    if (softcap > 0) {
        uint32_t first = range.begin / VECTOR_LANES * VECTOR_LANES;
        a->kernels->softcap(scores + first, range.end - first, softcap);
    }
    a->kernels->softmax(scores, range.begin, range.end, &partial[a->value_width],
                        &partial[a->value_width + 1]);
}

/* The partials of one unit, for the rows of the tile that see the block. */
static void unit_partials(const struct attention *a, struct scratch *s,
                          const struct attention_io *io, uint32_t n_queries, uint32_t kv,
                          float *partials)
{
    uint32_t first = s->first_row * a->group, n = s->end_row * a->group - first;
    bool many = n >= a->many_queries;
    make_scores(a, s, io->keys, kv, s->q + ((size_t)kv * n_queries + first) * a->key_width, n,
                s->scores + first * ATTENTION_BLOCK);
    memset(partials + first * a->stride, 0, n * a->stride * sizeof *partials);
    for (uint32_t i = first; i < first + n; i++)
        weigh_scores(a, io->softcap, s->ranges[i / a->group], s->scores + i * ATTENTION_BLOCK,
                     partials + i * a->stride);
    const struct kv_layout *layout = &a->value_layout;
    const uint8_t *values = a->shape.values_in_keys ? io->keys : io->values;
    for (uint32_t k = s->keys.begin / KEY_TILE * KEY_TILE; k < s->keys.end; k += KEY_TILE) {
        uint32_t end = k + KEY_TILE < s->keys.end ? k + KEY_TILE : s->keys.end;
        find_rows(s, layout, values, kv, k, end);
        if (many)
            a->kernels->kv_load(a->shape.kv_type, s->rows, end - k, layout->dim, s->loaded);
        add_values(a, s, k, end, many, partials);
    }
}

/* The first partial of a row becomes its state; later ones are merged into it. */
static void take_partial(const struct attention *a, float *state, const float *partial,
                         bool is_first)
{
    if (is_first)
        memcpy(state, partial, a->stride * sizeof *state);
    else
        a->kernels->merge(state, partial, a->value_width);
}

/* Writes the result of one row of the batch and one head. A sink is merged as the last partial: a
 * key with that score, and a value of zeros. */
static void finish_query(const struct attention *a, struct scratch *s,
                         const struct attention_io *io, size_t row, size_t head, float *state)
{
    if (io->sinks) {
        s->sink[a->value_width] = io->sinks[head];
        s->sink[a->value_width + 1] = 1.0f;
        a->kernels->merge(state, s->sink, a->value_width);
    }
    uint32_t dim = a->shape.value_dim;
    a->kernels->finish(state, a->value_width, io->out + (row * a->shape.n_heads + head) * dim, dim);
}

/* Stores the partials of one unit for attention_combine. */
static void keep_partials(const struct attention *a, const struct scratch *s,
                          const struct tile *tile, uint32_t block, uint32_t kv,
                          const float *partials)
{
    size_t floats = (size_t)a->group * a->stride;
    for (uint32_t r = s->first_row; r < s->end_row; r++)
        memcpy(raw_partial(a, tile->first + r, block, kv * a->group), partials + r * floats,
               floats * sizeof *partials);
}

/* Merges the partials of one unit into the states of its rows. */
static void merge_partials(const struct attention *a, const struct scratch *s,
                           const struct tile *tile, uint32_t block, const float *partials,
                           float *states)
{
    for (uint32_t r = s->first_row; r < s->end_row; r++) {
        bool is_first = block == row_first_block(a, tile_row(a, tile, r));
        for (size_t i = (size_t)r * a->group; i < (size_t)(r + 1) * a->group; i++)
            take_partial(a, states + i * a->stride, partials + i * a->stride, is_first);
    }
}

/* Runs units begin .. end - 1 of a tile: all of them unless partials are stored. */
static void run_units(struct attention *a, struct scratch *s, const struct attention_io *io,
                      const struct tile *tile, uint32_t begin, uint32_t end)
{
    uint32_t n_kv = a->shape.n_kv_heads, n_queries = tile->n_rows * a->group;
    struct page_view table = tile->seq->pages[a->shape.group];
    struct run_cursor cursor = {table, 0, table.first};
    gather_queries(a, tile, io, s->q);
    for (uint32_t unit = begin; unit < end; unit++) {
        uint32_t block = tile->first_block + unit / n_kv, kv = unit % n_kv;
        if (unit == begin || kv == 0) {
            find_visible(a, s, tile, block);
            find_pages(s, &cursor, block);
        }
        s->has_next = block + 1 < tile->end_block && unit + n_kv < end;
        if (unit < begin + n_kv && n_queries < a->many_queries) { /* not prefetched yet */
            fetch_rows(s, &a->key_layout, io->keys, kv);
            if (!a->shape.values_in_keys)
                fetch_rows(s, &a->value_layout, io->values, kv);
        }
        unit_partials(a, s, io, n_queries, kv, s->partial);
        if (tile->is_raw)
            keep_partials(a, s, tile, block, kv, s->partial);
        else
            merge_partials(a, s, tile, block, s->partial,
                           s->states + (size_t)kv * n_queries * a->stride);
    }
    for (uint32_t kv = 0; kv < n_kv && !tile->is_raw; kv++)
        for (uint32_t i = 0; i < n_queries; i++)
            finish_query(a, s, io, a->order[tile->first + i / a->group],
                         kv * a->group + i % a->group,
                         s->states + ((size_t)kv * n_queries + i) * a->stride);
}

void attention_run(struct attention *a, const struct attention_io *io, uint32_t thread)
{
    struct cut at = a->cuts[thread], end = a->cuts[thread + 1];
    for (; at.tile <= end.tile && at.tile < a->n_tiles; at = (struct cut){at.tile + 1, 0}) {
        const struct tile *tile = &a->tiles[at.tile];
        uint32_t end_unit = at.tile == end.tile ? end.unit : tile_units(a, tile);
        if (at.unit < end_unit)
            run_units(a, &a->scratch[thread], io, tile, at.unit, end_unit);
    }
}

/* Merges the stored partials of one row and head. */
static void combine_query(struct attention *a, struct scratch *s, const struct attention_io *io,
                          uint32_t place, uint32_t head)
{
    const struct batch_row *row = &a->batch->rows[a->order[place]];
    uint32_t first = row_first_block(a, row);
    for (uint32_t block = first; block < row_end_block(row); block++)
        take_partial(a, s->states, raw_partial(a, place, block, head), block == first);
    finish_query(a, s, io, a->order[place], head, s->states);
}

void attention_combine(struct attention *a, const struct attention_io *io, uint32_t thread)
{
    uint32_t n_heads = a->shape.n_heads;
    for (uint64_t i = thread; i < (uint64_t)a->n_raw_rows * n_heads; i += a->shape.n_threads)
        combine_query(a, &a->scratch[thread], io, a->raw_rows[i / n_heads], i % n_heads);
}
