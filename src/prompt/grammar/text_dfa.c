/* Automata over code points: made from lists of names, from lengths, and from each other.
 * Everything is bounded, because patterns come from clients. */
#include "prompt/grammar/text_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "prompt/grammar/text_dfa_internal.h"

enum { NO_STATE = UINT32_MAX };

/* ---- building ------------------------------------------------------------------------------ */

void text_dfa_builder_free(struct text_dfa_builder *d)
{
    free(d->states);
    free(d->edges);
}

static bool grow(void **array, uint32_t *capacity, uint32_t n, size_t size, uint32_t limit,
                 struct error *err)
{
    if (n < *capacity)
        return true;
    if (n >= limit) {
        error_set(err, ERROR_LIMIT, "patterns, names and lengths together are too large");
        return false;
    }
    uint32_t more = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*array, more * size);
    if (!grown) {
        error_set(err, ERROR_MEMORY, "no memory for a pattern");
        return false;
    }
    *array = grown;
    *capacity = more;
    return true;
}

bool text_state_add(struct text_dfa_builder *d, bool accepts)
{
    if (!grow((void **)&d->states, &d->states_capacity, d->n_states, sizeof *d->states,
              TEXT_STATES_MAX, d->err))
        return false;
    d->states[d->n_states++] = (struct text_state){d->n_edges, 0, accepts};
    return true;
}

bool text_edge_add(struct text_dfa_builder *d, uint32_t first, uint32_t last, uint32_t target)
{
    struct text_state *state = &d->states[d->n_built];
    struct text_edge *previous = state->n_edges ? &d->edges[d->n_edges - 1] : NULL;
    if (previous && previous->target == target && previous->last + 1 == first) {
        previous->last = last;
        return true;
    }
    if (!grow((void **)&d->edges, &d->edges_capacity, d->n_edges, sizeof *d->edges, TEXT_EDGES_MAX,
              d->err))
        return false;
    d->edges[d->n_edges++] = (struct text_edge){first, last, target};
    state->n_edges++;
    return true;
}

void text_state_begin(struct text_dfa_builder *d, uint32_t state)
{
    d->n_built = state;
    d->states[state].edges = d->n_edges;
}

/* Marks the states from which an end can be reached: a walk backwards from the ends.
 * `from` lists, for each state, those that lead to it: [begins[s], begins[s + 1]). */
static bool live_mark(const struct text_dfa_builder *d, struct arena *arena, bool *live)
{
    uint32_t *begins = arena_alloc_array(arena, (size_t)d->n_states + 2, sizeof *begins);
    uint32_t *from = arena_alloc_array(arena, (size_t)d->n_edges + 1, sizeof *from);
    uint32_t *stack = arena_alloc_array(arena, d->n_states, sizeof *stack);
    if (!begins || !from || !stack)
        return false;
    for (uint32_t e = 0; e < d->n_edges; e++)
        begins[d->edges[e].target + 2]++;
    for (uint32_t i = 2; i < d->n_states + 2; i++)
        begins[i] += begins[i - 1];
    size_t depth = 0;
    for (uint32_t i = 0; i < d->n_states; i++) {
        const struct text_state *s = &d->states[i];
        for (uint32_t e = s->edges; e < s->edges + s->n_edges; e++)
            from[begins[d->edges[e].target + 1]++] = i;
        if (s->accepts)
            stack[depth++] = i;
        live[i] = s->accepts;
    }
    while (depth) {
        uint32_t at = stack[--depth];
        for (uint32_t i = begins[at]; i < begins[at + 1]; i++) {
            if (!live[from[i]])
                stack[depth++] = from[i];
            live[from[i]] = true;
        }
    }
    return true;
}

struct text_dfa *text_dfa_builder_finish(struct text_dfa_builder *d, struct arena *arena)
{
    struct text_dfa *out = arena_alloc(arena, sizeof *out);
    bool *live = arena_alloc_array(arena, d->n_states, sizeof *live);
    uint32_t *number = arena_alloc_array(arena, d->n_states, sizeof *number);
    if (out) {
        out->states = arena_alloc_array(arena, d->n_states, sizeof *out->states);
        out->edges = arena_alloc_array(arena, d->n_edges + 1, sizeof *out->edges);
    }
    if (!out || !live || !number || !out->states || !out->edges || !live_mark(d, arena, live)) {
        error_set(d->err, ERROR_LIMIT, "patterns, names and lengths together are too large");
        return NULL;
    }
    for (uint32_t i = 0; i < d->n_states; i++)
        number[i] = i == 0 || live[i] ? out->n_states++ : NO_STATE;
    for (uint32_t i = 0; i < d->n_states; i++) {
        if (number[i] == NO_STATE)
            continue;
        struct text_state *to = &out->states[number[i]];
        *to = (struct text_state){out->n_edges, 0, d->states[i].accepts};
        for (uint32_t e = 0; e < d->states[i].n_edges; e++) {
            struct text_edge edge = d->edges[d->states[i].edges + e];
            if (!live[edge.target])
                continue;
            edge.target = number[edge.target];
            out->edges[out->n_edges++] = edge;
            to->n_edges++;
        }
    }
    return out;
}

/* ---- names and lengths --------------------------------------------------------------------- */

/* The names of a trie state: those that share their first `depth` bytes. */
struct name_run {
    size_t begin, end, depth;
};

/* Adds the edges of one trie state; states are numbered in the order of `runs`. */
static bool trie_state_build(struct text_dfa_builder *d, const struct byte_view *names,
                             struct name_run *runs, uint32_t state)
{
    struct name_run run = runs[state];
    text_state_begin(d, state);
    for (size_t i = run.begin; i < run.end;) {
        if (names[i].len == run.depth) {
            d->states[state].accepts = true;
            i++;
            continue;
        }
        const char *at = names[i].bytes + run.depth;
        size_t width = utf8_valid_prefix(at, names[i].len - run.depth);
        if (!width)
            return error_set(d->err, ERROR_INPUT, "a name is not valid UTF-8"), false;
        size_t end = i + 1;
        while (end < run.end && names[end].len - run.depth >= width &&
               memcmp(names[end].bytes + run.depth, at, width) == 0)
            end++;
        uint32_t code = utf8_decode(at, width);
        runs[d->n_states] = (struct name_run){i, end, run.depth + width};
        if (!text_edge_add(d, code, code, d->n_states) || !text_state_add(d, false))
            return false;
        i = end;
    }
    return true;
}

struct text_dfa *text_dfa_from_names(struct arena *arena, const struct byte_view *names, size_t n,
                                     struct error *err)
{
    struct text_dfa_builder d = {.err = err};
    struct text_dfa *out = NULL;
    /* One more than the maximum number of states, because a run is written before its state is
     * added. */
    struct name_run *runs = malloc((TEXT_STATES_MAX + 1) * sizeof *runs);
    bool ok = runs && text_state_add(&d, false);
    if (!runs)
        error_set(err, ERROR_MEMORY, "no memory for names");
    if (ok)
        runs[0] = (struct name_run){0, n, 0};
    for (uint32_t i = 0; ok && i < d.n_states; i++)
        ok = trie_state_build(&d, names, runs, i);
    if (ok)
        out = text_dfa_builder_finish(&d, arena);
    free(runs);
    text_dfa_builder_free(&d);
    return out;
}

struct text_dfa *text_dfa_from_lengths(struct arena *arena, uint32_t min, uint32_t max,
                                       struct error *err)
{
    struct text_dfa_builder d = {.err = err};
    struct text_dfa *out = NULL;
    uint32_t last = max == REGEX_NO_MAX ? min : max;
    bool ok = true;
    if (last >= TEXT_STATES_MAX) {
        error_set(err, ERROR_LIMIT, "a length together with a pattern is over %d",
                  TEXT_STATES_MAX - 1);
        return NULL;
    }
    for (uint32_t i = 0; ok && i <= last; i++)
        ok = text_state_add(&d, i >= min && i <= max);
    for (uint32_t i = 0; ok && i <= last; i++) {
        text_state_begin(&d, i);
        if (i < last || max == REGEX_NO_MAX)
            ok = text_edge_add(&d, 0, CODE_MAX, i < last ? i + 1 : i);
    }
    if (ok)
        out = text_dfa_builder_finish(&d, arena);
    text_dfa_builder_free(&d);
    return out;
}

/* ---- combining ----------------------------------------------------------------------------- */

/* Numbers pairs of states: open addressing. NO_STATE means that an automaton has failed for
 * good. */
struct pair_table {
    uint32_t *slots; /* number + 1, or 0 */
    uint32_t (*pairs)[2];
};

enum { PAIR_SLOTS = 2 * TEXT_STATES_MAX };

static bool pair_accepts(const struct text_dfa *a, const struct text_dfa *b, uint32_t x, uint32_t y,
                         enum text_operation operation)
{
    bool in_a = x != NO_STATE && a->states[x].accepts, in_b = y != NO_STATE && b->states[y].accepts;
    switch (operation) {
    case TEXT_AND: return in_a && in_b;
    case TEXT_OR: return in_a || in_b;
    default: return in_a && !in_b;
    }
}

/* The number of a pair, NO_STATE if it can accept nothing, or -1. */
static int64_t pair_number(struct text_dfa_builder *d, struct pair_table *t,
                           const struct text_dfa *a, const struct text_dfa *b, uint32_t x,
                           uint32_t y, enum text_operation operation)
{
    if ((x == NO_STATE && (y == NO_STATE || operation != TEXT_OR)) ||
        (y == NO_STATE && operation == TEXT_AND))
        return NO_STATE;
    size_t at = hash_pair(x, y) % PAIR_SLOTS;
    for (; t->slots[at]; at = (at + 1) % PAIR_SLOTS) {
        uint32_t number = t->slots[at] - 1;
        if (t->pairs[number][0] == x && t->pairs[number][1] == y)
            return number;
    }
    if (!text_state_add(d, pair_accepts(a, b, x, y, operation)))
        return -1;
    uint32_t number = d->n_states - 1;
    t->slots[at] = number + 1;
    t->pairs[number][0] = x;
    t->pairs[number][1] = y;
    return number;
}

/* The edge of `state` that contains `code`, or the end of the code points without an edge. */
static uint32_t edge_at(const struct text_dfa *dfa, uint32_t state, uint32_t code, uint32_t *last)
{
    *last = CODE_MAX;
    if (state == NO_STATE)
        return NO_STATE;
    const struct text_state *s = &dfa->states[state];
    for (uint32_t e = s->edges; e < s->edges + s->n_edges; e++) {
        const struct text_edge *edge = &dfa->edges[e];
        if (edge->last < code)
            continue;
        *last = edge->first <= code ? edge->last : edge->first - 1;
        return edge->first <= code ? edge->target : NO_STATE;
    }
    return NO_STATE;
}

static bool pair_build(struct text_dfa_builder *d, struct pair_table *t, const struct text_dfa *a,
                       const struct text_dfa *b, uint32_t state, enum text_operation operation)
{
    uint32_t x = t->pairs[state][0], y = t->pairs[state][1];
    text_state_begin(d, state);
    for (uint32_t code = 0; code <= CODE_MAX;) {
        uint32_t last_a, last_b;
        uint32_t to_a = edge_at(a, x, code, &last_a), to_b = edge_at(b, y, code, &last_b);
        uint32_t last = last_a < last_b ? last_a : last_b;
        int64_t target = pair_number(d, t, a, b, to_a, to_b, operation);
        if (target < 0)
            return false;
        if (target != NO_STATE && !text_edge_add(d, code, last, (uint32_t)target))
            return false;
        code = last + 1;
    }
    return true;
}

struct text_dfa *text_dfa_combine(struct arena *arena, const struct text_dfa *a,
                                  const struct text_dfa *b, enum text_operation operation,
                                  struct error *err)
{
    struct text_dfa_builder d = {.err = err};
    struct pair_table t = {calloc(PAIR_SLOTS, sizeof *t.slots),
                           calloc(TEXT_STATES_MAX, sizeof *t.pairs)};
    struct text_dfa *out = NULL;
    bool ok = t.slots && t.pairs;
    if (!ok)
        error_set(err, ERROR_MEMORY, "no memory for a pattern");
    ok = ok && pair_number(&d, &t, a, b, 0, 0, operation) == 0;
    for (uint32_t i = 0; ok && i < d.n_states; i++)
        ok = pair_build(&d, &t, a, b, i, operation);
    if (ok)
        out = text_dfa_builder_finish(&d, arena);
    free(t.slots);
    free(t.pairs);
    text_dfa_builder_free(&d);
    return out;
}

/* ---- using --------------------------------------------------------------------------------- */

bool text_dfa_accepts(const struct text_dfa *dfa, const char *bytes, size_t len)
{
    uint32_t state = 0, last;
    for (size_t i = 0; i < len;) {
        size_t width = utf8_valid_prefix(bytes + i, len - i);
        if (!width)
            return false;
        state = edge_at(dfa, state, utf8_decode(bytes + i, width), &last);
        if (state == NO_STATE)
            return false;
        i += width;
    }
    return dfa->states[state].accepts;
}

bool text_dfa_is_empty(const struct text_dfa *dfa)
{
    return dfa->n_edges == 0 && !dfa->states[0].accepts;
}
