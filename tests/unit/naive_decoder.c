/* See naive_decoder.h. Functions follow the text in model/model.h from top to bottom; a latent's
 * keys and values are made for every head, as the papers write it, and not in the form that engines
 * compute. */
#include "naive_decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { WIDTH = NAIVE_MAX_WIDTH };

/* Keys and values of all layers and positions. */
struct naive_kv {
    double k[NAIVE_MAX_LAYERS][NAIVE_MAX_TOKENS][WIDTH],
        v[NAIVE_MAX_LAYERS][NAIVE_MAX_TOKENS][WIDTH];
};

/* y = w x + bias */
static void multiply(const struct weight *w, const float *bias, const double *x, double *y)
{
    float row[WIDTH];
    CHECK(w->rows <= WIDTH && w->cols <= WIDTH);
    for (uint32_t o = 0; o < w->rows; o++) {
        weight_floats(w, o, 0, w->cols, row);
        y[o] = bias ? bias[o] : 0;
        for (uint32_t c = 0; c < w->cols; c++)
            y[o] += row[c] * x[c];
    }
}

static void norm(enum norm_kind kind, double eps, const float *weight, double *x, uint32_t n)
{
    double mean = 0, squares = 0;
    for (uint32_t i = 0; i < n && kind == NORM_LAYER; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(squares + eps) * (weight ? weight[i] : 1);
}

/* y = norm(x), or x where the model has no such norm. */
static void norm_embd(const struct hparams *hp, const float *weight, const double *x, double *y)
{
    memmove(y, x, hp->n_embd * sizeof *y);
    if (weight)
        norm(hp->norm, hp->norm_eps, weight, y, hp->n_embd);
}

static double activation(const struct hparams *hp, double x)
{
    switch (hp->activation) {
    case ACTIVATION_SILU: return x / (1 + exp(-x));
    case ACTIVATION_GELU: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_SWIGLU_OAI: x = fmin(x, hp->activation_limit); return x / (1 + exp(-1.702 * x));
    }
    return NAN;
}

/* down (activation(gate x) * (up x)) */
static void gated(const struct hparams *hp, const struct weight *gate, const float *gate_bias,
                  const struct weight *up, const float *up_bias, const struct weight *down,
                  const float *down_bias, const double *x, double *y)
{
    double g[WIDTH], u[WIDTH];
    multiply(gate, gate_bias, x, g);
    if (up->data)
        multiply(up, up_bias, x, u);
    for (uint32_t i = 0; i < gate->rows; i++) {
        g[i] = activation(hp, g[i]);
        if (up->data && hp->activation == ACTIVATION_SWIGLU_OAI)
            g[i] *= 1 + fmax(-hp->activation_limit, fmin(hp->activation_limit, u[i]));
        else if (up->data)
            g[i] *= u[i];
    }
    multiply(down, down_bias, g, y);
}

/* ---- attention ---------------------------------------------------------------------------- */

static void rotate(const struct rope *rope, uint32_t position, double *x)
{
    uint32_t half = rope->dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = position * rope->frequencies[i];
        double *a = &x[rope->kind == ROPE_NORM ? 2 * i : i];
        double *b = &x[rope->kind == ROPE_NORM ? 2 * i + 1 : i + half], old_a = *a;
        *a = rope->amplitude * (old_a * cos(angle) - *b * sin(angle));
        *b = rope->amplitude * (*b * cos(angle) + old_a * sin(angle));
    }
}

static void rotate_heads(const struct hparams *hp, uint32_t layer, uint32_t position, double *x,
                         uint32_t n_heads, uint32_t stride)
{
    uint32_t rope = hp->layers[layer].rope;
    for (uint32_t h = 0; h < n_heads && rope != ROPE_NONE; h++)
        rotate(&hp->ropes[rope], position, x + h * stride);
}

static void norm_heads(const struct hparams *hp, const float *weight, double *x, uint32_t n_heads,
                       uint32_t dim)
{
    if (hp->qk_norm == QK_NORM_WHOLE)
        norm(hp->norm, hp->norm_eps, weight, x, n_heads * dim);
    else
        for (uint32_t h = 0; h < n_heads; h++)
            norm(hp->norm, hp->norm_eps, hp->qk_norm == QK_NORM_HEADS ? weight : weight + h * dim,
                 x + h * dim, dim);
}

/* Queries, and the position's keys and values. */
static void project(const struct model *m, uint32_t layer, uint32_t position, const double *a,
                    double *q, double *k, double *v)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *l = &m->layers[layer];
    const struct layer_shape *s = &hp->layers[layer];
    multiply(&l->attn_q, l->q_bias, a, q);
    if (l->q_norm)
        norm_heads(hp, l->q_norm, q, s->n_heads, s->key_dim);
    rotate_heads(hp, layer, position, q, s->n_heads, s->key_dim);
    if (s->kv_layer != layer)
        return;
    multiply(&l->attn_k, l->k_bias, a, k);
    if (s->values_are_keys)
        memcpy(v, k, s->n_kv_heads * s->value_dim * sizeof *v);
    else
        multiply(&l->attn_v, l->v_bias, a, v);
    if (l->k_norm)
        norm_heads(hp, l->k_norm, k, s->n_kv_heads, s->key_dim);
    if (s->norms_values)
        for (uint32_t h = 0; h < s->n_kv_heads; h++)
            norm(hp->norm, hp->norm_eps, NULL, v + h * s->value_dim, s->value_dim);
    rotate_heads(hp, layer, position, k, s->n_kv_heads, s->key_dim);
}

/* The same for a latent: every head gets a key [nope | rope] and a value of its own. */
static void project_latent(const struct model *m, uint32_t layer, uint32_t position,
                           const double *a, double *q, double *k, double *v)
{
    const struct hparams *hp = &m->hparams;
    const struct mla_shape *mla = &hp->mla;
    const struct layer_weights *l = &m->layers[layer];
    uint32_t n_heads = hp->layers[layer].n_heads, dim = mla->nope_dim + mla->rope_dim;
    double low[WIDTH], latent[WIDTH];
    if (mla->q_rank) {
        multiply(&l->q_a, l->q_a_bias, a, low);
        norm(NORM_RMS, mla->norm_eps, l->q_a_norm, low, mla->q_rank);
        multiply(&l->q_b, NULL, low, q);
    } else {
        multiply(&l->attn_q, l->q_bias, a, q);
    }
    rotate_heads(hp, layer, position, q + mla->nope_dim, n_heads, dim);
    multiply(&l->kv_a, l->kv_a_bias, a, latent);
    norm(NORM_RMS, mla->norm_eps, l->kv_a_norm, latent, mla->kv_rank);
    rotate_heads(hp, layer, position, latent + mla->kv_rank, 1, 0);
    multiply(&l->v_b, NULL, latent, v);
    for (uint32_t h = 0; h < n_heads; h++) {
        double *key = k + h * dim;
        memset(key, 0, mla->nope_dim * sizeof *key);
        for (uint32_t i = 0; i < mla->kv_rank; i++) {
            float row[WIDTH];
            weight_floats(&l->k_b, h * mla->kv_rank + i, 0, mla->nope_dim, row);
            for (uint32_t c = 0; c < mla->nope_dim; c++)
                key[c] += row[c] * latent[i];
        }
        memcpy(key + mla->nope_dim, latent + mla->kv_rank, mla->rope_dim * sizeof *key);
    }
}

/* One head: out = softmax(cap(q k * scale), sink) v */
static void attend(const struct hparams *hp, const struct layer_shape *s, uint32_t position,
                   const double *q, double (*k)[WIDTH], double (*v)[WIDTH], uint32_t k_at,
                   uint32_t v_at, uint32_t k_dim, uint32_t v_dim, const float *sink, double *out)
{
    double scores[NAIVE_MAX_TOKENS] = {0}, sum = 0;
    uint32_t first = s->window && position + 1 > s->window ? position + 1 - s->window : 0;
    for (uint32_t p = first; p <= position; p++) {
        double dot = 0;
        for (uint32_t d = 0; d < k_dim; d++)
            dot += q[d] * k[p][k_at + d];
        dot *= s->attn_scale;
        scores[p] = exp(hp->attn_softcap > 0 ? hp->attn_softcap * tanh(dot / hp->attn_softcap)
                                             : dot);
        sum += scores[p];
    }
    sum += sink ? exp(*sink) : 0;
    for (uint32_t d = 0; d < v_dim; d++) {
        out[d] = 0;
        for (uint32_t p = first; p <= position; p++)
            out[d] += scores[p] / sum * v[p][v_at + d];
    }
}

/* The attention block, before its result is normed and added to x. */
static void attention(const struct model *m, uint32_t layer, uint32_t position, const double *a,
                      struct naive_kv *kv, double *o)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *l = &m->layers[layer];
    const struct layer_shape *s = &hp->layers[layer];
    const struct mla_shape *mla = &hp->mla;
    bool latent = mla->kv_rank > 0;
    uint32_t k_dim = latent ? mla->nope_dim + mla->rope_dim : s->key_dim;
    uint32_t v_dim = latent ? mla->value_dim : s->value_dim;
    uint32_t group = latent ? 1 : s->n_heads / s->n_kv_heads;
    double q[WIDTH], out[WIDTH];
    (latent ? project_latent : project)(m, layer, position, a, q, kv->k[layer][position],
                                        kv->v[layer][position]);
    double temperature = hp->temperature_scale != 0
                             ? 1 + hp->temperature_scale *
                                       log(1 + floor((double)position / hp->temperature_length))
                             : 1;
    for (uint32_t i = 0; i < s->n_heads * k_dim; i++)
        q[i] *= temperature;
    for (uint32_t h = 0; h < s->n_heads; h++)
        attend(hp, s, position, q + h * k_dim, kv->k[s->kv_layer], kv->v[s->kv_layer],
               h / group * k_dim, h / group * v_dim, k_dim, v_dim, l->sinks ? &l->sinks[h] : NULL,
               out + h * v_dim);
    multiply(&l->attn_output, l->output_bias, out, o);
}

/* ---- experts ------------------------------------------------------------------------------ */

static uint32_t best_of(const double *values, const bool *is_out, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (!is_out[i] && (best == UINT32_MAX || values[i] > values[best]))
            best = i;
    CHECK(best != UINT32_MAX);
    return best;
}

static double group_score(const struct router *r, const double *values, uint32_t n)
{
    bool is_out[WIDTH] = {0};
    uint32_t first = best_of(values, is_out, n);
    is_out[first] = true;
    return values[first] +
           (r->groups == GROUPS_BY_TOP2 && n > 1 ? values[best_of(values, is_out, n)] : 0);
}

static void softmax(double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(x[i]);
    for (uint32_t i = 0; i < n; i++)
        x[i] = exp(x[i]) / sum;
}

/* The chosen experts and their weights. */
static void route(const struct router *r, const struct layer_weights *l, double *scores,
                  uint32_t *chosen, double *weights)
{
    double choice[WIDTH], groups[WIDTH], sum = 0;
    bool is_out[WIDTH] = {0}, group_is_chosen[WIDTH] = {0};
    uint32_t n = r->n_experts, group_len = n / r->n_groups;
    if (r->scores == ROUTER_SOFTMAX)
        softmax(scores, n);
    for (uint32_t e = 0; e < n; e++) {
        if (r->scores == ROUTER_SIGMOID)
            scores[e] = 1 / (1 + exp(-scores[e]));
        choice[e] = scores[e] + (l->router_correction ? l->router_correction[e] : 0);
    }
    for (uint32_t g = 0; g < r->n_groups; g++)
        groups[g] = group_score(r, choice + g * group_len, group_len);
    for (uint32_t i = 0; i < r->n_chosen_groups; i++)
        group_is_chosen[best_of(groups, group_is_chosen, r->n_groups)] = true;
    for (uint32_t e = 0; e < n; e++)
        is_out[e] = !group_is_chosen[e / group_len];
    for (uint32_t i = 0; i < r->n_chosen; i++) {
        chosen[i] = best_of(choice, is_out, n);
        is_out[chosen[i]] = true;
        weights[i] = scores[chosen[i]];
    }
    if (r->scores == ROUTER_SOFTMAX_CHOSEN)
        softmax(weights, r->n_chosen);
    for (uint32_t i = 0; i < r->n_chosen; i++)
        sum += weights[i];
    for (uint32_t i = 0; i < r->n_chosen; i++)
        weights[i] *= (r->normalizes ? 1 / (sum + r->normalize_eps) : 1) * r->scale *
                      (l->expert_scale ? l->expert_scale[chosen[i]] : 1);
}

/* The sum over the chosen experts; x is before ffn_norm, f after it. */
static void experts(const struct model *m, const struct layer_weights *l, const double *x,
                    const double *f, double *out)
{
    const struct hparams *hp = &m->hparams;
    double input[WIDTH], y[WIDTH], scores[WIDTH], weights[WIDTH];
    uint32_t chosen[WIDTH];
    memcpy(input, hp->router.norms_input ? x : f, hp->n_embd * sizeof *input);
    if (hp->router.norms_input) {
        norm(hp->norm, hp->norm_eps, NULL, input, hp->n_embd);
        for (uint32_t i = 0; i < hp->n_embd; i++)
            input[i] *= l->router_scale[i] / sqrt(hp->n_embd);
    }
    multiply(&l->router, l->router_bias, input, scores);
    route(&hp->router, l, scores, chosen, weights);
    if (l->expert_norm)
        norm_embd(hp, l->expert_norm, x, input);
    else
        memcpy(input, f, hp->n_embd * sizeof *input);
    memset(out, 0, hp->n_embd * sizeof *out);
    for (uint32_t i = 0; i < hp->router.n_chosen; i++) {
        const struct expert_weights *e = &l->experts[chosen[i]];
        gated(hp, &e->gate, e->gate_bias, &e->up, e->up_bias, &e->down, e->down_bias, input, y);
        for (uint32_t d = 0; d < hp->n_embd; d++)
            out[d] += weights[i] * y[d];
    }
}

static void feed_forward(const struct model *m, uint32_t layer, const double *x, const double *f,
                         double *out)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *l = &m->layers[layer];
    double y[WIDTH], share = 0;
    memset(out, 0, hp->n_embd * sizeof *out);
    if (hp->layers[layer].n_ff) {
        gated(hp, &l->ffn_gate, l->gate_bias, &l->ffn_up, l->up_bias, &l->ffn_down, l->down_bias, f,
              out);
        norm_embd(hp, l->dense_post_norm, out, out);
    }
    if (!hp->layers[layer].has_experts)
        return;
    experts(m, l, x, f, y);
    norm_embd(hp, l->expert_post_norm, y, y);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        out[i] += y[i];
    if (!hp->router.n_ff_shared)
        return;
    gated(hp, &l->shared_gate, NULL, &l->shared_up, NULL, &l->shared_down, NULL, f, y);
    for (uint32_t i = 0; l->shared_router && i < hp->n_embd; i++)
        share += l->shared_router[i] * f[i];
    for (uint32_t i = 0; i < hp->n_embd; i++)
        out[i] += l->shared_router ? y[i] / (1 + exp(-share)) : y[i];
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void embed(const struct weight *table, int32_t token, double scale, double *x)
{
    float row[WIDTH];
    CHECK(table->cols <= WIDTH);
    weight_floats(table, (uint32_t)token, 0, table->cols, row);
    for (uint32_t i = 0; i < table->cols; i++)
        x[i] = row[i] * scale;
}

/* p of every layer. */
static void layer_inputs(const struct model *m, int32_t token, const double *x, double *inputs)
{
    const struct hparams *hp = &m->hparams;
    uint32_t n = hp->n_embd_layer;
    double embedded[WIDTH];
    embed(&m->layer_embd, token, sqrt(n), embedded);
    multiply(&m->layer_proj, NULL, x, inputs);
    for (uint32_t i = 0; i < hp->n_layers * n; i++)
        inputs[i] /= sqrt(hp->n_embd);
    for (uint32_t layer = 0; layer < hp->n_layers; layer++)
        norm(hp->norm, hp->norm_eps, m->layer_proj_norm, inputs + layer * n, n);
    for (uint32_t i = 0; i < hp->n_layers * n; i++)
        inputs[i] = (inputs[i] + embedded[i]) / sqrt(2);
}

static void add_layer_input(const struct model *m, uint32_t layer, const double *input, double *x)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *l = &m->layers[layer];
    double g[WIDTH], y[WIDTH];
    multiply(&l->layer_gate, NULL, x, g);
    for (uint32_t i = 0; i < hp->n_embd_layer; i++)
        g[i] = activation(hp, g[i]) * input[i];
    multiply(&l->layer_output, NULL, g, y);
    norm_embd(hp, l->layer_post_norm, y, y);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        x[i] += y[i];
}

static void run_layer(const struct model *m, uint32_t layer, uint32_t position, struct naive_kv *kv,
                      const double *input, double *x)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *l = &m->layers[layer];
    double a[WIDTH], o[WIDTH], f[WIDTH];
    norm_embd(hp, l->attn_norm, x, a);
    attention(m, layer, position, a, kv, o);
    norm_embd(hp, l->attn_post_norm, o, o);
    double before[WIDTH];
    memcpy(before, x, sizeof before);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        x[i] += o[i] * hp->residual_scale;
    if (hp->is_parallel)
        memcpy(f, a, sizeof f);
    else
        norm_embd(hp, l->ffn_norm, x, f);
    feed_forward(m, layer, hp->is_parallel ? before : x, f, o);
    norm_embd(hp, l->ffn_post_norm, o, o);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        x[i] += o[i] * hp->residual_scale;
    if (hp->n_embd_layer)
        add_layer_input(m, layer, input + layer * hp->n_embd_layer, x);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        x[i] *= l->out_scale;
}

void naive_logits(const struct model *m, const int32_t *tokens, uint32_t n, double *logits)
{
    const struct hparams *hp = &m->hparams;
    static struct naive_kv kv; /* only what is used of it is ever touched */
    double x[WIDTH], inputs[WIDTH];
    CHECK(n <= NAIVE_MAX_TOKENS && hp->n_layers <= NAIVE_MAX_LAYERS);
    for (uint32_t p = 0; p < n; p++) {
        embed(&m->token_embd, tokens[p], hp->embd_scale, x);
        if (hp->n_embd_layer)
            layer_inputs(m, tokens[p], x, inputs);
        for (uint32_t layer = 0; layer < hp->n_layers; layer++)
            run_layer(m, layer, p, &kv, inputs, x);
    }
    norm_embd(hp, m->output_norm, x, x);
    multiply(&m->output, NULL, x, logits);
    for (uint32_t i = 0; i < hp->n_vocab; i++) {
        logits[i] *= hp->logit_scale;
        if (hp->logit_softcap > 0)
            logits[i] = hp->logit_softcap * tanh(logits[i] / hp->logit_softcap);
    }
}
