#ifndef RADISH_PROMPT_ANSWER_JSON_SCAN_H
#define RADISH_PROMPT_ANSWER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* Checks one JSON value byte by byte and finds its end, without storing it. Control characters in
 * strings are accepted, because models write them and their meaning is clear; `in_string` lets the
 * caller write them as escapes when it copies the text. */
struct json_scan {
    uint8_t state;
    uint8_t n_hex;       /* digits of \uXXXX to come */
    bool in_string;      /* the next byte belongs to a string */
    bool in_key;         /* ... that is a member's name */
    const char *literal; /* the rest of true, false or null */
    uint32_t depth;
    uint64_t objects[JSON_MAX_DEPTH / 64]; /* bit: the container at that depth is an object */
};

enum json_scan_result {
    JSON_SCAN_MORE,
    JSON_SCAN_LAST,   /* this byte is the value's last */
    JSON_SCAN_BEHIND, /* the value ended before this byte (numbers only) */
    JSON_SCAN_BAD,
};

void json_scan_begin(struct json_scan *s);
enum json_scan_result json_scan_byte(struct json_scan *s, char c);
/* True after a byte that was bad, if a } there would have ended the value. */
bool json_scan_lacks_brace(const struct json_scan *s);
/* True if `text` is one object, perhaps with white space around it. */
bool json_scan_is_object(const char *text, size_t len);

#endif
