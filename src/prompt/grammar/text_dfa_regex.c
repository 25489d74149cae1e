/* Turns a regular expression into a deterministic automaton: first an NFA (built backwards: each
 * part knows what follows it), then sets of its states.
 *
 *   ab|ac    split ─► a ─► b ─► end        sets: {split,a,a'} ─a─► {b,c} ─b─► {end}
 *              └────► a'─► c ─► end                                 └──c─► {end}
 */
#include "prompt/grammar/text_dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/task.h"
#include "prompt/grammar/text_dfa_internal.h"

enum {
    NFA_STATES_MAX = 4096,
    SETS_MAX = 2048,
    SET_WORDS_MAX = NFA_STATES_MAX / 64,
    STEPS_MAX = 20000000, /* work, roughly in words */
};

struct nfa_state {
    const struct code_set *set; /* NULL: continues without a character */
    uint32_t next, other;       /* `other` only without a set */
};

struct nfa {
    struct nfa_state states[NFA_STATES_MAX];
    uint32_t n;
    bool full;
};

enum { NFA_END = 0 };

static uint32_t state_add(struct nfa *nfa, const struct code_set *set, uint32_t next,
                          uint32_t other)
{
    if (nfa->n == NFA_STATES_MAX) {
        nfa->full = true;
        return NFA_END;
    }
    nfa->states[nfa->n] = (struct nfa_state){set, next, other};
    return nfa->n++;
}

/* The start of `e` followed by `next`. */
static uint32_t build(struct nfa *nfa, const struct regex *e, uint32_t next)
{
    if (nfa->full)
        return NFA_END;
    uint32_t entry = next;
    switch (e->kind) {
    case REGEX_EMPTY: return next;
    case REGEX_SET: return state_add(nfa, &e->set, next, next);
    case REGEX_SEQUENCE: {
        /* From the last part to the first: parts are linked forwards, so each must be searched
         * for. */
        size_t n = 0;
        for (const struct regex *part = e->first; part; part = part->next)
            n++;
        nfa->full |= n > NFA_STATES_MAX;
        while (n-- && !nfa->full) {
            const struct regex *part = e->first;
            for (size_t i = 0; i < n; i++)
                part = part->next;
            entry = build(nfa, part, entry);
        }
        return entry;
    }
    case REGEX_CHOICE:
        entry = build(nfa, e->first, next);
        for (const struct regex *part = e->first->next; part; part = part->next)
            entry = state_add(nfa, NULL, entry, build(nfa, part, next));
        return entry;
    case REGEX_REPEAT:
        if (e->max == REGEX_NO_MAX) {
            entry = state_add(nfa, NULL, next, next);
            uint32_t body = build(nfa, e->first, entry);
            nfa->states[entry].other = body;
        } else {
            for (uint32_t i = e->min; i < e->max && !nfa->full; i++)
                entry = state_add(nfa, NULL, build(nfa, e->first, entry), next);
        }
        for (uint32_t i = 0; i < e->min && !nfa->full; i++)
            entry = build(nfa, e->first, entry);
        return entry;
    default: { /* a state that no character can leave */
        static const struct code_set none;
        return state_add(nfa, &none, next, next);
    }
    }
}

/* The sets found so far, with their numbers by hash. */
struct subset {
    struct nfa *nfa;
    struct text_dfa_builder *d;
    size_t words;
    uint64_t *sets; /* [SETS_MAX][words] */
    uint32_t slots[2 * SETS_MAX];
    uint32_t stack[2 * NFA_STATES_MAX + 1]; /* each state is taken once and pushes at most two */
    uint32_t bounds[NFA_STATES_MAX];        /* where ranges start, or the end + 1 */
    size_t n_steps;
};

static bool too_large(struct subset *s)
{
    error_set(s->d->err, ERROR_LIMIT, "a pattern is too large to be combined with other keywords");
    return false;
}

/* Adds a state and all states reachable from it without a character. */
static void closure_add(struct subset *s, uint64_t *set, uint32_t state)
{
    size_t depth = 0;
    s->stack[depth++] = state;
    while (depth) {
        uint32_t at = s->stack[--depth];
        if (set[at / 64] >> (at % 64) & 1)
            continue;
        set[at / 64] |= (uint64_t)1 << (at % 64);
        s->n_steps++;
        const struct nfa_state *n = &s->nfa->states[at];
        if (at == NFA_END || n->set)
            continue;
        s->stack[depth++] = n->next;
        s->stack[depth++] = n->other;
    }
}

/* The number of the set at the end of `sets`. */
static bool set_number(struct subset *s, uint32_t *number)
{
    uint64_t *set = s->sets + s->d->n_states * s->words;
    size_t at = hash_bytes(set, s->words * sizeof *set) % (2 * SETS_MAX);
    s->n_steps += s->words;
    for (; s->slots[at]; at = (at + 1) % (2 * SETS_MAX)) {
        *number = s->slots[at] - 1;
        if (memcmp(s->sets + *number * s->words, set, s->words * sizeof *set) == 0)
            return true;
    }
    if (s->d->n_states + 1 >= SETS_MAX)
        return too_large(s);
    *number = s->d->n_states;
    s->slots[at] = *number + 1;
    return text_state_add(s->d, set[0] & 1);
}

static int bound_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Collects where the ranges of a set's states start and end, sorted and unique. */
static bool bounds_collect(struct subset *s, const uint64_t *set, size_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < s->nfa->n; i++) {
        const struct code_set *codes = s->nfa->states[i].set;
        if (!(set[i / 64] >> (i % 64) & 1) || !codes)
            continue;
        for (size_t j = 0; j < codes->n; j++) {
            if (*n + 2 > NFA_STATES_MAX)
                return too_large(s);
            s->bounds[(*n)++] = codes->ranges[j].first;
            s->bounds[(*n)++] = codes->ranges[j].last + 1;
        }
    }
    qsort(s->bounds, *n, sizeof *s->bounds, bound_compare);
    size_t unique = 0;
    for (size_t i = 0; i < *n; i++)
        if (!unique || s->bounds[unique - 1] != s->bounds[i])
            s->bounds[unique++] = s->bounds[i];
    *n = unique;
    return true;
}

static bool set_build(struct subset *s, uint32_t number)
{
    const uint64_t *set = s->sets + number * s->words;
    size_t n;
    if (!bounds_collect(s, set, &n))
        return false;
    text_state_begin(s->d, number);
    for (size_t b = 0; b + 1 < n; b++) {
        uint64_t *to = s->sets + s->d->n_states * s->words;
        memset(to, 0, s->words * sizeof *to);
        bool any = false;
        for (uint32_t i = 0; i < s->nfa->n; i++) {
            if (set[i / 64] == 0) { /* skip the rest of an empty word */
                i |= 63;
                continue;
            }
            const struct code_set *codes = s->nfa->states[i].set;
            if (!(set[i / 64] >> (i % 64) & 1) || !codes ||
                !code_set_contains(*codes, s->bounds[b]))
                continue;
            closure_add(s, to, s->nfa->states[i].next);
            any = true;
        }
        s->n_steps += s->words;
        if (s->n_steps > STEPS_MAX || !task_goes_on(s->words + s->nfa->n / 64))
            return too_large(s);
        uint32_t target;
        if (any && (!set_number(s, &target) ||
                    !text_edge_add(s->d, s->bounds[b], s->bounds[b + 1] - 1, target)))
            return false;
    }
    return true;
}

static bool subsets_build(struct subset *s, uint32_t entry)
{
    uint32_t number;
    closure_add(s, s->sets, entry);
    if (!set_number(s, &number))
        return false;
    for (uint32_t i = 0; i < s->d->n_states; i++)
        if (!set_build(s, i))
            return false;
    return true;
}

struct text_dfa *text_dfa_from_regex(struct arena *arena, const struct regex *e, struct error *err)
{
    struct text_dfa *out = NULL;
    struct text_dfa_builder d = {.err = err};
    struct nfa *nfa = calloc(1, sizeof *nfa);
    struct subset *s = calloc(1, sizeof *s);
    if (!nfa || !s) {
        error_set(err, ERROR_MEMORY, "no memory for a pattern");
        goto done;
    }
    *s = (struct subset){.nfa = nfa, .d = &d};
    state_add(nfa, NULL, NFA_END, NFA_END);
    uint32_t entry = build(nfa, e, NFA_END);
    if (nfa->full) {
        too_large(s);
        goto done;
    }
    s->words = (nfa->n + 63) / 64;
    s->sets = calloc(SETS_MAX * s->words, sizeof *s->sets);
    if (!s->sets)
        error_set(err, ERROR_MEMORY, "no memory for a pattern");
    else if (subsets_build(s, entry))
        out = text_dfa_builder_finish(&d, arena);
done:
    if (s)
        free(s->sets);
    free(s);
    free(nfa);
    text_dfa_builder_free(&d);
    return out;
}
