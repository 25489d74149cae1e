/* The CPU engine's boundary: memory sized at open, weights packed for the kernels by all threads,
 * and the vtable. The owner's thread computes as thread 0 inside wait; submit only takes the batch.
 * What a newcomer gets wrong: nothing may be allocated after open, but by cpu_measure. */
#include "engine/cpu/cpu_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    snprintf(e->engine.info.name, sizeof e->engine.info.name, "cpu (%s, %u thread%s%s%s)",
             e->kernels->name, n, n == 1 ? "" : "s", is_pinned ? ", pinned" : "",
             e->quantized_kind == ACT_Q16 ? ", 16-bit activations" : "");
    int failed = parallel_open(&e->pool, n, is_pinned ? &cpus : NULL, err);
    cpu_topology_close(&cpus);
    return failed;
}

#ifndef NDEBUG
/* The page that runs name for a position, counted from their first. */
static uint32_t page_at(const struct page_run *runs, uint32_t n_runs, uint32_t position)
{
    for (uint32_t i = 0; i < n_runs; position -= runs[i++].count)
        if (position < runs[i].count)
            return runs[i].first + position;
    return UINT32_MAX;
}

static bool runs_are_sound(const struct page_run *runs, uint32_t n_runs, uint32_t n_pages)
{
    for (uint32_t i = 0; i < n_runs; i++)
        if (runs[i].first > n_pages || runs[i].count > n_pages - runs[i].first)
            return false;
    return true;
}

/* The row has its pages where its sequence says, and those that it sees. */
static bool pages_are_sound(const struct cpu_engine *e, const struct batch_row *row,
                            const struct batch_seq *seq)
{
    const struct window_pages *window = &seq->window;
    if (row->page >= e->engine.limits.n_pages ||
        row->page != page_at(seq->runs, seq->n_runs, row->position))
        return false;
    if (e->engine.info.n_groups == 1)
        return true;
    uint32_t seen = e->engine.info.groups[KV_WINDOW].window;
    return window->first <= row->position &&
           (window->first == 0 || window->first + seen <= row->position + 1) &&
           row->window_page < e->engine.limits.n_window_pages &&
           row->window_page == page_at(window->runs, window->n_runs, row->position - window->first);
}

static bool batch_is_sound(const struct cpu_engine *e, const struct batch *batch)
{
    const struct engine_limits *limits = &e->engine.limits;
    if (batch->n_rows == 0 || batch->n_rows > limits->max_rows || batch->n_seqs > limits->max_seqs)
        return false;
    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const struct batch_seq *seq = &batch->seqs[s];
        if (!runs_are_sound(seq->runs, seq->n_runs, limits->n_pages) ||
            (e->engine.info.n_groups > 1 &&
             !runs_are_sound(seq->window.runs, seq->window.n_runs, limits->n_window_pages)))
            return false;
    }
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const struct batch_row *row = &batch->rows[r];
        if (row->token < 0 || (uint32_t)row->token >= e->engine.info.n_vocab ||
            row->seq >= batch->n_seqs || row->position >= limits->max_length ||
            row->position >= batch->seqs[row->seq].length ||
            !pages_are_sound(e, row, &batch->seqs[row->seq]) ||
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
    for (uint32_t g = 0; g < e->engine.info.n_groups; g++)
        kv_touch_ahead(&e->kv_touch[g], e->batch);
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
    parallel_close(e->pool);
    cpu_kv_close(e);
    cpu_state_close(e);
    arena_free(&e->memory);
    free(e->layers);
    free(e);
}

/* One row through all layers, into a page that is written again before anyone reads it. The system
 * hands out memory on first use, here some of each layer's KV: hundreds of milliseconds on a
 * virtual machine, which the first request would wait for. */
static int warm_up(struct cpu_engine *e, struct error *err)
{
    struct page_run run = {.first = 0, .count = 1};
    struct batch_seq seq = {.runs = &run, .n_runs = 1, .length = 1, .window = {&run, 1, 0}};
    struct batch_row row = {.token = 0};
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
    e->quantized_kind = limits->activations == ACTIVATIONS_Q16 ? ACT_Q16 : ACT_Q8;
    e->engine.info.n_vocab = model->hparams.n_vocab;
    e->layers = calloc(model->hparams.n_layers, sizeof *e->layers);
    if (!e->layers)
        error_set(err, ERROR_MEMORY, "no memory for the layers");
    if (!e->layers || select_kernels(e, err) || threads_open(e, err) || cpu_kv_open(e, err) ||
        cpu_state_open(e, err) || cpu_weights_open(e, progress, context, err) || warm_up(e, err)) {
        cpu_close(&e->engine);
        return -1;
    }
    parallel_release(e->pool); /* another thread may compute */
    struct engine_info *info = &e->engine.info;
    info->bit_exact = true;
    info->row_tile = e->quantized_kind == ACT_Q16 ? ROW_TILE / 2 : ROW_TILE;
    info->cost = cpu_cost(e);
    info->buffer_bytes = e->state_memory.size_bytes;
    for (uint32_t i = 0; i < e->n_attentions; i++)
        info->buffer_bytes += attention_bytes(e->attentions[i]);
    *out = &e->engine;
    return 0;
}
