#ifndef RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_H
#define RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_H

#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"
#include "prompt/grammar/grammar.h"
#include "prompt/jinja/template_traits.h"

/* The grammar of calls: what an answer must be when it has to call (tool_choice "required" or a
 * function's name), and how a call that it began of its own accord goes on. It is written as the
 * template renders calls (template_traits) where that is the style's format but for white space,
 * else as the format has it, with arguments in canonical JSON where they are JSON: when the call
 * comes back in the next request, it renders to the same bytes. */
struct tool_grammar_options {
    const struct answer_style *style;
    const struct template_traits *traits; /* NULL: nothing is known of the template */
    const struct tool_set *tools;
    const struct tool *only;           /* the function that must be called; NULL: any of the set */
    bool parallel;                     /* several calls in a row, where format and template can */
    const struct tokenizer *tokenizer; /* markers that are control tokens are matched as tokens;
                                          NULL: all are text */
};

/* One call or, in parallel, more, from the first byte of the first marker on. GRAMMAR_NONE and
 * `err`: ERROR_INPUT for a strict function whose schema cannot be held to. */
grammar_expr tool_grammar_add(struct grammar_builder *b, const struct tool_grammar_options *o,
                              struct error *err);

/* The text whose appearance in an answer begins a call (the beginning of tool_grammar_add's texts),
 * such as "<tool_call>". NULL: calls have no marker (TOOLS_JSON and the like), so that an answer
 * that is free to call or not cannot be held to the grammar. */
const char *tool_grammar_trigger(const struct answer_style *style,
                                 const struct template_traits *traits);

/* An answer that calls nothing and whose content is `text`, as the style writes it. */
grammar_expr answer_content_add(struct grammar_builder *b, const struct answer_style *style,
                                const struct tokenizer *t, grammar_expr text);

#endif
