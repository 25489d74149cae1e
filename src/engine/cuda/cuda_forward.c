/* The launches of a step, in the order of the decoder in model.h. A step of few rows is recorded
 * once for each of a few sizes as a graph, and replayed; kernels find what changes in the device's
 * memory. Owner thread. Careful: launches only differ in grids and tiles between sizes, never in
 * the arithmetic of a row. */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "engine/cuda/cuda_internal.h"

enum {
    F32_ROWS = 8,
    NORM_THREADS = 1024,
    CAPTURE_THREAD_LOCAL = 1,
};
#define LOG2_E 1.4426950408889634
_Static_assert(HEAD_ROWS % F32_ROWS == 0, "the last block of a chunk would write past the logits");

static const uint32_t graph_rows[GRAPH_SIZES] = {8, 16, 32, 40};

int cuda_launch(struct cuda_engine *e, enum cuda_kernel kernel, const uint32_t grid[2],
                uint32_t block, uint32_t shared_bytes, void *params, struct error *err)
{
    struct CUlaunchAttribute dependent = {
        .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        .value = {.programmatic_serialization = 1},
    };
    const struct CUlaunchConfig config = {
        .grid_x = grid[0],
        .grid_y = grid[1],
        .grid_z = 1,
        .block_x = block,
        .block_y = 1,
        .block_z = 1,
        .shared_bytes = shared_bytes,
        .stream = e->stream,
        .attrs = &dependent,
        .n_attrs = e->has_dependent_launch,
    };
    void *arguments[] = {params};
    return cuda_check(&e->driver, e->driver.launch(&config, e->kernels[kernel], arguments, NULL),
                      "launch a kernel", err);
}

/* ---- a pass ------------------------------------------------------------------------------- */

/* Launches for up to n_rows rows. After the first failure nothing is launched. */
struct pass {
    struct cuda_engine *e;
    const struct hparams *hp;
    uint32_t n_rows;
    bool merges; /* rows may be split */
    struct error *err;
    int failed;
};

static void launch(struct pass *p, enum cuda_kernel kernel, uint32_t grid_x, uint32_t grid_y,
                   uint32_t block, uint32_t shared_bytes, void *params)
{
    const uint32_t grid[2] = {grid_x, grid_y};
    if (!p->failed)
        p->failed = cuda_launch(p->e, kernel, grid, block, shared_bytes, params, p->err);
}

static CUdeviceptr step_rows(const struct cuda_engine *e)
{
    return e->buffers.step + offsetof(struct cuda_step, n_rows);
}

/* Of the three types of activations, those that the matrices take. */
static struct cuda_activations inputs_of(const struct cuda_activations *all,
                                         const struct cuda_matrix *const *matrices, uint32_t n)
{
    struct cuda_activations some = {.stride = all->stride};
    for (uint32_t i = 0; i < n; i++) {
        if (matrices[i]->outputs == 0)
            continue;
        if (matrices[i]->format == FORMAT_F32)
            some.f32 = all->f32;
        else if (format_is_bf16(matrices[i]->format))
            some.bf16 = all->bf16;
        else
            some.f16 = all->f16;
    }
    return some;
}

static void norm(struct pass *p, CUdeviceptr weight, const struct cuda_activations *out)
{
    struct norm_params params = {
        .x = p->e->buffers.x,
        .weight = weight,
        .n_rows = step_rows(p->e),
        .out = *out,
        .eps = p->hp->norm_eps,
        .n = p->hp->n_embd,
    };
    launch(p, KERNEL_norm_rows, p->n_rows, 1, NORM_THREADS, 0, &params);
}

/* x += norm(added) * residual_scale */
static void add_normed(struct pass *p, CUdeviceptr weight)
{
    struct norm_params params = {
        .x = p->e->buffers.added,
        .weight = weight,
        .n_rows = step_rows(p->e),
        .add_to = p->e->buffers.x,
        .factor = p->hp->residual_scale,
        .eps = p->hp->norm_eps,
        .n = p->hp->n_embd,
    };
    launch(p, KERNEL_norm_rows, p->n_rows, 1, NORM_THREADS, 0, &params);
}

/* ---- products ----------------------------------------------------------------------------- */

struct product {
    const struct cuda_matrix *matrices[3];
    CUdeviceptr out[3];
    uint32_t n;
    const struct cuda_activations *input;
    float f16_factor; /* 0: 1 */
    enum product_mode mode;
    float factor, cap;
    CUdeviceptr n_rows; /* 0: the step's */
    uint32_t first_row, most_rows;
    enum tile_kind kind;
    const struct cuda_activations *gated; /* PRODUCT_GATED: instead of `out` */
    bool has_experts, gathers;            /* rows are slots; inputs are those of the slots' rows */
    uint32_t most_items;
};

static struct product_params product_begin(const struct pass *p, const struct product *product)
{
    const struct cuda_buffers *b = &p->e->buffers;
    struct product_params params = {
        .input_f16 = product->input->f16,
        .input_bf16 = product->input->bf16,
        .input_f32 = product->input->f32,
        .input_stride = product->input->stride,
        .f16_factor = product->f16_factor != 0.0f ? product->f16_factor : 1.0f,
        .n_rows = product->n_rows ? product->n_rows : step_rows(p->e),
        .mode = product->mode,
        .factor = product->factor,
        .cap = product->cap,
        .first_row = product->first_row,
    };
    if (product->has_experts) {
        params.items = b->expert_items;
        params.n_items = b->n_items;
        params.row_of = product->gathers ? b->row_of : 0;
    }
    return params;
}

static void add_matrix(struct product_params *params, const struct product *product, uint32_t i,
                       uint32_t *n_blocks, uint32_t outputs_of_block)
{
    const struct cuda_matrix *m = product->matrices[i];
    uint32_t at = params->n_matrices++;
    params->matrices[at] = *m;
    params->out[at] = product->out[i];
    params->out_stride[at] = m->outputs;
    params->first_block[at] = *n_blocks;
    *n_blocks += (m->outputs + outputs_of_block - 1) / outputs_of_block;
}

/* Half of the tiles of a block of threads are of the first matrix, half of the second. */
static uint32_t make_gated(const struct pass *p, struct product_params *params,
                           const struct product *product, enum tile_kind kind)
{
    uint32_t outputs = tile_config_at(kind).m / 2 * TILE_OUTPUTS;
    params->n_matrices = 1;
    params->matrices[0] = *product->matrices[0];
    params->matrices[1] = *product->matrices[1];
    params->gated = *product->gated;
    params->activation = p->hp->activation;
    params->limit = p->hp->activation_limit;
    params->gated_f16_factor = 1.0f / HIDDEN_FACTOR;
    return (product->gated->stride + outputs - 1) / outputs;
}

/* Whether large tiles would leave processors without work. */
static bool is_small(const struct pass *p, const struct product *product)
{
    uint32_t outputs = 0, of_block = tile_config_at(product->kind).m * TILE_OUTPUTS;
    for (uint32_t i = 0; i < product->n; i++)
        outputs += product->matrices[i]->outputs;
    return outputs / of_block < 2 * p->e->n_processors;
}

/* The matrices that are tiled: one launch. */
static void multiply_tiled(struct pass *p, const struct product *product)
{
    struct product_params params = product_begin(p, product);
    enum tile_kind kind = product->kind;
    uint32_t n_blocks = 0, warps = 32, shared = 0, rows = tile_rows(kind);
    kind = kind == TILE_32 && is_small(p, product) ? TILE_32_NARROW : kind;
    if (product->mode == PRODUCT_GATED)
        n_blocks = make_gated(p, &params, product, kind);
    const struct tile_config config = tile_config_at(kind);
    for (uint32_t i = 0; i < product->n; i++) {
        const struct cuda_matrix *m = product->matrices[i];
        if (m->outputs == 0 || m->format == FORMAT_F32)
            continue;
        warps = min_u32(warps, tile_warps(config, m->format, m->col_tiles, p->e->shared_bytes));
        if (product->mode != PRODUCT_GATED)
            add_matrix(&params, product, i, &n_blocks, config.m * TILE_OUTPUTS);
    }
    for (uint32_t i = 0; i < params.n_matrices; i++)
        shared = max_u32(shared, tile_shared_bytes(config, params.matrices[i].format,
                                                   params.matrices[i].col_tiles, warps));
    uint32_t n_x = product->has_experts ? product->most_items
                                        : (product->most_rows + rows - 1) / rows;
    if (params.n_matrices)
        launch(p, (enum cuda_kernel)(KERNEL_product_8 + kind), n_x, n_blocks, 32 * warps, shared,
               &params);
}

static void multiply_floats(struct pass *p, const struct product *product)
{
    struct product_params params = product_begin(p, product);
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < product->n; i++)
        if (product->matrices[i]->outputs && product->matrices[i]->format == FORMAT_F32)
            add_matrix(&params, product, i, &n_blocks, F32_OUTPUTS);
    uint32_t n_x = product->has_experts ? product->most_items
                                        : (product->most_rows + F32_ROWS - 1) / F32_ROWS;
    if (params.n_matrices)
        launch(p, KERNEL_product_f32, n_x, n_blocks, 32 * F32_OUTPUTS, 0, &params);
}

static void multiply(struct pass *p, struct product product)
{
    if (product.most_rows == 0)
        product.most_rows = p->n_rows;
    if (!product.has_experts)
        product.kind = tile_kind_for(product.most_rows);
    multiply_tiled(p, &product);
    if (product.mode != PRODUCT_GATED)
        multiply_floats(p, &product);
}

/* The product at the end of a block, added to x, or normed first. */
static void end_block(struct pass *p, const struct cuda_matrix *m,
                      const struct cuda_activations *input, float f16_factor, CUdeviceptr post_norm)
{
    multiply(p, (struct product){
                    .matrices = {m},
                    .out = {post_norm ? p->e->buffers.added : p->e->buffers.x},
                    .n = 1,
                    .input = input,
                    .f16_factor = f16_factor,
                    .mode = post_norm ? PRODUCT_STORE : PRODUCT_ADD,
                    .factor = p->hp->residual_scale,
                });
    if (post_norm)
        add_normed(p, post_norm);
}

/* ---- attention ---------------------------------------------------------------------------- */

static void norm_whole(struct pass *p, CUdeviceptr x, CUdeviceptr weight, uint32_t n)
{
    struct norm_params params = {
        .x = x,
        .weight = weight,
        .n_rows = step_rows(p->e),
        .out = {.f32 = x, .stride = n},
        .eps = p->hp->norm_eps,
        .n = n,
    };
    launch(p, KERNEL_norm_rows, p->n_rows, 1, NORM_THREADS, 0, &params);
}

static void place_heads(struct pass *p, uint32_t index)
{
    const struct cuda_engine *e = p->e;
    const struct cuda_layer *l = &e->layers[index];
    const struct layer_shape *shape = &p->hp->layers[index];
    const struct cuda_buffers *b = &e->buffers;
    bool is_whole = p->hp->qk_norm == QK_NORM_WHOLE, stores = shape->kv_layer == index;
    struct heads_params params = {
        .step = b->step,
        .rows = b->rows,
        .q = b->q,
        .k = b->k,
        .v = b->v,
        .q_norm = is_whole ? 0 : l->q_norm,
        .k_norm = is_whole ? 0 : l->k_norm,
        .q_out = b->q_out,
        .keys = l->keys,
        .values = l->values,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .key_dim = shape->key_dim,
        .value_dim = shape->value_dim,
        .norm_is_each = p->hp->qk_norm == QK_NORM_EACH_HEAD,
        .kv_type = e->engine.limits.kv_type,
        .group = l->group,
        .stores_kv = stores,
        .eps = p->hp->norm_eps,
        .scale = shape->attn_scale * (p->hp->attn_softcap != 0.0f ? 1.0f : (float)LOG2_E),
        .temperature_scale = p->hp->temperature_scale,
        .temperature_length = p->hp->temperature_length,
    };
    if (shape->rope != ROPE_NONE) {
        params.rope = b->rope[shape->rope];
        params.half = p->hp->ropes[shape->rope].dim / 2;
        params.is_neox = p->hp->ropes[shape->rope].kind == ROPE_NEOX;
    }
    if (is_whole && l->q_norm)
        norm_whole(p, b->q, l->q_norm, shape->n_heads * shape->key_dim);
    if (is_whole && l->k_norm && stores)
        norm_whole(p, b->k, l->k_norm, shape->n_kv_heads * shape->key_dim);
    uint32_t n_heads = shape->n_heads + (stores ? 2 * shape->n_kv_heads : 0);
    launch(p, KERNEL_place_heads, p->n_rows, (n_heads + 3) / 4, 128, 0, &params);
}

static uint32_t attention_chunks(const struct layer_shape *shape)
{
    uint32_t n = (max_u32(shape->key_dim, shape->value_dim) + 63) / 64;
    return n <= 2 ? n : 4;
}

static void attend(struct pass *p, uint32_t index, const struct cuda_activations *out)
{
    const struct cuda_engine *e = p->e;
    const struct cuda_layer *l = &e->layers[index];
    const struct layer_shape *shape = &p->hp->layers[index];
    const struct cuda_buffers *b = &e->buffers;
    enum kv_type kv_type = e->engine.limits.kv_type;
    struct attention_params params = {
        .step = b->step,
        .rows = b->rows,
        .items = b->items[l->shape],
        .merges = b->merges[l->shape],
        .page_table = b->page_table,
        .q = b->q_out,
        .keys = l->keys,
        .values = l->values,
        .sinks = l->sinks,
        .partial = b->partial,
        .partial_state = b->partial_state,
        .out = *out,
        .shape = l->shape,
        .n_heads = shape->n_heads,
        .n_kv_heads = shape->n_kv_heads,
        .heads_per_unit = e->plan_limits.shapes[l->shape].heads_per_unit,
        .key_dim = shape->key_dim,
        .value_dim = shape->value_dim,
        .window = shape->window,
        .group = l->group,
        .cap = p->hp->attn_softcap,
    };
    if (kv_type == KV_F32) {
        launch(p, KERNEL_attention_f32, p->n_rows, shape->n_heads, ATTENTION_BLOCK, 0, &params);
        return;
    }
    uint32_t chunks = attention_chunks(shape);
    enum cuda_kernel first = kv_type == KV_BF16 ? KERNEL_attention_bf16_1 : KERNEL_attention_f16_1;
    launch(p, (enum cuda_kernel)(first + (chunks == 4 ? 2 : chunks - 1)),
           e->n_processors * attention_blocks(chunks), 1, 128, 0, &params);
    if (p->merges)
        launch(p, KERNEL_attention_merge, p->n_rows, shape->n_heads,
               (shape->value_dim + 31) / 32 * 32, 0, &params);
}

static void attention_block(struct pass *p, uint32_t index)
{
    const struct cuda_layer *l = &p->e->layers[index];
    const struct cuda_buffers *b = &p->e->buffers;
    const struct layer_shape *shape = &p->hp->layers[index];
    const struct cuda_matrix *qkv[] = {&l->q, &l->k, &l->v}, *output[] = {&l->output};
    struct cuda_activations normed = inputs_of(&b->normed, qkv, 3);
    struct cuda_activations attended = b->attended;
    attended.stride = (shape->n_heads * shape->value_dim + TILE_COLUMNS - 1) / TILE_COLUMNS *
                      TILE_COLUMNS;
    attended = inputs_of(&attended, output, 1);
    norm(p, l->attn_norm, &normed);
    multiply(p, (struct product){.matrices = {&l->q, &l->k, &l->v},
                                 .out = {b->q, b->k, b->v},
                                 .n = 3,
                                 .input = &normed});
    place_heads(p, index);
    attend(p, index, &attended);
    end_block(p, &l->output, &attended, 1.0f, l->attn_post_norm);
}

/* ---- feed-forward blocks ------------------------------------------------------------------ */

static struct cuda_activations hidden_of(const struct pass *p, uint32_t n_ff,
                                         const struct cuda_matrix *down)
{
    struct cuda_activations hidden = p->e->buffers.hidden;
    hidden.stride = (n_ff + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
    return inputs_of(&hidden, &down, 1);
}

static void gate(struct pass *p, const struct cuda_activations *hidden, uint32_t n_ff,
                 uint32_t rows_per_row, bool has_up)
{
    const struct cuda_buffers *b = &p->e->buffers;
    struct gated_params params = {
        .gate = b->gate,
        .up = has_up ? b->up : 0,
        .n_rows = step_rows(p->e),
        .out = *hidden,
        .n = n_ff,
        .rows_per_row = rows_per_row,
        .activation = p->hp->activation,
        .limit = p->hp->activation_limit,
        .f16_factor = 1.0f / HIDDEN_FACTOR,
    };
    launch(p, KERNEL_gated_rows, p->n_rows * rows_per_row, (hidden->stride + 255) / 256, 256, 0,
           &params);
}

/* `hidden` = activate(gate, up), of rows or of slots of experts. In one launch if the matrices are
 * alike and the tiles large; small tiles need their registers for more warps. The bits are the
 * same. */
static void multiply_gated(struct pass *p, struct product product, uint32_t n_ff,
                           uint32_t rows_per_row, const struct cuda_activations *hidden)
{
    const struct cuda_matrix *gate_matrix = product.matrices[0], *up = product.matrices[1];
    enum tile_kind kind = product.has_experts ? product.kind : tile_kind_for(p->n_rows);
    if (kind != TILE_8 && gate_matrix->format != FORMAT_F32 && gate_matrix->format == up->format) {
        product.mode = PRODUCT_GATED;
        product.gated = hidden;
        multiply(p, product);
        return;
    }
    multiply(p, product);
    gate(p, hidden, n_ff, rows_per_row, up->outputs > 0);
}

static void dense_block(struct pass *p, uint32_t index)
{
    const struct cuda_layer *l = &p->e->layers[index];
    const struct cuda_buffers *b = &p->e->buffers;
    const struct cuda_matrix *gated[] = {&l->gate, &l->up};
    uint32_t n_ff = p->hp->layers[index].n_ff;
    struct cuda_activations normed = inputs_of(&b->normed, gated, 2);
    struct cuda_activations hidden = hidden_of(p, n_ff, &l->down);
    norm(p, l->ffn_norm, &normed);
    multiply_gated(
        p,
        (struct product){
            .matrices = {&l->gate, &l->up}, .out = {b->gate, b->up}, .n = 2, .input = &normed},
        n_ff, 1, &hidden);
    end_block(p, &l->down, &hidden, HIDDEN_FACTOR, l->ffn_post_norm);
}

/* Routes rows to experts and groups them. Returns the tile for an expert's rows. */
static enum tile_kind route(struct pass *p, uint32_t index, const struct cuda_activations *normed)
{
    const struct cuda_layer *l = &p->e->layers[index];
    const struct cuda_buffers *b = &p->e->buffers;
    const struct router *router = &p->hp->router;
    uint64_t n_slots = (uint64_t)p->n_rows * router->n_chosen;
    enum tile_kind kind = tile_kind_for(
        (uint32_t)((n_slots + router->n_experts - 1) / router->n_experts));
    struct choose_params choose = {
        .logits = b->router_logits,
        .correction = l->router_correction,
        .n_rows = step_rows(p->e),
        .experts = b->experts,
        .weights = b->weights,
        .n_experts = router->n_experts,
        .n_chosen = router->n_chosen,
        .scores = router->scores,
        .normalizes = router->normalizes,
        .normalize_eps = router->normalize_eps,
        .scale = router->scale,
    };
    struct group_params group = {
        .experts = b->experts,
        .n_rows = step_rows(p->e),
        .row_of = b->row_of,
        .slot_of = b->slot_of,
        .items = b->expert_items,
        .n_items = b->n_items,
        .n_experts = router->n_experts,
        .n_chosen = router->n_chosen,
        .rows_of_item = tile_rows(kind),
    };
    multiply(p, (struct product){
                    .matrices = {&l->router}, .out = {b->router_logits}, .n = 1, .input = normed});
    launch(p, KERNEL_choose_experts, p->n_rows, 1, 32, 0, &choose);
    launch(p, KERNEL_group_rows, 1, 1, (router->n_experts + 31) / 32 * 32, 0, &group);
    return kind;
}

static void expert_block(struct pass *p, uint32_t index)
{
    const struct cuda_layer *l = &p->e->layers[index];
    const struct cuda_buffers *b = &p->e->buffers;
    const struct router *router = &p->hp->router;
    const struct cuda_matrix *inputs[] = {&l->router, &l->expert_gate, &l->expert_up};
    struct cuda_activations normed = inputs_of(&b->normed, inputs, 3);
    struct cuda_activations hidden = hidden_of(p, router->n_ff, &l->expert_down);
    uint32_t n_slots = p->n_rows * router->n_chosen;
    norm(p, l->ffn_norm, &normed);
    enum tile_kind kind = route(p, index, &normed);
    uint32_t most_items = min_u32(n_slots, router->n_experts + n_slots / tile_rows(kind));
    multiply_gated(p,
                   (struct product){.matrices = {&l->expert_gate, &l->expert_up},
                                    .out = {b->gate, b->up},
                                    .n = 2,
                                    .input = &normed,
                                    .kind = kind,
                                    .has_experts = true,
                                    .gathers = true,
                                    .most_items = most_items},
                   router->n_ff, router->n_chosen, &hidden);
    multiply(p, (struct product){.matrices = {&l->expert_down},
                                 .out = {b->expert_out},
                                 .n = 1,
                                 .input = &hidden,
                                 .f16_factor = HIDDEN_FACTOR,
                                 .kind = kind,
                                 .has_experts = true,
                                 .most_items = most_items});
    struct mixture_params add = {
        .out = b->expert_out,
        .slot_of = b->slot_of,
        .weights = b->weights,
        .n_rows = step_rows(p->e),
        .to = l->ffn_post_norm ? b->added : b->x,
        .n = p->hp->n_embd,
        .n_chosen = router->n_chosen,
        .adds = !l->ffn_post_norm,
        .factor = p->hp->residual_scale,
    };
    launch(p, KERNEL_add_experts, p->n_rows, min_u32((p->hp->n_embd + 255) / 256, 8), 256, 0, &add);
    if (l->ffn_post_norm)
        add_normed(p, l->ffn_post_norm);
}

/* ---- a step ------------------------------------------------------------------------------- */

static void tables(struct pass *p)
{
    const struct cuda_buffers *b = &p->e->buffers;
    struct rope_params params = {
        .step = b->step, .rows = b->rows, .runs = b->runs, .page_table = b->page_table};
    for (uint32_t i = 0; i < p->hp->n_ropes; i++) {
        params.frequencies[i] = b->frequencies[i];
        params.table[i] = b->rope[i];
        params.half[i] = p->hp->ropes[i].dim / 2;
        params.amplitude[i] = p->hp->ropes[i].amplitude;
    }
    launch(p, KERNEL_step_tables, max_u32(p->n_rows, 64), 1, 128, 0, &params);
}

static void head(struct pass *p, uint32_t first, uint32_t n_rows)
{
    const struct cuda_engine *e = p->e;
    const struct cuda_buffers *b = &e->buffers;
    const struct cuda_matrix *matrix = &e->head;
    struct cuda_activations input = inputs_of(&b->head, &matrix, 1);
    assert(n_rows <= HEAD_ROWS);
    CUdeviceptr n_outputs = b->step + offsetof(struct cuda_step, n_outputs);
    struct norm_params params = {
        .x = b->x,
        .weight = e->output_norm,
        .row_of = b->outputs,
        .n_rows = n_outputs,
        .out = input,
        .eps = p->hp->norm_eps,
        .n = p->hp->n_embd,
        .first_row = first,
    };
    launch(p, KERNEL_norm_rows, n_rows, 1, NORM_THREADS, 0, &params);
    multiply(p, (struct product){
                    .matrices = {&e->head},
                    .out = {b->logits - (uint64_t)first * p->hp->n_vocab * sizeof(float)},
                    .n = 1,
                    .input = &input,
                    .mode = PRODUCT_LOGITS,
                    .factor = p->hp->logit_scale,
                    .cap = p->hp->logit_softcap,
                    .n_rows = n_outputs,
                    .first_row = first,
                    .most_rows = n_rows,
                });
}

static void layers(struct pass *p)
{
    tables(p);
    for (uint32_t i = 0; i < p->hp->n_layers; i++) {
        attention_block(p, i);
        if (p->hp->layers[i].has_experts)
            expert_block(p, i);
        else if (p->hp->layers[i].n_ff)
            dense_block(p, i);
    }
}

static struct pass pass_begin(struct cuda_engine *e, uint32_t n_rows, struct error *err)
{
    return (struct pass){
        .e = e, .hp = &e->model->hparams, .n_rows = n_rows, .merges = true, .err = err};
}

int cuda_launch_head(struct cuda_engine *e, uint32_t first, uint32_t n_rows, struct error *err)
{
    struct pass p = pass_begin(e, e->batch->n_rows, err);
    head(&p, first, n_rows);
    return p.failed;
}

int cuda_launch_norm(struct cuda_engine *e, CUdeviceptr weight, const struct cuda_activations *out,
                     uint32_t n_rows, struct error *err)
{
    struct pass p = pass_begin(e, n_rows, err);
    norm(&p, weight, out);
    return p.failed;
}

static int send(struct cuda_engine *e, CUdeviceptr to, const void *from, size_t bytes,
                struct error *err)
{
    return bytes == 0 ? 0
                      : cuda_check(&e->driver, e->driver.copy_to_device(to, from, bytes, e->stream),
                                   "copy a batch to the device", err);
}

/* Takes the runs out of the way of a plan that has more than fit. */
int cuda_flush(void *engine, struct error *err)
{
    struct cuda_engine *e = engine;
    const struct cuda_buffers *b = &e->buffers;
    struct cuda_step *step = e->pinned.plan.step;
    struct rope_params params = {.step = b->step, .runs = b->runs, .page_table = b->page_table};
    const uint32_t grid[2] = {64, 1};
    const struct cuda_step saved = *step;
    step->n_rows = 0;
    int failed = send(e, b->step, step, sizeof *step, err) ||
                 send(e, b->runs, e->pinned.plan.runs, step->n_runs * sizeof(struct cuda_run),
                      err) ||
                 cuda_launch(e, KERNEL_step_tables, grid, 128, 0, &params, err) ||
                 cuda_check(&e->driver, e->driver.stream_synchronize(e->stream),
                            "fill the page table", err);
    *step = saved;
    step->n_runs = 0;
    return failed ? -1 : 0;
}

static void embed(struct cuda_engine *e)
{
    const struct hparams *hp = &e->model->hparams;
    for (uint32_t r = 0; r < e->batch->n_rows; r++) {
        float *x = e->pinned.x + (size_t)r * hp->n_embd;
        weight_floats(&e->model->token_embd, (uint32_t)e->batch->rows[r].value, 0, hp->n_embd, x);
        for (uint32_t i = 0; i < hp->n_embd && hp->embd_scale != 1.0f; i++)
            x[i] *= hp->embd_scale;
    }
}

static int send_plan(struct cuda_engine *e, struct error *err)
{
    const struct cuda_plan *plan = &e->pinned.plan;
    const struct cuda_buffers *b = &e->buffers;
    const struct cuda_step *step = plan->step;
    size_t n_rows = step->n_rows;
    if (send(e, b->step, step, sizeof *step, err) ||
        send(e, b->rows, plan->rows, n_rows * sizeof *plan->rows, err) ||
        send(e, b->outputs, plan->outputs, step->n_outputs * sizeof *plan->outputs, err) ||
        send(e, b->runs, plan->runs, step->n_runs * sizeof *plan->runs, err) ||
        send(e, b->x, e->pinned.x, n_rows * e->model->hparams.n_embd * sizeof(float), err))
        return -1;
    for (uint32_t s = 0; s < e->plan_limits.n_shapes; s++)
        if (send(e, b->items[s], plan->items[s], step->n_items[s] * sizeof *plan->items[s], err) ||
            (step->is_split[s] &&
             send(e, b->merges[s], plan->merges[s], n_rows * sizeof *plan->merges[s], err)))
            return -1;
    return 0;
}

/* Whether some row's attention has to be merged. */
static bool is_split(const struct cuda_engine *e)
{
    bool any = false;
    for (uint32_t s = 0; s < e->plan_limits.n_shapes; s++)
        any |= e->pinned.plan.step->is_split[s] != 0;
    return any;
}

/* The smallest graph for the batch; NULL: none is large enough. */
static CUgraphExec graph_for(const struct cuda_engine *e, uint32_t n_rows)
{
    uint32_t i = 0;
    while (i < GRAPH_SIZES && (graph_rows[i] < n_rows || !e->graph_execs[is_split(e)][i]))
        i++;
    return i < GRAPH_SIZES ? e->graph_execs[is_split(e)][i] : NULL;
}

int cuda_forward_begin(struct cuda_engine *e, struct error *err)
{
    embed(e);
    if (cuda_plan_make(&e->pinned.plan, &e->plan_limits, e->batch, cuda_flush, e, err) ||
        send_plan(e, err))
        return -1;
    uint32_t n_rows = e->batch->n_rows, n_outputs = e->pinned.plan.step->n_outputs;
    CUgraphExec graph = graph_for(e, n_rows);
    if (graph && n_outputs > 0)
        return cuda_check(&e->driver, e->driver.graph_launch(graph, e->stream), "launch a graph",
                          err);
    struct pass p = pass_begin(e, n_rows, err);
    p.merges = is_split(e);
    layers(&p);
    if (n_outputs > 0)
        head(&p, 0, min_u32(n_outputs, HEAD_ROWS));
    return p.failed;
}

static int record_graph(struct cuda_engine *e, bool merges, uint32_t index, struct error *err)
{
    const struct cuda_driver *d = &e->driver;
    CUgraph *graph = &e->graphs[merges][index];
    struct pass p = pass_begin(e, min_u32(graph_rows[index], e->engine.limits.max_rows), err);
    p.merges = merges;
    if (cuda_check(d, d->capture_begin(e->stream, CAPTURE_THREAD_LOCAL), "record a graph", err))
        return -1;
    layers(&p);
    head(&p, 0, p.n_rows);
    CUresult code = d->capture_end(e->stream, graph);
    if (p.failed || cuda_check(d, code, "record a graph", err))
        return -1;
    return cuda_check(d, d->graph_instantiate(&e->graph_execs[merges][index], *graph, 0),
                      "make a graph", err);
}

int cuda_graphs_open(struct cuda_engine *e, struct error *err)
{
    for (uint32_t i = 0; i < GRAPH_SIZES; i++)
        if ((i == 0 || graph_rows[i - 1] < e->engine.limits.max_rows) &&
            (record_graph(e, false, i, err) || record_graph(e, true, i, err)))
            return -1;
    return 0;
}

void cuda_graphs_close(struct cuda_engine *e)
{
    for (uint32_t i = 0; i < 2 * GRAPH_SIZES; i++) {
        CUgraphExec *exec = &e->graph_execs[i % 2][i / 2];
        CUgraph *graph = &e->graphs[i % 2][i / 2];
        if (*exec)
            e->driver.graph_exec_destroy(*exec);
        if (*graph)
            e->driver.graph_destroy(*graph);
        *exec = NULL;
        *graph = NULL;
    }
}
