#ifndef RADISH_PROMPT_TOKENIZER_PATTERN_H
#define RADISH_PROMPT_TOKENIZER_PATTERN_H

#include "base/error.h"
#include "base/strbuf.h"

/* Oniguruma's character sets, written as members of a PCRE2 class: what goes between [ and ]. A
 * negated set is all other characters, whatever else the class contains. */

/* \p{L} or \p{Nd}, including characters added after Unicode 14; negated, those are right for L, N
 * and Nd only. */
void regex_add_category(struct strbuf *out, const char *category, bool negated);
void regex_add_digits(struct strbuf *out, bool negated);     /* \d */
void regex_add_spaces(struct strbuf *out, bool negated);     /* \s */
void regex_add_hex_digits(struct strbuf *out, bool negated); /* \h */
void regex_add_word(struct strbuf *out, bool negated);       /* \w in a class */
/* \w outside a class, which also contains six fractions and powers. */
void regex_add_lone_word(struct strbuf *out);
/* [:name:], [:^name:]; -1: no such set, or it cannot be written. */
int regex_add_posix(struct strbuf *out, const char *name, size_t len, bool negated,
                    struct error *err);

#endif
