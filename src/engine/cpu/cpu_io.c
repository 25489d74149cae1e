/* Copies pages to and from the caller's memory. A page is its keys and values, layer by layer.
 * Copying ends before the call returns, so a ticket is always done. */
#include <assert.h>
#include <string.h>

#include "engine/cpu/cpu_internal.h"

/* Copies one part of all pages: the keys, or the values, of a layer. `at` is its offset in a page.
 */
static void move_part(const struct page_io *io, uint8_t *part, size_t row_bytes, size_t page_bytes,
                      size_t at)
{
    uint8_t *data = (uint8_t *)io->data + at;
    for (uint32_t i = 0; i < io->n_runs; i++) {
        uint8_t *row = part + io->runs[i].first * row_bytes;
        for (uint32_t k = 0; k < io->runs[i].count; k++, row += row_bytes, data += page_bytes)
            memcpy(io->is_write ? row : data, io->is_write ? data : row, row_bytes);
    }
}

int cpu_page_io(struct engine *engine, const struct page_io *io, uint64_t *ticket,
                struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)engine;
    const struct kv_touch *kv = &e->kv_touch[io->group];
    size_t page_bytes = engine->info.groups[io->group].page_bytes, at = 0;
    (void)err;
    assert(io->group < engine->info.n_groups);
    for (uint32_t i = 0; i < io->n_runs; i++)
        assert(io->runs[i].first <= kv->n_pages &&
               io->runs[i].count <= kv->n_pages - io->runs[i].first);
    cpu_settle(e);
    for (uint32_t i = 0; i < kv->n_parts; i++) {
        const struct kv_part *part = &kv->parts[i];
        move_part(io, kv->base + part->at, part->row_bytes, page_bytes, at);
        at += part->row_bytes;
    }
    *ticket = ++e->last_ticket;
    return 0;
}

int cpu_io_poll(struct engine *engine, uint64_t ticket, bool waits, struct error *err)
{
    assert(ticket > 0 && ticket <= ((struct cpu_engine *)engine)->last_ticket);
    (void)engine;
    (void)ticket;
    (void)waits;
    (void)err;
    return 1;
}
