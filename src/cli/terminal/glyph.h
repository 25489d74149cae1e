#ifndef RADISH_CLI_TERMINAL_GLYPH_H
#define RADISH_CLI_TERMINAL_GLYPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cli/terminal/ is the terminal of a person who types: its modes, keys, widths of text, the line
 * editor with its history, and wrapped output. It knows nothing of models. */

/* Text as a terminal shows it, glyph by glyph: a character with its combining marks, an emoji with
 * all that is joined to it, a flag.
 *
 *   e U+0301          1 column      U+6F22            2 columns
 *   U+1F469 U+200D U+1F4BB   2 columns, one glyph
 */
struct glyph_scan { /* zero-initialise */
    int32_t code;   /* the last one; 0: none yet */
    int32_t state;  /* utf8proc's */
    size_t width;   /* columns of the glyph so far */
};

/* Takes the next code point. True: it begins a new glyph. */
bool glyph_scan_take(struct glyph_scan *scan, uint32_t code);

struct glyph {
    size_t len;        /* bytes of the text */
    const char *shown; /* what stands for them, `shown_len` bytes */
    size_t shown_len;
    size_t width; /* columns */
};

/* The first glyph of a text that is not empty. Controls and bytes that are not UTF-8 are shown as
 * U+FFFD, so that no text can send commands to the terminal; a tab is four blanks. */
struct glyph glyph_first(const char *text, size_t len);

/* Offsets of the glyph borders before and after `at`, which is one itself. */
size_t glyph_before(const char *text, size_t at);
size_t glyph_after(const char *text, size_t len, size_t at);

/* Columns of a text without line breaks. */
size_t glyph_columns(const char *text, size_t len);

/* A control character, C1 included: never sent to a terminal. */
static inline bool glyph_is_control(uint32_t code)
{
    return code < ' ' || (code >= 0x7f && code < 0xa0);
}

#endif
