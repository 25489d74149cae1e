/* Which variable does a name mean? Jinja decides that before anything runs, scope by scope, in two
 * passes: the first reads a whole scope for the names it uses and sets, the second does the same
 * for the scopes inside it. Templates rely on the consequences: a `set` in a loop is lost after the
 * iteration, and a variable that is set anywhere in a scope is local to the whole scope, even
 * before the `set`.
 *
 *   frame    names    [messages][content][loop ...]     a slot for each
 *            states   whether it is known yet, whether it is set, and its initial value
 *
 * An `if` is not a scope, but each branch is read with a copy of the states, because the branches
 * set different variables. After they are joined, such a variable starts with its value from
 * outside. */
#include "prompt/jinja/ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "prompt/jinja/lex.h"

enum { MAX_SCRATCH_BYTES = 64 << 20 };

struct state {
    bool known, is_set;
    enum load_action action;
    struct place outer;
};

struct frame {
    struct frame *parent;
    const struct text **names;
    struct state *states;
    size_t n_slots, capacity; /* capacity of `states`, too */
};

struct resolver {
    struct chat_template *t;
    struct arena scratch;
    struct error *err;
    bool analyzing; /* first pass */
    bool soft;      /* in a branch: an unknown filter fails only when it is reached */
    bool failed;
    unsigned loops; /* enclosing loops, which define `loop` */
};

static void visit(struct resolver *r, struct frame *f, struct node *node);

static void visit_all(struct resolver *r, struct frame *f, const struct nodes *nodes)
{
    for (struct node *node = nodes->first; node && !r->failed; node = node->next)
        visit(r, f, node);
}

__attribute__((format(printf, 3, 4))) static void fail(struct resolver *r, uint32_t position,
                                                       const char *format, ...);

static void fail(struct resolver *r, uint32_t position, const char *format, ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (!r->failed)
        jinja_syntax_error(r->err, r->t->source, r->t->len, position, "%s", message);
    r->failed = true;
}

static void *scratch(struct resolver *r, size_t count, size_t size)
{
    void *piece = arena_alloc_array(&r->scratch, count ? count : 1, size);
    if (!piece)
        fail(r, 0, "the template has too many variables and branches");
    return piece;
}

static struct state *states_copy(struct resolver *r, const struct frame *f)
{
    struct state *copy = scratch(r, f->capacity, sizeof *copy);
    if (copy && f->n_slots)
        memcpy(copy, f->states, f->n_slots * sizeof *copy);
    return copy;
}

/* The slot of a name in this frame, created if necessary. */
static size_t slot_of(struct resolver *r, struct frame *f, const struct text *name)
{
    for (size_t i = 0; i < f->n_slots; i++)
        if (text_equal(f->names[i], name))
            return i;
    if (f->n_slots == f->capacity) {
        size_t capacity = f->capacity ? f->capacity * 2 : 16;
        const struct text **names = scratch(r, capacity, sizeof *names);
        struct state *states = scratch(r, capacity, sizeof *states);
        if (capacity > JINJA_MAX_SLOTS)
            fail(r, 0, "the template has too many variables");
        if (r->failed)
            return 0;
        if (f->n_slots) {
            memcpy(names, f->names, f->n_slots * sizeof *names);
            memcpy(states, f->states, f->n_slots * sizeof *states);
        }
        f->names = names;
        f->states = states;
        f->capacity = capacity;
    }
    f->names[f->n_slots] = name;
    f->states[f->n_slots] = (struct state){0};
    return f->n_slots++;
}

/* Finds the place of a name, searching from `f` outwards. */
static bool find(const struct frame *f, const struct text *name, struct place *place)
{
    for (uint16_t hops = 0; f; f = f->parent, hops++)
        for (size_t i = 0; i < f->n_slots; i++)
            if (f->states[i].known && text_equal(f->names[i], name)) {
                *place = (struct place){hops, (uint16_t)i};
                return true;
            }
    return false;
}

static void declare(struct resolver *r, struct frame *f, const struct text *name)
{
    size_t slot = slot_of(r, f, name);
    if (!r->failed)
        f->states[slot] = (struct state){.known = true, .is_set = true, .action = LOAD_PARAMETER};
}

/* Decides the initial value of a variable that this frame sets. */
static void start_outside(struct frame *f, size_t slot, enum load_action otherwise)
{
    struct state *state = &f->states[slot];
    state->action = otherwise;
    if (f->parent && find(f->parent, f->names[slot], &state->outer)) {
        state->action = LOAD_OUTER;
        state->outer.hops++;
    }
}

static void name_set(struct resolver *r, struct frame *f, const struct text *name)
{
    size_t slot = slot_of(r, f, name);
    if (r->failed)
        return;
    if (!f->states[slot].known)
        start_outside(f, slot, LOAD_NOTHING);
    f->states[slot].known = f->states[slot].is_set = true;
}

static void name_used(struct resolver *r, struct frame *f, const struct text *name)
{
    struct place place;
    if (find(f, name, &place))
        return;
    size_t slot = slot_of(r, f, name);
    if (r->failed)
        return;
    f->states[slot].known = true;
    f->states[slot].action = LOAD_CONTEXT;
}

/* A target of an assignment. `param`: set by the code that enters the scope. */
static void visit_target(struct resolver *r, struct frame *f, struct node *target, bool param)
{
    if (target->kind == NODE_NAMESPACE_REF) {
        visit(r, f, target->attribute.object);
    } else if (target->kind == NODE_TUPLE) {
        for (struct node *item = target->items.first; item && !r->failed; item = item->next)
            visit_target(r, f, item, param);
    } else if (r->loops && text_is(target->name.text, "loop")) {
        fail(r, target->position, "Can't assign to special loop variable in for-loop target");
    } else if (!r->analyzing) {
        find(f, target->name.text, &target->name.place);
    } else if (param) {
        declare(r, f, target->name.text);
    } else {
        name_set(r, f, target->name.text);
    }
}

static void visit_branches(struct resolver *r, struct frame *f, struct node *node)
{
    struct nodes *const parts[3] = {&node->branch.body, &node->branch.elifs,
                                    &node->branch.otherwise};
    bool soft = r->soft;
    r->soft = true;
    visit(r, f, node->branch.test);
    if (!r->analyzing) {
        for (int i = 0; i < 3; i++)
            visit_all(r, f, parts[i]);
        r->soft = soft;
        return;
    }
    struct state *before = f->states, *after[3] = {NULL};
    size_t n_before = f->n_slots, n_after[3] = {0};
    for (int i = 0; i < 3 && !r->failed; i++) {
        if (!parts[i]->first)
            continue;
        f->states = before;
        size_t n = f->n_slots;
        f->n_slots = n_before;
        struct state *copy = states_copy(r, f);
        f->n_slots = n;
        if (!copy)
            return;
        f->states = copy;
        visit_all(r, f, parts[i]);
        after[i] = f->states;
        n_after[i] = f->n_slots;
    }
    /* The branches may have added slots, so the joined states need the new capacity. */
    struct state *joined = r->failed ? NULL : scratch(r, f->capacity, sizeof *joined);
    if (!joined)
        return;
    if (n_before)
        memcpy(joined, before, n_before * sizeof *joined);
    f->states = joined;
    for (size_t slot = 0; slot < f->n_slots; slot++) {
        bool set_here = false, was_set = joined[slot].is_set;
        for (int i = 0; i < 3; i++)
            if (after[i] && slot < n_after[i] && after[i][slot].known) {
                joined[slot] = after[i][slot];
                set_here |= after[i][slot].is_set;
            }
        joined[slot].is_set = was_set || set_here;
        if (set_here && !was_set)
            start_outside(f, slot, LOAD_CONTEXT);
    }
    r->soft = soft;
}

static void layout_make(struct resolver *r, const struct frame *f, struct scope_layout *layout)
{
    layout->n_slots = f->n_slots;
    layout->loads = arena_alloc_array(&r->t->arena, f->n_slots ? f->n_slots : 1,
                                      sizeof *layout->loads);
    if (!layout->loads) {
        fail(r, 0, "no memory for the chat template");
        return;
    }
    for (size_t i = 0; i < f->n_slots; i++)
        layout->loads[i] = (struct scope_load){f->names[i], f->states[i].action,
                                               f->states[i].outer};
}

static bool mentions(const struct nodes *nodes, const char *name);

static bool args_mention(const struct call_args *args, const char *name)
{
    const struct nodes star = {args->star, args->star, args->star != NULL};
    const struct nodes star_star = {args->star_star, args->star_star, args->star_star != NULL};
    return mentions(&args->positional, name) || mentions(&args->keywords, name) ||
           mentions(&star, name) || mentions(&star_star, name);
}

static bool node_mentions(const struct node *node, const char *name)
{
    if (!node)
        return false;
    switch (node->kind) {
    case NODE_NAME: return text_is(node->name.text, name);
    case NODE_LIST:
    case NODE_TUPLE:
    case NODE_DICT:
    case NODE_CONCAT:
    case NODE_PRINT: return mentions(&node->items, name);
    case NODE_ATTRIBUTE:
    case NODE_NAMESPACE_REF: return node_mentions(node->attribute.object, name);
    case NODE_ITEM:
        return node_mentions(node->item.object, name) || node_mentions(node->item.key, name);
    case NODE_SLICE:
        return node_mentions(node->slice.bounds[0], name) ||
               node_mentions(node->slice.bounds[1], name) ||
               node_mentions(node->slice.bounds[2], name);
    case NODE_CALL:
    case NODE_FILTER:
    case NODE_TEST:
        return node_mentions(node->call.callee, name) || args_mention(&node->call.args, name);
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_PLUS:
    case NODE_AND:
    case NODE_OR:
    case NODE_BINARY:
        return node_mentions(node->binary.left, name) || node_mentions(node->binary.right, name);
    case NODE_COMPARE:
        return node_mentions(node->compare.first, name) || mentions(&node->compare.rest, name);
    case NODE_CONDITION:
        return node_mentions(node->condition.test, name) ||
               node_mentions(node->condition.then, name) ||
               node_mentions(node->condition.otherwise, name);
    case NODE_IF:
        return node_mentions(node->branch.test, name) || mentions(&node->branch.body, name) ||
               mentions(&node->branch.elifs, name) || mentions(&node->branch.otherwise, name);
    case NODE_FOR:
        return node_mentions(node->loop.iterable, name) || node_mentions(node->loop.test, name) ||
               mentions(&node->loop.body, name) || mentions(&node->loop.otherwise, name);
    case NODE_SET:
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK:
    case NODE_GENERATION:
        return node_mentions(node->set.value, name) || mentions(&node->set.body, name);
    case NODE_MACRO:
    case NODE_CALL_BLOCK:
        return node_mentions(node->macro.call, name) ||
               mentions(&node->macro.signature->defaults, name) ||
               mentions(&node->macro.signature->body, name);
    case NODE_WITH: return mentions(&node->with.values, name) || mentions(&node->with.body, name);
    default: return false;
    }
}

static bool mentions(const struct nodes *nodes, const char *name)
{
    for (const struct node *node = nodes->first; node; node = node->next)
        if (node_mentions(node, name))
            return true;
    return false;
}

/* Both passes over the contents of a frame, which is complete afterwards. */
static void frame_visit(struct resolver *r, struct frame *f, struct node *target,
                        struct node *before, const struct nodes *body, struct node *after,
                        struct scope_layout *layout)
{
    bool analyzing = r->analyzing, soft = r->soft;
    r->soft = false;
    for (int pass = 0; pass < 2 && !r->failed; pass++) {
        r->analyzing = pass == 0;
        if (target)
            visit_target(r, f, target, true);
        if (before)
            visit(r, f, before);
        if (body)
            visit_all(r, f, body);
        if (after)
            visit(r, f, after);
        if (pass == 0 && !r->failed)
            layout_make(r, f, layout);
    }
    r->analyzing = analyzing;
    r->soft = soft;
}

static void special_param(struct resolver *r, struct frame *f, const char *name,
                          const struct nodes *body, bool *uses, uint16_t *slot)
{
    struct text *text = arena_alloc(&r->t->arena, sizeof *text);
    if (!text) {
        fail(r, 0, "no memory for the chat template");
        return;
    }
    *text = (struct text){
        .data = name, .len = strlen(name), .n_chars = strlen(name), .source = RENDER_TEMPLATE};
    *uses = mentions(body, name);
    for (size_t i = 0; i < f->n_slots && *uses; i++)
        if (f->states[i].action == LOAD_PARAMETER && text_equal(f->names[i], text))
            *uses = false; /* here it is an ordinary parameter */
    if (!*uses)
        return;
    declare(r, f, text);
    *slot = (uint16_t)slot_of(r, f, text);
}

/* The scope of a macro or call block. */
static void signature_visit(struct resolver *r, struct frame *parent, struct signature_node *s)
{
    struct frame f = {.parent = parent};
    for (struct node *param = s->params.first; param && !r->failed; param = param->next) {
        size_t n = f.n_slots;
        declare(r, &f, param->name.text);
        if (f.n_slots == n)
            fail(r, param->position, "duplicate argument '%.*s' in macro definition",
                 (int)param->name.text->len, param->name.text->data);
    }
    size_t n_required = s->params.count - s->defaults.count, i = 0;
    for (struct node *param = s->params.first; param && i < n_required; param = param->next, i++)
        if (text_is(param->name.text, "caller") && mentions(&s->body, "caller"))
            fail(r, param->position,
                 "When defining macros or call blocks the special \"caller\" argument must be "
                 "omitted or be given a default.");
    if (r->failed)
        return;
    special_param(r, &f, "caller", &s->body, &s->uses_caller, &s->caller_slot);
    special_param(r, &f, "kwargs", &s->body, &s->uses_kwargs, &s->kwargs_slot);
    special_param(r, &f, "varargs", &s->body, &s->uses_varargs, &s->varargs_slot);
    bool analyzing = r->analyzing, soft = r->soft;
    r->soft = false;
    for (int pass = 0; pass < 2 && !r->failed; pass++) {
        r->analyzing = pass == 0;
        visit_all(r, &f, &s->defaults);
        visit_all(r, &f, &s->body);
        if (pass == 0 && !r->failed)
            layout_make(r, &f, &s->layout);
    }
    r->analyzing = analyzing;
    r->soft = soft;
}

static void visit_loop(struct resolver *r, struct frame *f, struct node *node)
{
    visit(r, f, node->loop.iterable);
    if (r->analyzing || r->failed)
        return;
    static const struct text loop_name = {
        .data = "loop", .len = 4, .n_chars = 4, .source = RENDER_TEMPLATE};
    struct frame body = {.parent = f}, test = {.parent = f}, otherwise = {.parent = f};
    r->loops++;
    r->analyzing = true; /* the target's slots come first, so that body and test agree on them */
    visit_target(r, &body, node->loop.target, true);
    declare(r, &body, &loop_name);
    node->loop.loop_slot = (uint16_t)slot_of(r, &body, &loop_name);
    r->analyzing = false;
    frame_visit(r, &body, node->loop.target, NULL, &node->loop.body, NULL, &node->loop.body_layout);
    if (node->loop.test)
        frame_visit(r, &test, node->loop.target, node->loop.test, NULL, NULL,
                    &node->loop.test_layout);
    if (node->loop.otherwise.first)
        frame_visit(r, &otherwise, NULL, NULL, &node->loop.otherwise, NULL,
                    &node->loop.else_layout);
    r->loops--;
}

static void visit_with(struct resolver *r, struct frame *f, struct node *node)
{
    visit_all(r, f, &node->with.values);
    if (r->analyzing || r->failed)
        return;
    struct frame body = {.parent = f};
    for (struct node *target = node->with.targets.first; target; target = target->next) {
        r->analyzing = true;
        visit_target(r, &body, target, true);
        r->analyzing = false;
    }
    frame_visit(r, &body, NULL, NULL, &node->with.body, NULL, &node->with.layout);
    for (struct node *target = node->with.targets.first; target; target = target->next)
        visit_target(r, &body, target, true);
}

static void visit_statement(struct resolver *r, struct frame *f, struct node *node)
{
    switch (node->kind) {
    case NODE_IF: visit_branches(r, f, node); break;
    case NODE_FOR: visit_loop(r, f, node); break;
    case NODE_SET:
        visit(r, f, node->set.value);
        visit_target(r, f, node->set.target, false);
        break;
    case NODE_SET_BLOCK: visit_target(r, f, node->set.target, false); /* fall through */
    case NODE_FILTER_BLOCK:
    case NODE_GENERATION: {
        struct frame body = {.parent = f};
        if (node->kind == NODE_FILTER_BLOCK && r->analyzing)
            visit(r, f, node->set.value);
        if (!r->analyzing)
            frame_visit(r, &body, NULL, NULL, &node->set.body, node->set.value, &node->set.layout);
        break;
    }
    case NODE_MACRO:
        if (r->analyzing)
            name_set(r, f, node->macro.signature->name);
        else if (find(f, node->macro.signature->name, &node->macro.place))
            signature_visit(r, f, node->macro.signature);
        break;
    case NODE_CALL_BLOCK:
        visit(r, f, node->macro.call);
        if (!r->analyzing)
            signature_visit(r, f, node->macro.signature);
        break;
    case NODE_WITH: visit_with(r, f, node); break;
    default: break; /* data, break, continue */
    }
}

static void visit_call(struct resolver *r, struct frame *f, struct node *node)
{
    if (node->call.callee)
        visit(r, f, node->call.callee);
    visit_all(r, f, &node->call.args.positional);
    visit_all(r, f, &node->call.args.keywords);
    if (node->call.args.star)
        visit(r, f, node->call.args.star);
    if (node->call.args.star_star)
        visit(r, f, node->call.args.star_star);
    bool unknown = (node->kind == NODE_FILTER && !node->call.filter) ||
                   (node->kind == NODE_TEST && !node->call.test);
    if (unknown && !r->soft && !r->analyzing)
        fail(r, node->position, "No %s named '%.*s'.",
             node->kind == NODE_FILTER ? "filter" : "test", (int)node->call.name->len,
             node->call.name->data);
}

static void visit(struct resolver *r, struct frame *f, struct node *node)
{
    if (r->failed)
        return;
    switch (node->kind) {
    case NODE_NAME:
        if (r->analyzing)
            name_used(r, f, node->name.text);
        else
            find(f, node->name.text, &node->name.place);
        break;
    case NODE_LIST:
    case NODE_TUPLE:
    case NODE_DICT:
    case NODE_CONCAT:
    case NODE_PRINT: visit_all(r, f, &node->items); break;
    case NODE_ATTRIBUTE: visit(r, f, node->attribute.object); break;
    case NODE_ITEM:
        visit(r, f, node->item.object);
        visit(r, f, node->item.key);
        break;
    case NODE_SLICE:
        for (int i = 0; i < 3; i++)
            if (node->slice.bounds[i])
                visit(r, f, node->slice.bounds[i]);
        break;
    case NODE_CALL:
    case NODE_FILTER:
    case NODE_TEST: visit_call(r, f, node); break;
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_PLUS: visit(r, f, node->binary.left); break;
    case NODE_AND:
    case NODE_OR:
    case NODE_BINARY:
        visit(r, f, node->binary.left);
        visit(r, f, node->binary.right);
        break;
    case NODE_COMPARE:
        visit(r, f, node->compare.first);
        visit_all(r, f, &node->compare.rest);
        break;
    case NODE_CONDITION: {
        bool soft = r->soft;
        r->soft = true;
        visit(r, f, node->condition.test);
        visit(r, f, node->condition.then);
        if (node->condition.otherwise)
            visit(r, f, node->condition.otherwise);
        r->soft = soft;
        break;
    }
    default: visit_statement(r, f, node);
    }
}

int jinja_resolve(struct chat_template *t, struct error *err)
{
    struct resolver r = {.t = t, .scratch = {.limit_bytes = MAX_SCRATCH_BYTES}, .err = err};
    struct frame root = {0};
    frame_visit(&r, &root, NULL, NULL, &t->body, NULL, &t->layout);
    arena_free(&r.scratch);
    return r.failed ? -1 : 0;
}
