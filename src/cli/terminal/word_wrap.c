/* The last column stays empty: after an exactly full row, terminals differ in where the cursor is,
 * and moving a word to the next row requires its exact position. */
#include "cli/terminal/word_wrap.h"

#include <string.h>

#include "base/utf8.h"

enum { TAB_COLUMNS = 8 };

/* Chinese and Japanese closing punctuation stays with the text before it. */
static bool is_closing(uint32_t code)
{
    static const uint16_t marks[] = {0x3001, 0x3002, 0x3009, 0x300b, 0x300d, 0x300f, 0x3011,
                                     0x3015, 0x3017, 0x30fb, 0x30fc, 0xff01, 0xff09, 0xff0c,
                                     0xff0e, 0xff1a, 0xff1b, 0xff1f, 0xff3d, 0xff5d};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] == code)
            return true;
    return false;
}

static void word_end(struct word_wrap *w)
{
    strbuf_clear(&w->word);
    w->word_width = 0;
}

static void row_end(struct word_wrap *w, struct strbuf *out)
{
    strbuf_addc(out, '\n');
    w->column = 0;
}

static void blanks_add(struct word_wrap *w, size_t limit, size_t n, struct strbuf *out)
{
    word_end(w);
    for (; n > 0 && w->column < limit; n--, w->column++)
        strbuf_addc(out, ' ');
}

/* Makes room for a glyph that does not fit. Its word moves to the next row if it began in the
 * middle of this one; otherwise the word is longer than a row and is cut. */
static void row_break(struct word_wrap *w, struct strbuf *out)
{
    if (w->word_width == w->column)
        word_end(w);
    if (w->word_width)
        strbuf_addf(out, "\033[%zuD\033[K", w->word_width);
    row_end(w, out);
    strbuf_add(out, strbuf_str(&w->word), w->word.len);
    w->column = w->word_width;
}

static void code_add(struct word_wrap *w, size_t limit, uint32_t code, const char *bytes,
                     size_t len, struct strbuf *out)
{
    size_t before = w->scan.width;
    bool was_wide = w->word_width && before == 2;
    size_t grown;
    if (glyph_scan_take(&w->scan, code)) {
        grown = w->scan.width;
        if ((grown == 2 || was_wide) && !is_closing(code))
            word_end(w);
        if (w->column + grown > limit)
            row_break(w, out);
    } else {
        grown = w->scan.width - before;
    }
    strbuf_add(out, bytes, len);
    strbuf_add(&w->word, bytes, len);
    w->word_width += grown;
    w->column += grown;
}

void word_wrap_add(struct word_wrap *w, size_t columns, const char *text, size_t len,
                   struct strbuf *out)
{
    size_t limit = columns > 2 ? columns - 1 : 2;
    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_valid_prefix(text + at, len - at);
        uint32_t code = n ? utf8_decode(text + at, n) : 0;
        if (code == '\n') {
            word_end(w);
            row_end(w, out);
        } else if (code == ' ') {
            blanks_add(w, limit, 1, out);
        } else if (code == '\t') {
            blanks_add(w, limit, TAB_COLUMNS - w->column % TAB_COLUMNS, out);
        } else if (glyph_is_control(code)) {
            if (code != '\r') /* from a Windows line break */
                code_add(w, limit, 0xfffd, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT), out);
            n = n ? n : 1;
        } else {
            code_add(w, limit, code, text + at, n, out);
            continue;
        }
        w->scan = (struct glyph_scan){0};
    }
}

void word_wrap_free(struct word_wrap *w)
{
    strbuf_free(&w->word);
}

void controls_replace(const char *text, size_t len, struct strbuf *out)
{
    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_valid_prefix(text + at, len - at);
        uint32_t code = n ? utf8_decode(text + at, n) : 0;
        n = n ? n : 1;
        if (code == '\n' || code == '\t' || !glyph_is_control(code))
            strbuf_add(out, text + at, n);
        else if (code != '\r')
            strbuf_adds(out, UTF8_REPLACEMENT);
    }
}
