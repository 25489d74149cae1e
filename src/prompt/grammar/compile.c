/* Compiles every rule to a DFA, then combines them into one grammar.
 *
 * Rules are discovered on the way: building the NFA of a rule plans the rules that it calls. Once
 * all are built, it is known which bytes can come first in each rule and which can follow it. Then
 * the final tables are made, with a mark at every byte that may leave the rule. Because of these
 * marks, a walk over the vocabulary leaves a rule only where that can lead somewhere. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "prompt/grammar/grammar_internal.h"

enum {
    WIDE_BYTES = 16,
    SET_STEPS = 16, /* cost of merging sets of bytes */
};

static bool fail_memory(struct compiler *c)
{
    compiler_fail(c, ERROR_MEMORY, "no memory for the grammar");
    return false;
}

uint32_t compiler_add_rule(struct compiler *c, const struct rule_plan *plan)
{
    if (c->n_plans >= GRAMMAR_RULES_MAX) {
        compiler_fail(c, ERROR_LIMIT, "the grammar has too many rules");
        return 0;
    }
    if (!grammar_grow((void **)&c->plans, &c->cap_plans, c->n_plans, 1, sizeof *c->plans)) {
        fail_memory(c);
        return 0;
    }
    c->plans[c->n_plans] = *plan;
    return (uint32_t)c->n_plans++;
}

/* ---- the DFA of each rule ---- */

static struct dfa *build_body(struct compiler *c, grammar_expr body, bool may_be_empty)
{
    c->n_nodes = 0;
    uint32_t match = nfa_add(c, NFA_MATCH, 0, 0);
    uint32_t start = nfa_build(c, body, match);
    return c->failed ? NULL : dfa_build(c, start, may_be_empty);
}

/* True if no text of the rule is a proper prefix of another. */
static bool has_plain_ends(const struct dfa *d)
{
    for (size_t i = STATE_START; i < d->n_states; i++) {
        if (!d->states[i].is_final)
            continue;
        if (d->states[i].n_calls + d->states[i].n_named > 0)
            return false;
        for (uint32_t k = 0; k < d->n_classes; k++)
            if (d->next[i * d->n_classes + k] != 0)
                return false;
    }
    return true;
}

/* Merges all ends with the start, which becomes the boundary between rounds. */
static void close_loop(struct dfa *d)
{
    for (size_t i = 0; i < d->n_states * d->n_classes; i++)
        if (d->states[d->next[i]].is_final)
            d->next[i] = STATE_START;
    for (size_t i = 0; i < d->n_states; i++)
        d->states[i].is_final = i == STATE_START;
}

/* A boundary that calls `body` and returns to itself. */
static struct dfa *build_calling_loop(struct compiler *c, uint32_t body)
{
    struct dfa *d = calloc(1, sizeof *d);
    if (d != NULL) {
        d->n_classes = 1;
        d->n_states = 2;
        d->n_calls = 1;
        d->states = calloc(2, sizeof *d->states);
        d->next = calloc(2, sizeof *d->next);
        d->calls = calloc(1, sizeof *d->calls);
    }
    if (d == NULL || d->states == NULL || d->next == NULL || d->calls == NULL) {
        fail_memory(c);
        dfa_free(d);
        return NULL;
    }
    d->states[STATE_START] = (struct dfa_state){.n_calls = 1, .is_final = true};
    d->calls[0] = (struct grammar_call){body, STATE_START};
    return d;
}

static struct dfa *build_counted(struct compiler *c, grammar_expr body)
{
    if (c->traits[body].is_regular) {
        struct dfa *d = build_body(c, body, false);
        if (d == NULL)
            return NULL;
        if (has_plain_ends(d)) {
            close_loop(d);
            return d;
        }
        dfa_free(d);
    }
    uint32_t rule = compiler_add_rule(c, &(struct rule_plan){.body = body});
    return c->failed ? NULL : build_calling_loop(c, rule);
}

static void build_rules(struct compiler *c, grammar_expr root)
{
    compiler_add_rule(c, &(struct rule_plan){.body = root});
    for (size_t i = 0; i < c->n_plans && compiler_step(c, 1); i++) {
        struct rule_plan plan = c->plans[i];
        struct dfa *d = plan.is_counted ? build_counted(c, plan.body)
                                        : build_body(c, plan.body, i == 0);
        c->plans[i].dfa = d;
    }
}

/* ---- left recursion ---- */

/* A rule that calls itself before any byte would recurse forever. Searches the calls of start
 * states, depth first. */
static void refuse_left_recursion(struct compiler *c)
{
    enum { NEW, OPEN, DONE };
    uint8_t *mark = calloc(c->n_plans, 1);
    uint32_t *at = calloc(c->n_plans, sizeof *at), *path = malloc(c->n_plans * sizeof *path);
    if (mark == NULL || at == NULL || path == NULL)
        fail_memory(c);
    for (uint32_t i = 0; i < c->n_plans && !c->failed; i++) {
        uint32_t n = 0;
        if (mark[i] == NEW) {
            mark[i] = OPEN;
            path[n++] = i;
        }
        while (n > 0 && !c->failed) {
            uint32_t rule = path[n - 1];
            const struct dfa *d = c->plans[rule].dfa;
            const struct dfa_state *start = &d->states[STATE_START];
            if (at[rule] == start->n_calls) {
                mark[rule] = DONE;
                n--;
                continue;
            }
            uint32_t called = d->calls[start->calls + at[rule]++].rule;
            if (mark[called] == OPEN)
                compiler_fail(c, ERROR_INPUT,
                              "a rule of the grammar is left-recursive (it can reach itself "
                              "before any character): write it as a repetition, or put the "
                              "recursion after something");
            if (mark[called] != NEW)
                continue;
            mark[called] = OPEN;
            path[n++] = called;
        }
    }
    free(mark);
    free(at);
    free(path);
}

/* ---- one grammar ---- */

static bool allocate(struct grammar *g, struct compiler *c)
{
    for (size_t i = 0; i < c->n_plans; i++) {
        g->n_states += (uint32_t)c->plans[i].dfa->n_states;
        g->n_calls += (uint32_t)c->plans[i].dfa->n_calls;
        g->n_named += (uint32_t)c->plans[i].dfa->n_named;
    }
    g->n_rules = (uint32_t)c->n_plans;
    g->rules = calloc(g->n_rules, sizeof *g->rules);
    g->states = calloc(g->n_states + 1, sizeof *g->states);
    g->calls = calloc(g->n_calls + 1, sizeof *g->calls);
    g->named = calloc(g->n_named + 1, sizeof *g->named);
    g->by_distance = calloc(g->n_states, sizeof *g->by_distance);
    g->size_bytes = sizeof *g + g->n_rules * sizeof *g->rules +
                    (g->n_states + 1) * sizeof *g->states + (g->n_calls + 1) * sizeof *g->calls +
                    (g->n_named + 1) * sizeof *g->named + g->n_states * sizeof *g->by_distance;
    if (g->rules == NULL || g->states == NULL || g->calls == NULL || g->named == NULL ||
        g->by_distance == NULL)
        return fail_memory(c);
    return true;
}

/* True if only the end of the rule can follow this state. */
static bool is_plain_end(const struct grammar_state *s)
{
    return (s->flags & STATE_FINAL) && !(s->flags & STATE_GOES_ON);
}

/* Copies a rule's states. `own` gets the bytes that lead further within the rule, and whether
 * tokens do. */
static void place_rule(struct grammar *g, const struct rule_plan *plan, uint32_t at,
                       struct grammar_rule *r, struct byte_set *own)
{
    const struct dfa *d = plan->dfa;
    r->n_states = (uint32_t)d->n_states;
    r->is_counted = plan->is_counted;
    r->min = plan->min;
    r->max = plan->max;
    r->part = plan->part;
    g->has_distinct = g->has_distinct || plan->part != DISTINCT_NONE;
    for (uint32_t i = 0; i < r->n_states; i++) {
        const struct dfa_state *from = &d->states[i];
        struct grammar_state *s = &g->states[r->first_state + i];
        struct byte_set *set = &own[r->first_state + i];
        uint32_t n_bytes = 0;
        *s = (struct grammar_state){.rule = at, .calls = g->n_calls, .named = g->n_named};
        for (uint32_t b = 0; b < 256; b++) {
            if (d->next[i * d->n_classes + d->class_of[b]] == 0)
                continue;
            byte_set_add(set, b);
            n_bytes++;
        }
        r->is_wide = r->is_wide || n_bytes >= WIDE_BYTES;
        s->flags = (uint8_t)((from->is_final ? STATE_FINAL : 0) |
                             (n_bytes > 0 ? STATE_HAS_BYTES : 0) |
                             (n_bytes + from->n_calls + from->n_named > 0 ? STATE_GOES_ON : 0));
        if (from->n_named > 0)
            byte_set_add(set, SYMBOL_TOKEN);
        for (uint32_t k = 0; k < from->n_calls; k++) {
            struct grammar_call call = d->calls[from->calls + k];
            call.back += r->first_state;
            g->calls[g->n_calls++] = call;
        }
        for (uint32_t k = 0; k < from->n_named; k++) {
            struct grammar_named named = d->named[from->named + k];
            named.target += r->first_state;
            g->max_token = named.token > g->max_token ? named.token : g->max_token;
            g->named[g->n_named++] = named;
        }
    }
}

static void place_rules(struct grammar *g, struct compiler *c, struct byte_set *own)
{
    uint32_t n_states = 0;
    g->n_calls = g->n_named = 0;
    g->max_token = -1;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        g->rules[i].first_state = n_states;
        place_rule(g, &c->plans[i], i, &g->rules[i], own);
        n_states += g->rules[i].n_states;
    }
    g->states[n_states] = (struct grammar_state){.calls = g->n_calls, .named = g->n_named};
    for (uint32_t i = 0; i < g->n_calls; i++) {
        const struct grammar_state *back = &g->states[g->calls[i].back];
        if (is_plain_end(back) && !g->rules[back->rule].is_counted &&
            g->rules[back->rule].part == DISTINCT_NONE &&
            g->rules[g->calls[i].rule].part != DISTINCT_ITEM)
            g->calls[i].back = GRAMMAR_TAIL;
    }
}

static struct byte_set first_of_calls(const struct grammar *g, uint32_t state)
{
    struct byte_set set = {{0}};
    for (uint32_t k = g->states[state].calls; k < g->states[state + 1].calls; k++)
        byte_set_merge(&set, &g->rules[g->calls[k].rule].first);
    return set;
}

/* The symbols that can come first in each rule, and after it. */
static void find_first_and_follow(struct grammar *g, struct compiler *c, const struct byte_set *own)
{
    for (bool changed = true; changed && compiler_step(c, SET_STEPS * g->n_rules);) {
        changed = false;
        for (uint32_t i = g->n_rules; i-- > 0;) {
            uint32_t start = g->rules[i].first_state + STATE_START;
            struct byte_set set = first_of_calls(g, start);
            byte_set_merge(&set, &own[start]);
            changed = byte_set_merge(&g->rules[i].first, &set) || changed;
        }
    }
    for (bool changed = true;
         changed && compiler_step(c, g->n_states + SET_STEPS * (uint64_t)g->n_calls);) {
        changed = false;
        for (uint32_t s = 0; s < g->n_states; s++) {
            for (uint32_t k = g->states[s].calls; k < g->states[s + 1].calls; k++) {
                struct byte_set *follow = &g->rules[g->calls[k].rule].follow;
                uint32_t back = g->calls[k].back;
                if (back != GRAMMAR_TAIL) {
                    struct byte_set set = first_of_calls(g, back);
                    byte_set_merge(&set, &own[back]);
                    changed = byte_set_merge(follow, &set) || changed;
                }
                if (back == GRAMMAR_TAIL || (g->states[back].flags & STATE_FINAL))
                    changed = byte_set_merge(follow, &g->rules[g->states[s].rule].follow) ||
                              changed;
            }
        }
    }
}

/* ---- tables ---- */

/* All entries for one byte: [n_states]. */
static void fill_column(const struct grammar_rule *r, const struct dfa *d,
                        const struct byte_set *leaves, uint32_t byte, uint16_t *column)
{
    for (uint32_t i = 0; i < r->n_states; i++) {
        uint16_t next = d->next[i * d->n_classes + d->class_of[byte]];
        column[i] = (uint16_t)(next | (byte_set_has(&leaves[i], byte) ? STATE_LEAVES : 0));
    }
}

/* Bytes with equal columns form one class. `columns` has room for 256. */
static void join_columns(struct grammar_rule *r, const uint16_t *columns)
{
    uint64_t hashes[256];
    size_t size = r->n_states * sizeof *columns;
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t k = 0;
        hashes[b] = hash_bytes(columns + (size_t)b * r->n_states, size);
        while (k < r->n_classes && (hashes[r->byte_of[k]] != hashes[b] ||
                                    memcmp(columns + (size_t)r->byte_of[k] * r->n_states,
                                           columns + (size_t)b * r->n_states, size) != 0))
            k++;
        if (k == r->n_classes)
            r->byte_of[r->n_classes++] = (uint8_t)b;
        r->class_of[b] = (uint8_t)k;
    }
}

static bool make_table(struct grammar *g, struct compiler *c, struct grammar_rule *r,
                       const struct dfa *d)
{
    struct byte_set *leaves = calloc(r->n_states, sizeof *leaves);
    uint16_t *columns = malloc((size_t)256 * r->n_states * sizeof *columns);
    bool made = leaves != NULL && columns != NULL;
    for (uint32_t i = 0; made && i < r->n_states; i++) {
        leaves[i] = first_of_calls(g, r->first_state + i);
        if (g->states[r->first_state + i].flags & STATE_FINAL)
            byte_set_merge(&leaves[i], &r->follow);
    }
    for (uint32_t b = 0; made && b < 256; b++)
        fill_column(r, d, leaves, b, columns + (size_t)b * r->n_states);
    if (made) {
        join_columns(r, columns);
        r->next = malloc((size_t)r->n_states * r->n_classes * sizeof *r->next);
        made = r->next != NULL;
    }
    for (uint32_t b = 0; made && b < 256; b++)
        for (uint32_t i = 0; i < r->n_states; i++)
            r->next[(size_t)i * r->n_classes + r->class_of[b]] =
                columns[(size_t)b * r->n_states + i];
    free(leaves);
    free(columns);
    if (!made)
        return fail_memory(c);
    size_t entries = (size_t)r->n_states * r->n_classes;
    r->hash = hash_pair(hash_bytes(r->next, entries * sizeof *r->next),
                        hash_bytes(r->class_of, sizeof r->class_of));
    c->table_entries += entries;
    g->size_bytes += entries * sizeof *r->next;
    return c->table_entries <= GRAMMAR_TABLES_MAX ||
           compiler_fail(c, ERROR_LIMIT, "the grammar is too large: make it simpler") == 0;
}

static atomic_uint_fast64_t next_id = 1;

static struct grammar *assemble(struct compiler *c)
{
    struct grammar *g = calloc(1, sizeof *g);
    struct byte_set *own = NULL;
    if (g == NULL || !allocate(g, c) || (own = calloc(g->n_states, sizeof *own)) == NULL) {
        fail_memory(c);
        grammar_free(g);
        return NULL;
    }
    place_rules(g, c, own);
    find_first_and_follow(g, c, own);
    free(own);
    for (uint32_t i = 0; i < g->n_rules && compiler_step(c, 2 * 256 * g->rules[i].n_states); i++)
        make_table(g, c, &g->rules[i], c->plans[i].dfa);
    if (!c->failed && grammar_measure(g, c)) {
        g->id = atomic_fetch_add(&next_id, 1);
        return g;
    }
    grammar_free(g);
    return NULL;
}

struct grammar *grammar_compile(struct grammar_builder *b, grammar_expr root, struct error *err)
{
    struct compiler c = {.b = b, .err = err};
    struct grammar *g = NULL;
    if (b->failure.code != ERROR_NONE) {
        error_set(err, b->failure.code, "%s", b->failure.message);
        return NULL;
    }
    if (root == GRAMMAR_NONE) {
        error_set(err, ERROR_INPUT, "the grammar has no expression to begin with");
        return NULL;
    }
    assert(root < b->n_exprs);
    c.traits = calloc(b->n_exprs, sizeof *c.traits);
    if (c.traits == NULL)
        fail_memory(&c);
    else if (compiler_analyse(&c, root))
        build_rules(&c, root);
    if (!c.failed)
        refuse_left_recursion(&c);
    if (!c.failed)
        g = assemble(&c);
    for (size_t i = 0; i < c.n_plans; i++)
        dfa_free(c.plans[i].dfa);
    free(c.plans);
    free(c.nodes);
    free(c.traits);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (g == NULL)
        return;
    for (uint32_t i = 0; g->rules != NULL && i < g->n_rules; i++)
        free(g->rules[i].next);
    free(g->rules);
    free(g->states);
    free(g->calls);
    free(g->named);
    free(g->by_distance);
    free(g->wind);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return g->size_bytes;
}
