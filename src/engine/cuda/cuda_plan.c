/* Plans a step; see cuda_plan.h. Owner thread. Careful: nothing here may change a bit of a result.
 * Items and splits only say who computes what. */
#include "engine/cuda/cuda_plan.h"

#include "base/minmax.h"

enum {
    RUN_PART = 4096,  /* positions: a long run is shared by several blocks of threads */
    LEAST_BLOCKS = 4, /* fewer are sooner done than merged */
};

uint64_t cuda_plan_table_size(const struct engine_limits *limits, const struct kv_group *groups,
                              uint32_t n_groups)
{
    uint64_t size = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        uint64_t seen = limits->max_length;
        if (groups[g].kind == KV_WINDOW)
            seen = min_u64(seen, (uint64_t)groups[g].window + limits->max_rows);
        size += seen * limits->max_seqs;
    }
    return size;
}

struct planner {
    struct cuda_plan *plan;
    const struct cuda_plan_limits *limits;
    const struct batch *batch;
    cuda_flush_runs flush;
    void *context;
    uint32_t table_at;
};

static int add_run(struct planner *p, uint32_t page, uint32_t count, struct error *err)
{
    struct cuda_step *step = p->plan->step;
    for (uint32_t at = 0; at < count; at += RUN_PART) {
        if (step->n_runs == p->limits->max_runs && p->flush(p->context, err))
            return -1;
        uint32_t n = min_u32(count - at, RUN_PART);
        p->plan->runs[step->n_runs++] = (struct cuda_run){p->table_at, page + at, n};
        p->table_at += n;
    }
    return 0;
}

/* Puts positions from .. length - 1 of a sequence into the page table. Returns where position 0
 * would be, modulo 2^32. */
static int add_pages(struct planner *p, const struct page_view *view, uint32_t from,
                     uint32_t length, uint32_t *table, struct error *err)
{
    uint32_t at = view->first;
    *table = p->table_at - from;
    for (uint32_t i = 0; i < view->n_runs && at < length; i++) {
        uint32_t end = min_u32(at + view->runs[i].count, length), first = max_u32(at, from);
        if (first < end && add_run(p, view->runs[i].first + (first - at), end - first, err))
            return -1;
        at += view->runs[i].count;
    }
    return 0;
}

/* The first position that a row of the group may see. */
static uint32_t first_seen(uint32_t window, uint32_t position)
{
    return window && position + 1 > window ? position + 1 - window : 0;
}

static uint32_t group_window(const struct planner *p, uint32_t group)
{
    uint32_t window = 0;
    for (uint32_t s = 0; s < p->limits->n_shapes; s++) {
        const struct cuda_attention_shape *shape = &p->limits->shapes[s];
        if (shape->group == group && shape->window == 0)
            return 0;
        if (shape->group == group)
            window = max_u32(window, shape->window);
    }
    return window;
}

/* Rows of one sequence, adjacent in the batch. */
struct seq_rows {
    uint32_t first, n;
    uint32_t known[CUDA_MAX_GROUPS]; /* the first position in the page table */
};

static int place_rows(struct planner *p, struct seq_rows *rows, struct error *err)
{
    const struct batch_row *first = &p->batch->rows[rows->first];
    const struct batch_seq *seq = &p->batch->seqs[first->seq];
    uint32_t table[CUDA_MAX_GROUPS] = {0};
    for (uint32_t g = 0; g < p->limits->n_groups; g++) {
        rows->known[g] = max_u32(seq->pages[g].first,
                                 first_seen(group_window(p, g), first->position));
        if (add_pages(p, &seq->pages[g], rows->known[g], seq->length, &table[g], err))
            return -1;
    }
    for (uint32_t r = rows->first; r < rows->first + rows->n; r++) {
        const struct batch_row *row = &p->batch->rows[r];
        struct cuda_row *to = &p->plan->rows[r];
        *to = (struct cuda_row){.position = row->position, .rope = row->rope[0]};
        for (uint32_t g = 0; g < p->limits->n_groups; g++) {
            to->pages[g] = row->pages[g];
            to->table[g] = table[g];
        }
    }
    return 0;
}

static void add_items(struct planner *p, uint32_t s, const struct seq_rows *rows)
{
    const struct cuda_attention_shape *shape = &p->limits->shapes[s];
    const struct batch_row *batch_rows = p->batch->rows;
    uint32_t per_item = ATTENTION_QUERIES / shape->heads_per_unit;
    for (uint32_t at = 0; at < rows->n; at += per_item) {
        uint32_t first = rows->first + at, n = min_u32(per_item, rows->n - at);
        uint32_t from = first_seen(shape->window, batch_rows[first].position) / ATTENTION_BLOCK;
        uint32_t to = batch_rows[first + n - 1].position / ATTENTION_BLOCK;
        p->plan->items[s][p->plan->step->n_items[s]++] = (struct cuda_item){
            .first_row = first,
            .n_rows = n,
            .first_block = from,
            .n_blocks = to - from + 1,
            .first = rows->known[shape->group],
            .length = p->batch->seqs[batch_rows[first].seq].length,
            .partial = CUDA_NONE,
        };
        for (uint32_t r = 0; r < n; r++)
            p->plan->merges[s][first + r] = (struct cuda_merge){.row_of_item = r};
    }
}

/* Splits items into parts of `most` blocks, as far as there is room. Parts of one item follow
 * each other's partials, so that a row merges one range. */
static void split_items(struct planner *p, uint32_t s, uint32_t most)
{
    struct cuda_step *step = p->plan->step;
    struct cuda_item *items = p->plan->items[s];
    uint32_t n = step->n_items[s], n_partials = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct cuda_item whole = items[i];
        uint32_t n_parts = (whole.n_blocks + most - 1) / most;
        if (n_parts < 2 || whole.n_blocks < LEAST_BLOCKS ||
            whole.n_blocks > p->limits->max_partials - n_partials ||
            n_parts - 1 > p->limits->max_items - step->n_items[s])
            continue;
        for (uint32_t r = 0; r < whole.n_rows; r++) {
            struct cuda_merge *merge = &p->plan->merges[s][whole.first_row + r];
            merge->first = n_partials;
            merge->count = whole.n_blocks;
        }
        for (uint32_t part = 0; part < n_parts; part++) {
            struct cuda_item *to = part == 0 ? &items[i] : &items[step->n_items[s]++];
            *to = whole;
            to->first_block = whole.first_block + part * most;
            to->n_blocks = min_u32(most, whole.n_blocks - part * most);
            to->partial = n_partials + part * most;
        }
        n_partials += whole.n_blocks;
        step->is_split[s] = 1;
    }
}

static void split_shape(struct planner *p, uint32_t s)
{
    const struct cuda_step *step = p->plan->step;
    uint32_t n_units = p->limits->shapes[s].n_units;
    uint64_t blocks = 0;
    if ((uint64_t)step->n_items[s] * n_units >= p->limits->wanted_units)
        return;
    for (uint32_t i = 0; i < step->n_items[s]; i++)
        blocks += p->plan->items[s][i].n_blocks;
    uint64_t most = blocks * n_units / (2 * (uint64_t)p->limits->wanted_units);
    split_items(p, s, most > 0 ? (uint32_t)most : 1);
}

int cuda_plan_make(struct cuda_plan *plan, const struct cuda_plan_limits *limits,
                   const struct batch *batch, cuda_flush_runs flush, void *context,
                   struct error *err)
{
    struct planner p = {plan, limits, batch, flush, context, 0};
    *plan->step = (struct cuda_step){.n_rows = batch->n_rows};
    for (uint32_t r = 0; r < batch->n_rows;) {
        struct seq_rows rows = {.first = r};
        uint32_t seq = batch->rows[r].seq;
        for (; r < batch->n_rows && batch->rows[r].seq == seq; r++)
            rows.n++;
        if (place_rows(&p, &rows, err))
            return -1;
        for (uint32_t s = 0; s < limits->n_shapes; s++)
            add_items(&p, s, &rows);
    }
    for (uint32_t s = 0; s < limits->n_shapes; s++)
        split_shape(&p, s);
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const struct row_output *out = batch->rows[r].output;
        if (out && out->wants & (OUTPUT_LOGITS | OUTPUT_BEST))
            plan->outputs[plan->step->n_outputs++] = r;
    }
    return 0;
}
