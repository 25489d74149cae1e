#ifndef RADISH_PROMPT_GRAMMAR_REGEX_INTERNAL_H
#define RADISH_PROMPT_GRAMMAR_REGEX_INTERNAL_H

#include "prompt/grammar/regex.h"

/* What reads regular expressions and what resolves their anchors share. */
struct regex *regex_new(struct arena *arena, enum regex_kind kind); /* NULL: no memory */

/* The same texts without anchors: a search gets any text before and behind what it looks for,
 * unless ^ or $ stand there. Refuses anchors in the middle. */
struct regex *regex_resolve_anchors(struct arena *arena, struct regex *e, enum regex_mode mode,
                                    struct error *err);

#endif
