/* Turns expressions into an NFA: the traits of each expression, and the nodes of one rule.
 *
 * Expressions that match no text are never built, so every node leads to the rule's end. An NFA is
 * built from its end: building a part takes the node that follows it. The depth of expressions
 * (EXPR_DEPTH_MAX) and of inlined rules (INLINE_DEPTH) bounds recursion. */
#include <assert.h>
#include <stdlib.h>

#include "base/task.h"
#include "prompt/grammar/grammar_internal.h"

int compiler_fail(struct compiler *c, enum error_code code, const char *message)
{
    if (!c->failed)
        error_set(c->err, code, "%s", message);
    c->failed = true;
    return -1;
}

bool compiler_step(struct compiler *c, uint64_t n)
{
    c->n_steps += n;
    if (!task_goes_on(n))
        compiler_fail(c, ERROR_CANCELED, "the work was stopped");
    if (!c->failed && c->n_steps > COMPILE_STEPS_MAX)
        compiler_fail(c, ERROR_LIMIT, "the grammar takes too long to compile: make it simpler");
    return !c->failed;
}

/* ---- analysis ---- */

static const grammar_expr *parts_of(const struct compiler *c, const struct expr *e, uint32_t *n)
{
    *n = 0;
    if (e->kind == EXPR_SEQUENCE || e->kind == EXPR_CHOICE) {
        *n = e->n;
        return c->b->words + e->first;
    }
    if (e->kind == EXPR_REPEAT || e->kind == EXPR_RULE) {
        *n = 1;
        return &e->first;
    }
    return NULL;
}

static bool mark_reached(struct compiler *c, grammar_expr root)
{
    grammar_expr *stack = malloc(c->b->n_exprs * sizeof *stack);
    size_t n_stack = 0;
    if (stack == NULL)
        return compiler_fail(c, ERROR_MEMORY, "no memory for the grammar") == 0;
    stack[n_stack++] = root;
    c->traits[root].is_reached = true;
    while (n_stack > 0 && !c->failed) {
        const struct expr *e = &c->b->exprs[stack[--n_stack]];
        uint32_t n;
        const grammar_expr *parts = parts_of(c, e, &n);
        if (e->kind == EXPR_RULE && e->first == GRAMMAR_NONE)
            compiler_fail(c, ERROR_INPUT,
                          "a rule of the grammar is used but not defined: define it");
        for (uint32_t i = 0; i < n; i++) {
            if (parts[i] == GRAMMAR_NONE || c->traits[parts[i]].is_reached)
                continue;
            c->traits[parts[i]].is_reached = true;
            stack[n_stack++] = parts[i];
        }
    }
    free(stack);
    return !c->failed;
}

/* Computes what an expression matches from what is known about its parts. */
static struct expr_traits find_matches(const struct compiler *c, grammar_expr at)
{
    const struct expr *e = &c->b->exprs[at];
    struct expr_traits found = c->traits[at];
    uint32_t n;
    const grammar_expr *parts = parts_of(c, e, &n);
    bool all = true, all_null = true, any = false, any_null = false, any_text = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct expr_traits *t = &c->traits[parts[i]];
        all = all && t->is_productive;
        all_null = all_null && t->is_nullable;
        any = any || t->is_productive;
        any_null = any_null || t->is_nullable;
        any_text = any_text || t->has_text;
    }
    bool is_leaf = e->kind == EXPR_LITERAL || e->kind == EXPR_CLASS || e->kind == EXPR_TOKEN;
    bool is_optional = e->kind == EXPR_EMPTY || (e->kind == EXPR_REPEAT && e->min == 0);
    bool is_any = e->kind == EXPR_CHOICE || e->kind == EXPR_REPEAT;
    bool is_all = e->kind == EXPR_SEQUENCE || e->kind == EXPR_RULE;
    found.is_productive = is_leaf || is_optional || (is_any && any) || (is_all && all);
    found.is_nullable = is_optional || (is_any && any_null) || (is_all && all && all_null);
    found.has_text = is_leaf || (is_any && any_text) || (is_all && all && any_text);
    return found;
}

/* True if something new was found. */
static bool visit_matches(struct compiler *c, grammar_expr at)
{
    struct expr_traits *t = &c->traits[at], was = *t;
    if (!t->is_reached || (t->is_productive && t->is_nullable && t->has_text))
        return false;
    *t = find_matches(c, at);
    return t->is_productive != was.is_productive || t->is_nullable != was.is_nullable ||
           t->has_text != was.has_text;
}

/* Visits all expressions, and rules also right after their bodies, so that a chain of rules, each
 * defined before the next, takes one round. True if a visit found something. */
static bool visit_all(struct compiler *c, bool (*visit)(struct compiler *c, grammar_expr at))
{
    bool changed = false;
    for (grammar_expr i = 1; i < c->b->n_exprs; i++) {
        changed = visit(c, i) || changed;
        for (grammar_expr k = c->traits[i].first_owner; k != 0; k = c->traits[k].next_owner)
            changed = visit(c, k) || changed;
    }
    return changed;
}

/* The work of visiting all expressions once, and all their parts. */
static uint64_t round_steps(const struct compiler *c)
{
    return 2 * (uint64_t)c->b->n_exprs + c->b->n_words;
}

static void mark_matches(struct compiler *c)
{
    while (compiler_step(c, round_steps(c)) && visit_all(c, visit_matches))
        ;
}

/* ---- sizes ---- */

static uint32_t size_capped(uint64_t size)
{
    return size < NFA_NODES_MAX ? (uint32_t)size : NFA_NODES_MAX;
}

/* The number of copies of a repeat's part, if it is expanded. */
static uint64_t repeat_copies(const struct expr *e)
{
    if (e->max == GRAMMAR_NO_MAX)
        return (uint64_t)e->min + (e->min != 1);
    return e->max;
}

static bool repeat_is_counted(const struct compiler *c, const struct expr *e)
{
    uint64_t copies = repeat_copies(e);
    return copies > 1 && copies * (c->traits[e->first].size + 1) > EXPAND_MAX;
}

static void measure_repeat(const struct compiler *c, const struct expr *e, struct expr_traits *t)
{
    const struct expr_traits *part = &c->traits[e->first];
    if (repeat_is_counted(c, e)) {
        t->size = 2;
        t->is_regular = false;
        return;
    }
    t->size = size_capped(repeat_copies(e) * (part->size + 1));
    t->is_regular = part->is_regular;
    t->is_looping = part->is_looping || e->max == GRAMMAR_NO_MAX;
}

/* A use of a rule: its body inlined, or a call. */
static void measure_rule(struct compiler *c, const struct expr *e, struct expr_traits *t)
{
    const struct expr_traits *body = &c->traits[e->first];
    uint32_t most = body->is_looping ? INLINE_SMALL : INLINE_LARGE;
    t->is_inlined = e->n == DISTINCT_NONE && body->size <= most && body->depth < INLINE_DEPTH;
    t->size = t->is_inlined ? body->size : 2;
    t->is_regular = t->is_inlined && body->is_regular;
    t->is_looping = t->is_inlined && body->is_looping;
    t->depth = t->is_inlined ? (uint16_t)(body->depth + 1) : 1;
}

/* True if it has just become known. */
static bool measure(struct compiler *c, grammar_expr at)
{
    const struct expr *e = &c->b->exprs[at];
    struct expr_traits *t = &c->traits[at];
    uint32_t n;
    const grammar_expr *parts = parts_of(c, e, &n);
    uint64_t size = 0;
    if (!t->is_reached || t->is_known)
        return false;
    t->depth = 0;
    t->is_regular = true;
    t->is_looping = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct expr_traits *p = &c->traits[parts[i]];
        if (!p->is_known)
            return false;
        if (!p->is_productive)
            continue;
        size += p->size + (e->kind == EXPR_CHOICE);
        t->depth = p->depth + 1 > t->depth ? (uint16_t)(p->depth + 1) : t->depth;
        t->is_regular = t->is_regular && p->is_regular;
        t->is_looping = t->is_looping || p->is_looping;
    }
    switch (e->kind) {
    case EXPR_LITERAL: size = e->n; break;
    case EXPR_CLASS: size = nfa_class_size(c->b->words + e->first, e->n); break;
    case EXPR_TOKEN:
        size = 1;
        t->is_regular = false;
        break;
    default: break;
    }
    t->size = size_capped(size);
    if (e->kind == EXPR_REPEAT)
        measure_repeat(c, e, t);
    if (e->kind == EXPR_RULE)
        measure_rule(c, e, t);
    t->is_known = true;
    return true;
}

/* Recursive rules, and those that use them, stay unknown at first: they are always called. */
static void measure_all(struct compiler *c)
{
    while (compiler_step(c, round_steps(c)) && visit_all(c, measure))
        ;
    for (grammar_expr i = 1; i < c->b->n_exprs; i++) {
        struct expr_traits *t = &c->traits[i];
        if (!t->is_reached || t->is_known || c->b->exprs[i].kind != EXPR_RULE)
            continue;
        t->is_known = true;
        t->is_regular = t->is_looping = t->is_inlined = false;
        t->depth = 1;
        t->size = 2;
    }
    while (compiler_step(c, round_steps(c)) && visit_all(c, measure))
        ;
}

static void find_owners(struct compiler *c)
{
    for (grammar_expr i = 1; i < c->b->n_exprs; i++) {
        c->traits[i].rule = UINT32_MAX;
        if (c->b->exprs[i].kind != EXPR_RULE || c->b->exprs[i].first == GRAMMAR_NONE)
            continue;
        struct expr_traits *body = &c->traits[c->b->exprs[i].first];
        c->traits[i].next_owner = body->first_owner;
        body->first_owner = i;
    }
}

bool compiler_analyse(struct compiler *c, grammar_expr root)
{
    find_owners(c);
    if (!mark_reached(c, root))
        return false;
    mark_matches(c);
    if (!c->failed && !c->traits[root].is_productive)
        compiler_fail(c, ERROR_INPUT,
                      "the grammar matches no text: every path through it needs something that "
                      "can never match or never ends");
    if (!c->failed)
        measure_all(c);
    return !c->failed;
}

/* ---- building ---- */

uint32_t nfa_add(struct compiler *c, enum nfa_kind kind, uint32_t target, uint32_t arg)
{
    if (c->failed)
        return 0;
    if (c->n_nodes >= NFA_NODES_MAX) {
        compiler_fail(c, ERROR_LIMIT,
                      "a rule of the grammar is too large: use rules for repeated parts");
        return 0;
    }
    if (!grammar_grow((void **)&c->nodes, &c->cap_nodes, c->n_nodes, 1, sizeof *c->nodes)) {
        compiler_fail(c, ERROR_MEMORY, "no memory for the grammar");
        return 0;
    }
    c->nodes[c->n_nodes] = (struct nfa_node){.kind = (uint8_t)kind, .target = target, .arg = arg};
    return (uint32_t)c->n_nodes++;
}

uint32_t nfa_add_bytes(struct compiler *c, uint8_t lo, uint8_t hi, uint32_t target)
{
    uint32_t node = nfa_add(c, NFA_BYTES, target, 0);
    if (!c->failed) {
        c->nodes[node].lo = lo;
        c->nodes[node].hi = hi;
    }
    return node;
}

/* A call, with a bypass if the rule may match the empty text. Calls match something, so there is no
 * call if the rule matches nothing else. */
static uint32_t build_call(struct compiler *c, grammar_expr at, const struct rule_plan *plan,
                           uint32_t next)
{
    struct expr_traits *t = &c->traits[at];
    if (!t->has_text)
        return next;
    if (t->rule == UINT32_MAX)
        t->rule = compiler_add_rule(c, plan);
    uint32_t call = nfa_add(c, NFA_CALL, next, t->rule);
    return t->is_nullable ? nfa_add(c, NFA_SPLIT, call, next) : call;
}

static uint32_t build_star(struct compiler *c, grammar_expr part, uint32_t next)
{
    uint32_t split = nfa_add(c, NFA_SPLIT, 0, next);
    uint32_t body = nfa_build(c, part, split);
    if (!c->failed)
        c->nodes[split].target = body;
    return split;
}

static uint32_t build_repeat(struct compiler *c, grammar_expr at, uint32_t next)
{
    const struct expr e = c->b->exprs[at];
    const struct expr_traits *part = &c->traits[e.first];
    if (!part->is_productive)
        return next;
    if (repeat_is_counted(c, &e)) {
        /* The empty text bypasses the call, so the minimum is one round. */
        struct rule_plan plan = {.body = e.first,
                                 .is_counted = true,
                                 .min = part->is_nullable || e.min == 0 ? 1 : e.min,
                                 .max = e.max};
        return build_call(c, at, &plan, next);
    }
    uint32_t node = next;
    if (e.max == GRAMMAR_NO_MAX) {
        node = build_star(c, e.first, next);
        if (e.min > 0)
            node = c->failed ? 0 : c->nodes[node].target;
        for (uint32_t i = 1; i < e.min && !c->failed; i++)
            node = nfa_build(c, e.first, node);
        return node;
    }
    for (uint32_t i = e.min; i < e.max && !c->failed; i++)
        node = nfa_add(c, NFA_SPLIT, nfa_build(c, e.first, node), next);
    for (uint32_t i = 0; i < e.min && !c->failed; i++)
        node = nfa_build(c, e.first, node);
    return node;
}

static uint32_t build_choice(struct compiler *c, const struct expr e, uint32_t next)
{
    uint32_t node = UINT32_MAX;
    for (uint32_t i = 0; i < e.n && !c->failed; i++) {
        grammar_expr part = c->b->words[e.first + i];
        if (!c->traits[part].is_productive)
            continue;
        uint32_t built = nfa_build(c, part, next);
        node = node == UINT32_MAX ? built : nfa_add(c, NFA_SPLIT, built, node);
    }
    return node;
}

uint32_t nfa_build(struct compiler *c, grammar_expr at, uint32_t next)
{
    const struct expr e = c->b->exprs[at];
    if (c->failed)
        return 0;
    switch (e.kind) {
    case EXPR_LITERAL:
        for (uint32_t i = e.n; i-- > 0;) {
            uint8_t byte = (uint8_t)c->b->bytes[e.first + i];
            next = nfa_add_bytes(c, byte, byte, next);
        }
        return next;
    case EXPR_CLASS: return nfa_build_class(c, c->b->words + e.first, e.n, next);
    case EXPR_TOKEN: return nfa_add(c, NFA_TOKEN, next, e.first);
    case EXPR_SEQUENCE:
        for (uint32_t i = e.n; i-- > 0;)
            next = nfa_build(c, c->b->words[e.first + i], next);
        return next;
    case EXPR_CHOICE: return build_choice(c, e, next);
    case EXPR_REPEAT: return build_repeat(c, at, next);
    case EXPR_RULE:
        if (c->traits[at].is_inlined)
            return nfa_build(c, e.first, next);
        return build_call(c, at, &(struct rule_plan){.body = e.first, .part = (uint8_t)e.n}, next);
    default: assert(e.kind == EXPR_EMPTY); return next;
    }
}
