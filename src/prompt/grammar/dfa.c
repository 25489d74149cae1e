/* Turns the NFA of a rule into a DFA, by subset construction.
 *
 * Calls and tokens are edges like bytes, but are kept outside the byte table: a state may have both
 * byte edges and calls, and then the matcher follows both. Two calls of the same rule from one
 * state become one call that returns to the union of their targets.
 *
 * If a rule may match the empty text, its start is still a separate state that is not final:
 * callers bypass such a call (see nfa.c), so calls always match something. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "prompt/grammar/grammar_internal.h"

/* What subset construction needs besides its result. */
struct subsets {
    struct compiler *c;
    struct dfa *d;
    uint32_t *members; /* of all sets, concatenated, each sorted */
    size_t n_members, cap_members;
    uint32_t *stamp; /* [n_nodes]: the number of the last closure with the node */
    uint32_t stamp_now;
    uint32_t *stack; /* [n_nodes] */
    uint32_t *set;   /* [n_nodes]: the current set */
    uint32_t n_set;
    uint32_t *alone; /* [n_nodes]: the state of the node's closure, 0: unknown */
    uint32_t *index; /* hash table of states: 0 is free */
    size_t n_index;
    struct edge *edges; /* of the current state */
    size_t n_edges, cap_edges;
};

/* An edge of the current state, by `key` (a class, a rule, a token), to an NFA node. */
struct edge {
    uint32_t kind, key, target;
};

static bool fail_memory(struct subsets *s)
{
    compiler_fail(s->c, ERROR_MEMORY, "no memory for the grammar");
    return false;
}

static bool fail_size(struct subsets *s)
{
    compiler_fail(
        s->c, ERROR_LIMIT,
        "a rule of the grammar has too many states: make it simpler or split it in rules");
    return false;
}

static void find_classes(const struct compiler *c, struct dfa *d)
{
    bool begins[257] = {[0] = true};
    for (size_t i = 0; i < c->n_nodes; i++) {
        if (c->nodes[i].kind != NFA_BYTES)
            continue;
        begins[c->nodes[i].lo] = true;
        begins[c->nodes[i].hi + 1] = true;
    }
    d->n_classes = 0;
    for (int b = 0; b < 256; b++) {
        d->n_classes += begins[b];
        d->class_of[b] = (uint8_t)(d->n_classes - 1);
    }
}

static void closure_begin(struct subsets *s)
{
    s->stamp_now++;
    s->n_set = 0;
}

/* Adds a node, and all nodes reachable from it without a symbol, to the current set. */
static void closure_add(struct subsets *s, uint32_t node)
{
    uint32_t n_stack = 0;
    if (s->stamp[node] == s->stamp_now)
        return;
    s->stamp[node] = s->stamp_now;
    s->stack[n_stack++] = node;
    while (n_stack > 0) {
        uint32_t at = s->stack[--n_stack];
        const struct nfa_node *n = &s->c->nodes[at];
        if (n->kind != NFA_SPLIT) {
            s->set[s->n_set++] = at;
            continue;
        }
        const uint32_t targets[] = {n->arg, n->target};
        for (int i = 0; i < 2; i++) {
            if (s->stamp[targets[i]] == s->stamp_now)
                continue;
            s->stamp[targets[i]] = s->stamp_now;
            s->stack[n_stack++] = targets[i];
        }
    }
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool grow_index(struct subsets *s)
{
    if (s->d->n_states * 2 < s->n_index)
        return true;
    size_t n = s->n_index ? s->n_index * 4 : 256;
    uint32_t *index = calloc(n, sizeof *index);
    if (index == NULL)
        return fail_memory(s);
    for (size_t i = 0; i < s->n_index; i++) {
        if (s->index[i] == 0)
            continue;
        const struct dfa_state *state = &s->d->states[s->index[i]];
        size_t at = hash_bytes(s->members + state->set, state->set_len * sizeof *s->members);
        while (index[at % n] != 0)
            at++;
        index[at % n] = s->index[i];
    }
    free(s->index);
    s->index = index;
    s->n_index = n;
    return true;
}

/* Adds a state for the current set; 0 on failure. */
static uint32_t add_state(struct subsets *s)
{
    struct dfa *d = s->d;
    if (d->n_states >= RULE_STATES_MAX || s->n_members + s->n_set > DFA_SETS_MAX ||
        (d->n_states + 1) * d->n_classes > DFA_TABLE_MAX)
        return fail_size(s);
    if (!grammar_grow((void **)&d->states, &d->cap_states, d->n_states, 1, sizeof *d->states) ||
        !grammar_grow((void **)&s->members, &s->cap_members, s->n_members, s->n_set,
                      sizeof *s->members) ||
        !grammar_grow((void **)&d->next, &d->cap_next, d->n_states * d->n_classes, d->n_classes,
                      sizeof *d->next))
        return fail_memory(s);
    struct dfa_state state = {.set = (uint32_t)s->n_members, .set_len = s->n_set};
    for (uint32_t i = 0; i < s->n_set; i++)
        state.is_final = state.is_final || s->c->nodes[s->set[i]].kind == NFA_MATCH;
    if (s->n_set > 0)
        memcpy(s->members + s->n_members, s->set, s->n_set * sizeof *s->set);
    s->n_members += s->n_set;
    memset(d->next + d->n_states * d->n_classes, 0, d->n_classes * sizeof *d->next);
    d->states[d->n_states] = state;
    return (uint32_t)d->n_states++;
}

/* Finds or adds the state of the current set; 0 on failure. */
static uint32_t find_state(struct subsets *s)
{
    if (!compiler_step(s->c, 8 * s->n_set) || !grow_index(s))
        return 0;
    qsort(s->set, s->n_set, sizeof *s->set, compare_numbers);
    size_t at = hash_bytes(s->set, s->n_set * sizeof *s->set) % s->n_index;
    for (; s->index[at] != 0; at = (at + 1) % s->n_index) {
        const struct dfa_state *state = &s->d->states[s->index[at]];
        if (state->set_len == s->n_set &&
            memcmp(s->members + state->set, s->set, s->n_set * sizeof *s->set) == 0)
            return s->index[at];
    }
    uint32_t state = add_state(s);
    if (state != 0)
        s->index[at] = state;
    return state;
}

static bool add_edge(struct subsets *s, uint32_t kind, uint32_t key, uint32_t target)
{
    if (!grammar_grow((void **)&s->edges, &s->cap_edges, s->n_edges, 1, sizeof *s->edges))
        return fail_memory(s);
    s->edges[s->n_edges++] = (struct edge){kind, key, target};
    return true;
}

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
}

static bool gather_edges(struct subsets *s, uint32_t state)
{
    s->n_edges = 0;
    for (uint32_t i = 0; i < s->d->states[state].set_len; i++) {
        const struct nfa_node *n = &s->c->nodes[s->members[s->d->states[state].set + i]];
        if (n->kind == NFA_CALL || n->kind == NFA_TOKEN) {
            if (!add_edge(s, n->kind, n->arg, n->target))
                return false;
        } else if (n->kind == NFA_BYTES) {
            for (uint32_t k = s->d->class_of[n->lo]; k <= s->d->class_of[n->hi]; k++)
                if (!add_edge(s, NFA_BYTES, k, n->target))
                    return false;
        }
    }
    if (!compiler_step(s->c, 1 + 8 * s->n_edges))
        return false;
    if (s->n_edges > 1)
        qsort(s->edges, s->n_edges, sizeof *s->edges, compare_edges);
    return true;
}

static bool keep_edge(struct subsets *s, uint32_t state, const struct edge *e, uint32_t target)
{
    struct dfa *d = s->d;
    if (e->kind == NFA_BYTES) {
        d->next[state * d->n_classes + e->key] = (uint16_t)target;
        return true;
    }
    if (e->kind == NFA_CALL) {
        if (!grammar_grow((void **)&d->calls, &d->cap_calls, d->n_calls, 1, sizeof *d->calls))
            return fail_memory(s);
        d->calls[d->n_calls++] = (struct grammar_call){e->key, target};
        d->states[state].n_calls++;
        return true;
    }
    if (!grammar_grow((void **)&d->named, &d->cap_named, d->n_named, 1, sizeof *d->named))
        return fail_memory(s);
    d->named[d->n_named++] = (struct grammar_named){(int32_t)e->key, target};
    d->states[state].n_named++;
    return true;
}

/* The state that the edges `i` to `end` - 1, all with the same symbol, lead to; 0 on failure. A
 * single target is the common case. Its closure is computed only once, because a large class takes
 * long. */
static uint32_t edges_target(struct subsets *s, size_t i, size_t end)
{
    uint32_t target = s->edges[i].target;
    bool is_alone = target == s->edges[end - 1].target; /* they are sorted */
    if (is_alone && s->alone[target] != 0)
        return s->alone[target];
    closure_begin(s);
    for (; i < end; i++)
        closure_add(s, s->edges[i].target);
    uint32_t state = find_state(s);
    if (is_alone)
        s->alone[target] = state;
    return state;
}

/* Adds the edges of a state; new target states are appended. */
static bool expand_state(struct subsets *s, uint32_t state)
{
    s->d->states[state].calls = (uint32_t)s->d->n_calls;
    s->d->states[state].named = (uint32_t)s->d->n_named;
    if (!gather_edges(s, state))
        return false;
    for (size_t i = 0, end; i < s->n_edges; i = end) {
        end = i + 1;
        while (end < s->n_edges && s->edges[end].kind == s->edges[i].kind &&
               s->edges[end].key == s->edges[i].key)
            end++;
        uint32_t target = edges_target(s, i, end);
        if (target == 0 || !keep_edge(s, state, &s->edges[i], target))
            return false;
    }
    return true;
}

static bool run(struct subsets *s, uint32_t nfa_start, bool may_be_empty)
{
    size_t n = s->c->n_nodes;
    s->stamp = calloc(n, sizeof *s->stamp);
    s->stack = malloc(n * sizeof *s->stack);
    s->set = malloc(n * sizeof *s->set);
    s->alone = calloc(n, sizeof *s->alone);
    if (s->stamp == NULL || s->stack == NULL || s->set == NULL || s->alone == NULL)
        return fail_memory(s);
    find_classes(s->c, s->d);
    add_state(s);
    closure_begin(s);
    closure_add(s, nfa_start);
    qsort(s->set, s->n_set, sizeof *s->set, compare_numbers);
    if (s->c->failed || add_state(s) == 0)
        return false;
    s->d->states[STATE_START].is_final = s->d->states[STATE_START].is_final && may_be_empty;
    for (uint32_t i = STATE_START; i < s->d->n_states; i++)
        if (!expand_state(s, i))
            return false;
    return true;
}

/* Builds the DFA of the compiler's NFA. With `may_be_empty` the start is final if the rule is
 * nullable. NULL: the compiler has failed. */
struct dfa *dfa_build(struct compiler *c, uint32_t nfa_start, bool may_be_empty)
{
    struct dfa *d = calloc(1, sizeof *d);
    struct subsets s = {.c = c, .d = d};
    if (d == NULL)
        fail_memory(&s);
    bool built = d != NULL && run(&s, nfa_start, may_be_empty);
    free(s.members);
    free(s.stamp);
    free(s.stack);
    free(s.set);
    free(s.alone);
    free(s.index);
    free(s.edges);
    if (built)
        return d;
    dfa_free(d);
    return NULL;
}

void dfa_free(struct dfa *d)
{
    if (d == NULL)
        return;
    free(d->states);
    free(d->next);
    free(d->calls);
    free(d->named);
    free(d);
}
