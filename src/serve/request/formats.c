/* Readers of constraints on an answer's text: OpenAI's response_format, and the equivalents of
 * llama-server, vLLM and SGLang. They only record the constraint; completion_constrain.c compiles
 * it later. Pure; they run on the workers. */
#include <string.h>

#include "serve/request/request_internal.h"

enum { MAX_CHOICES = 4096 };

int constrain(struct field_reader *r, enum constraint_kind kind, const struct json *value,
              const char *path)
{
    struct constraint *c = &r->params->constraint;
    if (c->kind)
        return api_error_set(r->err, 400, path,
                             "'%s' and '%s' both set the form of the answer: send only one", path,
                             c->field);
    const char *field = arena_copy(&r->params->arena, path, strlen(path));
    if (!field)
        return no_memory(r);
    *c = (struct constraint){kind, field, value};
    return 0;
}

/* null counts as absent. */
static const struct json *given(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    return json_is(value, JSON_NULL) ? NULL : value;
}

/* A schema, or its text. */
int read_schema(struct field_reader *r, const struct json *value, const char *path)
{
    struct error err;
    if (value->type == JSON_STRING) {
        value = json_parse(&r->params->arena, value->text, value->text_len, &err);
        if (!value)
            return api_error_set(r->err, 400, path, "'%s' is not valid JSON: %s", path,
                                 err.message);
    }
    if (value->type != JSON_OBJECT && value->type != JSON_BOOL)
        return wrong_type(r, path, "a JSON schema", value);
    return constrain(r, CONSTRAINT_SCHEMA, value, path);
}

int read_grammar(struct field_reader *r, const struct json *value, const char *path)
{
    return value->text_len ? constrain(r, CONSTRAINT_GBNF, value, path) : 0;
}

int read_regex(struct field_reader *r, const struct json *value, const char *path)
{
    return value->text_len ? constrain(r, CONSTRAINT_REGEX, value, path) : 0;
}

int read_choices(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->count > MAX_CHOICES)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d strings, not %zu", path,
                             MAX_CHOICES, value->count);
    json_each (item, value)
        if (item->type != JSON_STRING || item->text_len == 0)
            return api_error_set(r->err, 400, path, "strings in '%s' must not be empty", path);
    return value->count ? constrain(r, CONSTRAINT_CHOICES, value, path) : 0;
}

int read_json_object(struct field_reader *r, const struct json *value, const char *path)
{
    return value->boolean ? constrain(r, CONSTRAINT_JSON, value, path) : 0;
}

int read_structured(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_STRUCTURED, value, path);
}

int read_format_schema(struct field_reader *r, const struct json *value, const char *path)
{
    if (!given(value, "schema"))
        return api_error_set(r->err, 400, path, "'%s' must have a schema", path);
    return read_members(r, SCOPE_JSON_SCHEMA, value, path);
}

int read_response_format(struct field_reader *r, const struct json *value, const char *path)
{
    const struct json *type = json_get(value, "type");
    bool is_object = json_equals(type, "json_object"), is_schema = json_equals(type, "json_schema");
    if (!is_object && !is_schema && !json_equals(type, "text"))
        return api_error_set(r->err, 400, path,
                             "'%s.type' must be text, json_object or json_schema", path);
    const struct json *schema = given(value, is_schema ? "json_schema" : "schema");
    if (is_object && !schema)
        return constrain(r, CONSTRAINT_JSON, value, path);
    if (is_schema && !schema && !given(value, "schema"))
        return api_error_set(r->err, 400, path, "'%s' must have a json_schema", path);
    if (!is_object && !is_schema)
        return 0;
    return read_members(r, SCOPE_RESPONSE_FORMAT, value, path);
}
