#ifndef RADISH_ENGINE_CUDA_CUDA_ENGINE_H
#define RADISH_ENGINE_CUDA_CUDA_ENGINE_H

#include "engine/engine.h"
#include "model/model.h"

/* engine/cuda/ computes on NVIDIA devices. Host code is plain C and is tested without a device;
 * kernels/ is what nvcc compiles. One thread owns the engine; the device computes between submit
 * and wait. */
struct cuda_options {
    const char *driver_path; /* of libcuda; NULL: the system's */
    const char *device;      /* number or UUID; NULL: the first */
    const void *kernels;     /* the fatbin */
    engine_progress progress;
    void *progress_context;
};

int cuda_engine_open(struct engine **out, const struct model *model,
                     const struct engine_limits *limits, const struct cuda_options *options,
                     struct error *err);

/* What the engine takes on the device for these limits, without KV. */
uint64_t cuda_engine_bytes(const struct model *model, const struct engine_limits *limits);

/* 0, or -1 and what the engine cannot compute. */
int cuda_engine_supports(const struct model *model, const struct engine_limits *limits,
                         struct error *err);

#endif
