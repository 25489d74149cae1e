#ifndef RADISH_PROMPT_SCHEMA_JSON_SCHEMA_H
#define RADISH_PROMPT_SCHEMA_JSON_SCHEMA_H

#include "base/json.h"
#include "prompt/grammar/grammar.h"

/* prompt/schema/ turns JSON Schema into grammars. */

/* Compiles JSON Schema (drafts 4 to 2020-12) to a grammar: every text that the grammar accepts
 * parses and validates. Where a schema cannot be expressed exactly, the grammar is narrower, never
 * wider. An unsupported keyword is rejected by name and place ("#/properties/a: 'not' is not
 * supported"), with ERROR_INPUT. Properties come in the schema's order, followed by those it does
 * not name. If an object names properties and does not mention others (additionalProperties), no
 * others are allowed: models invent them, and functions do not expect them. */
enum json_style {
    JSON_RELAXED, /* a space or a line feed with indentation where JSON allows white space */
    /* Exactly what Python's json.dumps(ensure_ascii=False) and the templates' tojson write: one
     * text for each value, so that rendering it gives the bytes that were sampled. */
    JSON_CANONICAL,
};

/* What happens to unsupported keywords. */
enum json_schema_mode {
    SCHEMA_EXACT,   /* they are rejected */
    SCHEMA_LENIENT, /* they are ignored, if the rest keeps its meaning */
};

/* The grammar of the values that the schema allows. A schema is `true`, `false` or an object; "#"
 * refers to `root`. */
grammar_expr json_schema_add(struct grammar_builder *b, const struct json *schema,
                             const struct json *root, enum json_style style,
                             enum json_schema_mode mode, struct error *err);
/* Any JSON value; any object. */
grammar_expr json_value_add(struct grammar_builder *b, enum json_style style);
grammar_expr json_object_add(struct grammar_builder *b, enum json_style style);

/* JSON Schema's equality: numbers compare by value, objects regardless of member order. */
bool json_values_equal(const struct json *a, const struct json *b);

#endif
