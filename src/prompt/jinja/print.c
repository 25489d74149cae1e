/* Python's str() and repr(), used whenever a template prints something that is not a string. */
#include "prompt/jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "prompt/jinja/builtin.h"
#include "prompt/unicode/unicode.h"

/* Prints a value: the output, and the source of everything printed. */
struct printer {
    struct jinja *j;
    struct builder out;
    int32_t source;
    struct open_dict { /* dicts being printed, because a namespace may contain itself */
        const struct dict *dict;
        struct open_dict *outer;
    } * open;
};

static void print_repr(struct printer *p, const struct value *v);

void real_repr(double real, char out[32])
{
    if (!isfinite(real)) {
        strcpy(out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    struct strbuf digits = STRBUF_INIT;
    json_write_double(&digits, real);
    snprintf(out, 32, "%s", strbuf_str(&digits));
    strbuf_free(&digits);
}

static void print(struct printer *p, const char *string)
{
    builder_adds(p->j, &p->out, string);
}

static void print_escape(struct printer *p, uint32_t code)
{
    char escape[16];
    switch (code) {
    case '\n': print(p, "\\n"); return;
    case '\r': print(p, "\\r"); return;
    case '\t': print(p, "\\t"); return;
    }
    snprintf(escape, sizeof escape,
             code < 0x100     ? "\\x%02x"
             : code < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
             (unsigned)code);
    print(p, escape);
}

static void print_string(struct printer *p, const struct text *t)
{
    p->source = source_mix(p->source, text_source(t));
    char quote = memchr(t->data, '\'', t->len) && !memchr(t->data, '"', t->len) ? '"' : '\'';
    if (t->markup)
        print(p, "Markup(");
    builder_add(p->j, &p->out, &quote, 1, RENDER_TEMPLATE);
    uint32_t code;
    for (size_t at = 0, width; at < t->len; at += width) {
        width = unicode_next(t->data + at, t->len - at, &code);
        if (code == (unsigned char)quote || code == '\\')
            builder_add(p->j, &p->out, "\\", 1, RENDER_TEMPLATE);
        else if (!unicode_is_printable(code)) {
            print_escape(p, code);
            continue;
        }
        builder_add(p->j, &p->out, t->data + at, width, RENDER_TEMPLATE);
    }
    builder_add(p->j, &p->out, &quote, 1, RENDER_TEMPLATE);
    if (t->markup)
        print(p, ")");
}

static void print_items(struct printer *p, const struct list *list, const char *open,
                        const char *close)
{
    print(p, open);
    for (size_t i = 0; i < list->len && !p->j->failed; i++) {
        if (i)
            print(p, ", ");
        print_repr(p, &list->items[i]);
    }
    print(p, close);
}

static void print_dict(struct printer *p, const struct dict *dict)
{
    for (const struct open_dict *open = p->open; open; open = open->outer)
        if (open->dict == dict) {
            print(p, "{...}");
            return;
        }
    struct open_dict self = {dict, p->open};
    p->open = &self;
    print(p, "{");
    for (size_t i = 0; i < dict->len && !p->j->failed; i++) {
        if (i)
            print(p, ", ");
        print_repr(p, &dict->entries[i].key);
        print(p, ": ");
        print_repr(p, &dict->entries[i].value);
    }
    p->open = self.outer;
    print(p, "}");
}

static void print_scalar(struct printer *p, const struct value *v)
{
    char digits[32];
    switch (v->type) {
    case V_NONE: print(p, "None"); break;
    case V_BOOL: print(p, v->boolean ? "True" : "False"); break;
    case V_INT:
        snprintf(digits, sizeof digits, "%lld", (long long)v->integer);
        print(p, digits);
        break;
    case V_FLOAT:
        real_repr(v->real, digits);
        print(p, digits);
        break;
    case V_BIGINT: builder_add_text(p->j, &p->out, v->text); break;
    case V_UNDEFINED:
    case V_MISSING: print(p, "Undefined"); break;
    default: /* Python would print an address, which is useless in a prompt */
        print(p, "<");
        print(p, value_type_name(v));
        print(p, " object>");
    }
}

static void print_loop(struct printer *p, struct loop *loop)
{
    static const struct text index = {.data = "index", .len = 5},
                             length = {.data = "length", .len = 6};
    struct value at, of;
    char digits[64];
    if (!loop_attribute(p->j, loop, &index, &at) || !loop_attribute(p->j, loop, &length, &of))
        return;
    snprintf(digits, sizeof digits, "<LoopContext %lld/%lld>", (long long)at.integer,
             (long long)of.integer);
    print(p, digits);
}

static void print_range(struct printer *p, const struct range *range)
{
    char digits[96];
    int len = snprintf(digits, sizeof digits, "range(%lld, %lld", (long long)range->start,
                       (long long)range->stop);
    if (range->step != 1)
        len += snprintf(digits + len, sizeof digits - (size_t)len, ", %lld",
                        (long long)range->step);
    print(p, digits);
    print(p, ")");
}

static void print_repr(struct printer *p, const struct value *v)
{
    struct jinja *j = p->j;
    if (!jinja_step(j, 1) || ++j->depth > JINJA_MAX_DEPTH) {
        jinja_fail(j, "maximum recursion depth exceeded while printing");
        return;
    }
    switch (v->type) {
    case V_STRING: print_string(p, v->text); break;
    case V_LIST: print_items(p, v->list, "[", "]"); break;
    case V_TUPLE: print_items(p, v->list, "(", v->list->len == 1 ? ",)" : ")"); break;
    case V_DICT: print_dict(p, v->dict); break;
    case V_VIEW:
        print(p, v->view->type_name);
        print_items(p, v->view->items, "([", "])");
        break;
    case V_RANGE: print_range(p, v->range); break;
    case V_LOOP: print_loop(p, v->loop); break;
    case V_NAMESPACE:
        print(p, "<Namespace ");
        print_dict(p, v->dict);
        print(p, ">");
        break;
    default: print_scalar(p, v);
    }
    j->depth--;
}

const struct text *value_repr(struct jinja *j, const struct value *v)
{
    struct printer p = {.j = j, .source = RENDER_TEMPLATE};
    print_repr(&p, v);
    for (size_t i = 0; i < p.out.n_runs; i++)
        p.out.runs[i].source = p.source;
    return builder_text(j, &p.out);
}

const struct text *value_str(struct jinja *j, const struct value *v)
{
    static const struct text empty = {.data = "", .source = RENDER_TEMPLATE};
    if (v->type == V_STRING)
        return v->text;
    return v->type == V_UNDEFINED ? &empty : value_repr(j, v);
}
