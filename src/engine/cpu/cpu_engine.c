/* The CPU engine's boundary: memory sized at open, weights packed for the kernels by all threads,
 * and the vtable. The owner's thread computes as thread 0 inside wait; submit only takes the
 * batch. Only cpu_measure may allocate after open. */
#include "engine/cpu/cpu_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int select_kernels(struct cpu_engine *e, struct error *err)
{
    const char *name = e->options.kernels;
    e->kernels = kernels_select(name);
    if (e->kernels)
        return 0;
    char known[128] = "";
    for (unsigned i = 0; kernels_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 kernels_at(i)->name);
    return error_set(err, ERROR_INPUT, "this CPU has no kernel path \"%s\"; it has: %s", name,
                     known);
}

static int threads_open(struct cpu_engine *e, struct error *err)
{
    struct engine_info *info = &e->engine.info;
    enum pinning pinning = e->options.pinning;
    struct cpu_topology cpus;
    if (cpu_topology_open(&cpus, err))
        return -1;
    uint32_t n = e->options.n_threads ? e->options.n_threads : cpu_topology_threads(&cpus);
    if (n > PARALLEL_MAX_THREADS)
        n = PARALLEL_MAX_THREADS;
    bool wants_pins = pinning == PIN_ON ||
                      (pinning == PIN_AUTO && cpu_topology_should_pin(&cpus, n));
    bool is_pinned = wants_pins && n <= cpus.n_cpus, is_q16 = e->quantized_kind == ACT_Q16;
    info->n_threads = n;
    snprintf(info->name, sizeof info->name, "cpu (%s, %u thread%s%s%s)", e->kernels->name, n,
             n == 1 ? "" : "s", is_pinned ? ", pinned" : "", is_q16 ? ", 16-bit activations" : "");
    snprintf(info->fingerprint, sizeof info->fingerprint, "%s%s", e->kernels->name,
             is_q16 ? "/q16" : "");
    int failed = parallel_open(&e->pool, n, is_pinned ? &cpus : NULL, err);
    cpu_topology_close(&cpus);
    return failed;
}

#ifndef NDEBUG
/* The page of a position in a view, which must contain it. */
static uint32_t page_at(const struct page_view *view, uint32_t position)
{
    uint32_t at = position - view->first;
    for (uint32_t i = 0; i < view->n_runs; at -= view->runs[i++].count)
        if (at < view->runs[i].count)
            return view->runs[i].first + at;
    return PAGE_NONE;
}

static bool runs_are_sound(const struct page_view *view, uint32_t n_pages)
{
    for (uint32_t i = 0; i < view->n_runs; i++)
        if (view->runs[i].first > n_pages || view->runs[i].count > n_pages - view->runs[i].first)
            return false;
    return true;
}

/* The row's own pages are where its sequence says, and the pages that it sees exist. */
static bool pages_are_sound(const struct cpu_engine *e, const struct batch_row *row,
                            const struct batch_seq *seq)
{
    for (uint32_t g = 0; g < e->engine.info.n_groups; g++) {
        const struct page_view *view = &seq->pages[g];
        uint32_t seen = e->engine.info.groups[g].window;
        if (view->first > 0 && (seen == 0 || view->first + seen > row->position + 1))
            return false;
        if (row->pages[g] >= e->engine.limits.n_pages[g] ||
            row->pages[g] != page_at(view, row->position))
            return false;
    }
    return true;
}

static bool output_is_sound(const struct cpu_engine *e, const struct row_output *out)
{
    return !(out->wants & OUTPUT_HEAD) && (!(out->wants & OUTPUT_LOGITS) || out->logits) &&
           (!(out->wants & OUTPUT_BEST) || (out->best && out->log_sum && out->n_best > 0 &&
                                            out->n_best <= e->engine.info.n_vocab)) &&
           (!(out->wants & OUTPUT_HIDDEN) || out->hidden) &&
           (!(out->wants & OUTPUT_NORMED) || out->normed);
}

static bool row_is_sound(const struct cpu_engine *e, const struct batch *batch,
                         const struct batch_row *row)
{
    return row->source == ROW_TOKEN && row->value >= 0 &&
           (uint32_t)row->value < e->engine.info.n_vocab && row->seq < batch->n_seqs &&
           row->position < e->engine.limits.max_length &&
           row->position < batch->seqs[row->seq].length &&
           pages_are_sound(e, row, &batch->seqs[row->seq]) &&
           (!row->output || output_is_sound(e, row->output));
}

static bool batch_is_sound(const struct cpu_engine *e, const struct batch *batch)
{
    const struct engine_limits *limits = &e->engine.limits;
    if (batch->n_rows == 0 || batch->n_rows > limits->max_rows || batch->n_seqs > limits->max_seqs)
        return false;
    for (uint32_t s = 0; s < batch->n_seqs; s++)
        for (uint32_t g = 0; g < e->engine.info.n_groups; g++)
            if (!runs_are_sound(&batch->seqs[s].pages[g], limits->n_pages[g]))
                return false;
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const struct batch_row *row = &batch->rows[r];
        if (!row_is_sound(e, batch, row) ||
            (r > 0 && row->seq == row[-1].seq && row->position <= row[-1].position))
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
    e->is_computed = false;
    return 0;
}

void cpu_settle(struct cpu_engine *e)
{
    if (!e->batch || e->is_computed)
        return;
    cpu_forward(e);
    for (uint32_t g = 0; g < e->engine.info.n_groups; g++)
        kv_touch_ahead(&e->kv_touch[g], e->batch);
    e->is_computed = true;
}

static int cpu_wait(struct engine *engine, struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    assert(e->batch);
    cpu_settle(e);
    e->batch = NULL;
    return e->stopped ? error_set(err, ERROR_CANCELED, "the batch was cancelled") : 0;
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

/* Computes one row through all layers, into a page that is overwritten before anyone reads it. The
 * system allocates memory on first use, including some of each layer's KV: hundreds of milliseconds
 * on a virtual machine, which the first request would otherwise wait for. */
static int warm_up(struct cpu_engine *e, struct error *err)
{
    struct page_run run = {.first = 0, .count = 1};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = 1};
    struct batch_row row = {.source = ROW_TOKEN};
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1};
    return engine_forward(&e->engine, &batch, err);
}

static const struct engine_ops cpu_ops = {.abi = ENGINE_ABI,
                                          .submit = cpu_submit,
                                          .wait = cpu_wait,
                                          .page_io = cpu_page_io,
                                          .io_poll = cpu_io_poll,
                                          .measure = cpu_measure,
                                          .close = cpu_close};

int cpu_engine_open(struct engine **out, const struct model *model,
                    const struct engine_limits *limits, const struct cpu_options *options,
                    struct error *err)
{
    assert(limits->n_pages[0] > 0 && limits->max_rows > 0 && limits->max_seqs > 0);
    struct cpu_engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(err, ERROR_MEMORY, "no memory for the engine");
    e->engine.ops = &cpu_ops;
    e->engine.limits = *limits;
    e->options = *options;
    e->model = model;
    e->quantized_kind = options->activations == ACTIVATIONS_Q16 ? ACT_Q16 : ACT_Q8;
    struct engine_info *info = &e->engine.info;
    info->n_vocab = model->hparams.n_vocab;
    info->n_embd = model->hparams.n_embd;
    info->rope_axes = 1;
    e->layers = calloc(model->hparams.n_layers, sizeof *e->layers);
    if (!e->layers)
        error_set(err, ERROR_MEMORY, "no memory for the layers");
    if (!e->layers || select_kernels(e, err) || threads_open(e, err) || cpu_kv_open(e, err) ||
        cpu_state_open(e, err) || cpu_weights_open(e, err) || warm_up(e, err)) {
        cpu_close(&e->engine);
        return -1;
    }
    parallel_release(e->pool); /* another thread may compute */
    info->bit_exact = true;
    info->row_tile = e->quantized_kind == ACT_Q16 ? ROW_TILE / 2 : ROW_TILE;
    info->cost = cpu_cost(e);
    info->buffer_bytes = e->state_memory.size_bytes;
    for (uint32_t i = 0; i < e->n_attentions; i++)
        info->buffer_bytes += attention_bytes(e->attentions[i]);
    *out = &e->engine;
    return 0;
}
