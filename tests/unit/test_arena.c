#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>

#include "test.h"
#include "test_memory.h"

TEST(arena, pieces_are_zeroed_aligned_and_apart)
{
    struct arena a = ARENA_INIT;
    unsigned char *previous = NULL;
    size_t previous_size = 0;
    for (size_t size = 0; size < 3000; size += 7) {
        unsigned char *piece = arena_alloc(&a, size);
        CHECK(piece);
        CHECK((uintptr_t)piece % alignof(max_align_t) == 0);
        for (size_t i = 0; i < size; i++)
            CHECK(piece[i] == 0);
        memset(piece, 0xff, size);
        for (size_t i = 0; i < previous_size; i++)
            CHECK(previous[i] == 0xff);
        previous = piece;
        previous_size = size;
    }
    arena_free(&a);
}

TEST(arena, large_pieces_get_blocks_of_their_own)
{
    struct arena a = ARENA_INIT;
    char *small = arena_alloc(&a, 10), *large = arena_alloc(&a, 1 << 20);
    char *after = arena_alloc(&a, 10);
    CHECK(small && large && after);
    memset(large, 1, 1 << 20);
    CHECK_INT(small[9], 0);
    CHECK_INT(after[0], 0);
    CHECK(a.used_bytes >= (1 << 20) + 20);
    arena_free(&a);
    CHECK_INT(a.used_bytes, 0);
    CHECK(!a.blocks);
}

TEST(arena, the_limit_holds)
{
    struct arena a = {.limit_bytes = 1000};
    size_t got = 0;
    CHECK(arena_copy(&a, "radish", 6) && !a.failed);
    while (arena_alloc(&a, 100))
        got += 100;
    CHECK(got >= 800 && got <= 1000);
    CHECK(a.failed);
    CHECK(a.used_bytes <= 1000);
    CHECK(!arena_alloc(&a, 1000));
    CHECK(!arena_alloc(&a, SIZE_MAX));
    arena_free(&a);
    CHECK(!a.failed);
    /* The limit outlives what was freed. */
    CHECK(!arena_alloc(&a, 1001));
    CHECK(arena_alloc(&a, 900));
    arena_free(&a);
}

TEST(arena, absurd_sizes_are_refused)
{
    struct arena a = ARENA_INIT;
    CHECK(!arena_alloc(&a, SIZE_MAX));
    CHECK(!arena_alloc(&a, SIZE_MAX / 2 + 1));
    CHECK(!arena_alloc_array(&a, SIZE_MAX / 4, 8));
    CHECK(!arena_alloc_array(&a, 8, SIZE_MAX / 4));
    CHECK(!arena_alloc_array(&a, (size_t)1 << 33, (size_t)1 << 33));
    CHECK(!arena_copy(&a, "x", SIZE_MAX));
    CHECK_INT(a.used_bytes, 0);
    CHECK(arena_alloc_array(&a, 0, SIZE_MAX));
    CHECK(arena_alloc_array(&a, SIZE_MAX, 0));
    CHECK(arena_alloc_array(&a, 3, 5));
    arena_free(&a);
}

TEST(arena, copies_are_terminated)
{
    struct arena a = ARENA_INIT;
    char *copy = arena_copy(&a, "hello world", 5);
    CHECK_STR(copy, "hello");
    char *with_nul = arena_copy(&a, "a\0b", 3);
    CHECK(memcmp(with_nul, "a\0b", 4) == 0);
    CHECK_STR(arena_copy(&a, NULL, 0), "");
    arena_free(&a);
}

TEST(arena, reset_keeps_blocks_and_gives_zeroes_again)
{
    struct arena a = {.limit_bytes = 1 << 20};
    for (int round = 0; round < 3; round++) {
        int got = 0;
        if (round > 0)
            memory_ends_after(0); /* what the first round took is enough for the others */
        for (int i = 0; i < 100; i++) {
            unsigned char *piece = arena_alloc(&a, 1000);
            got += piece && piece[0] == 0 && piece[999] == 0;
            if (piece)
                memset(piece, 0xff, 1000);
        }
        memory_is_back();
        CHECK_INT(got, 100);
        CHECK(a.used_bytes >= 100 * 1000);
        arena_reset(&a);
        CHECK(!a.blocks && a.spare);
        CHECK_INT(a.used_bytes, 0);
        CHECK_INT(a.limit_bytes, 1 << 20);
    }
    CHECK(!arena_alloc(&a, 2 << 20) && a.failed);
    arena_reset(&a);
    CHECK(!a.failed);
    arena_free(&a);
    CHECK(!a.spare);
}

/* What one hostile use took is not kept. */
TEST(arena, reset_keeps_a_megabyte_at_most)
{
    struct arena a = ARENA_INIT;
    size_t kept = 0;
    for (int i = 0; i < 4000; i++)
        CHECK(arena_alloc(&a, 1000));
    CHECK(arena_alloc(&a, 8 << 20));
    arena_reset(&a);
    memory_ends_after(0);
    while (arena_alloc(&a, 1000))
        kept += 1000;
    memory_is_back();
    CHECK(kept > 500000 && kept <= 1 << 20);
    arena_reset(&a);
    arena_reset(&a);
    CHECK(arena_alloc(&a, 1000));
    arena_free(&a);
}
