/* Draws a line that may be wider than the terminal. Rows are broken here, never by the terminal:
 * after a row that is exactly full, terminals differ in where the cursor is. For the same reason
 * everything is erased before it is written: erasing behind a full row would take its last
 * character. */
#include "cli/line_view.h"

#include <string.h>
#include <wchar.h>

#include "base/utf8.h"

struct glyph {
    size_t len;        /* bytes of the line */
    const char *shown; /* what stands for them, `shown_len` bytes */
    size_t shown_len;
    size_t width; /* columns */
};

static struct glyph glyph_at(const char *bytes, size_t len)
{
    size_t n = utf8_valid_prefix(bytes, len);
    uint32_t code = n ? utf8_decode(bytes, n) : 0;
    if (code == '\t')
        return (struct glyph){n, " ", 1, 1};
    if (code < ' ' || (code >= 0x7f && code < 0xa0)) /* a control would not stay in its place */
        return (struct glyph){n ? n : 1, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT), 1};
    int width = wcwidth((wchar_t)code);
    return (struct glyph){n, bytes, n, width < 0 ? 1 : (size_t)width};
}

/* The rows, with '\n' between them, and where the cursor is among them. */
struct wrapping {
    struct strbuf rows;
    size_t row, column; /* where the next glyph goes */
    size_t cursor_row, cursor_column;
};

static void row_end(struct wrapping *w)
{
    strbuf_addc(&w->rows, '\n');
    w->row++;
    w->column = 0;
}

static void line_wrap(struct wrapping *w, size_t columns, const struct strbuf *line, size_t cursor)
{
    for (size_t at = 0;;) {
        bool is_end = at == line->len;
        bool is_break = !is_end && line->data[at] == '\n';
        struct glyph glyph = {.len = 1};
        if (is_end)
            glyph.width = at == cursor; /* the cursor takes a column of its own there */
        else if (!is_break)
            glyph = glyph_at(line->data + at, line->len - at);
        if (w->column + glyph.width > columns)
            row_end(w);
        if (at == cursor) {
            w->cursor_row = w->row;
            w->cursor_column = w->column < columns ? w->column : columns - 1;
        }
        if (is_end)
            return;
        if (is_break)
            row_end(w);
        else
            strbuf_add(&w->rows, glyph.shown, glyph.shown_len);
        w->column = is_break ? 0 : w->column + glyph.width;
        at += glyph.len;
    }
}

/* Writes the rows from `top` on, at most `n`; returns how many there were. */
static size_t rows_write(const struct wrapping *w, size_t top, size_t n, struct strbuf *out)
{
    const char *at = strbuf_str(&w->rows);
    for (size_t i = 0; i < top; i++)
        at = strchr(at, '\n') + 1;
    for (size_t i = 0;; i++) {
        size_t len = strcspn(at, "\n");
        strbuf_add(out, at, len);
        if (!at[len] || i + 1 == n)
            return i + 1;
        strbuf_adds(out, "\r\n");
        at += len + 1;
    }
}

static void move(struct strbuf *out, size_t n, char direction)
{
    if (n)
        strbuf_addf(out, "\033[%zu%c", n, direction);
}

void line_view_draw(struct line_view *view, struct screen_size size, const char *prompt,
                    const struct strbuf *line, size_t cursor, struct strbuf *out)
{
    struct wrapping w = {.column = strlen(prompt)};
    strbuf_adds(&w.rows, prompt);
    line_wrap(&w, size.columns, line, cursor);
    size_t top = w.cursor_row < size.rows ? 0 : w.cursor_row - size.rows + 1;
    move(out, view->cursor_row, 'A');
    strbuf_adds(out, "\r\033[J");
    size_t n_drawn = rows_write(&w, top, size.rows, out);
    view->cursor_row = w.cursor_row - top;
    move(out, n_drawn - 1 - view->cursor_row, 'A');
    strbuf_addc(out, '\r');
    move(out, w.cursor_column, 'C');
    strbuf_free(&w.rows);
}
