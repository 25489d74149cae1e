#ifndef RADISH_PROMPT_ANSWER_JSON_SCAN_H
#define RADISH_PROMPT_ANSWER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* Checks one JSON value that comes byte by byte, and says where it ends. Nothing is kept of it.
 * One thing is forgiven, because models do it and it has one meaning: control characters in a
 * string. `in_string` is there for who copies the text and writes them as escapes. */
struct json_scan {
    uint8_t state;
    uint8_t n_hex;       /* digits of \uXXXX to come */
    bool in_string;      /* the next byte belongs to a string */
    bool in_key;         /* ... to one that is a member's name */
    const char *literal; /* what is still to come of true, false, null */
    uint32_t depth;
    uint64_t objects[JSON_MAX_DEPTH / 64]; /* bit: the container at that depth is an object */
};

enum json_scan_result {
    JSON_SCAN_MORE,
    JSON_SCAN_LAST,   /* this byte is the value's last */
    JSON_SCAN_BEHIND, /* the value ended before this byte: only numbers do that */
    JSON_SCAN_BAD,
};

void json_scan_begin(struct json_scan *s);
enum json_scan_result json_scan_byte(struct json_scan *s, char c);
/* True when all of `text` is one object, perhaps with white space around it. */
bool json_scan_is_object(const char *text, size_t len);

#endif
