/* Writes calls in the forms of call_form.c, and values in their notations. Any thread. Numbers are
 * written as Python, and so a template, writes them: 1.50 becomes 1.5, and 1e2 becomes 100.0. */
#include <math.h>
#include <string.h>

#include "prompt/answer/call_form.h"

static void number_write(struct strbuf *out, const struct json *value)
{
    if (strcmp(value->text, "-0") == 0)
        strbuf_addc(out, '0');
    else if (!strpbrk(value->text, ".eE") || !isfinite(value->number))
        strbuf_add(out, value->text, value->text_len);
    else
        json_write_double(out, value->number);
}

/* The differences between notations of a value. */
struct value_style {
    const char *comma, *colon, *yes, *no, *none;
    const char *quote; /* NULL: JSON strings, also for keys */
};

static void value_write(struct strbuf *out, const struct json *value, const struct value_style *s)
{
    switch (value->type) {
    case JSON_NULL: strbuf_adds(out, s->none); break;
    case JSON_BOOL: strbuf_adds(out, value->boolean ? s->yes : s->no); break;
    case JSON_NUMBER: number_write(out, value); break;
    case JSON_STRING:
        if (s->quote) {
            strbuf_adds(out, s->quote);
            strbuf_add(out, value->text, value->text_len);
            strbuf_adds(out, s->quote);
        } else {
            json_write_string(out, value->text, value->text_len);
        }
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        strbuf_addc(out, value->type == JSON_ARRAY ? '[' : '{');
        json_each (child, value) {
            if (child != value->first)
                strbuf_adds(out, s->comma);
            if (value->type == JSON_OBJECT && s->quote)
                strbuf_add(out, child->key, child->key_len);
            else if (value->type == JSON_OBJECT)
                json_write_string(out, child->key, child->key_len);
            if (value->type == JSON_OBJECT)
                strbuf_adds(out, s->colon);
            value_write(out, child, s);
        }
        strbuf_addc(out, value->type == JSON_ARRAY ? ']' : '}');
        break;
    }
}

void json_write_canonical(struct strbuf *out, const struct json *value)
{
    static const struct value_style style = {", ", ": ", "true", "false", "null", NULL};
    value_write(out, value, &style);
}

void call_value_write(struct strbuf *out, const struct call_form *f, const struct json *value)
{
    static const struct value_style python = {", ", ": ", "True", "False", "None", NULL};
    const struct value_style escaped = {",", ":", "true", "false", "null", f->quote};
    switch (f->arguments) {
    case CALL_TAGGED:
        if (value->type == JSON_STRING) {
            strbuf_add(out, value->text, value->text_len);
            break;
        }
        /* fall through */
    case CALL_JSON: json_write_canonical(out, value); break;
    case CALL_PYTHON: value_write(out, value, &python); break;
    case CALL_ESCAPED: value_write(out, value, &escaped); break;
    }
}

void call_key_end_write(struct strbuf *out, const struct call_form *f, enum json_type type)
{
    if (type == JSON_STRING && f->string_key_end) {
        strbuf_adds(out, f->string_key_end);
        return;
    }
    strbuf_adds(out, f->key_end);
    if (f->typed_key_end) {
        strbuf_adds(out, json_type_name(type));
        strbuf_adds(out, f->typed_key_end);
    }
}

static void arguments_write(struct strbuf *out, const struct call_form *f,
                            const struct json *arguments)
{
    if (f->arguments == CALL_JSON) {
        json_write_canonical(out, arguments);
        return;
    }
    json_each (a, arguments) {
        if (f->arguments == CALL_TAGGED) {
            strbuf_adds(out, f->key_begin);
            strbuf_add(out, a->key, a->key_len);
            call_key_end_write(out, f, a->type);
            call_value_write(out, f, a);
            strbuf_adds(out, f->value_end);
            if (f->value_close) {
                strbuf_add(out, a->key, a->key_len);
                strbuf_adds(out, f->value_close);
            }
            continue;
        }
        bool is_python = f->arguments == CALL_PYTHON;
        if (a != arguments->first)
            strbuf_adds(out, is_python ? ", " : ",");
        strbuf_add(out, a->key, a->key_len);
        strbuf_adds(out, is_python ? "=" : ":");
        call_value_write(out, f, a);
    }
}

void call_form_write(struct strbuf *out, const struct call_form *f, size_t index, const char *name,
                     size_t name_len, const struct json *arguments)
{
    if (index && f->between) {
        strbuf_adds(out, f->between);
    } else {
        if (index) {
            strbuf_adds(out, f->last);
            strbuf_addc(out, '\n');
        }
        strbuf_adds(out, f->first);
    }
    strbuf_add(out, name, name_len);
    if (f->is_numbered)
        strbuf_addf(out, ":%zu", index);
    strbuf_adds(out, f->middle);
    arguments_write(out, f, arguments);
}

void call_write(struct strbuf *out, enum tool_format format, const char *name, size_t name_len,
                const struct json *arguments)
{
    const struct call_form *f = call_form_find(format, NULL);
    call_form_write(out, f, 0, name, name_len, arguments);
    strbuf_adds(out, f->last);
}
