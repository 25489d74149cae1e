/* The JSON reader: recursive descent over the bytes, with values in an arena. JSON_MAX_DEPTH bounds
 * the recursion. The `text` of a number is its original spelling, so 1.0 and 1 stay different when
 * written back. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "base/task.h"

static struct json *value_read(struct json_cursor *r);

static size_t position(const struct json_cursor *r)
{
    return (size_t)(r->at - r->begin);
}

/* "expected X, found Y" at the reader's position. */
static void *fail_expected(struct json_cursor *r, const char *expected)
{
    if (r->at == r->end)
        error_set_at(r->err, ERROR_INPUT, position(r),
                     "unexpected end of JSON: expected %s at byte %zu", expected, position(r));
    else if ((unsigned char)*r->at >= 0x20 && (unsigned char)*r->at < 0x7f)
        error_set_at(r->err, ERROR_INPUT, position(r),
                     "invalid JSON: expected %s at byte %zu, found '%c'", expected, position(r),
                     *r->at);
    else
        error_set_at(r->err, ERROR_INPUT, position(r),
                     "invalid JSON: expected %s at byte %zu, found byte 0x%02x", expected,
                     position(r), (unsigned char)*r->at);
    return NULL;
}

static void *fail_memory(struct json_cursor *r)
{
    if (r->arena->limit_bytes)
        error_set_at(r->err, ERROR_LIMIT, position(r),
                     "JSON is too large: it needs more than %zu bytes of memory",
                     r->arena->limit_bytes);
    else
        error_set_at(r->err, ERROR_MEMORY, position(r), "no memory for JSON");
    return NULL;
}

static void *fail_stopped(struct json_cursor *r)
{
    task_error(r->err);
    return NULL;
}

static void *fail_at(struct json_cursor *r, const char *what)
{
    error_set_at(r->err, ERROR_INPUT, position(r), "invalid JSON: %s at byte %zu", what,
                 position(r));
    return NULL;
}

static void space_skip(struct json_cursor *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool byte_take(struct json_cursor *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* The four digits of \uXXXX, or -1. */
static int32_t hex4_read(struct json_cursor *r)
{
    int32_t code = 0;
    if (r->end - r->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = ascii_hex_value(r->at[i]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    r->at += 4;
    return code;
}

/* After "\u": appends the code point (both halves of a surrogate pair). */
static bool unicode_escape_read(struct json_cursor *r, char **out)
{
    int32_t code = hex4_read(r);
    if (code < 0)
        return fail_at(r, "\\u needs four hexadecimal digits"), false;
    if (code >= 0xd800 && code < 0xe000) {
        int32_t low = -1;
        if (code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
            r->at += 2;
            low = hex4_read(r);
        }
        if (low < 0xdc00 || low >= 0xe000)
            return fail_at(r, "half of a surrogate pair"), false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out += utf8_encode((uint32_t)code, *out);
    return true;
}

static bool escape_read(struct json_cursor *r, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return fail_expected(r, "an escaped character"), false;
    char c = *r->at++;
    if (c == 'u')
        return unicode_escape_read(r, out);
    const char *found = c ? strchr(names, c) : NULL;
    if (!found) {
        r->at--;
        return fail_at(r, "unknown escape in a string"), false;
    }
    *(*out)++ = values[found - names];
    return true;
}

/* Whether all of eight bytes are plain ASCII: no quote, backslash, control character or byte above
 * 0x7f. */
static bool eight_plain(const char *at)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t x;
    memcpy(&x, at, sizeof x);
    uint64_t quote = x ^ ones * '"', backslash = x ^ ones * '\\';
    return !(((x - ones * 0x20) | (quote - ones) | (backslash - ones) | x) & highs);
}

/* The first byte that needs a closer look; all bytes before it are plain. */
static const char *plain_skip(const char *at, const char *end)
{
    while (end - at >= 8 && eight_plain(at))
        at += 8;
    while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
           *at != '\\')
        at++;
    return at;
}

/* Checks a string, with `at` after its opening quote. Returns its closing quote and whether it has
 * escapes, which are checked when they are decoded. */
static const char *string_close(struct json_cursor *r, bool *escapes)
{
    const char *from = r->at;
    *escapes = false;
    for (;;) {
        r->at = plain_skip(r->at, r->end);
        if (r->at == r->end)
            return fail_expected(r, "the end of a string");
        unsigned char c = (unsigned char)*r->at;
        if (c == '"')
            break;
        if (c == '\\') {
            *escapes = true;
            r->at += r->end - r->at > 1 ? 2 : 1;
            continue;
        }
        if (c < 0x20)
            return fail_at(r, "a control character in a string must be escaped");
        size_t width = utf8_valid_prefix(r->at, (size_t)(r->end - r->at));
        if (width == 0)
            return fail_at(r, "a string is not valid UTF-8");
        r->at += width;
    }
    const char *close = r->at;
    r->at = from;
    return close;
}

/* Decodes a checked string into `text`, which has enough room because decoding never makes it
 * longer. Moves past the closing quote. */
static bool string_decode(struct json_cursor *r, const char *close, char *text, size_t *len)
{
    char *out = text;
    while (r->at < close) {
        const char *escape = memchr(r->at, '\\', (size_t)(close - r->at));
        size_t n = (size_t)((escape ? escape : close) - r->at);
        memcpy(out, r->at, n);
        out += n;
        r->at += n;
        if (!escape)
            break;
        r->at++;
        if (!escape_read(r, &out))
            return false;
    }
    r->at = close + 1;
    *out = '\0';
    *len = (size_t)(out - text);
    return true;
}

/* Reads a string, with `at` after its opening quote. */
static const char *string_read(struct json_cursor *r, size_t *len)
{
    bool escapes;
    const char *close = string_close(r, &escapes);
    if (!close)
        return NULL;
    if (!task_goes_on((size_t)(close - r->at) / 8))
        return fail_stopped(r);
    char *text = arena_alloc(r->arena, (size_t)(close - r->at) + 1);
    if (!text)
        return fail_memory(r);
    return string_decode(r, close, text, len) ? text : NULL;
}

static size_t digits_skip(struct json_cursor *r)
{
    const char *from = r->at;
    while (r->at < r->end && ascii_is_digit(*r->at))
        r->at++;
    return (size_t)(r->at - from);
}

static struct json *number_read(struct json_cursor *r)
{
    const char *from = r->at;
    size_t where = position(r);
    byte_take(r, '-');
    if (!byte_take(r, '0') && digits_skip(r) == 0)
        return fail_expected(r, "a digit");
    if (byte_take(r, '.') && digits_skip(r) == 0)
        return fail_expected(r, "a digit");
    if (byte_take(r, 'e') || byte_take(r, 'E')) {
        if (!byte_take(r, '+'))
            byte_take(r, '-');
        if (digits_skip(r) == 0)
            return fail_expected(r, "a digit");
    }
    struct json *value = json_new(r->arena, JSON_NUMBER);
    const char *text = arena_copy(r->arena, from, (size_t)(r->at - from));
    if (!value || !text)
        return fail_memory(r);
    value->position = where;
    value->text = text;
    value->text_len = (size_t)(r->at - from);
    value->number = strtod(text, NULL);
    return value;
}

static struct json *word_read(struct json_cursor *r, const char *word, enum json_type type,
                              bool boolean)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return fail_expected(r, "a value");
    struct json *value = json_new(r->arena, type);
    if (!value)
        return fail_memory(r);
    value->position = position(r);
    value->boolean = boolean;
    r->at += len;
    return value;
}

static int key_compare(const void *a, const void *b)
{
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    return byte_view_compare((struct byte_view){x->key, x->key_len},
                             (struct byte_view){y->key, y->key_len});
}

/* Sorts in order to find equal keys, because an attacker could make other methods quadratic. */
static bool keys_check_unique(struct json_cursor *r, const struct json *object)
{
    if (object->count < 2)
        return true;
    const struct json **members = malloc(object->count * sizeof *members);
    if (!members)
        return fail_memory(r), false;
    size_t n = 0;
    json_each (member, object)
        members[n++] = member;
    qsort(members, n, sizeof *members, key_compare);
    bool unique = true;
    for (size_t i = 1; i < n && unique; i++) {
        if (key_compare(&members[i - 1], &members[i]) == 0) {
            error_set_at(r->err, ERROR_INPUT, members[i]->position,
                         "invalid JSON: the key \"%.64s\" appears twice in one object",
                         members[i]->key);
            unique = false;
        }
    }
    free(members);
    return unique;
}

static struct json *member_read(struct json_cursor *r)
{
    space_skip(r);
    if (!byte_take(r, '"'))
        return fail_expected(r, "a key in quotes");
    size_t key_len;
    const char *key = string_read(r, &key_len);
    if (!key)
        return NULL;
    space_skip(r);
    if (!byte_take(r, ':'))
        return fail_expected(r, "':'");
    struct json *value = value_read(r);
    if (value) {
        value->key = key;
        value->key_len = key_len;
    }
    return value;
}

/* Reads an array or an object, with `at` after its opening bracket. */
static struct json *container_read(struct json_cursor *r, enum json_type type)
{
    char close = type == JSON_ARRAY ? ']' : '}';
    struct json *container = json_new(r->arena, type);
    if (!container)
        return fail_memory(r);
    container->position = position(r) - 1;
    if (++r->depth > JSON_MAX_DEPTH)
        return fail_at(r, "values are nested too deeply");
    space_skip(r);
    while (!byte_take(r, close)) {
        if (container->count && !byte_take(r, ','))
            return fail_expected(r, type == JSON_ARRAY ? "',' or ']'" : "',' or '}'");
        struct json *child = type == JSON_ARRAY ? value_read(r) : member_read(r);
        if (!child)
            return NULL;
        json_link(container, child);
        space_skip(r);
    }
    r->depth--;
    if (type == JSON_OBJECT && !keys_check_unique(r, container))
        return NULL;
    return container;
}

/* Reads NaN or an infinity, which JSON has no spelling for; false if it is neither. */
static bool constant_read(struct json_cursor *r, struct json **out)
{
    static const struct {
        const char *word;
        double number;
    } constants[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        size_t len = strlen(constants[i].word);
        if ((size_t)(r->end - r->at) < len || memcmp(r->at, constants[i].word, len) != 0)
            continue;
        *out = json_new(r->arena, JSON_NUMBER);
        if (!*out)
            return fail_memory(r), true;
        (*out)->text = constants[i].word;
        (*out)->text_len = len;
        (*out)->number = constants[i].number;
        (*out)->position = position(r);
        r->at += len;
        return true;
    }
    return false;
}

static struct json *value_read(struct json_cursor *r)
{
    struct json *constant;
    if (!task_goes_on(16))
        return fail_stopped(r);
    space_skip(r);
    if (r->at == r->end)
        return fail_expected(r, "a value");
    if (r->takes_constants && constant_read(r, &constant))
        return constant;
    switch (*r->at) {
    case '{': r->at++; return container_read(r, JSON_OBJECT);
    case '[': r->at++; return container_read(r, JSON_ARRAY);
    case 't': return word_read(r, "true", JSON_BOOL, true);
    case 'f': return word_read(r, "false", JSON_BOOL, false);
    case 'n': return word_read(r, "null", JSON_NULL, false);
    case '"': break;
    default:
        if (*r->at == '-' || ascii_is_digit(*r->at))
            return number_read(r);
        return fail_expected(r, "a value");
    }
    struct json *value = json_new(r->arena, JSON_STRING);
    if (!value)
        return fail_memory(r);
    value->position = position(r);
    r->at++;
    value->text = string_read(r, &value->text_len);
    return value->text ? value : NULL;
}

struct json_cursor json_cursor_make(struct arena *arena, const char *text, size_t len,
                                    struct error *err)
{
    return (struct json_cursor){
        .arena = arena, .begin = text, .at = text, .end = text + len, .err = err};
}

char json_cursor_peek(struct json_cursor *c)
{
    space_skip(c);
    return c->at < c->end ? *c->at : '\0';
}

size_t json_cursor_position(const struct json_cursor *c)
{
    return position(c);
}

int json_cursor_enter(struct json_cursor *c, enum json_type type)
{
    space_skip(c);
    if (!byte_take(c, type == JSON_ARRAY ? '[' : '{'))
        return fail_expected(c, type == JSON_ARRAY ? "an array" : "an object"), -1;
    if (++c->depth > JSON_MAX_DEPTH)
        return fail_at(c, "values are nested too deeply"), -1;
    return 0;
}

int json_cursor_next(struct json_cursor *c, enum json_type type, size_t n)
{
    space_skip(c);
    if (byte_take(c, type == JSON_ARRAY ? ']' : '}')) {
        c->depth--;
        return 0;
    }
    if (n && !byte_take(c, ','))
        return fail_expected(c, type == JSON_ARRAY ? "',' or ']'" : "',' or '}'"), -1;
    return 1;
}

int json_cursor_string(struct json_cursor *c, struct byte_view *out)
{
    bool escapes;
    space_skip(c);
    if (!byte_take(c, '"'))
        return fail_expected(c, "a string"), -1;
    const char *close = string_close(c, &escapes);
    if (!close)
        return -1;
    if (!escapes) {
        *out = (struct byte_view){c->at, (size_t)(close - c->at)};
        c->at = close + 1;
        return 0;
    }
    char *text = arena_alloc(c->arena, (size_t)(close - c->at) + 1);
    if (!text)
        return fail_memory(c), -1;
    out->bytes = text;
    return string_decode(c, close, text, &out->len) ? 0 : -1;
}

int json_cursor_key(struct json_cursor *c, struct byte_view *out)
{
    if (json_cursor_string(c, out) != 0)
        return -1;
    space_skip(c);
    return byte_take(c, ':') ? 0 : (fail_expected(c, "':'"), -1);
}

struct json *json_cursor_value(struct json_cursor *c)
{
    return value_read(c);
}

int json_cursor_end(struct json_cursor *c)
{
    space_skip(c);
    return c->at == c->end ? 0 : (fail_expected(c, "the end of the text"), -1);
}

struct json *json_parse(struct arena *arena, const char *text, size_t len, struct error *err)
{
    struct json_cursor c = json_cursor_make(arena, text, len, err);
    struct json *root = value_read(&c);
    return root && json_cursor_end(&c) == 0 ? root : NULL;
}

struct json *json_parse_file(struct arena *arena, const char *text, size_t len, struct error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct json_cursor c = json_cursor_make(arena, text, len, err);
    c.takes_constants = true;
    if (len >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0)
        c.at += sizeof mark - 1;
    struct json *root = value_read(&c);
    return root && json_cursor_end(&c) == 0 ? root : NULL;
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    return names[type];
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!json_is(object, JSON_OBJECT))
        return NULL;
    size_t len = strlen(key);
    json_each (member, object)
        if (member->key_len == len && memcmp(member->key, key, len) == 0)
            return member;
    return NULL;
}

bool json_is(const struct json *value, enum json_type type)
{
    return value && value->type == type;
}

bool json_equals(const struct json *value, const char *string)
{
    return json_is(value, JSON_STRING) && value->text_len == strlen(string) &&
           memcmp(value->text, string, value->text_len) == 0;
}

/* The magnitude of a number spelled as plain digits, if it fits. */
static bool digits_to_uint64(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool json_to_uint64(const struct json *value, uint64_t *out)
{
    if (!json_is(value, JSON_NUMBER))
        return false;
    if (digits_to_uint64(value->text, out))
        return true;
    /* 1.0 and 1e2: exact as a double, so below 2^53 */
    if (!(value->number >= 0 && value->number < 9007199254740992.0))
        return false;
    *out = (uint64_t)value->number;
    return (double)*out == value->number;
}

bool json_to_int64(const struct json *value, int64_t *out)
{
    uint64_t magnitude;
    if (!json_is(value, JSON_NUMBER))
        return false;
    if (value->text[0] != '-') {
        if (!json_to_uint64(value, &magnitude) || magnitude > INT64_MAX)
            return false;
        *out = (int64_t)magnitude;
        return true;
    }
    if (digits_to_uint64(value->text + 1, &magnitude)) {
        if (magnitude > (uint64_t)INT64_MAX + 1)
            return false;
        *out = (int64_t)(0 - magnitude);
        return true;
    }
    if (!(value->number <= 0 && value->number > -9007199254740992.0))
        return false;
    *out = (int64_t)value->number;
    return (double)*out == value->number;
}
