/* Computes queries, keys and values from x, stores keys and values in their pages, and computes
 * attention. A team does this, see cpu_forward.c, except attention itself, which all threads share.
 *
 * Latent attention (MLA) keeps one key for all heads, [latent | rotated part], and its value is the
 * latent. A head's query is therefore projected into the latent space (k_b), and its result is
 * projected back (v_b). Each head has its own products, whose input is its part of the row, so rows
 * are gathered head by head. With its own inputs (prepares_alone), a thread prepares all rows, but
 * each row's keys and values are written by one thread only. */
#include <math.h>
#include <string.h>

#include "engine/cpu/cpu_pass.h"

static float temperature(const struct hparams *hp, uint32_t position)
{
    double periods = floor((double)position / hp->temperature_length);
    return (float)(1 + hp->temperature_scale * log(1 + periods));
}

static void norm_heads(const struct pass *p, const float *weight, enum qk_norm kind, float *x,
                       uint32_t n_heads, uint32_t dim)
{
    const struct hparams *hp = p->hp;
    if (kind == QK_NORM_WHOLE) {
        p->elementwise->norm(hp->norm, x, weight, x, n_heads * dim, hp->norm_eps);
        return;
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        const float *own = kind == QK_NORM_EACH_HEAD ? weight + h * dim : weight;
        p->elementwise->norm(hp->norm, x + h * dim, own, x + h * dim, dim, hp->norm_eps);
    }
}

/* Rotates a part of each head, from its first value on, for a row of the batch. */
static void turn_heads(const struct pass *p, uint32_t layer, size_t row, float *x, uint32_t n_heads,
                       size_t stride)
{
    uint32_t index = p->hp->layers[layer].rope;
    if (index == ROPE_NONE)
        return;
    const struct rope *rope = &p->hp->ropes[index];
    const float *cos = p->e->state.cos[index] + row * rope->dim;
    const float *sin = p->e->state.sin[index] + row * rope->dim;
    for (uint32_t h = 0; h < n_heads; h++)
        p->vector->rope(rope->kind, cos, sin, rope->dim, x + h * stride);
}

static void store_row(const struct pass *p, uint32_t layer, size_t row, const float *k,
                      const float *v)
{
    const struct cpu_kv *kv = &p->e->layers[layer].kv;
    const struct batch_row *r = &p->e->batch->rows[row];
    const struct layer_shape *shape = &p->hp->layers[layer];
    enum kv_type type = p->e->engine.limits.kv_type;
    size_t page = r->pages[kv->group];
    p->vector->kv_store(type, k, kv->keys + page * kv->key_bytes,
                        shape->n_kv_heads * shape->key_dim);
    if (v)
        p->vector->kv_store(type, v, kv->values + page * kv->value_bytes,
                            shape->n_kv_heads * shape->value_dim);
}

/* Applies norms and rope to a row, and stores its keys and values. `r` is the row's index in the
 * batch, `local` in the team. */
static void place_row(const struct pass *p, uint32_t layer, size_t r, size_t local)
{
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct layer_shape *shape = &p->hp->layers[layer];
    enum qk_norm kind = p->hp->qk_norm;
    uint32_t n_q = shape->n_heads * shape->key_dim, n_k = shape->n_kv_heads * shape->key_dim;
    uint32_t n_v = shape->n_kv_heads * shape->value_dim;
    float *q = p->e->state.q + r * n_q, *k = p->rows->k + local * n_k,
          *v = p->rows->v + local * n_v;
    if (w->q_norm)
        norm_heads(p, w->q_norm, kind, q, shape->n_heads, shape->key_dim);
    turn_heads(p, layer, r, q, shape->n_heads, shape->key_dim);
    if (p->hp->temperature_scale != 0.0f)
        p->elementwise->scale(q, temperature(p->hp, p->e->batch->rows[r].position), n_q);
    if (shape->kv_layer != layer)
        return;
    if (shape->values_are_keys)
        memcpy(v, k, n_v * sizeof *v);
    if (w->k_norm)
        norm_heads(p, w->k_norm, kind, k, shape->n_kv_heads, shape->key_dim);
    if (shape->norms_values)
        norm_heads(p, NULL, QK_NORM_HEADS, v, shape->n_kv_heads, shape->value_dim);
    turn_heads(p, layer, r, k, shape->n_kv_heads, shape->key_dim);
    store_row(p, layer, r, k, v);
}

static uint32_t panels_of(const struct product *products, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += matrix_panels(products[i].matrix);
    return sum;
}

/* Multiplies the rows of x after the attention norm. */
static void multiply_normed(const struct pass *p, uint32_t layer, const struct product *products,
                            uint32_t n)
{
    struct engine_times *times = &p->e->engine.times;
    const float *normed = pass_normalize(p, p->e->model->layers[layer].attn_norm, p->input->normed);
    struct rows_in in = {normed, p->hp->n_embd, p->input->quantized};
    pass_prepare(p, products, n, &in, p->n_rows);
    pass_lap(p, &times->other_ns);
    pass_multiply(p, pass_work(p, layer, PHASE_QKV, panels_of(products, n), p->n_rows), products, n,
                  &in);
    pass_meet_team(p);
    pass_lap(p, &times->products_ns);
}

/* ---- latent attention --------------------------------------------------------------------- */

/* Gathers `cols` values of each head, which are `stride` apart in rows of `width`, and quantises
 * them if the matrices need that. */
static void gather_heads(const struct pass *p, const struct packed_matrix *first, const float *x,
                         size_t width, size_t stride, uint32_t cols, uint32_t n_heads)
{
    struct range rows = pass_rows_to_prepare(p, p->n_rows);
    size_t quantized_bytes = activations_bytes(p->e->quantized_kind, p->n_rows, cols);
    for (uint32_t h = 0; h < n_heads; h++) {
        float *head = p->input->heads + (size_t)h * p->n_rows * cols;
        void *quantized = (uint8_t *)p->input->heads_quantized + h * quantized_bytes;
        for (uint32_t r = rows.begin; r < rows.end; r++) {
            memcpy(head + (size_t)r * cols, x + r * width + h * stride, cols * sizeof *head);
            if (matrix_act_kind(first) == ACT_Q8)
                pass_quantize_row(p, head + (size_t)r * cols, cols, r, quantized);
        }
    }
    if (!p->prepares_alone)
        pass_meet_team(p);
}

/* Multiplies each head's matrix with what gather_heads left, into `out`, [n_rows][out_width], where
 * heads are `out_stride` apart. */
static void multiply_heads(const struct pass *p, uint32_t layer, enum cpu_phase phase,
                           struct packed_matrix *const *matrices, uint32_t n_heads, uint32_t cols,
                           float *out, size_t out_width, size_t out_stride)
{
    uint32_t n_panels = matrix_panels(matrices[0]);
    size_t quantized_bytes = activations_bytes(p->e->quantized_kind, p->n_rows, cols);
    struct work work = pass_work(p, layer, phase, n_heads * n_panels, p->n_rows);
    for (struct work_part all; work_next(&work, &all);) {
        for (uint32_t at = all.panels.begin; at < all.panels.end;) {
            uint32_t h = at / n_panels, head_end = (h + 1) * n_panels;
            uint32_t end = all.panels.end < head_end ? all.panels.end : head_end;
            struct work_part part = {all.rows, {at - h * n_panels, end - h * n_panels}};
            struct product product = {matrices[h], out + h * out_stride, out_width, NULL};
            struct rows_in in = {
                p->input->heads + (size_t)h * p->n_rows * cols, cols,
                (void *)((uint8_t *)p->input->heads_quantized + h * quantized_bytes)};
            pass_multiply_part(p, &product, &in, &part);
            at = end;
        }
    }
}

/* Stores a row's key in its page, and the rotated part of its queries in place. */
static void place_latent_row(const struct pass *p, uint32_t layer, size_t r, size_t local)
{
    const struct mla_shape *mla = &p->hp->mla;
    const struct layer_shape *shape = &p->hp->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    uint32_t full_dim = mla->nope_dim + mla->rope_dim;
    const float *full = p->rows->q_full + local * shape->n_heads * full_dim;
    float *q = p->e->state.q + r * shape->n_heads * shape->key_dim;
    float *k = p->rows->k + local * shape->key_dim;
    p->elementwise->norm(NORM_RMS, k, w->kv_a_norm, k, mla->kv_rank, mla->norm_eps);
    turn_heads(p, layer, r, k + mla->kv_rank, 1, 0);
    store_row(p, layer, r, k, NULL);
    for (uint32_t h = 0; h < shape->n_heads; h++)
        memcpy(q + h * shape->key_dim + mla->kv_rank, full + h * full_dim + mla->nope_dim,
               mla->rope_dim * sizeof *q);
    turn_heads(p, layer, r, q + mla->kv_rank, shape->n_heads, shape->key_dim);
}

/* Queries through their own low-rank projection. */
static void multiply_queries(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct mla_shape *mla = &p->hp->mla;
    const struct product q_b = product_of(l->q_b, p->rows->q_full, NULL);
    struct range rows = pass_rows_to_prepare(p, p->n_rows);
    for (size_t r = rows.begin; r < rows.end; r++)
        p->elementwise->norm(NORM_RMS, p->rows->q_a + r * mla->q_rank, w->q_a_norm,
                             p->input->q_a_normed + r * mla->q_rank, mla->q_rank, mla->norm_eps);
    struct rows_in in = {p->input->q_a_normed, mla->q_rank, p->input->quantized};
    pass_prepare(p, &q_b, 1, &in, p->n_rows);
    pass_lap(p, &p->e->engine.times.other_ns);
    pass_multiply(p, pass_work(p, layer, PHASE_Q_B, matrix_panels(l->q_b), p->n_rows), &q_b, 1,
                  &in);
    pass_meet_team(p);
    pass_lap(p, &p->e->engine.times.products_ns);
}

static void before_latent_attention(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct mla_shape *mla = &p->hp->mla;
    const struct layer_shape *shape = &p->hp->layers[layer];
    uint32_t full_dim = mla->nope_dim + mla->rope_dim, n_heads = shape->n_heads;
    size_t q_width = (size_t)n_heads * shape->key_dim;
    float *q = p->e->state.q + p->first * q_width;
    const struct product products[] = {l->q_a ? product_of(l->q_a, p->rows->q_a, w->q_a_bias)
                                              : product_of(l->q, p->rows->q_full, w->q_bias),
                                       product_of(l->kv_a, p->rows->k, w->kv_a_bias)};

    multiply_normed(p, layer, products, 2);
    if (l->q_a)
        multiply_queries(p, layer);
    struct range rows = pass_share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        place_latent_row(p, layer, p->first + r, r);
    gather_heads(p, l->k_b[0], p->rows->q_full, (size_t)n_heads * full_dim, full_dim, mla->nope_dim,
                 n_heads);
    pass_lap(p, &p->e->engine.times.other_ns);
    multiply_heads(p, layer, PHASE_K_B, l->k_b, n_heads, mla->nope_dim, q, q_width, shape->key_dim);
    if (p->hp->temperature_scale != 0.0f) {
        pass_meet_team(p);
        for (uint32_t r = rows.begin; r < rows.end; r++)
            p->elementwise->scale(q + r * q_width,
                                  temperature(p->hp, p->e->batch->rows[p->first + r].position),
                                  (uint32_t)q_width);
    }
    pass_lap(p, &p->e->engine.times.products_ns);
}

const float *pass_latent_values(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct mla_shape *mla = &p->hp->mla;
    uint32_t n_heads = p->hp->layers[layer].n_heads;
    size_t width = (size_t)n_heads * mla->kv_rank;
    gather_heads(p, l->v_b[0], p->e->state.attended + p->first * width, width, mla->kv_rank,
                 mla->kv_rank, n_heads);
    pass_lap(p, &p->e->engine.times.other_ns);
    multiply_heads(p, layer, PHASE_V_B, l->v_b, n_heads, mla->kv_rank, p->rows->values,
                   (size_t)n_heads * mla->value_dim, mla->value_dim);
    pass_meet_team(p);
    pass_lap(p, &p->e->engine.times.products_ns);
    return p->rows->values;
}

/* ---- any attention ------------------------------------------------------------------------ */

void pass_before_attention(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    const struct layer_weights *w = &p->e->model->layers[layer];
    const struct layer_shape *shape = &p->hp->layers[layer];
    if (p->hp->mla.kv_rank) {
        before_latent_attention(p, layer);
        return;
    }
    float *q = p->e->state.q + (size_t)p->first * shape->n_heads * shape->key_dim;
    const struct product qkv[] = {product_of(l->q, q, w->q_bias),
                                  product_of(l->k, p->rows->k, w->k_bias),
                                  product_of(l->v, p->rows->v, w->v_bias)};
    multiply_normed(p, layer, qkv, l->v ? 3 : l->k ? 2 : 1);
    struct range rows = pass_share(p, p->n_rows);
    for (uint32_t r = rows.begin; r < rows.end; r++)
        place_row(p, layer, p->first + r, r);
    pass_lap(p, &p->e->engine.times.other_ns);
}

void pass_attend(const struct pass *p, uint32_t layer)
{
    const struct cpu_layer *l = &p->e->layers[layer];
    struct attention_io io = {.keys = l->kv.keys,
                              .values = l->kv.values,
                              .q = p->e->state.q,
                              .out = p->e->state.attended,
                              .scale = p->hp->layers[layer].attn_scale,
                              .softcap = p->hp->attn_softcap,
                              .sinks = p->e->model->layers[layer].sinks};
    attention_run(l->attention, &io, p->thread);
    pass_meet(p);
    if (attention_must_combine(l->attention)) {
        attention_combine(l->attention, &io, p->thread);
        pass_meet(p);
    }
}
