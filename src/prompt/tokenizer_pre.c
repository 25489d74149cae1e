/* Pre-tokenisers: how a byte-level BPE model cuts text into words before it merges. The patterns
 * are those of the models' own tokenizer.json files, run by PCRE2.
 * What a newcomer gets wrong: PCRE2's \s has U+180E in it and, without UCP, nothing past ASCII.
 * These patterns mean Unicode's White_Space, so they spell it out (SPACES). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "prompt/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

struct pre_tokenizer {
    pcre2_code *code;
    pcre2_match_context *limits;
};

#define SPACES                                                                                     \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"
/* Letters and numbers as of Unicode 16, which is what the `tokenizers` library knows: PCRE2's own
 * as of Unicode 14 (10.40 to 10.42), and the ranges that came later. A text must have the same
 * tokens whatever PCRE2 is installed. ASCII stands first because a class finds it at once. */
#define LETTERS                                                                                    \
    "A-Za-z\\p{L}"                                                                                 \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NUMBERS                                                                                    \
    "0-9\\p{N}"                                                                                    \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define LETTER    "[" LETTERS "]"
#define NUMBER    "[" NUMBERS "]"
#define SPACE     "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"
#define SYMBOL    "[^" SPACES LETTERS NUMBERS "]"

/* Two ends of GPT-4's pattern, which later models share but for how they cut numbers. */
#define GPT4_WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" LETTERS NUMBERS "]?" LETTER "+|"
#define GPT4_REST                                                                                  \
    "| ?" SYMBOL "+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"

#define PATTERN_GPT2                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?" LETTER "+| ?" NUMBER "+| ?" SYMBOL "+|" SPACE "+(?!" NOT_SPACE    \
    ")|" SPACE "+"
/* Every digit is cut out first, then GPT-2's pattern sees what stands between: to it, a text ends
 * before a digit. So spaces before a digit are one word, as they are at the end of a text. Here
 * the reference has the digits of Unicode 17, because it cuts them by other means. */
#define DIGITS NUMBERS "\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}"
#define PATTERN_SMOLLM                                                                             \
    "[" DIGITS "]|'s|'t|'re|'ve|'m|'ll|'d| ?" LETTER "+| ?[^" SPACES LETTERS DIGITS "]+|" SPACE    \
    "+(?![^" SPACES DIGITS "])|" SPACE "+"
#define PATTERN_QWEN2  GPT4_WORDS NUMBER GPT4_REST
#define PATTERN_LLAMA3 GPT4_WORDS NUMBER "{1,3}" GPT4_REST

static const struct known_pre {
    const char *name, *pattern;
    struct pre_options options;
} known_pres[] = {
    {"default", PATTERN_GPT2, {false, false}}, {"gpt2", PATTERN_GPT2, {false, false}},
    {"gpt-2", PATTERN_GPT2, {false, false}},   {"smollm", PATTERN_SMOLLM, {false, false}},
    {"qwen2", PATTERN_QWEN2, {false, false}},  {"llama-bpe", PATTERN_LLAMA3, {true, true}},
    {"llama3", PATTERN_LLAMA3, {true, true}},  {"llama-v3", PATTERN_LLAMA3, {true, true}},
};

enum { N_KNOWN_PRES = sizeof known_pres / sizeof *known_pres };

static int unknown_pre(struct gguf_string name, const char *path, struct error *err)
{
    struct strbuf names = STRBUF_INIT;
    for (int i = 0; i < N_KNOWN_PRES; i++)
        strbuf_addf(&names, "%s%s", i ? ", " : "", known_pres[i].name);
    error_set(
        err, ERROR_FORMAT,
        "%s: tokenizer.ggml.pre is \"%.*s\", a pre-tokeniser that is not known; known are: %s",
        path, (int)(name.len < 64 ? name.len : 64), name.bytes, strbuf_str(&names));
    strbuf_free(&names);
    return -1;
}

int pre_tokenizer_open(struct pre_tokenizer **out, struct gguf_string name, const char *path,
                       struct pre_options *options, struct error *err)
{
    const struct known_pre *known = known_pres;
    while (known < known_pres + N_KNOWN_PRES &&
           (strlen(known->name) != name.len || memcmp(known->name, name.bytes, name.len) != 0))
        known++;
    if (known == known_pres + N_KNOWN_PRES)
        return unknown_pre(name, path, err);
    *options = known->options;
    struct pre_tokenizer *pre = calloc(1, sizeof *pre);
    if (!pre)
        return error_set(err, ERROR_MEMORY, "no memory for a pre-tokeniser");
    *out = pre;
    int code;
    size_t at;
    pre->code = pcre2_compile((PCRE2_SPTR)known->pattern, PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_ANCHORED, &code, &at, NULL);
    if (!pre->code)
        return error_set(err, ERROR_FAILED, "PCRE2 refuses the pattern of %s at %zu (error %d)",
                         known->name, at, code);
    /* The patterns look at each character a bounded number of times, so that no limit is needed;
     * the usual one would refuse ten million spaces. */
    pre->limits = pcre2_match_context_create(NULL);
    if (!pre->limits)
        return error_set(err, ERROR_MEMORY, "no memory for a pre-tokeniser");
    pcre2_set_match_limit(pre->limits, UINT32_MAX);
    /* Where code may not be made at run time this fails, and PCRE2 interprets the pattern. */
    pcre2_jit_compile(pre->code, PCRE2_JIT_COMPLETE);
    return 0;
}

void pre_tokenizer_close(struct pre_tokenizer *pre)
{
    if (!pre)
        return;
    pcre2_match_context_free(pre->limits);
    pcre2_code_free(pre->code);
    free(pre);
}

void pre_match_data_close(void *match_data)
{
    pcre2_match_data_free(match_data);
}

size_t pre_tokenizer_word(struct encoder *e, const char *text, size_t len, size_t at)
{
    const struct pre_tokenizer *pre = e->t->pre;
    if (!e->match_data && !(e->match_data = pcre2_match_data_create(1, NULL))) {
        error_set(e->err, ERROR_MEMORY, "no memory for a match");
        return 0;
    }
    int found = pcre2_match(pre->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, e->match_data,
                            pre->limits);
    if (found < 1) {
        error_set_at(e->err, ERROR_FAILED, at, "the pre-tokeniser gave up (PCRE2 error %d)", found);
        return 0;
    }
    return pcre2_get_ovector_pointer(e->match_data)[1];
}
