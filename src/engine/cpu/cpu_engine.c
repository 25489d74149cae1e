/* The CPU engine's boundary: memory sized at open, weights packed for the kernels by all threads,
 * and the vtable. The owner's thread computes as thread 0 inside wait; submit only takes the batch.
 * What a newcomer gets wrong: nothing may be allocated after open, but by cpu_measure. */
#include "engine/cpu/cpu_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/cpu/rope.h"

/* Norms and biases are small and lie between the matrices in the file. Read from there they would
 * keep 64 KiB of it in memory for each. */
static const float *vector_copy(const struct weight *vector, float **room)
{
    if (!vector->data)
        return NULL;
    float *copy = *room;
    *room += vector->cols;
    return memcpy(copy, vector->data, vector->cols * sizeof *copy);
}

static int vectors_open(struct cpu_engine *e, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    size_t most = 2 * (size_t)hp->n_embd +
                  ((size_t)hp->n_heads + 2 * hp->n_kv_heads) * hp->head_dim;
    float *room = e->vectors = calloc(hp->n_layers * most, sizeof *room);
    e->layers = calloc(hp->n_layers, sizeof *e->layers);
    if (!e->vectors || !e->layers)
        return error_set(err, ERROR_MEMORY, "no memory for the layers' vectors");
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct layer_weights *w = &e->model->layers[i];
        struct cpu_layer *l = &e->layers[i];
        l->attn_norm = vector_copy(&w->attn_norm, &room);
        l->ffn_norm = vector_copy(&w->ffn_norm, &room);
        l->q_bias = vector_copy(&w->attn_q_bias, &room);
        l->k_bias = vector_copy(&w->attn_k_bias, &room);
        l->v_bias = vector_copy(&w->attn_v_bias, &room);
    }
    return 0;
}

/* The largest comes first, so that no thread is left with it at the end. */
static uint32_t list_weights(struct cpu_engine *e, const struct weight **weights,
                             struct packed_matrix ***places)
{
    uint32_t n = 0;
    weights[n] = &e->model->output;
    places[n++] = &e->head;
    for (uint32_t i = 0; i < e->model->hparams.n_layers; i++) {
        const struct layer_weights *w = &e->model->layers[i];
        struct cpu_layer *l = &e->layers[i];
        const struct {
            const struct weight *weight;
            struct packed_matrix **place;
        } all[] = {{&w->ffn_gate, &l->gate},     {&w->ffn_up, &l->up}, {&w->ffn_down, &l->down},
                   {&w->attn_q, &l->q},          {&w->attn_k, &l->k},  {&w->attn_v, &l->v},
                   {&w->attn_output, &l->output}};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++, n++) {
            weights[n] = all[j].weight;
            places[n] = all[j].place;
        }
    }
    return n;
}

/* What is left of the file to read: all but the matrices that were packed. Of the table of
 * embeddings rows are read even if it was packed too, as the head. */
static uint64_t file_bytes_in_use(const struct cpu_engine *e)
{
    uint64_t bytes = e->model->gguf.map_bytes;
    for (uint32_t i = 0; i < e->weights.n_matrices; i++) {
        const struct weight *w = e->weights.weights[i];
        const struct tensor_type_info *type = tensor_type_info(w->type);
        uint64_t taken = (uint64_t)w->rows * w->cols / type->block_len * type->block_bytes;
        if (w->data != e->model->token_embd.data && taken <= bytes)
            bytes -= taken;
    }
    return bytes;
}

static int weights_open(struct cpu_engine *e, engine_progress progress, void *context,
                        struct error *err)
{
    const struct gguf *gguf = &e->model->gguf;
    size_t most = 1 + 7 * (size_t)e->model->hparams.n_layers;
    const struct weight **weights = calloc(most, sizeof *weights);
    struct packed_matrix ***places = calloc(most, sizeof *places);
    int result = -1;
    if (!weights || !places) {
        error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    } else {
        uint32_t n = list_weights(e, weights, places);
        result = weight_store_open(&e->weights, gguf, weights, n, err) ||
                         weight_store_load(&e->weights, e->pool, e->engine.limits.pack_cache,
                                           progress, context, err)
                     ? -1
                     : 0;
        for (uint32_t i = 0; i < n && result == 0; i++)
            *places[i] = e->weights.matrices[i];
    }
    /* What was packed is not read from the file again, but for rows of the embedding table. */
    if (result == 0 && gguf->map)
        madvise((void *)(uintptr_t)gguf->map, gguf->map_bytes, MADV_DONTNEED);
    e->engine.info.weight_bytes = e->weights.size_bytes;
    e->engine.info.file_bytes = file_bytes_in_use(e);
    free(weights);
    free(places);
    return result;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Hands out pieces of one mapping; with no mapping yet, only adds up what they take. */
struct layout {
    uint8_t *base;
    size_t used_bytes;
};

static void *layout_take(struct layout *l, size_t size_bytes)
{
    void *piece = l->base ? l->base + l->used_bytes : NULL;
    l->used_bytes += (size_bytes + 63) / 64 * 64;
    return piece;
}

static float *layout_rows(struct layout *l, size_t rows, uint32_t width)
{
    return layout_take(l, rows * width * sizeof(float));
}

static struct cpu_rows layout_layer_rows(struct layout *l, const struct hparams *hp, uint32_t rows)
{
    uint32_t widest = max_u32(max_u32(hp->n_embd, hp->n_heads * hp->head_dim), hp->n_ff);
    uint32_t kv_dim = hp->n_kv_heads * hp->head_dim;
    struct cpu_rows r = {
        .normed = layout_rows(l, rows, hp->n_embd),
        .k = layout_rows(l, rows, kv_dim),
        .v = layout_rows(l, rows, kv_dim),
        .gate = layout_rows(l, rows, hp->n_ff),
        .up = layout_rows(l, rows, hp->n_ff),
        .added = layout_rows(l, rows, hp->n_embd),
    };
    r.quantized = layout_take(l, activations_bytes(rows, widest));
    return r;
}

static void state_layout(struct cpu_engine *e, struct layout *l)
{
    const struct hparams *hp = &e->model->hparams;
    struct cpu_state *s = &e->state;
    uint32_t q_dim = hp->n_heads * hp->head_dim;
    uint32_t rows = e->engine.limits.max_rows;
    s->x = layout_rows(l, rows, hp->n_embd);
    s->q = layout_rows(l, rows, q_dim);
    s->attended = layout_rows(l, rows, q_dim);
    s->cos = layout_rows(l, rows, hp->rope_dim);
    s->sin = layout_rows(l, rows, hp->rope_dim);
    s->outputs = layout_take(l, rows * sizeof *s->outputs);
    s->shared = layout_layer_rows(l, hp, rows);
    for (uint32_t t = 0; t < e->engine.limits.n_threads; t++)
        s->own[t] = layout_layer_rows(l, hp, CHUNK_ROWS);
}

static int state_open(struct cpu_engine *e, struct error *err)
{
    e->state.own = calloc(e->engine.limits.n_threads, sizeof *e->state.own);
    e->taken = calloc(cpu_phases(&e->model->hparams), sizeof *e->taken);
    if (!e->state.own || !e->taken)
        return error_set(err, ERROR_MEMORY, "no memory for the rows of a batch");
    struct layout measured = {NULL, 0};
    state_layout(e, &measured);
    if (buffer_map(&e->state_memory, measured.used_bytes, "the rows of a batch", err))
        return -1;
    state_layout(e, &(struct layout){e->state_memory.data, 0});
    return 0;
}

static int kv_open(struct cpu_engine *e, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    const struct engine_limits *limits = &e->engine.limits;
    uint64_t page_bytes = kv_page_bytes(hp, limits->kv_type);
    e->kv_row_bytes = page_bytes / hp->n_layers / 2;
    if (page_bytes > UINT32_MAX || limits->n_pages > SIZE_MAX / 2 / page_bytes)
        return error_set(err, ERROR_LIMIT, "a cache of %u positions does not fit in memory",
                         limits->n_pages);
    e->engine.info.n_groups = 1;
    e->engine.info.groups[0] = (struct kv_group){hp->n_layers, (uint32_t)page_bytes, 0};
    e->engine.info.kv_bytes = limits->n_pages * page_bytes;
    if (buffer_map(&e->kv, limits->n_pages * page_bytes, "the KV cache", err))
        return -1;
    return kv_touch_open(&e->kv_touch, e->kv.data, 2 * hp->n_layers, limits->n_pages,
                         e->kv_row_bytes, err);
}

static int attention_and_rope_open(struct cpu_engine *e, struct error *err)
{
    const struct hparams *hp = &e->model->hparams;
    const struct engine_limits *limits = &e->engine.limits;
    struct attention_shape shape = {
        .n_heads = hp->n_heads,
        .n_kv_heads = hp->n_kv_heads,
        .head_dim = hp->head_dim,
        .kv_type = limits->kv_type,
        .max_rows = limits->max_rows,
        .max_length = limits->max_length,
        .n_threads = limits->n_threads,
    };
    e->rope_frequencies = calloc(hp->rope_dim / 2 + 1, sizeof *e->rope_frequencies);
    if (!e->rope_frequencies)
        return error_set(err, ERROR_MEMORY, "no memory for rope");
    rope_frequencies(hp, &e->model->rope_freqs, e->rope_frequencies);
    return attention_open(&e->attention, &shape, e->kernels->vector, err);
}

static int select_kernels(struct cpu_engine *e, struct error *err)
{
    const char *name = e->engine.limits.kernels;
    e->kernels = kernels_select(name);
    if (e->kernels)
        return 0;
    char known[128] = "";
    for (unsigned i = 0; kernels_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 kernels_at(i)->name);
    return error_set(err, ERROR_INPUT, "no kernel path \"%s\" on this CPU, which has: %s", name,
                     known);
}

static int threads_open(struct cpu_engine *e, struct error *err)
{
    struct engine_limits *limits = &e->engine.limits;
    struct cpu_topology cpus;
    if (cpu_topology_open(&cpus, err))
        return -1;
    if (limits->n_threads == 0)
        limits->n_threads = cpu_topology_threads(&cpus);
    if (limits->n_threads > PARALLEL_MAX_THREADS)
        limits->n_threads = PARALLEL_MAX_THREADS;
    uint32_t n = limits->n_threads;
    bool wants_pins = limits->pinning == PIN_ON ||
                      (limits->pinning == PIN_AUTO && cpu_topology_should_pin(&cpus, n));
    bool is_pinned = wants_pins && n <= cpus.n_cpus;
    snprintf(e->engine.info.name, sizeof e->engine.info.name, "cpu (%s, %u thread%s%s)",
             e->kernels->name, n, n == 1 ? "" : "s", is_pinned ? ", pinned" : "");
    int failed = parallel_open(&e->pool, n, is_pinned ? &cpus : NULL, err);
    cpu_topology_close(&cpus);
    return failed;
}

#ifndef NDEBUG
/* The page that a sequence's runs name for a position. */
static uint32_t page_at(const struct batch_seq *seq, uint32_t position)
{
    for (uint32_t i = 0; i < seq->n_runs; position -= seq->runs[i++].count)
        if (position < seq->runs[i].count)
            return seq->runs[i].first + position;
    return UINT32_MAX;
}

static bool batch_is_sound(const struct cpu_engine *e, const struct batch *batch)
{
    const struct engine_limits *limits = &e->engine.limits;
    if (batch->n_rows == 0 || batch->n_rows > limits->max_rows || batch->n_seqs > limits->max_seqs)
        return false;
    for (uint32_t s = 0; s < batch->n_seqs; s++)
        for (uint32_t i = 0; i < batch->seqs[s].n_runs; i++)
            if (batch->seqs[s].runs[i].first > limits->n_pages ||
                batch->seqs[s].runs[i].count > limits->n_pages - batch->seqs[s].runs[i].first)
                return false;
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const struct batch_row *row = &batch->rows[r];
        if (row->token < 0 || (uint32_t)row->token >= e->engine.info.n_vocab ||
            row->seq >= batch->n_seqs || row->position >= limits->max_length ||
            row->position >= batch->seqs[row->seq].length || row->page >= limits->n_pages ||
            row->page != page_at(&batch->seqs[row->seq], row->position) ||
            (row->output == OUTPUT_LOGITS && !batch->logits))
            return false;
        if (r > 0 && row->seq == row[-1].seq && row->position <= row[-1].position)
            return false;
    }
    return true;
}
#endif

static int cpu_submit(struct engine *engine, const struct batch *batch, struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    (void)err;
    assert(!e->batch);
    assert(batch_is_sound(e, batch));
    e->batch = batch;
    return 0;
}

static int cpu_wait(struct engine *engine, struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    assert(e->batch);
    cpu_forward(e);
    kv_touch_ahead(&e->kv_touch, e->batch);
    e->batch = NULL;
    return e->stopped ? error_set(err, ERROR_CANCELED, "no one waits for this batch") : 0;
}

static int cpu_measure(struct engine *engine, uint32_t duration_ms, struct machine_limits *best,
                       struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    if (!e->probe && machine_probe_open(&e->probe, e->pool, err))
        return -1;
    machine_probe_run(e->probe, e->kernels, duration_ms, best);
    return 0;
}

static void cpu_close(struct engine *engine)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    machine_probe_close(e->probe);
    weight_store_close(&e->weights);
    attention_close(e->attention);
    parallel_close(e->pool);
    buffer_unmap(&e->kv);
    kv_touch_close(&e->kv_touch);
    buffer_unmap(&e->state_memory);
    free(e->state.own);
    free(e->taken);
    free(e->rope_frequencies);
    free(e->layers);
    free(e->vectors);
    free(e);
}

/* One row through all layers, into a page that is written again before anyone reads it. The system
 * hands out memory on first use, here some of each layer's KV: hundreds of milliseconds on a
 * virtual machine, which the first request would wait for. */
static int warm_up(struct cpu_engine *e, struct error *err)
{
    struct page_run run = {.first = 0, .count = 1};
    struct batch_seq seq = {.runs = &run, .n_runs = 1, .length = 1};
    struct batch_row row = {.token = 0, .position = 0, .page = 0, .seq = 0};
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1};
    return engine_forward(&e->engine, &batch, err);
}

static const struct engine_ops cpu_ops = {cpu_submit, cpu_wait, cpu_measure, cpu_close};

int cpu_engine_open(struct engine **out, const struct model *model,
                    const struct engine_limits *limits, engine_progress progress, void *context,
                    struct error *err)
{
    assert(limits->n_pages > 0 && limits->max_rows > 0 && limits->max_seqs > 0);
    struct cpu_engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(err, ERROR_MEMORY, "no memory for the engine");
    e->engine.ops = &cpu_ops;
    e->engine.limits = *limits;
    e->model = model;
    e->engine.info.n_vocab = model->hparams.n_vocab;
    if (select_kernels(e, err) || threads_open(e, err) || kv_open(e, err) || state_open(e, err) ||
        attention_and_rope_open(e, err) || vectors_open(e, err) ||
        weights_open(e, progress, context, err) || warm_up(e, err)) {
        cpu_close(&e->engine);
        return -1;
    }
    parallel_release(e->pool); /* another thread may compute */
    struct engine_info *info = &e->engine.info;
    info->bit_exact = true;
    info->row_tile = ROW_TILE;
    info->cost = cpu_cost(e);
    info->buffer_bytes = e->state_memory.size_bytes + attention_bytes(e->attention);
    *out = &e->engine;
    return 0;
}
