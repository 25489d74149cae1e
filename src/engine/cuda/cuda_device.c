/* Chooses the device. Numbers are the driver's, so CUDA_VISIBLE_DEVICES hides and reorders them. */
#include "engine/cuda/cuda_device.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ATTRIBUTE_CAPABILITY_MAJOR = 75, ATTRIBUTE_CAPABILITY_MINOR = 76 };

/* "01234567-89ab-cdef-0123-456789abcdef" */
static void uuid_write(const struct CUuuid *uuid, char out[37])
{
    char *at = out;
    for (int i = 0; i < 16; i++) {
        bool has_dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += sprintf(at, "%s%02x", has_dash ? "-" : "", (unsigned char)uuid->bytes[i]);
    }
}

static bool is_uuid(const char *which)
{
    return strncasecmp(which, "GPU-", 4) == 0 || strncasecmp(which, "MIG-", 4) == 0;
}

/* Fails unless exactly one device's UUID begins so. */
static int by_uuid(const struct cuda_driver *d, const char *which, int n_devices, CUdevice *out,
                   struct error *err)
{
    int n_found = 0;
    for (int i = 0; i < n_devices; i++) {
        struct CUuuid uuid;
        CUdevice device;
        char text[37];
        if (cuda_check(d, d->device_get(&device, i), "open a device", err) ||
            cuda_check(d, d->device_uuid(&uuid, device), "read a device's UUID", err))
            return -1;
        uuid_write(&uuid, text);
        if (strncasecmp(text, which + 4, strlen(which + 4)) == 0) {
            *out = device;
            n_found++;
        }
    }
    if (n_found == 1)
        return 0;
    return error_set(err, ERROR_INPUT, "--device %s: %s of the %d devices has such a UUID", which,
                     n_found ? "more than one" : "none", n_devices);
}

static int by_number(const struct cuda_driver *d, const char *which, int n_devices, CUdevice *out,
                     struct error *err)
{
    char *end;
    errno = 0;
    long number = which ? strtol(which, &end, 10) : 0;
    if (which && (end == which || *end || errno || number < 0 || number > INT_MAX))
        return error_set(err, ERROR_INPUT,
                         "--device needs a number, or a UUID like GPU-01234567-..., not '%s'",
                         which);
    if (number >= n_devices)
        return error_set(err, ERROR_INPUT,
                         "--device %ld: the last of the devices is %d (nvidia-smi -L lists them)",
                         number, n_devices - 1);
    return cuda_check(d, d->device_get(out, (int)number), "open the device", err);
}

int cuda_device_find(const struct cuda_driver *d, const char *which, struct cuda_device *out,
                     struct error *err)
{
    int n_devices = 0, major = 0, minor = 0;
    *out = (struct cuda_device){0};
    if (cuda_check(d, d->device_count(&n_devices), "count the devices", err))
        return -1;
    if (n_devices == 0)
        return error_set(err, ERROR_DEVICE, "the NVIDIA driver has no device: use --engine cpu");
    if ((which && is_uuid(which) ? by_uuid : by_number)(d, which, n_devices, &out->id, err) ||
        cuda_check(d, d->device_name(out->name, sizeof out->name, out->id),
                   "read the device's name", err) ||
        cuda_check(d, d->device_attribute(&major, ATTRIBUTE_CAPABILITY_MAJOR, out->id),
                   "read the device's capability", err) ||
        cuda_check(d, d->device_attribute(&minor, ATTRIBUTE_CAPABILITY_MINOR, out->id),
                   "read the device's capability", err))
        return -1;
    out->capability = 10 * major + minor;
    if (out->capability < CUDA_LEAST_CAPABILITY)
        return error_set(err, ERROR_DEVICE,
                         "%s is too old: it has compute capability %d.%d, and radish's kernels "
                         "need %d.%d. Use --engine cpu",
                         out->name, major, minor, CUDA_LEAST_CAPABILITY / 10,
                         CUDA_LEAST_CAPABILITY % 10);
    return 0;
}
