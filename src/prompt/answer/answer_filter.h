#ifndef RADISH_PROMPT_ANSWER_ANSWER_FILTER_H
#define RADISH_PROMPT_ANSWER_ANSWER_FILTER_H

#include "prompt/answer/answer_style.h"
#include "prompt/grammar/grammar.h"
#include "prompt/tokenizer/tokenizer.h"
#include "sched/token_filter.h"

/* What holds one answer to what its request asked for: the scheduler's token filter. An answer goes
 * through up to three phases, and the filter through them with it:
 *
 *   thinking ──end marker, or budget spent──► text ──trigger──► grammar
 *      └──────────────────────── (a grammar from the start) ──────▲
 *
 * In thinking anything goes until the budget is spent; then the end marker is written for the
 * model. In text anything goes, but for what is forbidden; when the trigger appears, a call has
 * begun, and the grammar of calls holds from there to the end. */
struct answer_filter_options {
    const struct answer_style *style;
    const struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    const struct grammar *grammar; /* NULL: none */
    const char *trigger;           /* what the grammar waits for; NULL: it holds from the start */
    const char *forbidden;         /* a text that must not appear; NULL: none */
    bool ends_in_time;             /* the grammar's texts are ended before the tokens are */
    const char *begun;             /* the answer's beginning, if the prompt has it; NULL: none */
    bool starts_in_thinking;       /* the prompt ends inside of it */
    int64_t thinking_tokens;       /* most of them; 0: no thinking; -1: any number */
};

struct answer_filter;

/* True when there is anything to hold the answer to. */
bool answer_filter_is_needed(const struct answer_filter_options *o);
int answer_filter_open(struct answer_filter **out, const struct answer_filter_options *o,
                       struct error *err);
void answer_filter_close(struct answer_filter *f); /* NULL: nothing */
struct token_filter *answer_filter_base(struct answer_filter *f);

#endif
