/* Cuts the rows of a batch into tiles, finds out which of them read the same keys, and divides the
 * work among threads. Runs once per batch, on one thread.
 *
 * Sequences that begin with the same pages form a tree, found by sorting them by their pages. Every
 * branch is a tile of all rows below it, so a prefix is read once for all of them:
 *
 *   leaves     A: 1 2 3 4 5 6     B: 1 2 3 7 8     C: 1 2 9         (pages, by blocks)
 *   tiles      [A B C: 1 2]  [A B: 3]  [A: 4 5 6]  [B: 7 8]  [C: 9]
 *
 * With a window, leaves start to see at different blocks. A block that several leaves see whole is
 * shared; what a leaf sees before that is its own:
 *
 *   leaves     A:   2 3 4 5 6     B:     3 7 8     C:   2 3 9       (2 of A and C in part)
 *   tiles      [A: 2]  [C: 2]  [A B C: 3]  [A: 4 5 6]  [B: 7 8]  [C: 9]
 *
 * A row whose blocks are in several tiles, or on several threads, is merged from stored partials
 * afterwards, because merging must go from left to right. */
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

/* Appends rows of the batch to the order; returns their place in it. */
static uint32_t order_rows(struct attention *a, uint32_t first_row, uint32_t n_rows)
{
    uint32_t at = a->n_ordered;
    for (uint32_t r = 0; r < n_rows; r++)
        a->order[a->n_ordered++] = first_row + r;
    return at;
}

/* The tile of a single leaf, starting at a block. */
static struct tile leaf_tile(const struct attention *a, const struct leaf *leaf, uint32_t from,
                             bool is_raw)
{
    const struct batch_row *last = &a->batch->rows[leaf->first_row + leaf->n_rows - 1];
    return (struct tile){leaf->seq, leaf->at, leaf->n_rows, from, row_end_block(last), is_raw};
}

/* Reserves room for the partials of rows in the order; false if there is not enough. */
static bool store_partials(struct attention *a, uint32_t first, uint32_t n_rows)
{
    uint32_t n_blocks = 0, next = a->n_raw;
    for (uint32_t r = first; r < first + n_rows; r++) {
        const struct batch_row *row = &a->batch->rows[a->order[r]];
        a->raw_at[r] = next + n_blocks;
        n_blocks += row_end_block(row) - row_first_block(a, row);
        if (n_blocks > a->raw_blocks - a->n_raw)
            return false;
    }
    for (uint32_t r = first; r < first + n_rows; r++)
        a->raw_rows[a->n_raw_rows++] = r;
    a->n_raw += n_blocks;
    return true;
}

/* A place in the runs of a table. */
struct table_place {
    uint32_t index, skip;
};

static struct table_place table_find(const struct page_view *t, uint32_t position)
{
    struct table_place at = {0, position - t->first};
    for (; at.index < t->n_runs && at.skip >= t->runs[at.index].count; at.index++)
        at.skip -= t->runs[at.index].count;
    return at;
}

static void table_step(const struct page_view *t, struct table_place *at, uint32_t count)
{
    at->skip += count;
    if (at->skip == t->runs[at->index].count)
        *at = (struct table_place){at->index + 1, 0};
}

/* How far two tables have the same pages, starting where the later one begins: the position after
 * the last such page. `next` is the next page of each, if there is one: where they differ. */
static uint32_t common_end(const struct page_view *a, const struct page_view *b, uint32_t next[2])
{
    uint32_t position = a->first > b->first ? a->first : b->first;
    struct table_place at = table_find(a, position), bt = table_find(b, position);
    while (at.index < a->n_runs && bt.index < b->n_runs) {
        uint32_t left_a = a->runs[at.index].count - at.skip;
        uint32_t left_b = b->runs[bt.index].count - bt.skip;
        uint32_t step = left_a < left_b ? left_a : left_b;
        next[0] = a->runs[at.index].first + at.skip;
        next[1] = b->runs[bt.index].first + bt.skip;
        if (step > 0 && next[0] != next[1])
            return position;
        position += step;
        table_step(a, &at, step);
        table_step(b, &bt, step);
    }
    next[0] = at.index < a->n_runs;
    next[1] = bt.index < b->n_runs;
    return position;
}

/* Sorts by the pages of all positions, so that sequences with a common prefix are neighbours. This
 * also serves the windowed group: sequences share a page there only if they are the same up to its
 * position. */
static int compare_leaves(const void *left, const void *right)
{
    const struct leaf *a = left, *b = right;
    uint32_t next[2];
    if (a->seq != b->seq) {
        common_end(&a->seq->pages[0], &b->seq->pages[0], next);
        if (next[0] != next[1])
            return next[0] < next[1] ? -1 : 1;
    }
    return a->first_row < b->first_row ? -1 : 1;
}

/* The end of the blocks that two leaves see whole and with the same pages; 0: none. */
static uint32_t common_blocks(const struct attention *a, const struct leaf *left,
                              const struct leaf *right)
{
    uint32_t group = a->shape.group, next[2];
    uint32_t end = common_end(&left->seq->pages[group], &right->seq->pages[group], next) /
                   ATTENTION_BLOCK;
    end = end < left->end_whole ? end : left->end_whole;
    end = end < right->end_whole ? end : right->end_whole;
    return end > left->first_whole && end > right->first_whole ? end : 0;
}

/* Adds tiles for blocks `from` .. to - 1, which the leaves begin .. end - 1 have in common. */
static void add_shared_tiles(struct attention *a, const struct leaf *begin, const struct leaf *end,
                             uint32_t from, uint32_t to)
{
    uint32_t last = end[-1].at + end[-1].n_rows;
    for (uint32_t first = begin->at, n_rows; first < last; first += n_rows) {
        n_rows = last - first < a->tile_rows ? last - first : a->tile_rows;
        add_tile(a, (struct tile){begin->seq, first, n_rows, from, to, true});
    }
}

/* Leaves begin .. end - 1 share the blocks before `to` that all of them see whole; what each sees
 * before those is its own. Does nothing if there is too little room for tiles: each leaf still
 * needs one for its end, and each thread's cut may add another. */
static void share_blocks(struct attention *a, struct leaf *begin, struct leaf *end, uint32_t to)
{
    uint32_t from = 0, n_rows = end[-1].at + end[-1].n_rows - begin->at;
    for (const struct leaf *leaf = begin; leaf < end; leaf++) {
        uint32_t first = leaf->next_block > leaf->first_whole ? leaf->next_block
                                                              : leaf->first_whole;
        from = from > first ? from : first;
    }
    uint64_t n_tiles = (uint64_t)(end - begin) + (n_rows + a->tile_rows - 1) / a->tile_rows;
    if (end - begin < 2 || from >= to ||
        a->n_tiles + n_tiles + a->shape.max_rows + a->shape.n_threads > a->max_tiles)
        return;
    for (struct leaf *leaf = begin; leaf < end; leaf++) {
        struct tile tile = leaf_tile(a, leaf, leaf->next_block, true);
        tile.end_block = from;
        add_tile(a, tile);
        leaf->next_block = to;
    }
    add_shared_tiles(a, begin, end, from, to);
}

/* Adds the tiles of a branch: leaves begin .. end - 1, where any two neighbours share blocks. */
static void add_branch(struct attention *a, struct leaf *begin, struct leaf *end)
{
    if (end - begin == 1) {
        add_tile(a, leaf_tile(a, begin, begin->next_block, true));
        return;
    }
    uint32_t common = UINT32_MAX;
    for (const struct leaf *leaf = begin + 1; leaf < end; leaf++)
        common = leaf->common_end < common ? leaf->common_end : common;
    for (struct leaf *first = begin, *leaf = begin; first < end; leaf++) {
        if (leaf < end && leaf->first_whole < common)
            continue;
        if (leaf > first)
            share_blocks(a, first, leaf, common);
        first = leaf + 1; /* `leaf` sees none of these blocks whole */
    }
    for (struct leaf *first = begin, *leaf = begin + 1; first < end; leaf++) {
        if (leaf < end && leaf->common_end > common)
            continue;
        add_branch(a, first, leaf);
        first = leaf;
    }
}

/* Leaves begin .. end - 1: neighbours share blocks, or there is only one. */
static void add_leaves(struct attention *a, struct leaf *begin, struct leaf *end)
{
    uint32_t first = begin->at, n_rows = end[-1].at + end[-1].n_rows - first;
    if (end - begin > 1 && a->tile_rows > 1 && store_partials(a, first, n_rows)) {
        add_branch(a, begin, end);
        return;
    }
    for (const struct leaf *leaf = begin; leaf < end; leaf++)
        add_tile(a, leaf_tile(a, leaf, leaf->next_block, false));
}

static void add_small_tiles(struct attention *a, uint32_t n_leaves)
{
    if (n_leaves == 0)
        return;
    qsort(a->leaves, n_leaves, sizeof *a->leaves, compare_leaves);
    for (struct leaf *leaf = a->leaves; leaf < a->leaves + n_leaves; leaf++) {
        leaf->at = order_rows(a, leaf->first_row, leaf->n_rows);
        leaf->common_end = leaf > a->leaves ? common_blocks(a, leaf - 1, leaf) : 0;
    }
    struct leaf *end = a->leaves + n_leaves;
    for (struct leaf *first = a->leaves, *leaf = first + 1; first < end; leaf++) {
        if (leaf < end && leaf->common_end > 0)
            continue;
        add_leaves(a, first, leaf);
        first = leaf;
    }
}

/* Rows first .. first + n_rows - 1 of the batch, all of one sequence. */
static struct leaf make_leaf(const struct attention *a, uint32_t first, uint32_t n_rows)
{
    const struct batch_row *rows = &a->batch->rows[first], *last = &rows[n_rows - 1];
    return (struct leaf){
        .seq = &a->batch->seqs[rows->seq],
        .first_row = first,
        .n_rows = n_rows,
        .next_block = row_first_block(a, rows),
        .first_whole = (first_seen(a, last) + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK,
        .end_whole = (rows->position + 1) / ATTENTION_BLOCK,
    };
}

/* Makes tiles of the rows of one sequence, as many as a tile holds. A small remainder may share a
 * tile with other sequences. */
static void make_tiles(struct attention *a)
{
    const struct batch *batch = a->batch;
    uint32_t n_leaves = 0;
    for (uint32_t first = 0, next; first < batch->n_rows; first = next) {
        uint32_t seq = batch->rows[first].seq;
        for (next = first + 1; next < batch->n_rows && next - first < a->tile_rows; next++)
            if (batch->rows[next].seq != seq)
                break;
        struct leaf leaf = make_leaf(a, first, next - first);
        if (leaf.n_rows * 2 <= a->tile_rows || a->tile_rows == 1) {
            a->leaves[n_leaves++] = leaf;
            continue;
        }
        leaf.at = order_rows(a, first, leaf.n_rows);
        add_tile(a, leaf_tile(a, &leaf, leaf.next_block, false));
    }
    add_small_tiles(a, n_leaves);
}

/* Splits a tile after its first n_rows rows. */
static void split_tile(struct attention *a, uint32_t index, uint32_t n_rows)
{
    struct tile *left = &a->tiles[index], *right = left + 1;
    assert(a->n_tiles < a->max_tiles);
    memmove(right, left, (a->n_tiles++ - index) * sizeof *left);
    left->n_rows = n_rows;
    left->end_block = row_end_block(tile_row(a, left, n_rows - 1));
    right->first += n_rows;
    right->n_rows -= n_rows;
    right->first_block = row_first_block(a, tile_row(a, right, 0));
}

/* Where to cut a tile so that about `cost` remains in its left part: between two units if partials
 * can be stored, otherwise between two rows, which makes two tiles. */
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
