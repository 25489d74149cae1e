#ifndef RADISH_ENGINE_CPU_PASS_H
#define RADISH_ENGINE_CPU_PASS_H

#include "engine/cpu/cpu_internal.h"

/* Shared by the parts of a forward pass: a thread's view of the work, and products. */

/* One thread's view of the work on some rows. A team works on them: one thread, or all. */
struct pass {
    struct cpu_engine *e;
    const struct hparams *hp;
    const struct vector_kernels *vector;
    const struct elementwise_kernels *elementwise;
    const struct matmul_kernels *matmul;
    uint32_t thread;
    uint32_t member, n_members;   /* of the team: n_members is 1 or all threads */
    uint32_t first, n_rows;       /* of the batch; arrays of struct cpu_rows begin with the first */
    bool prepares_alone;          /* every member has its own inputs */
    const struct cpu_rows *input; /* to be normed, gathered or quantised */
    const struct cpu_rows *rows;  /* the rest */
};

/* Rows that products read. */
struct rows_in {
    const float *x; /* [n_rows][cols] */
    uint32_t cols;
    struct act_block *quantized; /* the same, if a product needs it quantised */
};

/* A product and where its result goes: out[n_rows][stride], of which the first matrix_rows are
 * used. */
struct product {
    const struct packed_matrix *matrix;
    float *out;
    size_t stride;
    const float *bias; /* added to each row; may be NULL */
};

static inline struct product product_of(const struct packed_matrix *m, float *out,
                                        const float *bias)
{
    return (struct product){m, out, m ? matrix_rows(m) : 0, bias};
}

/* How a block ends: x += norm(result, post_norm) * scale, x *= out_scale. */
struct block_end {
    const float *post_norm; /* NULL: none */
    float scale, out_scale;
};

struct range pass_share(const struct pass *p, uint32_t n);
/* Barriers: for all threads; for all members of the team. */
void pass_meet(const struct pass *p);
void pass_meet_team(const struct pass *p);
/* Thread 0 ends a lap: adds the time since the last one to one of engine.times. If there is a
 * barrier, it waits there first, because the other threads are part of the phase. */
void pass_lap(const struct pass *p, uint64_t *time_ns);

/* The range of n rows that the thread prepares as the input of products. */
struct range pass_rows_to_prepare(const struct pass *p, uint32_t n);
/* Quantises rows if a product needs it. When it returns, the whole team has its input. */
void pass_prepare(const struct pass *p, const struct product *products, uint32_t n,
                  const struct rows_in *in, uint32_t n_rows);
/* The same without waiting for the team. */
void pass_quantize(const struct pass *p, const struct product *products, uint32_t n,
                   const struct rows_in *in, uint32_t n_rows);
/* The same for one row. */
void pass_quantize_row(const struct pass *p, const float *x, uint32_t cols, uint32_t row,
                       struct act_block *to);
/* Norms the thread's rows of x into `out`. Without a weight the rows are x itself. Returns where
 * they are. */
const float *pass_normalize(const struct pass *p, const float *weight, float *out);

struct work pass_work(const struct pass *p, uint32_t layer, enum cpu_phase phase, uint32_t n_panels,
                      uint32_t n_rows);
void pass_multiply_part(const struct pass *p, const struct product *product,
                        const struct rows_in *in, const struct work_part *part);
/* The columns of a result that a part covers. */
struct range part_columns(const struct packed_matrix *m, const struct work_part *part);
/* Computes the thread's share of the outputs of all products, as if they were one matrix. */
void pass_multiply(const struct pass *p, struct work work, const struct product *products,
                   uint32_t n, const struct rows_in *in);
/* gate->out = activation(product with `gate`) * product with `up`, or * `times`, whose rows are
 * times_stride apart. `up` without a matrix, `times` NULL: no such factor. */
void pass_multiply_gated(const struct pass *p, struct work work, const struct product *gate,
                         const struct product *up, const float *times, size_t times_stride,
                         const struct rows_in *in);
/* Computes a block's last product, into rows->added, and its end. When it returns, the team has
 * x. */
void pass_end_block(const struct pass *p, struct work work, const struct packed_matrix *m,
                    const float *bias, const struct rows_in *in, const struct block_end *end);
/* The end of a block for one row of the team. Overwrites `added`. */
void pass_end_row(const struct pass *p, uint32_t row, float *added, const struct block_end *end);

static inline float *pass_x(const struct pass *p)
{
    return p->e->state.x + (size_t)p->first * p->hp->n_embd;
}

/* cpu_attention.c */
void pass_before_attention(const struct pass *p, uint32_t layer);
void pass_attend(const struct pass *p, uint32_t layer);
/* MLA: turns what was attended into values. Returns the input of the output product. */
const float *pass_latent_values(const struct pass *p, uint32_t layer);
/* cpu_blocks.c */
void pass_after_attention(const struct pass *p, uint32_t layer);
/* All layers' per-layer inputs, from the embedded tokens in x. */
void pass_layer_inputs(const struct pass *p);
/* cpu_output.c: the rows' outputs, with all threads */
void pass_outputs(struct cpu_engine *e, uint32_t thread);
/* A pass with all threads on `n_rows` rows. */
struct pass pass_together(struct cpu_engine *e, uint32_t thread, uint32_t n_rows);
/* cpu_experts.c; with all threads */
void pass_experts(const struct pass *p, uint32_t layer, const float *norm,
                  const struct block_end *end);

#endif
