#ifndef RADISH_ENGINE_CUDA_CUDA_DRIVER_H
#define RADISH_ENGINE_CUDA_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The part of CUDA's driver API that the engine uses, opened at run time from the driver's library,
 * so that nothing of CUDA is needed to build or start radish. Declarations follow the public API of
 * version 12.9; the driver's own names are in comments where ours differ. */
enum { CUDA_API_VERSION = 12090 };

/* The version of the toolkit that compiled the kernels: no older driver can load them. */
#ifndef CUDA_KERNELS_VERSION
#define CUDA_KERNELS_VERSION 13000
#endif

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};

struct CUuuid {
    char bytes[16];
};

struct CUlaunchAttribute { /* CUlaunchAttribute_st: 64 bytes of value at offset 8 */
    int id;
    union {
        uint64_t words[8];
        int programmatic_serialization; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    } value;
};

enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

struct CUlaunchConfig { /* CUlaunchConfig_st */
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    struct CUlaunchAttribute *attrs;
    unsigned n_attrs;
};

/* name in the table, name in the driver, parameters */
#define CUDA_DRIVER_CALLS(X)                                                                       \
    X(init, cuInit, (unsigned flags))                                                              \
    X(error_name, cuGetErrorName, (CUresult code, const char **name))                              \
    X(error_string, cuGetErrorString, (CUresult code, const char **text))                          \
    X(device_count, cuDeviceGetCount, (int *count))                                                \
    X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                   \
    X(device_name, cuDeviceGetName, (char *name, int size, CUdevice device))                       \
    X(device_uuid, cuDeviceGetUuid, (struct CUuuid * uuid, CUdevice device))                       \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))        \
    X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))            \
    X(context_release, cuDevicePrimaryCtxRelease, (CUdevice device))                               \
    X(context_set, cuCtxSetCurrent, (CUcontext context))                                           \
    X(memory_info, cuMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                      \
    X(memory_alloc, cuMemAlloc, (CUdeviceptr * memory, size_t bytes))                              \
    X(memory_free, cuMemFree, (CUdeviceptr memory))                                                \
    X(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                   \
    X(host_free, cuMemFreeHost, (void *memory))                                                    \
    X(copy_to_device, cuMemcpyHtoDAsync,                                                           \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
    X(copy_to_host, cuMemcpyDtoHAsync,                                                             \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
    X(memory_set, cuMemsetD8Async,                                                                 \
      (CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream))                    \
    X(module_load, cuModuleLoadData, (CUmodule * module, const void *image))                       \
    X(module_unload, cuModuleUnload, (CUmodule module))                                            \
    X(module_function, cuModuleGetFunction,                                                        \
      (CUfunction * function, CUmodule module, const char *name))                                  \
    X(function_set, cuFuncSetAttribute, (CUfunction function, int attribute, int value))           \
    X(function_get, cuFuncGetAttribute, (int *value, int attribute, CUfunction function))          \
    X(launch, cuLaunchKernelEx,                                                                    \
      (const struct CUlaunchConfig *config, CUfunction function, void **params, void **extra))     \
    X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                          \
    X(stream_destroy, cuStreamDestroy, (CUstream stream))                                          \
    X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                  \
    X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                              \
    X(event_destroy, cuEventDestroy, (CUevent event))                                              \
    X(event_record, cuEventRecord, (CUevent event, CUstream stream))                               \
    X(event_synchronize, cuEventSynchronize, (CUevent event))                                      \
    X(event_elapsed, cuEventElapsedTime, (float *ms, CUevent begin, CUevent end))                  \
    X(capture_begin, cuStreamBeginCapture, (CUstream stream, int mode))                            \
    X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                         \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                               \
    X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                            \
    X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec exec))                                  \
    X(graph_destroy, cuGraphDestroy, (CUgraph graph))

struct cuda_driver {
    void *library;
    int version; /* 12090: 12.9 */
#define CUDA_DRIVER_MEMBER(name, symbol, params) CUresult(*name) params;
    CUDA_DRIVER_CALLS(CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
};

/* Opens the driver and initialises it. `path` NULL: the system's, libcuda.so.1. Fails with advice
 * if there is none, if it is older than the kernels need, or if it has no device. */
int cuda_driver_open(struct cuda_driver *d, const char *path, struct error *err);
void cuda_driver_close(struct cuda_driver *d); /* also one that is zero */

/* 0 for CUDA_SUCCESS; otherwise -1 and an error: ERROR_MEMORY if memory ran out, else ERROR_DEVICE,
 * "CUDA cannot <what>: <the driver's text> (<its name>)". */
int cuda_check(const struct cuda_driver *d, CUresult code, const char *what, struct error *err);

#endif
