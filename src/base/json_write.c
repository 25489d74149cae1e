/* Building and writing JSON. Invalid UTF-8 is replaced by U+FFFD, because every client must be able
 * to read the output. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct json *json_new(struct arena *arena, enum json_type type)
{
    struct json *value = arena_alloc(arena, sizeof *value);
    if (value)
        value->type = type;
    return value;
}

struct json *json_new_string(struct arena *arena, const char *bytes, size_t len)
{
    struct json *value = json_new(arena, JSON_STRING);
    if (!value || !(value->text = arena_copy(arena, bytes, len)))
        return NULL;
    value->text_len = len;
    return value;
}

struct json *json_new_bool(struct arena *arena, bool boolean)
{
    struct json *value = json_new(arena, JSON_BOOL);
    if (value)
        value->boolean = boolean;
    return value;
}

void json_link(struct json *parent, struct json *child)
{
    *(parent->last ? &parent->last->next : &parent->first) = child;
    parent->last = child;
    parent->count++;
}

struct json *json_share(struct arena *arena, const struct json *value)
{
    struct json *copy = json_new(arena, value->type);
    if (!copy)
        return NULL;
    *copy = *value;
    copy->key = NULL;
    copy->key_len = 0;
    copy->next = NULL;
    return copy;
}

void json_append(struct arena *arena, struct json *parent, const char *key, struct json *child)
{
    if (!parent || !child)
        return;
    if (key) {
        child->key_len = strlen(key);
        child->key = arena_copy(arena, key, child->key_len);
        if (!child->key)
            return;
    }
    json_link(parent, child);
}

/* The escape of one byte below 0x20, or of a quote or backslash. */
static void escape_write(struct strbuf *out, unsigned char c)
{
    static const char named[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *found = c ? strchr(named, c) : NULL;
    if (found)
        strbuf_add(out, (char[]){'\\', names[found - named]}, 2);
    else
        strbuf_addf(out, "\\u%04x", c);
}

/* Writes the bytes without quotes. `mends`: replaces invalid UTF-8. */
static void bytes_write(struct strbuf *out, const char *bytes, size_t len, bool mends)
{
    size_t plain = 0; /* start of the run that can be copied unchanged */
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)bytes[i];
        size_t width = c < 0x80 || !mends ? 1 : utf8_valid_prefix(bytes + i, len - i);
        if (width && c >= 0x20 && c != '"' && c != '\\') {
            i += width;
            continue;
        }
        strbuf_add(out, bytes + plain, i - plain);
        if (width) {
            escape_write(out, c);
            i++;
        } else {
            size_t begun = utf8_begun_prefix(bytes + i, len - i);
            strbuf_adds(out, UTF8_REPLACEMENT);
            i += begun ? begun : 1;
        }
        plain = i;
    }
    strbuf_add(out, bytes + plain, len - plain);
}

void json_write_escaped(struct strbuf *out, const char *bytes, size_t len)
{
    bytes_write(out, bytes, len, false);
}

void json_write_string(struct strbuf *out, const char *bytes, size_t len)
{
    strbuf_addc(out, '"');
    bytes_write(out, bytes, len, true);
    strbuf_addc(out, '"');
}

void json_write_double(struct strbuf *out, double value)
{
    if (!isfinite(value)) {
        strbuf_adds(out, "null");
        return;
    }
    char digits[32];
    for (int precision = 0; precision <= 16;
         precision++) { /* d.ddde+XX, the shortest that round-trips */
        snprintf(digits, sizeof digits, "%.*e", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    int n_digits = (int)(e - digits) - (digits[0] == '-') - (strchr(digits, '.') != NULL);
    if (exponent < -4 || exponent >= 16)
        strbuf_add(out, digits, strlen(digits));
    else if (n_digits > exponent + 1)
        strbuf_addf(out, "%.*f", n_digits - 1 - exponent, value);
    else
        strbuf_addf(out, "%.1f", value);
}

void json_write(struct strbuf *out, const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: strbuf_adds(out, "null"); break;
    case JSON_BOOL: strbuf_adds(out, value->boolean ? "true" : "false"); break;
    case JSON_NUMBER: strbuf_add(out, value->text, value->text_len); break;
    case JSON_STRING: json_write_string(out, value->text, value->text_len); break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        strbuf_addc(out, value->type == JSON_ARRAY ? '[' : '{');
        json_each (child, value) {
            if (child != value->first)
                strbuf_addc(out, ',');
            if (value->type == JSON_OBJECT) {
                json_write_string(out, child->key, child->key_len);
                strbuf_addc(out, ':');
            }
            json_write(out, child);
        }
        strbuf_addc(out, value->type == JSON_ARRAY ? ']' : '}');
        break;
    }
}

/* Writes the comma before a value, and its key. */
static void member_begin(struct json_writer *w, const char *key)
{
    if (w->comma)
        strbuf_addc(w->out, ',');
    w->comma = true;
    if (key) {
        json_write_string(w->out, key, strlen(key));
        strbuf_addc(w->out, ':');
    }
}

static void container_begin(struct json_writer *w, const char *key, char open)
{
    member_begin(w, key);
    strbuf_addc(w->out, open);
    w->comma = false;
}

static void container_end(struct json_writer *w, char close)
{
    strbuf_addc(w->out, close);
    w->comma = true;
}

void json_object_begin(struct json_writer *w, const char *key)
{
    container_begin(w, key, '{');
}

void json_object_end(struct json_writer *w)
{
    container_end(w, '}');
}

void json_array_begin(struct json_writer *w, const char *key)
{
    container_begin(w, key, '[');
}

void json_array_end(struct json_writer *w)
{
    container_end(w, ']');
}

void json_add_string(struct json_writer *w, const char *key, const char *string)
{
    json_add_bytes(w, key, string, strlen(string));
}

void json_add_bytes(struct json_writer *w, const char *key, const char *bytes, size_t len)
{
    member_begin(w, key);
    json_write_string(w->out, bytes, len);
}

void json_add_int(struct json_writer *w, const char *key, int64_t value)
{
    member_begin(w, key);
    strbuf_addf(w->out, "%lld", (long long)value);
}

void json_add_double(struct json_writer *w, const char *key, double value)
{
    member_begin(w, key);
    json_write_double(w->out, value);
}

void json_add_bool(struct json_writer *w, const char *key, bool value)
{
    member_begin(w, key);
    strbuf_adds(w->out, value ? "true" : "false");
}

void json_add_null(struct json_writer *w, const char *key)
{
    member_begin(w, key);
    strbuf_adds(w->out, "null");
}

void json_add_value(struct json_writer *w, const char *key, const struct json *value)
{
    member_begin(w, key);
    json_write(w->out, value);
}
