/* Slabs of huge pages for packed matrices; see matrix_slab.h. One lock guards all of them. It is
 * held for a few instructions per matrix, and never during a forward pass. A slab's memory is
 * touched on use, so its unused end costs nothing. */
#include "engine/cpu/kernels/matrix_slab.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/cpu/kernels/buffer.h"

enum { SLAB_BYTES = 32 << 20 };

struct matrix_slab {
    struct buffer memory;
    size_t used;
    uint32_t n_matrices;
};

static pthread_mutex_t slab_lock = PTHREAD_MUTEX_INITIALIZER;
static struct matrix_slab *open_slab; /* which matrices are added to */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static struct matrix_slab *slab_new(size_t bytes)
{
    struct matrix_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return NULL;
    bytes = round_up(bytes > SLAB_BYTES ? bytes : SLAB_BYTES, HUGE_PAGE);
    if (buffer_map(&slab->memory, bytes, "packed weights", NULL)) {
        free(slab);
        return NULL;
    }
    return slab;
}

static void slab_free_if_empty(struct matrix_slab *slab)
{
    if (slab->n_matrices || slab == open_slab)
        return;
    buffer_unmap(&slab->memory);
    free(slab);
}

static bool slab_fits(const struct matrix_slab *slab, size_t bytes)
{
    return slab && slab->memory.size_bytes - slab->used >= bytes;
}

struct matrix_slab *slab_take(size_t size_bytes, uint8_t **data)
{
    size_t bytes = round_up(size_bytes, SLAB_ALIGN);
    struct matrix_slab *taken = NULL;
    pthread_mutex_lock(&slab_lock);
    if (!slab_fits(open_slab, bytes)) {
        struct matrix_slab *full = open_slab, *slab = slab_new(bytes);
        if (slab) {
            open_slab = slab;
            if (full)
                slab_free_if_empty(full);
        }
    }
    if (slab_fits(open_slab, bytes)) {
        taken = open_slab;
        *data = (uint8_t *)taken->memory.data + taken->used;
        taken->used += bytes;
        taken->n_matrices++;
    }
    pthread_mutex_unlock(&slab_lock);
    return taken;
}

void slab_release(struct matrix_slab *slab)
{
    pthread_mutex_lock(&slab_lock);
    slab->n_matrices--;
    if (slab == open_slab && slab->n_matrices == 0)
        open_slab = NULL;
    slab_free_if_empty(slab);
    pthread_mutex_unlock(&slab_lock);
}
