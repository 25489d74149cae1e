/* See engine_source.h. */
#include "engine_source.h"

#include "engine/cpu/cpu_engine.h"

static const struct plugin_options plugin_options = {.log_level = LOG_WARN};

int engine_source_open(struct engine_source *s, const char *path, struct error *err)
{
    *s = (struct engine_source){0};
    if (!path)
        return 0;
    if (plugin_load(&s->plugin, path, err))
        return -1;
    if (s->plugin.ops->find(&s->device, &plugin_options, err) ||
        s->plugin.ops->measure(s->device, err)) {
        engine_source_close(s);
        return -1;
    }
    return 0;
}

int engine_source_supports(struct engine_source *s, const struct model *model,
                           const struct engine_limits *limits, struct error *err)
{
    uint64_t bytes;
    return s->plugin.ops ? s->plugin.ops->needs(&bytes, model, limits, err) : 0;
}

int engine_source_engine(struct engine_source *s, struct engine **out, const struct model *model,
                         const struct engine_limits *limits, struct error *err)
{
    if (s->plugin.ops)
        return s->plugin.ops->open(out, model, limits, &plugin_options, err);
    const struct cpu_options options = {.pack_cache = PACK_CACHE_OFF,
                                        .activations = ACTIVATIONS_Q16};
    return cpu_engine_open(out, model, limits, &options, err);
}

void engine_source_close(struct engine_source *s)
{
    if (s->device)
        s->plugin.ops->release(s->device);
    plugin_close(&s->plugin);
    s->device = NULL;
}
