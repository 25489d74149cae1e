#ifndef RADISH_BASE_UTF8_H
#define RADISH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The length (1..4) of the well-formed sequence at the start of `bytes`, or 0: no overlong forms,
 * no surrogates, nothing past U+10FFFF. */
size_t utf8_valid_prefix(const char *bytes, size_t len);

/* Where `bytes` are not well-formed: how many of them (0..3) can begin a character. One U+FFFD
 * replaces that many bytes, but at least one: Unicode's maximal subparts. */
size_t utf8_begun_prefix(const char *bytes, size_t len);

/* Whether all of it is well-formed. */
bool utf8_is_valid(const char *bytes, size_t len);

/* Decodes a well-formed sequence of that length. */
uint32_t utf8_decode(const char *bytes, size_t width);

/* Writes the code point to `out` (up to 4 bytes) and returns its length. */
size_t utf8_encode(uint32_t code, char *out);

#endif
