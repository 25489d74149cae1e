/* {% for %} and the `loop` variable. Items are pulled one by one, because a loop's condition may
 * depend on what the body did before. As in Jinja, `loop.last` looks one item ahead and
 * `loop.length` at all remaining items. */
#include "prompt/jinja/ast.h"

#include <string.h>

struct loop {
    const struct node *node;
    struct scope *scope; /* around the loop */
    struct scope *test_scope;
    struct list *items; /* before the condition */
    size_t at;          /* in items: the next to examine */
    struct list *ready; /* looked-ahead items that passed the condition */
    size_t ready_at;
    bool has_length;
    int64_t length;
    int64_t index0;
    unsigned depth0;
    struct value before, current;
    struct value changed; /* the last arguments of loop.changed(): a tuple */
};

static bool passes(struct jinja *j, struct loop *loop, const struct value *item, bool *pass)
{
    *pass = true;
    if (!loop->test_scope)
        return true;
    struct value test;
    const struct node *node = loop->node;
    if (!scope_load(j, loop->test_scope, &node->loop.test_layout) ||
        !scope_assign(j, loop->test_scope, node->loop.target, item) ||
        !eval(j, loop->test_scope, node->loop.test, &test))
        return false;
    *pass = value_true(&test);
    return true;
}

/* The next item that passes the condition, from the source. V_MISSING at the end. */
static bool pull(struct jinja *j, struct loop *loop, struct value *item)
{
    while (loop->at < loop->items->len) {
        bool pass;
        *item = loop->items->items[loop->at++];
        if (!jinja_step(j, 1) || !passes(j, loop, item, &pass))
            return false;
        if (pass)
            return true;
    }
    *item = (struct value){.type = V_MISSING};
    return true;
}

static bool peek(struct jinja *j, struct loop *loop, struct value *item)
{
    if (loop->ready_at < loop->ready->len) {
        *item = loop->ready->items[loop->ready_at];
        return true;
    }
    return pull(j, loop, item) && (item->type == V_MISSING || list_add(j, loop->ready, item));
}

static bool advance(struct jinja *j, struct loop *loop, struct value *item)
{
    if (loop->ready_at < loop->ready->len)
        *item = loop->ready->items[loop->ready_at++];
    else if (!pull(j, loop, item))
        return false;
    if (item->type == V_MISSING)
        return true;
    loop->index0++;
    loop->before = loop->current;
    loop->current = *item;
    return true;
}

static bool loop_length(struct jinja *j, struct loop *loop, int64_t *length)
{
    if (!loop->has_length) {
        struct value item;
        do {
            if (!pull(j, loop, &item) ||
                (item.type != V_MISSING && !list_add(j, loop->ready, &item)))
                return false;
        } while (item.type != V_MISSING);
        loop->length = loop->index0 + 1 + (int64_t)(loop->ready->len - loop->ready_at);
        loop->has_length = true;
    }
    *length = loop->length;
    return true;
}

static bool loop_run(struct jinja *j, struct scope *scope, const struct node *node,
                     const struct value *iterable, unsigned depth0, enum flow *flow)
{
    struct loop *loop = jinja_alloc(j, sizeof *loop);
    if (!loop || !(loop->ready = list_new(j, 0)))
        return false;
    *loop = (struct loop){.node = node,
                          .scope = scope,
                          .ready = loop->ready,
                          .index0 = -1,
                          .depth0 = depth0,
                          .before = {.type = V_MISSING},
                          .current = {.type = V_MISSING},
                          .changed = {.type = V_MISSING}};
    j->position = node->loop.iterable->position;
    if (!value_items(j, iterable, &loop->items))
        return false;
    if (node->loop.test && !(loop->test_scope = scope_enter(j, scope, &node->loop.test_layout)))
        return false;
    struct scope *body = scope_enter(j, scope, &node->loop.body_layout);
    if (!body)
        return false;
    bool completed = false; /* an iteration ran to its end; otherwise `else` runs */
    for (;;) {
        struct value item;
        if (!advance(j, loop, &item))
            return false;
        if (item.type == V_MISSING)
            break;
        if (loop->index0 > 0 && !scope_load(j, body, &node->loop.body_layout))
            return false;
        body->slots[node->loop.loop_slot] = (struct value){.type = V_LOOP, .loop = loop};
        if (!scope_assign(j, body, node->loop.target, &item))
            return false;
        *flow = exec_nodes(j, body, &node->loop.body);
        if (*flow == FLOW_FAILED)
            return false;
        if (*flow == FLOW_BREAK)
            break;
        completed |= *flow == FLOW_NEXT;
    }
    *flow = FLOW_NEXT;
    if (completed || !node->loop.otherwise.first)
        return true;
    struct scope *otherwise = scope_enter(j, scope, &node->loop.else_layout);
    *flow = otherwise ? exec_nodes(j, otherwise, &node->loop.otherwise) : FLOW_FAILED;
    return *flow != FLOW_FAILED;
}

enum flow exec_for(struct jinja *j, struct scope *scope, const struct node *node)
{
    struct value iterable;
    enum flow flow;
    if (!eval(j, scope, node->loop.iterable, &iterable) ||
        !loop_run(j, scope, node, &iterable, 0, &flow))
        return FLOW_FAILED;
    return flow;
}

bool loop_call(struct jinja *j, struct loop *loop, const struct call *call, struct value *out)
{
    if (!loop->node->loop.recursive)
        return jinja_fail(j, "The loop must have the 'recursive' marker to be called recursively.");
    if (call->n_args != 1 || call->n_keywords)
        return jinja_fail(j, "a loop is called with one argument, what to loop over");
    struct builder caught = {0}, *outer = j->out;
    enum flow flow;
    if (++j->depth > JINJA_MAX_DEPTH)
        return jinja_fail(j, "maximum recursion depth exceeded");
    j->out = &caught;
    bool ok = loop_run(j, loop->scope, loop->node, &call->args[0], loop->depth0 + 1, &flow);
    j->depth--;
    j->out = outer;
    return ok && value_set_text(builder_text(j, &caught), out);
}

static bool loop_neighbour(struct jinja *j, struct loop *loop, bool next, struct value *out)
{
    if (next && !peek(j, loop, out))
        return false;
    if (!next)
        *out = loop->before;
    return out->type != V_MISSING ||
           value_undefined_hint(j, next ? "there is no next item" : "there is no previous item",
                                out);
}

bool loop_attribute(struct jinja *j, struct loop *loop, const struct text *name, struct value *out)
{
    int64_t length = 0;
    *out = (struct value){.type = V_MISSING};
    if (text_is(name, "index0")) {
        *out = value_int(loop->index0);
    } else if (text_is(name, "index")) {
        *out = value_int(loop->index0 + 1);
    } else if (text_is(name, "first")) {
        *out = value_bool(loop->index0 == 0);
    } else if (text_is(name, "last")) {
        struct value next;
        if (!peek(j, loop, &next))
            return false;
        *out = value_bool(next.type == V_MISSING);
    } else if (text_is(name, "depth0")) {
        *out = value_int(loop->depth0);
    } else if (text_is(name, "depth")) {
        *out = value_int((int64_t)loop->depth0 + 1);
    } else if (text_is(name, "previtem") || text_is(name, "nextitem")) {
        return loop_neighbour(j, loop, name->data[0] == 'n', out);
    } else if (text_is(name, "length") || text_is(name, "revindex") || text_is(name, "revindex0")) {
        if (!loop_length(j, loop, &length))
            return false;
        *out = value_int(name->data[0] == 'l' ? length
                         : name->len == 8     ? length - loop->index0
                                              : length - loop->index0 - 1);
    } else if (text_is(name, "cycle") || text_is(name, "changed")) {
        struct method *method = jinja_alloc(j, sizeof *method);
        if (!method)
            return false;
        *method = (struct method){.entry = method_find(V_LOOP, name),
                                  .self = {.type = V_LOOP, .loop = loop}};
        *out = (struct value){.type = V_METHOD, .method = method};
    }
    return true;
}

bool loop_cycle(struct jinja *j, const struct value *self, const struct value *args,
                const struct call *call, struct value *out)
{
    (void)args;
    if (call->n_args == 0)
        return jinja_fail(j, "no items for cycling given");
    *out = call->args[(size_t)self->loop->index0 % call->n_args];
    return true;
}

bool loop_changed(struct jinja *j, const struct value *self, const struct value *args,
                  const struct call *call, struct value *out)
{
    (void)args;
    struct list *list = list_new(j, call->n_args);
    if (!list)
        return false;
    for (size_t i = 0; i < call->n_args; i++)
        list->items[list->len++] = call->args[i];
    struct value now = value_tuple(list);
    *out = value_bool(!value_equal(j, &self->loop->changed, &now));
    self->loop->changed = now;
    return !j->failed;
}
