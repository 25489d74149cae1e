/* Filters on text and numbers, and the lookup of all filters. */
#include "prompt/jinja/builtin.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/unicode/unicode.h"

#define FILTER(name)                                                                               \
    static bool name(struct jinja *j, const struct value *self, const struct value *args,          \
                     const struct call *call, struct value *out)
#define UNUSED (void)j, (void)self, (void)args, (void)call

FILTER(filter_upper)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    return t && value_set_text(string_case(j, t, CASE_UPPER), out);
}

FILTER(filter_lower)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    return t && value_set_text(string_case(j, t, CASE_LOWER), out);
}

FILTER(filter_capitalize)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    return t && value_set_text(string_case(j, t, CASE_CAPITALIZE), out);
}

/* Words start after spaces and - ( { [ <, unlike in str.title(). */
FILTER(filter_title)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    struct builder b = {0};
    bool in_word = false;
    uint32_t code;
    for (size_t at = 0, width; t && at < t->len && !j->failed; at += width) {
        char mapped[UNICODE_CASE_MAX];
        width = unicode_next(t->data + at, t->len - at, &code);
        size_t len = in_word ? unicode_lower(code, mapped) : unicode_upper(code, mapped);
        in_word = !unicode_is_space(code) && !(code < 0x80 && code && strchr("-({[<", (int)code));
        builder_add(j, &b, mapped, len, text_source(t));
    }
    return t && value_set_text(text_with_markup(j, builder_text(j, &b), t->markup), out);
}

FILTER(filter_trim)
{
    UNUSED;
    const struct text *t = value_str(j, self), *chars = NULL;
    return t && argument_text(j, &args[0], "strip arg", &chars) &&
           value_set_text(string_strip(j, t, chars, STRIP_LEFT | STRIP_RIGHT), out);
}

FILTER(filter_string)
{
    UNUSED;
    return value_set_text(value_str(j, self), out);
}

FILTER(filter_safe)
{
    UNUSED;
    return value_set_text(text_with_markup(j, value_str(j, self), true), out);
}

FILTER(filter_escape)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    return t && value_set_text(text_escaped(j, t), out);
}

FILTER(filter_forceescape)
{
    UNUSED;
    const struct text *t = text_with_markup(j, value_str(j, self), false);
    return t && value_set_text(text_escaped(j, t), out);
}

FILTER(filter_replace)
{
    UNUSED;
    const struct text *t = text_with_markup(j, value_str(j, self), false);
    const struct text *from = t ? value_str(j, &args[0]) : NULL;
    const struct text *to = from ? value_str(j, &args[1]) : NULL;
    int64_t count;
    return to && argument_int(j, &args[2], -1, &count) &&
           value_set_text(string_replace(j, t, from, to, count), out);
}

FILTER(filter_format)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    if (!t)
        return false;
    if (call->n_keywords == 0) {
        struct list list = {.items = call->args, .len = call->n_args};
        struct value values = value_tuple(&list);
        return format_percent(j, t, &values, out);
    }
    struct dict *dict = dict_new(j, call->n_keywords);
    struct value values = {.type = V_DICT, .dict = dict};
    if (call->n_args)
        return jinja_fail(j, "can't handle positional and keyword arguments at the same time");
    for (size_t i = 0; dict && i < call->n_keywords; i++) {
        struct value key = value_text(call->keywords[i].name);
        if (!dict_set(j, dict, &key, &call->keywords[i].value))
            return false;
    }
    return dict && format_percent(j, t, &values, out);
}

/* args: width, first, blank */
FILTER(filter_indent)
{
    UNUSED;
    static const struct text space = {.data = "", .source = RENDER_TEMPLATE};
    const struct text *indent;
    int64_t width;
    if (self->type != V_STRING)
        return self->type == V_UNDEFINED
                   ? jinja_fail_undefined(j, self)
                   : jinja_fail(j, "indent needs a string, not %s", value_type_name(self));
    if (args[0].type == V_STRING)
        indent = args[0].text;
    else if (!argument_int(j, &args[0], 4, &width) ||
             !(indent = string_pad(j, &space, width, '>', NULL)))
        return false;
    struct list *lines = string_split_lines(j, self->text, false);
    struct builder b = {0};
    if (!lines)
        return false;
    /* A newline is added before the text is split, so an empty text has one line, and a text
     * that ends with a newline has an empty one at its end. */
    uint32_t code = 0;
    if (self->text->len)
        unicode_last(self->text->data, self->text->len, &code);
    size_t n = lines->len + (self->text->len == 0 || (unicode_is_line_end(code) && code != '\r'));
    for (size_t i = 0; i < n && !j->failed; i++) {
        const struct text *line = i < lines->len ? lines->items[i].text : &space;
        if (i)
            builder_adds(j, &b, "\n");
        if (i ? line->len || value_true(&args[2]) : value_true(&args[1]))
            builder_add_text(j, &b, indent);
        builder_add_text(j, &b, line);
    }
    return value_set_text(text_with_markup(j, builder_text(j, &b), self->text->markup), out);
}

FILTER(filter_center)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    int64_t width;
    return t && argument_int(j, &args[0], 80, &width) &&
           value_set_text(string_pad(j, t, width, 'c', NULL), out);
}

/* args: length, killwords, end, leeway */
FILTER(filter_truncate)
{
    UNUSED;
    static const struct text dots = {
        .data = "...", .len = 3, .n_chars = 3, .source = RENDER_TEMPLATE};
    const struct text *end = &dots;
    int64_t length, leeway;
    if (self->type != V_STRING && self->type != V_UNDEFINED)
        return jinja_fail(j, "truncate needs a string, not %s", value_type_name(self));
    if (!argument_int(j, &args[0], 255, &length) || !argument_text(j, &args[2], "end", &end) ||
        !argument_int(j, &args[3], 5, &leeway))
        return false;
    if (length < (int64_t)text_chars(end) || leeway < 0)
        return jinja_fail(j, "expected length >= %zu and leeway >= 0", text_chars(end));
    *out = *self;
    if (self->type == V_UNDEFINED || leeway > INT64_MAX - length ||
        (int64_t)text_chars(self->text) <= length + leeway)
        return true;
    size_t cut = text_offset(self->text, (size_t)length - text_chars(end));
    const char *space = cut && !value_true(&args[1]) ? memrchr(self->text->data, ' ', cut) : NULL;
    const struct text *kept = text_slice(j, self->text, 0,
                                         space ? (size_t)(space - self->text->data) : cut);
    return kept && value_set_text(text_concat(j, kept, end), out);
}

static bool is_word(uint32_t code)
{
    return code == '_' || unicode_is_alpha(code) || unicode_is_numeric(code) ||
           unicode_is_digit(code) || unicode_is_decimal(code);
}

FILTER(filter_wordcount)
{
    UNUSED;
    const struct text *t = value_str(j, self);
    int64_t count = 0;
    bool in_word = false;
    uint32_t code;
    for (size_t at = 0; t && at < t->len;) {
        at += unicode_next(t->data + at, t->len - at, &code);
        count += is_word(code) && !in_word;
        in_word = is_word(code);
    }
    *out = value_int(count);
    return t && jinja_step(j, t->len / 16);
}

static void url_quote(struct jinja *j, struct builder *b, const struct text *t, bool in_query)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < t->len && !j->failed; i++) {
        unsigned char c = (unsigned char)t->data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !in_query);
        char quoted[3] = {'%', hex[c >> 4], hex[c & 15]};
        if (c == ' ' && in_query)
            builder_add(j, b, "+", 1, text_source(t));
        else
            builder_add(j, b, plain ? (const char *)&t->data[i] : quoted, plain ? 1 : 3,
                        text_source(t));
    }
}

FILTER(filter_urlencode)
{
    UNUSED;
    struct builder b = {0};
    if (self->type == V_STRING || !value_is_iterable(self)) {
        const struct text *t = value_str(j, self);
        if (!t)
            return false;
        url_quote(j, &b, t, false);
        return value_set_text(builder_text(j, &b), out);
    }
    struct value pairs = *self;
    struct list *items, *pair;
    if ((self->type == V_DICT && !dict_view(j, self->dict, "dict_items", &pairs)) ||
        !value_items(j, &pairs, &items))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        if (!value_items(j, &items->items[i], &pair))
            return false;
        if (pair->len != 2)
            return jinja_fail(j, "urlencode needs pairs");
        const struct text *key = value_str(j, &pair->items[0]);
        const struct text *value = key ? value_str(j, &pair->items[1]) : NULL;
        if (!value)
            return false;
        builder_adds(j, &b, i ? "&" : "");
        url_quote(j, &b, key, true);
        builder_adds(j, &b, "=");
        url_quote(j, &b, value, true);
    }
    return value_set_text(builder_text(j, &b), out);
}

FILTER(filter_default)
{
    UNUSED;
    bool use = self->type == V_UNDEFINED || (value_true(&args[1]) && !value_true(self));
    if (!use)
        *out = *self;
    else if (args[0].type == V_MISSING)
        return value_set_string(j, "", out);
    else
        *out = args[0];
    return true;
}

FILTER(filter_attr)
{
    UNUSED;
    if (args[0].type != V_STRING)
        return jinja_fail(j, "attribute name must be string, not '%s'", value_type_name(&args[0]));
    if (self->type == V_UNDEFINED)
        return jinja_fail_undefined(j, self);
    if (self->type == V_DICT && !method_find(V_DICT, args[0].text))
        return value_undefined_key(j, self, &args[0], out);
    return value_attribute(j, self, args[0].text, out);
}

/* Numbers */

/* Python's int(text, base): allows surrounding spaces, a sign, a prefix of the base, single
 * underscores. */
static bool parse_int(const struct text *t, int64_t base, int64_t *out)
{
    char digits[80];
    size_t from = 0, to = t->len, n = 0;
    if (base < 0 || base == 1 || base > 36)
        return false;
    while (from < to && unicode_is_space((unsigned char)t->data[from]))
        from++;
    while (to > from && unicode_is_space((unsigned char)t->data[to - 1]))
        to--;
    if (from < to && (t->data[from] == '-' || t->data[from] == '+'))
        digits[n++] = t->data[from++];
    if (to - from > 2 && t->data[from] == '0') {
        char kind = t->data[from + 1] | 0x20;
        int64_t prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            from += 2;
        }
    }
    if (base == 0)
        base = 10;
    bool digit_before = false;
    for (; from < to; from++) {
        char c = t->data[from];
        if (c == '_' && digit_before && from + 1 < to && t->data[from + 1] != '_') {
            digit_before = false;
            continue;
        }
        if (n + 1 >= sizeof digits || c == '_' || c == '-' || c == '+' || c == ' ')
            return false;
        digits[n++] = c;
        digit_before = true;
    }
    digits[n] = '\0';
    char *end;
    errno = 0;
    *out = strtoll(digits, &end, (int)base);
    return digit_before && *end == '\0' && errno == 0;
}

/* Python's float(text). */
static bool parse_real(const struct text *t, double *out)
{
    char digits[400];
    size_t n = 0;
    for (size_t i = 0; i < t->len && n + 1 < sizeof digits; i++) {
        bool between = i > 0 && i + 1 < t->len && t->data[i - 1] >= '0' && t->data[i - 1] <= '9' &&
                       t->data[i + 1] >= '0' && t->data[i + 1] <= '9';
        if (t->data[i] == 'x' || t->data[i] == 'X' || t->data[i] == '(')
            return false; /* the C library would accept hexadecimal and nan(...) */
        if (t->data[i] != '_' || !between)
            digits[n++] = t->data[i];
    }
    digits[n] = '\0';
    char *end;
    *out = strtod(digits, &end);
    bool any = end > digits;
    while (unicode_is_space((unsigned char)*end) && *end)
        end++;
    return any && *end == '\0' && n + 1 < sizeof digits;
}

static bool real_to_int(struct jinja *j, double real, struct value *out, bool *ok)
{
    *ok = isfinite(real);
    if (*ok && fabs(real) >= 9.2233720368547758e18)
        return jinja_fail(j, "integer out of range: numbers beyond 64 bits are not supported");
    *out = value_int(*ok ? (int64_t)real : 0);
    return true;
}

/* args: default, base */
FILTER(filter_int)
{
    UNUSED;
    int64_t base, integer;
    double real;
    bool ok = false;
    if (!argument_int(j, &args[1], 10, &base))
        return false;
    *out = *self;
    if (self->type == V_INT || self->type == V_BIGINT)
        return true;
    if (self->type == V_UNDEFINED)
        return jinja_fail_undefined(j, self);
    if (self->type == V_BOOL) {
        *out = value_int(self->boolean);
        return true;
    }
    if (self->type == V_STRING && parse_int(self->text, base, &integer)) {
        *out = value_int(integer);
        return true;
    }
    if (self->type == V_FLOAT || (self->type == V_STRING && parse_real(self->text, &real))) {
        if (!real_to_int(j, self->type == V_FLOAT ? self->real : real, out, &ok))
            return false;
    }
    if (!ok)
        *out = args[0].type == V_MISSING ? value_int(0) : args[0];
    return true;
}

FILTER(filter_float)
{
    UNUSED;
    double real;
    if (self->type == V_UNDEFINED)
        return jinja_fail_undefined(j, self);
    if (value_is_number(self))
        *out = value_real(value_to_real(self));
    else if (self->type == V_STRING && parse_real(self->text, &real))
        *out = value_real(real);
    else
        *out = args[0].type == V_MISSING ? value_real(0) : args[0];
    return true;
}

FILTER(filter_abs)
{
    UNUSED;
    struct value zero = value_int(0);
    int order;
    if (self->type == V_UNDEFINED)
        return jinja_fail_undefined(j, self);
    if (!value_is_number(self))
        return jinja_fail(j, "bad operand type for abs(): '%s'", value_type_name(self));
    *out = self->type == V_BOOL ? value_int(self->boolean) : *self;
    if (!value_order(j, self, &zero, "<", &order))
        return false;
    return order >= 0 || op_negate(j, self, out);
}

/* args: precision, method */
FILTER(filter_round)
{
    UNUSED;
    const struct text *method = NULL;
    int64_t digits;
    if (!argument_int(j, &args[0], 0, &digits) ||
        !argument_text(j, &args[1], "the method", &method))
        return false;
    if (!method || text_is(method, "common"))
        return op_round(j, self, digits, out);
    bool up = text_is(method, "ceil");
    if (!up && !text_is(method, "floor"))
        return jinja_fail(j, "method must be common, ceil or floor");
    if (!value_is_number(self))
        return jinja_fail(j, "must be real number, not %s", value_type_name(self));
    double scale = pow(10, (double)digits), scaled = value_to_real(self) * scale;
    *out = value_real((up ? ceil(scaled) : floor(scaled)) / scale);
    return true;
}

const struct filter text_filters[] = {
    {"upper", filter_upper, {{0}, 0, false}, false},
    {"lower", filter_lower, {{0}, 0, false}, false},
    {"capitalize", filter_capitalize, {{0}, 0, false}, false},
    {"title", filter_title, {{0}, 0, false}, false},
    {"trim", filter_trim, {{"chars"}, 0, false}, false},
    {"string", filter_string, {{0}, 0, false}, false},
    {"safe", filter_safe, {{0}, 0, false}, false},
    {"escape", filter_escape, {{0}, 0, false}, false},
    {"e", filter_escape, {{0}, 0, false}, false},
    {"forceescape", filter_forceescape, {{0}, 0, false}, false},
    {"replace", filter_replace, {{"old", "new", "count"}, 2, false}, false},
    {"format", filter_format, {{0}, 0, true}, false},
    {"indent", filter_indent, {{"width", "first", "blank"}, 0, false}, false},
    {"center", filter_center, {{"width"}, 0, false}, false},
    {"truncate", filter_truncate, {{"length", "killwords", "end", "leeway"}, 0, false}, false},
    {"wordcount", filter_wordcount, {{0}, 0, false}, false},
    {"urlencode", filter_urlencode, {{0}, 0, false}, false},
    {"tojson",
     filter_tojson,
     {{"ensure_ascii", "indent", "separators", "sort_keys"}, 0, false},
     false},
    {"default", filter_default, {{"default_value", "boolean"}, 0, false}, false},
    {"d", filter_default, {{"default_value", "boolean"}, 0, false}, false},
    {"attr", filter_attr, {{"name"}, 1, false}, false},
    {"int", filter_int, {{"default", "base"}, 0, false}, false},
    {"float", filter_float, {{"default"}, 0, false}, false},
    {"abs", filter_abs, {{0}, 0, false}, false},
    {"round", filter_round, {{"precision", "method"}, 0, false}, false},
};
const size_t n_text_filters = sizeof text_filters / sizeof text_filters[0];

const struct filter *filter_find(const char *name, size_t len)
{
    for (int table = 0; table < 2; table++) {
        const struct filter *filters = table ? sequence_filters : text_filters;
        size_t n = table ? n_sequence_filters : n_text_filters;
        for (size_t i = 0; i < n; i++)
            if (strlen(filters[i].name) == len && memcmp(filters[i].name, name, len) == 0)
                return &filters[i];
    }
    return NULL;
}
