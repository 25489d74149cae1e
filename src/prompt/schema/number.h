#ifndef RADISH_PROMPT_SCHEMA_NUMBER_H
#define RADISH_PROMPT_SCHEMA_NUMBER_H

#include "prompt/schema/json_schema_internal.h"

/* What reads the keywords of numbers and what writes their grammar share. */
enum { MULTIPLE_MAX = 1000 };

/* The part in front of the point, without its sign. False when it does not fit. */
bool decimal_magnitude(const struct decimal *d, uint64_t *out);

#endif
