/* Strings of a template and their builder: the bytes and their sources. A text never changes, but
 * its builder may grow past its end, so readers must stop at `len` bytes and shorten the last run
 * accordingly. */
#include "prompt/jinja/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "prompt/unicode/unicode.h"

enum { FIRST_BYTES = 32 };

static bool output_reserve(struct jinja *j, struct builder *b, size_t extra)
{
    const size_t most = JINJA_MAX_OUTPUT_BYTES;
    if (extra > most - b->len)
        return jinja_fail(j, "the output is larger than %zu MiB", most >> 20);
    size_t capacity = (b->len + extra) * 2 + 4096;
    capacity = capacity < most ? capacity : most;
    char *data = realloc(b->data, capacity + 1); /* room for the final NUL */
    if (!data)
        return jinja_fail_memory(j);
    b->data = data;
    b->capacity = capacity;
    return true;
}

bool builder_reserve(struct jinja *j, struct builder *b, size_t extra)
{
    if (extra <= b->capacity - b->len)
        return true;
    if (b->is_output)
        return output_reserve(j, b, extra);
    if (extra > JINJA_MAX_MEMORY_BYTES) {
        jinja_fail_memory(j);
        return false;
    }
    size_t capacity = b->len ? (b->len + extra) * 3 / 2 : extra < FIRST_BYTES ? FIRST_BYTES : extra;
    char *data = jinja_alloc(j, capacity);
    if (!data)
        return false;
    if (b->len)
        memcpy(data, b->data, b->len);
    b->data = data;
    b->capacity = capacity;
    return true;
}

static bool builder_add_run(struct jinja *j, struct builder *b, int32_t source)
{
    if (b->n_runs == b->runs_capacity) {
        size_t capacity = b->runs_capacity ? b->runs_capacity * 2 : 4;
        struct render_segment *runs = jinja_alloc_array(j, capacity, sizeof *runs);
        if (!runs)
            return false;
        if (b->n_runs)
            memcpy(runs, b->runs, b->n_runs * sizeof *runs);
        b->runs = runs;
        b->runs_capacity = capacity;
    }
    b->runs[b->n_runs++] = (struct render_segment){b->len, source};
    return true;
}

void builder_add(struct jinja *j, struct builder *b, const char *bytes, size_t len, int32_t source)
{
    if (len == 0 || j->failed || !jinja_step(j, len / 64) || !builder_reserve(j, b, len))
        return;
    bool same = b->n_runs && b->runs[b->n_runs - 1].source == source;
    if (!same && !builder_add_run(j, b, source))
        return;
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->runs[b->n_runs - 1].end = b->len;
}

void builder_adds(struct jinja *j, struct builder *b, const char *string)
{
    builder_add(j, b, string, strlen(string), RENDER_TEMPLATE);
}

void builder_add_code(struct jinja *j, struct builder *b, uint32_t code, int32_t source)
{
    char utf8[4];
    builder_add(j, b, utf8, utf8_encode(code, utf8), source);
}

void builder_add_slice(struct jinja *j, struct builder *b, const struct text *t, size_t from,
                       size_t to)
{
    if (!t->runs) {
        builder_add(j, b, t->data + from, to - from, t->source);
        return;
    }
    for (size_t i = 0; i < t->n_runs && from < to; i++) {
        size_t end = t->runs[i].end < to ? t->runs[i].end : to;
        if (end <= from)
            continue;
        builder_add(j, b, t->data + from, end - from, t->runs[i].source);
        from = end;
    }
}

void builder_add_text(struct jinja *j, struct builder *b, const struct text *t)
{
    builder_add_slice(j, b, t, 0, t->len);
}

void builder_add_escaped(struct jinja *j, struct builder *b, const struct text *t)
{
    size_t plain = 0;
    for (size_t i = 0; i < t->len; i++) {
        const char *entity = NULL;
        switch (t->data[i]) {
        case '&': entity = "&amp;"; break;
        case '<': entity = "&lt;"; break;
        case '>': entity = "&gt;"; break;
        case '\'': entity = "&#39;"; break;
        case '"': entity = "&#34;"; break;
        }
        if (!entity)
            continue;
        builder_add_slice(j, b, t, plain, i);
        builder_add(j, b, entity, strlen(entity), text_source(t));
        plain = i + 1;
    }
    builder_add_slice(j, b, t, plain, t->len);
}

const struct text *builder_text(struct jinja *j, const struct builder *b)
{
    struct text *t = j->failed ? NULL : jinja_alloc(j, sizeof *t);
    struct builder *kept = t ? jinja_alloc(j, sizeof *kept) : NULL;
    if (!kept)
        return NULL;
    *kept = *b;
    *t = (struct text){.data = b->data ? b->data : "",
                       .len = b->len,
                       .n_chars = SIZE_MAX,
                       .builder = kept,
                       .source = b->n_runs ? b->runs[0].source : RENDER_TEMPLATE};
    if (b->n_runs > 1) {
        t->runs = b->runs;
        t->n_runs = b->n_runs;
    }
    return t;
}

const struct text *text_view(struct jinja *j, const char *bytes, size_t len, int32_t source)
{
    struct text *t = jinja_alloc(j, sizeof *t);
    if (t)
        *t = (struct text){.data = bytes, .len = len, .n_chars = SIZE_MAX, .source = source};
    return t;
}

const struct text *text_new(struct jinja *j, const char *bytes, size_t len, int32_t source)
{
    char *copy = jinja_alloc(j, len + 1);
    if (!copy)
        return NULL;
    if (len)
        memcpy(copy, bytes, len);
    return text_view(j, copy, len, source);
}

const struct text *text_slice(struct jinja *j, const struct text *t, size_t from, size_t to)
{
    if (from == 0 && to == t->len)
        return t;
    struct text *slice = jinja_alloc(j, sizeof *slice);
    if (!slice)
        return NULL;
    *slice = (struct text){.data = t->data + from,
                           .len = to - from,
                           .n_chars = t->n_chars == t->len ? to - from : SIZE_MAX,
                           .source = t->source,
                           .markup = t->markup};
    if (!t->runs)
        return slice;
    size_t first = 0;
    while (first + 1 < t->n_runs && t->runs[first].end <= from)
        first++;
    size_t last = first;
    while (last + 1 < t->n_runs && t->runs[last].end < to)
        last++;
    slice->source = t->runs[first].source;
    if (first == last)
        return slice;
    struct render_segment *runs = jinja_alloc_array(j, last - first + 1, sizeof *runs);
    if (!runs)
        return NULL;
    for (size_t i = first; i <= last; i++)
        runs[i - first] = (struct render_segment){t->runs[i].end - from, t->runs[i].source};
    slice->runs = runs;
    slice->n_runs = last - first + 1;
    return slice;
}

const struct text *text_with_markup(struct jinja *j, const struct text *t, bool markup)
{
    if (!t || t->markup == markup)
        return t;
    struct text *copy = jinja_alloc(j, sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *t;
    copy->markup = markup;
    return copy;
}

const struct text *text_escaped(struct jinja *j, const struct text *t)
{
    if (t->markup)
        return t;
    struct builder b = {0};
    builder_add_escaped(j, &b, t);
    return text_with_markup(j, builder_text(j, &b), true);
}

bool text_extends(const struct text *t)
{
    return t->builder && t->builder->data == t->data && t->builder->len == t->len;
}

const struct text *text_concat(struct jinja *j, const struct text *a, const struct text *b)
{
    bool markup = a->markup || b->markup;
    if (markup) {
        a = text_escaped(j, a);
        b = a ? text_escaped(j, b) : NULL;
        if (!b)
            return NULL;
    }
    if (b->len == 0)
        return text_with_markup(j, a, markup);
    if (a->len == 0)
        return text_with_markup(j, b, markup);
    struct builder *grown = a->builder;
    if (!text_extends(a)) {
        if (!(grown = jinja_alloc(j, sizeof *grown)))
            return NULL;
        if (!builder_reserve(j, grown, a->len + b->len))
            return NULL;
        builder_add_text(j, grown, a);
    }
    builder_add_text(j, grown, b);
    struct text *t = j->failed ? NULL : jinja_alloc(j, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct text){.data = grown->data,
                       .len = grown->len,
                       .n_chars = SIZE_MAX,
                       .builder = grown,
                       .source = grown->runs[0].source,
                       .markup = markup};
    if (grown->n_runs > 1) {
        t->runs = grown->runs;
        t->n_runs = grown->n_runs;
    }
    return t;
}

int32_t source_mix(int32_t a, int32_t b)
{
    if (a == b || b == RENDER_TEMPLATE)
        return a;
    return a == RENDER_TEMPLATE ? b : RENDER_DATA;
}

int32_t text_source(const struct text *t)
{
    if (!t->runs)
        return t->source;
    int32_t source = RENDER_TEMPLATE;
    for (size_t i = 0; i < t->n_runs; i++)
        source = source_mix(source, t->runs[i].source);
    return source;
}

size_t text_chars(const struct text *t)
{
    if (t->n_chars != SIZE_MAX)
        return t->n_chars;
    size_t count = unicode_count(t->data, t->len);
    /* Threads share the texts of the parsed template, but the parser has already counted those. */
    ((struct text *)t)->n_chars = count;
    return count;
}

size_t text_offset(const struct text *t, size_t index)
{
    if (text_chars(t) == t->len)
        return index < t->len ? index : t->len;
    size_t at = 0;
    uint32_t code;
    while (index-- && at < t->len)
        at += unicode_next(t->data + at, t->len - at, &code);
    return at;
}

bool text_is(const struct text *t, const char *string)
{
    return t->len == strlen(string) && memcmp(t->data, string, t->len) == 0;
}

bool text_equal(const struct text *a, const struct text *b)
{
    return a == b || (a->len == b->len && memcmp(a->data, b->data, a->len) == 0);
}

int text_order(const struct text *a, const struct text *b)
{
    size_t common = a->len < b->len ? a->len : b->len;
    int order = common ? memcmp(a->data, b->data, common) : 0;
    if (order == 0 && a->len != b->len)
        order = a->len < b->len ? -1 : 1;
    return order < 0 ? -1 : order > 0;
}

size_t text_find(const struct text *t, const struct text *needle, size_t from)
{
    if (from > t->len)
        return SIZE_MAX;
    if (needle->len == 0)
        return from;
    const char *found = memmem(t->data + from, t->len - from, needle->data, needle->len);
    return found ? (size_t)(found - t->data) : SIZE_MAX;
}
