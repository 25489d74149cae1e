#ifndef RADISH_TESTS_FAKE_CUDA_H
#define RADISH_TESTS_FAKE_CUDA_H

#include <stdint.h>

/* A driver without a device, for tests: a shared object that cuda_driver_open can open. Device
 * memory is the host's, streams work at once, copies copy, and kernels do nothing. It fails where a
 * test says so, and counts what is left open. The library exports one struct fake_cuda, which a
 * test gets from tests/unit/fake_driver.h; other programs set its numbers with the environment:
 * FAKE_CUDA="version=12040,n_devices=0". */
struct fake_cuda {
    /* What it is. */
    int version, n_devices, capability, init_code;
    int kernels_made_for;               /* the kernels' virtual architecture: 90 */
    uint64_t total_bytes, others_bytes; /* of memory; held by other programs */
    /* What fails. Calls that create something (memory, streams, ...) and launches count from 1; 0:
     * none. After a launch failed, every call fails in the same way, as the driver's do. */
    int fail_create, create_code;
    int fail_launch, launch_code;
    int stays_broken;             /* else it works again once its last context is released */
    const char *missing_call;     /* of the driver */
    const char *missing_function; /* of the module */
    /* What happened. */
    int n_created, n_launched, n_graphs_launched;
    int n_dependent; /* launches that may begin before the kernel before ends, recorded ones too */
    int n_memory, n_host_memory, n_contexts, n_streams, n_events, n_modules, n_graphs; /* open */
    uint64_t memory_bytes, most_bytes;
    int broken; /* the code of the launch that failed */
};

#define FAKE_CUDA_SYMBOL "fake_cuda"

#endif
