/* Matrix products and the steps around them, as the parts of a forward pass need them; see
 * cpu_pass.h. A thread must finish its own parts (bias, gate, add) before the barrier, because no
 * other thread knows which parts those were. */
#include "engine/cpu/cpu_pass.h"

#include "base/clock.h"

struct range pass_share(const struct pass *p, uint32_t n)
{
    return (struct range){(uint32_t)((uint64_t)n * p->member / p->n_members),
                          (uint32_t)((uint64_t)n * (p->member + 1) / p->n_members)};
}

void pass_meet(const struct pass *p)
{
    parallel_barrier(p->e->pool, p->thread);
}

void pass_meet_team(const struct pass *p)
{
    if (p->n_members > 1)
        pass_meet(p);
}

void pass_lap(const struct pass *p, uint64_t *time_ns)
{
    if (p->thread != 0)
        return;
    uint64_t now_ns = clock_now_ns();
    *time_ns += now_ns - p->e->lap_ns;
    p->e->lap_ns = now_ns;
}

struct range pass_rows_to_prepare(const struct pass *p, uint32_t n)
{
    return p->prepares_alone ? (struct range){0, n} : pass_share(p, n);
}

static bool wants_quantized(const struct product *products, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (products[i].matrix && matrix_act_kind(products[i].matrix) == ACT_Q8)
            return true;
    return false;
}

void pass_quantize_row(const struct pass *p, const float *x, uint32_t cols, uint32_t row,
                       struct act_block *to)
{
    activations_quantize(p->matmul, p->e->quantized_kind, x, cols, row, to);
}

void pass_quantize(const struct pass *p, const struct product *products, uint32_t n,
                   const struct rows_in *in, uint32_t n_rows)
{
    struct range rows = pass_rows_to_prepare(p, n_rows);
    if (wants_quantized(products, n))
        for (uint32_t r = rows.begin; r < rows.end; r++)
            pass_quantize_row(p, in->x + (size_t)r * in->cols, in->cols, r, in->quantized);
}

void pass_prepare(const struct pass *p, const struct product *products, uint32_t n,
                  const struct rows_in *in, uint32_t n_rows)
{
    pass_quantize(p, products, n, in, n_rows);
    if (!p->prepares_alone)
        pass_meet_team(p);
}

const float *pass_normalize(const struct pass *p, const float *weight, float *out)
{
    struct range rows = pass_rows_to_prepare(p, p->n_rows);
    uint32_t n = p->hp->n_embd;
    const float *x = pass_x(p);
    if (!weight)
        return x;
    for (size_t r = rows.begin; r < rows.end; r++)
        p->elementwise->norm(p->hp->norm, x + r * n, weight, out + r * n, n, p->hp->norm_eps);
    return out;
}

struct work pass_work(const struct pass *p, uint32_t layer, enum cpu_phase phase, uint32_t n_panels,
                      uint32_t n_rows)
{
    return work_begin(n_panels, n_rows, p->member, p->n_members,
                      &p->e->taken[layer * PHASES_OF_LAYER + phase]);
}

struct range part_columns(const struct packed_matrix *m, const struct work_part *part)
{
    uint32_t end = part->panels.end * PANEL, last = matrix_rows(m);
    return (struct range){part->panels.begin * PANEL, end < last ? end : last};
}

void pass_multiply_part(const struct pass *p, const struct product *product,
                        const struct rows_in *in, const struct work_part *part)
{
    const struct packed_matrix *m = product->matrix;
    enum act_kind kind = matrix_act_kind(m) == ACT_F32 ? ACT_F32 : p->e->quantized_kind;
    struct activations all = {kind, part->rows.end, in->cols, in->x, in->quantized};
    struct activations rows = activations_rows(&all, part->rows.begin, part->rows.end);
    struct range columns = part_columns(m, part);
    float *out = product->out + part->rows.begin * product->stride + columns.begin;
    matrix_multiply(p->matmul, m, &rows, part->panels.begin, part->panels.end, out,
                    product->stride);
    for (uint32_t r = 0; product->bias && r < rows.n_rows; r++)
        p->elementwise->add_scaled(out + r * product->stride, product->bias + columns.begin, 1.0f,
                                   columns.end - columns.begin);
}

void pass_multiply(const struct pass *p, struct work work, const struct product *products,
                   uint32_t n, const struct rows_in *in)
{
    for (struct work_part all; work_next(&work, &all);) {
        for (uint32_t i = 0, at = 0; i < n; i++) {
            uint32_t end = at + matrix_panels(products[i].matrix);
            uint32_t from = all.panels.begin > at ? all.panels.begin : at;
            uint32_t to = all.panels.end < end ? all.panels.end : end;
            struct work_part part = {all.rows, {from - at, to - at}};
            if (from < to)
                pass_multiply_part(p, &products[i], in, &part);
            at = end;
        }
    }
}

void pass_multiply_gated(const struct pass *p, struct work work, const struct product *gate,
                         const struct product *up, const float *times, size_t times_stride,
                         const struct rows_in *in)
{
    const struct hparams *hp = p->hp;
    for (struct work_part part; work_next(&work, &part);) {
        struct range columns = part_columns(gate->matrix, &part);
        pass_multiply_part(p, gate, in, &part);
        if (up->matrix)
            pass_multiply_part(p, up, in, &part);
        for (size_t r = part.rows.begin; r < part.rows.end; r++) {
            float *g = gate->out + r * gate->stride + columns.begin;
            const float *factor = up->matrix ? up->out + r * up->stride + columns.begin
                                  : times    ? times + r * times_stride + columns.begin
                                             : NULL;
            p->elementwise->activate(hp->activation, hp->activation_limit, g, factor, g,
                                     columns.end - columns.begin);
        }
    }
}

static void end_columns(const struct pass *p, const struct work_part *part,
                        const struct product *product, const struct block_end *end)
{
    struct range columns = part_columns(product->matrix, part);
    uint32_t n = columns.end - columns.begin;
    for (size_t r = part->rows.begin; r < part->rows.end; r++) {
        size_t at = r * p->hp->n_embd + columns.begin;
        p->elementwise->add_scaled(pass_x(p) + at, product->out + at, end->scale, n);
        if (end->out_scale != 1.0f)
            p->elementwise->scale(pass_x(p) + at, end->out_scale, n);
    }
}

void pass_end_row(const struct pass *p, uint32_t row, float *added, const struct block_end *end)
{
    uint32_t n = p->hp->n_embd;
    float *x = pass_x(p) + (size_t)row * n;
    if (end->post_norm)
        p->elementwise->norm(p->hp->norm, added, end->post_norm, added, n, p->hp->norm_eps);
    p->elementwise->add_scaled(x, added, end->scale, n);
    if (end->out_scale != 1.0f)
        p->elementwise->scale(x, end->out_scale, n);
}

void pass_end_block(const struct pass *p, struct work work, const struct packed_matrix *m,
                    const float *bias, const struct rows_in *in, const struct block_end *end)
{
    struct product product = product_of(m, p->rows->added, bias);
    for (struct work_part part; work_next(&work, &part);) {
        pass_multiply_part(p, &product, in, &part);
        if (!end->post_norm)
            end_columns(p, &part, &product, end);
    }
    pass_meet_team(p);
    if (!end->post_norm)
        return;
    struct range rows = pass_share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        pass_end_row(p, r, product.out + (size_t)r * p->hp->n_embd, end);
    pass_meet_team(p);
}
