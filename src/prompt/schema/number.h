#ifndef RADISH_PROMPT_SCHEMA_NUMBER_H
#define RADISH_PROMPT_SCHEMA_NUMBER_H

#include "prompt/schema/json_schema_internal.h"

/* Shared by number.c, which reads keywords of numbers, and range.c, which builds their grammar. */
enum {
    MULTIPLE_MAX = 1000,
    DIGITS_MAX = 64, /* before the point, where a bound asks for so many */
};

/* The i-th significant digit; '0' past the last. */
char decimal_digit(const struct decimal *d, int64_t i);
/* Number of digits before the point, without leading zeros; after it, without trailing zeros. */
int64_t decimal_integer_digits(const struct decimal *d);
int64_t decimal_fraction_digits(const struct decimal *d);

#endif
