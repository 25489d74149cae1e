#include "base/strbuf.h"

#include <stdint.h>
#include <stdlib.h>

#include "test.h"
#include "test_death.h"

TEST(strbuf, is_always_a_c_string)
{
    struct strbuf sb = STRBUF_INIT;
    CHECK_STR(strbuf_str(&sb), "");
    strbuf_adds(&sb, "");
    CHECK_STR(strbuf_str(&sb), "");
    strbuf_adds(&sb, "abc");
    strbuf_addc(&sb, 'd');
    strbuf_addf(&sb, "%d-%s", 42, "x");
    strbuf_add(&sb, "yz!", 2);
    strbuf_add(&sb, NULL, 0);
    CHECK_STR(strbuf_str(&sb), "abcd42-xyz");
    CHECK_INT(sb.len, 10);
    CHECK(!sb.failed);
    strbuf_free(&sb);
    CHECK_STR(strbuf_str(&sb), "");
}

TEST(strbuf, keeps_nul_bytes)
{
    struct strbuf sb = STRBUF_INIT;
    strbuf_add(&sb, "a\0b", 3);
    strbuf_addc(&sb, '\0');
    CHECK_INT(sb.len, 4);
    CHECK(memcmp(sb.data, "a\0b\0", 5) == 0);
    strbuf_free(&sb);
}

TEST(strbuf, grows_by_single_characters)
{
    struct strbuf sb = STRBUF_INIT;
    for (int i = 0; i < 5000; i++)
        strbuf_addc(&sb, (char)('a' + i % 26));
    CHECK_INT(sb.len, 5000);
    for (int i = 0; i < 5000; i++)
        CHECK_INT(sb.data[i], 'a' + i % 26);
    CHECK_INT(sb.data[5000], 0);
    strbuf_free(&sb);
}

TEST(strbuf, formats_fill_to_the_last_byte)
{
    /* Sizes around the first capacity, where the terminator just fits or just does not. */
    for (int width = 60; width < 70; width++) {
        struct strbuf sb = STRBUF_INIT;
        strbuf_addf(&sb, "%*d", width, 7);
        CHECK_INT(sb.len, width);
        CHECK_INT(strlen(strbuf_str(&sb)), width);
        CHECK_INT(sb.data[width - 1], '7');
        strbuf_addf(&sb, "%s", "");
        CHECK_INT(sb.len, width);
        strbuf_free(&sb);
    }
}

TEST(strbuf, the_limit_sticks_until_cleared)
{
    struct strbuf sb = {.limit = 5};
    strbuf_adds(&sb, "12345");
    CHECK(!sb.failed);
    strbuf_addc(&sb, '6');
    CHECK(sb.failed);
    CHECK_STR(strbuf_str(&sb), "12345");
    strbuf_adds(&sb, "");
    CHECK(sb.failed && !strbuf_reserve(&sb, 0));
    strbuf_clear(&sb);
    CHECK(!sb.failed);
    CHECK_STR(strbuf_str(&sb), "");
    strbuf_adds(&sb, "123");
    strbuf_addf(&sb, "%d", 456); /* all or nothing */
    CHECK(sb.failed);
    CHECK_STR(strbuf_str(&sb), "123");
    strbuf_free(&sb);
    CHECK(!sb.failed);
    CHECK_INT(sb.limit, 5);
}

TEST(strbuf, absurd_sizes_fail)
{
    struct strbuf sb = STRBUF_INIT;
    strbuf_adds(&sb, "x");
    CHECK(!strbuf_reserve(&sb, SIZE_MAX));
    CHECK(sb.failed);
    CHECK_STR(strbuf_str(&sb), "x");
    strbuf_clear(&sb);
    strbuf_adds(&sb, "abc");
    CHECK(!strbuf_reserve(&sb, SIZE_MAX / 2 - 2));
    strbuf_free(&sb);
}

TEST(strbuf, clear_keeps_the_memory)
{
    struct strbuf sb = STRBUF_INIT;
    CHECK(strbuf_reserve(&sb, 1000));
    char *data = sb.data;
    for (int i = 0; i < 100; i++) {
        strbuf_clear(&sb);
        strbuf_addf(&sb, "%900d", i);
        CHECK(sb.data == data);
    }
    strbuf_free(&sb);
}

TEST(strbuf, loses_its_front)
{
    struct strbuf sb = STRBUF_INIT;
    strbuf_remove_front(&sb, 0);
    strbuf_adds(&sb, "abcdef");
    strbuf_remove_front(&sb, 0);
    strbuf_remove_front(&sb, 2);
    CHECK_STR(strbuf_str(&sb), "cdef");
    strbuf_adds(&sb, "g");
    strbuf_remove_front(&sb, 5);
    CHECK_STR(strbuf_str(&sb), "");
    CHECK_INT(sb.len, 0);
    CHECK_ABORTS(strbuf_remove_front(&sb, 1));
    strbuf_free(&sb);
}
