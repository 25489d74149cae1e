#ifndef RADISH_PROMPT_TOKEN_TABLE_H
#define RADISH_PROMPT_TOKEN_TABLE_H

#include "base/error.h"
#include "prompt/tokenizer.h"
#include "sched/scheduler.h"

/* What the scheduler needs to know of a vocabulary, made from the tokenizer: the bytes that each
 * token adds to an answer (none for control tokens) and which tokens end it. The bytes stay the
 * tokenizer's. */
int token_table_make(struct token_table *table, const struct tokenizer *tokenizer,
                     struct error *err);
void token_table_free(struct token_table *table);

#endif
