#ifndef RADISH_CLI_LINE_VIEW_H
#define RADISH_CLI_LINE_VIEW_H

#include <stddef.h>

#include "base/strbuf.h"

/* A line being typed, as a terminal shows it: wrapped into rows, of which a window is drawn when
 * they are more than the terminal has.
 *
 *   > What do you think of a lin     row 0      columns = 28
 *   e that is wider than the ter     row 1  <-- the cursor's row is all that the view remembers
 *   minal?                           row 2
 */
struct line_view {
    size_t cursor_row; /* of the rows drawn last, where the cursor was left */
};

struct screen_size {
    size_t columns, rows;
};

/* Appends what makes a terminal replace the last drawing by this one. `prompt` is ASCII; `cursor`
 * is a byte offset into `line`. Widths are wcwidth's, so LC_CTYPE has to be a UTF-8 one. */
void line_view_draw(struct line_view *view, struct screen_size size, const char *prompt,
                    const struct strbuf *line, size_t cursor, struct strbuf *out);

#endif
