/* Lines wider than the terminal: where rows break, what is drawn, where the cursor goes. */
#include "test.h"

#include "cli/terminal/line_view.h"

static struct line_view view;

/* The output of drawing `text` on a terminal of that size, until the next call. */
static const char *draw_line(size_t columns, size_t rows, const struct line_text *text)
{
    static char drawn[512];
    struct strbuf out = STRBUF_INIT;
    line_view_draw(&view, (struct screen_size){columns, rows}, text, &out);
    snprintf(drawn, sizeof drawn, "%s", strbuf_str(&out));
    strbuf_free(&out);
    return drawn;
}

static const char *draw(size_t columns, size_t rows, const char *text, size_t cursor)
{
    struct strbuf line = STRBUF_INIT;
    strbuf_adds(&line, text);
    const char *drawn = draw_line(columns, rows,
                                  &(struct line_text){"> ", "", &line, cursor, false});
    strbuf_free(&line);
    return drawn;
}

static void view_reset(void)
{
    line_view_free(&view);
    view = (struct line_view){0};
}

#define CLEAR "\r\033[J"

TEST(line_view, a_short_line_is_one_row)
{
    view_reset();
    CHECK_STR(draw(10, 5, "", 0), CLEAR "> \r\033[2C");
    CHECK_STR(draw(10, 5, "abc", 3), CLEAR "> abc\r\033[5C");
    CHECK_STR(draw(10, 5, "abc", 0), CLEAR "> abc\r\033[2C");
    CHECK_INT(view.cursor_row, 0);
}

TEST(line_view, a_wide_line_is_wrapped_and_redrawn_from_its_first_row)
{
    view_reset();
    CHECK_STR(draw(6, 5, "abcdefg", 7), CLEAR "> abcd\r\nefg\r\033[3C");
    CHECK_INT(view.cursor_row, 1);
    CHECK_STR(draw(6, 5, "abcdefgh", 1), "\033[1A" CLEAR "> abcd\r\nefgh\033[1A\r\033[3C");
    CHECK_INT(view.cursor_row, 0);
    CHECK_STR(draw(6, 5, "ab", 2), CLEAR "> ab\r\033[4C");
}

TEST(line_view, a_full_row_puts_the_cursor_on_the_next)
{
    view_reset();
    CHECK_STR(draw(6, 5, "abcd", 4), CLEAR "> abcd\r\n\r");
    CHECK_INT(view.cursor_row, 1);
    CHECK_STR(draw(6, 5, "abcd", 3), "\033[1A" CLEAR "> abcd\r\033[5C");
}

TEST(line_view, newlines_and_tabs_of_a_pasted_text)
{
    view_reset();
    CHECK_STR(draw(6, 5, "a\nb\tc\n", 6), CLEAR "> a\r\nb    c\r\n\r");
    CHECK_INT(view.cursor_row, 2);
    view_reset();
    CHECK_STR(draw(6, 5, "abcd\ne", 4), CLEAR "> abcd\r\ne\033[1A\r\033[5C");
}

TEST(line_view, widths_of_characters)
{
    view_reset();
    CHECK_STR(draw(6, 5, "\u6f22\u5b57", 6), CLEAR "> \u6f22\u5b57\r\n\r"); /* two columns each */
    view_reset();
    CHECK_STR(draw(7, 5, "\u6f22\u5b57\u6f22", 9), CLEAR "> \u6f22\u5b57\r\n\u6f22\r\033[2C");
    view_reset();
    CHECK_STR(draw(6, 5, "e\u0301e\u0301", 6), CLEAR "> e\u0301e\u0301\r\033[4C"); /* none */
}

TEST(line_view, bytes_that_a_terminal_must_not_get)
{
    view_reset();
    CHECK_STR(draw(9, 5, "\xff\033\xc2\x9b", 4), CLEAR "> \ufffd\ufffd\ufffd\r\033[5C");
}

TEST(line_view, more_rows_than_the_terminal_has)
{
    view_reset();
    CHECK_STR(draw(4, 2, "abcdefghi", 9), CLEAR "cdef\r\nghi\r\033[3C");
    CHECK_INT(view.cursor_row, 1);
    CHECK_STR(draw(4, 2, "abcdefghi", 0), "\033[1A" CLEAR "> ab\r\ncdef\033[1A\r\033[2C");
    CHECK_INT(view.cursor_row, 0);
}

TEST(line_view, lines_below_the_first_are_indented)
{
    struct strbuf line = STRBUF_INIT;
    strbuf_adds(&line, "ab\ncd");
    view_reset();
    CHECK_STR(draw_line(10, 5, &(struct line_text){"> ", "  ", &line, 5, false}),
              CLEAR "> ab\r\n  cd\r\033[4C");
    view_reset(); /* not where it would take half of the row */
    CHECK_STR(draw_line(3, 5, &(struct line_text){"", "  ", &line, 0, false}),
              CLEAR "ab\r\ncd\033[1A\r");
    strbuf_free(&line);
}

TEST(line_view, a_bold_prompt)
{
    struct strbuf line = STRBUF_INIT;
    view_reset();
    CHECK_STR(draw_line(10, 5, &(struct line_text){"> ", "", &line, 0, true}),
              CLEAR "\033[1m> \033[0m\r\033[2C");
    strbuf_adds(&line, "ab");
    CHECK_STR(draw_line(10, 5, &(struct line_text){"> ", "", &line, 1, true}),
              CLEAR "\033[1m> \033[0mab\r\033[3C");
    CHECK_STR(draw_line(4, 1, &(struct line_text){"> ", "", &line, 2, true}), /* scrolled away */
              CLEAR "\r");
    strbuf_free(&line);
}

TEST(line_view, a_window_that_changes_its_width)
{
    view_reset();
    draw(20, 9, "abcdefghijklmnopqrstuvw", 23); /* 20 columns and 5 */
    CHECK_INT(view.cursor_row, 1);
    line_view_resize(&view, 10); /* the terminal has wrapped the first into two rows */
    CHECK_INT(view.cursor_row, 2);
    CHECK_STR(draw(10, 9, "abc", 3), "\033[2A" CLEAR "> abc\r\033[5C");
    line_view_resize(&view, 4); /* the cursor itself moved down */
    CHECK_INT(view.cursor_row, 1);
    view_reset();
}
