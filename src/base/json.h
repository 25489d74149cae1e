#ifndef RADISH_BASE_JSON_H
#define RADISH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/byte_view.h"
#include "base/error.h"
#include "base/strbuf.h"

/* JSON in and out. A parsed document is a tree in an arena that keeps the order of keys and the
 * text of numbers, because prompts are made of both. Strict: RFC 8259, valid UTF-8, no duplicate
 * keys, a bound on depth; errors carry the byte position.
 *
 *   {"a": [1, 2], "b": "x"}      object ─first─► array key=a ─next─► string key=b text=x
 *                                                  └first─► number text=1 ─next─► number text=2
 */
enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum { JSON_MAX_DEPTH = 128 };

struct json {
    enum json_type type;
    bool boolean;
    const char *key; /* in an object: the member's name, NUL-terminated (may contain NUL) */
    size_t key_len;
    const char *text; /* string: its decoded bytes; number: as it was written; NUL-terminated */
    size_t text_len;
    double number;
    struct json *first; /* array, object: the first child */
    struct json *last;  /* and the last */
    struct json *next;  /* the next sibling */
    size_t count;       /* array, object: number of children */
    size_t position;    /* where the value begins in the input */
};

/* The document's root, or NULL and `err` (code ERROR_INPUT with a position, ERROR_LIMIT, or
 * ERROR_MEMORY). Everything lives in `arena`. */
struct json *json_parse(struct arena *arena, const char *text, size_t len, struct error *err);
/* The same for files written by Python's tools and by editors: a leading byte order mark is
 * skipped, and NaN, Infinity and -Infinity are numbers. */
struct json *json_parse_file(struct arena *arena, const char *text, size_t len, struct error *err);

/* Reads a document from beginning to end without building a tree, for large documents that are
 * mostly lists of one kind. The text must stay in memory. A call that fails fills in the error;
 * the cursor cannot be used after that.
 *
 *   json_cursor_enter(&c, JSON_ARRAY);
 *   for (size_t n = 0; (more = json_cursor_next(&c, JSON_ARRAY, n)) > 0; n++)
 *       json_cursor_string(&c, &item); */
struct json_cursor {
    struct arena *arena;
    const char *begin, *at, *end;
    unsigned depth;
    bool takes_constants; /* NaN, Infinity and -Infinity */
    struct error *err;
};

struct json_cursor json_cursor_make(struct arena *arena, const char *text, size_t len,
                                    struct error *err);
char json_cursor_peek(struct json_cursor *c); /* what the next value begins with; NUL at the end */
size_t json_cursor_position(const struct json_cursor *c);
int json_cursor_enter(struct json_cursor *c, enum json_type type); /* an array or an object */
/* After `n` items: 1 if another follows, 0 if it is closed, -1 on an error. */
int json_cursor_next(struct json_cursor *c, enum json_type type, size_t n);
/* The bytes of both are in the document, or in the arena. */
int json_cursor_key(struct json_cursor *c, struct byte_view *out);
int json_cursor_string(struct json_cursor *c, struct byte_view *out);
struct json *json_cursor_value(struct json_cursor *c); /* of any type, as a tree; NULL: an error */
int json_cursor_end(struct json_cursor *c);            /* nothing may follow */

#define json_each(child, parent)                                                                   \
    for (const struct json *child = (parent)->first; child; child = child->next)

const char *json_type_name(enum json_type type); /* "null", "boolean", "number", "string", ... */
/* The member of that name, or NULL (also when `object` is NULL or not an object). */
const struct json *json_get(const struct json *object, const char *key);
bool json_is(const struct json *value, enum json_type type);    /* false for NULL */
bool json_equals(const struct json *value, const char *string); /* a string equal to `string` */
/* The bytes of a string, or of a number as it was written. */
static inline struct byte_view json_bytes(const struct json *value)
{
    return (struct byte_view){value->text, value->text_len};
}
/* True when the number is an integer in range, written as one (1, 1.0 and 1e2 are; 1.5 is not). */
bool json_to_int64(const struct json *value, int64_t *out);
bool json_to_uint64(const struct json *value, uint64_t *out);

/* Building a tree by hand, for contexts of templates. NULL when the arena is full. */
struct json *json_new(struct arena *arena, enum json_type type);
struct json *json_new_string(struct arena *arena, const char *bytes, size_t len);
struct json *json_new_bool(struct arena *arena, bool value);
/* A copy of a value for another tree: the value itself is copied, its children are shared. */
struct json *json_share(struct arena *arena, const struct json *value);
/* Makes `child` the last of `parent`'s children; an object's child must already have its key. */
void json_link(struct json *parent, struct json *child);
/* Appends to an object (key given, replacing nothing) or to an array (key NULL). Ignores NULLs. */
void json_append(struct arena *arena, struct json *parent, const char *key, struct json *child);

/* Writing. Each appends one JSON text to `out`; bad UTF-8 is written as U+FFFD. */
void json_write_string(struct strbuf *out, const char *bytes, size_t len);
/* A piece of a string, for use between quotes. It may be cut anywhere: bytes from 0x80 on are
 * kept. */
void json_write_escaped(struct strbuf *out, const char *bytes, size_t len);
void json_write_double(struct strbuf *out,
                       double value); /* shortest, as Python's repr; NaN: null */
void json_write(struct strbuf *out, const struct json *value); /* compact, keys in order */

/* A writer that adds the commas. Calls nest like the text:
 *   json_object_begin(&w, NULL); json_add_int(&w, "id", 1); json_object_end(&w); */
struct json_writer {
    struct strbuf *out;
    bool comma;
};

void json_object_begin(struct json_writer *w, const char *key); /* key NULL: not in an object */
void json_object_end(struct json_writer *w);
void json_array_begin(struct json_writer *w, const char *key);
void json_array_end(struct json_writer *w);
void json_add_string(struct json_writer *w, const char *key, const char *string);
void json_add_bytes(struct json_writer *w, const char *key, const char *bytes, size_t len);
void json_add_int(struct json_writer *w, const char *key, int64_t value);
void json_add_double(struct json_writer *w, const char *key, double value);
void json_add_bool(struct json_writer *w, const char *key, bool value);
void json_add_null(struct json_writer *w, const char *key);
void json_add_value(struct json_writer *w, const char *key, const struct json *value);

#endif
