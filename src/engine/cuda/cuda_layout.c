/* Where everything lies in the device's memory. Each function runs twice: from base 0 to add up
 * the bytes, then to hand out addresses. Any thread; pure but for `each`. */
#include "engine/cuda/cuda_internal.h"

#include "base/minmax.h"

enum {
    ALIGNMENT = 256,
    SLACK_TILES = 3, /* rows of tiles that a kernel may read after the last one of a matrix */
};

static CUdeviceptr take(struct cuda_region *r, uint64_t bytes)
{
    CUdeviceptr at = r->base + r->used;
    r->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static CUdeviceptr take_array(struct cuda_region *r, uint64_t n, uint64_t size)
{
    return take(r, n * size);
}

/* ---- kinds of attention ------------------------------------------------------------------- */

static struct cuda_attention_shape shape_of(const struct model *m, uint32_t layer,
                                            uint32_t n_groups)
{
    const struct layer_shape *l = &m->hparams.layers[layer];
    uint32_t per_kv = l->n_heads / l->n_kv_heads, heads = min_u32(per_kv, ATTENTION_QUERIES);
    return (struct cuda_attention_shape){
        .window = l->window,
        .group = n_groups > 1 ? kv_layer_group(&m->hparams, layer) : 0,
        .heads_per_unit = heads,
        .n_units = l->n_kv_heads * ((per_kv + heads - 1) / heads),
    };
}

int cuda_layout_shapes(const struct model *m, struct cuda_plan_limits *limits,
                       struct cuda_layer *layers, uint32_t n_groups, struct error *err)
{
    limits->n_shapes = 0;
    limits->n_groups = n_groups;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        struct cuda_attention_shape shape = shape_of(m, i, n_groups);
        uint32_t s = 0;
        for (; s < limits->n_shapes; s++)
            if (limits->shapes[s].window == shape.window &&
                limits->shapes[s].group == shape.group &&
                limits->shapes[s].heads_per_unit == shape.heads_per_unit &&
                limits->shapes[s].n_units == shape.n_units)
                break;
        if (s == CUDA_MAX_SHAPES)
            return error_set(err, ERROR_UNSUPPORTED, "too many kinds of attention layers");
        if (s == limits->n_shapes)
            limits->shapes[limits->n_shapes++] = shape;
        if (layers) {
            layers[i].shape = s;
            layers[i].group = shape.group;
        }
    }
    return 0;
}

/* ---- weights ------------------------------------------------------------------------------ */

struct placer {
    struct cuda_region *region;
    cuda_upload_fn each;
    void *context;
    int failed;
    uint64_t row_bytes; /* of the largest row of tiles */
};

static void place_vector_at(struct placer *p, const float *vector, size_t n, CUdeviceptr at)
{
    const struct cuda_upload upload = {.vector = vector, .n_values = n, .data = at};
    if (p->each && !p->failed)
        p->failed = p->each(p->context, &upload);
}

static CUdeviceptr place_vector(struct placer *p, const float *vector, size_t n)
{
    if (!vector)
        return 0;
    CUdeviceptr at = take_array(p->region, n, sizeof *vector);
    place_vector_at(p, vector, n, at);
    return at;
}

static void place_matrix_at(struct placer *p, const struct weight *w, uint32_t format,
                            CUdeviceptr data, CUdeviceptr scales)
{
    const struct cuda_upload upload = {
        .weight = w, .format = (enum cuda_format)format, .data = data, .scales = scales};
    if (p->each && !p->failed)
        p->failed = p->each(p->context, &upload);
}

static struct cuda_matrix matrix_of(const struct weight *w)
{
    if (!w->data)
        return (struct cuda_matrix){0};
    const struct cuda_shape s = cuda_pack_shape(w);
    return (struct cuda_matrix){
        .format = s.format,
        .outputs = w->rows,
        .out_tiles = s.out_tiles,
        .col_tiles = s.format == FORMAT_F32 ? w->cols : s.col_tiles,
        .expert_data_bytes = s.data_bytes,
        .expert_scale_bytes = s.scale_bytes,
    };
}

static struct cuda_matrix place_matrix(struct placer *p, const struct weight *w, const float *bias)
{
    struct cuda_matrix m = matrix_of(w);
    if (!w->data)
        return m;
    p->row_bytes = max_u64(p->row_bytes, m.expert_data_bytes / m.out_tiles);
    m.data = take(p->region, m.expert_data_bytes);
    m.scales = take(p->region, m.expert_scale_bytes);
    m.bias = place_vector(p, bias, w->rows);
    place_matrix_at(p, w, m.format, m.data, m.scales);
    return m;
}

/* The same matrix of all experts, side by side. */
static struct cuda_matrix place_experts(struct placer *p, const struct expert_weights *experts,
                                        uint32_t n, size_t weight_at, size_t bias_at)
{
#define EXPERT_WEIGHT(i) ((const struct weight *)((const char *)&experts[i] + weight_at))
#define EXPERT_BIAS(i)   (*(const float *const *)((const char *)&experts[i] + bias_at))
    struct cuda_matrix m = matrix_of(EXPERT_WEIGHT(0));
    if (m.outputs == 0)
        return m;
    p->row_bytes = max_u64(p->row_bytes, m.expert_data_bytes / m.out_tiles);
    m.data = take_array(p->region, n, m.expert_data_bytes);
    m.scales = take_array(p->region, n, m.expert_scale_bytes);
    if (EXPERT_BIAS(0))
        m.bias = take_array(p->region, (uint64_t)n * m.outputs, sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        place_matrix_at(p, EXPERT_WEIGHT(i), m.format, m.data + i * m.expert_data_bytes,
                        m.scales + i * m.expert_scale_bytes);
        if (m.bias)
            place_vector_at(p, EXPERT_BIAS(i), m.outputs,
                            m.bias + (uint64_t)i * m.outputs * sizeof(float));
    }
    return m;
#undef EXPERT_WEIGHT
#undef EXPERT_BIAS
}

static void place_layer(struct placer *p, const struct model *m, uint32_t index,
                        struct cuda_layer *l)
{
    const struct hparams *hp = &m->hparams;
    const struct layer_weights *w = &m->layers[index];
    const struct layer_shape *shape = &hp->layers[index];
    uint32_t n = hp->n_embd, is_shared = hp->qk_norm == QK_NORM_HEADS;
    l->attn_norm = place_vector(p, w->attn_norm, n);
    l->attn_post_norm = place_vector(p, w->attn_post_norm, n);
    l->ffn_norm = place_vector(p, w->ffn_norm, n);
    l->ffn_post_norm = place_vector(p, w->ffn_post_norm, n);
    l->q_norm = place_vector(p, w->q_norm, (is_shared ? 1 : shape->n_heads) * shape->key_dim);
    l->k_norm = place_vector(p, w->k_norm, (is_shared ? 1 : shape->n_kv_heads) * shape->key_dim);
    l->sinks = place_vector(p, w->sinks, shape->n_heads);
    l->q = place_matrix(p, &w->attn_q, w->q_bias);
    l->k = place_matrix(p, &w->attn_k, w->k_bias);
    l->v = place_matrix(p, &w->attn_v, w->v_bias);
    l->output = place_matrix(p, &w->attn_output, w->output_bias);
    l->gate = place_matrix(p, &w->ffn_gate, w->gate_bias);
    l->up = place_matrix(p, &w->ffn_up, w->up_bias);
    l->down = place_matrix(p, &w->ffn_down, w->down_bias);
    if (!shape->has_experts)
        return;
    uint32_t n_experts = hp->router.n_experts;
    l->router = place_matrix(p, &w->router, w->router_bias);
    l->router_correction = place_vector(p, w->router_correction, n_experts);
    l->expert_gate = place_experts(p, w->experts, n_experts, offsetof(struct expert_weights, gate),
                                   offsetof(struct expert_weights, gate_bias));
    l->expert_up = place_experts(p, w->experts, n_experts, offsetof(struct expert_weights, up),
                                 offsetof(struct expert_weights, up_bias));
    l->expert_down = place_experts(p, w->experts, n_experts, offsetof(struct expert_weights, down),
                                   offsetof(struct expert_weights, down_bias));
}

int cuda_layout_weights(struct cuda_region *r, const struct model *m, struct cuda_layer *layers,
                        struct cuda_matrix *head, CUdeviceptr *output_norm, cuda_upload_fn each,
                        void *context)
{
    struct placer p = {.region = r, .each = each, .context = context};
    struct cuda_layer unused;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        place_layer(&p, m, i, layers ? &layers[i] : &unused);
    *head = place_matrix(&p, &m->output, NULL);
    *output_norm = place_vector(&p, m->output_norm, m->hparams.n_embd);
    take(r, SLACK_TILES * p.row_bytes);
    return p.failed;
}

/* ---- buffers ------------------------------------------------------------------------------ */

static uint32_t stride_of(uint32_t cols)
{
    return (cols + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
}

struct cuda_widths cuda_widths_of(const struct model *m, const struct engine_limits *limits)
{
    const struct hparams *hp = &m->hparams;
    struct cuda_widths w = {0};
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_shape *l = &hp->layers[i];
        w.q = max_u32(w.q, l->n_heads * l->key_dim);
        w.kv_keys = max_u32(w.kv_keys, l->n_kv_heads * l->key_dim);
        w.kv_values = max_u32(w.kv_values, l->n_kv_heads * l->value_dim);
        w.attended = max_u32(w.attended, l->n_heads * l->value_dim);
        w.gated = max_u32(w.gated, l->n_ff);
        if (l->has_experts)
            w.slots = (uint64_t)limits->max_rows * hp->router.n_chosen;
    }
    return w;
}

static struct cuda_activations take_activations(struct cuda_region *r, uint64_t n_rows,
                                                uint32_t cols)
{
    struct cuda_activations a = {.stride = stride_of(cols)};
    a.f16 = take_array(r, n_rows * a.stride, 2);
    a.bf16 = take_array(r, n_rows * a.stride, 2);
    a.f32 = take_array(r, n_rows * a.stride, 4);
    return a;
}

/* Values that a gated block has between its products, for all rows of a batch. */
static uint64_t gated_values(const struct model *m, const struct engine_limits *limits,
                             const struct cuda_widths *w)
{
    return max_u64((uint64_t)limits->max_rows * stride_of(w->gated),
                   w->slots * stride_of(m->hparams.router.n_ff));
}

static void layout_experts(struct cuda_region *r, const struct model *m,
                           const struct engine_limits *limits, const struct cuda_widths *w,
                           struct cuda_buffers *b)
{
    const struct router *router = &m->hparams.router;
    b->router_logits = take_array(r, (uint64_t)limits->max_rows * router->n_experts, sizeof(float));
    b->experts = take_array(r, w->slots, sizeof(uint32_t));
    b->weights = take_array(r, w->slots, sizeof(float));
    b->row_of = take_array(r, w->slots, sizeof(uint32_t));
    b->slot_of = take_array(r, w->slots, sizeof(uint32_t));
    b->expert_items = take_array(r, router->n_experts + w->slots, sizeof(struct cuda_expert_item));
    b->n_items = take(r, sizeof(uint32_t));
    b->expert_out = take_array(r, w->slots * m->hparams.n_embd, sizeof(float));
}

static void layout_attention(struct cuda_region *r, const struct model *m, uint64_t n_rows,
                             const struct cuda_plan_limits *plan, struct cuda_buffers *b)
{
    uint64_t values = 0, states = 0;
    for (uint32_t s = 0; s < plan->n_shapes; s++) {
        b->items[s] = take_array(r, plan->max_items, sizeof(struct cuda_item));
        b->merges[s] = take_array(r, n_rows, sizeof(struct cuda_merge));
        states = max_u64(states, (uint64_t)plan->max_partials * plan->shapes[s].n_units *
                                     ATTENTION_QUERIES);
    }
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        values = max_u64(values, states * m->hparams.layers[i].value_dim);
    b->partial = take_array(r, values, sizeof(float));
    b->partial_state = take_array(r, 2 * states, sizeof(float));
}

void cuda_layout_buffers(struct cuda_region *r, const struct model *m,
                         const struct engine_limits *limits, const struct kv_group *groups,
                         uint32_t n_groups, const struct cuda_plan_limits *plan,
                         struct cuda_buffers *b)
{
    const struct hparams *hp = &m->hparams;
    const struct cuda_widths w = cuda_widths_of(m, limits);
    uint64_t n_rows = limits->max_rows;
    uint64_t gated = gated_values(m, limits, &w);
    b->step = take(r, sizeof(struct cuda_step));
    b->rows = take_array(r, n_rows, sizeof(struct cuda_row));
    b->outputs = take_array(r, n_rows, sizeof(uint32_t));
    b->runs = take_array(r, plan->max_runs, sizeof(struct cuda_run));
    b->page_table = take_array(r, cuda_plan_table_size(limits, groups, n_groups), sizeof(uint32_t));
    layout_attention(r, m, n_rows, plan, b);
    for (uint32_t i = 0; i < hp->n_ropes; i++) {
        b->rope[i] = take_array(r, n_rows * hp->ropes[i].dim, sizeof(float));
        b->frequencies[i] = take_array(r, hp->ropes[i].dim / 2, sizeof(double));
    }
    b->x = take_array(r, n_rows * hp->n_embd, sizeof(float));
    b->q = take_array(r, n_rows * w.q, sizeof(float));
    b->k = take_array(r, n_rows * w.kv_keys, sizeof(float));
    b->v = take_array(r, n_rows * w.kv_values, sizeof(float));
    b->q_out = take_array(r, n_rows * w.q, sizeof(float));
    b->added = take_array(r, n_rows * hp->n_embd, sizeof(float));
    b->gate = take_array(r, gated, sizeof(float));
    b->up = take_array(r, gated, sizeof(float));
    b->logits = take_array(r, (uint64_t)HEAD_ROWS * hp->n_vocab, sizeof(float));
    b->normed = take_activations(r, n_rows, hp->n_embd);
    b->attended = take_activations(r, n_rows, w.attended);
    b->head = take_activations(r, n_rows, hp->n_embd);
    b->hidden = (struct cuda_activations){.f16 = take_array(r, gated, 2),
                                          .bf16 = take_array(r, gated, 2),
                                          .f32 = take_array(r, gated, 4)};
    b->n_best = take_array(r, n_rows, sizeof(uint32_t));
    b->best = take_array(r, (uint64_t)HEAD_ROWS * CUDA_MAX_BEST, sizeof(struct cuda_best));
    b->log_sums = take_array(r, HEAD_ROWS, sizeof(float));
    b->sink = take(r, sizeof(uint32_t));
    if (w.slots)
        layout_experts(r, m, limits, &w, b);
}

void cuda_layout_kv(struct cuda_region *r, const struct model *m,
                    const struct engine_limits *limits, uint32_t n_groups,
                    struct cuda_layer *layers)
{
    const struct hparams *hp = &m->hparams;
    uint64_t size = kv_type_bytes(limits->kv_type);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        struct cuda_layer *l = &layers[i];
        if (!kv_layer_keeps(hp, i)) {
            l->keys = layers[hp->layers[i].kv_layer].keys;
            l->values = layers[hp->layers[i].kv_layer].values;
            continue;
        }
        uint64_t n_pages = limits->n_pages[n_groups > 1 ? kv_layer_group(hp, i) : 0];
        l->keys = take(r, n_pages * kv_layer_keys(hp, i) * size);
        l->values = take(r, n_pages * kv_layer_values(hp, i) * size);
    }
}
