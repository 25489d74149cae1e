#ifndef RADISH_PROMPT_GRAMMAR_REGEX_H
#define RADISH_PROMPT_GRAMMAR_REGEX_H

#include "base/arena.h"
#include "base/error.h"
#include "prompt/grammar/grammar.h"

/* Regular expressions as a tree over code points, in the dialect that ECMAScript (which JSON Schema
 * refers to) and Python share. Front ends turn the tree into grammars or automata (text_dfa.h).
 *
 *   ^a(b|c)+      read as a search ─►   sequence ─ set{a}
 *                                         ├ repeat{1,} ─ choice ─ set{b}, set{c}
 *                                         └ repeat{0,} ─ set{all}
 */
enum regex_kind {
    REGEX_EMPTY,    /* the empty text */
    REGEX_NEVER,    /* no text */
    REGEX_SET,      /* one code point of the set */
    REGEX_SEQUENCE, /* its parts one after the other */
    REGEX_CHOICE,   /* one of its parts */
    REGEX_REPEAT,   /* its part, min to max times */
    REGEX_BEGIN,    /* ^ and $: only during parsing */
    REGEX_END,
};

#define REGEX_NO_MAX GRAMMAR_NO_MAX

struct regex {
    enum regex_kind kind;
    bool has_anchor; /* contains ^ or $ */
    struct code_set set;
    uint32_t min, max;
    struct regex *first, *next; /* parts, and the sibling */
    size_t position;            /* in the text */
};

/* Whether the whole text must match, or only contain a match, as in JSON Schema's `pattern`. */
enum regex_mode { REGEX_WHOLE, REGEX_SEARCH };

/* The tree without anchors, or NULL and `err`: ERROR_INPUT with the position and what is wrong or
 * not supported there, ERROR_LIMIT, ERROR_MEMORY. */
struct regex *regex_read(struct arena *arena, const char *text, size_t len, enum regex_mode mode,
                         struct error *err);
/* The texts of a tree with `min` to `max` code points, if that is simple; NULL: it is not. */
struct regex *regex_limit_length(struct arena *arena, struct regex *e, uint32_t min, uint32_t max);
/* Some of the texts of a tree with at most `max` code points: each loop is limited to its share of
 * them. NULL: a loop would become too short to be useful. */
const struct regex *regex_shrink(struct arena *arena, const struct regex *e, uint32_t max);
void regex_length_range(const struct regex *e, uint32_t *min, uint32_t *max);

/* How the text of a grammar spells characters: unchanged, or as inside a JSON string, where some
 * must be escaped, each in one way, as in Python's json.dumps(ensure_ascii=False). In keys
 * (JSON_KEY) characters that need an escape do not match. */
enum text_spelling { TEXT_PLAIN, TEXT_JSON, TEXT_JSON_KEY };

grammar_expr code_set_to_grammar(struct grammar_builder *b, struct arena *arena,
                                 struct code_set set, enum text_spelling spelling);
grammar_expr regex_to_grammar(struct grammar_builder *b, struct arena *arena, const struct regex *e,
                              enum text_spelling spelling);

#endif
