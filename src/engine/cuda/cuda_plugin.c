/* What radish-cuda.so exports. This file is in the plug-in alone: it holds the kernels, which the
 * assembler takes from the file that nvcc wrote. */
#include "base/log.h"
#include "engine/cuda/cuda_engine.h"
#include "engine/cuda/cuda_probe.h"

extern const unsigned char radish_cuda_kernels[];
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".hidden radish_cuda_kernels\n"
        ".globl radish_cuda_kernels\n"
        "radish_cuda_kernels:\n"
        ".incbin \"" CUDA_KERNELS_FILE "\"\n"
        ".popsection\n");

static int plugin_find_device(struct plugin_device **out, const struct plugin_options *options,
                              struct error *err)
{
    log_set_level(options->log_level);
    return cuda_probe_find(out, options, err);
}

static int plugin_needs(uint64_t *bytes, const struct model *model,
                        const struct engine_limits *limits, struct error *err)
{
    if (cuda_engine_supports(model, limits, err))
        return -1;
    *bytes = cuda_engine_bytes(model, limits);
    return 0;
}

static int plugin_open_engine(struct engine **out, const struct model *model,
                              const struct engine_limits *limits,
                              const struct plugin_options *options, struct error *err)
{
    const struct cuda_options cuda = {
        .driver_path = options->driver_path,
        .device = options->device,
        .kernels = radish_cuda_kernels,
        .progress = options->progress,
        .progress_context = options->progress_context,
    };
    log_set_level(options->log_level);
    return cuda_engine_open(out, model, limits, &cuda, err);
}

extern const struct engine_plugin radish_engine_plugin;
__attribute__((visibility("default"))) const struct engine_plugin radish_engine_plugin = {
    .abi = ENGINE_ABI,
    .layout = PLUGIN_LAYOUT,
    .name = "cuda",
    .find = plugin_find_device,
    .measure = cuda_probe_measure,
    .needs = plugin_needs,
    .open = plugin_open_engine,
    .release = cuda_probe_release,
};
