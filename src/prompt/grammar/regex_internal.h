#ifndef RADISH_PROMPT_GRAMMAR_REGEX_INTERNAL_H
#define RADISH_PROMPT_GRAMMAR_REGEX_INTERNAL_H

#include "prompt/grammar/regex.h"

/* Shared by the parser of regular expressions and the code that resolves anchors. */
struct regex *regex_new(struct arena *arena, enum regex_kind kind); /* NULL: no memory */

/* The same texts without anchors: a search gets any text before and after its match, except at ^ or
 * $. Rejects anchors in the middle. */
struct regex *regex_resolve_anchors(struct arena *arena, struct regex *e, enum regex_mode mode,
                                    struct error *err);

#endif
