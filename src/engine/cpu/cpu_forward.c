/* One forward pass of a batch, by all threads. Between two attentions rows do not meet, so there
 * are two ways to share the work:
 *
 *   many rows   each thread takes some rows, through a whole layer, then the next ones. What it
 *               makes on the way stays in its cache, and it waits for no one.
 *   few rows    (or a layer that is larger than a cache) all threads work on all rows, and share
 *               the outputs of products; they meet at a barrier before what others wrote is read.
 *
 * A team is who works on some rows: one thread, or all. Attention is always shared by all threads.
 * What a newcomer gets wrong: a thread may only split what is summed nowhere, so that no bit
 * depends on the number of threads. */
#include "engine/cpu/cpu_internal.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/rope.h"

/* One thread's view of the work on some rows. */
struct pass {
    struct cpu_engine *e;
    const struct hparams *hp;
    const struct vector_kernels *vector;
    const struct matmul_kernels *matmul;
    uint32_t thread;
    uint32_t member, n_members;   /* of the team: n_members is 1 or all threads */
    uint32_t first, n_rows;       /* of the batch; arrays of struct cpu_rows begin with the first */
    bool prepares_alone;          /* every member has inputs of its own */
    const struct cpu_rows *input; /* normed, quantized */
    const struct cpu_rows *rows;  /* the rest */
};

static struct range share(const struct pass *p, uint32_t n)
{
    return (struct range){(uint32_t)((uint64_t)n * p->member / p->n_members),
                          (uint32_t)((uint64_t)n * (p->member + 1) / p->n_members)};
}

/* All threads have come here. */
static void meet(const struct pass *p)
{
    parallel_barrier(p->e->pool, p->thread);
}

/* All members of the team have. */
static void meet_team(const struct pass *p)
{
    if (p->n_members > 1)
        meet(p);
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
    return p->prepares_alone ? (struct range){0, n} : share(p, n);
}

/* Brings rows of x, [n_rows][cols], into the form that the products want. The whole team has its
 * input when it returns. */
static void prepare_input(const struct pass *p, const struct product *products, uint32_t n,
                          const float *x, uint32_t cols, uint32_t n_rows)
{
    struct range rows = rows_to_prepare(p, n_rows);
    if (wants_quantized(products, n))
        for (uint32_t r = rows.begin; r < rows.end; r++)
            p->matmul->quantize_row(x + (size_t)r * cols, cols, r, p->input->quantized);
    if (!p->prepares_alone)
        meet_team(p);
}

static struct work work_of(const struct pass *p, uint32_t layer, uint32_t phase, uint32_t n_panels,
                           uint32_t n_rows)
{
    return work_begin(n_panels, n_rows, p->member, p->n_members,
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
    struct product product = {m, p->rows->added};
    uint32_t n_embd = p->hp->n_embd;
    float *x = p->e->state.x + (size_t)p->first * n_embd;
    for (struct work_part part; work_next(&work, &part);) {
        struct range columns = part_columns(m, &part);
        multiply_part(p, &product, input, cols, &part);
        for (uint32_t r = part.rows.begin; r < part.rows.end; r++) {
            size_t at = (size_t)r * n_embd + columns.begin;
            p->vector->add(x + at, product.out + at, columns.end - columns.begin);
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
        p->vector->rms_norm(p->e->state.x + (size_t)(p->first + r) * n, weight,
                            p->input->normed + (size_t)r * n, n, p->hp->norm_eps);
}

static void embed(const struct pass *p)
{
    struct cpu_state *s = &p->e->state;
    const struct weight *table = &p->e->model->token_embd;
    const struct tensor_type_info *type = tensor_type_info(table->type);
    uint32_t n = p->hp->n_embd, rope_dim = p->hp->rope_dim;
    size_t row_bytes = (size_t)n / type->block_len * type->block_bytes;
    struct range rows = share(p, p->n_rows);
    for (size_t r = p->first + rows.begin; r < p->first + rows.end; r++) {
        const struct batch_row *row = &p->e->batch->rows[r];
        const uint8_t *from = (const uint8_t *)table->data + (size_t)row->token * row_bytes;
        dequantize(table->type, from, s->x + r * n, n);
        rope_tables(p->hp, p->e->rope_frequencies, row->position, s->cos + r * rope_dim,
                    s->sin + r * rope_dim);
    }
}

/* Biases and rope for a row, of the batch and of the team, and its keys and values to the page. */
static void place_row(const struct pass *p, uint32_t layer, size_t r, size_t local)
{
    struct cpu_state *s = &p->e->state;
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct hparams *hp = p->hp;
    uint32_t q_dim = hp->n_heads * hp->head_dim, kv_dim = hp->n_kv_heads * hp->head_dim;
    float *q = s->q + r * q_dim, *k = p->rows->k + local * kv_dim, *v = p->rows->v + local * kv_dim;
    if (l->q_bias)
        p->vector->add(q, l->q_bias, q_dim);
    if (l->k_bias)
        p->vector->add(k, l->k_bias, kv_dim);
    if (l->v_bias)
        p->vector->add(v, l->v_bias, kv_dim);
    const float *cos = s->cos + r * hp->rope_dim, *sin = s->sin + r * hp->rope_dim;
    for (uint32_t h = 0; h < hp->n_heads; h++)
        p->vector->rope(hp->rope_kind, cos, sin, hp->rope_dim, q + h * hp->head_dim);
    for (uint32_t h = 0; h < hp->n_kv_heads; h++)
        p->vector->rope(hp->rope_kind, cos, sin, hp->rope_dim, k + h * hp->head_dim);
    enum kv_type type = p->e->engine.limits.kv_type;
    size_t at = p->e->batch->rows[r].page * p->e->kv_row_bytes;
    p->vector->kv_store(type, k, cpu_keys(p->e, layer) + at, kv_dim);
    p->vector->kv_store(type, v, cpu_values(p->e, layer) + at, kv_dim);
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

/* From x to queries, and to keys and values in their pages. */
static void before_attention(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    uint32_t n_embd = p->hp->n_embd, q_dim = p->hp->n_heads * p->hp->head_dim;
    float *q = p->e->state.q + (size_t)p->first * q_dim;
    const struct product qkv[] = {{l->q, q}, {l->k, p->rows->k}, {l->v, p->rows->v}};
    uint32_t qkv_panels = matrix_panels(l->q) + matrix_panels(l->k) + matrix_panels(l->v);
    struct engine_times *times = &p->e->engine.times;

    normalize(p, l->attn_norm);
    prepare_input(p, qkv, 3, p->input->normed, n_embd, p->n_rows);
    lap(p, &times->other_ns);
    multiply(p, work_of(p, layer, PHASE_QKV, qkv_panels, p->n_rows), qkv, 3, p->input->normed,
             n_embd);
    meet_team(p);
    lap(p, &times->products_ns);
    struct range rows = share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        place_row(p, layer, p->first + r, r);
    lap(p, &times->other_ns);
}

/* From what was attended to the next layer's x. */
static void after_attention(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    uint32_t n_embd = p->hp->n_embd, n_ff = p->hp->n_ff, q_dim = p->hp->n_heads * p->hp->head_dim;
    const float *attended = p->e->state.attended + (size_t)p->first * q_dim;
    const struct product output = {l->output, p->rows->added}, down = {l->down, p->rows->added};
    const struct product gated[] = {{l->gate, p->rows->gate}, {l->up, p->rows->up}};
    struct engine_times *times = &p->e->engine.times;

    prepare_input(p, &output, 1, attended, q_dim, p->n_rows);
    lap(p, &times->other_ns);
    multiply_and_add(p, work_of(p, layer, PHASE_OUTPUT, matrix_panels(l->output), p->n_rows),
                     l->output, attended, q_dim);
    meet_team(p);
    lap(p, &times->products_ns);

    normalize(p, l->ffn_norm);
    prepare_input(p, gated, 2, p->input->normed, n_embd, p->n_rows);
    lap(p, &times->other_ns);
    multiply_gated(p, work_of(p, layer, PHASE_GATE_UP, matrix_panels(l->gate), p->n_rows),
                   &gated[0], &gated[1], p->input->normed, n_embd);
    meet_team(p);
    lap(p, &times->products_ns);
    prepare_input(p, &down, 1, p->rows->gate, n_ff, p->n_rows);
    lap(p, &times->other_ns);
    multiply_and_add(p, work_of(p, layer, PHASE_DOWN, matrix_panels(l->down), p->n_rows), l->down,
                     p->rows->gate, n_ff);
    meet_team(p);
    lap(p, &times->products_ns);
}

/* What lies between the attention of the layer before and that of this one. */
static void between_attentions(const struct pass *p, uint32_t layer)
{
    if (layer > 0)
        after_attention(p, layer - 1);
    else
        embed(p);
    if (layer == 0)
        meet_team(p);
    if (layer < p->hp->n_layers)
        before_attention(p, layer);
}

/* The next rows that no thread has taken yet: fewer towards the end, so that all end together. */
static bool take_rows(const struct cpu_engine *e, uint32_t layer, struct range *rows)
{
    atomic_uint *n_taken = &e->taken[layer * PHASES_OF_LAYER + PHASE_ROWS];
    uint32_t n_rows = e->batch->n_rows, n_threads = e->engine.limits.n_threads;
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
    struct work work = work_of(p, p->hp->n_layers, PHASE_OUTPUT, matrix_panels(e->head),
                               e->n_outputs);
    multiply(p, work, &head, 1, p->input->normed, n);
}

/* All threads on `n_rows` rows, the whole batch or those that give logits. */
static struct pass pass_together(struct cpu_engine *e, uint32_t thread, uint32_t n_rows)
{
    bool is_small = n_rows <= SMALL_BATCH;
    return (struct pass){
        .e = e,
        .hp = &e->model->hparams,
        .vector = e->kernels->vector,
        .matmul = e->kernels->matmul,
        .thread = thread,
        .member = thread,
        .n_members = e->engine.limits.n_threads,
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
        lap(&all, &times->products_ns);
        if (stopped)
            return;
        if (layer == all.hp->n_layers)
            break;
        attend(&all, layer);
        lap(&all, &times->attention_ns);
    }
    if (e->n_outputs > 0) {
        struct pass p = pass_together(e, thread, e->n_outputs);
        output_logits(&p);
    }
}

/* Whether threads take rows of their own: if there are enough for all, and the weights of a layer
 * stay in a cache from one taking to the next. */
static bool goes_by_rows(const struct cpu_engine *e)
{
    const struct engine_cost *cost = &e->engine.info.cost;
    return e->batch->n_rows >= 2 * ROW_TILE * e->engine.limits.n_threads &&
           cost->layer_bytes / e->model->hparams.n_layers <= LAYER_CACHE_BYTES;
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
    e->by_rows = goes_by_rows(e);
    e->stopped = false;
    for (uint32_t i = 0; i < cpu_phases(&e->model->hparams); i++)
        atomic_store_explicit(&e->taken[i], 0, memory_order_relaxed);
    parallel_run(e->pool, forward_job, e);
    lap_add(e, e->n_outputs > 0 && !e->stopped ? &times->products_ns : &times->other_ns);
}
