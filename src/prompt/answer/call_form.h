#ifndef RADISH_PROMPT_ANSWER_CALL_FORM_H
#define RADISH_PROMPT_ANSWER_CALL_FORM_H

#include "prompt/answer/answer_style.h"
#include "prompt/jinja/template_traits.h"

/* How a format writes calls: what call_write writes and tool_grammar_add enforces.
 *
 *   first <name> middle <arguments> [ between <name> middle <arguments> ]* last
 *
 *   JSON      {"a": 1, "b": "x"}           canonical, as in json.dumps(ensure_ascii=False)
 *   TAGGED    { key_begin <name> key_end <value> value_end }*
 *             strings raw, other values as JSON
 *   PYTHON    a=1, b="x"
 *   ESCAPED   a:1,b:<quote>x<quote>        for Gemma, nested the same way */
enum call_arguments { CALL_JSON, CALL_TAGGED, CALL_PYTHON, CALL_ESCAPED };

struct call_form {
    const char *token;   /* only in vocabularies of models with this form; NULL: none */
    const char *trigger; /* the start of `first`, which only calls have; NULL: none */
    const char *first, *middle;
    const char *between; /* NULL: one call only */
    const char *last;
    enum call_arguments arguments;
    const char *key_begin, *key_end, *value_end; /* TAGGED */
    const char *value_close; /* TAGGED: ends a value, after value_end and the name; NULL: unused */
    const char *raw_end;     /* TAGGED: not in any string, starts with '<'; NULL: the ends */
    const char *string_key_end; /* TAGGED: before strings; NULL: the same */
    const char *typed_key_end;  /* TAGGED: follows key_end and the name of the value's type; NULL:
                                   nothing does */
    const char *quote;          /* ESCAPED */
    bool is_numbered;           /* ":0", ":1", ... between the name and `middle` */
};

/* The format's form; if it has several, the template's (`traits` may be NULL). */
const struct call_form *call_form_find(enum tool_format format,
                                       const struct template_traits *traits);

/* True if two texts are equal except for white space. */
bool equal_but_space(const char *a, const char *b);

/* A value as Python's json.dumps(ensure_ascii=False) writes it. */
void json_write_canonical(struct strbuf *out, const struct json *value);
/* The same as an argument in the form. */
void call_value_write(struct strbuf *out, const struct call_form *f, const struct json *value);

/* Writes the next call of a message: `index` counts them. The caller writes the form's end after
 * the last one. */
void call_form_write(struct strbuf *out, const struct call_form *f, size_t index, const char *name,
                     size_t name_len, const struct json *arguments);

/* Appends a call in the style's format, with canonical JSON if it uses JSON. `arguments` is an
 * object. */
void call_write(struct strbuf *out, enum tool_format format, const char *name, size_t name_len,
                const struct json *arguments);

/* Call this after template_traits_find. It finds in the vocabulary what the template does not show
 * about the form of calls (many templates expect calls as text). 0, or -1 if out of memory. */
int template_traits_complete(struct template_traits *t, const struct answer_style *style,
                             const struct tokenizer *tokenizer, struct error *err);

/* Appends what comes between a parameter's name and a value of that type. */
void call_key_end_write(struct strbuf *out, const struct call_form *f, enum json_type type);

#endif
