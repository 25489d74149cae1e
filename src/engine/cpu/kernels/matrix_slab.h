#ifndef RADISH_ENGINE_CPU_KERNELS_MATRIX_SLAB_H
#define RADISH_ENGINE_CPU_KERNELS_MATRIX_SLAB_H

#include <stddef.h>
#include <stdint.h>

/* Memory of packed matrices. Most are far smaller than a huge page, and streaming them through 4
 * KiB pages costs a third of the bandwidth, so they share slabs of huge pages. A slab is filled
 * from its start and unmapped when the last matrix in it is freed.
 *
 *   slab  [matrix][matrix][matrix][ free ............ ]
 *         0                       used                bytes
 *
 * Both functions may be called from any thread. */
enum { SLAB_ALIGN = 64 };

struct matrix_slab;

/* Takes zeroed memory for one matrix, aligned to SLAB_ALIGN; returns the slab that contains it.
 * NULL: out of memory. */
struct matrix_slab *slab_take(size_t size_bytes, uint8_t **data);
void slab_release(struct matrix_slab *slab); /* once for each slab_take that returned it */

#endif
