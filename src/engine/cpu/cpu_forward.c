/* One forward pass of a batch, by all threads at once. Threads share the work of a phase by rows
 * (norms, rope), by outputs (products) or by units (attention) and meet at a barrier before the
 * next phase reads what the others wrote. What a newcomer gets wrong: a thread may only split what
 * is summed nowhere, so that no bit depends on the number of threads. */
#include "engine/cpu/cpu_internal.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/rope.h"

/* One thread's view of the pass. */
struct pass {
    struct cpu_engine *e;
    const struct hparams *hp;
    const struct vector_kernels *vector;
    const struct matmul_kernels *matmul;
    uint32_t thread, n_threads, n_rows;
    bool is_small;                 /* see struct cpu_input */
    const struct cpu_input *input; /* the shared one, or in a small batch the thread's own */
};

static struct range share(const struct pass *p, uint32_t n)
{
    return (struct range){(uint32_t)((uint64_t)n * p->thread / p->n_threads),
                          (uint32_t)((uint64_t)n * (p->thread + 1) / p->n_threads)};
}

static void meet(const struct pass *p)
{
    parallel_barrier(p->e->pool, p->thread);
}

/* Adds the time since the last lap to one of engine.times. */
static void lap_add(struct cpu_engine *e, uint64_t *time_ns)
{
    uint64_t now_ns = clock_now_ns();
    *time_ns += now_ns - e->lap_ns;
    e->lap_ns = now_ns;
}

/* Thread 0 ends a lap. It waits at a barrier first where there is one, for the others belong to the
 * phase as well. */
static void lap(const struct pass *p, uint64_t *time_ns)
{
    if (p->thread == 0)
        lap_add(p->e, time_ns);
}

/* A product and where its result goes: out[n_rows][rows of the matrix]. */
struct product {
    const struct packed_matrix *matrix;
    float *out;
};

static bool wants_quantized(const struct product *products, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (matrix_act_kind(products[i].matrix) == ACT_Q8)
            return true;
    return false;
}

/* Which of n rows the thread prepares as the input of products. */
static struct range rows_to_prepare(const struct pass *p, uint32_t n)
{
    return p->is_small ? (struct range){0, n} : share(p, n);
}

/* Brings rows of x, [n_rows][cols], into the form that the products want. All threads have their
 * input when it returns. */
static void prepare_input(const struct pass *p, const struct product *products, uint32_t n,
                          const float *x, uint32_t cols, uint32_t n_rows)
{
    struct range rows = rows_to_prepare(p, n_rows);
    if (wants_quantized(products, n))
        for (uint32_t r = rows.begin; r < rows.end; r++)
            p->matmul->quantize_row(x + (size_t)r * cols, cols, r, p->input->quantized);
    if (!p->is_small)
        meet(p);
}

static struct work work_of(const struct pass *p, uint32_t layer, uint32_t phase, uint32_t n_panels,
                           uint32_t n_rows)
{
    return work_begin(n_panels, n_rows, p->thread, p->n_threads,
                      &p->e->taken[layer * PHASES_OF_LAYER + phase]);
}

/* A part of a product; x as in prepare_input. */
static void multiply_part(const struct pass *p, const struct product *product, const float *x,
                          uint32_t cols, const struct work_part *part)
{
    const struct packed_matrix *m = product->matrix;
    struct activations all = {matrix_act_kind(m), part->rows.end, cols, x, p->input->quantized};
    struct activations rows = activations_rows(&all, part->rows.begin, part->rows.end);
    p->matmul->matmul(m, &rows, part->panels.begin, part->panels.end,
                      product->out + (size_t)part->rows.begin * matrix_rows(m), matrix_rows(m));
}

/* The columns of a result that are in a part. */
static struct range part_columns(const struct packed_matrix *m, const struct work_part *part)
{
    uint32_t end = part->panels.end * PANEL, last = matrix_rows(m);
    return (struct range){part->panels.begin * PANEL, end < last ? end : last};
}

/* The thread's share of the outputs of all products together, as if they were one matrix. */
static void multiply(const struct pass *p, struct work work, const struct product *products,
                     uint32_t n, const float *x, uint32_t cols)
{
    for (struct work_part all; work_next(&work, &all);) {
        for (uint32_t i = 0, at = 0; i < n; i++) {
            uint32_t end = at + matrix_panels(products[i].matrix);
            uint32_t from = all.panels.begin > at ? all.panels.begin : at;
            uint32_t to = all.panels.end < end ? all.panels.end : end;
            struct work_part part = {all.rows, {from - at, to - at}};
            if (from < to)
                multiply_part(p, &products[i], x, cols, &part);
            at = end;
        }
    }
}

/* x += product of `input` */
static void multiply_and_add(const struct pass *p, struct work work, const struct packed_matrix *m,
                             const float *input, uint32_t cols)
{
    struct cpu_state *s = &p->e->state;
    struct product product = {m, s->added};
    for (struct work_part part; work_next(&work, &part);) {
        struct range columns = part_columns(m, &part);
        multiply_part(p, &product, input, cols, &part);
        for (uint32_t r = part.rows.begin; r < part.rows.end; r++) {
            size_t at = (size_t)r * p->hp->n_embd + columns.begin;
            p->vector->add(s->x + at, s->added + at, columns.end - columns.begin);
        }
    }
}

/* gate = silu(product with `gate`) * product with `up` */
static void multiply_gated(const struct pass *p, struct work work, const struct product *gate,
                           const struct product *up, const float *x, uint32_t cols)
{
    for (struct work_part part; work_next(&work, &part);) {
        struct range columns = part_columns(gate->matrix, &part);
        multiply_part(p, gate, x, cols, &part);
        multiply_part(p, up, x, cols, &part);
        for (uint32_t r = part.rows.begin; r < part.rows.end; r++) {
            size_t at = (size_t)r * p->hp->n_ff + columns.begin;
            p->vector->silu_mul(gate->out + at, up->out + at, gate->out + at,
                                columns.end - columns.begin);
        }
    }
}

static void normalize(const struct pass *p, const float *weight)
{
    struct range rows = rows_to_prepare(p, p->n_rows);
    uint32_t n = p->hp->n_embd;
    for (uint32_t r = rows.begin; r < rows.end; r++)
        p->vector->rms_norm(p->e->state.x + (size_t)r * n, weight, p->input->normed + (size_t)r * n,
                            n, p->hp->norm_eps);
}

static void embed(const struct pass *p)
{
    struct cpu_state *s = &p->e->state;
    const struct weight *table = &p->e->model->token_embd;
    const struct tensor_type_info *type = tensor_type_info(table->type);
    uint32_t n = p->hp->n_embd;
    size_t row_bytes = (size_t)n / type->block_len * type->block_bytes;
    struct range rows = share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++) {
        const struct batch_row *row = &p->e->batch->rows[r];
        const uint8_t *from = (const uint8_t *)table->data + (size_t)row->token * row_bytes;
        dequantize(table->type, from, s->x + (size_t)r * n, n);
        rope_tables(p->hp, p->e->rope_frequencies, row->position,
                    s->cos + (size_t)r * p->hp->rope_dim, s->sin + (size_t)r * p->hp->rope_dim);
    }
}

/* Biases and rope for the thread's rows, and their keys and values to the pages. */
static void place_rows(const struct pass *p, uint32_t layer)
{
    struct cpu_state *s = &p->e->state;
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct hparams *hp = p->hp;
    uint32_t q_dim = hp->n_heads * hp->head_dim, kv_dim = hp->n_kv_heads * hp->head_dim;
    enum kv_type type = p->e->engine.limits.kv_type;
    struct range rows = share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++) {
        float *q = s->q + (size_t)r * q_dim, *k = s->k + (size_t)r * kv_dim;
        float *v = s->v + (size_t)r * kv_dim;
        if (l->q_bias)
            p->vector->add(q, l->q_bias, q_dim);
        if (l->k_bias)
            p->vector->add(k, l->k_bias, kv_dim);
        if (l->v_bias)
            p->vector->add(v, l->v_bias, kv_dim);
        const float *cos = s->cos + (size_t)r * hp->rope_dim;
        const float *sin = s->sin + (size_t)r * hp->rope_dim;
        for (uint32_t h = 0; h < hp->n_heads; h++)
            p->vector->rope(hp->rope_kind, cos, sin, hp->rope_dim, q + h * hp->head_dim);
        for (uint32_t h = 0; h < hp->n_kv_heads; h++)
            p->vector->rope(hp->rope_kind, cos, sin, hp->rope_dim, k + h * hp->head_dim);
        size_t page = p->e->batch->rows[r].page;
        p->vector->kv_store(type, k, cpu_keys(p->e, layer) + page * p->e->kv_row_bytes, kv_dim);
        p->vector->kv_store(type, v, cpu_values(p->e, layer) + page * p->e->kv_row_bytes, kv_dim);
    }
}

static void attend(const struct pass *p, uint32_t layer)
{
    struct cpu_state *s = &p->e->state;
    struct attention_io io = {cpu_keys(p->e, layer), cpu_values(p->e, layer), s->q, s->attended};
    attention_run(p->e->attention, &io, p->thread);
    meet(p);
    if (attention_must_combine(p->e->attention)) {
        attention_combine(p->e->attention, &io, p->thread);
        meet(p);
    }
}

static void attention_block(const struct pass *p, uint32_t layer)
{
    struct cpu_state *s = &p->e->state;
    const struct cpu_layer *l = &p->e->layers[layer];
    uint32_t n_embd = p->hp->n_embd, q_dim = p->hp->n_heads * p->hp->head_dim;
    const struct product qkv[] = {{l->q, s->q}, {l->k, s->k}, {l->v, s->v}};
    const struct product output = {l->output, s->added};
    uint32_t qkv_panels = matrix_panels(l->q) + matrix_panels(l->k) + matrix_panels(l->v);
    struct engine_times *times = &p->e->engine.times;

    normalize(p, l->attn_norm);
    prepare_input(p, qkv, 3, p->input->normed, n_embd, p->n_rows);
    lap(p, &times->other_ns);
    multiply(p, work_of(p, layer, PHASE_QKV, qkv_panels, p->n_rows), qkv, 3, p->input->normed,
             n_embd);
    meet(p);
    lap(p, &times->products_ns);
    place_rows(p, layer);
    meet(p);
    lap(p, &times->other_ns);
    attend(p, layer);
    lap(p, &times->attention_ns);
    prepare_input(p, &output, 1, s->attended, q_dim, p->n_rows);
    lap(p, &times->other_ns);
    multiply_and_add(p, work_of(p, layer, PHASE_OUTPUT, matrix_panels(l->output), p->n_rows),
                     l->output, s->attended, q_dim);
    meet(p);
    lap(p, &times->products_ns);
}

static void feed_forward_block(const struct pass *p, uint32_t layer)
{
    struct cpu_state *s = &p->e->state;
    const struct cpu_layer *l = &p->e->layers[layer];
    uint32_t n_embd = p->hp->n_embd, n_ff = p->hp->n_ff;
    const struct product gate = {l->gate, s->gate}, up = {l->up, s->up}, down = {l->down, s->added};
    const struct product both[] = {gate, up};
    struct engine_times *times = &p->e->engine.times;

    normalize(p, l->ffn_norm);
    prepare_input(p, both, 2, p->input->normed, n_embd, p->n_rows);
    lap(p, &times->other_ns);
    multiply_gated(p, work_of(p, layer, PHASE_GATE_UP, matrix_panels(l->gate), p->n_rows), &gate,
                   &up, p->input->normed, n_embd);
    meet(p);
    lap(p, &times->products_ns);
    prepare_input(p, &down, 1, s->gate, n_ff, p->n_rows);
    lap(p, &times->other_ns);
    multiply_and_add(p, work_of(p, layer, PHASE_DOWN, matrix_panels(l->down), p->n_rows), l->down,
                     s->gate, n_ff);
}

/* Thread 0 looks whether anyone still waits; all agree on what it saw. */
static bool is_stopped(const struct pass *p)
{
    struct cpu_engine *e = p->e;
    if (p->thread == 0)
        e->stopped = e->batch->live && atomic_load(e->batch->live) <= 0;
    meet(p);
    return e->stopped;
}

static void output_logits(const struct pass *p)
{
    struct cpu_engine *e = p->e;
    struct cpu_state *s = &e->state;
    const struct product head = {e->head, e->batch->logits};
    uint32_t n = p->hp->n_embd;
    struct range rows = rows_to_prepare(p, e->n_outputs);
    for (uint32_t i = rows.begin; i < rows.end; i++)
        p->vector->rms_norm(s->x + (size_t)s->outputs[i] * n, e->model->output_norm.data,
                            p->input->normed + (size_t)i * n, n, p->hp->norm_eps);
    prepare_input(p, &head, 1, p->input->normed, n, e->n_outputs);
    lap(p, &e->engine.times.other_ns);
    struct work work = work_of(p, p->hp->n_layers, 0, matrix_panels(e->head), e->n_outputs);
    multiply(p, work, &head, 1, p->input->normed, n);
}

static void forward_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct cpu_engine *e = context;
    struct engine_times *times = &e->engine.times;
    bool is_small = e->batch->n_rows <= SMALL_BATCH;
    const struct pass p = {
        .e = e,
        .hp = &e->model->hparams,
        .vector = e->kernels->vector,
        .matmul = e->kernels->matmul,
        .thread = thread,
        .n_threads = n_threads,
        .n_rows = e->batch->n_rows,
        .is_small = is_small,
        .input = is_small ? &e->state.own[thread] : &e->state.shared,
    };
    embed(&p);
    for (uint32_t layer = 0; layer < p.hp->n_layers; layer++) {
        bool stopped = is_stopped(&p);
        lap(&p, layer == 0 ? &times->other_ns : &times->products_ns);
        if (stopped)
            return;
        attention_block(&p, layer);
        feed_forward_block(&p, layer);
    }
    meet(&p);
    lap(&p, &times->products_ns);
    if (e->n_outputs > 0)
        output_logits(&p);
}

void cpu_forward(struct cpu_engine *e)
{
    struct engine_times *times = &e->engine.times;
    e->lap_ns = clock_now_ns();
    e->n_outputs = 0;
    for (uint32_t r = 0; r < e->batch->n_rows; r++)
        if (e->batch->rows[r].output == OUTPUT_LOGITS)
            e->state.outputs[e->n_outputs++] = r;
    attention_plan(e->attention, e->batch);
    e->stopped = false;
    for (uint32_t i = 0; i < cpu_phases(&e->model->hparams); i++)
        atomic_store_explicit(&e->taken[i], 0, memory_order_relaxed);
    parallel_run(e->pool, forward_job, e);
    lap_add(e, e->n_outputs > 0 && !e->stopped ? &times->products_ns : &times->other_ns);
}
