/* Opens NVIDIA's driver. Functions are asked for by the version of the API that cuda_driver.h
 * declares, because the same name has other parameters in other versions. What fails here is the
 * machine's fault, so every error says what to do about it. */
#include "engine/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_LIBRARY "libcuda.so.1"

/* cuGetProcAddress_v2, the only function that is looked up by its name in the library, besides
 * cuDriverGetVersion. */
typedef CUresult (*proc_address_fn)(const char *symbol, void **function, int version,
                                    uint64_t flags, int *status);
typedef CUresult (*version_fn)(int *version);

/* The first driver that supports a version of CUDA. */
static const char *driver_for(int version)
{
    return version >= 13000 ? "580" : "575";
}

static int library_missing(const char *path, const char *why, struct error *err)
{
    if (!path && strstr(why, DRIVER_LIBRARY ": cannot open shared object file"))
        return error_set(err, ERROR_DEVICE,
                         "no NVIDIA driver: " DRIVER_LIBRARY " was not found. Install NVIDIA's "
                         "driver %s or newer; in a container, pass the GPU on (docker run --gpus "
                         "all). Or use --engine cpu",
                         driver_for(CUDA_KERNELS_VERSION));
    return error_set(err, ERROR_DEVICE, "the NVIDIA driver cannot be opened: %s", why);
}

static int driver_too_old(int version, struct error *err)
{
    const int needed = CUDA_KERNELS_VERSION;
    return error_set(err, ERROR_DEVICE,
                     "the NVIDIA driver is too old: it supports CUDA %d.%d, and radish's kernels "
                     "need CUDA %d.%d. Install driver %s or newer, or use --engine cpu",
                     version / 1000, version % 1000 / 10, needed / 1000, needed % 1000 / 10,
                     driver_for(needed));
}

static int init_failed(const struct cuda_driver *d, CUresult code, struct error *err)
{
    if (code == CUDA_ERROR_NO_DEVICE)
        return error_set(err, ERROR_DEVICE,
                         "the NVIDIA driver found no device: nvidia-smi should list one, and "
                         "CUDA_VISIBLE_DEVICES must not hide it. Or use --engine cpu");
    if (code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
        return error_set(err, ERROR_DEVICE,
                         "the NVIDIA driver in the kernel is not of the same version as its "
                         "library, as after an update: restart the machine");
    if (code == CUDA_ERROR_SYSTEM_NOT_READY)
        return error_set(err, ERROR_DEVICE,
                         "the NVIDIA driver is not ready: on machines with NVSwitch, "
                         "nvidia-fabricmanager must run");
    return cuda_check(d, code, "start the driver", err);
}

static int functions_find(struct cuda_driver *d, proc_address_fn find, struct error *err)
{
    void *function;
    int status;
#define FIND(name, symbol, params)                                                                 \
    function = NULL;                                                                               \
    if (find(#symbol, &function, CUDA_API_VERSION, 0, &status) != CUDA_SUCCESS || !function)       \
        return error_set(err, ERROR_DEVICE, "the NVIDIA driver (CUDA %d.%d) has no " #symbol,      \
                         d->version / 1000, d->version % 1000 / 10);                               \
    memcpy(&d->name, &function, sizeof function);
    CUDA_DRIVER_CALLS(FIND)
#undef FIND
    return 0;
}

static int driver_start(struct cuda_driver *d, struct error *err)
{
    version_fn get_version;
    proc_address_fn find;
    /* ISO C has no cast from an object pointer to a function pointer. */
    void *version_symbol = dlsym(d->library, "cuDriverGetVersion");
    void *find_symbol = dlsym(d->library, "cuGetProcAddress_v2"); /* since CUDA 12.0 */
    memcpy(&get_version, &version_symbol, sizeof get_version);
    memcpy(&find, &find_symbol, sizeof find);
    if (!get_version || get_version(&d->version) != CUDA_SUCCESS)
        return error_set(err, ERROR_DEVICE, "the NVIDIA driver does not tell its version");
    if (d->version < CUDA_KERNELS_VERSION || !find)
        return driver_too_old(d->version, err);
    if (functions_find(d, find, err))
        return -1;
    CUresult code = d->init(0);
    return code == CUDA_SUCCESS ? 0 : init_failed(d, code, err);
}

int cuda_driver_open(struct cuda_driver *d, const char *path, struct error *err)
{
    *d = (struct cuda_driver){0};
    /* Never unloaded: the driver's own threads run in it. */
    d->library = dlopen(path ? path : DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d->library)
        return library_missing(path, dlerror(), err);
    if (driver_start(d, err)) {
        cuda_driver_close(d);
        return -1;
    }
    return 0;
}

void cuda_driver_close(struct cuda_driver *d)
{
    if (d->library)
        dlclose(d->library);
    *d = (struct cuda_driver){0};
}

int cuda_check(const struct cuda_driver *d, CUresult code, const char *what, struct error *err)
{
    const char *name = NULL, *text = NULL;
    if (code == CUDA_SUCCESS)
        return 0;
    if (d->error_name(code, &name) != CUDA_SUCCESS || !name)
        name = "unknown";
    if (d->error_string(code, &text) != CUDA_SUCCESS || !text)
        text = "error";
    return error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? ERROR_MEMORY : ERROR_DEVICE,
                     "CUDA cannot %s: %s (%d, %s)", what, text, code, name);
}
