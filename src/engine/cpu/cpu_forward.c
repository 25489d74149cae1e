/* One forward pass of a batch, by all threads. Between two attentions rows are independent, so
 * there are two ways to divide the work:
 *
 *   many rows   each thread takes some rows through a whole layer, then the next rows. Its
 *               intermediate results stay in its cache, and it waits for no one.
 *   few rows    (or a layer larger than a cache) all threads work on all rows and share the
 *               outputs of products; they wait at a barrier before reading what others wrote.
 *
 * A team is the set of threads that works on some rows: one thread, or all. Attention is always
 * shared by all threads. Careful: threads may only split along dimensions that are not summed over,
 * so that no bit depends on the number of threads. */
#include "base/clock.h"
#include "engine/cpu/cpu_pass.h"
#include "engine/cpu/rope.h"

static void embed(const struct pass *p)
{
    struct cpu_state *s = &p->e->state;
    uint32_t n = p->hp->n_embd;
    struct range rows = pass_share(p, p->n_rows);
    for (size_t r = p->first + rows.begin; r < p->first + rows.end; r++) {
        const struct batch_row *row = &p->e->batch->rows[r];
        weight_floats(&p->e->model->token_embd, (uint32_t)row->value, 0, n, s->x + r * n);
        if (p->hp->embd_scale != 1.0f)
            p->elementwise->scale(s->x + r * n, p->hp->embd_scale, n);
        for (uint32_t i = 0; i < p->hp->n_ropes; i++) {
            const struct rope *rope = &p->hp->ropes[i];
            rope_tables(rope, row->rope[0], s->cos[i] + r * rope->dim, s->sin[i] + r * rope->dim);
        }
    }
    pass_meet_team(p);
    if (p->hp->n_embd_layer)
        pass_layer_inputs(p);
}

/* Everything between the attention of the previous layer and that of this one. */
static void between_attentions(const struct pass *p, uint32_t layer)
{
    if (layer > 0)
        pass_after_attention(p, layer - 1);
    else
        embed(p);
    if (layer < p->hp->n_layers)
        pass_before_attention(p, layer);
}

/* The next rows that no thread has taken yet; fewer towards the end, so that all threads finish
 * together. */
static bool take_rows(const struct cpu_engine *e, uint32_t layer, struct range *rows)
{
    atomic_uint *n_taken = &e->taken[layer * PHASES_OF_LAYER + PHASE_ROWS];
    uint32_t n_rows = e->batch->n_rows, n_threads = e->engine.info.n_threads;
    unsigned begin = atomic_load_explicit(n_taken, memory_order_relaxed), n;
    do {
        if (begin >= n_rows)
            return false;
        n = (n_rows - begin) / (2 * n_threads) / ROW_TILE * ROW_TILE;
        n = n < ROW_TILE ? ROW_TILE : n < CHUNK_ROWS ? n : CHUNK_ROWS;
    } while (!atomic_compare_exchange_weak_explicit(n_taken, &begin, begin + n,
                                                    memory_order_relaxed, memory_order_relaxed));
    *rows = (struct range){begin, begin + n < n_rows ? begin + n : n_rows};
    return true;
}

/* Thread 0 checks whether anyone still wants the result; all threads use what it saw. */
static bool is_stopped(const struct pass *p)
{
    struct cpu_engine *e = p->e;
    if (p->thread == 0)
        e->stopped = e->batch->live && atomic_load(e->batch->live) <= 0;
    pass_meet(p);
    return e->stopped;
}

struct pass pass_together(struct cpu_engine *e, uint32_t thread, uint32_t n_rows)
{
    bool is_small = n_rows <= SMALL_BATCH;
    return (struct pass){
        .e = e,
        .hp = &e->model->hparams,
        .vector = e->kernels->vector,
        .elementwise = e->kernels->elementwise,
        .matmul = e->kernels->matmul,
        .thread = thread,
        .member = thread,
        .n_members = e->engine.info.n_threads,
        .n_rows = n_rows,
        .prepares_alone = is_small,
        .input = is_small ? &e->state.own[thread] : &e->state.shared,
        .rows = &e->state.shared,
    };
}

/* One thread on some rows. */
static struct pass pass_alone(struct cpu_engine *e, uint32_t thread, struct range rows)
{
    struct pass p = pass_together(e, thread, rows.end - rows.begin);
    p.member = 0;
    p.n_members = 1;
    p.first = rows.begin;
    p.input = p.rows = &e->state.own[thread];
    return p;
}

static void forward_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct cpu_engine *e = context;
    struct engine_times *times = &e->engine.times;
    const struct pass all = pass_together(e, thread, e->batch->n_rows);
    (void)n_threads;
    for (uint32_t layer = 0;; layer++) {
        if (!e->by_rows)
            between_attentions(&all, layer);
        for (struct range rows; e->by_rows && take_rows(e, layer, &rows);) {
            struct pass p = pass_alone(e, thread, rows);
            between_attentions(&p, layer);
        }
        bool stopped = is_stopped(&all);
        pass_lap(&all, &times->products_ns);
        if (stopped)
            return;
        if (layer == all.hp->n_layers)
            break;
        pass_attend(&all, layer);
        pass_lap(&all, &times->attention_ns);
    }
    pass_outputs(e, thread);
}

/* Whether threads take rows of their own: if there are enough rows for all, and the weights of a
 * layer stay in a cache between two takes. Rows for experts are grouped by expert, which does not
 * work well with few rows at a time. */
static bool goes_by_rows(const struct cpu_engine *e)
{
    const struct engine_cost *cost = &e->engine.info.cost;
    return !cpu_has_experts(&e->model->hparams) &&
           e->batch->n_rows >= 2 * ROW_TILE * e->engine.info.n_threads &&
           cost->layer_bytes / e->model->hparams.n_layers <= LAYER_CACHE_BYTES;
}

static void list_outputs(struct cpu_engine *e)
{
    e->n_outputs = 0;
    e->wants_hidden = false;
    for (uint32_t r = 0; r < e->batch->n_rows; r++) {
        const struct row_output *out = e->batch->rows[r].output;
        if (out && out->wants & (OUTPUT_LOGITS | OUTPUT_BEST))
            e->state.outputs[e->n_outputs++] = r;
        e->wants_hidden |= out && out->wants & (OUTPUT_HIDDEN | OUTPUT_NORMED);
    }
}

void cpu_forward(struct cpu_engine *e)
{
    struct engine_times *times = &e->engine.times;
    e->lap_ns = clock_now_ns();
    list_outputs(e);
    for (uint32_t i = 0; i < e->n_attentions; i++)
        attention_plan(e->attentions[i], e->batch);
    e->by_rows = goes_by_rows(e);
    e->stopped = false;
    for (uint32_t i = 0; i < cpu_phases(&e->model->hparams); i++)
        atomic_store_explicit(&e->taken[i], 0, memory_order_relaxed);
    parallel_run(e->pool, forward_job, e);
    struct pass last = pass_together(e, 0, e->batch->n_rows);
    pass_lap(&last, e->n_outputs > 0 && !e->stopped ? &times->products_ns : &times->other_ns);
}
