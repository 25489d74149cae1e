#ifndef RADISH_PROMPT_UNICODE_UNICODE_H
#define RADISH_PROMPT_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* prompt/unicode/ deals with characters: tables and sets of code points, and streams of UTF-8. */

/* Characters as Python's str sees them. Text is UTF-8; a byte that is not part of a well-formed
 * sequence counts as one character, U+FFFD, so that every walk ends. */

/* The width (1..4) of the character at the start of `bytes` (len > 0), and its code point. */
size_t unicode_next(const char *bytes, size_t len, uint32_t *code);
/* The width of the last character of `bytes` (len > 0). */
size_t unicode_last(const char *bytes, size_t len, uint32_t *code);
size_t unicode_count(const char *bytes, size_t len); /* characters */

bool unicode_is_space(uint32_t code);
bool unicode_is_line_end(uint32_t code); /* what splitlines() splits at */
bool unicode_is_alpha(uint32_t code);
bool unicode_is_decimal(uint32_t code);
bool unicode_is_digit(uint32_t code);
bool unicode_is_numeric(uint32_t code);
bool unicode_is_printable(uint32_t code);
bool unicode_is_upper(uint32_t code);
bool unicode_is_lower(uint32_t code);

/* Writes the UTF-8 of the mapped character, up to UNICODE_CASE_MAX bytes; returns how many. */
enum { UNICODE_CASE_MAX = 12 };
size_t unicode_upper(uint32_t code, char *out);
size_t unicode_lower(uint32_t code, char *out);
size_t unicode_title(uint32_t code, char *out);

#endif
