#ifndef RADISH_ENGINE_CUDA_CUDA_DEVICE_H
#define RADISH_ENGINE_CUDA_CUDA_DEVICE_H

#include "engine/cuda/cuda_driver.h"

/* The oldest devices that the kernels run on: 8.0, Ampere. */
enum { CUDA_LEAST_CAPABILITY = 80 };

struct cuda_device {
    CUdevice id;
    int capability; /* 90: 9.0 */
    char name[128]; /* "NVIDIA H200" */
};

/* `which`: a number, or (the beginning of) a UUID as nvidia-smi -L prints it, with its "GPU-" or
 * "MIG-"; NULL: the first device. */
int cuda_device_find(const struct cuda_driver *d, const char *which, struct cuda_device *out,
                     struct error *err);

#endif
