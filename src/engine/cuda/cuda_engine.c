/* The CUDA engine's boundary. All memory of the device is taken at open, in three allocations:
 * weights, KV, buffers. submit starts the device, wait fills in the rows' outputs. A failure of
 * the device loses everything on it; reopen starts again from the model. Owner thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "engine/cuda/cuda_internal.h"

enum {
    ATTRIBUTE_PROCESSORS = 16,
    ATTRIBUTE_SHARED_BYTES = 97, /* of a block of threads, on request */
    FUNCTION_SHARED_BYTES = 8,
    FUNCTION_MADE_FOR = 5, /* the virtual architecture: 90 */
    DEPENDENT_LAUNCH_CAPABILITY = 90,
    STREAM_NON_BLOCKING = 1,
    PARTIAL_BYTES = 256 << 20, /* for blocks of attention, at most about this */
};

int cuda_enter(struct cuda_engine *e, struct error *err)
{
    if (e->is_lost)
        return error_set(err, ERROR_DEVICE, "the CUDA device failed before: it must be reopened");
    e->is_lost = cuda_check(&e->driver, e->driver.context_set(e->context), "use the device", err);
    return e->is_lost ? -1 : 0;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static uint32_t most_partials(const struct model *m, const struct cuda_plan_limits *plan)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        for (uint32_t s = 0; s < plan->n_shapes; s++)
            most = max_u64(most, (uint64_t)plan->shapes[s].n_units * ATTENTION_QUERIES *
                                     (m->hparams.layers[i].value_dim + 2) * sizeof(float));
    return (uint32_t)min_u64(PARTIAL_BYTES / most, CUDA_MAX_PARTIALS);
}

static int plan_limits_make(struct cuda_plan_limits *plan, const struct model *m,
                            const struct engine_limits *limits, struct cuda_layer *layers,
                            uint32_t n_groups, struct error *err)
{
    *plan = (struct cuda_plan_limits){
        .max_items = limits->max_rows + CUDA_MAX_ITEMS,
        .max_runs = CUDA_MAX_RUNS,
    };
    if (cuda_layout_shapes(m, plan, layers, n_groups, err))
        return -1;
    plan->max_partials = most_partials(m, plan);
    return 0;
}

static uint32_t groups_of(const struct model *m, const struct engine_limits *limits,
                          struct kv_group groups[KV_MAX_GROUPS])
{
    uint32_t n = kv_groups(&m->hparams, limits->kv_type, groups);
    return limits->n_pages[1] ? n : kv_groups_join(groups, n);
}

uint64_t cuda_engine_bytes(const struct model *model, const struct engine_limits *limits)
{
    struct kv_group groups[KV_MAX_GROUPS];
    struct cuda_plan_limits plan;
    struct cuda_buffers buffers;
    struct cuda_matrix head;
    CUdeviceptr output_norm;
    struct cuda_region weights = {0}, rest = {0};
    uint32_t n_groups = groups_of(model, limits, groups);
    if (plan_limits_make(&plan, model, limits, NULL, n_groups, NULL))
        return 0;
    cuda_layout_weights(&weights, model, NULL, &head, &output_norm, NULL, NULL);
    cuda_layout_buffers(&rest, model, limits, groups, n_groups, &plan, &buffers);
    return weights.used + rest.used;
}

/* ---- the device --------------------------------------------------------------------------- */

static int load_kernels(struct cuda_engine *e, struct error *err)
{
    static const char *const names[] = {
#define CUDA_KERNEL_NAME(name) #name,
        CUDA_KERNELS(CUDA_KERNEL_NAME)
#undef CUDA_KERNEL_NAME
    };
    const struct cuda_driver *d = &e->driver;
    if (cuda_check(d, d->module_load(&e->module, e->options.kernels), "load the kernels", err))
        return -1;
    for (int i = 0; i < N_CUDA_KERNELS; i++) {
        bool is_large = i <= KERNEL_product_40;
        if (cuda_check(d, d->module_function(&e->kernels[i], e->module, names[i]), "find a kernel",
                       err) ||
            (is_large &&
             cuda_check(d,
                        d->function_set(e->kernels[i], FUNCTION_SHARED_BYTES, (int)e->shared_bytes),
                        "give a kernel shared memory", err)))
            return -1;
    }
    /* A newer device may have compiled kernels of an older one, which do not wait for each other.
     */
    if (cuda_check(d, d->function_get(&e->kernels_made_for, FUNCTION_MADE_FOR, e->kernels[0]),
                   "look at a kernel", err))
        return -1;
    e->has_dependent_launch = e->kernels_made_for >= DEPENDENT_LAUNCH_CAPABILITY;
    return 0;
}

/* On a device that could do better. */
static void log_slow_launches(const struct cuda_engine *e)
{
    const char *name = e->device.name;
    int made_for = e->kernels_made_for, best = DEPENDENT_LAUNCH_CAPABILITY;
    if (e->has_dependent_launch || e->device.capability < best)
        return;
    if (made_for == 0)
        log_warn("%s: kernels cannot overlap and are slower, because the driver does not say which "
                 "compute capability they were compiled for",
                 name);
    else
        log_warn("%s: kernels cannot overlap and are slower, because they were compiled for "
                 "compute capability %d.%d, not %d.%d or newer",
                 name, made_for / 10, made_for % 10, best / 10, best % 10);
}

static int device_start(struct cuda_engine *e, struct error *err)
{
    const struct cuda_driver *d = &e->driver;
    int n_processors, shared_bytes;
    if (cuda_check(d, d->context_retain(&e->context, e->device.id), "start the device", err)) {
        e->context = NULL; /* the driver may have written something */
        return -1;
    }
    if (cuda_check(d, d->context_set(e->context), "use the device", err) ||
        cuda_check(d, d->device_attribute(&n_processors, ATTRIBUTE_PROCESSORS, e->device.id),
                   "look at the device", err) ||
        cuda_check(d, d->device_attribute(&shared_bytes, ATTRIBUTE_SHARED_BYTES, e->device.id),
                   "look at the device", err) ||
        cuda_check(d, d->stream_create(&e->stream, STREAM_NON_BLOCKING), "create a stream", err))
        return -1;
    e->n_processors = (uint32_t)n_processors;
    e->shared_bytes = (uint32_t)shared_bytes;
    e->plan_limits.wanted_units = 2 * e->n_processors;
    return load_kernels(e, err);
}

static int take_memory(struct cuda_engine *e, CUdeviceptr *out, uint64_t bytes, const char *what,
                       struct error *err)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUresult code = e->driver.memory_alloc(out, bytes);
    if (code != CUDA_ERROR_OUT_OF_MEMORY)
        return cuda_check(&e->driver, code, "allocate memory", err);
    e->driver.memory_info(&free_bytes, &total_bytes);
    return error_set(
        err, ERROR_MEMORY,
        "%s has no room for %s: it takes %llu MiB, and %zu of %zu MiB are free. Give a "
        "smaller --cache-size or -c, or end what else uses the device",
        e->device.name, what, (unsigned long long)(bytes >> 20), free_bytes >> 20,
        total_bytes >> 20);
}

static int memory_open(struct cuda_engine *e, struct error *err)
{
    struct engine_info *info = &e->engine.info;
    const struct engine_limits *limits = &e->engine.limits;
    struct cuda_region weights = {0}, kv = {0}, buffers = {0};
    cuda_layout_weights(&weights, e->model, e->layers, &e->head, &e->output_norm, NULL, NULL);
    cuda_layout_kv(&kv, e->model, limits, info->n_groups, e->layers);
    cuda_layout_buffers(&buffers, e->model, limits, info->groups, info->n_groups, &e->plan_limits,
                        &e->buffers);
    info->weight_bytes = weights.used;
    info->table_bytes = model_table_bytes(e->model);
    info->kv_bytes = kv.used;
    info->buffer_bytes = buffers.used;
    if (take_memory(e, &e->weights_memory, weights.used, "the weights", err) ||
        take_memory(e, &e->buffers_memory, buffers.used, "buffers", err) ||
        take_memory(e, &e->kv_memory, max_u64(kv.used, 1), "the KV cache", err))
        return -1;
    kv = (struct cuda_region){e->kv_memory, 0};
    buffers = (struct cuda_region){e->buffers_memory, 0};
    cuda_layout_kv(&kv, e->model, limits, info->n_groups, e->layers);
    cuda_layout_buffers(&buffers, e->model, limits, info->groups, info->n_groups, &e->plan_limits,
                        &e->buffers);
    const struct cuda_driver *d = &e->driver;
    return cuda_check(d, d->memory_set(e->buffers_memory, 0, buffers.used, e->stream),
                      "clear memory", err) ||
           cuda_check(d, d->memory_set(e->kv_memory, 0, max_u64(kv.used, 1), e->stream),
                      "clear memory", err);
}

/* ---- pinned memory ------------------------------------------------------------------------ */

static uint8_t *take_pinned(uint8_t *base, size_t *used, size_t bytes)
{
    uint8_t *at = base + *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

/* With base NULL it only returns the bytes. */
static size_t pinned_layout(struct cuda_engine *e, uint8_t *base)
{
    struct cuda_pinned *p = &e->pinned;
    const struct hparams *hp = &e->model->hparams;
    const struct cuda_plan_limits *limits = &e->plan_limits;
    size_t used = 0, n_rows = e->engine.limits.max_rows;
#define TAKE(n, type) ((type *)(void *)take_pinned(base, &used, (size_t)(n) * sizeof(type)))
    p->plan.step = TAKE(1, struct cuda_step);
    p->plan.rows = TAKE(n_rows, struct cuda_row);
    p->plan.outputs = TAKE(n_rows, uint32_t);
    for (uint32_t s = 0; s < limits->n_shapes; s++) {
        p->plan.items[s] = TAKE(limits->max_items, struct cuda_item);
        p->plan.merges[s] = TAKE(n_rows, struct cuda_merge);
    }
    p->plan.runs = TAKE(limits->max_runs, struct cuda_run);
    p->x = TAKE(n_rows * hp->n_embd, float);
    p->logits = TAKE((size_t)HEAD_ROWS * hp->n_vocab, float);
    p->n_best = TAKE(n_rows, uint32_t);
    p->best = TAKE(HEAD_ROWS * CUDA_MAX_BEST, struct cuda_best);
    p->log_sums = TAKE(HEAD_ROWS, float);
    e->io_staging = TAKE(IO_STAGING_BYTES, uint8_t);
#undef TAKE
    return used;
}

static int pinned_open(struct cuda_engine *e, struct error *err)
{
    void *memory;
    size_t bytes = pinned_layout(e, NULL);
    if (cuda_check(&e->driver, e->driver.host_alloc(&memory, bytes, 0), "allocate pinned memory",
                   err))
        return -1;
    e->pinned.data = memory;
    pinned_layout(e, memory);
    *e->pinned.plan.step = (struct cuda_step){0};
    return 0;
}

/* ---- open and close ----------------------------------------------------------------------- */

/* Also what is half open, or lost: then the driver refuses most of it. */
static void device_close(struct cuda_engine *e)
{
    const struct cuda_driver *d = &e->driver;
    if (!e->context)
        return;
    d->context_set(e->context);
    if (e->stream)
        d->stream_synchronize(e->stream);
    cuda_graphs_close(e);
    if (e->pinned.data)
        d->host_free(e->pinned.data);
    CUdeviceptr memories[] = {e->weights_memory, e->kv_memory, e->buffers_memory};
    for (int i = 0; i < 3; i++)
        if (memories[i])
            d->memory_free(memories[i]);
    if (e->module)
        d->module_unload(e->module);
    if (e->stream)
        d->stream_destroy(e->stream);
    d->context_release(e->device.id);
    e->weights_memory = e->kv_memory = e->buffers_memory = 0;
    e->pinned = (struct cuda_pinned){0};
    e->module = NULL;
    e->stream = NULL;
    e->context = NULL;
}

static int device_open(struct cuda_engine *e, struct error *err)
{
    return device_start(e, err) || memory_open(e, err) || pinned_open(e, err) ||
                   cuda_upload_model(e, err) || cuda_graphs_open(e, err)
               ? -1
               : 0;
}

static void cuda_close(struct engine *engine)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    device_close(e);
    cuda_driver_close(&e->driver);
    free(e->layers);
    free(e);
}

static int cuda_reopen(struct engine *engine, struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    device_close(e);
    e->batch = NULL;
    /* The weights come from the model's files, which others may have changed since. */
    e->is_lost = device_open(e, err) != 0 || checkpoint_check(e->model->checkpoint, err) != 0;
    return e->is_lost ? -1 : 0;
}

/* ---- batches ------------------------------------------------------------------------------ */

static bool is_unwanted(const struct batch *batch)
{
    return batch->live && atomic_load(batch->live) <= 0;
}

static int cuda_submit(struct engine *engine, const struct batch *batch, struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    assert(!e->batch);
    if (cuda_enter(e, err))
        return -1;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        if (batch->rows[r].value < 0 || (uint32_t)batch->rows[r].value >= e->model->hparams.n_vocab)
            return error_set(err, ERROR_INPUT, "there is no token %d", batch->rows[r].value);
    e->batch = batch;
    e->is_stopped = is_unwanted(batch);
    if (e->is_stopped || (cuda_forward_begin(e, err) == 0 && cuda_outputs_begin(e, err) == 0))
        return 0;
    e->batch = NULL;
    e->is_lost = true;
    return -1;
}

static int cuda_wait(struct engine *engine, struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    assert(e->batch);
    int failed = e->is_stopped ? 0 : cuda_enter(e, err) || cuda_outputs_finish(e, err);
    e->batch = NULL;
    if (failed)
        e->is_lost = true;
    return failed          ? -1
           : e->is_stopped ? error_set(err, ERROR_CANCELED, "the batch was cancelled")
                           : 0;
}

/* How fast the device reads: the weights, again and again. */
static int cuda_measure(struct engine *engine, uint32_t duration_ms, struct machine_limits *best,
                        struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    const struct cuda_driver *d = &e->driver;
    const uint32_t grid[2] = {4 * e->n_processors, 1};
    CUevent events[2] = {NULL, NULL};
    uint64_t n = e->engine.info.weight_bytes / 16;
    if (cuda_enter(e, err))
        return -1;
    int failed = cuda_check(d, d->event_create(&events[0], 0), "create an event", err) ||
                 cuda_check(d, d->event_create(&events[1], 0), "create an event", err);
    for (float sum_ms = 0, ms = 0; !failed && sum_ms < (float)duration_ms; sum_ms += ms + 0.1f) {
        struct read_params params = {e->weights_memory, n, e->buffers.sink};
        failed = cuda_check(d, d->event_record(events[0], e->stream), "measure", err) ||
                 cuda_launch(e, KERNEL_read_all, grid, 512, 0, &params, err) ||
                 cuda_check(d, d->event_record(events[1], e->stream), "measure", err) ||
                 cuda_check(d, d->event_synchronize(events[1]), "measure", err) ||
                 cuda_check(d, d->event_elapsed(&ms, events[0], events[1]), "measure", err);
        double rate = ms > 0 ? (double)n * 16 / (ms * 1e-3) : 0;
        if (!failed && rate > best->read_bytes_per_s)
            best->read_bytes_per_s = rate;
    }
    for (int i = 0; i < 2; i++)
        if (events[i])
            d->event_destroy(events[i]);
    e->is_lost |= failed;
    return failed ? -1 : 0;
}

static const struct engine_ops cuda_ops = {.abi = ENGINE_ABI,
                                           .submit = cuda_submit,
                                           .wait = cuda_wait,
                                           .page_io = cuda_page_io,
                                           .io_poll = cuda_io_poll,
                                           .reopen = cuda_reopen,
                                           .measure = cuda_measure,
                                           .close = cuda_close};

static uint64_t bytes_of_one(const struct cuda_matrix *m)
{
    return m->expert_data_bytes + m->expert_scale_bytes;
}

/* A step reads all weights but those of experts that no row chose; a row chooses a few. */
static struct engine_cost cost_of(const struct cuda_engine *e)
{
    const struct router *router = &e->model->hparams.router;
    uint64_t head = bytes_of_one(&e->head), unchosen = 0;
    for (uint32_t i = 0; i < e->model->hparams.n_layers; i++) {
        const struct cuda_layer *l = &e->layers[i];
        if (e->model->hparams.layers[i].has_experts)
            unchosen += (uint64_t)(router->n_experts - router->n_chosen) *
                        (bytes_of_one(&l->expert_gate) + bytes_of_one(&l->expert_up) +
                         bytes_of_one(&l->expert_down));
    }
    return (struct engine_cost){.layer_bytes = e->engine.info.weight_bytes - head - unchosen,
                                .head_bytes = head};
}

static void fill_info(struct cuda_engine *e)
{
    struct engine_info *info = &e->engine.info;
    const struct hparams *hp = &e->model->hparams;
    info->n_groups = groups_of(e->model, &e->engine.limits, info->groups);
    info->n_vocab = hp->n_vocab;
    info->n_embd = hp->n_embd;
    info->rope_axes = 1;
    info->bit_exact = true;
    info->is_async = true;
    snprintf(info->name, sizeof info->name, "cuda (%.50s)", e->device.name);
    snprintf(info->fingerprint, sizeof info->fingerprint, "cuda/sm_%d/%d", e->device.capability,
             CUDA_ARITHMETIC);
}

int cuda_engine_open(struct engine **out, const struct model *model,
                     const struct engine_limits *limits, const struct cuda_options *options,
                     struct error *err)
{
    struct cuda_engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(err, ERROR_MEMORY, "no memory for the engine");
    e->engine.ops = &cuda_ops;
    e->engine.limits = *limits;
    e->options = *options;
    e->model = model;
    e->layers = calloc(model->hparams.n_layers, sizeof *e->layers);
    if (!e->layers)
        error_set(err, ERROR_MEMORY, "no memory for the layers");
    if (!e->layers || cuda_engine_supports(model, limits, err) ||
        cuda_driver_open(&e->driver, options->driver_path, err) ||
        cuda_device_find(&e->driver, options->device, &e->device, err)) {
        cuda_close(&e->engine);
        return -1;
    }
    fill_info(e);
    if (plan_limits_make(&e->plan_limits, model, limits, e->layers, e->engine.info.n_groups, err) ||
        device_open(e, err)) {
        cuda_close(&e->engine);
        return -1;
    }
    log_slow_launches(e);
    e->engine.info.cost = cost_of(e);
    *out = &e->engine;
    return 0;
}
