#ifndef RADISH_ENGINE_CPU_WEIGHT_STORE_H
#define RADISH_ENGINE_CPU_WEIGHT_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/parallel.h"
#include "engine/cpu/kernels/matmul.h"
#include "engine/cpu/cpu_engine.h"

/* All matrices of a model, packed. They are cut into pieces of whole panels, a few MiB each. A
 * piece is what a thread processes at a time, and each piece of a cache file has a checksum:
 *
 *   matrix   [ panel │ panel │ panel │ panel │ panel │ panel │ panel ]
 *   piece    [         0             │           1           │   2   ]
 *
 * For one model and one layout of panels, the numbers of matrices and pieces are always the same,
 * so they identify a file. */
struct weight_piece {
    uint32_t matrix;
    uint32_t panel_begin, panel_end;
};

struct weight_store {
    const struct checkpoint *checkpoint;
    uint32_t n_matrices, n_pieces;
    const struct weight **weights;   /* [n_matrices] */
    struct packed_matrix **matrices; /* [n_matrices] */
    struct weight_piece *pieces;     /* [n_pieces] */
    size_t size_bytes;               /* of all matrices */

    struct pack_cache *cache; /* NULL: none */
    pthread_t writer;         /* writes the cache's file, while is_writing */
    bool is_writing;
    atomic_bool stop; /* tells the writer to give up */
};

/* Allocates memory for the matrices of `weights`, without filling them. */
int weight_store_open(struct weight_store *s, const struct checkpoint *checkpoint,
                      const struct weight *const *weights, uint32_t n_weights, struct error *err);
/* Fills them with all threads of the pool: packs them, or reads them from the file that an earlier
 * load left beside the model. If the file is missing and worthwhile, it is then written in the
 * background, until weight_store_close at the latest. */
int weight_store_load(struct weight_store *s, struct parallel *pool, enum pack_cache_mode mode,
                      engine_progress progress, void *context, struct error *err);
void weight_store_close(struct weight_store *s); /* harmless on a zeroed one */

#endif
