#ifndef RADISH_PROMPT_UNICODE_UTF8_STREAM_H
#define RADISH_PROMPT_UNICODE_UTF8_STREAM_H

#include <stddef.h>

#include "base/strbuf.h"

/* Takes bytes and outputs whole UTF-8 sequences. A sequence split by a token boundary is held until
 * the rest arrives; bytes that can never become valid are replaced with U+FFFD, one for each
 * maximal part. */
struct utf8_stream {
    unsigned char pending[4];
    unsigned n_pending;
};

void utf8_stream_add(struct utf8_stream *s, const char *bytes, size_t len, struct strbuf *out);
void utf8_stream_end(struct utf8_stream *s, struct strbuf *out); /* pending bytes become U+FFFD */

#endif
