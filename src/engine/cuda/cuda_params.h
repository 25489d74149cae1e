#ifndef RADISH_ENGINE_CUDA_CUDA_PARAMS_H
#define RADISH_ENGINE_CUDA_CUDA_PARAMS_H

#include "engine/cuda/cuda_format.h"

/* What kernels are given. Included by C and by CUDA C++; pointers are addresses on the device.
 *
 * What changes from step to step is in the device's memory, so that a recorded graph of launches
 * stays valid: struct cuda_step, and the arrays that it counts. Grids are for the most rows of the
 * graph; blocks without work return at once. */
#ifdef __CUDACC__
#define DEVICE_PTR(type) type *
#else
#define DEVICE_PTR(type) uint64_t
#endif

/* In the engine's fingerprint. Raise it with every change after which kernels may give other bits
 * for the same model: the order of a sum, a rounding, how weights are packed, where positions are
 * cut. Tiles, grids and layouts that leave each row's arithmetic as it is do not count. */
enum { CUDA_ARITHMETIC = 1 };

enum {
    ATTENTION_QUERIES = 16,  /* (row, head) pairs that a block of threads attends with */
    ATTENTION_BLOCK = 128,   /* positions summed from a fresh state, at multiples of it */
    ATTENTION_MAX_DIM = 256, /* of a head */
    CUDA_MAX_SHAPES = 4,     /* kinds of attention layers in a model */
    CUDA_MAX_ROPES = 3,
    CUDA_MAX_GROUPS = 2,
    CUDA_MAX_BEST = 64, /* logits of a row that the device picks */
    CUDA_NONE = 0xffffffffu,
};

/* Numbers of the model and the boundary, as kernels know them; the host checks that they agree. */
enum { CUDA_KV_F16, CUDA_KV_F32, CUDA_KV_BF16 };                /* enum kv_type */
enum { CUDA_SILU, CUDA_GELU_TANH, CUDA_GELU, CUDA_SWIGLU_OAI }; /* enum activation */
enum { CUDA_SOFTMAX, CUDA_SIGMOID, CUDA_SOFTMAX_CHOSEN };       /* enum router_scores */

/* ---- a step ------------------------------------------------------------------------------- */

/* In group g, the page of position p of a row's sequence is page_table[table[g] + p], modulo 2^32.
 */
struct cuda_row {
    uint32_t position, rope;
    uint32_t pages[CUDA_MAX_GROUPS]; /* its own */
    uint32_t table[CUDA_MAX_GROUPS];
};

/* Pages of `count` positions, for the page table: table[at + i] = page + i. */
struct cuda_run {
    uint32_t at, page, count;
};

/* Queries of one sequence that attend together: rows first_row .. first_row + n_rows - 1 with the
 * heads of one KV head, over positions of blocks first_block .. first_block + n_blocks - 1.
 * Pages are known of positions first .. length - 1. */
struct cuda_item {
    uint32_t first_row, n_rows;
    uint32_t first_block, n_blocks;
    uint32_t first, length;
    uint32_t partial; /* where results of blocks go, in order; CUDA_NONE: merged, and final */
};

/* A row whose blocks were computed apart: partials first .. first + count - 1, count 0: none. */
struct cuda_merge {
    uint32_t first, count;
    uint32_t row_of_item; /* which of the item's rows */
};

struct cuda_step {
    uint32_t n_rows, n_outputs, n_runs;
    uint32_t n_items[CUDA_MAX_SHAPES];
    uint32_t is_split[CUDA_MAX_SHAPES]; /* some row has to be merged */
};

/* ---- products ----------------------------------------------------------------------------- */

/* Where a kernel writes rows of activations; those that are NULL are not needed. Columns from the
 * width to `stride` are zeroed. */
struct cuda_activations {
    DEVICE_PTR(void) f16;
    DEVICE_PTR(void) bf16;
    DEVICE_PTR(float) f32;
    uint32_t stride;
};

/* One matrix, or a stack of experts' matrices of one shape. */
struct cuda_matrix {
    DEVICE_PTR(const uint8_t) data;
    DEVICE_PTR(const uint8_t) scales;
    DEVICE_PTR(const float) bias; /* [experts][outputs], or NULL */
    uint64_t expert_data_bytes, expert_scale_bytes;
    uint32_t format, outputs, out_tiles, col_tiles;
};

/* Some rows of one expert: slots first .. first + n - 1. */
struct cuda_expert_item {
    uint32_t expert, first, n;
};

enum product_mode {
    PRODUCT_STORE,  /* out = value */
    PRODUCT_ADD,    /* out += value * factor */
    PRODUCT_LOGITS, /* out = cap(value * factor) */
    PRODUCT_GATED,  /* activations = activate(value of matrix 0, value of matrix 1) */
};

struct product_params {
    struct cuda_matrix matrices[3];
    DEVICE_PTR(float) out[3];
    uint32_t out_stride[3];
    uint32_t first_block[3]; /* the first blockIdx.y of each matrix */
    uint32_t n_matrices;
    DEVICE_PTR(const void) input_f16;
    DEVICE_PTR(const void) input_bf16;
    DEVICE_PTR(const float) input_f32;
    uint32_t input_stride;                           /* in values, of all three */
    float f16_factor;                                /* of the product where the input is F16 */
    DEVICE_PTR(const uint32_t) n_rows;               /* of the batch */
    DEVICE_PTR(const struct cuda_expert_item) items; /* experts: [*n_items]; else NULL */
    DEVICE_PTR(const uint32_t) n_items;
    DEVICE_PTR(const uint32_t) row_of; /* experts: the input row of a slot; NULL: the slot */
    uint32_t mode;
    float factor, cap;
    struct cuda_activations gated; /* PRODUCT_GATED, in place of out */
    uint32_t activation;
    float limit, gated_f16_factor;
    uint32_t first_row; /* of the batch, where rows come in several launches */
};

/* ---- the rest ----------------------------------------------------------------------------- */

struct norm_params {
    DEVICE_PTR(const float) x; /* [rows][n] */
    DEVICE_PTR(const float) weight;
    DEVICE_PTR(const uint32_t) row_of; /* NULL: row r itself */
    DEVICE_PTR(const uint32_t) n_rows;
    struct cuda_activations out;
    DEVICE_PTR(float) add_to; /* instead of out: add_to += norm(x) * factor */
    float factor, eps;
    uint32_t n, first_row;
};

struct rope_params {
    DEVICE_PTR(const struct cuda_step) step;
    DEVICE_PTR(const struct cuda_row) rows;
    DEVICE_PTR(const double) frequencies[CUDA_MAX_ROPES]; /* [half] */
    DEVICE_PTR(float) table[CUDA_MAX_ROPES];              /* [rows][half][cos, sin] */
    uint32_t half[CUDA_MAX_ROPES];
    float amplitude[CUDA_MAX_ROPES];
    DEVICE_PTR(const struct cuda_run) runs;
    DEVICE_PTR(uint32_t) page_table;
};

struct heads_params {
    DEVICE_PTR(const struct cuda_step) step;
    DEVICE_PTR(const struct cuda_row) rows;
    DEVICE_PTR(float) q; /* [rows][heads][key_dim] */
    DEVICE_PTR(float) k;
    DEVICE_PTR(float) v;
    DEVICE_PTR(const float) q_norm; /* NULL: none */
    DEVICE_PTR(const float) k_norm;
    DEVICE_PTR(const float) rope; /* [rows][half][2]; NULL: none */
    DEVICE_PTR(void) q_out;       /* scaled, in the type of the KV */
    DEVICE_PTR(void) keys;        /* [pages][kv_heads][key_dim] */
    DEVICE_PTR(void) values;
    uint32_t n_heads, n_kv_heads, key_dim, value_dim, half;
    uint32_t norm_is_each; /* a weight for each head */
    uint32_t is_neox, kv_type, group, stores_kv;
    float eps, scale;
    float temperature_scale;
    uint32_t temperature_length;
};

/* Blocks of threads that attend on a processor at once, by the chunks of 64 values in a head: the
 * registers of more do not fit. */
CUDA_FORMAT_FN uint32_t attention_blocks(uint32_t chunks)
{
    return chunks == 1 ? 3 : 2;
}

struct attention_params {
    DEVICE_PTR(const struct cuda_step) step;
    DEVICE_PTR(const struct cuda_row) rows;
    DEVICE_PTR(const struct cuda_item) items;
    DEVICE_PTR(const struct cuda_merge) merges; /* [rows] */
    DEVICE_PTR(const uint32_t) page_table;
    DEVICE_PTR(const void) q;
    DEVICE_PTR(const void) keys;
    DEVICE_PTR(const void) values;
    DEVICE_PTR(const float) sinks;   /* [heads] or NULL */
    DEVICE_PTR(float) partial;       /* [partials][units][16][value_dim] */
    DEVICE_PTR(float) partial_state; /* [partials][units][16][largest, sum] */
    struct cuda_activations out;     /* [rows][heads * value_dim] */
    uint32_t shape;                  /* index in step's arrays */
    uint32_t n_heads, n_kv_heads, heads_per_unit, key_dim, value_dim, window;
    uint32_t group;
    float cap; /* scores are capped and then times log2(e); 0: q has that factor already */
};

struct gated_params {
    DEVICE_PTR(const float) gate; /* [rows][n] */
    DEVICE_PTR(const float) up;
    DEVICE_PTR(const uint32_t) n_rows;
    struct cuda_activations out;
    uint32_t n, rows_per_row; /* slots of a row */
    uint32_t activation;
    float limit, f16_factor;
};

struct choose_params {
    DEVICE_PTR(const float) logits; /* [rows][n_experts] */
    DEVICE_PTR(const float) correction;
    DEVICE_PTR(const uint32_t) n_rows;
    DEVICE_PTR(uint32_t) experts; /* [rows][n_chosen] */
    DEVICE_PTR(float) weights;    /* [rows][n_chosen] */
    uint32_t n_experts, n_chosen, scores, normalizes;
    float normalize_eps, scale;
};

struct group_params {
    DEVICE_PTR(const uint32_t) experts; /* [rows][n_chosen] */
    DEVICE_PTR(const uint32_t) n_rows;
    DEVICE_PTR(uint32_t) row_of;  /* [slots] */
    DEVICE_PTR(uint32_t) slot_of; /* [rows][n_chosen] */
    DEVICE_PTR(struct cuda_expert_item) items;
    DEVICE_PTR(uint32_t) n_items;
    uint32_t n_experts, n_chosen, rows_of_item;
};

struct mixture_params {
    DEVICE_PTR(const float) out; /* [slots][n] */
    DEVICE_PTR(const uint32_t) slot_of;
    DEVICE_PTR(const float) weights;
    DEVICE_PTR(const uint32_t) n_rows;
    DEVICE_PTR(float) to; /* [rows][n] */
    uint32_t n, n_chosen, adds;
    float factor;
};

/* A token and its logit, best first; CUDA_MAX_BEST for each output. */
struct cuda_best {
    int32_t token;
    float logit;
};

struct best_params {
    DEVICE_PTR(const float) logits;    /* [outputs][n_vocab] */
    DEVICE_PTR(const uint32_t) n_best; /* of all outputs; 0: none */
    DEVICE_PTR(struct cuda_best) best;
    DEVICE_PTR(float) log_sums;
    uint32_t n_vocab, first_row;
};

struct read_params {
    DEVICE_PTR(const void) data;
    uint64_t n; /* of 16 bytes */
    DEVICE_PTR(uint32_t) sink;
};

#endif
