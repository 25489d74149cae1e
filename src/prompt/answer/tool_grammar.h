#ifndef RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_H
#define RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_H

#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"
#include "prompt/grammar/grammar.h"
#include "prompt/jinja/template_traits.h"

/* The grammar of calls: for answers that must call (tool_choice "required" or a function's name),
 * and for the rest of a call that the model started by itself. Calls are written as the template
 * renders them (template_traits) if that differs from the style's format only in white space, else
 * as the format defines. JSON arguments are canonical. So a call sent back in the next request
 * renders to the same bytes. */
struct tool_grammar_options {
    const struct answer_style *style;
    const struct template_traits *traits; /* NULL: the template is unknown */
    const struct tool_set *tools;
    const struct tool *only;           /* the function that must be called; NULL: any of the set */
    bool parallel;                     /* several calls, if format and template support them */
    const struct tokenizer *tokenizer; /* markers that are control tokens are matched as tokens;
                                          NULL: all are text */
};

/* One call (or several, if parallel), from the first byte of the first marker on. GRAMMAR_NONE and
 * `err`: ERROR_INPUT for a strict function whose schema cannot be enforced. */
grammar_expr tool_grammar_add(struct grammar_builder *b, const struct tool_grammar_options *o,
                              struct error *err);

/* The text that starts a call in an answer, such as "<tool_call>"; tool_grammar_add's texts start
 * with it. NULL: calls have no marker (TOOLS_JSON and the like), so the grammar cannot be enforced
 * in an answer that is free to call or not. */
const char *tool_grammar_trigger(const struct answer_style *style,
                                 const struct template_traits *traits);

/* An answer without calls whose content is `text`, in the style's format. */
grammar_expr answer_content_add(struct grammar_builder *b, const struct answer_style *style,
                                const struct tokenizer *t, grammar_expr text);

#endif
