/* What a terminal shows as one character: widths, borders, bytes it must not get. */
#include "test.h"

#include "cli/terminal/glyph.h"

#define WOMAN   "\U0001f469"
#define JOINER  "\u200d"
#define LAPTOP  "\U0001f4bb"
#define FLAG_DE "\U0001f1e9\U0001f1ea"

static size_t columns(const char *text)
{
    return glyph_columns(text, strlen(text));
}

TEST(glyph, widths)
{
    CHECK_INT(columns(""), 0);
    CHECK_INT(columns("abc"), 3);
    CHECK_INT(columns("e\u0301"), 1);
    CHECK_INT(columns("\u6f22\u5b57"), 4);
    CHECK_INT(columns(WOMAN), 2);
    CHECK_INT(columns(WOMAN JOINER LAPTOP), 2);
    CHECK_INT(columns("\U0001f44d\U0001f3fd"), 2); /* with a skin tone */
    CHECK_INT(columns(FLAG_DE), 2);
    CHECK_INT(columns("\u2764\ufe0f"), 2);       /* a heart, shown as an emoji */
    CHECK_INT(columns("\u1112\u1161\u11ab"), 2); /* a Hangul syllable in parts */
    CHECK_INT(columns("\t"), 4);
}

TEST(glyph, borders)
{
    const char *text = "a" WOMAN JOINER LAPTOP "e\u0301" FLAG_DE "\nb";
    size_t len = strlen(text), at[8], n = 0;
    for (size_t i = 0; i < len; i = glyph_after(text, len, i))
        at[n++] = i;
    CHECK_INT(n, 6);
    CHECK_INT(glyph_after(text, len, len), len);
    for (size_t i = len; n-- > 0;) { /* the same borders from behind */
        i = glyph_before(text, i);
        CHECK_INT(i, at[n]);
    }
}

TEST(glyph, bytes_that_a_terminal_must_not_get)
{
    static const char *const texts[] = {"\033[2J", "\xff", "\xc2\x9b", "\x7f", "\xe6\xbc"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct glyph g = glyph_first(texts[i], strlen(texts[i]));
        CHECK(g.len >= 1 && g.len <= 2);
        CHECK_INT(g.width, 1);
        CHECK(g.shown_len == 3 && memcmp(g.shown, "\ufffd", 3) == 0);
    }
}

TEST(glyph, any_bytes_have_borders)
{
    unsigned state = 7;
    for (int round = 0; round < 2000; round++) {
        static const char *const parts[] = {"a",  "\u0301", WOMAN,   JOINER, "\xff",
                                            "\n", "\xe6",   FLAG_DE, "\x1b", "\u6f22"};
        char text[128] = "";
        for (int k = 0; k < 8; k++) {
            state = state * 1103515245 + 12345;
            strcat(text, parts[(state >> 16) % 10]);
        }
        size_t len = strlen(text), at = 0;
        while (at < len) {
            size_t next = glyph_after(text, len, at);
            CHECK(next > at && next <= len);
            at = next;
        }
        while (at > 0) {
            size_t before = glyph_before(text, at);
            CHECK(before < at);
            at = before;
        }
    }
}
