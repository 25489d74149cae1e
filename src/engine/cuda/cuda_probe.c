/* Looks at the device for the command line, which sizes the cache before it opens an engine. */
#include "engine/cuda/cuda_probe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda_device.h"

struct cuda_probe {
    struct plugin_device device; /* first: callers have a pointer to it */
    struct cuda_driver driver;
    struct cuda_device cuda;
    CUcontext context; /* NULL: not started */
};

int cuda_probe_find(struct plugin_device **out, const struct plugin_options *options,
                    struct error *err)
{
    struct cuda_probe *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(err, ERROR_MEMORY, "no memory to look for a device");
    if (cuda_driver_open(&p->driver, options->driver_path, err) ||
        cuda_device_find(&p->driver, options->device, &p->cuda, err)) {
        cuda_probe_release(&p->device);
        return -1;
    }
    memcpy(p->device.name, p->cuda.name, sizeof p->cuda.name);
    *out = &p->device;
    return 0;
}

int cuda_probe_measure(struct plugin_device *device, struct error *err)
{
    struct cuda_probe *p = (struct cuda_probe *)device;
    const struct cuda_driver *d = &p->driver;
    size_t free_bytes = 0, total_bytes = 0;
    if (!p->context &&
        cuda_check(d, d->context_retain(&p->context, p->cuda.id), "start the device", err)) {
        p->context = NULL;
        return -1;
    }
    if (cuda_check(d, d->context_set(p->context), "use the device", err) ||
        cuda_check(d, d->memory_info(&free_bytes, &total_bytes), "see the device's memory", err))
        return -1;
    d->context_set(NULL);
    device->free_bytes = free_bytes;
    device->total_bytes = total_bytes;
    return 0;
}

void cuda_probe_release(struct plugin_device *device)
{
    struct cuda_probe *p = (struct cuda_probe *)device;
    if (p && p->context)
        p->driver.context_release(p->cuda.id);
    if (p)
        cuda_driver_close(&p->driver);
    free(p);
}
