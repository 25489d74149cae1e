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
    size_t at;        /* from base */
    size_t row_bytes; /* of a position */
    size_t next;      /* the first byte, from base, that may be untouched */
};

struct kv_touch {
    uint8_t *base;
    uint32_t group;
    struct kv_part *parts; /* keys and values of each layer, one behind the other */
    uint32_t n_parts;
    uint32_t n_pages; /* KV positions */
    uint32_t high;    /* positions from here on no sequence had */
};

/* For the parts of one group, whose positions take row_bytes[n_parts]. The memory's beginning
 * counts as touched in every part. */
int kv_touch_open(struct kv_touch *k, void *base, uint32_t group, const size_t *row_bytes,
                  uint32_t n_parts, uint32_t n_pages, struct error *err);
void kv_touch_close(struct kv_touch *k);
/* After a batch, while nothing is computed. Changes no byte. */
void kv_touch_ahead(struct kv_touch *k, const struct batch *batch);

#endif
