#ifndef RADISH_ENGINE_CPU_INTERNAL_H
#define RADISH_ENGINE_CPU_INTERNAL_H

#include "base/parallel.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_touch.h"
#include "engine/cpu/machine_limits.h"
#include "engine/cpu/weight_store.h"
#include "engine/cpu/work_split.h"

/* The inside of the CPU engine: cpu_engine.c opens and closes it, cpu_forward.c computes,
 * cpu_cost.c says what that takes at least. */

/* One layer's weights as the kernels stream them. */
struct cpu_layer {
    const float *attn_norm, *ffn_norm;     /* [n_embd] */
    const float *q_bias, *k_bias, *v_bias; /* [outputs of q, k, v] or NULL */
    struct packed_matrix *q, *k, *v, *output, *gate, *up, *down;
};

enum {
    SMALL_BATCH = 4,              /* rows; up to here a thread prepares its inputs itself */
    CHUNK_ROWS = 4 * ROW_TILE,    /* that a thread takes through a layer alone, at most */
    LAYER_CACHE_BYTES = 16 << 20, /* a layer whose weights take more is computed by all threads */
};

/* Rows on their way through a layer, all [rows][...]. */
struct cpu_rows {
    float *normed;               /* [n_embd] */
    float *k, *v;                /* [n_kv_heads * head_dim] */
    float *gate;                 /* [n_ff] */
    float *up;                   /* [n_ff] */
    float *added;                /* [n_embd] what a block adds to x */
    struct act_block *quantized; /* of whichever matrix is the input of the next product */
};

/* The rows of a batch, all [max_rows][...]. */
struct cpu_state {
    float *x;               /* [n_embd] the residual stream */
    float *q;               /* [n_heads * head_dim] */
    float *attended;        /* [n_heads * head_dim] */
    float *cos, *sin;       /* [rope_dim] */
    uint32_t *outputs;      /* rows that ask for logits, in order */
    struct cpu_rows shared; /* for all rows */
    struct cpu_rows *own;   /* [n_threads], for CHUNK_ROWS */
};

/* What threads share in each layer: rows, or the outputs of products. Behind the last layer it is
 * rows once more, and the head's outputs. */
enum cpu_phase { PHASE_ROWS, PHASE_QKV, PHASE_OUTPUT, PHASE_GATE_UP, PHASE_DOWN, PHASES_OF_LAYER };

static inline uint32_t cpu_phases(const struct hparams *hp)
{
    return (hp->n_layers + 1) * PHASES_OF_LAYER;
}

struct cpu_engine {
    struct engine engine; /* first: the vtable's functions cast back */
    const struct model *model;
    const struct kernels *kernels;
    struct parallel *pool;
    struct attention *attention;
    double *rope_frequencies; /* [rope_dim / 2] */
    struct cpu_layer *layers; /* [n_layers] */
    float *vectors;           /* of the layers */
    struct packed_matrix *head;
    struct weight_store weights; /* which owns the matrices of head and layers */
    struct buffer kv;            /* [n_layers][keys, values][n_pages][kv_row_bytes] */
    size_t kv_row_bytes;
    struct kv_touch kv_touch;
    struct cpu_state state;
    struct buffer state_memory;

    const struct batch *batch; /* between submit and wait */
    atomic_uint *taken;        /* [cpu_phases] of a pass, see work_split.h */
    uint32_t n_outputs;
    bool by_rows;    /* threads take rows of their own, see cpu_forward.c */
    bool stopped;    /* written by thread 0 before a barrier, read by all after it */
    uint64_t lap_ns; /* thread 0: up to when the pass is in engine.times */

    struct machine_probe *probe; /* opened when the machine is measured for the first time */
};

/* Computes e->batch with all threads; sets e->stopped when the batch's live count reached zero. */
void cpu_forward(struct cpu_engine *e);
struct engine_cost cpu_cost(const struct cpu_engine *e);

static inline uint8_t *cpu_keys(const struct cpu_engine *e, uint32_t layer)
{
    size_t bytes = (size_t)e->engine.limits.n_pages * e->kv_row_bytes;
    return (uint8_t *)e->kv.data + 2 * layer * bytes;
}

static inline uint8_t *cpu_values(const struct cpu_engine *e, uint32_t layer)
{
    return cpu_keys(e, layer) + (size_t)e->engine.limits.n_pages * e->kv_row_bytes;
}

#endif
