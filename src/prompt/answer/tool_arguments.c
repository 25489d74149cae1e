/* The grammar of a call's arguments, in each form's notation, constrained by the function's schema.
 * Built on a worker. json_schema.h handles JSON; this file handles the other notations:
 *
 *   TAGGED    <parameter=a>\n1\n</parameter>      values are raw text or JSON
 *   PYTHON    a=1, b=["x", True]
 *   ESCAPED   a:1,b:[<escape>x<escape>,true]
 *
 * Raw text must not contain anything that the answer parser would take for its end, or the call
 * would be parsed as a different one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "prompt/answer/tool_grammar_internal.h"

enum {
    MAX_ENDS = 4, /* texts that a raw text must not contain */
    MAX_PREFIXES = 128,
};

static const struct json *object_member(const struct json *object, const char *key)
{
    const struct json *member = json_get(object, key);
    return json_is(member, JSON_OBJECT) ? member : NULL;
}

/* ---- schemas ---- */

#define TYPE_BIT(type) (1u << (type))
enum { TYPES_ALL = TYPE_BIT(JSON_OBJECT + 1) - 1 };

static unsigned type_bit(const struct json *name)
{
    static const struct {
        const char *name;
        enum json_type type;
    } types[] = {{"null", JSON_NULL},     {"boolean", JSON_BOOL},  {"integer", JSON_NUMBER},
                 {"number", JSON_NUMBER}, {"string", JSON_STRING}, {"array", JSON_ARRAY},
                 {"object", JSON_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_equals(name, types[i].name))
            return TYPE_BIT(types[i].type);
    return 0;
}

/* The types that a schema names; all types if it names none. */
static unsigned schema_types(const struct json *schema)
{
    const struct json *type = json_get(schema, "type"), *options = json_get(schema, "anyOf");
    const struct json *values = json_get(schema, "enum"), *value = json_get(schema, "const");
    unsigned types = type_bit(type);
    if (json_is(type, JSON_ARRAY)) {
        json_each (name, type)
            types |= type_bit(name);
    } else if (!type && value) {
        types = TYPE_BIT(value->type);
    } else if (!type && json_is(values, JSON_ARRAY)) {
        json_each (v, values)
            types |= TYPE_BIT(v->type);
    } else if (!type && json_is(options, JSON_ARRAY)) {
        json_each (option, options)
            types |= schema_types(option);
    }
    return types ? types : TYPES_ALL;
}

/* The first keyword that is neither in the list nor an annotation; NULL: none. */
static const char *keyword_beyond(const struct json *schema, const char *const *known)
{
    static const char *const notes[] = {
        "description", "title",       "default",    "examples", "$schema",   "$id", "$comment",
        "$defs",       "definitions", "deprecated", "readOnly", "writeOnly", NULL};
    for (const struct json *m = schema->first; m && schema->type == JSON_OBJECT; m = m->next) {
        bool found = false;
        for (size_t i = 0; notes[i] && !found; i++)
            found = strcmp(m->key, notes[i]) == 0;
        for (size_t i = 0; known[i] && !found; i++)
            found = strcmp(m->key, known[i]) == 0;
        if (!found)
            return m->key;
    }
    return NULL;
}

static bool is_required(const struct json *schema, const struct json *property)
{
    const struct json *names = json_get(schema, "required");
    if (!json_is(names, JSON_ARRAY))
        return false;
    json_each (name, names)
        if (json_is(name, JSON_STRING) &&
            byte_view_equal(json_bytes(name), (struct byte_view){property->key, property->key_len}))
            return true;
    return false;
}

/* Rejects a strict function if its schema cannot be enforced exactly. */
static bool refuse(const struct call_grammar *g, const char *keyword)
{
    if (!g->tool->strict)
        return false;
    error_set(
        g->err, ERROR_INPUT,
        "the parameters of the strict function '%.64s' use '%.64s', which cannot be enforced in "
        "this model's call format: remove it, or remove 'strict'",
        g->tool->name, keyword);
    return true;
}

/* ---- raw text ---- */

/* What the answer parser takes for the end of a string: the form's own end, and what it accepts if
 * that is missing. All start with their only '<'. */
static size_t raw_ends(const struct call_form *f, const char *ends[MAX_ENDS])
{
    if (f->arguments == CALL_ESCAPED) {
        ends[0] = f->quote;
        return 1;
    }
    if (f->raw_end) {
        ends[0] = f->raw_end;
        return 1;
    }
    size_t n = 0;
    ends[n++] = strchr(f->value_end, '<');
    ends[n++] = f->key_begin;
    ends[n++] = strchr(f->last, '<');
    return n;
}

/* The length of a tag without the line feed after it. */
static size_t tag_length(const char *tag)
{
    return strcspn(tag, "\n");
}

/* The code points with which ends continue after one of their prefixes. */
static size_t codes_behind(const char *const *ends, size_t n, const char *prefix, size_t len,
                           uint32_t codes[MAX_ENDS])
{
    size_t n_codes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t left = tag_length(ends[i]);
        if (left > len && memcmp(ends[i], prefix, len) == 0) {
            size_t width = utf8_valid_prefix(ends[i] + len, left - len);
            codes[n_codes++] = utf8_decode(ends[i] + len, width);
        }
    }
    return n_codes;
}

/* One code point, except these and '<'. */
static grammar_expr others_add(struct grammar_builder *b, const uint32_t *codes, size_t n)
{
    struct code_range ranges[MAX_ENDS + 1] = {{'<', '<'}};
    for (size_t i = 0; i < n; i++)
        ranges[i + 1] = (struct code_range){codes[i], codes[i]};
    return grammar_class(b, ranges, n + 1, true);
}

/* True if one of the ends before `i` has the same first bytes. */
static bool is_repeated(const char *const *ends, size_t i, size_t len)
{
    for (size_t j = 0; j < i; j++)
        if (tag_length(ends[j]) > len && memcmp(ends[j], ends[i], len) == 0)
            return true;
    return false;
}

/* Built from the proper prefixes of the ends, each of which starts with its only '<':
 *
 *   ( [^<] | prefix* prefix [^<, nor what continues an end] )* prefix*
 *
 * A prefix is followed by the '<' of another one, or by a character that rules out an end. */
grammar_expr call_raw_text_add(struct call_grammar *g)
{
    if (g->raw != GRAMMAR_NONE)
        return g->raw;
    struct grammar_builder *b = g->b;
    const char *ends[MAX_ENDS];
    size_t n_ends = raw_ends(g->form, ends), n = 0;
    grammar_expr prefixes[MAX_PREFIXES], broken[MAX_PREFIXES];
    for (size_t i = 0; i < n_ends; i++) {
        size_t end = tag_length(ends[i]);
        for (size_t len = 1; len < end; len += utf8_valid_prefix(ends[i] + len, end - len)) {
            if (is_repeated(ends, i, len))
                continue;
            uint32_t codes[MAX_ENDS];
            size_t n_codes = codes_behind(ends, n_ends, ends[i], len, codes);
            grammar_expr parts[2] = {grammar_literal(b, ends[i], len),
                                     others_add(b, codes, n_codes)};
            assert(n < MAX_PREFIXES);
            prefixes[n] = parts[0];
            broken[n++] = grammar_sequence(b, parts, 2);
        }
    }
    grammar_expr any_prefix = grammar_repeat(b, grammar_choice(b, prefixes, n), 0, GRAMMAR_NO_MAX);
    grammar_expr detour[2] = {any_prefix, grammar_choice(b, broken, n)};
    grammar_expr step[2] = {others_add(b, NULL, 0), grammar_sequence(b, detour, 2)};
    grammar_expr whole[2] = {grammar_repeat(b, grammar_choice(b, step, 2), 0, GRAMMAR_NO_MAX),
                             any_prefix};
    g->raw = grammar_rule(b);
    grammar_define(b, g->raw, grammar_sequence(b, whole, 2));
    return g->raw;
}

/* ---- values ---- */

static grammar_expr value_add(struct call_grammar *g, const struct json *schema);

/* A value that the schema lists, in the form's notation. Only its quotes may be control tokens. */
static grammar_expr listed_add(struct call_grammar *g, const struct json *value)
{
    struct strbuf text = STRBUF_INIT;
    grammar_expr e = GRAMMAR_NONE;
    call_value_write(&text, g->form, value);
    if (!text.failed && g->form->arguments == CALL_ESCAPED)
        e = call_text_add(g, strbuf_str(&text), text.len);
    else if (!text.failed)
        e = text.len ? grammar_literal(g->b, strbuf_str(&text), text.len) : grammar_empty(g->b);
    strbuf_free(&text);
    return e;
}

static grammar_expr either(struct grammar_builder *b, grammar_expr a, grammar_expr other)
{
    grammar_expr parts[2] = {a, other};
    return grammar_choice(b, parts, 2);
}

/* `enum` or `const`; GRAMMAR_NONE: the schema has neither. */
static grammar_expr values_add(struct call_grammar *g, const struct json *schema)
{
    const struct json *value = json_get(schema, "const"), *values = json_get(schema, "enum");
    if (value)
        return listed_add(g, value);
    if (!json_is(values, JSON_ARRAY) || values->count == 0)
        return GRAMMAR_NONE;
    grammar_expr *listed = calloc(values->count, sizeof *listed);
    if (!listed)
        return GRAMMAR_NONE;
    size_t n = 0;
    json_each (v, values)
        listed[n++] = listed_add(g, v);
    grammar_expr e = grammar_choice(g->b, listed, n);
    free(listed);
    return e;
}

static grammar_expr json_add(struct call_grammar *g, const struct json *schema)
{
    struct error err = {0};
    enum json_schema_mode mode = g->tool->strict ? SCHEMA_EXACT : SCHEMA_LENIENT;
    grammar_expr e = json_schema_add(g->b, schema, g->tool->parameters, JSON_CANONICAL, mode, &err);
    if (e == GRAMMAR_NONE)
        *g->err = err;
    return e;
}

/* A schema with only a type. */
static grammar_expr bare_type_add(struct call_grammar *g, const char *name)
{
    struct json type = {
        .type = JSON_STRING, .key = "type", .key_len = 4, .text = name, .text_len = strlen(name)};
    struct json schema = {.type = JSON_OBJECT, .first = &type, .last = &type, .count = 1};
    return json_add(g, &schema);
}

/* ---- PYTHON and ESCAPED ---- */

static grammar_expr members_add(struct call_grammar *g, const struct json *schema, bool nested);

static grammar_expr quoted_add(struct call_grammar *g)
{
    grammar_expr parts[3] = {call_string_add(g, g->form->quote), call_raw_text_add(g),
                             call_string_add(g, g->form->quote)};
    return grammar_sequence(g->b, parts, 3);
}

static grammar_expr string_add(struct call_grammar *g, const struct json *schema, bool is_only_type)
{
    static const char *const known[] = {"type", "anyOf", NULL};
    if (g->form->arguments == CALL_ESCAPED) {
        const char *beyond = is_only_type ? keyword_beyond(schema, known) : NULL;
        return beyond && refuse(g, beyond) ? GRAMMAR_NONE : quoted_add(g);
    }
    if (!is_only_type)
        return bare_type_add(g, "string");
    grammar_expr e = json_add(g, schema);
    return e != GRAMMAR_NONE || g->tool->strict ? e : bare_type_add(g, "string");
}

static grammar_expr number_add(struct call_grammar *g, const struct json *schema, bool is_only_type)
{
    if (!is_only_type)
        return bare_type_add(g, json_equals(json_get(schema, "type"), "integer") ? "integer"
                                                                                 : "number");
    grammar_expr e = json_add(g, schema);
    return e != GRAMMAR_NONE || g->tool->strict ? e : bare_type_add(g, "number");
}

static uint32_t count_of(const struct json *schema, const char *key, uint32_t otherwise)
{
    int64_t n;
    return json_to_int64(json_get(schema, key), &n) && n >= 0 && n < 1000 ? (uint32_t)n : otherwise;
}

static const char *comma_of(const struct call_grammar *g)
{
    return g->form->arguments == CALL_PYTHON ? ", " : ",";
}

static grammar_expr array_add(struct call_grammar *g, const struct json *schema)
{
    struct grammar_builder *b = g->b;
    const struct json *items = object_member(schema, "items");
    uint32_t min = count_of(schema, "minItems", 0),
             max = count_of(schema, "maxItems", GRAMMAR_NO_MAX);
    grammar_expr item = grammar_rule(b),
                 brackets[2] = {grammar_literal(b, "[", 1), grammar_literal(b, "]", 1)};
    static const struct json any = {.type = JSON_OBJECT};
    grammar_expr body = value_add(g, items ? items : &any);
    if (body == GRAMMAR_NONE)
        return GRAMMAR_NONE;
    grammar_define(b, item, body);
    if (max == 0)
        return grammar_sequence(b, brackets, 2);
    grammar_expr next[2] = {call_string_add(g, comma_of(g)), item};
    grammar_expr more = grammar_repeat(b, grammar_sequence(b, next, 2), min ? min - 1 : 0,
                                       max == GRAMMAR_NO_MAX ? max : max - 1);
    grammar_expr list[4] = {brackets[0], item, more, brackets[1]};
    grammar_expr full = grammar_sequence(b, list, 4);
    return min ? full : either(b, full, grammar_sequence(b, brackets, 2));
}

static grammar_expr object_add(struct call_grammar *g, const struct json *schema)
{
    grammar_expr members = members_add(g, schema, true);
    grammar_expr parts[3] = {grammar_literal(g->b, "{", 1), members, grammar_literal(g->b, "}", 1)};
    return members == GRAMMAR_NONE ? GRAMMAR_NONE : grammar_sequence(g->b, parts, 3);
}

/* A value of one type. */
static grammar_expr typed_add(struct call_grammar *g, const struct json *schema,
                              enum json_type type, bool is_only_type)
{
    const bool is_python = g->form->arguments == CALL_PYTHON;
    switch (type) {
    case JSON_NULL: return call_string_add(g, is_python ? "None" : "null");
    case JSON_BOOL:
        return either(g->b, call_string_add(g, is_python ? "True" : "true"),
                      call_string_add(g, is_python ? "False" : "false"));
    case JSON_NUMBER: return number_add(g, schema, is_only_type);
    case JSON_STRING: return string_add(g, schema, is_only_type);
    case JSON_ARRAY: return array_add(g, schema);
    case JSON_OBJECT: return object_add(g, schema);
    }
    return GRAMMAR_NONE;
}

/* The schema at "#/$defs/name"; NULL: none. */
static const struct json *reference_find(const struct json *root, const struct json *reference)
{
    if (!json_is(reference, JSON_STRING) || reference->text[0] != '#')
        return NULL;
    const struct json *found = root;
    const char *at = reference->text + 1;
    while (found && *at == '/') {
        size_t len = strcspn(++at, "/");
        const struct json *next = NULL;
        for (const struct json *m = found->first; m && found->type == JSON_OBJECT; m = m->next)
            if (m->key_len == len && memcmp(m->key, at, len) == 0)
                next = m;
        found = next;
        at += len;
    }
    return json_is(found, JSON_OBJECT) ? found : NULL;
}

/* A rule for a referenced schema, so that schemas may refer to themselves. */
static grammar_expr reference_add(struct call_grammar *g, const struct json *reference)
{
    const struct json *schema = reference_find(g->tool->parameters, reference);
    for (size_t i = 0; i < g->n_references; i++)
        if (g->references[i].schema == schema)
            return g->references[i].rule;
    if (!schema || g->n_references == MAX_REFERENCES) {
        if (refuse(g, "$ref"))
            return GRAMMAR_NONE;
        return call_string_add(g, g->form->arguments == CALL_PYTHON ? "None" : "null");
    }
    grammar_expr rule = grammar_rule(g->b);
    g->references[g->n_references].schema = schema;
    g->references[g->n_references++].rule = rule;
    grammar_expr body = value_add(g, schema);
    if (body == GRAMMAR_NONE)
        return GRAMMAR_NONE;
    grammar_define(g->b, rule, body);
    return rule;
}

static grammar_expr options_add(struct call_grammar *g, const struct json *options)
{
    grammar_expr e = grammar_never(g->b);
    json_each (option, options) {
        grammar_expr one = value_add(g, option);
        if (one == GRAMMAR_NONE)
            return GRAMMAR_NONE;
        e = either(g->b, e, one);
    }
    return e;
}

/* A value in Python's or Gemma's notation. */
static grammar_expr value_add(struct call_grammar *g, const struct json *schema)
{
    static const char *const known[] = {"type",
                                        "properties",
                                        "required",
                                        "items",
                                        "enum",
                                        "const",
                                        "anyOf",
                                        "$ref",
                                        "minItems",
                                        "maxItems",
                                        "additionalProperties",
                                        NULL};
    const struct json *options = json_get(schema, "anyOf");
    const struct json *reference = json_get(schema, "$ref");
    unsigned types = schema_types(schema);
    bool is_scalar = types == TYPE_BIT(JSON_STRING) || types == TYPE_BIT(JSON_NUMBER);
    const char *beyond = is_scalar ? NULL : keyword_beyond(schema, known);
    if (beyond && refuse(g, beyond))
        return GRAMMAR_NONE;
    grammar_expr listed = values_add(g, schema);
    if (listed != GRAMMAR_NONE)
        return listed;
    if (reference)
        return reference_add(g, reference);
    if (json_is(options, JSON_ARRAY) && options->count)
        return options_add(g, options);
    if (types == TYPES_ALL) /* here, a value of any type is a string, a number or a constant */
        types = TYPES_ALL & ~(TYPE_BIT(JSON_ARRAY) | TYPE_BIT(JSON_OBJECT));
    bool is_only_type = (types & (types - 1)) == 0;
    grammar_expr e = grammar_never(g->b);
    for (int type = JSON_NULL; type <= JSON_OBJECT; type++) {
        if (!(types & TYPE_BIT(type)))
            continue;
        grammar_expr one = typed_add(g, schema, (enum json_type)type, is_only_type);
        if (one == GRAMMAR_NONE)
            return GRAMMAR_NONE;
        e = is_only_type ? one : either(g->b, e, one);
    }
    return e;
}

/* A member's name and the text before its value. At the top level, Python's are keyword
 * arguments. */
static grammar_expr key_add(const struct call_grammar *g, const struct json *property, bool nested)
{
    struct strbuf text = STRBUF_INIT;
    if (g->form->arguments == CALL_PYTHON && nested)
        json_write_string(&text, property->key, property->key_len);
    else
        strbuf_add(&text, property->key, property->key_len);
    strbuf_adds(&text, g->form->arguments != CALL_PYTHON ? ":" : nested ? ": " : "=");
    grammar_expr e = text.failed ? GRAMMAR_NONE
                                 : grammar_literal(g->b, strbuf_str(&text), text.len);
    strbuf_free(&text);
    return e;
}

/* An object's members in the schema's order, separated by commas; optional ones may be omitted.
 * From the last to the first, there are two rules for the remaining members:
 *
 *   start = member rest' | start'     at the start, without a comma
 *   rest  = "," member rest' | rest'  after a member */
static grammar_expr members_add(struct call_grammar *g, const struct json *schema, bool nested)
{
    struct grammar_builder *b = g->b;
    const struct json *properties = object_member(schema, "properties");
    grammar_expr start = grammar_empty(b), rest = start;
    for (size_t i = properties ? properties->count : 0; i-- > 0;) {
        const struct json *property = properties->first;
        for (size_t skip = i; skip; skip--)
            property = property->next;
        grammar_expr value = value_add(g, property);
        grammar_expr member[3] = {key_add(g, property, nested), value, rest};
        if (value == GRAMMAR_NONE)
            return GRAMMAR_NONE;
        grammar_expr begun = grammar_rule(b);
        grammar_define(b, begun, grammar_sequence(b, member, 3));
        grammar_expr next[2] = {call_string_add(g, comma_of(g)), begun};
        grammar_expr continued = grammar_sequence(b, next, 2);
        bool required = is_required(schema, property);
        grammar_expr rest_rule = grammar_rule(b);
        grammar_define(b, rest_rule, required ? continued : either(b, continued, rest));
        start = required ? begun : either(b, begun, start);
        rest = rest_rule;
    }
    return start;
}

/* ---- TAGGED ---- */

/* True if raw text is always read back as one of these types. */
static bool is_raw(const struct json *schema)
{
    static const char *const known[] = {"type", "anyOf", "enum", "const", NULL};
    const unsigned raw = TYPE_BIT(JSON_STRING) | TYPE_BIT(JSON_NULL) | TYPE_BIT(JSON_BOOL);
    unsigned types = schema_types(schema);
    const struct json *options = json_get(schema, "anyOf");
    if (types == TYPE_BIT(JSON_STRING))
        return true;
    if (!(types & TYPE_BIT(JSON_STRING)) || (types != TYPES_ALL && (types & ~raw)) ||
        keyword_beyond(schema, known) || json_get(schema, "enum") || json_get(schema, "const"))
        return false;
    if (json_is(options, JSON_ARRAY))
        json_each (option, options)
            if (keyword_beyond(option, (const char *const[]){"type", NULL}))
                return false;
    return true;
}

static grammar_expr raw_value_add(struct call_grammar *g, const struct json *schema)
{
    static const char *const known[] = {"type", "anyOf", NULL};
    grammar_expr listed = values_add(g, schema);
    if (listed != GRAMMAR_NONE)
        return listed;
    const char *beyond = keyword_beyond(schema, known);
    return beyond && refuse(g, beyond) ? GRAMMAR_NONE : call_raw_text_add(g);
}

static grammar_expr tagged_value_add(struct call_grammar *g, const struct json *schema)
{
    if (is_raw(schema))
        return raw_value_add(g, schema);
    grammar_expr e = json_add(g, schema);
    return e != GRAMMAR_NONE || g->tool->strict ? e : json_value_add(g->b, JSON_CANONICAL);
}

/* The text between the name and a value of that type. */
static grammar_expr key_end_add(const struct call_grammar *g, enum json_type type)
{
    struct strbuf text = STRBUF_INIT;
    call_key_end_write(&text, g->form, type);
    grammar_expr e = text.failed ? GRAMMAR_NONE : call_text_add(g, strbuf_str(&text), text.len);
    strbuf_free(&text);
    return e;
}

/* ... and the value. If the form names types, JSON follows the name of any type that the schema
 * allows, except a string's, which raw text follows. */
static grammar_expr typed_value_add(struct call_grammar *g, const struct json *schema)
{
    bool raw = is_raw(schema);
    unsigned types = schema_types(schema);
    grammar_expr parts[2] = {key_end_add(g, raw ? JSON_STRING : JSON_OBJECT),
                             tagged_value_add(g, schema)};
    if (parts[1] == GRAMMAR_NONE)
        return GRAMMAR_NONE;
    if (raw && g->form->typed_key_end && types & TYPE_BIT(JSON_NULL)) {
        grammar_expr null[2] = {key_end_add(g, JSON_NULL), grammar_literal(g->b, "null", 4)};
        return either(g->b, grammar_sequence(g->b, parts, 2), grammar_sequence(g->b, null, 2));
    }
    if (!raw && g->form->typed_key_end) {
        parts[0] = grammar_never(g->b);
        for (int type = JSON_NULL; type <= JSON_OBJECT; type++)
            if (types & TYPE_BIT(type) && type != JSON_STRING)
                parts[0] = either(g->b, parts[0], key_end_add(g, (enum json_type)type));
    }
    return grammar_sequence(g->b, parts, 2);
}

static grammar_expr tagged_add(struct call_grammar *g)
{
    const struct call_form *f = g->form;
    const struct json *properties = object_member(g->tool->parameters, "properties");
    grammar_expr e = grammar_empty(g->b);
    for (const struct json *p = properties ? properties->first : NULL; p; p = p->next) {
        grammar_expr value = typed_value_add(g, p);
        if (value == GRAMMAR_NONE)
            return GRAMMAR_NONE;
        grammar_expr key = grammar_literal(g->b, p->key, p->key_len);
        grammar_expr parts[6] = {
            call_string_add(g, f->key_begin),
            key,
            value,
            call_string_add(g, f->value_end),
        };
        if (f->value_close) {
            parts[4] = key;
            parts[5] = call_string_add(g, f->value_close);
        }
        grammar_expr one = grammar_sequence(g->b, parts, f->value_close ? 6 : 4);
        if (!is_required(g->tool->parameters, p))
            one = grammar_repeat(g->b, one, 0, 1);
        grammar_expr both[2] = {e, one};
        e = grammar_sequence(g->b, both, 2);
    }
    return e;
}

/* ---- JSON ---- */

/* Arguments are an object, even if the schema does not say so. */
static grammar_expr json_arguments_add(struct call_grammar *g)
{
    const struct json *parameters = g->tool->parameters;
    if (!parameters)
        return grammar_literal(g->b, "{}", 2);
    struct json type = {.type = JSON_STRING,
                        .key = "type",
                        .key_len = 4,
                        .text = "object",
                        .text_len = 6,
                        .next = parameters->first};
    struct json typed = *parameters;
    typed.first = &type;
    typed.last = parameters->last ? parameters->last : &type;
    typed.count++;
    const struct json *said = json_get(parameters, "type");
    bool is_object = !said || json_equals(said, "object");
    grammar_expr e = is_object ? json_add(g, said ? parameters : &typed) : GRAMMAR_NONE;
    if (e != GRAMMAR_NONE || (g->err->code != ERROR_INPUT && is_object))
        return e;
    if (!is_object && refuse(g, "type"))
        return GRAMMAR_NONE;
    return g->tool->strict ? GRAMMAR_NONE : json_object_add(g->b, JSON_CANONICAL);
}

grammar_expr call_arguments_add(struct call_grammar *g)
{
    g->n_references = 0;
    static const char *const known[] = {"type", "properties", "required", "additionalProperties",
                                        NULL};
    if (g->form->arguments == CALL_JSON)
        return json_arguments_add(g);
    const struct json *parameters = g->tool->parameters;
    const char *beyond = parameters ? keyword_beyond(parameters, known) : NULL;
    if (beyond && refuse(g, beyond))
        return GRAMMAR_NONE;
    return g->form->arguments == CALL_TAGGED ? tagged_add(g) : members_add(g, parameters, false);
}
