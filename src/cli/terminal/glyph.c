/* Widths come from utf8proc, so they do not depend on the locale. A glyph is a grapheme cluster.
 * Terminals add up the widths of its code points unless the first is already wide (Hangul, emoji).
 * Variation selector 16 turns a narrow symbol into a wide emoji. */
#include "cli/terminal/glyph.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

enum { EMOJI_SELECTOR = 0xfe0f };

static size_t code_width(uint32_t code)
{
    int width = utf8proc_charwidth((utf8proc_int32_t)code);
    return width > 0 ? (size_t)width : 0;
}

bool glyph_scan_take(struct glyph_scan *scan, uint32_t code)
{
    int32_t last = scan->code;
    scan->code = (int32_t)code;
    if (!last || utf8proc_grapheme_break_stateful(last, (utf8proc_int32_t)code, &scan->state)) {
        scan->width = code_width(code);
        return true;
    }
    if (code == EMOJI_SELECTOR && scan->width == 1)
        scan->width = 2;
    else if (scan->width < 2)
        scan->width += code_width(code);
    return false;
}

struct glyph glyph_first(const char *text, size_t len)
{
    struct glyph_scan scan = {0};
    size_t at = 0;
    while (at < len) {
        size_t n = utf8_valid_prefix(text + at, len - at);
        uint32_t code = n ? utf8_decode(text + at, n) : 0;
        if (at == 0 && code == '\t')
            return (struct glyph){n, "    ", 4, 4};
        if (at == 0 && glyph_is_control(code))
            return (struct glyph){n ? n : 1, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT), 1};
        struct glyph_scan before = scan;
        if (glyph_is_control(code) || (glyph_scan_take(&scan, code) && at > 0)) {
            scan = before;
            break;
        }
        at += n;
    }
    return (struct glyph){at, text, at, scan.width};
}

size_t glyph_after(const char *text, size_t len, size_t at)
{
    return at < len ? at + glyph_first(text + at, len - at).len : len;
}

size_t glyph_before(const char *text, size_t at)
{
    /* Nothing joins across a line break, and no glyph in real text is longer than this. */
    enum { LOOK_BACK = 256 };
    size_t from = at;
    while (from > 0 && at - from < LOOK_BACK && (text[from - 1] != '\n' || from == at))
        from--;
    while (from > 0 && from < at && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    for (size_t next; (next = glyph_after(text, at, from)) < at;)
        from = next;
    return from;
}

size_t glyph_columns(const char *text, size_t len)
{
    size_t columns = 0;
    for (size_t at = 0; at < len;) {
        struct glyph glyph = glyph_first(text + at, len - at);
        columns += glyph.width;
        at += glyph.len;
    }
    return columns;
}
