/* Answers that stream to a terminal: where rows break, however the text is split. */
#include "test.h"

#include <stdlib.h>

#include "cli/terminal/word_wrap.h"

/* The output for the pieces, which are separated by '|'; valid until the next call. */
static const char *wrap(size_t columns, const char *pieces)
{
    static char sent[1024];
    struct strbuf out = STRBUF_INIT;
    struct word_wrap w = {0};
    for (const char *at = pieces; *at;) {
        size_t len = strcspn(at, "|");
        word_wrap_add(&w, columns, at, len, &out);
        at += len + (at[len] == '|');
    }
    snprintf(sent, sizeof sent, "%s", strbuf_str(&out));
    word_wrap_free(&w);
    strbuf_free(&out);
    return sent;
}

/* The rows that a terminal shows then. */
static const char *rows(const char *sent)
{
    static char shown[1024];
    size_t n = 0, back;
    for (const char *at = sent; *at; at++) {
        if (sscanf(at, "\033[%zuD", &back) == 1) { /* takes ASCII back */
            n -= back;
            at = strchr(at, 'K');
        } else {
            shown[n++] = *at;
        }
    }
    shown[n] = '\0';
    return shown;
}

TEST(word_wrap, words_go_to_the_next_row)
{
    CHECK_STR(wrap(11, "the sky is blue"), "the sky is\nblue");
    CHECK_STR(wrap(11, "the sky| are| blue"), "the sky ar\033[2D\033[K\nare blue");
    CHECK_STR(wrap(11, "the sky is\nblue"), "the sky is\nblue");
    CHECK_STR(wrap(11, "the sky is \nblue"), "the sky is\nblue"); /* the blank has no room */
}

TEST(word_wrap, a_word_longer_than_a_row_is_cut)
{
    CHECK_STR(wrap(6, "abcdefghijkl"), "abcde\nfghij\nkl");
    CHECK_STR(rows(wrap(6, "ab cdefghijkl")), "ab \ncdefg\nhijkl");
}

TEST(word_wrap, pieces_change_nothing)
{
    static const char text[] = "  Rayleigh scattering, as it is called, makes the sky blue: short "
                               "waves\n\n    scatter\tmore-than-long-ones-do.";
    char whole[512], pieces[512];
    snprintf(whole, sizeof whole, "%s", rows(wrap(20, text)));
    for (size_t step = 1; step < 7; step++) {
        size_t n = 0;
        for (size_t i = 0; text[i]; i++) {
            if (i % step == 0)
                pieces[n++] = '|';
            pieces[n++] = text[i];
        }
        pieces[n] = '\0';
        CHECK_STR(rows(wrap(20, pieces)), whole);
    }
}

TEST(word_wrap, indentation_and_tabs_stay)
{
    CHECK_STR(wrap(20, "    if x:\n\treturn"), "    if x:\n        return");
    CHECK_STR(wrap(20, "ab\tc"), "ab      c");
}

TEST(word_wrap, wide_characters_break_anywhere_but_before_a_closing_mark)
{
    CHECK_STR(wrap(6, "\u6f22\u5b57\u6f22"), "\u6f22\u5b57\n\u6f22");
    CHECK_STR(wrap(6, "\u6f22\u5b57\u3002"), "\u6f22\u5b57\033[2D\033[K\n\u5b57\u3002");
    CHECK_STR(wrap(8, "ab\u6f22cd ef"), "ab\u6f22cd \nef");
}

TEST(word_wrap, marks_and_joined_emoji_take_no_columns)
{
    CHECK_STR(wrap(6, "e\u0301e|\u0301e\u0301e\u0301e\u0301"),
              "e\u0301e\u0301e\u0301e\u0301e\u0301");
    CHECK_STR(wrap(6, "ab \U0001f469|\u200d|\U0001f4bb"), "ab \U0001f469\u200d\U0001f4bb");
}

TEST(word_wrap, an_answer_cannot_command_the_terminal)
{
    CHECK_STR(wrap(20, "a\033]0;x\007b"), "a\ufffd]0;x\ufffdb");
    CHECK_STR(wrap(20, "a\r\nb\xc2\x9b"
                       "31m"),
              "a\nb\ufffd31m");
}

TEST(word_wrap, controls_are_replaced_without_wrapping)
{
    static const char text[] = "a\033[31mb\tc\r\nd\xc2\x9b \x7f\xffz\xc3\xa9";
    struct strbuf out = STRBUF_INIT;
    controls_replace(text, sizeof text - 1, &out);
    CHECK_STR(strbuf_str(&out),
              "a\xef\xbf\xbd[31mb\tc\nd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbdz\xc3\xa9");
    strbuf_free(&out);
}
