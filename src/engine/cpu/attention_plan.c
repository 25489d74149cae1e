/* Cuts the rows of a batch into tiles, finds out which of them read the same keys, and shares the
 * work among threads. Runs once a batch, on one thread.
 *
 * Sequences that begin with the same pages form a tree, found by sorting them by their pages. Every
 * branch of it is a tile of all the rows beyond it, so that a prefix is read once for all of them:
 *
 *   leaves     A: 1 2 3 4 5 6     B: 1 2 3 7 8     C: 1 2 9         (pages, by blocks)
 *   tiles      [A B C: 1 2]  [A B: 3]  [A: 4 5 6]  [B: 7 8]  [C: 9]
 *
 * What a newcomer gets wrong: a row whose blocks are in several tiles, or on several threads, is
 * merged from stored partials afterwards, because merging goes left to right. */
#include "engine/cpu/attention_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t unit_cost(const struct attention *a, const struct tile *tile)
{
    return (uint64_t)tile->n_rows * a->group + UNIT_LOAD_COST;
}

static uint64_t tile_cost(const struct attention *a, const struct tile *tile)
{
    return tile_units(a, tile) * unit_cost(a, tile);
}

static void add_tile(struct attention *a, struct tile tile)
{
    assert(a->n_tiles < a->max_tiles);
    if (tile.first_block < tile.end_block)
        a->tiles[a->n_tiles++] = tile;
}

/* Appends rows of the batch to the order; their place in it. */
static uint32_t order_rows(struct attention *a, uint32_t first_row, uint32_t n_rows)
{
    uint32_t at = a->n_ordered;
    for (uint32_t r = 0; r < n_rows; r++)
        a->order[a->n_ordered++] = first_row + r;
    return at;
}

static uint32_t last_blocks(const struct attention *a, const struct leaf *leaf)
{
    return row_blocks(&a->batch->rows[leaf->first_row + leaf->n_rows - 1]);
}

/* Room for the partials of rows in the order; false when there is not enough. */
static bool store_partials(struct attention *a, uint32_t first, uint32_t n_rows)
{
    uint32_t n_blocks = 0;
    for (uint32_t r = 0; r < n_rows; r++)
        n_blocks += row_blocks(&a->batch->rows[a->order[first + r]]);
    if (n_blocks > a->raw_blocks - a->n_raw)
        return false;
    for (uint32_t r = first; r < first + n_rows; r++) {
        a->raw_rows[a->n_raw_rows++] = r;
        a->raw_at[r] = a->n_raw;
        a->n_raw += row_blocks(&a->batch->rows[a->order[r]]);
    }
    return true;
}

/* How many leading positions of two sequences have the same pages; the next page of each, if there
 * is one, is what they differ in. */
static uint32_t common_positions(const struct batch_seq *a, const struct batch_seq *b,
                                 uint32_t next[2])
{
    uint32_t i = 0, j = 0, skip_a = 0, skip_b = 0, n = 0;
    while (i < a->n_runs && j < b->n_runs) {
        uint32_t left_a = a->runs[i].count - skip_a, left_b = b->runs[j].count - skip_b;
        uint32_t step = left_a < left_b ? left_a : left_b;
        next[0] = a->runs[i].first + skip_a;
        next[1] = b->runs[j].first + skip_b;
        if (step > 0 && next[0] != next[1])
            return n;
        n += step;
        skip_a = step == left_a ? 0 : skip_a + step;
        skip_b = step == left_b ? 0 : skip_b + step;
        i += step == left_a;
        j += step == left_b;
    }
    next[0] = i < a->n_runs;
    next[1] = j < b->n_runs;
    return n;
}

static int compare_leaves(const void *left, const void *right)
{
    const struct leaf *a = left, *b = right;
    uint32_t next[2];
    if (a->seq != b->seq) {
        common_positions(a->seq, b->seq, next);
        if (next[0] != next[1])
            return next[0] < next[1] ? -1 : 1;
    }
    return a->first_row < b->first_row ? -1 : 1;
}

/* Blocks that every row of the leaf sees to their ends. */
static uint32_t whole_blocks(const struct attention *a, const struct leaf *leaf)
{
    return (a->batch->rows[leaf->first_row].position + 1) / ATTENTION_BLOCK;
}

static uint32_t common_blocks(const struct attention *a, const struct leaf *left,
                              const struct leaf *right)
{
    uint32_t next[2], n = common_positions(left->seq, right->seq, next) / ATTENTION_BLOCK;
    uint32_t n_left = whole_blocks(a, left), n_right = whole_blocks(a, right);
    n = n < n_left ? n : n_left;
    return n < n_right ? n : n_right;
}

/* Tiles for blocks `from` .. to - 1, which the leaves begin .. end - 1 have in common. */
static void add_shared_tiles(struct attention *a, const struct leaf *begin, const struct leaf *end,
                             uint32_t from, uint32_t to)
{
    uint32_t last = end[-1].at + end[-1].n_rows;
    for (uint32_t first = begin->at, n_rows; first < last; first += n_rows) {
        n_rows = last - first < a->tile_rows ? last - first : a->tile_rows;
        add_tile(a, (struct tile){begin->seq, first, n_rows, from, to, true});
    }
}

/* The tiles of a branch: leaves begin .. end - 1, whose blocks before `from` are dealt with. */
static void add_branch(struct attention *a, const struct leaf *begin, const struct leaf *end,
                       uint32_t from)
{
    uint32_t common = UINT32_MAX;
    for (const struct leaf *leaf = begin + 1; leaf < end; leaf++)
        common = leaf->common_blocks < common ? leaf->common_blocks : common;
    if (end - begin == 1) {
        add_tile(a, (struct tile){begin->seq, begin->at, begin->n_rows, from, last_blocks(a, begin),
                                  true});
        return;
    }
    assert(common >= from);
    add_shared_tiles(a, begin, end, from, common);
    for (const struct leaf *first = begin, *leaf = begin + 1; first < end; leaf++) {
        if (leaf < end && leaf->common_blocks > common)
            continue;
        add_branch(a, first, leaf, common);
        first = leaf;
    }
}

/* How many tiles a branch can make: one for each leaf, and between two leaves at most one range
 * that is shared by all of them. */
static bool tiles_fit(const struct attention *a, uint32_t n_leaves, uint32_t n_rows)
{
    uint64_t shared = (uint64_t)(n_leaves - 1) * ((n_rows + a->tile_rows - 1) / a->tile_rows);
    return a->n_tiles + n_leaves + shared + a->shape.max_rows + a->shape.n_threads <= a->max_tiles;
}

/* Leaves begin .. end - 1, which have blocks in common or are a single one. */
static void add_leaves(struct attention *a, const struct leaf *begin, const struct leaf *end)
{
    uint32_t first = begin->at, n_rows = end[-1].at + end[-1].n_rows - first;
    if (end - begin > 1 && a->tile_rows > 1 && tiles_fit(a, (uint32_t)(end - begin), n_rows) &&
        store_partials(a, first, n_rows)) {
        add_branch(a, begin, end, 0);
        return;
    }
    for (const struct leaf *leaf = begin; leaf < end; leaf++)
        add_tile(a,
                 (struct tile){leaf->seq, leaf->at, leaf->n_rows, 0, last_blocks(a, leaf), false});
}

static void add_small_tiles(struct attention *a, uint32_t n_leaves)
{
    if (n_leaves == 0)
        return;
    qsort(a->leaves, n_leaves, sizeof *a->leaves, compare_leaves);
    for (struct leaf *leaf = a->leaves; leaf < a->leaves + n_leaves; leaf++) {
        leaf->at = order_rows(a, leaf->first_row, leaf->n_rows);
        leaf->common_blocks = leaf > a->leaves ? common_blocks(a, leaf - 1, leaf) : 0;
    }
    const struct leaf *end = a->leaves + n_leaves;
    for (const struct leaf *first = a->leaves, *leaf = first + 1; first < end; leaf++) {
        if (leaf < end && leaf->common_blocks > 0)
            continue;
        add_leaves(a, first, leaf);
        first = leaf;
    }
}

/* Rows of one sequence, as many as a tile holds; the small rest of them waits for company. */
static void make_tiles(struct attention *a)
{
    const struct batch *batch = a->batch;
    uint32_t n_leaves = 0;
    for (uint32_t first = 0, next; first < batch->n_rows; first = next) {
        uint32_t seq = batch->rows[first].seq;
        for (next = first + 1; next < batch->n_rows && next - first < a->tile_rows; next++)
            if (batch->rows[next].seq != seq)
                break;
        struct leaf leaf = {.seq = &batch->seqs[seq], .first_row = first, .n_rows = next - first};
        if (leaf.n_rows * 2 <= a->tile_rows || a->tile_rows == 1) {
            a->leaves[n_leaves++] = leaf;
            continue;
        }
        uint32_t at = order_rows(a, first, leaf.n_rows);
        add_tile(a, (struct tile){leaf.seq, at, leaf.n_rows, 0, last_blocks(a, &leaf), false});
    }
    add_small_tiles(a, n_leaves);
}

/* Makes two tiles of one: the first n_rows of it and the rest. */
static void split_tile(struct attention *a, uint32_t index, uint32_t n_rows)
{
    struct tile *left = &a->tiles[index], *right = left + 1;
    assert(a->n_tiles < a->max_tiles);
    memmove(right, left, (a->n_tiles++ - index) * sizeof *left);
    left->n_rows = n_rows;
    left->end_block = row_blocks(tile_row(a, left, n_rows - 1));
    right->first += n_rows;
    right->n_rows -= n_rows;
}

/* Where to cut a tile so that about `cost` is left of it: between two units if partials can be
 * stored, else between two rows, which makes two tiles of it. */
static struct cut cut_tile(struct attention *a, uint32_t index, uint64_t cost)
{
    struct tile *tile = &a->tiles[index];
    if (!tile->is_raw)
        tile->is_raw = store_partials(a, tile->first, tile->n_rows);
    if (tile->is_raw)
        return (struct cut){index, (uint32_t)(cost / unit_cost(a, tile))};
    uint32_t n_rows = (uint32_t)(cost * tile->n_rows / tile_cost(a, tile));
    if (n_rows > 0)
        split_tile(a, index, n_rows);
    return (struct cut){n_rows > 0 ? index + 1 : index, 0};
}

void attention_plan(struct attention *a, const struct batch *batch)
{
    assert(batch->n_rows <= a->shape.max_rows);
    a->batch = batch;
    a->n_ordered = a->n_tiles = a->n_raw = a->n_raw_rows = 0;
    make_tiles(a);
    uint64_t total = 0, before = 0; /* cost of the tiles left of `tile` */
    for (uint32_t i = 0; i < a->n_tiles; i++)
        total += tile_cost(a, &a->tiles[i]);
    uint32_t n_threads = a->shape.n_threads, tile = 0;
    a->cuts[0] = (struct cut){0, 0};
    for (uint32_t t = 1; t < n_threads; t++) {
        uint64_t target = total * t / n_threads;
        for (; tile < a->n_tiles && before + tile_cost(a, &a->tiles[tile]) <= target; tile++)
            before += tile_cost(a, &a->tiles[tile]);
        a->cuts[t] = (struct cut){tile, 0};
        if (tile < a->n_tiles && before < target)
            a->cuts[t] = cut_tile(a, tile, target - before);
        for (; tile < a->cuts[t].tile; tile++)
            before += tile_cost(a, &a->tiles[tile]);
    }
    a->cuts[n_threads] = (struct cut){a->n_tiles, 0};
}

bool attention_must_combine(const struct attention *a)
{
    return a->n_raw_rows > 0;
}
