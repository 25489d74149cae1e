#ifndef RADISH_PROMPT_TOKEN_TABLE_H
#define RADISH_PROMPT_TOKEN_TABLE_H

#include "base/error.h"
#include "prompt/answer/answer_style.h"
#include "prompt/grammar/grammar.h"
#include "prompt/tokenizer/tokenizer.h"
#include "sched/scheduler.h"

/* What the scheduler needs to know of a vocabulary, made from the tokenizer: the bytes that each
 * token adds to an answer (none for control tokens, but for those that mark thinking and calls in
 * the style; NULL: none do) and which tokens end it. The bytes stay the tokenizer's. */
int token_table_make(struct token_table *table, const struct tokenizer *tokenizer,
                     const struct answer_style *style, struct error *err);
void token_table_free(struct token_table *table);

/* The same for grammars: what each token is spelled like, and which are special or end an answer.
 */
int token_vocabulary_open(struct grammar_vocabulary **out, const struct tokenizer *tokenizer,
                          struct error *err);

#endif
