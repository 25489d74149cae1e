#ifndef RADISH_PROMPT_SCHEMA_JSON_TEXT_H
#define RADISH_PROMPT_SCHEMA_JSON_TEXT_H

#include "base/arena.h"
#include "base/json.h"
#include "prompt/grammar/grammar.h"
#include "prompt/schema/json_schema.h"

/* Digits of an unbounded integer: enough for 128 bits. */
enum { JSON_INTEGER_DIGITS = 40 };

/* The parts of all JSON texts of one builder and style; made once, then shared. */
struct json_text {
    struct grammar_builder *b;
    struct arena *arena;
    enum json_style style;
    grammar_expr space;          /* white space inside a bracket and after a comma */
    grammar_expr comma;          /* between members, with the space after it */
    grammar_expr colon;          /* between key and value */
    grammar_expr quote;          /* " */
    grammar_expr character;      /* one character of a string, escaped if necessary */
    grammar_expr characters;     /* any number of them */
    grammar_expr key_characters; /* the same without escapes: each key has one spelling */
    grammar_expr string, integer, number, boolean, null;
    grammar_expr object, array, value; /* any */
};

void json_text_init(struct json_text *t, struct grammar_builder *b, struct arena *arena,
                    enum json_style style);

/* Exactly this string, in quotes; exactly this value. */
grammar_expr json_text_string(struct json_text *t, const char *bytes, size_t len);
grammar_expr json_text_value(struct json_text *t, const struct json *value);
/* Non-empty `content` between brackets; and empty brackets. */
grammar_expr json_text_brackets(struct json_text *t, char open, char close, grammar_expr content);
grammar_expr json_text_empty(struct json_text *t, char open, char close);
grammar_expr json_text_quoted(struct json_text *t, grammar_expr content);
grammar_expr json_text_member(struct json_text *t, grammar_expr key, grammar_expr value);

/* Shorthands for common builder calls. */
grammar_expr grammar_pair(struct grammar_builder *b, grammar_expr first, grammar_expr second);
grammar_expr grammar_either(struct grammar_builder *b, grammar_expr one, grammar_expr other);
grammar_expr grammar_optional(struct grammar_builder *b, grammar_expr e);
grammar_expr grammar_text(struct grammar_builder *b, const char *text);
/* Any one character of an ASCII text. */
grammar_expr grammar_one_of(struct grammar_builder *b, const char *characters);
grammar_expr grammar_digits(struct grammar_builder *b, char first, char last, uint32_t min,
                            uint32_t max);

#endif
