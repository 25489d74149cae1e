/* Touches KV memory before it is used; see kv_touch.h. Owned by the engine's thread. Reading is not
 * enough: the system would map one shared page of zeros everywhere. */
#include "engine/cpu/kv_touch.h"

#include <stdlib.h>

#include "engine/cpu/kernels/buffer.h"

/* In the default model, a row uses 1/5461 of a huge page in each of 60 parts: one page per 91 rows.
 * Other models are similar: those with longer rows have fewer per page and more parts. */
enum { ROWS_FOR_A_PAGE = 32 };

int kv_touch_open(struct kv_touch *k, void *base, uint32_t group, const size_t *row_bytes,
                  uint32_t n_parts, uint32_t n_pages, struct error *err)
{
    *k = (struct kv_touch){.base = base, .group = group, .n_parts = n_parts, .n_pages = n_pages};
    k->parts = calloc(n_parts ? n_parts : 1, sizeof *k->parts);
    if (!k->parts)
        return error_set(err, ERROR_MEMORY, "no memory for the KV cache");
    size_t at = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        k->parts[i] = (struct kv_part){at, row_bytes[i], (at / HUGE_PAGE + 1) * HUGE_PAGE};
        at += n_pages * row_bytes[i];
    }
    return 0;
}

void kv_touch_close(struct kv_touch *k)
{
    free(k->parts);
    k->parts = NULL;
}

static void touch(uint8_t *byte)
{
    *(volatile uint8_t *)byte = *byte;
}

/* Raises k->high to the highest page of the batch. */
static void look_at(struct kv_touch *k, const struct batch *batch)
{
    uint32_t end = batch->page_end[k->group];
    if (end > k->high)
        k->high = end;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        uint32_t page = batch->rows[i].pages[k->group];
        if (page >= k->high)
            k->high = page + 1;
    }
}

void kv_touch_ahead(struct kv_touch *k, const struct batch *batch)
{
    uint32_t left = 1 + batch->n_rows / ROWS_FOR_A_PAGE;
    look_at(k, batch);
    for (uint32_t i = 0; i < k->n_parts; i++) {
        struct kv_part *part = &k->parts[i];
        size_t goal = k->high * part->row_bytes + HUGE_PAGE / 2;
        if (goal > k->n_pages * part->row_bytes)
            goal = k->n_pages * part->row_bytes;
        for (; part->next < part->at + goal; part->next += HUGE_PAGE) {
            if (left-- == 0)
                return;
            touch(k->base + part->next);
        }
    }
}
