/* Attention over pages: the work on one block after the other, and the merging of its results. The
 * arithmetic is in the vector kernels. What a newcomer gets wrong: nothing here may depend on which
 * rows share a tile. Keys that a row does not see are masked in its scores and never multiplied
 * with its values, so that not even an infinity behind them can reach it. */
#include "engine/cpu/attention_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_ARRAYS = 6 };

/* The lengths of a thread's arrays, in floats, in their order; returns their sum. */
static size_t scratch_lengths(const struct attention *a, size_t lengths[N_ARRAYS])
{
    size_t n_kv = a->shape.n_kv_heads, queries = (size_t)a->tile_rows * a->group, sum = 0;
    lengths[0] = n_kv * queries * a->dim;
    lengths[1] = n_kv * queries * a->stride;
    lengths[2] = queries * a->stride;
    lengths[3] = queries * ATTENTION_BLOCK;
    lengths[4] = (size_t)KEY_TILE * a->dim;
    lengths[5] = (size_t)KEY_TILE * a->dim;
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
        float **arrays[N_ARRAYS] = {&s->q,      &s->states, &s->partial,
                                    &s->scores, &s->loaded, &s->turned};
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

int attention_open(struct attention **out, const struct attention_shape *shape,
                   const struct vector_kernels *kernels, struct error *err)
{
    assert(shape->n_heads % shape->n_kv_heads == 0);
    struct attention *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(err, ERROR_MEMORY, "no memory for attention");
    a->shape = *shape;
    a->kernels = kernels;
    a->scale = 1.0f / sqrtf((float)shape->head_dim);
    a->group = shape->n_heads / shape->n_kv_heads;
    a->dim = attention_dim(shape->head_dim);
    a->stride = attention_stride(a->dim);
    a->tile_rows = a->group < TILE_QUERIES ? TILE_QUERIES / a->group : 1;
    a->raw_blocks = (shape->max_length + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    if (a->raw_blocks < RAW_BLOCKS)
        a->raw_blocks = RAW_BLOCKS;
    a->head_bytes = shape->head_dim * kv_type_bytes(shape->kv_type);
    a->row_bytes = a->head_bytes * shape->n_kv_heads;
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
static void gather_queries(const struct attention *a, const struct tile *tile, const float *q,
                           float *out)
{
    uint32_t n_heads = a->shape.n_heads, head_dim = a->shape.head_dim;
    for (uint32_t kv = 0; kv < a->shape.n_kv_heads; kv++) {
        for (uint32_t r = 0; r < tile->n_rows; r++) {
            const float *row = q + (size_t)a->order[tile->first + r] * n_heads * head_dim;
            for (uint32_t g = 0; g < a->group; g++, out += a->dim) {
                const float *head = row + (size_t)(kv * a->group + g) * head_dim;
                for (uint32_t d = 0; d < head_dim; d++)
                    out[d] = head[d] * a->scale;
                for (uint32_t d = head_dim; d < a->dim; d++)
                    out[d] = 0.0f;
            }
        }
    }
}

/* Where a walk through a sequence's page runs stands; it only goes forward. */
struct run_cursor {
    uint32_t index;
    uint32_t first_position; /* of runs[index] */
};

/* The pages of positions first .. first + count - 1, as runs, into the scratch. */
static void find_pages(struct scratch *s, const struct batch_seq *seq, struct run_cursor *cursor,
                       uint32_t first, uint32_t count)
{
    while (cursor->first_position + seq->runs[cursor->index].count <= first)
        cursor->first_position += seq->runs[cursor->index++].count;
    s->n_runs = 0;
    uint32_t index = cursor->index, skip = first - cursor->first_position;
    for (; count > 0; index++, skip = 0) {
        assert(index < seq->n_runs);
        struct page_run run = {seq->runs[index].first + skip, seq->runs[index].count - skip};
        if (run.count > count)
            run.count = count;
        if (run.count == 0)
            continue;
        s->runs[s->n_runs++] = run;
        count -= run.count;
    }
}

/* Asks for a key or value of one head, into the second-level cache. Heads lie in rows of several,
 * and memory that is read with gaps comes ten times as fast if it is asked for first. */
static void fetch_row(const struct attention *a, const uint8_t *row)
{
    for (size_t i = 0; i < a->head_bytes; i += 64)
        __builtin_prefetch(row + i, 0, 2);
}

/* Asks for all of the block's keys (or values) of one head. */
static void fetch_rows(const struct attention *a, const struct scratch *s, const uint8_t *base,
                       uint32_t kv)
{
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const uint8_t *row = base + s->runs[i].first * a->row_bytes + kv * a->head_bytes;
        for (uint32_t j = 0; j < s->runs[i].count; j++, row += a->row_bytes)
            fetch_row(a, row);
    }
}

/* Points to keys (or values) first .. first + count - 1 of the block. Asks for those one block
 * further on, too: pages mostly follow each other, and where they do not, nothing is lost. */
static void find_rows(const struct attention *a, struct scratch *s, const uint8_t *base,
                      uint32_t kv, uint32_t first, uint32_t count)
{
    uint32_t n = 0, i = 0, skip = first;
    for (; skip >= s->runs[i].count; i++)
        skip -= s->runs[i].count;
    for (base += kv * a->head_bytes; n < count; i++, skip = 0) {
        const uint8_t *row = base + (s->runs[i].first + skip) * a->row_bytes;
        for (uint32_t j = skip; j < s->runs[i].count && n < count; j++, row += a->row_bytes) {
            if (s->has_next)
                fetch_row(a, row + ATTENTION_BLOCK * a->row_bytes);
            s->rows[n++] = row;
        }
    }
    for (; n < KEY_TILE; n++)
        s->rows[n] = s->rows[count - 1];
}

/* How many keys of a block a row sees. */
static uint32_t visible_keys(const struct batch_row *row, uint32_t block)
{
    uint32_t first = block * ATTENTION_BLOCK;
    if (row->position < first)
        return 0;
    uint32_t count = row->position - first + 1;
    return count < ATTENTION_BLOCK ? count : ATTENTION_BLOCK;
}

/* Adds a tile of values to the partials. Rows that see all of it go together. */
static void add_values(const struct attention *a, struct scratch *s, const struct tile *tile,
                       uint32_t block, uint32_t first_row, uint32_t first_key, bool many,
                       float *partials)
{
    for (uint32_t row = first_row, n_rows; row < tile->n_rows; row += n_rows) {
        uint32_t seen = visible_keys(tile_row(a, tile, row), block);
        uint32_t n_keys = seen > first_key ? seen - first_key : 0;
        n_rows = 1;
        if (n_keys >= KEY_TILE) {
            n_keys = KEY_TILE;
            n_rows = tile->n_rows - row; /* rows are in order: the later ones see no less */
        }
        const float *weights = s->scores + row * a->group * ATTENTION_BLOCK + first_key;
        float *out = partials + row * a->group * a->stride;
        if (n_keys > 0 && many)
            a->kernels->values_many(weights, n_rows * a->group, n_keys, s->loaded, a->dim, out);
        else if (n_keys > 0)
            a->kernels->values_few(a->shape.kv_type, s->rows, n_keys, a->shape.head_dim, weights,
                                   n_rows * a->group, a->dim, out);
    }
}

/* The scores of n queries with the block's keys. */
static void make_scores(const struct attention *a, struct scratch *s, const uint8_t *keys,
                        uint32_t kv, uint32_t n_keys, const float *q, uint32_t n, float *scores)
{
    for (uint32_t k = 0; k < n_keys; k += KEY_TILE) {
        uint32_t n_rows = n_keys - k < KEY_TILE ? n_keys - k : KEY_TILE;
        find_rows(a, s, keys, kv, k, n_rows);
        if (n < MANY_QUERIES) {
            a->kernels->scores_few(a->shape.kv_type, s->rows, n_rows, a->shape.head_dim, q, n,
                                   a->dim, scores + k);
            continue;
        }
        a->kernels->kv_load(a->shape.kv_type, s->rows, n_rows, a->shape.head_dim, s->loaded);
        a->kernels->transpose(s->loaded, a->dim, s->turned);
        a->kernels->scores_many(q, n, s->turned, a->dim, scores + k);
    }
}

/* The partials of one unit, for the rows of the tile from first_row on, which see the block. */
static void unit_partials(const struct attention *a, struct scratch *s,
                          const struct attention_io *io, const struct tile *tile, uint32_t block,
                          uint32_t kv, uint32_t first_row, float *partials)
{
    uint32_t n_keys = visible_keys(tile_row(a, tile, tile->n_rows - 1), block);
    uint32_t first = first_row * a->group, n_queries = tile->n_rows * a->group;
    bool many = n_queries - first >= MANY_QUERIES;
    make_scores(a, s, io->keys, kv, n_keys, s->q + ((size_t)kv * n_queries + first) * a->dim,
                n_queries - first, s->scores + first * ATTENTION_BLOCK);
    memset(partials + first * a->stride, 0, (n_queries - first) * a->stride * sizeof *partials);
    for (uint32_t i = first; i < n_queries; i++) {
        float *partial = partials + i * a->stride;
        a->kernels->softmax(s->scores + i * ATTENTION_BLOCK,
                            visible_keys(tile_row(a, tile, i / a->group), block), &partial[a->dim],
                            &partial[a->dim + 1]);
    }
    for (uint32_t k = 0; k < n_keys; k += KEY_TILE) {
        uint32_t n_rows = n_keys - k < KEY_TILE ? n_keys - k : KEY_TILE;
        find_rows(a, s, io->values, kv, k, n_rows);
        if (many)
            a->kernels->kv_load(a->shape.kv_type, s->rows, n_rows, a->shape.head_dim, s->loaded);
        add_values(a, s, tile, block, first_row, k, many, partials);
    }
}

/* The first partial of a row starts its state, the later ones are merged into it. */
static void take_partial(const struct attention *a, float *state, const float *partial,
                         uint32_t block)
{
    if (block == 0)
        memcpy(state, partial, a->stride * sizeof *state);
    else
        a->kernels->merge(state, partial, a->dim);
}

/* Writes the result of one row of the batch and one head. */
static void finish_query(const struct attention *a, const struct attention_io *io, size_t row,
                         size_t head, const float *state)
{
    a->kernels->finish(state, a->dim, io->out + (row * a->shape.n_heads + head) * a->shape.head_dim,
                       a->shape.head_dim);
}

/* The partials of one unit, from first_row on, to where attention_combine finds them. */
static void keep_partials(const struct attention *a, const struct tile *tile, uint32_t block,
                          uint32_t kv, uint32_t first_row, const float *partials)
{
    size_t floats = (size_t)a->group * a->stride;
    for (uint32_t r = first_row; r < tile->n_rows; r++)
        memcpy(raw_partial(a, tile->first + r, block, kv * a->group), partials + r * floats,
               floats * sizeof *partials);
}

/* Units begin .. end - 1 of a tile, which are all of it unless partials are stored. */
static void run_units(struct attention *a, struct scratch *s, const struct attention_io *io,
                      const struct tile *tile, uint32_t begin, uint32_t end)
{
    uint32_t n_kv = a->shape.n_kv_heads, n_queries = tile->n_rows * a->group;
    struct run_cursor cursor = {0, 0};
    gather_queries(a, tile, io->q, s->q);
    for (uint32_t unit = begin; unit < end; unit++) {
        uint32_t block = tile->first_block + unit / n_kv, kv = unit % n_kv, first_row = 0;
        if (unit == begin || kv == 0)
            find_pages(s, tile->seq, &cursor, block * ATTENTION_BLOCK,
                       visible_keys(tile_row(a, tile, tile->n_rows - 1), block));
        s->has_next = block + 1 < tile->end_block && unit + n_kv < end;
        if (unit < begin + n_kv && n_queries < MANY_QUERIES) { /* no block before it has asked */
            fetch_rows(a, s, io->keys, kv);
            fetch_rows(a, s, io->values, kv);
        }
        while (visible_keys(tile_row(a, tile, first_row), block) == 0)
            first_row++;
        unit_partials(a, s, io, tile, block, kv, first_row, s->partial);
        if (tile->is_raw) {
            keep_partials(a, tile, block, kv, first_row, s->partial);
            continue;
        }
        float *states = s->states + (size_t)kv * n_queries * a->stride;
        for (uint32_t i = first_row * a->group; i < n_queries; i++)
            take_partial(a, states + i * a->stride, s->partial + i * a->stride, block);
    }
    for (uint32_t kv = 0; kv < n_kv && !tile->is_raw; kv++)
        for (uint32_t i = 0; i < n_queries; i++)
            finish_query(a, io, a->order[tile->first + i / a->group], kv * a->group + i % a->group,
                         s->states + (kv * n_queries + i) * a->stride);
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

/* Merges what is stored of one row and head. */
static void combine_query(struct attention *a, struct scratch *s, const struct attention_io *io,
                          uint32_t place, uint32_t head)
{
    uint32_t row = a->order[place], n_blocks = row_blocks(&a->batch->rows[row]);
    for (uint32_t block = 0; block < n_blocks; block++)
        take_partial(a, s->states, raw_partial(a, place, block, head), block);
    finish_query(a, io, row, head, s->states);
}

void attention_combine(struct attention *a, const struct attention_io *io, uint32_t thread)
{
    uint32_t n_heads = a->shape.n_heads;
    for (uint64_t i = thread; i < (uint64_t)a->n_raw_rows * n_heads; i += a->shape.n_threads)
        combine_query(a, &a->scratch[thread], io, a->raw_rows[i / n_heads], i % n_heads);
}
