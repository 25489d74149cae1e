/* A CUDA driver for tests; see fake_cuda.h. Work is done when it is submitted, but for what a
 * stream captures, which is done when the graph is launched. For one thread at a time; like CUDA,
 * it keeps the current context for each thread. */
#include "fake_cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda_driver.h"

enum {
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    MAX_NAMES = 256,
};

enum op_kind { OP_LAUNCH, OP_COPY, OP_SET };

struct op {
    enum op_kind kind;
    unsigned char *to;
    const void *from;
    size_t bytes;
    unsigned char value;
};

struct CUgraph_st {
    struct op *ops;
    size_t n;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
struct CUstream_st {
    struct CUgraph_st *captured; /* NULL: not capturing */
};
struct CUevent_st {
    int n_recorded;
};
struct CUmod_st {
    int unused;
};
struct CUfunc_st {
    char name[128];
};
struct memory {
    void *data;
    size_t bytes;
    struct memory *next;
};

extern struct fake_cuda fake_cuda;
__attribute__((visibility("default"))) struct fake_cuda fake_cuda = {
    .version = 13000,
    .n_devices = 1,
    .capability = 90,
    .kernels_made_for = 90,
    .total_bytes = (uint64_t)8 << 30,
    .create_code = CUDA_ERROR_OUT_OF_MEMORY,
    .launch_code = 700,
};

static struct memory *memories;
static struct CUfunc_st functions[MAX_NAMES];
static int n_functions;
static _Thread_local CUcontext current;

/* FAKE_CUDA="name=number,...", for the numbers that programs need. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("FAKE_CUDA");
    struct {
        const char *name;
        int *value;
    } names[] = {
        {"version", &fake_cuda.version},         {"n_devices", &fake_cuda.n_devices},
        {"capability", &fake_cuda.capability},   {"init_code", &fake_cuda.init_code},
        {"fail_create", &fake_cuda.fail_create}, {"fail_launch", &fake_cuda.fail_launch},
        {"launch_code", &fake_cuda.launch_code}, {"kernels_made_for", &fake_cuda.kernels_made_for}};
    for (; text && *text; text += strcspn(text, ","), text += *text == ',') {
        size_t len = strcspn(text, "=");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i].name) == len && strncmp(names[i].name, text, len) == 0)
                *names[i].value = atoi(text + len + 1);
        if (len == 5 && strncmp("total", text, len) == 0)
            fake_cuda.total_bytes = strtoull(text + len + 1, NULL, 10);
    }
}

static CUresult state(void)
{
    return fake_cuda.broken ? fake_cuda.broken : CUDA_SUCCESS;
}

/* Most calls need one, current on the calling thread. */
static bool has_context(void)
{
    return current && fake_cuda.n_contexts > 0;
}

static CUresult state_here(void)
{
    return has_context() ? state() : INVALID_CONTEXT;
}

/* Whether the next creating call may go on. */
static CUresult create(void)
{
    if (fake_cuda.broken)
        return fake_cuda.broken;
    return ++fake_cuda.n_created == fake_cuda.fail_create ? fake_cuda.create_code : CUDA_SUCCESS;
}

static CUresult create_here(void)
{
    return has_context() ? create() : INVALID_CONTEXT;
}

/* ---- memory ------------------------------------------------------------------------------- */

static CUresult memory_add(void **out, size_t bytes)
{
    struct memory *m = malloc(sizeof *m);
    void *data = calloc(1, bytes);
    if (!m || !data || bytes == 0) {
        free(m);
        free(data);
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : INVALID_VALUE;
    }
    *m = (struct memory){data, bytes, memories};
    memories = m;
    *out = data;
    return CUDA_SUCCESS;
}

/* Returns the size, or 0 if there is no such memory. */
static size_t memory_remove(void *data)
{
    for (struct memory **at = &memories; *at; at = &(*at)->next)
        if ((*at)->data == data) {
            struct memory *m = *at;
            size_t bytes = m->bytes;
            *at = m->next;
            free(m->data);
            free(m);
            return bytes;
        }
    return 0;
}

static bool memory_holds(const void *data, size_t bytes)
{
    const char *begin = data;
    for (const struct memory *m = memories; m; m = m->next) {
        const char *first = m->data;
        if (begin >= first && begin < first + m->bytes)
            return bytes <= (size_t)(first + m->bytes - begin);
    }
    return false;
}

static CUresult fake_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = fake_cuda.total_bytes - fake_cuda.others_bytes - fake_cuda.memory_bytes;
    *total_bytes = fake_cuda.total_bytes;
    return state_here();
}

static CUresult fake_memory_alloc(CUdeviceptr *out, size_t bytes)
{
    void *data;
    CUresult code = create_here();
    if (code == CUDA_SUCCESS &&
        bytes > fake_cuda.total_bytes - fake_cuda.others_bytes - fake_cuda.memory_bytes)
        code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == CUDA_SUCCESS)
        code = memory_add(&data, bytes);
    if (code != CUDA_SUCCESS)
        return code;
    fake_cuda.n_memory++;
    fake_cuda.memory_bytes += bytes;
    if (fake_cuda.memory_bytes > fake_cuda.most_bytes)
        fake_cuda.most_bytes = fake_cuda.memory_bytes;
    *out = (CUdeviceptr)(uintptr_t)data;
    return CUDA_SUCCESS;
}

static CUresult fake_memory_free(CUdeviceptr memory)
{
    if (!has_context())
        return INVALID_CONTEXT;
    size_t bytes = memory_remove((void *)(uintptr_t)memory);
    if (bytes == 0)
        return INVALID_VALUE;
    fake_cuda.n_memory--;
    fake_cuda.memory_bytes -= bytes;
    return state();
}

static CUresult fake_host_alloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    CUresult code = create_here();
    if (code == CUDA_SUCCESS)
        code = memory_add(out, bytes);
    fake_cuda.n_host_memory += code == CUDA_SUCCESS;
    return code;
}

static CUresult fake_host_free(void *memory)
{
    if (!has_context())
        return INVALID_CONTEXT;
    if (memory_remove(memory) == 0)
        return INVALID_VALUE;
    fake_cuda.n_host_memory--;
    return state();
}

/* ---- work --------------------------------------------------------------------------------- */

static CUresult op_run(const struct op *op)
{
    if (fake_cuda.broken)
        return fake_cuda.broken;
    if (op->kind == OP_LAUNCH) {
        if (++fake_cuda.n_launched == fake_cuda.fail_launch)
            fake_cuda.broken = fake_cuda.launch_code;
        return state();
    }
    if (op->kind == OP_COPY)
        memcpy(op->to, op->from, op->bytes);
    else
        memset(op->to, op->value, op->bytes);
    return CUDA_SUCCESS;
}

static CUresult op_submit(CUstream stream, struct op op)
{
    if (!has_context())
        return INVALID_CONTEXT;
    struct CUgraph_st *graph = stream ? stream->captured : NULL;
    if (!graph)
        return op_run(&op);
    struct op *ops = realloc(graph->ops, (graph->n + 1) * sizeof *ops);
    if (!ops)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ops[graph->n++] = op;
    graph->ops = ops;
    return state();
}

static CUresult fake_copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    void *place = (void *)(uintptr_t)to;
    return memory_holds(place, bytes)
               ? op_submit(stream, (struct op){OP_COPY, place, from, bytes, 0})
               : INVALID_VALUE;
}

static CUresult fake_copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    const void *place = (const void *)(uintptr_t)from;
    return memory_holds(place, bytes) ? op_submit(stream, (struct op){OP_COPY, to, place, bytes, 0})
                                      : INVALID_VALUE;
}

static CUresult fake_memory_set(CUdeviceptr memory, unsigned char value, size_t bytes,
                                CUstream stream)
{
    void *place = (void *)(uintptr_t)memory;
    return memory_holds(place, bytes)
               ? op_submit(stream, (struct op){OP_SET, place, NULL, bytes, value})
               : INVALID_VALUE;
}

static CUresult fake_launch(const struct CUlaunchConfig *config, CUfunction function, void **params,
                            void **extra)
{
    (void)params;
    (void)extra;
    const uint64_t n_threads = (uint64_t)config->block_x * config->block_y * config->block_z;
    if (!function || !config->grid_x || !config->grid_y || !config->grid_z || n_threads == 0 ||
        n_threads > 1024 || config->grid_y > 65535 || config->grid_z > 65535)
        return INVALID_VALUE;
    fake_cuda.n_dependent += config->n_attrs > 0;
    return op_submit(config->stream, (struct op){.kind = OP_LAUNCH});
}

static CUresult fake_capture_begin(CUstream stream, int mode)
{
    (void)mode;
    if (!has_context())
        return INVALID_CONTEXT;
    if (!stream || stream->captured)
        return INVALID_VALUE;
    stream->captured = calloc(1, sizeof *stream->captured);
    fake_cuda.n_graphs++;
    return state();
}

static CUresult fake_capture_end(CUstream stream, CUgraph *graph)
{
    if (!has_context())
        return INVALID_CONTEXT;
    if (!stream->captured)
        return INVALID_VALUE;
    *graph = stream->captured;
    stream->captured = NULL;
    return state();
}

static CUresult fake_graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    CUresult code = create_here();
    if (code != CUDA_SUCCESS)
        return code;
    CUgraphExec exec = calloc(1, sizeof *exec);
    exec->graph.n = graph->n;
    exec->graph.ops = calloc(graph->n + 1, sizeof *graph->ops);
    if (graph->n)
        memcpy(exec->graph.ops, graph->ops, graph->n * sizeof *graph->ops);
    fake_cuda.n_graphs++;
    *out = exec;
    return CUDA_SUCCESS;
}

static CUresult fake_graph_launch(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    if (!has_context())
        return INVALID_CONTEXT;
    fake_cuda.n_graphs_launched++;
    for (size_t i = 0; i < exec->graph.n; i++)
        if (op_run(&exec->graph.ops[i]))
            break;
    return state();
}

static CUresult fake_graph_destroy(CUgraph graph)
{
    if (!has_context())
        return INVALID_CONTEXT;
    free(graph->ops);
    free(graph);
    fake_cuda.n_graphs--;
    return state();
}

static CUresult fake_graph_exec_destroy(CUgraphExec exec)
{
    if (!has_context())
        return INVALID_CONTEXT;
    free(exec->graph.ops);
    free(exec);
    fake_cuda.n_graphs--;
    return state();
}

/* ---- streams, events, modules ------------------------------------------------------------- */

static CUresult object_new(void **out, size_t bytes, int *count)
{
    CUresult code = create_here();
    if (code == CUDA_SUCCESS)
        *out = calloc(1, bytes);
    *count += code == CUDA_SUCCESS;
    return code;
}

static CUresult object_free(void *object, int *count)
{
    if (!has_context())
        return INVALID_CONTEXT;
    free(object);
    *count -= 1;
    return state();
}

static CUresult fake_stream_create(CUstream *out, unsigned flags)
{
    (void)flags;
    return object_new((void **)out, sizeof **out, &fake_cuda.n_streams);
}

static CUresult fake_stream_destroy(CUstream stream)
{
    return object_free(stream, &fake_cuda.n_streams);
}

static CUresult fake_stream_synchronize(CUstream stream)
{
    (void)stream;
    return state_here();
}

static CUresult fake_event_create(CUevent *out, unsigned flags)
{
    (void)flags;
    return object_new((void **)out, sizeof **out, &fake_cuda.n_events);
}

static CUresult fake_event_destroy(CUevent event)
{
    return object_free(event, &fake_cuda.n_events);
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    (void)stream;
    event->n_recorded++;
    return state_here();
}

static CUresult fake_event_synchronize(CUevent event)
{
    (void)event;
    return state_here();
}

static CUresult fake_event_elapsed(float *ms, CUevent begin, CUevent end)
{
    *ms = 1;
    return begin->n_recorded && end->n_recorded ? state_here() : INVALID_VALUE;
}

static CUresult fake_module_load(CUmodule *out, const void *image)
{
    return image ? object_new((void **)out, sizeof **out, &fake_cuda.n_modules) : INVALID_VALUE;
}

static CUresult fake_module_unload(CUmodule module)
{
    return object_free(module, &fake_cuda.n_modules);
}

static CUresult fake_module_function(CUfunction *function, CUmodule module, const char *name)
{
    const char *missing = fake_cuda.missing_function;
    int i = 0;
    if (!module || (missing && strcmp(missing, name) == 0))
        return CUDA_ERROR_NOT_FOUND;
    while (i < n_functions && strcmp(functions[i].name, name) != 0)
        i++;
    if (i == MAX_NAMES)
        return CUDA_ERROR_NOT_FOUND;
    if (i == n_functions)
        snprintf(functions[n_functions++].name, sizeof functions->name, "%s", name);
    *function = &functions[i];
    return state_here();
}

static CUresult fake_function_get(int *value, int attribute, CUfunction function)
{
    (void)attribute;
    *value = fake_cuda.kernels_made_for;
    return function ? state_here() : INVALID_VALUE;
}

static CUresult fake_function_set(CUfunction function, int attribute, int value)
{
    (void)attribute;
    (void)value;
    return function ? state_here() : INVALID_VALUE;
}

/* ---- the driver and its devices ----------------------------------------------------------- */

static CUresult fake_init(unsigned flags)
{
    (void)flags;
    return fake_cuda.init_code        ? fake_cuda.init_code
           : fake_cuda.n_devices == 0 ? CUDA_ERROR_NO_DEVICE
                                      : CUDA_SUCCESS;
}

static CUresult fake_error_name(CUresult code, const char **name)
{
    *name = code == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == 700                    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == 214                    ? "CUDA_ERROR_ECC_UNCORRECTABLE"
                                             : NULL;
    return *name ? CUDA_SUCCESS : INVALID_VALUE;
}

static CUresult fake_error_string(CUresult code, const char **text)
{
    *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
            : code == 700                    ? "an illegal memory access was encountered"
            : code == 214                    ? "uncorrectable ECC error encountered"
                                             : NULL;
    return *text ? CUDA_SUCCESS : INVALID_VALUE;
}

static CUresult fake_device_count(int *count)
{
    *count = fake_cuda.n_devices;
    return state();
}

static CUresult fake_device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal < fake_cuda.n_devices ? state() : INVALID_VALUE;
}

static CUresult fake_device_name(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return state();
}

/* GPU-00010203-0405-0607-0809-0a0b0c0d0eNN */
static CUresult fake_device_uuid(struct CUuuid *uuid, CUdevice device)
{
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(i < 15 ? i : device);
    return state();
}

static CUresult fake_device_attribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = attribute == 75   ? fake_cuda.capability / 10
             : attribute == 76 ? fake_cuda.capability % 10
             : attribute == 16 ? 132        /* multiprocessors */
             : attribute == 97 ? 227 * 1024 /* shared memory that a block may ask for */
             : attribute == 81 ? 228 * 1024 /* shared memory of a multiprocessor */
             : attribute == 38 ? 50 << 20   /* second-level cache */
                               : 0;
    return state();
}

static CUresult fake_context_retain(CUcontext *context, CUdevice device)
{
    CUresult code = create();
    static char contexts[64];
    *context = (CUcontext)(void *)&contexts[device];
    fake_cuda.n_contexts += code == CUDA_SUCCESS;
    return code;
}

static CUresult fake_context_release(CUdevice device)
{
    (void)device;
    if (--fake_cuda.n_contexts == 0 && !fake_cuda.stays_broken)
        fake_cuda.broken = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_context_set(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

/* ---- what the library exports ------------------------------------------------------------- */

#define EXPORT __attribute__((visibility("default")))

CUresult cuDriverGetVersion(int *version);
EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = fake_cuda.version;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             int *status);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    uint64_t flags, int *status)
{
    CUresult code = CUDA_ERROR_NOT_FOUND;
    *function = NULL;
    *status = 1;
#define OFFER(name, called, params)                                                                \
    if (strcmp(symbol, #called) == 0) {                                                            \
        CUresult(*offered) params = fake_##name;                                                   \
        memcpy(function, &offered, sizeof offered);                                                \
    }
    CUDA_DRIVER_CALLS(OFFER)
    if (fake_cuda.missing_call && strcmp(symbol, fake_cuda.missing_call) == 0)
        *function = NULL;
    if (*function && version <= fake_cuda.version && flags == 0) {
        *status = 0;
        code = CUDA_SUCCESS;
    }
    return code;
}
