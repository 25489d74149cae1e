#ifndef RADISH_PROMPT_GRAMMAR_TEXT_DFA_H
#define RADISH_PROMPT_GRAMMAR_TEXT_DFA_H

#include "base/byte_view.h"
#include "prompt/grammar/regex.h"

/* Deterministic automata over code points: for what a tree of a regular expression cannot express
 * (this pattern and that one, any name but these, a pattern with a length). Immutable, in an arena.
 * State 0 is the first. A code point without an edge leads nowhere. From every state, except
 * perhaps the first, an end can be reached.
 *
 *   states  [0]──'a'..'z'─►[1 accepts]──'0'..'9'─►[1]
 */
struct text_edge {
    uint32_t first, last; /* code points */
    uint32_t target;
};

struct text_state {
    uint32_t edges, n_edges; /* sorted, not overlapping */
    bool accepts;
};

struct text_dfa {
    struct text_state *states;
    struct text_edge *edges;
    uint32_t n_states, n_edges;
};

enum text_operation { TEXT_AND, TEXT_OR, TEXT_AND_NOT };

/* On failure, each returns NULL and `err` (ERROR_LIMIT if the automaton is too large,
 * ERROR_MEMORY). */
struct text_dfa *text_dfa_from_regex(struct arena *arena, const struct regex *e, struct error *err);
/* `names` must be sorted as bytes, unique, and valid UTF-8. */
struct text_dfa *text_dfa_from_names(struct arena *arena, const struct byte_view *names, size_t n,
                                     struct error *err);
struct text_dfa *text_dfa_from_lengths(struct arena *arena, uint32_t min, uint32_t max,
                                       struct error *err);
struct text_dfa *text_dfa_combine(struct arena *arena, const struct text_dfa *a,
                                  const struct text_dfa *b, enum text_operation operation,
                                  struct error *err);

bool text_dfa_accepts(const struct text_dfa *dfa, const char *bytes, size_t len);
bool text_dfa_is_empty(const struct text_dfa *dfa); /* it accepts no text */

grammar_expr text_dfa_to_grammar(struct grammar_builder *b, struct arena *arena,
                                 const struct text_dfa *dfa, enum text_spelling spelling);

#endif
