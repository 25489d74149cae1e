#ifndef RADISH_ENGINE_CUDA_CUDA_PROBE_H
#define RADISH_ENGINE_CUDA_CUDA_PROBE_H

#include "engine/plugin.h"

/* What the plug-in knows of the device before there is an engine; the functions of struct
 * engine_plugin. The device is kept started until release, so that the engine need not wait for it
 * again. */
int cuda_probe_find(struct plugin_device **out, const struct plugin_options *options,
                    struct error *err);
int cuda_probe_measure(struct plugin_device *device, struct error *err);
void cuda_probe_release(struct plugin_device *device); /* NULL: nothing */

#endif
