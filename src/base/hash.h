#ifndef RADISH_BASE_HASH_H
#define RADISH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* For hash tables and random numbers; not for anything where an attacker could profit from
 * collisions. */

/* A bijective mix of 64 bits: every input bit affects every output bit (splitmix64's finalizer). */
static inline uint64_t hash_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t hash_pair(uint64_t a, uint64_t b)
{
    return hash_mix(hash_mix(a) ^ b);
}

uint64_t hash_bytes(const void *bytes, size_t len);

#endif
