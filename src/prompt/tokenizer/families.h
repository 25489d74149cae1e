#ifndef RADISH_PROMPT_TOKENIZER_FAMILIES_H
#define RADISH_PROMPT_TOKENIZER_FAMILIES_H

#include "prompt/tokenizer/tokenizer_internal.h"

/* The table of how model families cut text into words before bytes merge. GGUF files name a family
 * (tokenizer.ggml.pre), tiktoken files are recognised by their size, and the steps of a directory
 * are matched to the family that has the same ones.
 *
 * A family cuts several times, each cut inside the pieces of the one before. A cut is a regular
 * expression as in tokenizer.json, where each match is a piece and so is the text between two
 * matches, or one of these steps of the `tokenizers` library: */
#define CUT_DIGITS      "<digits>"      /* Digits: each number character alone */
#define CUT_PUNCTUATION "<punctuation>" /* Punctuation: runs of it */

enum { MAX_FAMILY_NAMES = 10, MAX_CUTS = 6 };

struct pre_family {
    const char *names[MAX_FAMILY_NAMES]; /* the first one is used in output */
    const char *cuts[MAX_CUTS];
    struct pre_options options;
};

/* Expressions that other files use, too. */
#define PATTERN_GPT2                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define PATTERN_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define PATTERN_GPT4(numbers)                                                                      \
    PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                                 \
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_QWEN2  PATTERN_GPT4("\\p{N}")
#define PATTERN_LLAMA3 PATTERN_GPT4("\\p{N}{1,3}")

/* Words whose capitals come first. `but` removes characters from both classes. */
#define PATTERN_CASED_WORDS(but, suffix)                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" but                                \
    "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" but "]+" suffix                                               \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" but                               \
    "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" but "]*" suffix "|"
#define PATTERN_CASED_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_GPT4O                                                                              \
    PATTERN_CASED_WORDS("", PATTERN_CONTRACTIONS "?") "\\p{N}{1,3}" PATTERN_CASED_REST
#define PATTERN_TEKKEN PATTERN_CASED_WORDS("", "") "\\p{N}" PATTERN_CASED_REST
#define PATTERN_KIMI                                                                               \
    "[\\p{Han}]+|" PATTERN_CASED_WORDS(                                                            \
        "&&[^\\p{Han}]", PATTERN_CONTRACTIONS                                                      \
        "?") "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The family of that name, or NULL. */
const struct pre_family *pre_family_find(const char *name, size_t len);
/* The name of a family with these cuts, or NULL; `cuts` has a line feed after each. `*exact`: the
 * family also has these options, so tokenizer_open makes the same tokenizer from the name;
 * otherwise, the name only makes other programs cut the same way. */
const char *pre_family_name(const char *cuts, bool nfc, bool ignore_merges, bool *exact);
/* Gives a tokenizer that has no steps yet the family's cuts, its normalisation, and its rule for
 * merging words that are tokens. */
int pre_family_apply(const struct pre_family *family, struct tokenizer *t, struct error *err);

#endif
