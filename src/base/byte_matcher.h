#ifndef RADISH_BASE_BYTE_MATCHER_H
#define RADISH_BASE_BYTE_MATCHER_H

#include <stdint.h>

#include "base/byte_view.h"

/* Finds one pattern in a text that arrives a byte at a time, in constant time per byte on average
 * (Knuth, Morris and Pratt). For a complete text, use memmem.
 *
 *   text   ... t h e   E N │             pattern "END": 2 of its bytes are matched */
struct byte_matcher {
    struct byte_view pattern; /* at least one byte; they must stay */
    size_t matched;           /* how many of its first bytes are at the end of the text */
    uint32_t *fallback;       /* [pattern.len] if byte i does not match: how many still do */
};

/* `fallback` is the caller's memory: a number for each byte of the pattern. */
void byte_matcher_init(struct byte_matcher *m, struct byte_view pattern, uint32_t *fallback);
/* True when the byte completes the pattern. Then set `matched` to 0 before the next byte. */
static inline bool byte_matcher_add(struct byte_matcher *m, char byte)
{
    while (m->matched && m->pattern.bytes[m->matched] != byte)
        m->matched = m->fallback[m->matched];
    m->matched += m->pattern.bytes[m->matched] == byte;
    return m->matched == m->pattern.len;
}

#endif
