/* Touching KV memory ahead of its use; see kv_touch.h. Owned by the engine's thread.
 * What a newcomer gets wrong: to read is not enough, the system then shows one page of zeros in
 * every place. */
#include "engine/cpu/kv_touch.h"

#include <stdlib.h>

#include "engine/cpu/buffer.h"

/* A row uses up 1/5461 of a huge page in each of the default model's 60 parts: one page for 91
 * rows. Models differ, but not by much: those with longer rows have fewer in a page and more parts.
 */
enum { ROWS_FOR_A_PAGE = 32 };

int kv_touch_open(struct kv_touch *k, void *base, uint32_t n_parts, uint32_t n_pages,
                  size_t row_bytes, struct error *err)
{
    *k = (struct kv_touch){base, n_parts, n_pages, row_bytes, 0, NULL};
    k->next = calloc(n_parts, sizeof *k->next);
    if (!k->next)
        return error_set(err, ERROR_MEMORY, "no memory for the KV cache");
    for (uint32_t i = 0; i < n_parts; i++)
        k->next[i] = ((size_t)i * n_pages * row_bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    return 0;
}

void kv_touch_close(struct kv_touch *k)
{
    free(k->next);
    k->next = NULL;
}

static void touch(uint8_t *byte)
{
    *(volatile uint8_t *)byte = *byte;
}

void kv_touch_ahead(struct kv_touch *k, const struct batch *batch)
{
    if (batch->page_end > k->high)
        k->high = batch->page_end;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->rows[i].page >= k->high)
            k->high = batch->rows[i].page + 1;
    size_t goal = k->high * k->row_bytes + HUGE_PAGE / 2, part_bytes = k->n_pages * k->row_bytes;
    if (goal > part_bytes)
        goal = part_bytes;
    uint32_t left = 1 + batch->n_rows / ROWS_FOR_A_PAGE;
    for (uint32_t i = 0; i < k->n_parts; i++) {
        for (; k->next[i] < i * part_bytes + goal; k->next[i] += HUGE_PAGE) {
            if (left-- == 0)
                return;
            touch(k->base + k->next[i]);
        }
    }
}
