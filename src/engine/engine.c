/* The engine's operations as functions; see engine.h. An engine omits the operations it does not
 * support. */
#include "engine/engine.h"

#include <assert.h>

static int unsupported(const struct engine *e, const char *what, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "the engine %s cannot %s", e->info.name, what);
}

int engine_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    return e->ops->submit(e, batch, err);
}

int engine_wait(struct engine *e, struct error *err)
{
    return e->ops->wait(e, err);
}

int engine_forward(struct engine *e, const struct batch *batch, struct error *err)
{
    return engine_submit(e, batch, err) ? -1 : engine_wait(e, err);
}

int engine_copy_states(struct engine *e, const struct state_copy *copies, uint32_t n,
                       struct error *err)
{
    return e->ops->copy_states ? e->ops->copy_states(e, copies, n, err)
                               : unsupported(e, "keep recurrent states", err);
}

int engine_roll_back(struct engine *e, uint32_t slot, uint32_t position, struct error *err)
{
    return e->ops->roll_back ? e->ops->roll_back(e, slot, position, err)
                             : unsupported(e, "roll back a state", err);
}

int engine_encode(struct engine *e, const struct image_input *in, uint32_t *image,
                  struct error *err)
{
    return e->ops->encode ? e->ops->encode(e, in, image, err)
                          : unsupported(e, "encode images", err);
}

int engine_encode_step(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err)
{
    return e->ops->encode_step ? e->ops->encode_step(e, image, budget_us, err)
                               : unsupported(e, "encode images", err);
}

void engine_encode_free(struct engine *e, uint32_t image)
{
    assert(e->ops->encode_free);
    e->ops->encode_free(e, image);
}

int engine_load_adapter(struct engine *e, const char *path, uint64_t *adapter, struct error *err)
{
    return e->ops->load_adapter ? e->ops->load_adapter(e, path, adapter, err)
                                : unsupported(e, "load adapters", err);
}

void engine_unload_adapter(struct engine *e, uint64_t adapter)
{
    assert(e->ops->unload_adapter);
    e->ops->unload_adapter(e, adapter);
}

int engine_page_io(struct engine *e, const struct page_io *io, uint64_t *ticket, struct error *err)
{
    return e->ops->page_io ? e->ops->page_io(e, io, ticket, err)
                           : unsupported(e, "read or write pages", err);
}

int engine_io_poll(struct engine *e, uint64_t ticket, bool waits, struct error *err)
{
    return e->ops->io_poll ? e->ops->io_poll(e, ticket, waits, err)
                           : unsupported(e, "read or write pages", err);
}

int engine_reopen(struct engine *e, struct error *err)
{
    return e->ops->reopen ? e->ops->reopen(e, err) : unsupported(e, "be reopened", err);
}

int engine_measure(struct engine *e, uint32_t duration_ms, struct machine_limits *best,
                   struct error *err)
{
    return e->ops->measure ? e->ops->measure(e, duration_ms, best, err) : 0;
}

void engine_close(struct engine *e)
{
    if (e)
        e->ops->close(e);
}
