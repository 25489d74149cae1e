#ifndef RADISH_PROMPT_ANSWER_CALL_REPEAT_H
#define RADISH_PROMPT_ANSWER_CALL_REPEAT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/byte_view.h"

/* Compares the arguments of two calls of one function, so that a repeated call can be dropped.
 * Arguments are the texts of JSON objects and are compared as values: white space, escapes and the
 * order of members do not matter. */
bool call_arguments_equal(struct byte_view a, struct byte_view b);

/* `part` is the start of a call's arguments. False: however it continues, it cannot equal
 * `whole`. */
bool call_arguments_may_equal(struct byte_view part, struct byte_view whole);

#endif
