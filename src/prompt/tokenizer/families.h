#ifndef RADISH_PROMPT_TOKENIZER_FAMILIES_H
#define RADISH_PROMPT_TOKENIZER_FAMILIES_H

#include "prompt/tokenizer/tokenizer_internal.h"

/* How families of models cut text into words before bytes merge: the one table. GGUF files name a
 * family (tokenizer.ggml.pre), tiktoken's files are known by their size, and a directory's own
 * steps have the name of the family whose steps they are.
 *
 * A family cuts several times, each cut inside the pieces of the one before. A cut is a regular
 * expression as tokenizer.json files write it, where what matches is a piece and so is what stands
 * between two matches, or one of these steps of the `tokenizers` library: */
#define CUT_DIGITS      "<digits>"      /* Digits: every number character on its own */
#define CUT_PUNCTUATION "<punctuation>" /* Punctuation: rows of it */

enum { MAX_FAMILY_NAMES = 10, MAX_CUTS = 6 };

struct pre_family {
    const char *names[MAX_FAMILY_NAMES]; /* the first is the one that is written */
    const char *cuts[MAX_CUTS];
    struct pre_options options;
};

/* The expressions that other files name, too. */
#define PATTERN_GPT2                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define PATTERN_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define PATTERN_GPT4(numbers)                                                                      \
    PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                                 \
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_QWEN2  PATTERN_GPT4("\\p{N}")
#define PATTERN_LLAMA3 PATTERN_GPT4("\\p{N}{1,3}")

/* Words whose capitals stand at their beginning. `but` takes characters out of both classes. */
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
/* The name of a family that cuts so, or NULL: `cuts` has a line feed behind each. `*exact`: its
 * options are these, too, so that tokenizer_open makes the same of the name; else it is the name by
 * which other programs cut so. */
const char *pre_family_name(const char *cuts, bool nfc, bool ignore_merges, bool *exact);
/* Lets a tokenizer that has no steps yet cut as the family does: its cuts, its normalisation, and
 * whether words that are tokens merge. */
int pre_family_apply(const struct pre_family *family, struct tokenizer *t, struct error *err);

#endif
