/* Character classes as the `tokenizers` library defines them, and the ways vocabularies spell
 * bytes. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <string.h>

#include "base/utf8.h"
#include "prompt/unicode/unicode_tables.h"

bool char_is_space(uint32_t code)
{
    return code < 128 ? code == ' ' || (code >= 9 && code <= 13)
                      : code_set_contains(space_set, code);
}

bool char_is_word(uint32_t code)
{
    return code_set_contains(word_set, code);
}

bool char_is_numeric(uint32_t code)
{
    return code < 128
               ? code >= '0' && code <= '9'
               : code_set_contains(number_set, code) || code_set_contains(more_digit_set, code);
}

bool char_is_punctuation(uint32_t code)
{
    return code_set_contains(punctuation_set, code);
}

bool char_nfc_may_change(uint32_t code)
{
    return code >= 0x300 && code_set_contains(nfc_set, code);
}

bool char_forms_may_change(uint32_t code)
{
    return code >= 0xa0 && code_set_contains(nfkd_set, code);
}

/* ---- spellings of bytes ---- */

/* The byte that a character of the byte-level alphabet stands for, or -1. Printable Latin-1
 * characters stand for themselves; the other bytes, in order, are the code points from 256 on. */
static int alphabet_byte(uint32_t code)
{
    static const unsigned char gaps[][2] = {{0, 32}, {127, 160}, {173, 173}};
    uint32_t at = 256;
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        uint32_t first = gaps[i][0], last = gaps[i][1];
        if (code >= at && code <= at + last - first)
            return (int)(first + code - at);
        if (code >= first && code <= last)
            return -1;
        at += last - first + 1;
    }
    return code < 256 ? (int)code : -1;
}

size_t bytes_from_alphabet(char *to, const char *from, size_t len)
{
    size_t n = 0, width;
    for (size_t i = 0; i < len; i += width) {
        width = 1;
        if (from[i] > ' ' && from[i] < 127) {
            to[n++] = from[i];
            continue;
        }
        width = utf8_valid_prefix(from + i, len - i);
        int byte = width ? alphabet_byte(utf8_decode(from + i, width)) : -1;
        if (byte < 0)
            return 0;
        to[n++] = (char)byte;
    }
    return n;
}

size_t bytes_from_marks(char *to, const char *from, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        bool mark = len - i >= SPACE_MARK_LEN && memcmp(from + i, SPACE_MARK, SPACE_MARK_LEN) == 0;
        to[n++] = mark ? ' ' : from[i];
        i += mark ? SPACE_MARK_LEN : 1;
    }
    return n;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int fallback_byte(struct byte_view spelling)
{
    const char *s = spelling.bytes;
    if (spelling.len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}
