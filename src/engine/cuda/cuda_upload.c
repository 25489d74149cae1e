/* Packs the model's weights and copies them to the device: threads pack one half of a pinned
 * buffer while the device copies the other. Owner thread, while the engine opens. */
#include "engine/cuda/cuda_internal.h"

#include <string.h>

#include "base/minmax.h"
#include "base/parallel.h"

enum { HALF_BYTES = 32 << 20, MAX_PACKERS = 16 };

struct uploader {
    struct cuda_engine *e;
    struct parallel *pool;
    uint8_t *halves[2];
    CUevent copied[2];
    uint32_t half;
    uint64_t done_bytes, all_bytes;
    struct error *err;
};

/* Some tiles of a matrix, for all packers. */
struct pack_job {
    const struct weight *weight;
    const struct cuda_shape *shape;
    uint32_t begin, end; /* output tiles */
    uint8_t *data, *scales;
};

static void pack_share(void *context, uint32_t thread, uint32_t n_threads)
{
    const struct pack_job *job = context;
    uint32_t n = job->end - job->begin;
    uint32_t begin = (uint32_t)((uint64_t)n * thread / n_threads);
    uint32_t end = (uint32_t)((uint64_t)n * (thread + 1) / n_threads);
    size_t data_bytes = job->shape->data_bytes / job->shape->out_tiles;
    size_t scale_bytes = job->shape->scale_bytes / job->shape->out_tiles;
    if (begin < end)
        cuda_pack(job->weight, job->shape, job->begin + begin, job->begin + end,
                  job->data + begin * data_bytes, job->scales + begin * scale_bytes);
}

/* The half that is free, once the device has copied what was in it. */
static uint8_t *next_half(struct uploader *u)
{
    const struct cuda_driver *d = &u->e->driver;
    u->half ^= 1;
    if (cuda_check(d, d->event_synchronize(u->copied[u->half]), "copy weights to the device",
                   u->err))
        return NULL;
    return u->halves[u->half];
}

static int copy(struct uploader *u, CUdeviceptr to, const void *from, size_t bytes)
{
    const struct cuda_driver *d = &u->e->driver;
    u->done_bytes += bytes;
    return bytes == 0 ? 0
                      : cuda_check(d, d->copy_to_device(to, from, bytes, u->e->stream),
                                   "copy weights to the device", u->err);
}

static int half_is_sent(struct uploader *u)
{
    const struct cuda_driver *d = &u->e->driver;
    const struct cuda_options *o = &u->e->options;
    if (o->progress)
        o->progress(o->progress_context, (double)u->done_bytes / (double)u->all_bytes);
    return cuda_check(d, d->event_record(u->copied[u->half], u->e->stream),
                      "copy weights to the device", u->err);
}

static int upload_vector(struct uploader *u, const struct cuda_upload *upload)
{
    size_t bytes = upload->n_values * sizeof *upload->vector;
    uint8_t *half = next_half(u);
    if (!half)
        return -1;
    if (bytes > HALF_BYTES)
        return error_set(u->err, ERROR_LIMIT, "a vector of %zu values is too long",
                         upload->n_values);
    memcpy(half, upload->vector, bytes);
    return copy(u, upload->data, half, bytes) || half_is_sent(u) ? -1 : 0;
}

static int upload_matrix(struct uploader *u, const struct cuda_upload *upload)
{
    const struct cuda_shape shape = cuda_pack_shape(upload->weight);
    if (shape.format != upload->format)
        return error_set(u->err, ERROR_UNSUPPORTED,
                         "the CUDA engine has no experts of different types in a layer yet, which "
                         "this model needs: use --engine cpu");
    uint32_t n_tiles = shape.out_tiles;
    struct cuda_shape tiled = shape;
    if (shape.format == FORMAT_F32) /* the last rows may be fewer than a tile's */
        tiled.data_bytes = (size_t)n_tiles * TILE_OUTPUTS * shape.cols * sizeof(float);
    size_t data_bytes = tiled.data_bytes / n_tiles, scale_bytes = shape.scale_bytes / n_tiles;
    uint32_t most = (uint32_t)(HALF_BYTES / (data_bytes + scale_bytes));
    if (most == 0)
        return error_set(u->err, ERROR_LIMIT, "a matrix of %u columns is too wide", shape.cols);
    for (uint32_t begin = 0; begin < n_tiles; begin += most) {
        uint32_t end = min_u32(begin + most, n_tiles);
        uint8_t *half = next_half(u);
        if (!half)
            return -1;
        size_t part = data_bytes * (end - begin), left = shape.data_bytes - data_bytes * begin;
        struct pack_job job = {upload->weight, &tiled, begin, end, half, half + part};
        parallel_run(u->pool, pack_share, &job);
        if (copy(u, upload->data + data_bytes * begin, half, min_size(part, left)) ||
            copy(u, upload->scales + scale_bytes * begin, half + part,
                 scale_bytes * (end - begin)) ||
            half_is_sent(u))
            return -1;
    }
    return 0;
}

static int upload_each(void *context, const struct cuda_upload *upload)
{
    return upload->vector ? upload_vector(context, upload) : upload_matrix(context, upload);
}

static int upload_frequencies(struct uploader *u)
{
    const struct hparams *hp = &u->e->model->hparams;
    for (uint32_t i = 0; i < hp->n_ropes; i++) {
        size_t bytes = hp->ropes[i].dim / 2 * sizeof(double);
        uint8_t *half = next_half(u);
        if (!half)
            return -1;
        memcpy(half, hp->ropes[i].frequencies, bytes);
        if (copy(u, u->e->buffers.frequencies[i], half, bytes) || half_is_sent(u))
            return -1;
    }
    return 0;
}

static int uploader_open(struct uploader *u)
{
    const struct cuda_driver *d = &u->e->driver;
    struct cpu_topology cpus;
    if (cpu_topology_open(&cpus, u->err))
        return -1;
    uint32_t n = min_u32(cpu_topology_available(&cpus), MAX_PACKERS);
    cpu_topology_close(&cpus);
    if (parallel_open(&u->pool, n, NULL, u->err))
        return -1;
    for (int i = 0; i < 2; i++) {
        void *memory;
        if (cuda_check(d, d->host_alloc(&memory, HALF_BYTES, 0), "allocate pinned memory", u->err))
            return -1;
        u->halves[i] = memory;
        if (cuda_check(d, d->event_create(&u->copied[i], 0), "create an event", u->err))
            return -1;
    }
    return 0;
}

static void uploader_close(struct uploader *u)
{
    const struct cuda_driver *d = &u->e->driver;
    for (int i = 0; i < 2; i++) {
        if (u->halves[i])
            d->host_free(u->halves[i]);
        if (u->copied[i])
            d->event_destroy(u->copied[i]);
    }
    if (u->pool)
        parallel_close(u->pool);
}

int cuda_upload_model(struct cuda_engine *e, struct error *err)
{
    struct cuda_region weights = {e->weights_memory, 0};
    struct uploader u = {.e = e, .all_bytes = e->engine.info.weight_bytes, .err = err};
    int failed = uploader_open(&u) ||
                 cuda_layout_weights(&weights, e->model, e->layers, &e->head, &e->output_norm,
                                     upload_each, &u) ||
                 upload_frequencies(&u) ||
                 cuda_check(&e->driver, e->driver.stream_synchronize(e->stream),
                            "copy weights to the device", err);
    uploader_close(&u);
    return failed ? -1 : 0;
}
