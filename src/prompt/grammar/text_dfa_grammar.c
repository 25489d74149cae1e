/* Turns an automaton into a grammar. A state becomes what may follow it: its own loop, then one of
 * its edges. Most automata of patterns have no other cycles, so most states need no rule. A state
 * with several entries, or in a cycle, gets one.
 *
 *   a state with a loop L and edges x ─► s, y ─► t, that accepts:   L* ( x s | y t | )
 */
#include "prompt/grammar/text_dfa.h"

#include <stdlib.h>

enum { INLINE_DEPTH = 16 }; /* nested states without a rule */

struct state_expr {
    grammar_expr rule; /* GRAMMAR_NONE: none */
    grammar_expr body;
    uint32_t n_entries;
    uint32_t next_edge; /* during the walk */
    uint32_t depth;
    bool seen, done;
};

struct writer {
    struct grammar_builder *b;
    struct arena *arena;
    const struct text_dfa *dfa;
    enum text_spelling spelling;
    struct state_expr *states;
    struct code_range *ranges; /* scratch for all edges of a state */
    grammar_expr *parts;
};

/* All ranges that lead from `state` to `target`, as one class. */
static grammar_expr edges_to_grammar(struct writer *w, const struct text_state *state,
                                     uint32_t target)
{
    size_t n = 0;
    for (uint32_t e = state->edges; e < state->edges + state->n_edges; e++)
        if (w->dfa->edges[e].target == target)
            w->ranges[n++] = (struct code_range){w->dfa->edges[e].first, w->dfa->edges[e].last};
    return code_set_to_grammar(w->b, w->arena, code_set_new(w->arena, w->ranges, n, false),
                               w->spelling);
}

/* The body of a state whose targets are all written or have rules. */
static grammar_expr state_body(struct writer *w, uint32_t number)
{
    const struct text_state *state = &w->dfa->states[number];
    size_t n = 0;
    grammar_expr loop = GRAMMAR_NONE;
    for (uint32_t e = state->edges; e < state->edges + state->n_edges; e++) {
        uint32_t target = w->dfa->edges[e].target;
        bool again = false; /* an earlier edge had this target */
        for (uint32_t f = state->edges; f < e && !again; f++)
            again = w->dfa->edges[f].target == target;
        if (again)
            continue;
        grammar_expr edge = edges_to_grammar(w, state, target);
        const struct state_expr *to = &w->states[target];
        if (target == number)
            loop = grammar_repeat(w->b, edge, 0, GRAMMAR_NO_MAX);
        else
            w->parts[n++] = grammar_sequence(
                w->b, (grammar_expr[]){edge, to->rule != GRAMMAR_NONE ? to->rule : to->body}, 2);
    }
    if (state->accepts)
        w->parts[n++] = grammar_empty(w->b);
    grammar_expr rest = n ? grammar_choice(w->b, w->parts, n) : grammar_never(w->b);
    return loop == GRAMMAR_NONE ? rest : grammar_sequence(w->b, (grammar_expr[]){loop, rest}, 2);
}

/* Writes every state reachable from the first, each after the states that it leads to. */
static void states_write(struct writer *w, uint32_t *stack)
{
    size_t depth = 0;
    stack[depth++] = 0;
    w->states[0].seen = true;
    while (depth) {
        uint32_t number = stack[depth - 1];
        struct state_expr *at = &w->states[number];
        const struct text_state *state = &w->dfa->states[number];
        if (at->next_edge < state->n_edges) {
            uint32_t target = w->dfa->edges[state->edges + at->next_edge++].target;
            struct state_expr *to = &w->states[target];
            if (target == number)
                continue;
            if (to->seen && !to->done && to->rule == GRAMMAR_NONE)
                to->rule = grammar_rule(w->b); /* a cycle */
            if (to->seen)
                continue;
            to->seen = true;
            to->depth = at->depth + 1;
            if (to->n_entries > 1 || to->depth % INLINE_DEPTH == 0)
                to->rule = grammar_rule(w->b);
            stack[depth++] = target;
            continue;
        }
        at->body = state_body(w, number);
        if (at->rule != GRAMMAR_NONE)
            grammar_define(w->b, at->rule, at->body);
        at->done = true;
        depth--;
    }
}

grammar_expr text_dfa_to_grammar(struct grammar_builder *b, struct arena *arena,
                                 const struct text_dfa *dfa, enum text_spelling spelling)
{
    struct writer w = {b, arena, dfa, spelling, NULL, NULL, NULL};
    w.states = arena_alloc_array(arena, dfa->n_states, sizeof *w.states);
    w.ranges = arena_alloc_array(arena, dfa->n_edges + 1, sizeof *w.ranges);
    w.parts = arena_alloc_array(arena, dfa->n_edges + 1, sizeof *w.parts);
    uint32_t *stack = arena_alloc_array(arena, dfa->n_states, sizeof *stack);
    if (!w.states || !w.ranges || !w.parts || !stack)
        return GRAMMAR_NONE;
    for (uint32_t i = 0; i < dfa->n_states; i++) {
        const struct text_state *s = &dfa->states[i];
        for (uint32_t e = s->edges; e < s->edges + s->n_edges; e++) {
            bool again = false;
            for (uint32_t f = s->edges; f < e && !again; f++)
                again = dfa->edges[f].target == dfa->edges[e].target;
            if (!again && dfa->edges[e].target != i)
                w.states[dfa->edges[e].target].n_entries++;
        }
    }
    states_write(&w, stack);
    return w.states[0].rule != GRAMMAR_NONE ? w.states[0].rule : w.states[0].body;
}
