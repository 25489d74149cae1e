#ifndef RADISH_ENGINE_CPU_INTERNAL_H
#define RADISH_ENGINE_CPU_INTERNAL_H

#include "base/parallel.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/kernels/buffer.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_touch.h"
#include "engine/cpu/machine_limits.h"
#include "engine/cpu/router.h"
#include "engine/cpu/weight_store.h"
#include "engine/cpu/work_split.h"

/* The inside of the CPU engine:
 *
 *   cpu_engine.c    opens and closes it, and takes batches
 *   cpu_weights.c   the model's matrices as the kernels stream them
 *   cpu_state.c     memory for the rows of a batch
 *   cpu_kv.c        memory for keys and values, and attention over it
 *   cpu_io.c        copies its pages to and from the caller's memory
 *   cpu_forward.c   takes a batch through the layers; its parts share cpu_pass.h:
 *   cpu_attention.c   from x to queries, keys and values
 *   cpu_blocks.c      from the attention's result to the next layer's x
 *   cpu_experts.c     mixtures of experts
 *   cpu_output.c      from x to the rows' outputs
 *   cpu_cost.c      the least work that a batch needs */

struct cpu_expert {
    struct packed_matrix *gate, *up, *down;
};

/* Where a layer's keys and values are: its own, or those of the layer that it reads. */
struct cpu_kv {
    uint32_t group;
    uint8_t *keys, *values;        /* [pages of the group][bytes]; no values in MLA */
    size_t key_bytes, value_bytes; /* of a position */
};

/* One layer's weights as the kernels stream them; NULL: the layer has none. */
struct cpu_layer {
    struct packed_matrix *q, *k, *v, *output, *gate, *up, *down;
    struct packed_matrix *q_a, *q_b, *kv_a, **k_b, **v_b; /* MLA; the last two [n_heads] */
    struct packed_matrix *router, *shared_gate, *shared_up, *shared_down;
    struct cpu_expert *experts; /* [n_experts] */
    struct packed_matrix *layer_gate, *layer_output;
    struct cpu_kv kv;
    struct attention *attention; /* shared by layers of one shape */
};

enum {
    SMALL_BATCH = 4,           /* rows; up to here each thread prepares its own inputs */
    CHUNK_ROWS = 4 * ROW_TILE, /* the most that one thread takes through a layer alone */
    BEST_ROWS = 8, /* whose logits are computed at a time, if only the best are wanted */
    LAYER_CACHE_BYTES = 16 << 20, /* all threads compute a layer whose weights take more */
};

/* Rows passing through a layer, all [rows][...] except `heads`. Widths are those of the largest
 * layer; arrays that no layer of the model needs have no memory. */
struct cpu_rows {
    float *normed;                      /* [n_embd] */
    float *k, *v;                       /* [n_kv_heads * key_dim, value_dim] */
    float *gate, *up;                   /* [n_ff or n_embd_layer] */
    float *added;                       /* [n_embd] what a block adds to x */
    struct act_block *quantized;        /* the input of the next product */
    float *q_a, *q_a_normed;            /* [q_rank] */
    float *q_full;                      /* [n_heads * (nope_dim + rope_dim)] */
    float *heads;                       /* [n_heads][rows][nope_dim or kv_rank] */
    struct act_block *heads_quantized;  /* [n_heads], each for the rows */
    float *values;                      /* [n_heads * value_dim], of MLA */
    float *expert_normed;               /* [n_embd] if it is not `normed` */
    float *router_normed;               /* [n_embd] the same */
    struct act_block *router_quantized; /* [n_embd] */
    float *shared_gate, *shared_up;     /* [n_ff_shared] */
    float *shared_added;                /* [n_embd] */
    struct act_block *shared_quantized; /* [n_ff_shared] */
};

/* Rows of one expert in a batch, at most ROW_UNIT. */
struct cpu_expert_rows {
    uint32_t expert;
    uint32_t first; /* slot */
    uint32_t n_rows;
};

/* The input that a thread gathers for the rows of one expert. */
struct cpu_gathered {
    uint32_t item;               /* index in cpu_experts.items */
    float *input;                /* [ROW_UNIT][n_embd] */
    float *up;                   /* [ROW_UNIT][n_ff] */
    struct act_block *quantized; /* [ROW_UNIT][n_embd or n_ff] */
    struct router_scratch router;
};

/* The assignment of rows to experts. A row has n_chosen choices, in order of rank; the rows of an
 * expert have adjacent slots, in the order of rows:
 *
 *   choices  row 0 [e5 e2]  row 1 [e2 e7]  row 2 [e2 e5]
 *   slots    e2: row 0, row 1, row 2 │ e5: row 0, row 2 │ e7: row 1
 *   items    [e2: slots 0 .. 2      ] [e5: slots 3, 4  ] [e7: slot 5]
 */
struct cpu_experts {
    float *logits;                 /* [max_rows][n_experts] */
    struct router_choice *choices; /* [max_rows][n_chosen] */
    uint32_t *slot_of;             /* [max_rows][n_chosen] */
    uint32_t *row_of;              /* [max_rows * n_chosen] */
    uint32_t *next_slot;           /* [n_experts + 1] */
    struct cpu_expert_rows *items;
    uint32_t n_items;
    float *hidden;                 /* [max_rows * n_chosen][n_ff] */
    float *out;                    /* [max_rows * n_chosen][n_embd] */
    struct cpu_gathered *gathered; /* [n_threads] */
};

/* The rows of a batch, all [max_rows][...]. */
struct cpu_state {
    float *x;                               /* [n_embd] the residual stream */
    float *q;                               /* [n_heads * key_dim] */
    float *attended;                        /* [n_heads * value_dim] */
    float *cos[MAX_ROPES], *sin[MAX_ROPES]; /* [rope's dim] */
    float *layer_inputs;                    /* [n_layers * n_embd_layer] */
    uint32_t *outputs;                      /* rows that want logits or the best, in order */
    float *best_logits;                     /* [BEST_ROWS][n_vocab] of rows that want the best */
    struct cpu_rows shared;                 /* for all rows */
    struct cpu_rows *own;                   /* [n_threads], for CHUNK_ROWS */
    float **layer_embd;                     /* [n_threads][n_layers * n_embd_layer] */
    struct cpu_experts experts;
};

/* What threads divide among themselves in each layer: rows, or the outputs of products. After the
 * last layer: rows again, and the head's outputs. */
enum cpu_phase {
    PHASE_ROWS,
    PHASE_LAYER_PROJ, /* before layer 0 */
    PHASE_QKV,
    PHASE_Q_B,
    PHASE_K_B,
    PHASE_V_B,
    PHASE_OUTPUT,
    PHASE_GATE_UP,
    PHASE_DOWN,
    PHASE_ROUTER,
    PHASE_SHARED_UP,
    PHASE_SHARED_DOWN,
    PHASE_EXPERTS_UP,
    PHASE_EXPERTS_DOWN,
    PHASE_LAYER_GATE,
    PHASE_LAYER_OUTPUT,
    PHASES_OF_LAYER
};

static inline uint32_t cpu_phases(const struct hparams *hp)
{
    return (hp->n_layers + 1) * PHASES_OF_LAYER;
}

struct cpu_engine {
    struct engine engine; /* first: the vtable's functions cast back */
    struct cpu_options options;
    const struct model *model;
    const struct kernels *kernels;
    enum act_kind quantized_kind; /* activations for quantised weights: ACT_Q8 or ACT_Q16 */
    struct parallel *pool;
    struct attention **attentions; /* [n_attentions] one for each shape of layers */
    uint32_t n_attentions;
    struct cpu_layer *layers; /* [n_layers] */
    struct packed_matrix *head, *layer_proj;
    struct arena memory;             /* for lists that layers point to */
    struct weight_store weights;     /* owns the matrices of head and layers */
    struct buffer kv[KV_MAX_GROUPS]; /* [layers of the group][keys, values][pages][bytes] */
    struct kv_touch kv_touch[KV_MAX_GROUPS];
    struct cpu_state state;
    struct buffer state_memory;

    const struct batch *batch; /* between submit and wait */
    bool is_computed;          /* wait has nothing left to do */
    uint64_t last_ticket;
    atomic_uint *taken; /* [cpu_phases] of a pass, see work_split.h */
    uint32_t n_outputs;
    bool wants_hidden; /* some row wants hidden or normed */
    bool by_rows;      /* each thread takes its own rows, see cpu_forward.c */
    bool stopped;      /* written by thread 0 before a barrier, read by all after it */
    uint64_t lap_ns;   /* thread 0: up to when the pass is in engine.times */

    struct machine_probe *probe; /* opened when the machine is measured for the first time */
};

int cpu_kv_open(struct cpu_engine *e, struct error *err);
void cpu_kv_close(struct cpu_engine *e);
int cpu_state_open(struct cpu_engine *e, struct error *err);
void cpu_state_close(struct cpu_engine *e);
int cpu_weights_open(struct cpu_engine *e, struct error *err);

/* Computes the submitted batch, unless that is already done. */
void cpu_settle(struct cpu_engine *e);
/* cpu_io.c */
int cpu_page_io(struct engine *engine, const struct page_io *io, uint64_t *ticket,
                struct error *err);
int cpu_io_poll(struct engine *engine, uint64_t ticket, bool waits, struct error *err);

/* Computes e->batch with all threads; sets e->stopped if the batch's live count reached zero. */
void cpu_forward(struct cpu_engine *e);
struct engine_cost cpu_cost(const struct cpu_engine *e);

static inline bool cpu_has_experts(const struct hparams *hp)
{
    return hp->router.n_experts > 0;
}

#endif
