#ifndef RADISH_PROMPT_GRAMMAR_TEXT_GRAMMAR_H
#define RADISH_PROMPT_GRAMMAR_TEXT_GRAMMAR_H

#include "prompt/grammar/grammar.h"

/* Grammars written as text. Each returns the expression, or GRAMMAR_NONE and `err` (ERROR_INPUT
 * with the position in the text and what is wrong there, or ERROR_LIMIT). */

/* llama.cpp's GBNF: rules, strings, classes, groups, alternatives, * + ? {m,n}, comments. The
 * grammar starts at the rule "root". */
grammar_expr gbnf_add(struct grammar_builder *b, const char *text, size_t len, struct error *err);

/* A regular expression that the whole text must match (^ and $ at its ends change nothing).
 * Unsupported features (look-around, back references, \b) are rejected by name. */
grammar_expr regex_add(struct grammar_builder *b, const char *text, size_t len, struct error *err);

/* One of these texts. */
grammar_expr choices_add(struct grammar_builder *b, const char *const *texts, const size_t *lens,
                         size_t n, struct error *err);

#endif
