/* A feed-forward block with experts, by all threads. The rows of a batch are grouped by expert, so
 * that an expert's weights are read once for all its rows, and threads share (expert, panel) pairs
 * without a barrier between experts:
 *
 *   router │ choose, group │ gate and up of the chosen │ down of the chosen │ add up
 *          barrier         barrier                     barrier              barrier
 *
 * The dense block and the shared experts, if any, run in the same phases. An expert's result for a
 * row is stored and added in order of rank, so a row's sum does not depend on how the batch's rows
 * were distributed among experts. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/cpu_pass.h"

enum { PIECES_PER_THREAD = 16, NO_ITEM = UINT32_MAX };

/* The layer's inputs and blocks, as seen by this thread. */
struct mixture {
    const struct cpu_layer *layer;
    const struct layer_weights *weights;
    uint32_t index;
    struct rows_in in, router_in, dense_hidden, shared_hidden;
    const float *expert_input; /* [n_rows][n_embd] */
    struct product router;
    struct product gated[4]; /* gate and up of the dense block, and of the shared experts */
    struct product dense_down, shared_down;
};

static void router_input(const struct pass *p, const struct mixture *m, float *out)
{
    uint32_t n = p->hp->n_embd;
    struct range rows = pass_rows_to_prepare(p, p->n_rows);
    for (size_t r = rows.begin; r < rows.end; r++) {
        p->elementwise->norm(p->hp->norm, pass_x(p) + r * n, NULL, out + r * n, n, p->hp->norm_eps);
        p->elementwise->multiply(out + r * n, m->weights->router_scale, n);
        p->elementwise->scale(out + r * n, (float)(1 / sqrt(n)), n);
    }
}

/* Applies the norms, and prepares the inputs of all products except those of experts. */
static struct mixture mixture_begin(const struct pass *p, uint32_t layer, const float *norm)
{
    const struct hparams *hp = p->hp;
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct cpu_rows *rows = p->rows, *input = p->input;
    struct mixture m = {
        .layer = l,
        .weights = w,
        .index = layer,
        .router = product_of(l->router, p->e->state.experts.logits, w->router_bias),
        .gated = {product_of(l->gate, rows->gate, w->gate_bias),
                  product_of(l->up, rows->up, w->up_bias),
                  product_of(l->shared_gate, rows->shared_gate, NULL),
                  product_of(l->shared_up, rows->shared_up, NULL)},
        .dense_down = product_of(l->down, rows->added, w->down_bias),
        .dense_hidden = {rows->gate, hp->layers[layer].n_ff, input->quantized},
        .shared_down = product_of(l->shared_down, rows->shared_added, NULL),
        .shared_hidden = {rows->shared_gate, hp->router.n_ff_shared, input->shared_quantized},
    };
    m.in = (struct rows_in){pass_normalize(p, norm, input->normed), hp->n_embd, input->quantized};
    m.router_in = (struct rows_in){m.in.x, hp->n_embd, input->router_quantized};
    m.expert_input = w->expert_norm ? pass_normalize(p, w->expert_norm, input->expert_normed)
                                    : m.in.x;
    if (hp->router.norms_input) {
        router_input(p, &m, input->router_normed);
        m.router_in.x = input->router_normed;
    }
    pass_quantize(p, m.gated, 4, &m.in, p->n_rows);
    pass_prepare(p, &m.router, 1, &m.router_in, p->n_rows);
    return m;
}

static struct work whole_work(const struct pass *p, const struct mixture *m, enum cpu_phase phase,
                              const struct product *product)
{
    return pass_work(p, m->index, phase, matrix_panels(product->matrix), p->n_rows);
}

/* ---- choosing experts --------------------------------------------------------------------- */

static void choose(const struct pass *p, const struct mixture *m, struct range rows)
{
    struct cpu_experts *x = &p->e->state.experts;
    const struct router *router = &p->hp->router;
    for (size_t r = rows.begin; r < rows.end; r++)
        router_choose(router, p->elementwise, m->weights->router_correction,
                      m->weights->expert_scale, x->logits + r * router->n_experts,
                      &x->gathered[p->thread].router, x->choices + r * router->n_chosen);
}

/* Assigns a slot to every choice, and cuts the slots into items. Runs on one thread. */
static void group(struct cpu_experts *x, const struct router *router, uint32_t n_rows)
{
    uint32_t n_choices = n_rows * router->n_chosen, first = 0;
    memset(x->next_slot, 0, (router->n_experts + 1) * sizeof *x->next_slot);
    for (uint32_t i = 0; i < n_choices; i++)
        x->next_slot[x->choices[i].expert + 1]++;
    x->n_items = 0;
    for (uint32_t e = 0; e < router->n_experts; e++) {
        uint32_t n = x->next_slot[e + 1];
        for (uint32_t at = 0; at < n; at += ROW_UNIT)
            x->items[x->n_items++] = (struct cpu_expert_rows){
                e, first + at, n - at < ROW_UNIT ? n - at : ROW_UNIT};
        x->next_slot[e] = first;
        first += n;
    }
    for (uint32_t i = 0; i < n_choices; i++) {
        uint32_t slot = x->next_slot[x->choices[i].expert]++;
        x->slot_of[i] = slot;
        x->row_of[slot] = i / router->n_chosen;
    }
}

/* When this returns, all threads know the items. If there are few rows, one thread does all of it,
 * which saves a barrier. */
static void choose_and_group(const struct pass *p, const struct mixture *m)
{
    struct cpu_experts *x = &p->e->state.experts;
    bool is_small = p->n_rows <= SMALL_BATCH;
    if (!is_small) {
        choose(p, m, pass_share(p, p->n_rows));
        pass_meet_team(p);
    } else if (p->member == 0) {
        choose(p, m, (struct range){0, p->n_rows});
    }
    if (p->member == 0)
        group(x, &p->hp->router, p->n_rows);
    pass_meet_team(p);
}

/* ---- experts ------------------------------------------------------------------------------ */

/* Gathers the rows of an item as the input of its expert's products. */
static struct rows_in gather(const struct pass *p, const struct mixture *m, uint32_t index)
{
    struct cpu_experts *x = &p->e->state.experts;
    struct cpu_gathered *g = &x->gathered[p->thread];
    const struct cpu_expert_rows *item = &x->items[index];
    const struct cpu_expert *expert = &m->layer->experts[item->expert];
    uint32_t n = p->hp->n_embd;
    enum act_kind gate = matrix_act_kind(expert->gate);
    enum act_kind up = expert->up ? matrix_act_kind(expert->up) : gate;
    for (uint32_t i = 0; i < item->n_rows && g->item != index; i++) {
        const float *row = m->expert_input + (size_t)x->row_of[item->first + i] * n;
        if (gate == ACT_F32 || up == ACT_F32)
            memcpy(g->input + (size_t)i * n, row, n * sizeof *row);
        if (gate == ACT_Q8 || up == ACT_Q8)
            pass_quantize_row(p, row, n, i, g->quantized);
    }
    g->item = index;
    return (struct rows_in){g->input, n, g->quantized};
}

static void expert_up(const struct pass *p, const struct mixture *m, uint32_t index,
                      struct range panels)
{
    struct cpu_experts *x = &p->e->state.experts;
    struct cpu_gathered *g = &x->gathered[p->thread];
    const struct cpu_expert_rows *item = &x->items[index];
    const struct cpu_expert *expert = &m->layer->experts[item->expert];
    const struct expert_weights *w = &m->weights->experts[item->expert];
    const struct work_part part = {{0, item->n_rows}, panels};
    size_t n_ff = p->hp->router.n_ff;
    struct product gate = product_of(expert->gate, x->hidden + item->first * n_ff, w->gate_bias);
    struct product up = product_of(expert->up, g->up, w->up_bias);
    struct rows_in in = gather(p, m, index);
    pass_multiply_part(p, &gate, &in, &part);
    if (up.matrix)
        pass_multiply_part(p, &up, &in, &part);
    struct range columns = part_columns(gate.matrix, &part);
    for (size_t r = 0; r < item->n_rows; r++)
        p->elementwise->activate(p->hp->activation, p->hp->activation_limit,
                                 gate.out + r * n_ff + columns.begin,
                                 up.matrix ? up.out + r * n_ff + columns.begin : NULL,
                                 gate.out + r * n_ff + columns.begin, columns.end - columns.begin);
}

static void expert_down(const struct pass *p, const struct mixture *m, uint32_t index,
                        struct range panels)
{
    struct cpu_experts *x = &p->e->state.experts;
    struct cpu_gathered *g = &x->gathered[p->thread];
    const struct cpu_expert_rows *item = &x->items[index];
    const struct cpu_expert *expert = &m->layer->experts[item->expert];
    const struct work_part part = {{0, item->n_rows}, panels};
    uint32_t n_ff = p->hp->router.n_ff;
    const struct product down = product_of(expert->down,
                                           x->out + (size_t)item->first * p->hp->n_embd,
                                           m->weights->experts[item->expert].down_bias);
    struct rows_in in = {x->hidden + (size_t)item->first * n_ff, n_ff, g->quantized};
    if (g->item != index && matrix_act_kind(expert->down) == ACT_Q8)
        for (uint32_t i = 0; i < item->n_rows; i++)
            pass_quantize_row(p, in.x + (size_t)i * n_ff, n_ff, i, g->quantized);
    g->item = index;
    pass_multiply_part(p, &down, &in, &part);
}

typedef void expert_step(const struct pass *p, const struct mixture *m, uint32_t index,
                         struct range panels);

/* Runs the thread's share of the panels of all items; each item has n_panels. */
static void each_item(const struct pass *p, const struct mixture *m, enum cpu_phase phase,
                      uint32_t n_panels, expert_step *step)
{
    struct cpu_experts *x = &p->e->state.experts;
    atomic_uint *taken = &p->e->taken[m->index * PHASES_OF_LAYER + phase];
    uint64_t n_pairs = (uint64_t)x->n_items * n_panels;
    uint32_t pieces = p->n_rows <= SMALL_BATCH ? 1 : PIECES_PER_THREAD;
    struct work work = work_begin_pairs(n_pairs, p->member, p->n_members, pieces, taken);
    x->gathered[p->thread].item = NO_ITEM;
    for (uint64_t at, end; work_next_pairs(&work, &at, &end);) {
        while (at < end) {
            uint32_t item = (uint32_t)(at / n_panels), begin = (uint32_t)(at % n_panels);
            uint32_t n = end - at < n_panels - begin ? (uint32_t)(end - at) : n_panels - begin;
            step(p, m, item, (struct range){begin, begin + n});
            at += n;
        }
    }
}

/* ---- adding the results ------------------------------------------------------------------- */

/* Sums the chosen experts, into the place of the first. */
static float *add_experts(const struct pass *p, size_t row)
{
    struct cpu_experts *x = &p->e->state.experts;
    uint32_t n_chosen = p->hp->router.n_chosen, n = p->hp->n_embd;
    const struct router_choice *choices = x->choices + row * n_chosen;
    const uint32_t *slots = x->slot_of + row * n_chosen;
    float *sum = x->out + (size_t)slots[0] * n;
    p->elementwise->scale(sum, choices[0].weight, n);
    for (uint32_t i = 1; i < n_chosen; i++)
        p->elementwise->add_scaled(sum, x->out + (size_t)slots[i] * n, choices[i].weight, n);
    return sum;
}

/* The weight of the shared experts for a row. */
static float shared_share(const struct pass *p, const struct mixture *m, size_t row)
{
    const float *x = m->in.x + row * p->hp->n_embd, *w = m->weights->shared_router;
    if (!w)
        return 1.0f;
    double sum = 0;
    for (uint32_t i = 0; i < p->hp->n_embd; i++)
        sum += (double)x[i] * w[i];
    float share = (float)sum;
    p->elementwise->sigmoid(&share, 1);
    return share;
}

static void end_row(const struct pass *p, const struct mixture *m, uint32_t row,
                    const struct block_end *end)
{
    uint32_t n = p->hp->n_embd;
    float *sum = add_experts(p, row), *dense = p->rows->added + (size_t)row * n;
    if (m->weights->expert_post_norm)
        p->elementwise->norm(p->hp->norm, sum, m->weights->expert_post_norm, sum, n,
                             p->hp->norm_eps);
    if (m->layer->gate && m->weights->dense_post_norm)
        p->elementwise->norm(p->hp->norm, dense, m->weights->dense_post_norm, dense, n,
                             p->hp->norm_eps);
    if (m->layer->gate)
        p->elementwise->add_scaled(sum, dense, 1.0f, n);
    if (m->layer->shared_gate)
        p->elementwise->add_scaled(sum, p->rows->shared_added + (size_t)row * n,
                                   shared_share(p, m, row), n);
    pass_end_row(p, row, sum, end);
}

void pass_experts(const struct pass *p, uint32_t layer, const float *norm,
                  const struct block_end *end)
{
    assert(p->n_members == p->e->engine.info.n_threads && p->first == 0);
    struct engine_times *times = &p->e->engine.times;
    struct mixture m = mixture_begin(p, layer, norm);
    const struct cpu_layer *l = m.layer;
    pass_lap(p, &times->other_ns);

    pass_multiply(p, whole_work(p, &m, PHASE_ROUTER, &m.router), &m.router, 1, &m.router_in);
    if (l->gate)
        pass_multiply_gated(p, whole_work(p, &m, PHASE_GATE_UP, &m.gated[0]), &m.gated[0],
                            &m.gated[1], NULL, 0, &m.in);
    if (l->shared_gate)
        pass_multiply_gated(p, whole_work(p, &m, PHASE_SHARED_UP, &m.gated[2]), &m.gated[2],
                            &m.gated[3], NULL, 0, &m.in);
    pass_meet_team(p);
    pass_lap(p, &times->products_ns);

    pass_quantize(p, &m.dense_down, 1, &m.dense_hidden, p->n_rows);
    pass_quantize(p, &m.shared_down, 1, &m.shared_hidden, p->n_rows);
    choose_and_group(p, &m);
    pass_lap(p, &times->other_ns);

    if (l->gate)
        pass_multiply(p, whole_work(p, &m, PHASE_DOWN, &m.dense_down), &m.dense_down, 1,
                      &m.dense_hidden);
    if (l->shared_gate)
        pass_multiply(p, whole_work(p, &m, PHASE_SHARED_DOWN, &m.shared_down), &m.shared_down, 1,
                      &m.shared_hidden);
    each_item(p, &m, PHASE_EXPERTS_UP, matrix_panels(l->experts[0].gate), expert_up);
    pass_meet_team(p);
    each_item(p, &m, PHASE_EXPERTS_DOWN, matrix_panels(l->experts[0].down), expert_down);
    pass_meet_team(p);
    pass_lap(p, &times->products_ns);

    struct range rows = pass_share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        end_row(p, &m, r, end);
    pass_meet_team(p);
    pass_lap(p, &times->other_ns);
}
