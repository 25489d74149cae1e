/* Draws text that may be wider than the terminal. Rows are broken here, never by the terminal:
 * after an exactly full row, terminals differ in where the cursor is. For the same reason
 * everything is erased before it is written: erasing after a full row would remove its last
 * character. */
#include "cli/terminal/line_view.h"

#include <string.h>

#include "cli/terminal/glyph.h"

/* The rows, separated by '\n', and the cursor's position in them. */
struct wrapping {
    struct strbuf rows;
    size_t columns;
    size_t row, column; /* where the next glyph goes */
    size_t cursor_row, cursor_column;
};

static void row_end(struct wrapping *w)
{
    strbuf_addc(&w->rows, '\n');
    w->row++;
    w->column = 0;
}

static void indent_add(struct wrapping *w, const char *indent)
{
    if (strlen(indent) * 2 > w->columns)
        return; /* the terminal is too narrow */
    strbuf_adds(&w->rows, indent);
    w->column = strlen(indent);
}

static void prompt_wrap(struct wrapping *w, const char *prompt)
{
    for (size_t at = 0, len = strlen(prompt); at < len;) {
        struct glyph glyph = glyph_first(prompt + at, len - at);
        if (w->column + glyph.width > w->columns)
            row_end(w);
        strbuf_add(&w->rows, glyph.shown, glyph.shown_len);
        w->column += glyph.width;
        at += glyph.len;
    }
}

static void line_wrap(struct wrapping *w, const struct line_text *text)
{
    const struct strbuf *line = text->line;
    for (size_t at = 0;;) {
        bool is_end = at == line->len;
        bool is_break = !is_end && line->data[at] == '\n';
        struct glyph glyph = {.len = 1};
        if (is_end)
            glyph.width = at == text->cursor; /* the cursor needs a column of its own there */
        else if (!is_break)
            glyph = glyph_first(line->data + at, line->len - at);
        if (w->column + glyph.width > w->columns)
            row_end(w);
        if (at == text->cursor) {
            w->cursor_row = w->row;
            w->cursor_column = w->column < w->columns ? w->column : w->columns - 1;
        }
        if (is_end)
            return;
        if (is_break) {
            row_end(w);
            indent_add(w, text->indent);
        } else {
            strbuf_add(&w->rows, glyph.shown, glyph.shown_len);
            w->column += glyph.width;
        }
        at += glyph.len;
    }
}

/* Copies at most `n` rows, starting at `top`, to `drawn`; returns how many. */
static size_t rows_keep(const struct wrapping *w, size_t top, size_t n, struct strbuf *drawn)
{
    const char *at = strbuf_str(&w->rows), *end;
    for (size_t i = 0; i < top; i++)
        at = strchr(at, '\n') + 1;
    size_t n_kept = 1;
    for (end = at; *end; end++)
        if (*end == '\n' && n_kept++ == n)
            break;
    strbuf_clear(drawn);
    strbuf_add(drawn, at, (size_t)(end - at));
    return n_kept > n ? n : n_kept;
}

static void move(struct strbuf *out, size_t n, char direction)
{
    if (n)
        strbuf_addf(out, "\033[%zu%c", n, direction);
}

/* Writes the rows; the first `n_bold` bytes are the prompt. */
static void rows_write(const struct strbuf *rows, size_t n_bold, struct strbuf *out)
{
    if (n_bold)
        strbuf_adds(out, "\033[1m");
    for (size_t i = 0; i < rows->len; i++) {
        if (n_bold && i == n_bold)
            strbuf_adds(out, "\033[0m");
        if (rows->data[i] == '\n')
            strbuf_addc(out, '\r');
        strbuf_addc(out, rows->data[i]);
    }
    if (n_bold >= rows->len && n_bold)
        strbuf_adds(out, "\033[0m");
}

void line_view_draw(struct line_view *view, struct screen_size size, const struct line_text *text,
                    struct strbuf *out)
{
    struct wrapping w = {.columns = size.columns};
    prompt_wrap(&w, text->prompt);
    size_t n_bold = text->is_prompt_bold ? w.rows.len : 0;
    line_wrap(&w, text);
    size_t top = w.cursor_row < size.rows ? 0 : w.cursor_row - size.rows + 1;
    move(out, view->cursor_row, 'A');
    strbuf_adds(out, "\r\033[J");
    size_t n_drawn = rows_keep(&w, top, size.rows, &view->drawn);
    rows_write(&view->drawn, top ? 0 : n_bold, out);
    view->cursor_row = w.cursor_row - top;
    view->cursor_column = w.cursor_column;
    move(out, n_drawn - 1 - view->cursor_row, 'A');
    strbuf_addc(out, '\r');
    move(out, w.cursor_column, 'C');
    strbuf_free(&w.rows);
}

void line_view_resize(struct line_view *view, size_t columns)
{
    const char *row = strbuf_str(&view->drawn);
    size_t n_rows = 0;
    for (size_t i = 0; i < view->cursor_row; i++) {
        size_t len = strcspn(row, "\n"), width = glyph_columns(row, len);
        n_rows += width > columns ? (width + columns - 1) / columns : 1;
        row += len + (row[len] == '\n');
    }
    view->cursor_row = n_rows + view->cursor_column / columns;
}

void line_view_leave(struct line_view *view)
{
    view->cursor_row = view->cursor_column = 0;
    strbuf_clear(&view->drawn);
}

void line_view_free(struct line_view *view)
{
    strbuf_free(&view->drawn);
}
