/* Decides whether a call repeats an earlier one while its arguments are still arriving. Any thread.
 * A partial object differs from a whole one as soon as one member does: a complete member has
 * another value, or an incomplete string is not a prefix of the other. */
#include "prompt/answer/call_repeat.h"

#include <string.h>

#include "prompt/answer/json_scan.h"
#include "prompt/schema/json_schema.h"

static const struct json *parse(struct arena *arena, struct byte_view text)
{
    return json_parse(arena, text.bytes, text.len, NULL);
}

bool call_arguments_equal(struct byte_view a, struct byte_view b)
{
    if (byte_view_equal(a, b))
        return true;
    struct arena arena = ARENA_INIT;
    const struct json *x = parse(&arena, a), *y = x ? parse(&arena, b) : NULL;
    bool equal = x && y && json_values_equal(x, y);
    arena_free(&arena);
    return equal;
}

/* ---- the start of an object ---- */

static size_t skip(const struct byte_view text, size_t at, const char *bytes)
{
    while (at < text.len && text.bytes[at] && strchr(bytes, text.bytes[at]))
        at++;
    return at;
}

/* The value at `at` ends at `end`. False: it is incomplete or not JSON. */
static bool value_end(struct byte_view text, size_t at, size_t *end)
{
    struct json_scan scan;
    json_scan_begin(&scan);
    for (*end = at; *end < text.len; ++*end)
        switch (json_scan_byte(&scan, text.bytes[*end])) {
        case JSON_SCAN_MORE: break;
        case JSON_SCAN_LAST: ++*end; return true;
        case JSON_SCAN_BEHIND: return true;
        case JSON_SCAN_BAD: return false;
        }
    return false;
}

static const struct json *member_find(const struct json *object, const struct json *key)
{
    json_each (child, object)
        if (child->key_len == key->text_len && memcmp(child->key, key->text, key->text_len) == 0)
            return child;
    return NULL;
}

/* Compares an incomplete string, without what may be half an escape or half a character. */
static bool string_may_equal(struct arena *arena, struct byte_view part, const struct json *whole)
{
    enum { LONGEST = 12 }; /* bytes of the longest escape, a pair of \uXXXX */
    size_t len = part.len;
    for (size_t i = part.len > LONGEST ? part.len - LONGEST : 0; i < part.len; i++)
        if (part.bytes[i] == '\\' || (unsigned char)part.bytes[i] >= 0x80) {
            len = i;
            break;
        }
    while (len > 1 && part.bytes[len - 1] == '\\')
        len--;
    char *copy = arena_alloc(arena, len + 1);
    if (!copy || len == 0)
        return true;
    memcpy(copy, part.bytes, len);
    copy[len] = '"';
    const struct json *string = parse(arena, (struct byte_view){copy, len + 1});
    return !string || (whole->type == JSON_STRING && string->text_len <= whole->text_len &&
                       memcmp(string->text, whole->text, string->text_len) == 0);
}

/* Compares the member at `*at` and moves `*at` past it. False: the two objects differ. `more`:
 * another member may follow. */
static bool member_may_equal(struct arena *arena, struct byte_view part, size_t *at,
                             const struct json *whole, bool *more)
{
    size_t end;
    *more = false;
    if (*at == part.len || part.bytes[*at] != '"' || !value_end(part, *at, &end))
        return true;
    const struct json *key = parse(arena, (struct byte_view){part.bytes + *at, end - *at});
    const struct json *other = key ? member_find(whole, key) : NULL;
    if (key && !other)
        return false;
    *at = skip(part, end, " \t\r\n:");
    if (!key || *at == part.len)
        return true;
    if (!value_end(part, *at, &end))
        return part.bytes[*at] != '"' ||
               string_may_equal(arena, (struct byte_view){part.bytes + *at, part.len - *at}, other);
    const struct json *value = parse(arena, (struct byte_view){part.bytes + *at, end - *at});
    *at = skip(part, end, " \t\r\n,");
    *more = value;
    return !value || json_values_equal(value, other);
}

bool call_arguments_may_equal(struct byte_view part, struct byte_view whole)
{
    if (part.len <= whole.len && memcmp(part.bytes, whole.bytes, part.len) == 0)
        return true;
    struct arena arena = ARENA_INIT;
    const struct json *object = parse(&arena, whole);
    bool may = true, more = json_is(object, JSON_OBJECT);
    size_t at = skip(part, 0, " \t\r\n{");
    while (may && more)
        may = member_may_equal(&arena, part, &at, object, &more);
    arena_free(&arena);
    return may;
}
