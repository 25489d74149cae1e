/* Plans of batches for the device: random ones against what cuda_plan.h and cuda_params.h promise.
 * The device is played here: runs fill a page table, and items are counted row by row. Arrays are
 * as large as the limits say and no larger, so that the sanitizer sees what does not fit. */
#include "test.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/minmax.h"
#include "engine/cuda/cuda_plan.h"

enum { MAX_SEQS = 6, MAX_ROWS = 48, N_CASES = 3000 };

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = hash_mix(seed + 1);
    return (uint32_t)((seed >> 32) * n >> 32);
}

static void *make(uint64_t n, size_t size)
{
    void *memory = calloc(n > 0 ? n : 1, size);
    CHECK(memory);
    return memory;
}

/* ---- a batch and its limits --------------------------------------------------------------- */

struct world {
    struct engine_limits limits;
    struct kv_group groups[CUDA_MAX_GROUPS];
    struct cuda_plan_limits plan_limits;
    struct batch batch;
    struct batch_seq seqs[MAX_SEQS];
    struct batch_row rows[MAX_ROWS];
    struct row_output outputs[MAX_ROWS];
    uint32_t *pages[MAX_SEQS][CUDA_MAX_GROUPS]; /* of positions, as the views say */
    struct page_run *runs[MAX_SEQS][CUDA_MAX_GROUPS];
    struct cuda_plan plan;
    uint32_t *table; /* [table_size] */
    uint64_t table_size, n_written;
    uint32_t n_flushes;
    bool flush_fails;
};

static uint32_t first_seen(uint32_t window, uint32_t position)
{
    return window == 0 || position < window ? 0 : position - window + 1;
}

/* The largest window of a group; 0: it shows everything. */
static uint32_t window_of(const struct world *w, uint32_t group)
{
    return w->groups[group].kind == KV_WINDOW ? w->groups[group].window : 0;
}

/* Two groups: the second has all windows. One: it is full, and shapes may have windows. */
static void make_shapes(struct world *w)
{
    struct cuda_plan_limits *l = &w->plan_limits;
    l->n_groups = 1 + below(2);
    l->n_shapes = l->n_groups + below(CUDA_MAX_SHAPES - l->n_groups + 1);
    for (uint32_t s = 0; s < l->n_shapes; s++) {
        struct cuda_attention_shape *shape = &l->shapes[s];
        shape->group = l->n_groups > 1 && s > 0 ? below(2) | (s == 1) : 0;
        if (shape->group || (l->n_groups == 1 && below(2)))
            shape->window = 1 + below(below(2) ? 40 : 700);
        shape->heads_per_unit = 1 + below(ATTENTION_QUERIES);
        shape->n_units = 1 + below(16);
        if (shape->group) {
            w->groups[1].kind = KV_WINDOW;
            w->groups[1].window = max_u32(w->groups[1].window, shape->window);
        }
    }
}

static void make_limits(struct world *w)
{
    bool is_long = below(16) == 0;
    w->limits.max_rows = 1 + below(MAX_ROWS);
    w->limits.max_seqs = 1 + below(is_long ? 2 : MAX_SEQS);
    w->limits.max_length = MAX_ROWS + (is_long ? 8000 + below(6000) : below(1000));
    make_shapes(w);
    w->plan_limits.max_items = w->limits.max_rows + below(below(2) ? 20 : 400);
    w->plan_limits.max_partials = below(below(2) ? 30 : 600);
    w->plan_limits.wanted_units = 1 + below(300);
    w->plan_limits.max_runs = 1 + below(below(2) ? 5 : 100);
}

/* Random runs of pages for positions first .. length - 1 of a sequence. */
static void make_view(struct world *w, uint32_t s, uint32_t g, uint32_t first)
{
    struct batch_seq *seq = &w->seqs[s];
    uint32_t longest = 1 + below(below(2) ? 4 : 6000);
    uint32_t *pages = w->pages[s][g] = make(seq->length, sizeof *pages);
    struct page_run *runs = w->runs[s][g] = make(seq->length, sizeof *runs);
    struct page_view *view = &seq->pages[g];
    *view = (struct page_view){runs, 0, first};
    for (uint32_t at = first; at < seq->length;) {
        struct page_run *run = &runs[view->n_runs++];
        *run = (struct page_run){below(1u << 30), 1 + below(min_u32(longest, seq->length - at))};
        for (uint32_t i = 0; i < run->count; i++)
            pages[at++] = run->first + i;
    }
}

static void make_row(struct world *w, uint32_t s, uint32_t position)
{
    uint32_t r = w->batch.n_rows++;
    struct batch_row *row = &w->rows[r];
    *row = (struct batch_row){.seq = s, .position = position, .rope = {below(10000)}};
    for (uint32_t g = 0; g < w->plan_limits.n_groups; g++)
        row->pages[g] = w->pages[s][g][position];
    w->outputs[r].wants = below(2 * OUTPUT_HEAD);
    row->output = below(2) ? &w->outputs[r] : NULL;
}

static void make_seq(struct world *w, uint32_t n_rows, bool is_at_limit)
{
    uint32_t s = w->batch.n_seqs++, most = w->limits.max_length - n_rows;
    uint32_t position = is_at_limit ? most : below(most + 1);
    w->seqs[s].length = position + n_rows;
    for (uint32_t g = 0; g < w->plan_limits.n_groups; g++) {
        uint32_t first = first_seen(window_of(w, g), position);
        make_view(w, s, g, below(2) ? first : g == 0 ? 0 : below(first + 1));
    }
    for (uint32_t i = 0; i < n_rows; i++)
        make_row(w, s, position + i);
}

static void make_batch(struct world *w, bool is_at_limit)
{
    uint32_t n_seqs = min_u32(w->limits.max_seqs, w->limits.max_rows), left = w->limits.max_rows;
    if (!is_at_limit)
        n_seqs = 1 + below(n_seqs);
    w->batch.seqs = w->seqs;
    w->batch.rows = w->rows;
    for (uint32_t s = 0; s < n_seqs; s++) {
        uint32_t most = left - (n_seqs - 1 - s);
        uint32_t n = below(3) == 0 ? 1 : 1 + below(most);
        make_seq(w, s + 1 == n_seqs && is_at_limit ? most : n, is_at_limit);
        left -= n;
    }
}

static void make_plan(struct world *w)
{
    const struct cuda_plan_limits *l = &w->plan_limits;
    struct cuda_plan *plan = &w->plan;
    plan->step = make(1, sizeof *plan->step);
    plan->rows = make(w->limits.max_rows, sizeof *plan->rows);
    plan->outputs = make(w->limits.max_rows, sizeof *plan->outputs);
    plan->runs = make(l->max_runs, sizeof *plan->runs);
    for (uint32_t s = 0; s < l->n_shapes; s++) {
        plan->items[s] = make(l->max_items, sizeof *plan->items[s]);
        plan->merges[s] = make(w->limits.max_rows, sizeof *plan->merges[s]);
    }
    w->table_size = cuda_plan_table_size(&w->limits, w->groups, l->n_groups);
    w->table = make(w->table_size, sizeof *w->table);
    memset(w->table, 0xff, w->table_size * sizeof *w->table);
}

static void world_close(struct world *w)
{
    free(w->plan.step);
    free(w->plan.rows);
    free(w->plan.outputs);
    free(w->plan.runs);
    free(w->table);
    for (uint32_t s = 0; s < CUDA_MAX_SHAPES; s++) {
        free(w->plan.items[s]);
        free(w->plan.merges[s]);
    }
    for (uint32_t s = 0; s < MAX_SEQS; s++)
        for (uint32_t g = 0; g < CUDA_MAX_GROUPS; g++) {
            free(w->pages[s][g]);
            free(w->runs[s][g]);
        }
}

/* ---- the device --------------------------------------------------------------------------- */

static void fill_table(struct world *w)
{
    for (uint32_t i = 0; i < w->plan.step->n_runs; i++) {
        struct cuda_run run = w->plan.runs[i];
        CHECK(run.count > 0 && run.at + (uint64_t)run.count <= w->table_size);
        for (uint32_t k = 0; k < run.count; k++) {
            CHECK(w->table[run.at + k] == CUDA_NONE);
            w->table[run.at + k] = run.page + k;
        }
        w->n_written += run.count;
    }
}

static int flush(void *context, struct error *err)
{
    struct world *w = context;
    CHECK_INT(w->plan.step->n_runs, w->plan_limits.max_runs);
    w->n_flushes++;
    if (w->flush_fails)
        return error_set(err, ERROR_DEVICE, "no device");
    fill_table(w);
    w->plan.step->n_runs = 0;
    return 0;
}

static int plan_batch(struct world *w, struct error *err)
{
    return cuda_plan_make(&w->plan, &w->plan_limits, &w->batch, flush, w, err);
}

/* ---- what plans promise ------------------------------------------------------------------- */

static void check_rows(const struct world *w)
{
    CHECK_INT(w->plan.step->n_rows, w->batch.n_rows);
    for (uint32_t r = 0; r < w->batch.n_rows; r++) {
        const struct cuda_row *row = &w->plan.rows[r];
        const struct batch_row *from = &w->rows[r];
        CHECK_INT(row->position, from->position);
        CHECK_INT(row->rope, from->rope[0]);
        for (uint32_t g = 0; g < w->plan_limits.n_groups; g++) {
            CHECK_INT(row->pages[g], from->pages[g]);
            CHECK(w->table[row->table[g] + from->position] == from->pages[g]);
            if (r > 0 && from[-1].seq == from->seq) /* so check_pages takes the first row alone */
                CHECK_INT(row->table[g], row[-1].table[g]);
        }
    }
}

static void check_outputs(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < w->batch.n_rows; r++)
        if (w->rows[r].output && w->rows[r].output->wants & (OUTPUT_LOGITS | OUTPUT_BEST)) {
            CHECK(n < w->plan.step->n_outputs);
            CHECK_INT(w->plan.outputs[n++], r);
        }
    CHECK_INT(w->plan.step->n_outputs, n);
}

/* The table is right wherever kernels may look: item.first .. item.length - 1. Items of the same
 * rows and group look at the same places, which are checked once. */
static void check_pages(const struct world *w, const struct cuda_item *item, uint32_t g,
                        bool is_new)
{
    const struct batch_row *row = &w->rows[item->first_row];
    uint32_t table = w->plan.rows[item->first_row].table[g];
    CHECK_INT(item->length, w->seqs[row->seq].length);
    CHECK(item->first <= row->position);
    if (is_new && (item->first_row == 0 || row[-1].seq != row->seq))
        for (uint32_t p = item->first; p < item->length; p++)
            CHECK(w->table[table + p] == w->pages[row->seq][g][p]);
}

/* What the items of a shape do for a row. */
struct cover {
    uint32_t n_items, n_blocks, first, end, n_split;
};

static void count_item(const struct world *w, uint32_t s, const struct cuda_item *item,
                       struct cover *covers, bool *taken)
{
    const struct cuda_attention_shape *shape = &w->plan_limits.shapes[s];
    uint32_t end = item->first_block + item->n_blocks;
    CHECK(item->n_rows > 0 && item->n_rows * shape->heads_per_unit <= ATTENTION_QUERIES);
    CHECK(item->n_blocks > 0 && item->first_row + item->n_rows <= w->batch.n_rows);
    for (uint32_t i = 0; i < item->n_rows; i++) {
        uint32_t r = item->first_row + i;
        struct cover *c = &covers[r];
        const struct cuda_merge *merge = &w->plan.merges[s][r];
        CHECK_INT(w->rows[r].seq, w->rows[item->first_row].seq);
        CHECK(item->first <= first_seen(shape->window, w->rows[r].position));
        c->first = c->n_items++ ? min_u32(c->first, item->first_block) : item->first_block;
        c->end = max_u32(c->end, end);
        c->n_blocks += item->n_blocks;
        c->n_split += item->partial != CUDA_NONE;
        CHECK_INT(merge->row_of_item, i);
        if (item->partial != CUDA_NONE)
            CHECK(item->partial >= merge->first &&
                  item->partial + item->n_blocks <= merge->first + merge->count);
    }
    if (item->partial == CUDA_NONE)
        return;
    CHECK((uint64_t)item->partial + item->n_blocks <= w->plan_limits.max_partials);
    for (uint32_t i = item->partial; i < item->partial + item->n_blocks; i++) {
        CHECK(!taken[i]);
        taken[i] = true;
    }
}

/* Once all items are counted: partials of a row follow the order of its blocks. */
static void check_order(const struct world *w, uint32_t s, const struct cover *covers)
{
    for (uint32_t i = 0; i < w->plan.step->n_items[s]; i++) {
        const struct cuda_item *item = &w->plan.items[s][i];
        for (uint32_t r = item->first_row; r < item->first_row + item->n_rows; r++)
            if (item->partial != CUDA_NONE)
                CHECK_INT(item->partial - w->plan.merges[s][r].first,
                          item->first_block - covers[r].first);
    }
}

static void check_cover(const struct world *w, uint32_t s, uint32_t r, const struct cover *c)
{
    uint32_t position = w->rows[r].position;
    uint32_t seen = first_seen(w->plan_limits.shapes[s].window, position);
    CHECK(c->n_items > 0);
    CHECK_INT(c->n_blocks, c->end - c->first); /* each once: partials do not overlap */
    CHECK(c->first <= seen / ATTENTION_BLOCK && c->end > position / ATTENTION_BLOCK);
    CHECK(c->n_split == 0 ? c->n_items == 1 : c->n_split == c->n_items);
    CHECK_INT(w->plan.merges[s][r].count, c->n_split ? c->n_blocks : 0);
}

static void check_items(const struct world *w, uint32_t s)
{
    const struct cuda_step *step = w->plan.step;
    struct cover covers[MAX_ROWS] = {0};
    bool taken[600] = {0};
    uint32_t n_split = 0, group = w->plan_limits.shapes[s].group;
    bool is_new = true;
    for (uint32_t other = 0; other < s; other++)
        is_new &= w->plan_limits.shapes[other].group != group;
    CHECK(step->n_items[s] <= w->plan_limits.max_items);
    for (uint32_t i = 0; i < step->n_items[s]; i++) {
        count_item(w, s, &w->plan.items[s][i], covers, taken);
        check_pages(w, &w->plan.items[s][i], group, is_new);
    }
    for (uint32_t r = 0; r < w->batch.n_rows; r++) {
        check_cover(w, s, r, &covers[r]);
        n_split += covers[r].n_split > 0;
    }
    check_order(w, s, covers);
    CHECK_INT(step->is_split[s] != 0, n_split > 0);
}

static void check_plan(struct world *w)
{
    struct error err;
    CHECK_INT(plan_batch(w, &err), 0);
    CHECK(w->plan.step->n_runs <= w->plan_limits.max_runs);
    fill_table(w);
    check_rows(w);
    check_outputs(w);
    for (uint32_t s = 0; s < w->plan_limits.n_shapes; s++)
        check_items(w, s);
}

TEST(cuda_plan, random_batches)
{
    uint32_t n_flushed = 0, n_split = 0, n_whole = 0;
    for (uint32_t i = 0; i < N_CASES; i++) {
        struct world w = {0};
        seed = i;
        make_limits(&w);
        make_batch(&w, below(4) == 0);
        make_plan(&w);
        check_plan(&w);
        n_flushed += w.n_flushes > 0;
        for (uint32_t s = 0; s < w.plan_limits.n_shapes; s++) {
            n_split += w.plan.step->is_split[s];
            n_whole += !w.plan.step->is_split[s];
        }
        world_close(&w);
    }
    CHECK(n_flushed > N_CASES / 10 && n_split > N_CASES / 10 && n_whole > N_CASES / 10);
}

/* ---- single cases ------------------------------------------------------------------------- */

static void one_shape(struct world *w, uint32_t window, uint32_t heads_per_unit)
{
    w->plan_limits = (struct cuda_plan_limits){
        .n_shapes = 1,
        .n_groups = 1,
        .shapes = {{.window = window, .heads_per_unit = heads_per_unit, .n_units = 1}},
        .max_items = 200,
        .max_partials = 100,
        .wanted_units = 132,
        .max_runs = 1000,
    };
    w->batch.seqs = w->seqs;
    w->batch.rows = w->rows;
}

/* The drawing in cuda_plan.h. */
TEST(cuda_plan, the_example)
{
    struct world w = {.limits = {.max_rows = MAX_ROWS, .max_seqs = 2, .max_length = 9001}};
    one_shape(&w, 0, 4);
    w.limits.max_length = 130;
    make_seq(&w, 4, true);
    w.limits.max_length = 9001;
    make_seq(&w, 1, true);
    make_plan(&w);
    check_plan(&w);
    const struct cuda_item *items = w.plan.items[0];
    CHECK_INT(w.plan.step->n_items[0], 1 + 71);
    CHECK(items[0].first_row == 0 && items[0].n_rows == 4 && items[0].n_blocks == 2);
    CHECK(items[0].partial == CUDA_NONE);
    for (uint32_t i = 1; i < 72; i++)
        CHECK(items[i].first_row == 4 && items[i].n_blocks == 1 && items[i].first_block == i - 1);
    CHECK(w.plan.merges[0][4].first == 0 && w.plan.merges[0][4].count == 71);
    world_close(&w);
}

/* Enough items keep the device busy: none is split. */
TEST(cuda_plan, a_full_batch_is_not_split)
{
    struct world w = {.limits = {.max_rows = MAX_ROWS, .max_seqs = 1, .max_length = 2000}};
    one_shape(&w, 0, 16);
    w.plan_limits.wanted_units = MAX_ROWS;
    make_seq(&w, MAX_ROWS, true);
    make_plan(&w);
    check_plan(&w);
    CHECK_INT(w.plan.step->n_items[0], MAX_ROWS);
    CHECK(!w.plan.step->is_split[0]);
    world_close(&w);
}

/* A window reads the blocks that it shows, and pages of no others. */
TEST(cuda_plan, a_window_reads_its_blocks_alone)
{
    struct world w = {.limits = {.max_rows = 1, .max_seqs = 1, .max_length = 1001}};
    one_shape(&w, 300, 8);
    make_seq(&w, 1, true); /* position 1000 sees 701 .. 1000 */
    make_plan(&w);
    check_plan(&w);
    CHECK_INT(w.plan.items[0][0].first_block, 5);
    CHECK_INT(w.plan.items[0][0].first, 701);
    CHECK_INT(w.n_written, 300);
    world_close(&w);
}

/* The page table has room for the longest sequences, and no more than that. */
TEST(cuda_plan, the_longest_sequences_fill_the_table)
{
    struct world w = {.limits = {.max_rows = MAX_ROWS, .max_seqs = MAX_SEQS, .max_length = 500}};
    one_shape(&w, 0, 1);
    for (uint32_t s = 0; s < MAX_SEQS; s++)
        make_seq(&w, MAX_ROWS / MAX_SEQS, true);
    make_plan(&w);
    check_plan(&w);
    CHECK_INT(w.n_written, w.table_size);
    world_close(&w);
}

TEST(cuda_plan, a_flush_may_fail)
{
    struct error err;
    struct world w = {.limits = {.max_rows = 1, .max_seqs = 1, .max_length = 9001}};
    one_shape(&w, 0, 1);
    w.plan_limits.max_runs = 1;
    w.flush_fails = true;
    make_seq(&w, 1, true); /* a run is shared by several blocks of threads: this takes three */
    make_plan(&w);
    CHECK_INT(plan_batch(&w, &err), -1);
    CHECK_INT(w.n_flushes, 1);
    world_close(&w);
}
