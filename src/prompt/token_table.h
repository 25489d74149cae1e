#ifndef RADISH_PROMPT_TOKEN_TABLE_H
#define RADISH_PROMPT_TOKEN_TABLE_H

#include "base/error.h"
#include "prompt/answer/answer_style.h"
#include "prompt/grammar/grammar.h"
#include "prompt/tokenizer/tokenizer.h"
#include "sched/scheduler.h"

/* What the scheduler needs from a vocabulary: the bytes that each token adds to an answer, and
 * which tokens end it. Control tokens add none, except the style's markers of thinking and calls
 * (NULL: no markers). The bytes belong to the tokenizer. */
int token_table_make(struct token_table *table, const struct tokenizer *tokenizer,
                     const struct answer_style *style, struct error *err);
void token_table_free(struct token_table *table);

/* The same for grammars: the spelling of each token, and which are special or end an answer. */
int token_vocabulary_open(struct grammar_vocabulary **out, const struct tokenizer *tokenizer,
                          struct error *err);

#endif
