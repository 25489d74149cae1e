/* Python's string operations, shared by filters and methods. Splitting and joining keep the sources
 * of the bytes; new characters count as the template's only if the whole string does. */
#include "prompt/jinja/builtin.h"

#include <string.h>

#include "prompt/unicode/unicode.h"

static bool strips(uint32_t code, const struct text *chars)
{
    if (!chars)
        return unicode_is_space(code);
    uint32_t other;
    for (size_t at = 0; at < chars->len;) {
        at += unicode_next(chars->data + at, chars->len - at, &other);
        if (other == code)
            return true;
    }
    return false;
}

const struct text *string_strip(struct jinja *j, const struct text *t, const struct text *chars,
                                int sides)
{
    size_t from = 0, to = t->len;
    uint32_t code;
    while (sides & STRIP_LEFT && from < to) {
        size_t width = unicode_next(t->data + from, to - from, &code);
        if (!strips(code, chars))
            break;
        from += width;
    }
    while (sides & STRIP_RIGHT && to > from) {
        size_t width = unicode_last(t->data + from, to - from, &code);
        if (!strips(code, chars))
            break;
        to -= width;
    }
    return jinja_step(j, (from + t->len - to) / 16) ? text_slice(j, t, from, to) : NULL;
}

/* For an empty pattern, Python puts the replacement before every character and at the end. */
static const struct text *replace_empty(struct jinja *j, const struct text *t,
                                        const struct text *to, int64_t count)
{
    struct builder b = {0};
    size_t at = 0;
    uint32_t code;
    while (!j->failed) {
        if (count-- > 0)
            builder_add_text(j, &b, to);
        if (at == t->len)
            break;
        size_t width = unicode_next(t->data + at, t->len - at, &code);
        builder_add_slice(j, &b, t, at, at + width);
        at += width;
    }
    return text_with_markup(j, builder_text(j, &b), t->markup);
}

const struct text *string_replace(struct jinja *j, const struct text *t, const struct text *from,
                                  const struct text *to, int64_t count)
{
    if (count < 0)
        count = INT64_MAX;
    if (from->len == 0)
        return replace_empty(j, t, to, count);
    size_t found = count ? text_find(t, from, 0) : SIZE_MAX;
    if (found == SIZE_MAX)
        return jinja_step(j, t->len / 64) ? t : NULL;
    struct builder b = {0};
    size_t at = 0;
    while (found != SIZE_MAX && !j->failed) {
        builder_add_slice(j, &b, t, at, found);
        builder_add_text(j, &b, to);
        at = found + from->len;
        if (!jinja_step(j, 1))
            return NULL;
        found = --count > 0 ? text_find(t, from, at) : SIZE_MAX;
    }
    builder_add_slice(j, &b, t, at, t->len);
    return text_with_markup(j, builder_text(j, &b), t->markup);
}

/* A capital sigma at the end of a word becomes the final small sigma. */
static bool is_final_sigma(const struct text *t, size_t at)
{
    uint32_t code;
    size_t before = at, after = at + 2;
    bool letter_before = false, letter_after = false;
    while (before > 0 && !letter_before) {
        before -= unicode_last(t->data, before, &code);
        letter_before = unicode_is_alpha(code);
        if (!letter_before && code != '\'' && code != 0xad && code != '.')
            break;
    }
    while (after < t->len && !letter_after) {
        after += unicode_next(t->data + after, t->len - after, &code);
        letter_after = unicode_is_alpha(code);
        if (!letter_after && code != '\'' && code != 0xad && code != '.')
            break;
    }
    return letter_before && !letter_after;
}

static size_t lower_at(const struct text *t, size_t at, uint32_t code, char *out)
{
    if (code == 0x3a3 && is_final_sigma(t, at)) {
        memcpy(out, "\xcf\x82", 2);
        return 2;
    }
    return unicode_lower(code, out);
}

const struct text *string_case(struct jinja *j, const struct text *t, enum letter_case how)
{
    struct builder b = {0};
    int32_t source = text_source(t);
    bool in_word = false;
    uint32_t code;
    for (size_t at = 0, width; at < t->len && !j->failed; at += width) {
        char mapped[UNICODE_CASE_MAX];
        size_t len;
        width = unicode_next(t->data + at, t->len - at, &code);
        if (how == CASE_UPPER || (how == CASE_SWAP && unicode_is_lower(code)))
            len = unicode_upper(code, mapped);
        else if (how == CASE_LOWER || how == CASE_SWAP)
            len = lower_at(t, at, code, mapped);
        else if (in_word)
            len = lower_at(t, at, code, mapped);
        else
            len = unicode_title(code, mapped);
        in_word = how == CASE_CAPITALIZE || unicode_is_upper(code) || unicode_is_lower(code);
        builder_add(j, &b, mapped, len, source);
        if (!jinja_step(j, at & 15 ? 0 : 1))
            return NULL;
    }
    return text_with_markup(j, builder_text(j, &b), t->markup);
}

struct list *string_split_lines(struct jinja *j, const struct text *t, bool keep_ends)
{
    struct list *lines = list_new(j, 0);
    uint32_t code;
    for (size_t from = 0, at = 0; lines && from < t->len; from = at) {
        size_t end = t->len;
        for (at = from; at < t->len;) {
            size_t width = unicode_next(t->data + at, t->len - at, &code);
            if (unicode_is_line_end(code)) {
                end = at;
                at += width;
                at += code == '\r' && at < t->len && t->data[at] == '\n';
                break;
            }
            at += width;
        }
        struct value line = value_text(text_slice(j, t, from, keep_ends ? at : end));
        if (!line.text || !list_add(j, lines, &line) || !jinja_step(j, 1 + (at - from) / 16))
            return NULL;
    }
    return lines;
}

const struct text *string_join(struct jinja *j, const struct text *separator,
                               const struct list *items)
{
    struct builder b = {0};
    for (size_t i = 0; i < items->len && !j->failed; i++) {
        const struct text *item = value_str(j, &items->items[i]);
        if (i)
            builder_add_text(j, &b, separator);
        if (item && separator->markup && !item->markup)
            builder_add_escaped(j, &b, item);
        else if (item)
            builder_add_text(j, &b, item);
        jinja_step(j, 1);
    }
    return text_with_markup(j, builder_text(j, &b), separator->markup);
}

const struct text *string_pad(struct jinja *j, const struct text *t, int64_t width, char align,
                              const struct text *fill)
{
    static const struct text space = {
        .data = " ", .len = 1, .n_chars = 1, .source = RENDER_TEMPLATE};
    int64_t missing = width - (int64_t)text_chars(t);
    if (missing <= 0)
        return t;
    if (missing > JINJA_MAX_MEMORY_BYTES) {
        jinja_fail_memory(j);
        return NULL;
    }
    /* Python's center() puts the odd space on the left if the width is odd. */
    int64_t left = align == '<'   ? 0
                   : align == '>' ? missing
                   : align == '^' ? missing / 2
                                  : missing / 2 + (missing & width & 1);
    struct builder b = {0};
    for (int64_t i = 0; i < left; i++)
        builder_add_text(j, &b, fill ? fill : &space);
    builder_add_text(j, &b, t);
    for (int64_t i = left; i < missing && !j->failed; i++)
        builder_add_text(j, &b, fill ? fill : &space);
    return text_with_markup(j, builder_text(j, &b), t->markup);
}

bool string_is(const struct text *t, bool (*is)(uint32_t))
{
    uint32_t code;
    for (size_t at = 0; at < t->len;) {
        at += unicode_next(t->data + at, t->len - at, &code);
        if (!is(code))
            return false;
    }
    return t->len > 0;
}

bool string_has_case(const struct text *t, bool upper)
{
    bool any = false;
    uint32_t code;
    for (size_t at = 0; at < t->len;) {
        at += unicode_next(t->data + at, t->len - at, &code);
        if (upper ? unicode_is_lower(code) : unicode_is_upper(code))
            return false;
        any |= upper ? unicode_is_upper(code) : unicode_is_lower(code);
    }
    return any;
}
