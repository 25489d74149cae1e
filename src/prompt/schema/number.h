#ifndef RADISH_PROMPT_SCHEMA_NUMBER_H
#define RADISH_PROMPT_SCHEMA_NUMBER_H

#include "prompt/schema/json_schema_internal.h"

/* What reads the keywords of numbers and what writes their grammar share. */
enum { MULTIPLE_MAX = 1000 };

/* The i-th significant digit; those behind the last are 0. */
char decimal_digit(const struct decimal *d, int64_t i);
/* Digits in front of the point without zeros in front, and behind it without zeros at the end. */
int64_t decimal_integer_digits(const struct decimal *d);
int64_t decimal_fraction_digits(const struct decimal *d);

#endif
