/* The shortest way from every state to the end of its rule, in bytes, and the stack depth that
 * suffices for some way there. Answers that run out of budget need the first, the second keeps them
 * below the stack limit. Together they ensure that an end can always be reached.
 *
 * Distances are computed backwards until nothing changes. A byte counts 256 and a call 1, so each
 * step of a shortest way strictly reduces the distance; matchers rely on that. In a counted rule,
 * the boundary has the distance of one round, and other states have the distance to the
 * boundary. */
#include <stdlib.h>

#include "prompt/grammar/grammar_internal.h"

enum { COST_BYTE = 256, COST_CALL = 1 };
#define COST_NEVER ((uint64_t)1 << 60)

static uint64_t cost_capped(uint64_t cost)
{
    return cost < COST_NEVER ? cost : COST_NEVER;
}

/* The cost of a call: that of the whole rule. */
static uint64_t cost_of_rule(const struct grammar *g, const uint64_t *cost, uint32_t rule)
{
    const struct grammar_rule *r = &g->rules[rule];
    uint64_t one = cost[r->first_state + STATE_START];
    uint64_t rounds = r->is_counted ? r->min : 1;
    return one >= COST_NEVER / rounds ? COST_NEVER : one * rounds;
}

struct best {
    uint64_t cost;
    uint8_t kind;
    uint32_t with;
};

static void take_better(struct best *best, uint64_t cost, uint8_t kind, uint32_t with)
{
    if (cost < best->cost)
        *best = (struct best){cost, kind, with};
}

static struct best find_best(const struct grammar *g, const uint64_t *cost, uint32_t state)
{
    const struct grammar_state *s = &g->states[state];
    const struct grammar_rule *r = &g->rules[s->rule];
    const uint16_t *row = r->next + (size_t)(state - r->first_state) * r->n_classes;
    struct best best = {COST_NEVER, BEST_NEVER, 0};
    if ((s->flags & STATE_FINAL) && !r->is_counted)
        return (struct best){0, BEST_END, 0};
    for (uint32_t k = 0; k < r->n_classes && (s->flags & STATE_HAS_BYTES); k++) {
        uint32_t next = row[k] & STATE_MASK;
        bool is_round = r->is_counted && next == STATE_START;
        if (next != 0)
            take_better(&best, (is_round ? 0 : cost[r->first_state + next]) + COST_BYTE, BEST_BYTE,
                        r->byte_of[k]);
    }
    for (uint32_t k = s->named; k < g->states[state + 1].named; k++)
        take_better(&best, cost[g->named[k].target] + COST_BYTE, BEST_TOKEN, k);
    for (uint32_t k = s->calls; k < g->states[state + 1].calls; k++) {
        uint32_t back = g->calls[k].back;
        uint64_t rest = back == GRAMMAR_TAIL || r->is_counted ? 0 : cost[back];
        take_better(&best, cost_capped(cost_of_rule(g, cost, g->calls[k].rule) + rest + COST_CALL),
                    BEST_CALL, k);
    }
    return best;
}

/* The work of examining a state once. */
static uint64_t look_steps(const struct grammar *g, uint32_t state)
{
    const struct grammar_state *s = &g->states[state];
    return 4 + (s->flags & STATE_HAS_BYTES ? g->rules[s->rule].n_classes : 0) +
           2 * (uint64_t)(g->states[state + 1].calls - s->calls);
}

static void find_distances(struct grammar *g, struct compiler *c, uint64_t *cost)
{
    for (uint32_t i = 0; i < g->n_states; i++)
        cost[i] = COST_NEVER;
    for (bool changed = true; changed && !c->failed;) {
        changed = false;
        for (uint32_t i = g->n_states; i-- > 0 && compiler_step(c, look_steps(g, i));) {
            struct best best = find_best(g, cost, i);
            if (best.cost >= cost[i])
                continue;
            cost[i] = best.cost;
            g->states[i].best = best.kind;
            g->states[i].best_with = best.with;
            changed = true;
        }
    }
}

/* ---- height ---- */

static uint32_t find_height(const struct grammar *g, uint32_t state)
{
    const struct grammar_state *s = &g->states[state];
    const struct grammar_rule *r = &g->rules[s->rule];
    const uint16_t *row = r->next + (size_t)(state - r->first_state) * r->n_classes;
    uint32_t best = UINT16_MAX;
    /* Rounds of a counted rule are only bytes, or one call. */
    if (r->is_counted ? (s->flags & STATE_HAS_BYTES) || state != r->first_state + STATE_START
                      : (s->flags & STATE_FINAL))
        return 0;
    for (uint32_t k = 0; k < r->n_classes && (s->flags & STATE_HAS_BYTES); k++) {
        uint32_t next = row[k] & STATE_MASK;
        uint32_t height = next != 0 ? g->states[r->first_state + next].height : UINT16_MAX;
        best = height < best ? height : best;
    }
    for (uint32_t k = s->named; k < g->states[state + 1].named; k++) {
        uint32_t height = g->states[g->named[k].target].height;
        best = height < best ? height : best;
    }
    for (uint32_t k = s->calls; k < g->states[state + 1].calls; k++) {
        const struct grammar_call *call = &g->calls[k];
        uint32_t start = g->rules[call->rule].first_state + STATE_START;
        uint32_t inner = g->states[start].height + (call->back != GRAMMAR_TAIL);
        uint32_t after = call->back == GRAMMAR_TAIL || r->is_counted ? 0
                                                                     : g->states[call->back].height;
        uint32_t height = inner > after ? inner : after;
        best = height < best ? height : best;
    }
    return best;
}

static void find_heights(struct grammar *g, struct compiler *c)
{
    for (uint32_t i = 0; i < g->n_states; i++)
        g->states[i].height = UINT16_MAX;
    for (bool changed = true; changed && !c->failed;) {
        changed = false;
        for (uint32_t i = g->n_states; i-- > 0 && compiler_step(c, look_steps(g, i));) {
            uint32_t height = find_height(g, i);
            if (height >= g->states[i].height)
                continue;
            g->states[i].height = (uint16_t)height;
            changed = true;
        }
    }
}

/* ---- both ---- */

struct ranked {
    uint64_t cost;
    uint32_t state;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return (x->state > y->state) - (x->state < y->state);
}

static bool sort_states(struct grammar *g, struct compiler *c, const uint64_t *cost)
{
    struct ranked *ranked = malloc(g->n_states * sizeof *ranked);
    if (ranked == NULL)
        return compiler_fail(c, ERROR_MEMORY, "no memory for the grammar") == 0;
    for (uint32_t i = 0; i < g->n_states; i++)
        ranked[i] = (struct ranked){cost[i], i};
    qsort(ranked, g->n_states, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < g->n_states; i++)
        g->by_distance[i] = ranked[i].state;
    free(ranked);
    return true;
}

/* The dead states of all rules keep the value "never". */
bool grammar_measure(struct grammar *g, struct compiler *c)
{
    uint64_t *cost = malloc(g->n_states * sizeof *cost);
    if (cost == NULL)
        return compiler_fail(c, ERROR_MEMORY, "no memory for the grammar") == 0;
    find_distances(g, c, cost);
    find_heights(g, c);
    for (uint32_t i = 0; i < g->n_rules; i++) {
        const struct grammar_rule *r = &g->rules[i];
        for (uint32_t k = STATE_START; k < r->n_states; k++) {
            uint32_t height = g->states[r->first_state + k].height;
            bool is_alive = g->states[r->first_state + k].flags != 0;
            if (is_alive && height > g->max_height)
                g->max_height = height;
        }
    }
    bool sorted = sort_states(g, c, cost);
    free(cost);
    if (!c->failed && g->max_height > GRAMMAR_HEIGHT_MAX)
        compiler_fail(c, ERROR_LIMIT, "the rules of the grammar call each other too deeply");
    return sorted && !c->failed;
}
