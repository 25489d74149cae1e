#ifndef RADISH_CLI_LINE_EDITOR_H
#define RADISH_CLI_LINE_EDITOR_H

#include <stddef.h>

#include "base/strbuf.h"
#include "cli/line_view.h"

/* Lines from the terminal, with editing and a history on the arrow keys; from a pipe, plain lines.
 * Ctrl-C empties the line, Ctrl-D on an empty line is the end. A pasted text is one line, whatever
 * newlines it has. */
struct line_editor {
    struct strbuf line;
    size_t cursor; /* byte offset into the line */
    struct line_view view;
    char **history;
    size_t n_history;
};

/* The next line without its newline, valid until the next call; NULL at the end. */
const char *line_editor_read(struct line_editor *e, const char *prompt);
void line_editor_free(struct line_editor *e);

#endif
