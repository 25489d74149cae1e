#ifndef RADISH_BASE_BYTE_MATCHER_H
#define RADISH_BASE_BYTE_MATCHER_H

#include <stdint.h>

#include "base/byte_view.h"

/* Looks for one pattern in a text that comes a byte at a time, in constant time for each on average
 * (Knuth, Morris and Pratt). In a text that is there as a whole, memmem finds it.
 *
 *   text   ... t h e   E N │             pattern "END": 2 of its bytes are matched
 */
struct byte_matcher {
    struct byte_view pattern; /* at least one byte; they must stay */
    size_t matched;           /* of its first bytes stand at the end of the text */
    uint32_t *fallback;       /* [pattern.len] when byte i does not fit: how many still match */
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
