#include "cli/engines.h"

#include "test.h"

static const struct plugin_device gpu = {
    .name = "GPU", .total_bytes = 1000 << 20, .free_bytes = 800 << 20};

static struct error err;

TEST(engines, a_devices_room_is_a_share_of_what_is_free)
{
    struct device_room room;
    CHECK_INT(device_room_find(&room, &gpu, &(struct memory_share){0}, 700 << 20, &err), 0);
    CHECK_INT(room.budget_bytes >> 20, 720); /* nine tenths */
    CHECK_INT(room.cache_bytes >> 20, 20);
    CHECK_INT(room.engine_bytes >> 20, 700);
    CHECK_INT(device_room_find(&room, &gpu, &(struct memory_share){.fraction = 0.5}, 1, &err), 0);
    CHECK_INT(room.budget_bytes >> 20, 400);
    CHECK_INT(device_room_find(&room, &gpu, &(struct memory_share){.fraction = 1}, 1, &err), 0);
    CHECK_INT(room.budget_bytes >> 20, 800);
    CHECK_INT(
        device_room_find(&room, &gpu, &(struct memory_share){.bytes = 800 << 20}, 800 << 19, &err),
        0);
    CHECK_INT(room.cache_bytes >> 20, 400);
}

TEST(engines, what_does_not_fit_is_refused_with_all_figures)
{
    struct device_room room;
    CHECK_INT(device_room_find(&room, &gpu, &(struct memory_share){0}, 720 << 20, &err), -1);
    CHECK_INT(err.code, ERROR_MEMORY);
    CHECK_STR(err.message,
              "the model does not fit on GPU: its weights and buffers take 720 MiB, and radish may "
              "use 720 MiB (of 1000 MiB, 800 MiB are free and 200 MiB are in use; --gpu-memory "
              "changes this). Use smaller weights (--quantize q4_k), a smaller --max-seqs, or "
              "--engine cpu");
    CHECK_INT(device_room_find(&room, &gpu, &(struct memory_share){.bytes = 801 << 20}, 1, &err),
              -1);
    CHECK_STR(err.message, "--gpu-memory is 801 MiB, but of the 1000 MiB of GPU only 800 MiB are "
                           "free");
}

TEST(engines, those_of_this_program)
{
    struct strbuf text = STRBUF_INIT;
    engines_describe(&text, NULL);
    CHECK(strncmp(strbuf_str(&text), "cpu, mock", 9) == 0);
    strbuf_free(&text);
}
