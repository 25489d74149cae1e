#ifndef RADISH_CLI_TERMINAL_WORD_WRAP_H
#define RADISH_CLI_TERMINAL_WORD_WRAP_H

#include "base/strbuf.h"
#include "cli/terminal/glyph.h"

/* Text that streams to a terminal, broken between words. A word is shown as it comes; when it turns
 * out not to fit, it is taken back and begins the next row.
 *
 *   |The sky is blue because sunli|         |The sky is blue because      |
 *                                     ──►   |sunlight                     |
 *
 * Wide characters break anywhere, but no row begins with a closing mark. Zero-initialise it. */
struct word_wrap {
    size_t column;      /* where the next glyph goes */
    struct strbuf word; /* the one being shown: its bytes, */
    size_t word_width;  /* and its columns */
    struct glyph_scan scan;
};

/* Appends what shows `text`, which is whole UTF-8, on a terminal of that many columns. Controls
 * other than newline and tab are replaced. */
void word_wrap_add(struct word_wrap *w, size_t columns, const char *text, size_t len,
                   struct strbuf *out);
void word_wrap_free(struct word_wrap *w);

/* Appends `text` for a terminal as it is, but with the same controls replaced: for when there is
 * no wrapping, and a model's escape sequences must still not reach the terminal. */
void controls_replace(const char *text, size_t len, struct strbuf *out);

#endif
