/* The mock's images and adapters; used by the caller's thread. Handles are never reused, so one
 * that was freed, unloaded or lost with the device is not mistaken for its successor. */
#include <assert.h>

#include "base/hash.h"
#include "engine/mock/mock_internal.h"

#include <string.h>

/* ---- images ---- */

const struct mock_image *mock_image_of(const struct mock_engine *m, uint32_t image)
{
    const struct mock_image *found = &m->images[image % MAX_IMAGES];
    return image && found->handle == image ? found : NULL;
}

int mock_encode(struct engine *e, const struct image_input *in, uint32_t *image, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    const struct mock_options *o = &m->options;
    if (mock_lost(m, err))
        return -1;
    if (in->n_rows == 0 || in->n_rows > e->limits.max_image_rows)
        return error_set(err, ERROR_INPUT, "the image has %u rows; the limit is %u", in->n_rows,
                         e->limits.max_image_rows);
    uint32_t at = 0;
    while (at < MAX_IMAGES && m->images[at].handle)
        at++;
    if (at == MAX_IMAGES || m->image_rows + in->n_rows > e->limits.max_image_rows)
        return error_set(err, ERROR_LIMIT, "there is no room for an image of %u rows now",
                         in->n_rows);
    bool fails = o->fail_image_every && ++m->since_image_failure >= o->fail_image_every;
    m->since_image_failure = fails ? 0 : m->since_image_failure;
    m->image_rows += in->n_rows;
    m->images[at] = (struct mock_image){.digest = hash_bytes(in->sha256, sizeof in->sha256),
                                        .handle = *image = ++m->n_images * MAX_IMAGES + at,
                                        .n_rows = in->n_rows,
                                        .left_us = (uint64_t)o->image_row_cost_us * in->n_rows,
                                        .fails = fails};
    return 0;
}

int mock_encode_step(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    if (mock_lost(m, err))
        return -1;
    struct mock_image *i = &m->images[image % MAX_IMAGES];
    assert(mock_image_of(m, image) && !i->is_ready);
    uint64_t slice_us = i->left_us < budget_us ? i->left_us : budget_us;
    device_issue(m, (struct job){.kind = JOB_SPEND, .cost_us = slice_us});
    i->left_us -= slice_us;
    if (i->left_us > 0)
        return 0;
    if (i->fails)
        return error_set(err, ERROR_FAILED, "the mock engine cannot encode every %u images",
                         m->options.fail_image_every);
    i->is_ready = true;
    return 1;
}

void mock_encode_free(struct engine *e, uint32_t image)
{
    struct mock_engine *m = (struct mock_engine *)e;
    struct mock_image *i = &m->images[image % MAX_IMAGES];
    if (mock_image_of(m, image)) {
        m->image_rows -= i->n_rows;
        *i = (struct mock_image){0};
    }
}

/* ---- adapters ---- */

const struct mock_adapter *mock_adapter_of(const struct mock_engine *m, uint64_t adapter)
{
    const struct mock_adapter *found = &m->adapters[adapter % MAX_ADAPTERS];
    return adapter && found->handle == adapter ? found : NULL;
}

int mock_load_adapter(struct engine *e, const char *path, uint64_t *adapter, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    if (mock_lost(m, err))
        return -1;
    if (!*path)
        return error_set(err, ERROR_INPUT, "an adapter needs a path");
    uint32_t at = 0;
    while (at < MAX_ADAPTERS && m->adapters[at].handle)
        at++;
    if (at == MAX_ADAPTERS)
        return error_set(err, ERROR_LIMIT, "%d adapters are loaded, which is the limit",
                         MAX_ADAPTERS);
    *adapter = ++m->n_adapters * MAX_ADAPTERS + at;
    m->adapters[at] = (struct mock_adapter){*adapter, hash_bytes(path, strlen(path))};
    return 0;
}

void mock_unload_adapter(struct engine *e, uint64_t adapter)
{
    struct mock_engine *m = (struct mock_engine *)e;
    if (mock_adapter_of(m, adapter))
        m->adapters[adapter % MAX_ADAPTERS] = (struct mock_adapter){0};
}

void tables_clear(struct mock_engine *m)
{
    memset(m->images, 0, sizeof m->images);
    memset(m->adapters, 0, sizeof m->adapters);
    m->image_rows = 0;
}
