/* Scanners: the regular expressions by which most byte-level BPE models split text into words, each
 * as code that looks at a character once or twice; families.c has all expressions.
 * tests/unit/test_tokenizer_regex.h has these for PCRE2, and tests compare the scanners with them.
 * Note that \s+(?!\S) leaves the last space of a run, a character of up to three bytes, to the next
 * word, unless the run is one character long (the \s+ that follows takes it) or ends the text. */
#include "prompt/tokenizer/families.h"

#include <stdlib.h>
#include <string.h>

#include "prompt/unicode/unicode_tables.h"

enum char_class { SYMBOL, LETTER, NUMBER, SPACE };

enum { N_CODES = 0x110000, CODES_A_BYTE = 4 };

typedef size_t word_scanner(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                            size_t at);

struct pre_tokenizer {
    word_scanner *scan;
    uint8_t ascii[128];                      /* enum char_class */
    uint8_t classes[N_CODES / CODES_A_BYTE]; /* the same for all characters, two bits each */
};

/* ---- characters ---- */

/* The class of the character at text[at], and its width. The text is valid UTF-8. */
static inline enum char_class class_at(const struct pre_tokenizer *pre, const unsigned char *text,
                                       size_t at, size_t *width)
{
    const unsigned char *c = text + at;
    uint32_t code;
    if (c[0] < 0x80) {
        *width = 1;
        return pre->ascii[c[0]];
    }
    if (c[0] < 0xe0) {
        *width = 2;
        code = (c[0] & 0x1fu) << 6 | (c[1] & 0x3fu);
    } else if (c[0] < 0xf0) {
        *width = 3;
        code = (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    } else {
        *width = 4;
        code = (c[0] & 0x07u) << 18 | (c[1] & 0x3fu) << 12 | (c[2] & 0x3fu) << 6 | (c[3] & 0x3fu);
    }
    return pre->classes[code / CODES_A_BYTE] >> 2 * (code % CODES_A_BYTE) & 3;
}

/* Where the run of characters of that class, starting at `at`, ends. */
static inline size_t row_end(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                             size_t at, enum char_class class)
{
    size_t width;
    while (at < len && class_at(pre, text, at, &width) == class)
        at += width;
    return at;
}

static inline bool is_newline(unsigned char c)
{
    return c == '\n' || c == '\r';
}

/* The length of the contraction ('s, 't, 're, 've, 'm, 'll, 'd) at `c`, an apostrophe; 0 if
 * none. */
static inline size_t contraction(const unsigned char *c, size_t len, bool any_case)
{
    unsigned char fold = any_case ? 0x20 : 0; /* maps only these ASCII letters to those below */
    unsigned char first = len > 1 ? c[1] | fold : 0, second = len > 2 ? c[2] | fold : 0;
    switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return second == 'e' ? 3 : 0;
    case 'l': return second == 'l' ? 3 : 0;
    }
    /* The long s, U+017F, is an s with another case. */
    return any_case && len > 2 && c[1] == 0xc5 && c[2] == 0xbf ? 3 : 0;
}

/* ---- scanners ---- */

/* \s+(?!\S)|\s+; with `cuts_digits`, a text ends before a number. */
static inline size_t spaces_end(const struct pre_tokenizer *pre, const unsigned char *text,
                                size_t len, size_t at, bool cuts_digits)
{
    size_t end = at, last = at, width = 0;
    enum char_class next = SPACE;
    while (end < len && (next = class_at(pre, text, end, &width)) == SPACE) {
        last = end;
        end += width;
    }
    bool all = end == len || last == at || (cuts_digits && next == NUMBER);
    return all ? end : last;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * With `cuts_digits`, every number is split off first, and this sees the text between them. */
static inline size_t scan_words(const struct pre_tokenizer *pre, const unsigned char *text,
                                size_t len, size_t at, bool cuts_digits)
{
    size_t width, n;
    if (text[at] == '\'' && (n = contraction(text + at, len - at, false)) > 0)
        return at + n;
    size_t from = at + (text[at] == ' ' && at + 1 < len);
    enum char_class class = class_at(pre, text, from, &width);
    if (class == SPACE || (class == NUMBER && cuts_digits && from > at))
        return spaces_end(pre, text, len, at, cuts_digits);
    if (class == NUMBER && cuts_digits)
        return from + width;
    return row_end(pre, text, len, from + width, class);
}

static size_t scan_gpt2(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                        size_t at)
{
    return scan_words(pre, text, len, at, false);
}

static size_t scan_smollm(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                          size_t at)
{
    return scan_words(pre, text, len, at, true);
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t lines_end(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                        size_t at)
{
    size_t end = at, newlines_end = at, width;
    for (; end < len && class_at(pre, text, end, &width) == SPACE; end += width)
        if (is_newline(text[end]))
            newlines_end = end + 1;
    return newlines_end > at ? newlines_end : spaces_end(pre, text, len, at, false);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}|
 *  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * GPT-4's pattern, which later models share except for how they split numbers. */
static inline size_t scan_gpt4(const struct pre_tokenizer *pre, const unsigned char *text,
                               size_t len, size_t at, unsigned max_digits)
{
    size_t width, n;
    if (text[at] == '\'' && (n = contraction(text + at, len - at, true)) > 0)
        return at + n;
    enum char_class class = class_at(pre, text, at, &width);
    size_t end = at + width;
    if (class == LETTER)
        return row_end(pre, text, len, end, LETTER);
    if (class == NUMBER) {
        for (n = 1; n < max_digits && end < len && class_at(pre, text, end, &width) == NUMBER; n++)
            end += width;
        return end;
    }
    enum char_class next = end < len ? class_at(pre, text, end, &width) : SPACE;
    if (next == LETTER && !is_newline(text[at]))
        return row_end(pre, text, len, end + width, LETTER);
    if (class == SPACE && !(text[at] == ' ' && next == SYMBOL))
        return lines_end(pre, text, len, at);
    end = row_end(pre, text, len, end, SYMBOL);
    while (end < len && is_newline(text[end]))
        end++;
    return end;
}

static size_t scan_qwen2(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                         size_t at)
{
    return scan_gpt4(pre, text, len, at, 1);
}

static size_t scan_llama3(const struct pre_tokenizer *pre, const unsigned char *text, size_t len,
                          size_t at)
{
    return scan_gpt4(pre, text, len, at, 3);
}

size_t pre_tokenizer_word(const struct pre_tokenizer *pre, const char *text, size_t len, size_t at)
{
    return pre->scan(pre, (const unsigned char *)text, len, at);
}

/* ---- by pattern ---- */

static const struct {
    word_scanner *scan;
    const char *pattern; /* NULL: no single one */
} scanners[] = {
    [SCAN_GPT2] = {scan_gpt2, PATTERN_GPT2},
    [SCAN_DIGITS_GPT2] = {scan_smollm, NULL},
    [SCAN_QWEN2] = {scan_qwen2, PATTERN_QWEN2},
    [SCAN_LLAMA3] = {scan_llama3, PATTERN_LLAMA3},
};

enum pre_scanner pre_tokenizer_known(const char *pattern, size_t len)
{
    unsigned i = 0;
    while (i < SCAN_NONE && !(scanners[i].pattern && strlen(scanners[i].pattern) == len &&
                              memcmp(scanners[i].pattern, pattern, len) == 0))
        i++;
    return (enum pre_scanner)i;
}

static void set_classes(struct pre_tokenizer *pre, struct code_set set, enum char_class class)
{
    for (const struct code_range *range = set.ranges; range < set.ranges + set.n; range++)
        for (uint32_t code = range->first; code <= range->last; code++)
            pre->classes[code / CODES_A_BYTE] |= (uint8_t)(class << 2 * (code % CODES_A_BYTE));
}

int pre_tokenizer_open(struct pre_tokenizer **out, enum pre_scanner scanner, struct error *err)
{
    struct pre_tokenizer *pre = calloc(1, sizeof *pre);
    if (!pre)
        return error_set(err, ERROR_MEMORY, "no memory for a pre-tokenizer");
    pre->scan = scanners[scanner].scan;
    set_classes(pre, letter_set, LETTER);
    set_classes(pre, number_set, NUMBER);
    set_classes(pre, space_set, SPACE);
    if (scanner == SCAN_DIGITS_GPT2)
        set_classes(pre, more_digit_set, NUMBER);
    for (unsigned code = 0; code < sizeof pre->ascii; code++)
        pre->ascii[code] = pre->classes[code / CODES_A_BYTE] >> 2 * (code % CODES_A_BYTE) & 3;
    *out = pre;
    return 0;
}

void pre_tokenizer_close(struct pre_tokenizer *pre)
{
    free(pre);
}
