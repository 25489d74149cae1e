#ifndef RADISH_CLI_TERMINAL_LINE_EDITOR_H
#define RADISH_CLI_TERMINAL_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "cli/terminal/history.h"
#include "cli/terminal/keys.h"
#include "cli/terminal/line_view.h"

/* Text from a person at the terminal: the keys of Emacs and of other line editors, several lines,
 * a history with search, completion. */

/* What may stand in place of the text from `from` up to the cursor. */
struct completion_list {
    size_t from;
    char **items;
    size_t n;
};

void completion_list_add(struct completion_list *c, const char *text, size_t len);
void completion_list_free(struct completion_list *c);

struct line_editor {
    /* The user's. */
    struct key_input input;
    struct history history;
    bool has_colors;
    void *context;
    /* Whether Enter adds a line instead of ending the text; NULL: never. */
    bool (*is_open)(void *context, const char *text);
    /* Completes text before the cursor, `len` bytes; NULL: nothing is completed. */
    void (*complete)(void *context, const char *text, size_t len, struct completion_list *out);

    /* The editor's. */
    struct strbuf line;
    size_t cursor; /* byte offset into the line */
    struct strbuf killed;
    struct line_view view;
    size_t history_at;   /* the entry being shown; history.n: what is typed itself, */
    struct strbuf draft; /* kept while an entry is shown */
    bool was_tab;        /* the last key was one: the next lists what there is */
};

enum line_result {
    LINE_TEXT,        /* in `line` */
    LINE_END,         /* the input has ended, or Ctrl-D at an empty line */
    LINE_INTERRUPTED, /* Ctrl-C at an empty line */
};

/* Reads the next text; it is not added to the history. The terminal is taken. */
enum line_result line_editor_read(struct line_editor *e, const char *prompt);
void line_editor_free(struct line_editor *e);

#endif
