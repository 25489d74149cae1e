#ifndef RADISH_CLI_TERMINAL_LINE_VIEW_H
#define RADISH_CLI_TERMINAL_LINE_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "cli/terminal/terminal.h"

/* Text being typed, as a terminal shows it: wrapped into rows, of which a window is drawn when they
 * are more than the terminal has.
 *
 *   > What do you think of a lin     row 0      columns = 28
 *   e that is wider than the ter     row 1  <-- the cursor's row
 *   minal?                           row 2
 *     And of a second line?          row 3, below the text of the first
 *
 * Zero-initialise it before text is drawn on a fresh row. */
struct line_view {
    size_t cursor_row, cursor_column; /* where the cursor was left, among the rows drawn last */
    struct strbuf drawn;              /* those rows, with '\n' between them */
};

struct line_text {
    const char *prompt;
    const char *indent; /* before each line but the first; ASCII */
    const struct strbuf *line;
    size_t cursor; /* byte offset into the line */
    bool is_prompt_bold;
};

/* Appends what makes a terminal replace the last drawing by this one. */
void line_view_draw(struct line_view *view, struct screen_size size, const struct line_text *text,
                    struct strbuf *out);
/* The terminal has that many columns now, and has wrapped what was drawn: finds the cursor again.
 */
void line_view_resize(struct line_view *view, size_t columns);
/* The text stays on the screen; the next drawing begins below it. */
void line_view_leave(struct line_view *view);
void line_view_free(struct line_view *view);

#endif
