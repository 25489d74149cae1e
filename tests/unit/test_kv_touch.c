/* Touching KV memory ahead: no byte changes, a few pages per batch, all of them in time. */
#include "engine/cpu/kv_touch.h"

#include <sys/mman.h>

#include "engine/cpu/kernels/buffer.h"
#include "test.h"

enum { PARTS = 7, PAGES = 20000, ROW_BYTES = 512, PART_BYTES = PAGES * ROW_BYTES };

static const size_t row_bytes[PARTS] = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                                        ROW_BYTES, ROW_BYTES, ROW_BYTES};

/* The bit is set where memory is resident. */
static bool is_there(const struct buffer *b, size_t at)
{
    unsigned char resident;
    CHECK_INT(mincore((uint8_t *)b->data + at / 4096 * 4096, 1, &resident), 0);
    return resident & 1;
}

static size_t n_touched(const struct kv_touch *k)
{
    size_t n = 0;
    for (uint32_t i = 0; i < k->n_parts; i++)
        n += k->parts[i].next / HUGE_PAGE;
    return n;
}

TEST(kv_touch, stays_ahead_of_what_is_used_a_few_pages_at_a_time)
{
    struct buffer memory;
    struct kv_touch k;
    struct error err;
    struct batch_row rows[64];
    CHECK_INT(buffer_map(&memory, (size_t)PARTS * PART_BYTES, "test", &err), 0);
    CHECK_INT(kv_touch_open(&k, memory.data, 0, row_bytes, PARTS, PAGES, &err), 0);
    uint8_t *bytes = memory.data;
    memset(bytes, 0xa5, 4096);
    for (uint32_t page = 0; page + 64 <= PAGES; page += 64) {
        for (uint32_t i = 0; i < 64; i++)
            rows[i] = (struct batch_row){.pages = {page + i}};
        struct batch batch = {.rows = rows, .n_rows = 64};
        size_t before = n_touched(&k);
        kv_touch_ahead(&k, &batch);
        CHECK(n_touched(&k) - before <= 3);
        for (uint32_t part = 0; part < PARTS && page + 64 < PAGES && page > 1000; part++) {
            size_t at = (size_t)part * PART_BYTES + (size_t)(page + 64) * ROW_BYTES;
            CHECK(at < k.parts[part].next);
            CHECK(at / HUGE_PAGE == (size_t)part * PART_BYTES / HUGE_PAGE ||
                  is_there(&memory, at / HUGE_PAGE * HUGE_PAGE));
        }
    }
    for (size_t i = 0; i < memory.size_bytes; i++)
        CHECK(bytes[i] == (i < 4096 ? 0xa5 : 0));
    kv_touch_close(&k);
    buffer_unmap(&memory);
}

TEST(kv_touch, goes_on_to_pages_that_sequences_have_and_no_row_has_reached)
{
    struct buffer memory;
    struct kv_touch k;
    struct error err;
    CHECK_INT(buffer_map(&memory, (size_t)PARTS * PART_BYTES, "test", &err), 0);
    CHECK_INT(kv_touch_open(&k, memory.data, 0, row_bytes, PARTS, PAGES, &err), 0);
    struct batch_row row = {.pages = {0}};
    struct batch batch = {.rows = &row, .n_rows = 1, .page_end = {PAGES}};
    size_t before = n_touched(&k);
    kv_touch_ahead(&k, &batch);
    CHECK_INT(n_touched(&k) - before, 1);
    for (uint32_t i = 0; i < PARTS * PART_BYTES / HUGE_PAGE; i++)
        kv_touch_ahead(&k, &batch);
    for (uint32_t part = 0; part < PARTS; part++)
        CHECK(k.parts[part].next >= (size_t)(part + 1) * PART_BYTES);
    kv_touch_close(&k);
    buffer_unmap(&memory);
}

TEST(kv_touch, touches_nothing_twice_and_nothing_past_the_end)
{
    struct buffer memory;
    struct kv_touch k;
    struct error err;
    CHECK_INT(buffer_map(&memory, 2 * 100 * 16, "test", &err), 0); /* far below a huge page */
    CHECK_INT(kv_touch_open(&k, memory.data, 0, (const size_t[]){16, 16}, 2, 100, &err), 0);
    struct batch_row row = {.pages = {99}};
    struct batch batch = {.rows = &row, .n_rows = 1};
    for (int i = 0; i < 3; i++)
        kv_touch_ahead(&k, &batch);
    CHECK_INT(k.parts[0].next, HUGE_PAGE);
    CHECK_INT(k.parts[1].next, HUGE_PAGE);
    kv_touch_close(&k);
    buffer_unmap(&memory);
}

/* Parts of unequal rows, in the pages of windowed layers. */
TEST(kv_touch, of_the_second_group)
{
    struct buffer memory;
    struct kv_touch k;
    struct error err;
    const size_t unequal[] = {ROW_BYTES, 3 * ROW_BYTES};
    CHECK_INT(buffer_map(&memory, (size_t)4 * PART_BYTES, "test", &err), 0);
    CHECK_INT(kv_touch_open(&k, memory.data, 1, unequal, 2, PAGES, &err), 0);
    struct batch_row row = {.pages = {PAGES - 1, 0}};
    struct batch batch = {.rows = &row, .n_rows = 1};
    for (int i = 0; i < 100; i++)
        kv_touch_ahead(&k, &batch);
    CHECK(k.parts[0].next < 2 * HUGE_PAGE + 1);
    CHECK(!is_there(&memory, PART_BYTES + 2 * PART_BYTES));
    row = (struct batch_row){.pages = {0, PAGES / 2}};
    for (int i = 0; i < 100; i++)
        kv_touch_ahead(&k, &batch);
    size_t second = PART_BYTES + (size_t)PAGES / 2 * 3 * ROW_BYTES;
    CHECK(k.parts[0].next > (size_t)PAGES / 2 * ROW_BYTES && k.parts[1].next > second);
    CHECK(is_there(&memory, second / HUGE_PAGE * HUGE_PAGE));
    CHECK(k.parts[1].next < second + 2 * HUGE_PAGE);
    batch.page_end[1] = PAGES;
    for (int i = 0; i < 100; i++)
        kv_touch_ahead(&k, &batch);
    CHECK(k.parts[1].next >= 4 * (size_t)PART_BYTES);
    kv_touch_close(&k);
    buffer_unmap(&memory);
}
