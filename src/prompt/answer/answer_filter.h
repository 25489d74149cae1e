#ifndef RADISH_PROMPT_ANSWER_ANSWER_FILTER_H
#define RADISH_PROMPT_ANSWER_ANSWER_FILTER_H

#include "prompt/answer/answer_style.h"
#include "prompt/grammar/grammar.h"
#include "prompt/tokenizer/tokenizer.h"
#include "sched/token_filter.h"

/* The scheduler's token filter for one answer: it enforces what the request asked for. An answer
 * goes through up to three phases, and the filter follows it:
 *
 *   thinking ──end marker, or budget spent──► text ──trigger──► grammar
 *      └──────────────────────── (a grammar from the start) ──────▲
 *
 * Thinking is free until its budget is spent; then the filter forces the end marker. Text is free
 * except for what is forbidden. The trigger starts a call: from there to the end the grammar of
 * calls applies. */
struct answer_filter_options {
    const struct answer_style *style;
    const struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    const struct grammar *grammar; /* NULL: none */
    const char *trigger;           /* the grammar applies after it; NULL: from the start */
    const char *forbidden;         /* a text that must not appear; NULL: none */
    bool ends_in_time;             /* the grammar's text is completed before the tokens run out */
    const char *begun;             /* the start of the answer, if the prompt has it; NULL: none */
    bool starts_in_thinking;       /* the prompt ends inside thinking */
    int64_t thinking_tokens;       /* limit; 0: no thinking; -1: none */
};

struct answer_filter;

/* False: nothing constrains the answer. */
bool answer_filter_is_needed(const struct answer_filter_options *o);
int answer_filter_open(struct answer_filter **out, const struct answer_filter_options *o,
                       struct error *err);
void answer_filter_close(struct answer_filter *f); /* NULL does nothing */
struct token_filter *answer_filter_base(struct answer_filter *f);

#endif
