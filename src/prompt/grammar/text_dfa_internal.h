#ifndef RADISH_PROMPT_GRAMMAR_TEXT_DFA_INTERNAL_H
#define RADISH_PROMPT_GRAMMAR_TEXT_DFA_INTERNAL_H

#include "prompt/grammar/text_dfa.h"

enum { TEXT_STATES_MAX = 16384, TEXT_EDGES_MAX = 262144 };

/* An automaton under construction: states are added as they are found, and edges are added to one
 * state at a time. */
struct text_dfa_builder {
    struct text_state *states;
    struct text_edge *edges;
    uint32_t n_states, states_capacity, n_edges, edges_capacity;
    uint32_t n_built; /* the state that gets edges */
    struct error *err;
};

bool text_state_add(struct text_dfa_builder *d, bool accepts); /* its number is n_states - 1 */
void text_state_begin(struct text_dfa_builder *d, uint32_t state);
/* Called in order; joins the edge to the previous one if both lead to the same state. */
bool text_edge_add(struct text_dfa_builder *d, uint32_t first, uint32_t last, uint32_t target);
/* A copy without the states that lead nowhere. The builder remains. */
struct text_dfa *text_dfa_builder_finish(struct text_dfa_builder *d, struct arena *arena);
void text_dfa_builder_free(struct text_dfa_builder *d);

#endif
