/* See device.h. */
#include "device.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/parallel.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/cuda/cuda_pack.h"
#include "engine/kv_groups.h"
#include "schedule.h"
#include "test.h"

struct engine_source device_source;

struct engine_limits device_limits(const struct model *m, enum kv_type kv_type)
{
    struct kv_group groups[KV_MAX_GROUPS];
    uint32_t n = kv_groups(&m->hparams, kv_type, groups);
    return (struct engine_limits){.n_pages = {DEVICE_PAGES, n > 1 ? DEVICE_PAGES : 0},
                                  .max_rows = DEVICE_MAX_ROWS,
                                  .max_seqs = DEVICE_MAX_SEQS,
                                  .max_length = DEVICE_MAX_TOKENS,
                                  .kv_type = kv_type};
}

struct engine *device_engine(const struct model *m, const struct engine_limits *limits)
{
    struct engine *e;
    struct error err;
    if (engine_source_engine(&device_source, &e, m, limits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

void device_tokens(int32_t *tokens, uint32_t n, uint32_t n_vocab, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(seed, i) % n_vocab);
}

/* ---- the exact model ---------------------------------------------------------------------- */

struct unpacking {
    struct cuda_shape shape;
    const uint8_t *data, *scales;
    float *values;
};

static void unpack_job(void *context, uint32_t thread, uint32_t n_threads)
{
    const struct unpacking *u = context;
    for (uint32_t r = thread; r < u->shape.rows; r += n_threads)
        for (uint32_t c = 0; c < u->shape.cols; c++)
            u->values[(size_t)r * u->shape.cols + c] = cuda_unpack(&u->shape, u->data, u->scales, r,
                                                                   c);
}

static void make_exact(struct exact_model *x, struct parallel *pool, struct weight *w)
{
    if (!w->data)
        return;
    struct unpacking u = {.shape = cuda_pack_shape(w)};
    uint8_t *data = malloc(u.shape.data_bytes), *scales = malloc(u.shape.scale_bytes + 1);
    u.values = arena_alloc_array(&x->arena, (size_t)w->rows * w->cols, sizeof *u.values);
    CHECK(data && scales && u.values);
    cuda_pack(w, &u.shape, 0, u.shape.out_tiles, data, scales);
    u.data = data;
    u.scales = scales;
    parallel_run(pool, unpack_job, &u);
    free(data);
    free(scales);
    x->is_bf16 |= format_is_bf16(u.shape.format);
    x->is_f32 &= u.shape.format == FORMAT_F32;
    *w = weight_make(TENSOR_F32, w->rows, w->cols, u.values);
}

static void *copy(struct exact_model *x, const void *from, size_t n, size_t size)
{
    void *to = arena_alloc_array(&x->arena, n, size);
    CHECK(to != NULL);
    memcpy(to, from, n * size);
    return to;
}

static void make_layer_exact(struct exact_model *x, struct parallel *pool, struct layer_weights *l)
{
    static const size_t matrices[] = {
        offsetof(struct layer_weights, attn_q),       offsetof(struct layer_weights, attn_k),
        offsetof(struct layer_weights, attn_v),       offsetof(struct layer_weights, attn_output),
        offsetof(struct layer_weights, q_a),          offsetof(struct layer_weights, q_b),
        offsetof(struct layer_weights, kv_a),         offsetof(struct layer_weights, k_b),
        offsetof(struct layer_weights, v_b),          offsetof(struct layer_weights, ffn_gate),
        offsetof(struct layer_weights, ffn_up),       offsetof(struct layer_weights, ffn_down),
        offsetof(struct layer_weights, shared_gate),  offsetof(struct layer_weights, shared_up),
        offsetof(struct layer_weights, shared_down),  offsetof(struct layer_weights, layer_gate),
        offsetof(struct layer_weights, layer_output),
    };
    uint32_t n_experts = x->model.hparams.router.n_experts;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        make_exact(x, pool, (struct weight *)((char *)l + matrices[i]));
    if (!l->experts)
        return;
    l->experts = copy(x, l->experts, n_experts, sizeof *l->experts);
    for (uint32_t i = 0; i < n_experts; i++) {
        make_exact(x, pool, &l->experts[i].gate);
        make_exact(x, pool, &l->experts[i].up);
        make_exact(x, pool, &l->experts[i].down);
    }
}

void exact_model_open(struct exact_model *x, const struct model *m)
{
    struct error err;
    struct parallel *pool;
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (parallel_open(&pool, n_cpus > 1 ? (uint32_t)n_cpus : 1, NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    *x = (struct exact_model){.model = *m, .is_f32 = true};
    x->model.layers = copy(x, m->layers, m->hparams.n_layers, sizeof *m->layers);
    make_exact(x, pool, &x->model.output);
    make_exact(x, pool, &x->model.layer_proj);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        make_layer_exact(x, pool, &x->model.layers[i]);
    parallel_close(pool);
}

void exact_model_close(struct exact_model *x)
{
    arena_free(&x->arena);
}

void exact_logits(const struct exact_model *x, enum kv_type kv_type, const int32_t *tokens,
                  uint32_t n, float *logits)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = device_limits(&x->model, kv_type);
    const struct cpu_options options = {.pack_cache = PACK_CACHE_OFF};
    if (cpu_engine_open(&e, &x->model, &limits, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    schedule_plain(e, tokens, n, logits);
    engine_close(e);
}

/* ---- shapes ------------------------------------------------------------------------------- */

static const struct device_shape shapes[] = {
    {"heads64", {3, 256, 768, 4, 2, 64, 1000}},
    {"heads96", {3, 512, 2304, 8, 2, 96, 1000, .has_biases = true}},
    {"window128", {4, 1024, 2560, 8, 4, 128, 1000, .window = 24, .norms_qk = true}},
    {"gemma256", {4, 768, 1536, 4, 1, 256, 1000, .window = 16, .is_gemma = true}},
    {"experts", {3, 512, 0, 8, 2, 64, 1000, 16, 4, 256, .norms_qk = true}},
    {"oss",
     {4, 768, 0, 16, 2, 64, 1000, 8, 2, 1280, .window = 20, .has_biases = true, .has_sinks = true}},
};

const struct device_shape *device_shape_at(uint32_t index)
{
    return index < sizeof shapes / sizeof *shapes ? &shapes[index] : NULL;
}

void device_shape_open(struct shaped_model *m, const char *shape, const char *type)
{
    struct error err;
    uint32_t i = 0;
    while (device_shape_at(i) && strcmp(device_shape_at(i)->name, shape) != 0)
        i++;
    CHECK(device_shape_at(i) != NULL);
    struct shaped_options options = device_shape_at(i)->options;
    options.seed = i + 1;
    CHECK(shaped_types_named(type, &options.types));
    if (shaped_model_open(m, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}
