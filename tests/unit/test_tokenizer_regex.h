#ifndef RADISH_TEST_TOKENIZER_REGEX_H
#define RADISH_TEST_TOKENIZER_REGEX_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The pre-tokenisers as the models' own tokenizer.json files have them: regular expressions, run
 * by PCRE2. What the scanners of tokenizer/pre_tokenizer.c must be equal to.
 *
 * PCRE2's \s has U+180E in it and, without UCP, nothing past ASCII. These patterns mean Unicode's
 * White_Space, so they spell it out. */
#define REGEX_SPACES                                                                               \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
/* Letters and numbers as of Unicode 16, which is what the `tokenizers` library knows: PCRE2's own
 * as of Unicode 14 (10.40 to 10.42), and the ranges that came later. */
#define REGEX_LETTERS                                                                              \
    "A-Za-z\\p{L}"                                                                                 \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define REGEX_NUMBERS                                                                              \
    "0-9\\p{N}"                                                                                    \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define REGEX_LETTER    "[" REGEX_LETTERS "]"
#define REGEX_NUMBER    "[" REGEX_NUMBERS "]"
#define REGEX_SPACE     "[" REGEX_SPACES "]"
#define REGEX_NOT_SPACE "[^" REGEX_SPACES "]"
#define REGEX_SYMBOL    "[^" REGEX_SPACES REGEX_LETTERS REGEX_NUMBERS "]"

/* Two ends of GPT-4's pattern, which later models share except for how they cut numbers. */
#define REGEX_GPT4_WORDS                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" REGEX_LETTERS REGEX_NUMBERS "]?" REGEX_LETTER "+|"
#define REGEX_GPT4_REST                                                                            \
    "| ?" REGEX_SYMBOL "+[\\r\\n]*|" REGEX_SPACE "*[\\r\\n]+|" REGEX_SPACE "+(?!" REGEX_NOT_SPACE  \
    ")|" REGEX_SPACE "+"

#define REGEX_GPT2                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?" REGEX_LETTER "+| ?" REGEX_NUMBER "+| ?" REGEX_SYMBOL              \
    "+|" REGEX_SPACE "+(?!" REGEX_NOT_SPACE ")|" REGEX_SPACE "+"
/* Every digit is cut out first, then GPT-2's pattern sees what stands between: to it, a text ends
 * before a digit. So spaces before a digit are one word, as they are at the end of a text. Here
 * the reference has the digits of Unicode 17, because it cuts them by other means. */
#define REGEX_DIGITS REGEX_NUMBERS "\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}"
#define REGEX_SMOLLM                                                                               \
    "[" REGEX_DIGITS "]|'s|'t|'re|'ve|'m|'ll|'d| ?" REGEX_LETTER                                   \
    "+| ?[^" REGEX_SPACES REGEX_LETTERS REGEX_DIGITS "]+|" REGEX_SPACE                             \
    "+(?![^" REGEX_SPACES REGEX_DIGITS "])|" REGEX_SPACE "+"
#define REGEX_QWEN2  REGEX_GPT4_WORDS REGEX_NUMBER REGEX_GPT4_REST
#define REGEX_LLAMA3 REGEX_GPT4_WORDS REGEX_NUMBER "{1,3}" REGEX_GPT4_REST

static const struct {
    const char *name, *pattern;
} regex_pres[] = {
    {"gpt2", REGEX_GPT2},
    {"smollm", REGEX_SMOLLM},
    {"qwen2", REGEX_QWEN2},
    {"llama-bpe", REGEX_LLAMA3},
};

enum { N_REGEX_PRES = sizeof regex_pres / sizeof *regex_pres };

struct regex_pre {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_match_data *match;
};

/* Whether PCRE2 knows no characters that `tokenizers` does not know. */
static inline bool regex_is_reference(void)
{
    char version[64];
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    return atoi(version) <= 16;
}

static inline void regex_pre_open(struct regex_pre *r, int which)
{
    int code;
    size_t at;
    r->code = pcre2_compile((PCRE2_SPTR)regex_pres[which].pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_ANCHORED, &code, &at, NULL);
    r->limits = pcre2_match_context_create(NULL);
    r->match = pcre2_match_data_create(1, NULL);
    pcre2_set_match_limit(r->limits, UINT32_MAX);
    pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
}

static inline void regex_pre_close(struct regex_pre *r)
{
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    pcre2_code_free(r->code);
}

/* The end of the word that begins at `at` in `text`, which is valid UTF-8; 0: there is none. */
static inline size_t regex_pre_word(struct regex_pre *r, const char *text, size_t len, size_t at)
{
    int found = pcre2_match(r->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, r->match,
                            r->limits);
    return found < 1 ? 0 : pcre2_get_ovector_pointer(r->match)[1];
}

#endif
