#ifndef RADISH_TEST_ENGINE_SOURCE_H
#define RADISH_TEST_ENGINE_SOURCE_H

#include "engine/plugin.h"

/* Where engines under test come from: a plug-in, by its path, or the CPU engine, so that tests and
 * benchmarks of a device can themselves be tried without one. */
struct engine_source {
    struct plugin plugin;
    struct plugin_device *device; /* kept started, so that engines open quickly */
};

/* `path` NULL: the CPU engine. */
int engine_source_open(struct engine_source *s, const char *path, struct error *err);
/* What the source says of a model that it cannot compute: -1. The CPU engine computes all. */
int engine_source_supports(struct engine_source *s, const struct model *model,
                           const struct engine_limits *limits, struct error *err);
int engine_source_engine(struct engine_source *s, struct engine **out, const struct model *model,
                         const struct engine_limits *limits, struct error *err);
void engine_source_close(struct engine_source *s);

#endif
