/* A hash of bytes, eight at a time. */
#include "base/hash.h"

#include <string.h>

uint64_t hash_bytes(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t h = hash_mix(len);
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = hash_mix(h ^ word);
    }
    uint64_t tail = 0;
    if (len)
        memcpy(&tail, p, len);
    return hash_mix(h ^ tail);
}
