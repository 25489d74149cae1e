/* Methods of str. Each gets its bound arguments, which the table at the end names. Results keep the
 * `safe` mark of their string, as in markupsafe. */
#include "prompt/jinja/builtin.h"

#include <string.h>

#include "prompt/unicode/unicode.h"

#define METHOD(name)                                                                               \
    static bool name(struct jinja *j, const struct value *self, const struct value *args,          \
                     const struct call *call, struct value *out)
#define UNUSED (void)j, (void)self, (void)args, (void)call

static bool strip(struct jinja *j, const struct value *self, const struct value *chars, int sides,
                  struct value *out)
{
    const struct text *set = NULL;
    return argument_text(j, chars, "strip arg", &set) &&
           value_set_text(string_strip(j, self->text, set, sides), out);
}

METHOD(str_strip)
{
    UNUSED;
    return strip(j, self, &args[0], STRIP_LEFT | STRIP_RIGHT, out);
}

METHOD(str_lstrip)
{
    UNUSED;
    return strip(j, self, &args[0], STRIP_LEFT, out);
}

METHOD(str_rstrip)
{
    UNUSED;
    return strip(j, self, &args[0], STRIP_RIGHT, out);
}

static bool add_piece(struct jinja *j, struct list *list, const struct text *t, size_t from,
                      size_t to)
{
    struct value piece = value_text(text_slice(j, t, from, to));
    return piece.text && list_add(j, list, &piece) && jinja_step(j, 1 + (to - from) / 64);
}

static bool split_space(struct jinja *j, const struct text *t, int64_t limit, struct list *list)
{
    uint32_t code;
    size_t at = 0;
    while (at < t->len) {
        size_t width = unicode_next(t->data + at, t->len - at, &code);
        if (unicode_is_space(code)) {
            at += width;
            continue;
        }
        size_t from = at;
        if (limit-- == 0)
            return add_piece(j, list, t, from, t->len);
        while (at < t->len) {
            width = unicode_next(t->data + at, t->len - at, &code);
            if (unicode_is_space(code))
                break;
            at += width;
        }
        if (!add_piece(j, list, t, from, at))
            return false;
    }
    return true;
}

static void list_reverse(struct list *list)
{
    for (size_t i = 0; i < list->len / 2; i++) {
        struct value swap = list->items[i];
        list->items[i] = list->items[list->len - 1 - i];
        list->items[list->len - 1 - i] = swap;
    }
}

/* Pieces are found from the end and then reversed. */
static bool rsplit_space(struct jinja *j, const struct text *t, int64_t limit, struct list *list)
{
    uint32_t code;
    size_t end = t->len;
    while (end > 0) {
        size_t width = unicode_last(t->data, end, &code);
        if (unicode_is_space(code)) {
            end -= width;
            continue;
        }
        size_t from = end;
        if (limit-- == 0) {
            if (!add_piece(j, list, t, 0, end))
                return false;
            break;
        }
        while (from > 0) {
            width = unicode_last(t->data, from, &code);
            if (unicode_is_space(code))
                break;
            from -= width;
        }
        if (!add_piece(j, list, t, from, end))
            return false;
        end = from;
    }
    list_reverse(list);
    return true;
}

static size_t find_last(struct jinja *j, const struct text *t, const struct text *needle,
                        size_t end)
{
    if (needle->len > end)
        return SIZE_MAX;
    for (size_t at = end - needle->len + 1; at-- > 0;) {
        if (needle->len && t->data[at] != needle->data[0])
            continue;
        if (!jinja_step(j, needle->len / 64) ||
            memcmp(t->data + at, needle->data, needle->len) == 0)
            return at;
    }
    return SIZE_MAX;
}

static bool split_at(struct jinja *j, const struct text *t, const struct text *separator,
                     int64_t limit, bool from_end, struct list *list)
{
    size_t from = 0, end = t->len, found;
    if (separator->len == 0)
        return jinja_fail(j, "empty separator");
    while (limit-- > 0) {
        found = from_end ? find_last(j, t, separator, end) : text_find(t, separator, from);
        if (found == SIZE_MAX)
            break;
        if (from_end ? !add_piece(j, list, t, found + separator->len, end)
                     : !add_piece(j, list, t, from, found))
            return false;
        from = from_end ? 0 : found + separator->len;
        end = from_end ? found : end;
    }
    if (!add_piece(j, list, t, from, end))
        return false;
    if (from_end)
        list_reverse(list);
    return true;
}

static bool split(struct jinja *j, const struct value *self, const struct value *args,
                  bool from_end, struct value *out)
{
    const struct text *separator = NULL;
    int64_t limit;
    struct list *list = list_new(j, 0);
    if (!list || !argument_text(j, &args[0], "the separator", &separator) ||
        !argument_int(j, &args[1], -1, &limit))
        return false;
    *out = value_list(list);
    limit = limit < 0 ? INT64_MAX : limit;
    if (separator)
        return split_at(j, self->text, separator, limit, from_end, list);
    return from_end ? rsplit_space(j, self->text, limit, list)
                    : split_space(j, self->text, limit, list);
}

METHOD(str_split)
{
    UNUSED;
    return split(j, self, args, false, out);
}

METHOD(str_rsplit)
{
    UNUSED;
    return split(j, self, args, true, out);
}

METHOD(str_splitlines)
{
    UNUSED;
    struct list *lines = string_split_lines(j, self->text, value_true(&args[0]));
    *out = value_list(lines);
    return lines != NULL;
}

static bool partition(struct jinja *j, const struct value *self, const struct value *args,
                      bool from_end, struct value *out)
{
    const struct text *t = self->text, *separator = NULL;
    struct list *list = list_new(j, 3);
    if (!list || !argument_text(j, &args[0], "the separator", &separator))
        return false;
    if (!separator || separator->len == 0)
        return jinja_fail(j, "empty separator");
    size_t found = from_end ? find_last(j, t, separator, t->len) : text_find(t, separator, 0);
    size_t cut = found != SIZE_MAX ? found : from_end ? 0 : t->len;
    size_t rest = found != SIZE_MAX ? found + separator->len : cut;
    *out = value_tuple(list);
    return add_piece(j, list, t, 0, cut) && add_piece(j, list, t, cut, rest) &&
           add_piece(j, list, t, rest, t->len);
}

METHOD(str_partition)
{
    UNUSED;
    return partition(j, self, args, false, out);
}

METHOD(str_rpartition)
{
    UNUSED;
    return partition(j, self, args, true, out);
}

/* The part of the string that the start and end arguments select, in bytes. */
static bool window(struct jinja *j, const struct text *t, const struct value *bounds, size_t *from,
                   size_t *to)
{
    int64_t start, end, len = (int64_t)text_chars(t);
    if (!argument_int(j, &bounds[0], 0, &start) || !argument_int(j, &bounds[1], len, &end))
        return false;
    start = start < 0 ? (start + len < 0 ? 0 : start + len) : start;
    end = end < 0 ? (end + len < 0 ? 0 : end + len) : end > len ? len : end;
    *to = text_offset(t, (size_t)end);
    *from = start > len ? SIZE_MAX : text_offset(t, (size_t)start);
    return true;
}

static bool has_affix(const struct text *t, size_t from, size_t to, const struct text *affix,
                      bool at_end)
{
    if (from > to || affix->len > to - from)
        return false;
    return memcmp(t->data + (at_end ? to - affix->len : from), affix->data, affix->len) == 0;
}

static bool affix_test(struct jinja *j, const struct value *self, const struct value *args,
                       bool at_end, struct value *out)
{
    size_t from, to;
    if (!window(j, self->text, args + 1, &from, &to))
        return false;
    bool found = false;
    if (args[0].type == V_TUPLE) {
        for (size_t i = 0; i < args[0].list->len; i++) {
            const struct value *item = &args[0].list->items[i];
            if (item->type != V_STRING)
                return jinja_fail(j, "tuple for %s must only contain str, not %s",
                                  at_end ? "endswith" : "startswith", value_type_name(item));
            found = found || has_affix(self->text, from, to, item->text, at_end);
        }
    } else if (args[0].type == V_STRING) {
        found = has_affix(self->text, from, to, args[0].text, at_end);
    } else {
        return jinja_fail(j, "%s first arg must be str or a tuple of str, not %s",
                          at_end ? "endswith" : "startswith", value_type_name(&args[0]));
    }
    *out = value_bool(found);
    return true;
}

METHOD(str_startswith)
{
    UNUSED;
    return affix_test(j, self, args, false, out);
}

METHOD(str_endswith)
{
    UNUSED;
    return affix_test(j, self, args, true, out);
}

METHOD(str_removeprefix)
{
    UNUSED;
    const struct text *t = self->text, *affix = NULL;
    if (!argument_text(j, &args[0], "removeprefix() argument", &affix))
        return false;
    bool has = affix && has_affix(t, 0, t->len, affix, false);
    return value_set_text(text_slice(j, t, has ? affix->len : 0, t->len), out);
}

METHOD(str_removesuffix)
{
    UNUSED;
    const struct text *t = self->text, *affix = NULL;
    if (!argument_text(j, &args[0], "removesuffix() argument", &affix))
        return false;
    bool has = affix && has_affix(t, 0, t->len, affix, true);
    return value_set_text(text_slice(j, t, 0, has ? t->len - affix->len : t->len), out);
}

METHOD(str_replace)
{
    UNUSED;
    const struct text *from = NULL, *to = NULL;
    int64_t count;
    if (!argument_text(j, &args[0], "replace() argument 1", &from) ||
        !argument_text(j, &args[1], "replace() argument 2", &to) ||
        !argument_int(j, &args[2], -1, &count))
        return false;
    if (!from || !to)
        return jinja_fail(j, "replace() argument must be str, not None");
    if (self->text->markup && !(to = text_escaped(j, to)))
        return false;
    return value_set_text(string_replace(j, self->text, from, to, count), out);
}

METHOD(str_upper)
{
    UNUSED;
    return value_set_text(string_case(j, self->text, CASE_UPPER), out);
}

METHOD(str_lower)
{
    UNUSED;
    return value_set_text(string_case(j, self->text, CASE_LOWER), out);
}

METHOD(str_title)
{
    UNUSED;
    return value_set_text(string_case(j, self->text, CASE_TITLE), out);
}

METHOD(str_capitalize)
{
    UNUSED;
    return value_set_text(string_case(j, self->text, CASE_CAPITALIZE), out);
}

METHOD(str_swapcase)
{
    UNUSED;
    return value_set_text(string_case(j, self->text, CASE_SWAP), out);
}

METHOD(str_join)
{
    UNUSED;
    struct list *items;
    if (!value_items(j, &args[0], &items))
        return false;
    for (size_t i = 0; i < items->len; i++)
        if (items->items[i].type != V_STRING)
            return jinja_fail(j, "sequence item %zu: expected str instance, %s found", i,
                              value_type_name(&items->items[i]));
    return value_set_text(string_join(j, self->text, items), out);
}

/* find, rfind, index and rindex: the index of the first or last match in characters, or -1. */
static bool find(struct jinja *j, const struct value *self, const struct value *args, bool last,
                 bool must, struct value *out)
{
    const struct text *t = self->text, *needle = NULL;
    size_t from, to, found = SIZE_MAX;
    if (!argument_text(j, &args[0], "the substring", &needle) ||
        !window(j, t, args + 1, &from, &to))
        return false;
    if (!needle)
        return jinja_fail(j, "must be str, not None");
    if (from <= to) {
        const struct text part = {.data = t->data, .len = to};
        found = last ? find_last(j, t, needle, to) : text_find(&part, needle, from);
        if (found != SIZE_MAX && found < from)
            found = SIZE_MAX;
    }
    if (found == SIZE_MAX && must)
        return jinja_fail(j, "substring not found");
    *out = value_int(found == SIZE_MAX ? -1 : (int64_t)unicode_count(t->data, found));
    return jinja_step(j, t->len / 64);
}

METHOD(str_find)
{
    UNUSED;
    return find(j, self, args, false, false, out);
}

METHOD(str_rfind)
{
    UNUSED;
    return find(j, self, args, true, false, out);
}

METHOD(str_index)
{
    UNUSED;
    return find(j, self, args, false, true, out);
}

METHOD(str_rindex)
{
    UNUSED;
    return find(j, self, args, true, true, out);
}

METHOD(str_count)
{
    UNUSED;
    const struct text *t = self->text, *needle = NULL;
    size_t from, to;
    int64_t count = 0;
    if (!argument_text(j, &args[0], "the substring", &needle) ||
        !window(j, t, args + 1, &from, &to))
        return false;
    if (!needle)
        return jinja_fail(j, "must be str, not None");
    const struct text part = {.data = t->data, .len = to};
    if (needle->len == 0 && from <= to) {
        count = (int64_t)unicode_count(t->data + from, to - from) + 1;
    } else if (from <= to) {
        for (size_t at = text_find(&part, needle, from); at != SIZE_MAX;
             at = text_find(&part, needle, at + needle->len))
            count++;
    }
    *out = value_int(count);
    return jinja_step(j, t->len / 64 + (size_t)count);
}

METHOD(str_format)
{
    UNUSED;
    return format_braces(j, self->text, call, out);
}

METHOD(str_zfill)
{
    UNUSED;
    static const struct text zero = {
        .data = "0", .len = 1, .n_chars = 1, .source = RENDER_TEMPLATE};
    const struct text *t = self->text, *digits;
    int64_t width;
    if (!value_to_index(j, &args[0], &width))
        return false;
    size_t sign = t->len && (t->data[0] == '-' || t->data[0] == '+');
    digits = text_slice(j, t, sign, t->len);
    digits = digits ? string_pad(j, digits, width - (int64_t)sign, '>', &zero) : NULL;
    const struct text *first = digits ? text_slice(j, t, 0, sign) : NULL;
    return first && value_set_text(text_concat(j, first, digits), out);
}

static bool pad(struct jinja *j, const struct value *self, const struct value *args, char align,
                struct value *out)
{
    int64_t width;
    const struct text *fill = NULL;
    if (!value_to_index(j, &args[0], &width) ||
        !argument_text(j, &args[1], "the fill character", &fill))
        return false;
    if (fill && text_chars(fill) != 1)
        return jinja_fail(j, "The fill character must be exactly one character long");
    return value_set_text(string_pad(j, self->text, width, align, fill), out);
}

METHOD(str_ljust)
{
    UNUSED;
    return pad(j, self, args, '<', out);
}

METHOD(str_rjust)
{
    UNUSED;
    return pad(j, self, args, '>', out);
}

METHOD(str_center)
{
    UNUSED;
    return pad(j, self, args, 'c', out);
}

METHOD(str_expandtabs)
{
    UNUSED;
    int64_t size, column = 0;
    struct builder b = {0};
    if (!argument_int(j, &args[0], 8, &size))
        return false;
    if (size > 1 << 20)
        return jinja_fail_memory(j);
    uint32_t code;
    const struct text *t = self->text;
    for (size_t at = 0, width; at < t->len && !j->failed; at += width) {
        width = unicode_next(t->data + at, t->len - at, &code);
        if (code == '\t') {
            int64_t spaces = size > 0 ? size - column % size : 0;
            column += spaces;
            while (spaces-- > 0)
                builder_add_slice(j, &b, &(struct text){.data = " ", .len = 1, .source = t->source},
                                  0, 1);
            continue;
        }
        builder_add_slice(j, &b, t, at, at + width);
        column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
    return value_set_text(builder_text(j, &b), out);
}

static bool is_alnum(uint32_t code)
{
    return unicode_is_alpha(code) || unicode_is_numeric(code) || unicode_is_digit(code) ||
           unicode_is_decimal(code);
}

static bool is_ascii(uint32_t code)
{
    return code < 0x80;
}

#define CLASS_METHOD(name, is)                                                                     \
    METHOD(name)                                                                                   \
    {                                                                                              \
        UNUSED;                                                                                    \
        *out = value_bool(string_is(self->text, is));                                              \
        return jinja_step(j, self->text->len / 16);                                                \
    }
CLASS_METHOD(str_isalpha, unicode_is_alpha)
CLASS_METHOD(str_isalnum, is_alnum)
CLASS_METHOD(str_isdecimal, unicode_is_decimal)
CLASS_METHOD(str_isdigit, unicode_is_digit)
CLASS_METHOD(str_isnumeric, unicode_is_numeric)
CLASS_METHOD(str_isspace, unicode_is_space)

METHOD(str_isascii)
{
    UNUSED;
    *out = value_bool(self->text->len == 0 || string_is(self->text, is_ascii));
    return true;
}

METHOD(str_isupper)
{
    UNUSED;
    *out = value_bool(string_has_case(self->text, true));
    return true;
}

METHOD(str_islower)
{
    UNUSED;
    *out = value_bool(string_has_case(self->text, false));
    return true;
}

#define NO_PARAMS                                                                                  \
    {                                                                                              \
        {0}, 0, false                                                                              \
    }

const struct method_entry string_methods[] = {
    {"strip", V_STRING, str_strip, {{"chars"}, 0, false}},
    {"lstrip", V_STRING, str_lstrip, {{"chars"}, 0, false}},
    {"rstrip", V_STRING, str_rstrip, {{"chars"}, 0, false}},
    {"split", V_STRING, str_split, {{"sep", "maxsplit"}, 0, false}},
    {"rsplit", V_STRING, str_rsplit, {{"sep", "maxsplit"}, 0, false}},
    {"splitlines", V_STRING, str_splitlines, {{"keepends"}, 0, false}},
    {"partition", V_STRING, str_partition, {{"sep"}, 1, false}},
    {"rpartition", V_STRING, str_rpartition, {{"sep"}, 1, false}},
    {"startswith", V_STRING, str_startswith, {{"prefix", "start", "end"}, 1, false}},
    {"endswith", V_STRING, str_endswith, {{"suffix", "start", "end"}, 1, false}},
    {"removeprefix", V_STRING, str_removeprefix, {{"prefix"}, 1, false}},
    {"removesuffix", V_STRING, str_removesuffix, {{"suffix"}, 1, false}},
    {"replace", V_STRING, str_replace, {{"old", "new", "count"}, 2, false}},
    {"upper", V_STRING, str_upper, NO_PARAMS},
    {"lower", V_STRING, str_lower, NO_PARAMS},
    {"casefold", V_STRING, str_lower, NO_PARAMS},
    {"title", V_STRING, str_title, NO_PARAMS},
    {"capitalize", V_STRING, str_capitalize, NO_PARAMS},
    {"swapcase", V_STRING, str_swapcase, NO_PARAMS},
    {"join", V_STRING, str_join, {{"iterable"}, 1, false}},
    {"find", V_STRING, str_find, {{"sub", "start", "end"}, 1, false}},
    {"rfind", V_STRING, str_rfind, {{"sub", "start", "end"}, 1, false}},
    {"index", V_STRING, str_index, {{"sub", "start", "end"}, 1, false}},
    {"rindex", V_STRING, str_rindex, {{"sub", "start", "end"}, 1, false}},
    {"count", V_STRING, str_count, {{"sub", "start", "end"}, 1, false}},
    {"format", V_STRING, str_format, {{0}, 0, true}},
    {"zfill", V_STRING, str_zfill, {{"width"}, 1, false}},
    {"ljust", V_STRING, str_ljust, {{"width", "fillchar"}, 1, false}},
    {"rjust", V_STRING, str_rjust, {{"width", "fillchar"}, 1, false}},
    {"center", V_STRING, str_center, {{"width", "fillchar"}, 1, false}},
    {"expandtabs", V_STRING, str_expandtabs, {{"tabsize"}, 0, false}},
    {"isalpha", V_STRING, str_isalpha, NO_PARAMS},
    {"isalnum", V_STRING, str_isalnum, NO_PARAMS},
    {"isdecimal", V_STRING, str_isdecimal, NO_PARAMS},
    {"isdigit", V_STRING, str_isdigit, NO_PARAMS},
    {"isnumeric", V_STRING, str_isnumeric, NO_PARAMS},
    {"isspace", V_STRING, str_isspace, NO_PARAMS},
    {"isascii", V_STRING, str_isascii, NO_PARAMS},
    {"isupper", V_STRING, str_isupper, NO_PARAMS},
    {"islower", V_STRING, str_islower, NO_PARAMS},
};
const size_t n_string_methods = sizeof string_methods / sizeof string_methods[0];
