/* Python's two ways to format: "..." % values and "...".format(values). Both format fields: a
 * value, a conversion and a layout. Strings that stay unchanged keep their sources. */
#include "prompt/jinja/builtin.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "prompt/unicode/unicode.h"

enum { MAX_PRECISION = 400, DIGITS_BYTES = 1024, MAX_NESTING = 2 }; /* a float has 309 digits */

struct layout {
    const struct text *fill; /* NULL: a space */
    char align;              /* '<', '>', '^', '=' or 0 for the type's own */
    char sign;               /* '+', ' ' or 0 */
    bool alternate, zero;
    char grouping;            /* ',', '_' or 0 */
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
};

/* "12345.6" with thousands separators: "12,345.6", padded with zeros up to `width`. */
static void group_digits(char *digits, char mark, int64_t width)
{
    char grouped[DIGITS_BYTES];
    size_t whole = strspn(digits, "0123456789"), rest = strlen(digits) - whole, n = 0;
    size_t at = sizeof grouped - rest;
    if (whole == 0 || whole * 2 + rest >= sizeof grouped)
        return;
    memcpy(grouped + at, digits + whole, rest);
    while (n < whole || ((int64_t)(sizeof grouped - at) < width && at > 2)) {
        if (n && n % 3 == 0)
            grouped[--at] = mark;
        grouped[--at] = n < whole ? digits[whole - 1 - n] : '0';
        n++;
    }
    memcpy(digits, grouped + at, sizeof grouped - at);
    digits[sizeof grouped - at] = '\0';
}

/* A number's sign, prefix and digits, padded as the layout says. */
static bool add_number(struct jinja *j, struct builder *b, const struct layout *l, bool negative,
                       const char *prefix, char *digits)
{
    char sign[4] = {negative ? '-' : l->sign, 0}, all[DIGITS_BYTES + 16];
    bool finite = digits[0] != 'i' && digits[0] != 'n' && digits[0] != 'I' && digits[0] != 'N';
    bool zeros = finite && l->zero && (!l->align || l->align == '=');
    if (l->grouping)
        group_digits(digits, l->grouping, zeros ? l->width - (int64_t)strlen(sign) : 0);
    int64_t inside = l->width - (int64_t)(strlen(sign) + strlen(prefix) + strlen(digits));
    if (inside > JINJA_MAX_MEMORY_BYTES)
        return jinja_fail_memory(j);
    if (zeros || l->align == '=') {
        builder_adds(j, b, sign);
        builder_adds(j, b, prefix);
        for (; inside > 0 && !j->failed; inside--) {
            if (l->fill && !zeros)
                builder_add_text(j, b, l->fill);
            else
                builder_adds(j, b, zeros ? "0" : " ");
        }
        builder_adds(j, b, digits);
        return !j->failed;
    }
    snprintf(all, sizeof all, "%s%s%s", sign, prefix, digits);
    const struct text *t = text_new(j, all, strlen(all), RENDER_TEMPLATE);
    t = t ? string_pad(j, t, l->width, l->align ? l->align : '>', l->fill) : NULL;
    if (t)
        builder_add_text(j, b, t);
    return t != NULL;
}

static bool add_integer(struct jinja *j, struct builder *b, const struct layout *l, int64_t integer)
{
    char digits[DIGITS_BYTES];
    uint64_t size = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    const char *prefix = "";
    size_t n = 0;
    switch (l->type) {
    case 'x': n = (size_t)snprintf(digits, sizeof digits, "%llx", (unsigned long long)size); break;
    case 'X': n = (size_t)snprintf(digits, sizeof digits, "%llX", (unsigned long long)size); break;
    case 'o': n = (size_t)snprintf(digits, sizeof digits, "%llo", (unsigned long long)size); break;
    case 'b': {
        int bits = 1;
        while (bits < 64 && size >> bits)
            bits++;
        while (bits-- > 0)
            digits[n++] = (char)('0' + (size >> bits & 1));
        break;
    }
    default: n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
    }
    digits[n] = '\0';
    if (l->alternate && l->type && strchr("xXob", l->type))
        prefix = l->type == 'x' ? "0x" : l->type == 'X' ? "0X" : l->type == 'o' ? "0o" : "0b";
    if (l->precision > (int64_t)n) { /* only with %: the minimum number of digits */
        size_t missing = (size_t)l->precision - n;
        memmove(digits + missing, digits, n + 1);
        memset(digits, '0', missing);
    }
    return add_number(j, b, l, integer < 0, prefix, digits);
}

static bool add_real(struct jinja *j, struct builder *b, const struct layout *l, double real)
{
    char digits[DIGITS_BYTES], format[8] = "%.*f";
    bool percent = l->type == '%', negative = signbit(real) && !isnan(real);
    int precision = l->precision < 0 ? 6 : (int)l->precision;
    double size = fabs(real) * (percent ? 100 : 1);
    if (l->type && !percent && l->type != 'n')
        format[3] = l->type;
    else if (!percent)
        format[3] = 'g';
    if (l->alternate)
        memcpy(format, (char[]){'%', '#', '.', '*', format[3], 0}, 6);
    if (!isfinite(real)) {
        bool upper = l->type && isupper((unsigned char)l->type);
        snprintf(digits, sizeof digits, "%s",
                 isnan(real) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    } else if (l->type == 0 && l->precision < 0) {
        real_repr(size, digits);
    } else {
        snprintf(digits, sizeof digits, format, precision, size);
        if (l->type == 0 && !strpbrk(digits, ".e"))
            strcat(digits, ".0");
    }
    if (percent)
        strcat(digits, "%");
    return add_number(j, b, l, negative, "", digits);
}

static bool add_string(struct jinja *j, struct builder *b, const struct layout *l,
                       const struct text *t)
{
    if (l->precision >= 0 && (uint64_t)l->precision < text_chars(t))
        t = text_slice(j, t, 0, text_offset(t, (size_t)l->precision));
    t = t ? string_pad(j, t, l->width, l->align ? l->align : '<', l->fill) : NULL;
    if (t)
        builder_add_text(j, b, t);
    return t != NULL && !j->failed;
}

/* A character: a string of length one, or a code point. */
static bool char_field(struct jinja *j, struct builder *b, struct layout *l, const struct value *v)
{
    struct builder one = {0};
    const struct text *t = v->type == V_STRING ? v->text : NULL;
    l->precision = -1;
    l->align = l->align ? l->align : '>';
    if (!t && v->type == V_INT && v->integer > 0 && v->integer < 0xd800) {
        builder_add_code(j, &one, (uint32_t)v->integer, RENDER_TEMPLATE);
        t = builder_text(j, &one);
    }
    if (!t || text_chars(t) != 1)
        return jinja_fail(j, "%%c requires int or char");
    return add_string(j, b, l, t);
}

/* "..." % values */

struct percent {
    struct jinja *j;
    const struct text *format;
    size_t at;
    const struct value *values;
    size_t n_used; /* of a tuple's items, or of the one value */
};

static bool next_value(struct percent *p, struct value *out)
{
    bool is_tuple = p->values->type == V_TUPLE;
    size_t n = is_tuple ? p->values->list->len : 1;
    if (p->n_used >= n)
        return jinja_fail(p->j, "not enough arguments for format string");
    *out = is_tuple ? p->values->list->items[p->n_used] : *p->values;
    p->n_used++;
    return true;
}

static char percent_char(const struct percent *p)
{
    return p->at < p->format->len ? p->format->data[p->at] : 0;
}

/* A number in digits, or a star that takes it from the values. */
static bool percent_number(struct percent *p, int64_t *out)
{
    if (percent_char(p) == '*') {
        struct value star;
        p->at++;
        return next_value(p, &star) && value_to_index(p->j, &star, out);
    }
    for (*out = 0; isdigit((unsigned char)percent_char(p)); p->at++) {
        *out = *out * 10 + (percent_char(p) - '0');
        if (*out > JINJA_MAX_MEMORY_BYTES)
            return jinja_fail(p->j, "width too big");
    }
    return true;
}

static bool percent_key(struct percent *p, struct value *out)
{
    size_t from = ++p->at;
    for (int depth = 1; p->at < p->format->len; p->at++) {
        depth += percent_char(p) == '(' ? 1 : percent_char(p) == ')' ? -1 : 0;
        if (depth == 0)
            break;
    }
    if (p->at >= p->format->len)
        return jinja_fail(p->j, "incomplete format key");
    if (p->values->type != V_DICT)
        return jinja_fail(p->j, "format requires a mapping");
    const struct value *found = dict_find_text(p->values->dict, p->format->data + from,
                                               p->at - from);
    if (!found)
        return jinja_fail(p->j, "KeyError: '%.*s'", (int)(p->at - from), p->format->data + from);
    *out = *found;
    p->at++;
    return true;
}

static bool percent_layout(struct percent *p, struct layout *l)
{
    *l = (struct layout){.precision = -1};
    for (; percent_char(p) && strchr("-+ #0", percent_char(p)); p->at++)
        switch (percent_char(p)) {
        case '-': l->align = '<'; break;
        case '+': l->sign = '+'; break;
        case ' ': l->sign = l->sign ? l->sign : ' '; break;
        case '#': l->alternate = true; break;
        case '0': l->zero = true; break;
        }
    if (!percent_number(p, &l->width))
        return false;
    if (l->width < 0) {
        l->align = '<';
        l->width = -l->width;
    }
    if (percent_char(p) == '.') {
        p->at++;
        if (!percent_number(p, &l->precision))
            return false;
        l->precision = l->precision < 0 ? 0 : l->precision;
    }
    while (percent_char(p) && strchr("hlL", percent_char(p)))
        p->at++;
    l->type = percent_char(p);
    p->at++;
    return true;
}

static bool percent_text(struct percent *p, struct builder *b, struct layout *l,
                         const struct value *v)
{
    const struct text *t = l->type == 's' ? value_str(p->j, v) : value_repr(p->j, v);
    if (t && l->type == 's' && p->format->markup && !t->markup)
        t = text_escaped(p->j, t);
    l->align = l->align ? l->align : '>';
    return t && add_string(p->j, b, l, t);
}

static bool percent_field(struct percent *p, struct builder *b)
{
    struct layout l;
    struct value v = {.type = V_MISSING};
    if (percent_char(p) == '(' && !percent_key(p, &v))
        return false;
    if (!percent_layout(p, &l))
        return false;
    if (l.type == '%') {
        builder_adds(p->j, b, "%");
        return true;
    }
    if (l.type == 0)
        return jinja_fail(p->j, "incomplete format");
    if (v.type == V_MISSING && !next_value(p, &v))
        return false;
    if (strchr("sra", l.type))
        return percent_text(p, b, &l, &v);
    if (l.type == 'c')
        return char_field(p->j, b, &l, &v);
    if (!strchr("diuoxXeEfFgG", l.type))
        return jinja_fail(p->j, "unsupported format character '%c'", l.type);
    if (v.type == V_UNDEFINED)
        return jinja_fail_undefined(p->j, &v);
    if (!value_is_number(&v) || v.type == V_BIGINT)
        return jinja_fail(p->j, "%%%c format: a real number is required, not %s", l.type,
                          value_type_name(&v));
    if (l.precision > MAX_PRECISION)
        return jinja_fail(p->j, "precision too big");
    if (strchr("eEfFgG", l.type))
        return add_real(p->j, b, &l, value_to_real(&v));
    if (v.type == V_FLOAT && (strchr("oxX", l.type) || fabs(v.real) >= 9.2e18 || isnan(v.real)))
        return jinja_fail(p->j, "%%%c format: an integer is required, not float", l.type);
    int64_t integer = v.type == V_INT ? v.integer : (int64_t)value_to_real(&v);
    return add_integer(p->j, b, &l, integer);
}

bool format_percent(struct jinja *j, const struct text *format, const struct value *values,
                    struct value *out)
{
    struct percent p = {.j = j, .format = format, .values = values};
    struct builder b = {0};
    while (p.at < format->len && !j->failed) {
        const char *percent = memchr(format->data + p.at, '%', format->len - p.at);
        size_t end = percent ? (size_t)(percent - format->data) : format->len;
        builder_add_slice(j, &b, format, p.at, end);
        p.at = end + 1;
        if (percent && !percent_field(&p, &b))
            return false;
    }
    bool is_mapping = values->type == V_DICT || values->type == V_LIST || values->type == V_RANGE ||
                      values->type == V_UNDEFINED;
    size_t n = values->type == V_TUPLE ? values->list->len : 1;
    if (p.n_used < n && !is_mapping)
        return jinja_fail(j, "not all arguments converted during string formatting");
    return value_set_text(text_with_markup(j, builder_text(j, &b), format->markup), out);
}

/* "...".format(...) */

struct braces {
    struct jinja *j;
    const struct call *call;
    size_t next_index;
    bool markup;
};

static bool braces_expand(struct braces *f, const struct text *format, unsigned depth,
                          struct builder *b);

static bool spec_parse(struct jinja *j, const struct text *spec, struct layout *l)
{
    size_t at = 0, len = spec->len;
    const char *s = spec->data;
    uint32_t code;
    *l = (struct layout){.precision = -1};
    size_t width = len ? unicode_next(s, len, &code) : 0;
    if (width && len > width && strchr("<>=^", s[width])) {
        l->fill = text_slice(j, spec, 0, width);
        l->align = s[width];
        at = width + 1;
    } else if (len && strchr("<>=^", s[0])) {
        l->align = s[at++];
    }
    if (at < len && strchr("+- ", s[at]))
        l->sign = s[at] == '-' ? 0 : s[at], at++;
    if (at < len && s[at] == '#')
        l->alternate = true, at++;
    if (at < len && s[at] == '0')
        l->zero = true, at++;
    for (; at < len && isdigit((unsigned char)s[at]); at++)
        if ((l->width = l->width * 10 + s[at] - '0') > JINJA_MAX_MEMORY_BYTES)
            return jinja_fail(j, "width too big in a format");
    if (at < len && (s[at] == ',' || s[at] == '_'))
        l->grouping = s[at++];
    if (at < len && s[at] == '.') {
        size_t from = ++at;
        for (l->precision = 0; at < len && isdigit((unsigned char)s[at]); at++)
            if ((l->precision = l->precision * 10 + s[at] - '0') > JINJA_MAX_MEMORY_BYTES)
                return jinja_fail(j, "precision too big in a format");
        if (at == from)
            return jinja_fail(j, "Format specifier missing precision");
    }
    if (at < len)
        l->type = s[at++];
    if (at < len || (l->type && !strchr("sdbcoxXneEfFgG%", l->type)))
        return jinja_fail(j, "Invalid format specifier '%.*s'", (int)len, s);
    return !j->failed;
}

static bool spec_apply(struct jinja *j, struct builder *b, const struct value *v,
                       const struct text *spec)
{
    struct layout l;
    if (spec->len == 0) {
        const struct text *t = value_str(j, v);
        if (t)
            builder_add_text(j, b, t);
        return t != NULL;
    }
    if (!spec_parse(j, spec, &l))
        return false;
    static const struct text zero = {
        .data = "0", .len = 1, .n_chars = 1, .source = RENDER_TEMPLATE};
    if (l.zero && !l.fill)
        l.fill = &zero;
    if (v->type == V_STRING) {
        if ((l.type && l.type != 's') || l.align == '=' || l.sign)
            return jinja_fail(j, "Invalid format specifier for a string");
        return add_string(j, b, &l, v->text);
    }
    if (!value_is_number(v) || v->type == V_BIGINT)
        return jinja_fail(j, "unsupported format string passed to %s.__format__",
                          value_type_name(v));
    bool real = v->type == V_FLOAT || (l.type && strchr("eEfFgG%", l.type));
    if (l.type == 'c' && v->type == V_INT)
        return char_field(j, b, &l, v);
    if (l.type && strchr(real ? "sdbcoxX" : "sc", l.type))
        return jinja_fail(j, "Unknown format code '%c' for object of type '%s'", l.type,
                          value_type_name(v));
    if (l.precision > MAX_PRECISION)
        return jinja_fail(j, "precision too big in a format");
    if (!real && l.precision >= 0)
        return jinja_fail(j, "Precision not allowed in integer format specifier");
    if (real)
        return add_real(j, b, &l, value_to_real(v));
    return add_integer(j, b, &l, v->type == V_INT ? v->integer : v->boolean);
}

/* The value of a field's name: an index or keyword, then .attributes and [items]. */
static bool field_value(struct braces *f, const struct text *name, struct value *out)
{
    struct jinja *j = f->j;
    size_t at = 0;
    while (at < name->len && name->data[at] != '.' && name->data[at] != '[')
        at++;
    bool digits = at < 10;
    for (size_t i = 0; i < at; i++)
        digits = digits && isdigit((unsigned char)name->data[i]);
    if (digits) {
        size_t index = 0;
        for (size_t i = 0; i < at; i++)
            index = index * 10 + (size_t)(name->data[i] - '0');
        if (at == 0)
            index = f->next_index++;
        if (index >= f->call->n_args)
            return jinja_fail(j, "Replacement index %zu out of range for positional args tuple",
                              index);
        *out = f->call->args[index];
    } else {
        const struct keyword *found = NULL;
        for (size_t i = 0; i < f->call->n_keywords && !found; i++)
            if (f->call->keywords[i].name->len == at &&
                memcmp(f->call->keywords[i].name->data, name->data, at) == 0)
                found = &f->call->keywords[i];
        if (!found)
            return jinja_fail(j, "KeyError: '%.*s'", (int)at, name->data);
        *out = found->value;
    }
    while (at < name->len) {
        bool item = name->data[at] == '[';
        size_t from = ++at;
        while (at < name->len &&
               (item ? name->data[at] != ']' : name->data[at] != '.' && name->data[at] != '['))
            at++;
        const struct text *part = text_slice(j, name, from, at);
        struct value object = *out, key = value_text(part);
        if (!part || (item && at == name->len))
            return jinja_fail(j, "Missing ']' in format string");
        if (item && part->len && part->len < 10 && string_is(part, unicode_is_decimal)) {
            int64_t index = 0;
            for (size_t i = 0; i < part->len; i++)
                index = index * 10 + (part->data[i] - '0');
            key = value_int(index);
        }
        if (!(item ? value_item(j, &object, &key, out) : value_attribute(j, &object, part, out)))
            return false;
        at += item;
    }
    return true;
}

/* One {field}: `field` is the text between the braces. */
static bool braces_field(struct braces *f, const struct text *field, unsigned depth,
                         struct builder *b)
{
    struct jinja *j = f->j;
    size_t end = 0, brackets = 0;
    for (; end < field->len; end++) {
        char c = field->data[end];
        brackets += c == '[' ? 1 : c == ']' && brackets ? (size_t)-1 : 0;
        if ((c == '!' || c == ':') && !brackets)
            break;
    }
    struct value v;
    const struct text *name = text_slice(j, field, 0, end);
    if (!name || !field_value(f, name, &v))
        return false;
    if (end < field->len && field->data[end] == '!') {
        char conversion = end + 1 < field->len ? field->data[end + 1] : 0;
        if ((conversion != 's' && conversion != 'r' && conversion != 'a') ||
            (end + 2 < field->len && field->data[end + 2] != ':'))
            return jinja_fail(j, "unknown conversion in a format string");
        if (!value_set_text(conversion == 's' ? value_str(j, &v) : value_repr(j, &v), &v))
            return false;
        end += 2;
    }
    struct builder spec = {0};
    const struct text *raw = end < field->len ? text_slice(j, field, end + 1, field->len) : NULL;
    if (raw && !braces_expand(f, raw, depth + 1, &spec))
        return false;
    const struct text *expanded = builder_text(j, &spec);
    if (expanded && f->markup && v.type == V_STRING && !v.text->markup &&
        !value_set_text(text_escaped(j, v.text), &v))
        return false;
    return expanded && spec_apply(j, b, &v, expanded) && !j->failed;
}

static bool braces_expand(struct braces *f, const struct text *format, unsigned depth,
                          struct builder *b)
{
    struct jinja *j = f->j;
    if (depth > MAX_NESTING)
        return jinja_fail(j, "Max string recursion exceeded");
    for (size_t at = 0; at < format->len && !j->failed;) {
        char c = format->data[at];
        if (c != '{' && c != '}') {
            size_t end = at;
            while (end < format->len && format->data[end] != '{' && format->data[end] != '}')
                end++;
            builder_add_slice(j, b, format, at, end);
            at = end;
        } else if (at + 1 < format->len && format->data[at + 1] == c) {
            builder_add_slice(j, b, format, at, at + 1);
            at += 2;
        } else if (c == '}') {
            return jinja_fail(j, "Single '}' encountered in format string");
        } else {
            size_t end = at + 1, open = 1;
            for (; end < format->len; end++) {
                open += format->data[end] == '{' ? 1 : format->data[end] == '}' ? (size_t)-1 : 0;
                if (open == 0)
                    break;
            }
            if (open)
                return jinja_fail(j, "expected '}' before end of string");
            const struct text *field = text_slice(j, format, at + 1, end);
            if (!field || !braces_field(f, field, depth, b))
                return false;
            at = end + 1;
        }
    }
    return !j->failed;
}

bool format_braces(struct jinja *j, const struct text *format, const struct call *call,
                   struct value *out)
{
    struct braces f = {.j = j, .call = call, .markup = format->markup};
    struct builder b = {0};
    return braces_expand(&f, format, 0, &b) &&
           value_set_text(text_with_markup(j, builder_text(j, &b), format->markup), out);
}
