#include "engine/cuda/cuda_driver.h"

#include <stdlib.h>
#include <unistd.h>

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/cuda_probe.h"
#include "fake_driver.h"
#include "test.h"
#include "test_memory.h"

static struct fake_cuda *open_fake(struct cuda_driver *d)
{
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    CHECK_INT(cuda_driver_open(d, fake_driver_path(), &err), 0);
    return fake;
}

static void check_open_fails(const char *message)
{
    struct cuda_driver d;
    struct error err;
    CHECK_INT(cuda_driver_open(&d, fake_driver_path(), &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK_STR(err.message, message);
    CHECK(!d.library && !d.init);
}

TEST(cuda_driver, opens_and_has_every_call)
{
    struct cuda_driver d;
    open_fake(&d);
    CHECK_INT(d.version, 13000);
#define CHECK_CALL(name, symbol, params) CHECK(d.name != NULL);
    CUDA_DRIVER_CALLS(CHECK_CALL)
    cuda_driver_close(&d);
    CHECK(!d.library && !d.launch);
    cuda_driver_close(&d);
}

TEST(cuda_driver, says_what_is_wrong_with_the_driver)
{
    struct fake_cuda *fake = fake_driver_reset();
    fake->version = 12040;
    check_open_fails("the NVIDIA driver is too old: it supports CUDA 12.4, and radish's kernels "
                     "need CUDA 13.0. Install driver 580 or newer, or use --engine cpu");
    fake->version = 13010;
    fake->missing_call = "cuLaunchKernelEx";
    check_open_fails("the NVIDIA driver (CUDA 13.1) has no cuLaunchKernelEx");
    fake->missing_call = NULL;
    fake->n_devices = 0;
    check_open_fails("the NVIDIA driver found no device: nvidia-smi should list one, and "
                     "CUDA_VISIBLE_DEVICES must not hide it. Or use --engine cpu");
    fake->n_devices = 1;
    fake->init_code = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    check_open_fails("the NVIDIA driver in the kernel is not of the same version as its library, "
                     "as after an update: restart the machine");
    fake->init_code = CUDA_ERROR_SYSTEM_NOT_READY;
    check_open_fails("the NVIDIA driver is not ready: on machines with NVSwitch, "
                     "nvidia-fabricmanager must run");
    fake->init_code = 999;
    check_open_fails("CUDA cannot start the driver: error (999, unknown)");
}

TEST(cuda_driver, no_driver)
{
    struct cuda_driver d;
    struct error err;
    CHECK_INT(cuda_driver_open(&d, "/nowhere/libcuda.so.1", &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK(strstr(err.message, "the NVIDIA driver cannot be opened: /nowhere/libcuda.so.1"));
    if (cuda_driver_open(&d, NULL, &err) == 0) {
        cuda_driver_close(&d);
        SKIP("this machine has a driver");
    }
    if (access("/usr/lib/x86_64-linux-gnu/libcuda.so.1", F_OK) != 0)
        CHECK_STR(err.message,
                  "no NVIDIA driver: libcuda.so.1 was not found. Install NVIDIA's driver 580 or "
                  "newer; in a container, pass the GPU on (docker run --gpus all). Or use "
                  "--engine cpu");
}

/* A library that is no driver. */
TEST(cuda_driver, another_library)
{
    struct cuda_driver d;
    struct error err;
    CHECK_INT(cuda_driver_open(&d, fake_path("radish-good.so"), &err), -1);
    CHECK_STR(err.message, "the NVIDIA driver does not tell its version");
}

TEST(cuda_driver, check_reports_the_drivers_words)
{
    struct cuda_driver d;
    struct error err;
    open_fake(&d);
    CHECK_INT(cuda_check(&d, CUDA_SUCCESS, "compute", &err), 0);
    CHECK_INT(cuda_check(&d, CUDA_ERROR_OUT_OF_MEMORY, "take 5 MiB", &err), -1);
    CHECK_INT(err.code, ERROR_MEMORY);
    CHECK_STR(err.message, "CUDA cannot take 5 MiB: out of memory (2, CUDA_ERROR_OUT_OF_MEMORY)");
    CHECK_INT(cuda_check(&d, 214, "compute", &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK_STR(err.message, "CUDA cannot compute: uncorrectable ECC error encountered (214, "
                           "CUDA_ERROR_ECC_UNCORRECTABLE)");
    cuda_driver_close(&d);
}

TEST(cuda_driver, devices_by_number_and_uuid)
{
    static const struct {
        const char *which;
        int id; /* -1: fails */
        const char *message;
    } cases[] = {
        {NULL, 0, NULL},
        {"2", 2, NULL},
        {"GPU-00010203-0405-0607-0809-0a0b0c0d0e01", 1, NULL},
        {"gpu-00010203-0405-0607-0809-0A0B0C0D0E02", 2, NULL},
        {"3", -1, "--device 3: the last of the devices is 2 (nvidia-smi -L lists them)"},
        {"-1", -1, "--device needs a number, or a UUID like GPU-01234567-..., not '-1'"},
        {"H200", -1, "--device needs a number, or a UUID like GPU-01234567-..., not 'H200'"},
        {"1x", -1, "--device needs a number, or a UUID like GPU-01234567-..., not '1x'"},
        {"99999999999", -1,
         "--device needs a number, or a UUID like GPU-01234567-..., not '99999999999'"},
        {"GPU-0001", -1, "--device GPU-0001: more than one of the 3 devices has such a UUID"},
        {"GPU-ff", -1, "--device GPU-ff: none of the 3 devices has such a UUID"},
    };
    struct cuda_driver d;
    struct cuda_device device;
    struct error err;
    struct fake_cuda *fake = open_fake(&d);
    fake->n_devices = 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int failed = cuda_device_find(&d, cases[i].which, &device, &err);
        CHECK_INT(failed, cases[i].id < 0 ? -1 : 0);
        if (failed)
            CHECK_STR(err.message, cases[i].message);
        else
            CHECK_INT(device.id, cases[i].id);
    }
    CHECK_INT(cuda_device_find(&d, "1", &device, &err), 0);
    CHECK_STR(device.name, "Fake GPU 1");
    CHECK_INT(device.capability, 90);
    fake->capability = 75;
    CHECK_INT(cuda_device_find(&d, NULL, &device, &err), -1);
    CHECK_STR(err.message, "Fake GPU 0 is too old: it has compute capability 7.5, and radish's "
                           "kernels need 8.0. Use --engine cpu");
    cuda_driver_close(&d);
}

TEST(cuda_driver, a_probe_measures_memory)
{
    struct plugin_options options = {.driver_path = fake_driver_path()};
    struct plugin_device *device;
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    fake->others_bytes = 1 << 30;
    CHECK_INT(cuda_probe_find(&device, &options, &err), 0);
    CHECK_STR(device->name, "Fake GPU 0");
    CHECK_INT(fake->n_contexts, 0); /* finding is cheap */
    CHECK_INT(cuda_probe_measure(device, &err), 0);
    CHECK_INT(device->total_bytes, (uint64_t)8 << 30);
    CHECK_INT(device->free_bytes, (uint64_t)7 << 30);
    CHECK_INT(cuda_probe_measure(device, &err), 0);
    CHECK_INT(fake->n_contexts, 1); /* kept until release */
    cuda_probe_release(device);
    fake_driver_check_closed();
    cuda_probe_release(NULL);
}

TEST(cuda_driver, a_probe_that_fails_leaves_nothing)
{
    struct plugin_options options = {.driver_path = fake_driver_path(), .device = "7"};
    struct plugin_device *device;
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    CHECK_INT(cuda_probe_find(&device, &options, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    options.device = NULL;
    memory_ends_after(0);
    CHECK_INT(cuda_probe_find(&device, &options, &err), -1);
    memory_is_back();
    CHECK_INT(err.code, ERROR_MEMORY);
    CHECK_INT(cuda_probe_find(&device, &options, &err), 0);
    fake->fail_create = 1;
    CHECK_INT(cuda_probe_measure(device, &err), -1);
    CHECK_STR(err.message, "CUDA cannot start the device: out of memory (2, "
                           "CUDA_ERROR_OUT_OF_MEMORY)");
    cuda_probe_release(device);
    fake_driver_check_closed();
}

/* The fake itself: engines are tested with it. */
TEST(cuda_driver, the_fake_records_and_fails)
{
    struct cuda_driver d;
    struct fake_cuda *fake = open_fake(&d);
    struct CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    CUcontext context;
    CUdeviceptr memory;
    CUstream stream;
    CUmodule module;
    CUfunction function;
    CUgraph graph;
    CUgraphExec exec;
    int value = 7, got = 0;
    fake->fail_launch = 2;
    CHECK_INT(d.context_retain(&context, 0), 0);
    CHECK_INT(d.context_set(context), 0);
    CHECK_INT(d.memory_alloc(&memory, sizeof value), 0);
    CHECK_INT(d.stream_create(&stream, 0), 0);
    CHECK_INT(d.module_load(&module, "image"), 0);
    CHECK_INT(d.module_function(&function, module, "kernel"), 0);
    CHECK_INT(d.capture_begin(stream, 0), 0);
    config.stream = stream;
    CHECK_INT(d.copy_to_device(memory, &value, sizeof value, stream), 0);
    CHECK_INT(d.launch(&config, function, NULL, NULL), 0);
    CHECK_INT(d.copy_to_host(&got, memory, sizeof got, stream), 0);
    CHECK_INT(d.capture_end(stream, &graph), 0);
    CHECK_INT(d.graph_instantiate(&exec, graph, 0), 0);
    CHECK_INT(fake->n_launched, 0);
    CHECK_INT(got, 0);
    CHECK_INT(d.graph_launch(exec, stream), 0);
    CHECK_INT(fake->n_launched, 1);
    CHECK_INT(got, 7);
    CHECK_INT(d.copy_to_host(&got, memory, 2 * sizeof got, stream), 1); /* out of bounds */
    CHECK_INT(d.launch(&config, function, NULL, NULL), 700);
    CHECK_INT(d.stream_synchronize(stream), 700); /* from then on */
    fake->broken = 0;
    d.graph_exec_destroy(exec);
    d.graph_destroy(graph);
    d.module_unload(module);
    d.stream_destroy(stream);
    d.memory_free(memory);
    d.context_release(0);
    fake_driver_check_closed();
    cuda_driver_close(&d);
}
