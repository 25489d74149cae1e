#ifndef RADISH_ENGINE_CPU_PACK_CACHE_H
#define RADISH_ENGINE_CPU_PACK_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine/cpu/weight_store.h"

/* A file beside the model, MODEL.gguf.radish-packed or DIR/model.radish-packed, with its matrices
 * as they are in memory. The next start reads them, which for some types is several times as fast
 * as packing.
 *
 *   head │ an entry a matrix │ a checksum a piece │ padding │ matrix 0 │ padding │ matrix 1 │ ...
 *   0                                                       4096                 a multiple of it
 *
 * The header and the entries follow from the model file and the layout of packed matrices; they are
 * recomputed and compared with the file's. So nothing in the file is ever used as a size or an
 * offset, and a bad file is no worse than none. */
struct pack_cache;

enum pack_cache_state {
    PACK_CACHE_ABSENT,
    PACK_CACHE_USABLE,
    PACK_CACHE_BAD, /* `err` says why: damaged, or of another model or another build */
};

/* Opens the cache for the matrices of a store, which must outlive it, and looks for the file. -1 if
 * there cannot be one: the model is not a file, or out of memory. */
int pack_cache_open(struct pack_cache **out, const struct weight_store *store,
                    enum pack_cache_state *state, struct error *err);
void pack_cache_close(struct pack_cache *c); /* NULL is fine */
const char *pack_cache_path(const struct pack_cache *c);
/* Reads a piece of a usable file into its matrix. From any thread. */
int pack_cache_read(const struct pack_cache *c, uint32_t piece, struct error *err);
/* Writes the file from the matrices, under another name until it is complete; also -1 if `stop`
 * became true. One thread at a time. */
int pack_cache_write(struct pack_cache *c, const atomic_bool *stop, struct error *err);
/* Removes a bad file, if it is one of ours. */
void pack_cache_remove(const struct pack_cache *c);
/* Whether a file is worthwhile, given that packing took each thread `pack_ns`. */
bool pack_cache_pays(uint64_t pack_ns, size_t size_bytes, uint32_t n_threads);

#endif
