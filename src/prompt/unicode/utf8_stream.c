/* Turns the bytes of tokens into whole characters. A token may end in the middle of a character,
 * but an event must not. Bytes that cannot become a character are replaced by U+FFFD, one for each
 * maximal subpart (Unicode, chapter 3, "U+FFFD Substitution of Maximal Subparts"), as Python's
 * bytes.decode(errors="replace") does. */
#include "prompt/unicode/utf8_stream.h"

#include <string.h>

#include "base/utf8.h"

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
        size_t part = utf8_begun_prefix(bytes + at, len - at);
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
