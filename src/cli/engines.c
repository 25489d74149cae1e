/* Which engines this program has, and what room a device has for one. */
#include "cli/engines.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

#define DEVICE_PLUGIN "cuda"

static const double default_share = 0.9; /* of the free memory; the rest is for the driver */

int device_engine_open(struct device_engine *d, const struct plugin_options *options,
                       struct error *err)
{
    *d = (struct device_engine){0};
    if (plugin_open(&d->plugin, DEVICE_PLUGIN, err))
        return -1;
    if (d->plugin.ops->find(&d->device, options, err)) {
        d->device = NULL;
        device_engine_close(d);
        return -1;
    }
    return 0;
}

void device_engine_release(struct device_engine *d)
{
    if (d->device)
        d->plugin.ops->release(d->device);
    d->device = NULL;
}

void device_engine_close(struct device_engine *d)
{
    device_engine_release(d);
    plugin_close(&d->plugin);
}

/* An NVIDIA driver is loaded, or the Windows around WSL has one. */
static bool has_gpu(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 ||
           access("/usr/lib/wsl/lib/libcuda.so.1", F_OK) == 0;
}

void cpu_choice_log(const struct error *why)
{
    if (plugin_exists(DEVICE_PLUGIN))
        log_write(why->code == ERROR_FORMAT ? LOG_WARN : LOG_INFO, "engine: cpu (%s)",
                  why->message);
    else if (has_gpu())
        log_info("engine: cpu (there is a GPU, but no radish-" DEVICE_PLUGIN
                 ".so: `make " DEVICE_PLUGIN "` in radish's source folder builds it)");
    else
        log_info("engine: cpu");
}

void engines_describe(struct strbuf *out, const char *device)
{
    const struct plugin_options options = {.device = device, .log_level = LOG_ERROR};
    struct device_engine d;
    struct error err;
    strbuf_adds(out, "cpu, mock");
    if (!plugin_exists(DEVICE_PLUGIN)) {
        strbuf_adds(out, "; no cuda: there is no radish-" DEVICE_PLUGIN ".so");
        return;
    }
    if (device_engine_open(&d, &options, &err)) {
        strbuf_addf(out, "; no cuda: %s", err.message);
        return;
    }
    strbuf_addf(out, ", cuda (radish-cuda.so, %s)", d.device->name);
    device_engine_close(&d);
}

void device_room_describe(const struct device_room *room, char *out, size_t size)
{
    snprintf(out, size,
             "%" PRIu64 " MiB (of %" PRIu64 " MiB, %" PRIu64 " MiB are free and %" PRIu64
             " MiB are in use; --gpu-memory changes this)",
             room->budget_bytes >> 20, room->total_bytes >> 20, room->free_bytes >> 20,
             (room->total_bytes - room->free_bytes) >> 20);
}

int device_room_find(struct device_room *room, const struct plugin_device *device,
                     const struct memory_share *share, uint64_t engine_bytes, struct error *err)
{
    const double fraction = share->fraction > 0 ? share->fraction : default_share;
    char text[200];
    *room = (struct device_room){
        .total_bytes = device->total_bytes,
        .free_bytes = device->free_bytes,
        .budget_bytes = share->bytes ? share->bytes
                                     : (uint64_t)((double)device->free_bytes * fraction),
        .engine_bytes = engine_bytes,
    };
    if (room->budget_bytes > room->free_bytes)
        return error_set(err, ERROR_MEMORY,
                         "--gpu-memory is %" PRIu64 " MiB, but of the %" PRIu64
                         " MiB of %s only %" PRIu64 " MiB are free",
                         room->budget_bytes >> 20, room->total_bytes >> 20, device->name,
                         room->free_bytes >> 20);
    device_room_describe(room, text, sizeof text);
    if (engine_bytes >= room->budget_bytes)
        return error_set(err, ERROR_MEMORY,
                         "the model does not fit on %s: its weights and buffers take %" PRIu64
                         " MiB, and radish may use %s. Use smaller weights (--quantize q4_k), a "
                         "smaller --max-seqs, or --engine cpu",
                         device->name, engine_bytes >> 20, text);
    room->cache_bytes = room->budget_bytes - engine_bytes;
    return 0;
}
