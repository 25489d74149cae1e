#ifndef RADISH_PROMPT_ANSWER_TOOL_SET_H
#define RADISH_PROMPT_ANSWER_TOOL_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

/* The functions that an answer may call, as the request describes them. It copies everything it
 * needs, so it may outlive the request. Read-only once made. */
struct tool_set;

struct tool {
    const char *name;
    size_t name_len;
    const struct json *description; /* a string, or NULL */
    const struct json *parameters;  /* a JSON schema, or NULL: the function takes none */
    bool strict;                    /* arguments must match the schema */
};

/* From an array in OpenAI's form, [{"type": "function", "function": {...}}], which the request
 * reader has checked. NULL: out of memory. */
struct tool_set *tool_set_new(const struct json *tools);
void tool_set_free(struct tool_set *set);

size_t tool_set_size(const struct tool_set *set); /* 0 for NULL */
const struct tool *tool_set_at(const struct tool_set *set, size_t i);
/* The function with that name, or NULL. */
const struct tool *tool_set_find(const struct tool_set *set, const char *name, size_t len);
/* The original array. */
const struct json *tool_set_json(const struct tool_set *set);
/* The schema of a parameter, or NULL if the function's schema does not name it. */
const struct json *tool_parameter(const struct tool *tool, const char *name, size_t len);

#endif
