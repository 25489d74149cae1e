/* A pattern in a stream of bytes; see byte_matcher.h. Pure. */
#include "base/byte_matcher.h"

#include <assert.h>

void byte_matcher_init(struct byte_matcher *m, struct byte_view pattern, uint32_t *fallback)
{
    assert(pattern.len > 0 && pattern.len <= UINT32_MAX);
    *m = (struct byte_matcher){pattern, 0, fallback};
    fallback[0] = 0;
    for (size_t i = 1, k = 0; i < pattern.len; i++) {
        fallback[i] = (uint32_t)k;
        while (k && pattern.bytes[i] != pattern.bytes[k])
            k = fallback[k];
        k += pattern.bytes[i] == pattern.bytes[k];
    }
}
