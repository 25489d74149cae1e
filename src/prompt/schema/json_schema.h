#ifndef RADISH_PROMPT_SCHEMA_JSON_SCHEMA_H
#define RADISH_PROMPT_SCHEMA_JSON_SCHEMA_H

#include "base/json.h"
#include "prompt/grammar/grammar.h"

/* prompt/schema/ turns JSON Schema into grammars. */

/* JSON Schema (drafts 4 to 2020-12) as a grammar: every text of it parses and validates. Where a
 * schema cannot be held to exactly, the grammar is narrower, never wider. A keyword that cannot be
 * held to is refused by name and place ("#/properties/a: 'not' is not supported"), with
 * ERROR_INPUT. Properties come in the schema's order, those that are not named behind them. An
 * object that names properties and says nothing of others (additionalProperties) has no others:
 * models make them up, and functions do not know them. */
enum json_style {
    JSON_RELAXED, /* a space or a line feed with indentation where JSON allows white space */
    /* Exactly as Python's json.dumps(ensure_ascii=False) writes it, and so as templates' tojson
     * does: one text for each value, so that it renders to the very bytes that were sampled. */
    JSON_CANONICAL,
};

/* How a schema is read. */
enum json_schema_mode {
    SCHEMA_EXACT,   /* what cannot be held to is refused */
    SCHEMA_LENIENT, /* ... is passed over where that leaves the rest as it is */
};

/* A value that the schema allows. Schemas may be `true`, `false` or objects; `root` is what "#"
 * refers to. */
grammar_expr json_schema_add(struct grammar_builder *b, const struct json *schema,
                             const struct json *root, enum json_style style,
                             enum json_schema_mode mode, struct error *err);
/* Any JSON value; any object. */
grammar_expr json_value_add(struct grammar_builder *b, enum json_style style);
grammar_expr json_object_add(struct grammar_builder *b, enum json_style style);

/* JSON Schema's equality: numbers by value, objects whatever the order of their members. */
bool json_values_equal(const struct json *a, const struct json *b);

#endif
