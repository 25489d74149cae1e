/* Copies pages to and from the caller's memory, through pinned memory. On the device the keys and
 * the values of a layer are arrays of pages; in the caller's memory a page is its keys and values,
 * layer by layer. Copying ends before the call returns, so a ticket is always done. */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "engine/cuda/cuda_internal.h"

/* The keys, or the values, of a layer. */
struct part {
    CUdeviceptr base;
    size_t row_bytes, at; /* `at`: in a page of the caller's */
};

/* Positions of a run in one part, as many as fit in the staging memory at a time. */
static int move_run(struct cuda_engine *e, const struct page_io *io, const struct part *part,
                    const struct page_run *run, uint8_t *data, size_t page_bytes, struct error *err)
{
    const struct cuda_driver *d = &e->driver;
    uint32_t most = (uint32_t)(IO_STAGING_BYTES / part->row_bytes);
    for (uint32_t first = 0; first < run->count; first += most) {
        uint32_t n = min_u32(most, run->count - first);
        CUdeviceptr at = part->base + (uint64_t)(run->first + first) * part->row_bytes;
        size_t bytes = n * part->row_bytes;
        uint8_t *rows = data + first * page_bytes + part->at;
        for (uint32_t i = 0; i < n && io->is_write; i++)
            memcpy(e->io_staging + i * part->row_bytes, rows + i * page_bytes, part->row_bytes);
        CUresult code = io->is_write ? d->copy_to_device(at, e->io_staging, bytes, e->stream)
                                     : d->copy_to_host(e->io_staging, at, bytes, e->stream);
        if (cuda_check(d, code, "copy pages", err) ||
            cuda_check(d, d->stream_synchronize(e->stream), "copy pages", err))
            return -1;
        for (uint32_t i = 0; i < n && !io->is_write; i++)
            memcpy(rows + i * page_bytes, e->io_staging + i * part->row_bytes, part->row_bytes);
    }
    return 0;
}

static int move_part(struct cuda_engine *e, const struct page_io *io, const struct part *part,
                     size_t page_bytes, struct error *err)
{
    uint8_t *data = io->data;
    for (uint32_t i = 0; i < io->n_runs; i++) {
        if (move_run(e, io, part, &io->runs[i], data, page_bytes, err))
            return -1;
        data += io->runs[i].count * page_bytes;
    }
    return 0;
}

int cuda_page_io(struct engine *engine, const struct page_io *io, uint64_t *ticket,
                 struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    const struct hparams *hp = &e->model->hparams;
    size_t size = kv_type_bytes(engine->limits.kv_type), at = 0;
    size_t page_bytes = engine->info.groups[io->group].page_bytes;
    assert(io->group < engine->info.n_groups);
    if (cuda_enter(e, err))
        return -1;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct cuda_layer *l = &e->layers[i];
        if (l->group != io->group || !kv_layer_keeps(hp, i))
            continue;
        const struct part keys = {l->keys, kv_layer_keys(hp, i) * size, at};
        const struct part values = {l->values, kv_layer_values(hp, i) * size, at + keys.row_bytes};
        at += keys.row_bytes + values.row_bytes;
        if (move_part(e, io, &keys, page_bytes, err) ||
            move_part(e, io, &values, page_bytes, err)) {
            e->is_lost = true;
            return -1;
        }
    }
    *ticket = ++e->last_ticket;
    return 0;
}

int cuda_io_poll(struct engine *engine, uint64_t ticket, bool waits, struct error *err)
{
    assert(ticket > 0 && ticket <= ((struct cuda_engine *)engine)->last_ticket);
    (void)engine;
    (void)ticket;
    (void)waits;
    (void)err;
    return 1;
}
