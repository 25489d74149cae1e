/* Views of bytes, and a pattern in bytes that come one at a time. */
#include "base/byte_matcher.h"
#include "base/byte_view.h"

#include <stdlib.h>

#include "test.h"

TEST(byte_view, compares_whole_and_ends)
{
    struct byte_view abc = byte_view_of("abc"), ab = {abc.bytes, 2}, none = {NULL, 0};
    CHECK(byte_view_equal(none, byte_view_of("")));
    CHECK(!byte_view_equal(abc, ab) && byte_view_equal(ab, byte_view_of("ab")));
    CHECK(byte_view_is(ab, "ab") && !byte_view_is(abc, "ab") && !byte_view_is(ab, "abc"));
    CHECK(byte_view_compare(ab, abc) < 0 && byte_view_compare(abc, ab) > 0);
    CHECK(byte_view_compare(byte_view_of("b"), abc) > 0 && byte_view_compare(none, none) == 0);
    CHECK(byte_view_compare(byte_view_of("\x80"), byte_view_of("a")) > 0); /* bytes have no sign */
    CHECK(byte_view_starts(abc, ab) && !byte_view_starts(ab, abc) && byte_view_starts(ab, none));
    CHECK(byte_view_ends(abc, byte_view_of("bc")) && !byte_view_ends(abc, ab));
    CHECK(string_starts("model.gguf", "model") && !string_starts("mod", "model"));
    CHECK(string_ends("model.gguf", ".gguf") && !string_ends("gguf", ".gguf"));
}

/* Where matches end, compared with memcmp at every place; after each match it starts again. */
static void check_matcher(const char *pattern, const char *text)
{
    struct byte_view wanted = byte_view_of(pattern);
    uint32_t *fallback = calloc(wanted.len, sizeof *fallback);
    struct byte_matcher m;
    size_t from = 0;
    byte_matcher_init(&m, wanted, fallback);
    for (size_t i = 0; text[i]; i++) {
        bool found = byte_matcher_add(&m, text[i]);
        bool is_there = i + 1 - from >= wanted.len &&
                        memcmp(text + i + 1 - wanted.len, pattern, wanted.len) == 0;
        CHECK_INT(found, is_there);
        if (!found)
            continue;
        m.matched = 0;
        from = i + 1;
    }
    free(fallback);
}

TEST(byte_matcher, finds_what_memcmp_finds)
{
    check_matcher("END", "the ENENDEND EN");
    check_matcher("a", "aabaa");
    check_matcher("aab", "aaabaaaab");
    check_matcher("abacabad", "abacabacabadabacabad");
    uint32_t random = 1;
    for (int round = 0; round < 3000; round++) {
        char pattern[8] = "", text[64] = "";
        size_t n = 1 + (size_t)round % 6;
        for (size_t i = 0; i < sizeof text - 1; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = (char)('a' + (random >> 24) % 2);
        }
        memcpy(pattern, text + 20, n);
        check_matcher(pattern, text);
    }
}
