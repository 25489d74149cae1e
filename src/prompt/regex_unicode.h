#ifndef RADISH_PROMPT_REGEX_UNICODE_H
#define RADISH_PROMPT_REGEX_UNICODE_H

#include "prompt/code_set.h"

/* The code points of a general category of Unicode that we have a table of ("L", "Letter", "N",
 * "Number"). False for others. */
bool regex_unicode_property(struct arena *arena, const char *name, struct code_set *out);

#endif
