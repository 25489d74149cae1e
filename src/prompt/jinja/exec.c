/* Runs statements. `j->out` is swapped while a block's text is captured (set blocks, filter blocks,
 * macros). */
#include "prompt/jinja/ast.h"

static enum flow exec_print(struct jinja *j, struct scope *scope, const struct node *node)
{
    for (const struct node *item = node->items.first; item; item = item->next) {
        struct value value;
        const struct text *text = eval(j, scope, item, &value) ? value_str(j, &value) : NULL;
        if (!text)
            return FLOW_FAILED;
        builder_add_text(j, j->out, text);
    }
    return j->failed ? FLOW_FAILED : FLOW_NEXT;
}

static enum flow exec_if(struct jinja *j, struct scope *scope, const struct node *node)
{
    const struct node *branch = node;
    while (branch) {
        struct value test;
        if (!eval(j, scope, branch->branch.test, &test))
            return FLOW_FAILED;
        if (value_true(&test))
            return exec_nodes(j, scope, &branch->branch.body);
        branch = branch == node ? node->branch.elifs.first : branch->next;
    }
    return exec_nodes(j, scope, &node->branch.otherwise);
}

/* Runs a body in its own scope and captures its output in `text`. */
static enum flow exec_caught(struct jinja *j, struct scope *inner, const struct nodes *body,
                             struct value *text)
{
    struct builder caught = {0}, *outer = j->out;
    j->out = &caught;
    enum flow flow = exec_nodes(j, inner, body);
    j->out = outer;
    if (flow == FLOW_FAILED || !value_set_text(builder_text(j, &caught), text))
        return FLOW_FAILED;
    return flow;
}

static enum flow exec_set_block(struct jinja *j, struct scope *scope, const struct node *node)
{
    struct value text;
    struct scope *inner = scope_enter(j, scope, &node->set.layout);
    enum flow flow = inner ? exec_caught(j, inner, &node->set.body, &text) : FLOW_FAILED;
    if (flow != FLOW_NEXT)
        return flow;
    if (node->set.value && !eval_block_filter(j, inner, node->set.value, &text, &text))
        return FLOW_FAILED;
    return scope_assign(j, scope, node->set.target, &text) ? FLOW_NEXT : FLOW_FAILED;
}

static enum flow exec_filter_block(struct jinja *j, struct scope *scope, const struct node *node)
{
    struct value text, filtered;
    struct scope *inner = scope_enter(j, scope, &node->set.layout);
    enum flow flow = inner ? exec_caught(j, inner, &node->set.body, &text) : FLOW_FAILED;
    if (flow != FLOW_NEXT)
        return flow;
    if (!eval_block_filter(j, inner, node->set.value, &text, &filtered))
        return FLOW_FAILED;
    const struct text *printed = value_str(j, &filtered);
    if (printed)
        builder_add_text(j, j->out, printed);
    return j->failed ? FLOW_FAILED : FLOW_NEXT;
}

static enum flow exec_with(struct jinja *j, struct scope *scope, const struct node *node)
{
    struct scope *inner = scope_enter(j, scope, &node->with.layout);
    const struct node *target = node->with.targets.first;
    for (const struct node *value = node->with.values.first; inner && value; value = value->next) {
        struct value evaluated;
        if (!eval(j, scope, value, &evaluated) || !scope_assign(j, inner, target, &evaluated))
            return FLOW_FAILED;
        target = target->next;
    }
    return inner ? exec_nodes(j, inner, &node->with.body) : FLOW_FAILED;
}

static enum flow exec_call_block(struct jinja *j, struct scope *scope, const struct node *node)
{
    const struct node *target = node->macro.call;
    static const struct text caller_name = {
        .data = "caller", .len = 6, .n_chars = 6, .source = RENDER_TEMPLATE};
    struct value callee, result, caller;
    struct call call;
    if (!macro_new(j, scope, node->macro.signature, &caller) ||
        !eval(j, scope, target->call.callee, &callee) ||
        !eval_args(j, scope, &target->call.args, &call))
        return FLOW_FAILED;
    struct keyword *keywords = jinja_alloc_array(j, call.n_keywords + 1, sizeof *keywords);
    if (!keywords)
        return FLOW_FAILED;
    for (size_t i = 0; i < call.n_keywords; i++)
        keywords[i] = call.keywords[i];
    keywords[call.n_keywords++] = (struct keyword){&caller_name, caller};
    call.keywords = keywords;
    j->position = node->position;
    const struct text *text = value_call(j, &callee, &call, &result) ? value_str(j, &result) : NULL;
    if (text)
        builder_add_text(j, j->out, text);
    return j->failed ? FLOW_FAILED : FLOW_NEXT;
}

static enum flow exec(struct jinja *j, struct scope *scope, const struct node *node)
{
    struct value value;
    struct scope *inner;
    switch (node->kind) {
    case NODE_DATA:
        builder_add_text(j, j->out, node->constant.text);
        return j->failed ? FLOW_FAILED : FLOW_NEXT;
    case NODE_PRINT: return exec_print(j, scope, node);
    case NODE_IF: return exec_if(j, scope, node);
    case NODE_FOR: return exec_for(j, scope, node);
    case NODE_SET:
        return eval(j, scope, node->set.value, &value) &&
                       scope_assign(j, scope, node->set.target, &value)
                   ? FLOW_NEXT
                   : FLOW_FAILED;
    case NODE_SET_BLOCK: return exec_set_block(j, scope, node);
    case NODE_FILTER_BLOCK: return exec_filter_block(j, scope, node);
    case NODE_MACRO: {
        if (!macro_new(j, scope, node->macro.signature, &value))
            return FLOW_FAILED;
        struct scope *owner = scope;
        for (unsigned hops = node->macro.place.hops; hops; hops--)
            owner = owner->parent;
        owner->slots[node->macro.place.slot] = value;
        return FLOW_NEXT;
    }
    case NODE_CALL_BLOCK: return exec_call_block(j, scope, node);
    case NODE_WITH: return exec_with(j, scope, node);
    case NODE_GENERATION:
        inner = scope_enter(j, scope, &node->set.layout);
        return inner ? exec_nodes(j, inner, &node->set.body) : FLOW_FAILED;
    case NODE_BREAK: return FLOW_BREAK;
    case NODE_CONTINUE: return FLOW_CONTINUE;
    default: return FLOW_FAILED;
    }
}

enum flow exec_nodes(struct jinja *j, struct scope *scope, const struct nodes *nodes)
{
    enum flow flow = FLOW_NEXT;
    if (++j->depth > JINJA_MAX_DEPTH) {
        jinja_fail(j, "maximum recursion depth exceeded");
        return FLOW_FAILED;
    }
    for (const struct node *node = nodes->first; node && flow == FLOW_NEXT; node = node->next) {
        if (!jinja_step(j, 1))
            return FLOW_FAILED;
        flow = exec(j, scope, node);
    }
    j->depth--;
    return flow;
}
