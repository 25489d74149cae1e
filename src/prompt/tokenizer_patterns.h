#ifndef RADISH_PROMPT_TOKENIZER_PATTERNS_H
#define RADISH_PROMPT_TOKENIZER_PATTERNS_H

/* The regular expressions by which known families cut text into words, as tokenizer.json files
 * write them. */
#define PATTERN_GPT2                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define PATTERN_GPT4(numbers)                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                          \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_QWEN2  PATTERN_GPT4("\\p{N}")
#define PATTERN_LLAMA3 PATTERN_GPT4("\\p{N}{1,3}")

#define PATTERN_CASED(suffix, numbers)                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" suffix                                                                                     \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"    \
    "*" suffix "|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_GPT4O  PATTERN_CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")
#define PATTERN_TEKKEN PATTERN_CASED("", "\\p{N}")

/* DeepSeek V3 cuts three times. */
#define PATTERN_DEEPSEEK_NUMBERS "\\p{N}{1,3}"
#define PATTERN_DEEPSEEK_CJK     "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define PATTERN_DEEPSEEK_WORDS                                                                     \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"              \
    "\\s+(?!\\S)|\\s+"

#endif
