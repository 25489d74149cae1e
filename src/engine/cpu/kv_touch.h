#ifndef RADISH_ENGINE_CPU_KV_TOUCH_H
#define RADISH_ENGINE_CPU_KV_TOUCH_H

#include <stdint.h>

#include "engine/engine.h"

/* The system provides KV memory on first use, a huge page at a time. On a virtual machine each
 * takes milliseconds, and a batch that crosses into many at once would take a tenth of a second
 * longer. So each batch touches a few pages ahead of the highest position that a sequence has.
 *
 *   part     [ used ........ | touched ahead ..... | not yet ...... ]   keys or values of a layer
 *                           high                  high + ahead */
struct kv_part {
    size_t at;        /* offset from base */
    size_t row_bytes; /* of a position */
    size_t next;      /* the first byte, from base, that may be untouched */
};

struct kv_touch {
    uint8_t *base;
    uint32_t group;
    struct kv_part *parts; /* keys and values of each layer in turn */
    uint32_t n_parts;
    uint32_t n_pages; /* KV positions */
    uint32_t high;    /* no sequence had positions from here on */
};

/* Opens it for the parts of one group, whose positions take row_bytes[n_parts]. The beginning of
 * every part counts as touched. */
int kv_touch_open(struct kv_touch *k, void *base, uint32_t group, const size_t *row_bytes,
                  uint32_t n_parts, uint32_t n_pages, struct error *err);
void kv_touch_close(struct kv_touch *k);
/* Call it after a batch, while nothing is being computed. Does not change any byte. */
void kv_touch_ahead(struct kv_touch *k, const struct batch *batch);

#endif
