/* tojson, as transformers defines it: Python's json.dumps with ensure_ascii off. Integers keep all
 * their digits. */
#include "prompt/jinja/builtin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/unicode/unicode.h"

struct dumper {
    struct jinja *j;
    struct builder out;
    int32_t source;            /* of everything dumped so far */
    const struct text *indent; /* NULL: all in one line */
    const struct text *item_separator, *key_separator;
    bool ensure_ascii, sort_keys;
    unsigned level;
};

static bool dump(struct dumper *d, const struct value *v);

static void put(struct dumper *d, const char *bytes, size_t len)
{
    builder_add(d->j, &d->out, bytes, len, RENDER_TEMPLATE);
}

static void put_text(struct dumper *d, const struct text *t)
{
    d->source = source_mix(d->source, text_source(t));
    put(d, t->data, t->len);
}

static void put_escape(struct dumper *d, uint32_t code)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *found = code && code < 0x80 ? strchr(named, (int)code) : NULL;
    char escape[16];
    if (found)
        snprintf(escape, sizeof escape, "\\%c", names[found - named]);
    else if (code < 0x10000)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
    else
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((code - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((code - 0x10000) & 0x3ff)));
    put(d, escape, strlen(escape));
}

static void dump_string(struct dumper *d, const struct text *t)
{
    size_t plain = 0;
    d->source = source_mix(d->source, text_source(t));
    put(d, "\"", 1);
    for (size_t at = 0, width; at < t->len; at += width) {
        unsigned char c = (unsigned char)t->data[at];
        width = 1;
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !d->ensure_ascii))
            continue;
        uint32_t code;
        width = unicode_next(t->data + at, t->len - at, &code);
        put(d, t->data + plain, at - plain);
        put_escape(d, code);
        plain = at + width;
    }
    put(d, t->data + plain, t->len - plain);
    put(d, "\"", 1);
}

static void dump_newline(struct dumper *d)
{
    if (!d->indent)
        return;
    put(d, "\n", 1);
    for (unsigned i = 0; i < d->level; i++)
        put_text(d, d->indent);
}

static bool dump_list(struct dumper *d, const struct list *list)
{
    if (list->len == 0) {
        put(d, "[]", 2);
        return true;
    }
    put(d, "[", 1);
    d->level++;
    for (size_t i = 0; i < list->len; i++) {
        if (i)
            put_text(d, d->item_separator);
        dump_newline(d);
        if (!dump(d, &list->items[i]))
            return false;
    }
    d->level--;
    dump_newline(d);
    put(d, "]", 1);
    return true;
}

/* A number as JSON; false if it is not a number. */
static bool number_text(const struct value *v, char out[32])
{
    if (v->type == V_INT)
        snprintf(out, 32, "%lld", (long long)v->integer);
    else if (v->type != V_FLOAT)
        return false;
    else if (isfinite(v->real))
        real_repr(v->real, out);
    else
        strcpy(out, isnan(v->real) ? "NaN" : v->real < 0 ? "-Infinity" : "Infinity");
    return true;
}

static bool dump_key(struct dumper *d, const struct value *key)
{
    char number[32];
    if (key->type == V_STRING) {
        dump_string(d, key->text);
        return true;
    }
    const char *text = key->type == V_NONE        ? "null"
                       : key->type == V_BOOL      ? (key->boolean ? "true" : "false")
                       : key->type == V_BIGINT    ? key->text->data
                       : number_text(key, number) ? number
                                                  : NULL;
    if (!text)
        return jinja_fail(d->j, "keys must be str, int, float, bool or None, not %s",
                          value_type_name(key));
    put(d, "\"", 1);
    put(d, text, strlen(text));
    put(d, "\"", 1);
    return true;
}

static bool dump_dict(struct dumper *d, const struct dict *dict)
{
    if (dict->len == 0) {
        put(d, "{}", 2);
        return true;
    }
    struct sort_item *items = jinja_alloc_array(d->j, dict->len * 2, sizeof *items);
    if (!items)
        return false;
    for (size_t i = 0; i < dict->len; i++)
        items[i] = (struct sort_item){dict->entries[i].key, dict->entries[i].value};
    if (d->sort_keys && !items_sort(d->j, items, items + dict->len, dict->len, false))
        return false;
    put(d, "{", 1);
    d->level++;
    for (size_t i = 0; i < dict->len; i++) {
        if (i)
            put_text(d, d->item_separator);
        dump_newline(d);
        if (!dump_key(d, &items[i].key))
            return false;
        put_text(d, d->key_separator);
        if (!dump(d, &items[i].item))
            return false;
    }
    d->level--;
    dump_newline(d);
    put(d, "}", 1);
    return true;
}

static bool dump(struct dumper *d, const struct value *v)
{
    struct jinja *j = d->j;
    char number[32];
    bool ok = true;
    if (!jinja_step(j, 1) || ++j->depth > JINJA_MAX_DEPTH)
        return jinja_fail(j, "maximum recursion depth exceeded in tojson");
    switch (v->type) {
    case V_NONE: put(d, "null", 4); break;
    case V_BOOL: put(d, v->boolean ? "true" : "false", v->boolean ? 4 : 5); break;
    case V_STRING: dump_string(d, v->text); break;
    case V_BIGINT: put(d, v->text->data, v->text->len); break;
    case V_LIST:
    case V_TUPLE: ok = dump_list(d, v->list); break;
    case V_DICT: ok = dump_dict(d, v->dict); break;
    default:
        if (!number_text(v, number))
            return jinja_fail(j, "Object of type %s is not JSON serializable", value_type_name(v));
        put(d, number, strlen(number));
    }
    j->depth--;
    return ok && !j->failed;
}

static bool indent_text(struct jinja *j, const struct value *arg, const struct text **out)
{
    int64_t width;
    if (arg->type == V_STRING) {
        *out = arg->text;
        return true;
    }
    if (!value_to_index(j, arg, &width))
        return false;
    const struct text *empty = text_new(j, "", 0, RENDER_TEMPLATE);
    if (width > 1000)
        return jinja_fail(j, "tojson: an indent of %lld is too much", (long long)width);
    *out = empty ? string_pad(j, empty, width, '>', NULL) : NULL;
    return *out != NULL;
}

/* args: ensure_ascii, indent, separators, sort_keys */
bool filter_tojson(struct jinja *j, const struct value *self, const struct value *args,
                   const struct call *call, struct value *out)
{
    (void)call;
    struct dumper d = {.j = j,
                       .source = RENDER_TEMPLATE,
                       .ensure_ascii = value_true(&args[0]),
                       .sort_keys = value_true(&args[3])};
    if (args[1].type != V_MISSING && args[1].type != V_NONE && !indent_text(j, &args[1], &d.indent))
        return false;
    d.item_separator = text_new(j, ", ", d.indent ? 1 : 2, RENDER_TEMPLATE);
    d.key_separator = text_new(j, ": ", 2, RENDER_TEMPLATE);
    if (!d.item_separator || !d.key_separator)
        return false;
    if (args[2].type != V_MISSING && args[2].type != V_NONE) {
        struct list *pair;
        if (!value_items(j, &args[2], &pair))
            return false;
        if (pair->len != 2 || pair->items[0].type != V_STRING || pair->items[1].type != V_STRING)
            return jinja_fail(j, "tojson: separators must be two strings");
        d.item_separator = pair->items[0].text;
        d.key_separator = pair->items[1].text;
    }
    if (!dump(&d, self))
        return false;
    for (size_t i = 0; i < d.out.n_runs; i++)
        d.out.runs[i].source = d.source;
    return value_set_text(builder_text(j, &d.out), out);
}
