#ifndef RADISH_ENGINE_CUDA_CUDA_INTERNAL_H
#define RADISH_ENGINE_CUDA_CUDA_INTERNAL_H

#include "engine/cuda/cuda_device.h"
#include "engine/cuda/cuda_engine.h"
#include "engine/cuda/cuda_pack.h"
#include "engine/cuda/cuda_plan.h"
#include "engine/cuda/cuda_tiles.h"
#include "engine/kv_groups.h"

/* The inside of the CUDA engine:
 *
 *   cuda_supports.c  what it cannot compute
 *   cuda_layout.c    where everything lies in the device's memory
 *   cuda_upload.c    packs weights and copies them there
 *   cuda_plan.c      what a batch asks for, as tables for the device
 *   cuda_forward.c   the launches of a step, and graphs of them
 *   cuda_outputs.c   from the device to the rows' outputs
 *   cuda_io.c        pages to and from the caller's memory
 *   cuda_engine.c    the device, the vtable */

/* Kernels by name. */
#define CUDA_KERNELS(X)                                                                            \
    X(product_8)                                                                                   \
    X(product_16)                                                                                  \
    X(product_32)                                                                                  \
    X(product_32_narrow)                                                                           \
    X(product_40)                                                                                  \
    X(product_f32)                                                                                 \
    X(attention_f16_1)                                                                             \
    X(attention_f16_2)                                                                             \
    X(attention_f16_4)                                                                             \
    X(attention_bf16_1)                                                                            \
    X(attention_bf16_2)                                                                            \
    X(attention_bf16_4)                                                                            \
    X(attention_f32)                                                                               \
    X(attention_merge)                                                                             \
    X(step_tables)                                                                                 \
    X(norm_rows)                                                                                   \
    X(place_heads)                                                                                 \
    X(gated_rows)                                                                                  \
    X(choose_experts)                                                                              \
    X(group_rows)                                                                                  \
    X(add_experts)                                                                                 \
    X(best_logits)                                                                                 \
    X(read_all)

enum cuda_kernel {
#define CUDA_KERNEL_INDEX(name) KERNEL_##name,
    CUDA_KERNELS(CUDA_KERNEL_INDEX)
#undef CUDA_KERNEL_INDEX
        N_CUDA_KERNELS
};

struct cuda_layer {
    struct cuda_matrix q, k, v, output, gate, up, down, router;
    struct cuda_matrix expert_gate, expert_up, expert_down;
    CUdeviceptr attn_norm, attn_post_norm, ffn_norm, ffn_post_norm, q_norm, k_norm, sinks;
    CUdeviceptr router_correction;
    CUdeviceptr keys, values; /* of its group's pages */
    uint32_t group, shape;
};

/* Memory of a step, on the device. */
struct cuda_buffers {
    CUdeviceptr step, rows, outputs, runs, page_table;
    CUdeviceptr items[CUDA_MAX_SHAPES], merges[CUDA_MAX_SHAPES];
    CUdeviceptr partial, partial_state;
    CUdeviceptr rope[CUDA_MAX_ROPES], frequencies[CUDA_MAX_ROPES];
    CUdeviceptr x, q, k, v, q_out, added, gate, up, logits;
    struct cuda_activations normed, attended, hidden, head;
    CUdeviceptr router_logits, experts, weights, row_of, slot_of, expert_items, n_items, expert_out;
    CUdeviceptr n_best, best, log_sums;
    CUdeviceptr sink; /* of read_all */
};

/* Pinned memory: the tables of a step, and staging. */
struct cuda_pinned {
    uint8_t *data;
    struct cuda_plan plan;
    float *x;               /* [max_rows][n_embd] */
    float *logits;          /* [HEAD_ROWS][n_vocab] */
    uint32_t *n_best;       /* [max_rows] of outputs: logits that the device picks */
    struct cuda_best *best; /* [HEAD_ROWS][CUDA_MAX_BEST] */
    float *log_sums;        /* [HEAD_ROWS] */
};

/* One allocation on the device, from which pieces are taken. */
struct cuda_region {
    CUdeviceptr base; /* 0 while sizes are added up */
    uint64_t used;
};

/* A matrix or a vector to be copied to the device. */
struct cuda_upload {
    const struct weight *weight;
    enum cuda_format format; /* that kernels expect of the weight */
    const float *vector;     /* if there is no weight */
    size_t n_values;
    CUdeviceptr data, scales;
};

enum {
    /* Outputs that the head computes at a time, and for which there is room: whole tiles, because
     * blocks of threads know where the batch's outputs end, but not where this chunk does. */
    HEAD_ROWS = 2 * TILE_MOST_ROWS,
    GRAPH_SIZES = 4, /* batches of up to 8, 16, 32 and 40 rows have graphs */
    CUDA_MAX_RUNS = 16384,
    CUDA_MAX_ITEMS = 4096,
    CUDA_MAX_PARTIALS = 2048,
    IO_STAGING_BYTES = 4 << 20,
    F32_OUTPUTS = 4, /* of a block of threads of product_f32 */
};

/* F16 inputs of the last product of a block are divided by this: they are not normed. */
#define HIDDEN_FACTOR 16.0f

struct cuda_engine {
    struct engine engine; /* first: the vtable's functions cast back */
    struct cuda_options options;
    const struct model *model;
    struct cuda_driver driver;
    struct cuda_device device;
    CUcontext context;
    CUmodule module;
    CUfunction kernels[N_CUDA_KERNELS];
    CUstream stream;
    uint32_t n_processors, shared_bytes; /* of the device; of a block of threads at most */
    int kernels_made_for;                /* the virtual architecture, such as 90; 0: unknown */
    bool has_dependent_launch;

    CUdeviceptr weights_memory, kv_memory, buffers_memory;
    struct cuda_layer *layers;
    struct cuda_matrix head;
    CUdeviceptr output_norm;
    struct cuda_buffers buffers;
    struct cuda_pinned pinned;
    struct cuda_plan_limits plan_limits;
    CUgraph graphs[2][GRAPH_SIZES]; /* without and with the merging of split rows */
    CUgraphExec graph_execs[2][GRAPH_SIZES];
    uint8_t *io_staging; /* pinned */
    uint64_t last_ticket;

    const struct batch *batch; /* between submit and wait */
    bool is_stopped;           /* nobody wants the batch */
    bool is_lost;
};

/* The widths that buffers need. */
struct cuda_widths {
    uint32_t q, kv_keys, kv_values, attended, gated;
    uint64_t slots; /* rows of experts' results */
};
struct cuda_widths cuda_widths_of(const struct model *m, const struct engine_limits *limits);

/* cuda_layout.c: with base 0 they only add up sizes. */
int cuda_layout_shapes(const struct model *m, struct cuda_plan_limits *limits,
                       struct cuda_layer *layers, uint32_t n_groups, struct error *err);
/* Calls `each` for what has to be uploaded, unless it is NULL. */
typedef int (*cuda_upload_fn)(void *context, const struct cuda_upload *upload);
int cuda_layout_weights(struct cuda_region *r, const struct model *m, struct cuda_layer *layers,
                        struct cuda_matrix *head, CUdeviceptr *output_norm, cuda_upload_fn each,
                        void *context);
void cuda_layout_buffers(struct cuda_region *r, const struct model *m,
                         const struct engine_limits *limits, const struct kv_group *groups,
                         uint32_t n_groups, const struct cuda_plan_limits *plan,
                         struct cuda_buffers *b);
void cuda_layout_kv(struct cuda_region *r, const struct model *m,
                    const struct engine_limits *limits, uint32_t n_groups,
                    struct cuda_layer *layers);

/* cuda_upload.c */
int cuda_upload_model(struct cuda_engine *e, struct error *err);

/* cuda_forward.c */
int cuda_launch(struct cuda_engine *e, enum cuda_kernel kernel, const uint32_t grid[2],
                uint32_t block, uint32_t shared_bytes, void *params, struct error *err);
int cuda_forward_begin(struct cuda_engine *e, struct error *err);
int cuda_flush(void *engine, struct error *err); /* a cuda_flush_runs */
int cuda_graphs_open(struct cuda_engine *e, struct error *err);
void cuda_graphs_close(struct cuda_engine *e);
int cuda_launch_norm(struct cuda_engine *e, CUdeviceptr weight, const struct cuda_activations *out,
                     uint32_t n_rows, struct error *err);
int cuda_launch_head(struct cuda_engine *e, uint32_t first, uint32_t n_rows, struct error *err);

/* cuda_outputs.c: what follows the launches of a step; waits for it and fills in what rows want. */
int cuda_outputs_begin(struct cuda_engine *e, struct error *err);
int cuda_outputs_finish(struct cuda_engine *e, struct error *err);

/* cuda_engine.c: begins every call of the boundary that uses the driver, because CUDA keeps the
 * current context for each thread, and engines are opened and used by different ones. ERROR_DEVICE
 * after a failure. */
int cuda_enter(struct cuda_engine *e, struct error *err);

/* cuda_io.c */
int cuda_page_io(struct engine *engine, const struct page_io *io, uint64_t *ticket,
                 struct error *err);
int cuda_io_poll(struct engine *engine, uint64_t ticket, bool waits, struct error *err);

#endif
