/* Turns the bytes of tokens into whole characters. A token may end in the middle of a character,
 * but an event must not. Bytes that cannot become a character are replaced by U+FFFD, one for each
 * maximal subpart (Unicode, chapter 3, "U+FFFD Substitution of Maximal Subparts"), as Python's
 * bytes.decode(errors="replace") does. */
#include "prompt/unicode/utf8_stream.h"

#include <string.h>

#include "base/utf8.h"

/* How many of the `len` bytes (at most 3) can start a character: 0 if the first cannot. */
static size_t begun(const unsigned char *bytes, size_t len)
{
    unsigned char lead = bytes[0];
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    size_t width = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    size_t n = 1;
    for (; n < width && n < len && bytes[n] >= low && bytes[n] <= high; n++) {
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

/* Writes whole characters and replacements; returns the number of bytes used. The rest is the start
 * of a character. */
static size_t write_whole(const char *bytes, size_t len, struct strbuf *out)
{
    size_t plain = 0, at = 0; /* bytes[plain .. at) are valid and not written yet */
    while (at < len) {
        size_t width = utf8_valid_prefix(bytes + at, len - at);
        if (width > 0) {
            at += width;
            continue;
        }
        size_t part = begun((const unsigned char *)bytes + at, len - at);
        strbuf_add(out, bytes + plain, at - plain);
        plain = at;
        if (part > 0 && part == len - at)
            return at;
        strbuf_adds(out, UTF8_REPLACEMENT);
        at += part > 0 ? part : 1;
        plain = at;
    }
    strbuf_add(out, bytes + plain, at - plain);
    return at;
}

void utf8_stream_add(struct utf8_stream *s, const char *bytes, size_t len, struct strbuf *out)
{
    /* Completes a pending character, or finds it invalid, byte by byte. */
    while (s->n_pending > 0 && len > 0) {
        s->pending[s->n_pending++] = (unsigned char)*bytes++;
        len--;
        size_t used = write_whole((const char *)s->pending, s->n_pending, out);
        s->n_pending -= (unsigned)used;
        memmove(s->pending, s->pending + used, s->n_pending);
    }
    if (len == 0)
        return;
    size_t used = write_whole(bytes, len, out);
    s->n_pending = (unsigned)(len - used);
    memcpy(s->pending, bytes + used, s->n_pending);
}

void utf8_stream_end(struct utf8_stream *s, struct strbuf *out)
{
    if (s->n_pending > 0)
        strbuf_adds(out, UTF8_REPLACEMENT);
    s->n_pending = 0;
}
