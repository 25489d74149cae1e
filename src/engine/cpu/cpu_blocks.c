/* From the attention's result to the next layer's x: the output projection, the feed-forward block
 * and the per-layer input. Each is added to x, after a norm of its own where the model has one.
 * Careful: parallel blocks (is_parallel) both read x as it was before attention, so the
 * feed-forward block runs first; the order of the additions does not matter. */
#include <math.h>

#include "engine/cpu/cpu_pass.h"

static void attention_output(const struct pass *p, uint32_t layer, float out_scale)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct layer_shape *shape = &p->hp->layers[layer];
    const struct block_end end = {w->attn_post_norm, p->hp->residual_scale, out_scale};
    const struct product output = product_of(l->output, p->rows->added, w->output_bias);
    bool is_latent = p->hp->mla.kv_rank > 0;
    uint32_t cols = shape->n_heads * (is_latent ? p->hp->mla.value_dim : shape->value_dim);
    const float *attended = is_latent ? pass_latent_values(p, layer)
                                      : p->e->state.attended + (size_t)p->first * cols;
    struct rows_in in = {attended, cols, p->input->quantized};
    pass_prepare(p, &output, 1, &in, p->n_rows);
    pass_lap(p, &p->e->engine.times.other_ns);
    pass_end_block(p, pass_work(p, layer, PHASE_OUTPUT, matrix_panels(l->output), p->n_rows),
                   l->output, w->output_bias, &in, &end);
    pass_lap(p, &p->e->engine.times.products_ns);
}

static void dense_block(const struct pass *p, uint32_t layer, const float *norm,
                        const struct block_end *end)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct product gated[] = {product_of(l->gate, p->rows->gate, w->gate_bias),
                                    product_of(l->up, p->rows->up, w->up_bias)};
    const struct product down = product_of(l->down, p->rows->added, w->down_bias);
    struct engine_times *times = &p->e->engine.times;

    struct rows_in in = {pass_normalize(p, norm, p->input->normed), p->hp->n_embd,
                         p->input->quantized};
    pass_prepare(p, gated, 2, &in, p->n_rows);
    pass_lap(p, &times->other_ns);
    pass_multiply_gated(p, pass_work(p, layer, PHASE_GATE_UP, matrix_panels(l->gate), p->n_rows),
                        &gated[0], &gated[1], NULL, 0, &in);
    pass_meet_team(p);
    pass_lap(p, &times->products_ns);

    struct rows_in hidden = {p->rows->gate, p->hp->layers[layer].n_ff, p->input->quantized};
    pass_prepare(p, &down, 1, &hidden, p->n_rows);
    pass_lap(p, &times->other_ns);
    pass_end_block(p, pass_work(p, layer, PHASE_DOWN, matrix_panels(l->down), p->n_rows), l->down,
                   w->down_bias, &hidden, end);
    pass_lap(p, &times->products_ns);
}

static void feed_forward(const struct pass *p, uint32_t layer, float out_scale)
{
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct layer_shape *shape = &p->hp->layers[layer];
    const struct block_end end = {w->ffn_post_norm, p->hp->residual_scale, out_scale};
    const float *norm = p->hp->is_parallel ? w->attn_norm : w->ffn_norm;
    if (shape->has_experts)
        pass_experts(p, layer, norm, &end);
    else if (shape->n_ff)
        dense_block(p, layer, norm, &end);
}

/* ---- per-layer inputs --------------------------------------------------------------------- */

static size_t layer_inputs_width(const struct hparams *hp)
{
    return (size_t)hp->n_layers * hp->n_embd_layer;
}

static void layer_input_row(const struct pass *p, size_t row)
{
    const struct hparams *hp = p->hp;
    const struct model *m = p->e->model;
    uint32_t n = hp->n_embd_layer, width = (uint32_t)layer_inputs_width(hp);
    float *inputs = p->e->state.layer_inputs + row * width;
    float *embedded = p->e->state.layer_embd[p->thread];
    uint32_t token = (uint32_t)p->e->batch->rows[row].value;
    weight_floats(&m->layer_embd, token, 0, width, embedded);
    p->elementwise->scale(inputs, (float)(1 / sqrt(hp->n_embd)), width);
    for (uint32_t i = 0; i < hp->n_layers; i++)
        p->elementwise->norm(hp->norm, inputs + (size_t)i * n, m->layer_proj_norm,
                             inputs + (size_t)i * n, n, hp->norm_eps);
    p->elementwise->add_scaled(inputs, embedded, (float)sqrt(n), width);
    p->elementwise->scale(inputs, (float)sqrt(0.5), width);
}

void pass_layer_inputs(const struct pass *p)
{
    size_t width = layer_inputs_width(p->hp);
    const struct packed_matrix *m = p->e->layer_proj;
    const struct product product = product_of(m, p->e->state.layer_inputs + p->first * width, NULL);
    struct rows_in in = {pass_x(p), p->hp->n_embd, p->input->quantized};
    pass_prepare(p, &product, 1, &in, p->n_rows);
    pass_multiply(p, pass_work(p, 0, PHASE_LAYER_PROJ, matrix_panels(m), p->n_rows), &product, 1,
                  &in);
    pass_meet_team(p);
    struct range rows = pass_share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        layer_input_row(p, p->first + r);
    pass_meet_team(p);
}

static void layer_block(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct block_end end = {w->layer_post_norm, 1.0f, w->out_scale};
    const struct product gate = product_of(l->layer_gate, p->rows->gate, NULL), none = {0};
    const struct product output = product_of(l->layer_output, p->rows->added, NULL);
    size_t width = layer_inputs_width(p->hp);
    const float *inputs = p->e->state.layer_inputs + p->first * width +
                          (size_t)layer * p->hp->n_embd_layer;
    struct rows_in in = {pass_x(p), p->hp->n_embd, p->input->quantized};
    pass_prepare(p, &gate, 1, &in, p->n_rows);
    pass_multiply_gated(
        p, pass_work(p, layer, PHASE_LAYER_GATE, matrix_panels(l->layer_gate), p->n_rows), &gate,
        &none, inputs, width, &in);
    pass_meet_team(p);
    struct rows_in gated = {p->rows->gate, p->hp->n_embd_layer, p->input->quantized};
    pass_prepare(p, &output, 1, &gated, p->n_rows);
    pass_end_block(
        p, pass_work(p, layer, PHASE_LAYER_OUTPUT, matrix_panels(l->layer_output), p->n_rows),
        l->layer_output, NULL, &gated, &end);
    pass_lap(p, &p->e->engine.times.products_ns);
}

/* ------------------------------------------------------------------------------------------- */

void pass_after_attention(const struct pass *p, uint32_t layer)
{
    const struct layer_shape *shape = &p->hp->layers[layer];
    float out_scale = p->e->model->layers[layer].out_scale;
    bool has_ffn = shape->n_ff || shape->has_experts, has_input = p->hp->n_embd_layer > 0;
    if (p->hp->is_parallel) {
        feed_forward(p, layer, 1.0f);
        attention_output(p, layer, has_input ? 1.0f : out_scale);
    } else {
        attention_output(p, layer, has_ffn || has_input ? 1.0f : out_scale);
        feed_forward(p, layer, has_input ? 1.0f : out_scale);
    }
    if (has_input)
        layer_block(p, layer);
}
