#ifndef RADISH_ENGINE_CPU_ATTENTION_H
#define RADISH_ENGINE_CPU_ATTENTION_H

#include "engine/cpu/kernels/buffer.h"
#include "engine/cpu/kernels/vector.h"

/* Attention over pages, for the rows of a batch, computed by all threads.
 *
 * A row's result consists of partials, one for each block of 128 absolute positions, each computed
 * from a fresh state, merged left to right. So it does not matter which thread computes a partial,
 * or which other rows share the work. Rows of one sequence are grouped in tiles, and so are rows of
 * several sequences for the blocks that they share, so that a key is read and converted to floats
 * once for all rows and query heads that use it. A tile's work is a list of units, one for each
 * (block, kv head) in that order, which is the order of the keys in memory:
 *
 *   tiles    [ tile 0: u0 u1 u2 u3 │ tile 1: u0 u1 ... ]
 *   threads  [ thread 0 ......│ thread 1 ............. ]    equal costs
 *
 * If one thread has all blocks of a row, it merges them as it goes. Otherwise the partials are
 * stored, and attention_combine merges them after a barrier. */

/* Layers of the same shape share one `struct attention`, which is planned once for all of them in
 * each batch. */
struct attention_shape {
    uint32_t n_heads, n_kv_heads;
    uint32_t key_dim, value_dim; /* of a head; they may differ */
    bool values_in_keys;         /* a value is the first value_dim values of its key: MLA */
    uint32_t window;             /* positions that a row sees, its own included; 0: all */
    uint32_t group;              /* whose pages the sequences' tables name */
    enum kv_type kv_type;
    uint32_t max_rows, max_length; /* of a batch, of a sequence */
    uint32_t n_threads;
};

/* One layer of one batch. */
struct attention_io {
    const uint8_t *keys;   /* [n_pages][n_kv_heads * key_dim] in the KV type */
    const uint8_t *values; /* [n_pages][n_kv_heads * value_dim]; not read with values_in_keys */
    const float *q;        /* [n_rows][n_heads * key_dim], after rope */
    float *out;            /* [n_rows][n_heads * value_dim] */
    float scale;           /* of scores */
    float softcap;         /* score = softcap * tanh(score * scale / softcap); 0: none */
    const float *sinks;    /* [n_heads] an extra score for the softmax, without a value; or NULL */
};

struct attention;

int attention_open(struct attention **out, const struct attention_shape *shape,
                   const struct vector_kernels *kernels, struct error *err);
void attention_close(struct attention *a);
size_t attention_bytes(const struct attention *a); /* of its scratch memory */

/* Cuts the batch into tiles and shares. Called by one thread, before the layers; the batch must
 * stay valid. */
void attention_plan(struct attention *a, const struct batch *batch);
/* Does a thread's share of the work. All rows' keys and values must be in their pages. */
void attention_run(struct attention *a, const struct attention_io *io, uint32_t thread);
/* Whether partials are stored. If so, every thread must call attention_combine after a barrier. */
bool attention_must_combine(const struct attention *a);
void attention_combine(struct attention *a, const struct attention_io *io, uint32_t thread);

#endif
