#include "base/hash.h"

#include <stdlib.h>

#include "test.h"

TEST(hash, mix_is_splitmix64)
{
    /* The first outputs of splitmix64 from the state 0, as published with it. */
    CHECK(hash_mix(0) == 0xe220a8397b1dcdafu);
    CHECK(hash_mix(0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
    CHECK(hash_mix(2 * 0x9e3779b97f4a7c15u) == 0x06c45d188009454fu);
}

TEST(hash, every_bit_moves_about_half_of_the_bits)
{
    for (int bit = 0; bit < 64; bit++) {
        int moved = 0, moved_pair = 0;
        for (uint64_t x = 0; x < 256; x++) {
            uint64_t y = x ^ (uint64_t)1 << bit;
            moved += __builtin_popcountll(hash_mix(x) ^ hash_mix(y));
            moved_pair += __builtin_popcountll(hash_pair(x, 5) ^ hash_pair(y, 5));
        }
        CHECK(moved > 30 * 256 && moved < 34 * 256);
        CHECK(moved_pair > 30 * 256 && moved_pair < 34 * 256);
    }
}

TEST(hash, pairs_have_an_order)
{
    CHECK(hash_pair(1, 2) != hash_pair(2, 1));
    CHECK(hash_pair(0, 0) != hash_pair(0, 1));
    CHECK(hash_pair(0, 0) != hash_pair(1, 0));
}

static int compare_words(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

TEST(hash, bytes_differ_by_content_and_by_length)
{
    enum { N = 40 };
    static const char zeros[N];
    char changed[N] = {0};
    uint64_t seen[2 * N + 1];
    size_t n = 0;
    for (size_t len = 0; len <= N; len++)
        seen[n++] = hash_bytes(zeros, len);
    for (size_t at = 0; at < N; at++) {
        changed[at] = 1;
        seen[n++] = hash_bytes(changed, N);
        changed[at] = 0;
    }
    qsort(seen, n, sizeof *seen, compare_words);
    for (size_t i = 1; i < n; i++)
        CHECK(seen[i] != seen[i - 1]);
}

TEST(hash, bytes_do_not_care_where_they_are)
{
    char text[] = "The quick brown fox jumps over the lazy dog", copy[64];
    for (size_t shift = 0; shift < 9; shift++) {
        for (size_t len = 0; len < sizeof text; len++) {
            memcpy(copy + shift, text, len);
            CHECK(hash_bytes(copy + shift, len) == hash_bytes(text, len));
        }
    }
}

TEST(hash, bytes_reads_no_byte_too_many)
{
    for (size_t len = 0; len < 33; len++) {
        char *exact = malloc(len ? len : 1); /* the address sanitizer guards the byte after it */
        CHECK(exact);
        memset(exact, 'a', len);
        hash_bytes(exact, len);
        free(exact);
    }
    CHECK(hash_bytes(NULL, 0) == hash_bytes("", 0));
}
