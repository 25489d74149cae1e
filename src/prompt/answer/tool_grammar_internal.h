#ifndef RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_INTERNAL_H
#define RADISH_PROMPT_ANSWER_TOOL_GRAMMAR_INTERNAL_H

#include "prompt/answer/call_form.h"
#include "prompt/answer/tool_grammar.h"
#include "prompt/schema/json_schema.h"

enum { MAX_REFERENCES = 64 }; /* of a function, outside JSON */

/* A grammar of calls being built, shared by its files. */
struct call_grammar {
    struct grammar_builder *b;
    const struct call_form *form;
    const struct tokenizer *tokenizer;
    const struct tool *tool; /* the function whose arguments are being built */
    grammar_expr raw;        /* the text of strings, once needed */
    /* Referenced schemas of the tool, perhaps recursive, and their rules. */
    struct {
        const struct json *schema;
        grammar_expr rule;
    } references[MAX_REFERENCES];
    size_t n_references;
    struct error *err;
};

/* Both take a text with control tokens spelled out, which are matched as tokens. */
grammar_expr call_text_add(const struct call_grammar *g, const char *text, size_t len);
grammar_expr call_string_add(const struct call_grammar *g, const char *text);

/* The arguments of g->tool in the form's notation. GRAMMAR_NONE: `err` says why. */
grammar_expr call_arguments_add(struct call_grammar *g);
/* Any text that does not contain what would end a string of the form. */
grammar_expr call_raw_text_add(struct call_grammar *g);

#endif
