#ifndef RADISH_PROMPT_GRAMMAR_REGEX_H
#define RADISH_PROMPT_GRAMMAR_REGEX_H

#include "base/arena.h"
#include "base/error.h"
#include "prompt/grammar/grammar.h"

/* Regular expressions as a tree over code points, in the dialect that ECMAScript (which JSON Schema
 * refers to) and Python share. Front ends make grammars of the tree, or automata (text_dfa.h).
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
    REGEX_BEGIN,    /* ^ and $: only while it is being read */
    REGEX_END,
};

#define REGEX_NO_MAX GRAMMAR_NO_MAX

struct regex {
    enum regex_kind kind;
    bool has_anchor; /* ^ or $ in it */
    struct code_set set;
    uint32_t min, max;
    struct regex *first, *next; /* parts, and the sibling */
    size_t position;            /* in the text */
};

/* Whether the text must match as a whole, or contain a match as JSON Schema's `pattern` says. */
enum regex_mode { REGEX_WHOLE, REGEX_SEARCH };

/* The tree without anchors, or NULL and `err`: ERROR_INPUT with the position and what is wrong or
 * not supported there, ERROR_LIMIT, ERROR_MEMORY. */
struct regex *regex_read(struct arena *arena, const char *text, size_t len, enum regex_mode mode,
                         struct error *err);
/* The texts of a tree that have `min` to `max` code points, if this is simple; NULL: it is not. */
struct regex *regex_limit_length(struct arena *arena, struct regex *e, uint32_t min, uint32_t max);
/* Some of the texts of a tree that have at most `max` code points: each of its loops ends where its
 * share of them ends. NULL: a loop would become too short to be of use. */
const struct regex *regex_shrink(struct arena *arena, const struct regex *e, uint32_t max);
void regex_length_range(const struct regex *e, uint32_t *min, uint32_t *max);

/* How the text of a grammar spells characters: as they are, or as inside a JSON string, where some
 * must be escaped, each in one way: as Python's json.dumps(ensure_ascii=False) does, and in keys
 * (JSON_KEY) not at all: then what must be escaped does not match. */
enum text_spelling { TEXT_PLAIN, TEXT_JSON, TEXT_JSON_KEY };

grammar_expr code_set_to_grammar(struct grammar_builder *b, struct arena *arena,
                                 struct code_set set, enum text_spelling spelling);
grammar_expr regex_to_grammar(struct grammar_builder *b, struct arena *arena, const struct regex *e,
                              enum text_spelling spelling);

#endif
