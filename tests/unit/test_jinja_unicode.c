/* Characters as Python sees them, and bytes that are not characters. */
#include "prompt/unicode/unicode.h"

#include "base/utf8.h"
#include "test.h"

static const char *mapped(size_t (*map)(uint32_t, char *), uint32_t code)
{
    static char out[UNICODE_CASE_MAX + 1];
    out[map(code, out)] = '\0';
    return out;
}

TEST(jinja_unicode, case_of_a_character)
{
    CHECK_STR(mapped(unicode_upper, 'a'), "A");
    CHECK_STR(mapped(unicode_upper, '1'), "1");
    CHECK_STR(mapped(unicode_lower, 0xc9), "é");
    CHECK_STR(mapped(unicode_upper, 0xdf), "SS");
    CHECK_STR(mapped(unicode_title, 0x1c6), "ǅ");
    CHECK_STR(mapped(unicode_lower, 0x10400), "\U00010428");
    CHECK_STR(mapped(unicode_upper, 0x10fffd), "\U0010fffd");
    CHECK(unicode_is_upper('Z') && !unicode_is_upper('z') && !unicode_is_upper('1'));
    CHECK(unicode_is_lower(0xe9) && !unicode_is_lower(0x6771));
}

TEST(jinja_unicode, classes)
{
    CHECK(unicode_is_alpha(0x6771) && !unicode_is_alpha('1') && !unicode_is_alpha(0));
    CHECK(unicode_is_decimal(0x663) && !unicode_is_decimal(0xb2));
    CHECK(unicode_is_digit(0xb2) && unicode_is_numeric(0xbd) && !unicode_is_digit(0xbd));
    CHECK(unicode_is_space(0x3000) && unicode_is_space(0x1f) && !unicode_is_space(0x200b));
    CHECK(unicode_is_printable(0x1f642) && !unicode_is_printable(0xa0));
    CHECK(!unicode_is_alpha(0x110000) && !unicode_is_printable(UINT32_MAX));
}

/* Every character that a table changes becomes a valid character. */
TEST(jinja_unicode, maps_give_utf8)
{
    size_t (*const maps[])(uint32_t, char *) = {unicode_upper, unicode_lower, unicode_title};
    for (uint32_t code = 1; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000)
            continue;
        for (int i = 0; i < 3; i++) {
            char out[UNICODE_CASE_MAX];
            size_t len = maps[i](code, out), at = 0, width;
            while (at < len && (width = utf8_valid_prefix(out + at, len - at)) > 0)
                at += width;
            CHECK(len > 0 && at == len);
        }
    }
}

TEST(jinja_unicode, bad_bytes_are_one_character_each)
{
    static const char bad[] = "a\xff\xc3\xc3\xa9\xe6\x9d";
    uint32_t code;
    CHECK_INT(unicode_count(bad, sizeof bad - 1), 6);
    CHECK_INT(unicode_next("\xff", 1, &code), 1);
    CHECK_INT(code, 0xfffd);
    CHECK_INT(unicode_next("\xc3\xa9", 2, &code), 2);
    CHECK_INT(code, 0xe9);
    CHECK_INT(unicode_last(bad, 5, &code), 2);
    CHECK_INT(unicode_last(bad, 7, &code), 1);
    CHECK_INT(unicode_last("\x80", 1, &code), 1);
}
