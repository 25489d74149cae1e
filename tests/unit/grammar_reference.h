#ifndef RADISH_GRAMMAR_REFERENCE_H
#define RADISH_GRAMMAR_REFERENCE_H

#include <string.h>

#include "prompt/grammar/grammar.h"

/* A slow and obvious matcher that grammars are compared with. A text is a list of symbols: bytes,
 * and SYMBOL_NAMED + id for tokens that the grammar names. It knows, for every expression and
 * place, where a match can end, and whether the rest of the text can be the beginning of one. */
enum { REF_TEXT_MAX = 60, REF_EXPRS_MAX = 256, REF_PARTS_MAX = 4, SYMBOL_NAMED = 256 };

enum ref_kind {
    REF_EMPTY,
    REF_NEVER,
    REF_LITERAL,
    REF_CLASS,
    REF_TOKEN,
    REF_SEQUENCE,
    REF_CHOICE,
    REF_REPEAT,
    REF_RULE,
};

struct ref_expr {
    enum ref_kind kind;
    char literal[8];
    struct code_range ranges[2];
    unsigned n_ranges;
    bool negated;
    int32_t token;
    unsigned parts[REF_PARTS_MAX], n_parts; /* also of repeats; a rule's body, 0: none yet */
    uint32_t min, max;
    bool is_productive, is_nullable, has_text; /* has_text: matches more than the empty text */
};

struct ref_grammar {
    struct ref_expr exprs[REF_EXPRS_MAX]; /* [0] is not used */
    unsigned n_exprs, root;
    uint16_t text[REF_TEXT_MAX + 1];
    unsigned len;
    struct ref_memo {
        bool is_known, is_alive;
        uint64_t ends; /* bit i: a match can end before symbol i */
    } memo[REF_EXPRS_MAX][REF_TEXT_MAX + 1];
};

/* A random grammar; with `n_named` tokens that it may name, 0 .. n_named - 1. */
void ref_make(struct ref_grammar *r, uint64_t *seed, int32_t n_named);
bool ref_is_left_recursive(const struct ref_grammar *r);
bool ref_matches_something(const struct ref_grammar *r);
/* The same grammar by the front door. */
grammar_expr ref_build(const struct ref_grammar *r, struct grammar_builder *b);
/* The text is the beginning of one that the grammar matches; or it is one. */
bool ref_can_go_on(struct ref_grammar *r, const uint16_t *text, unsigned len);
bool ref_matches(struct ref_grammar *r, const uint16_t *text, unsigned len);

void ref_print(const struct ref_grammar *r); /* for debugging a failure */

uint32_t ref_random(uint64_t *seed, uint32_t below);

#endif
