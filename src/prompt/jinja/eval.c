/* Evaluates expressions by walking the tree. Steps are counted and depth is bounded, so no template
 * can use up the thread's time or stack. */
#include "prompt/jinja/ast.h"

#include <string.h>

struct scope *scope_enter(struct jinja *j, struct scope *parent, const struct scope_layout *layout)
{
    struct scope *scope = jinja_alloc(j, sizeof *scope);
    if (!scope)
        return NULL;
    scope->parent = parent;
    scope->slots = jinja_alloc_array(j, layout->n_slots, sizeof *scope->slots);
    return scope->slots && scope_load(j, scope, layout) ? scope : NULL;
}

static const struct value *place_find(struct scope *scope, struct place place)
{
    for (unsigned hops = place.hops; hops; hops--)
        scope = scope->parent;
    return &scope->slots[place.slot];
}

bool scope_load(struct jinja *j, struct scope *scope, const struct scope_layout *layout)
{
    for (size_t i = 0; i < layout->n_slots; i++) {
        const struct scope_load *load = &layout->loads[i];
        struct value *slot = &scope->slots[i];
        switch (load->action) {
        case LOAD_PARAMETER: break;
        case LOAD_OUTER: *slot = *place_find(scope, load->outer); break;
        case LOAD_NOTHING: *slot = (struct value){.type = V_MISSING}; break;
        case LOAD_CONTEXT: {
            const struct value *found = dict_find_text(j->context, load->name->data,
                                                       load->name->len);
            const struct function *function = found ? NULL
                                                    : function_find(load->name->data,
                                                                    load->name->len);
            *slot = found      ? *found
                    : function ? (struct value){.type = V_FUNCTION, .function = function}
                               : (struct value){.type = V_MISSING};
        }
        }
    }
    return jinja_step(j, 1);
}

static bool unpack(struct jinja *j, struct scope *scope, const struct node *target,
                   const struct value *value)
{
    struct list *items;
    if (!value_is_iterable(value))
        return value->type == V_UNDEFINED
                   ? jinja_fail_undefined(j, value)
                   : jinja_fail(j, "cannot unpack non-iterable %s object", value_type_name(value));
    if (!value_items(j, value, &items))
        return false;
    if (items->len < target->items.count)
        return jinja_fail(j, "not enough values to unpack (expected %zu, got %zu)",
                          target->items.count, items->len);
    if (items->len > target->items.count)
        return jinja_fail(j, "too many values to unpack (expected %zu)", target->items.count);
    size_t i = 0;
    for (const struct node *item = target->items.first; item; item = item->next)
        if (!scope_assign(j, scope, item, &items->items[i++]))
            return false;
    return true;
}

bool scope_assign(struct jinja *j, struct scope *scope, const struct node *target,
                  const struct value *value)
{
    j->position = target->position;
    if (target->kind == NODE_TUPLE)
        return unpack(j, scope, target, value);
    if (target->kind == NODE_NAME) {
        *(struct value *)place_find(scope, target->name.place) = *value;
        return true;
    }
    struct value object;
    if (!eval(j, scope, target->attribute.object, &object))
        return false;
    if (object.type != V_NAMESPACE)
        return jinja_fail(j, "cannot assign attribute on non-namespace object");
    struct value key = value_text(target->attribute.name);
    return dict_set(j, object.dict, &key, value);
}

static bool eval_name(struct jinja *j, struct scope *scope, const struct node *node,
                      struct value *out)
{
    *out = *place_find(scope, node->name.place);
    return out->type != V_MISSING || value_undefined_name(j, node->name.text, out);
}

static bool eval_items(struct jinja *j, struct scope *scope, const struct node *node,
                       struct value *out)
{
    struct list *list = list_new(j, node->items.count);
    if (!list)
        return false;
    for (const struct node *item = node->items.first; item; item = item->next)
        if (!eval(j, scope, item, &list->items[list->len++]))
            return false;
    *out = node->kind == NODE_LIST ? value_list(list) : value_tuple(list);
    return true;
}

static bool eval_dict(struct jinja *j, struct scope *scope, const struct node *node,
                      struct value *out)
{
    struct dict *dict = dict_new(j, node->items.count / 2);
    if (!dict)
        return false;
    for (const struct node *key = node->items.first; key; key = key->next->next) {
        struct value name, value;
        if (!eval(j, scope, key, &name) || !eval(j, scope, key->next, &value))
            return false;
        j->position = key->position;
        if (!dict_set(j, dict, &name, &value))
            return false;
    }
    *out = (struct value){.type = V_DICT, .dict = dict};
    return true;
}

static bool eval_item(struct jinja *j, struct scope *scope, const struct node *node,
                      struct value *out)
{
    struct value object,
        bounds[3] = {{.type = V_MISSING}, {.type = V_MISSING}, {.type = V_MISSING}};
    const struct node *key = node->item.key;
    if (!eval(j, scope, node->item.object, &object))
        return false;
    if (key->kind != NODE_SLICE) {
        if (!eval(j, scope, key, &bounds[0]))
            return false;
        j->position = node->position;
        return value_item(j, &object, &bounds[0], out);
    }
    for (int i = 0; i < 3; i++)
        if (key->slice.bounds[i] && !eval(j, scope, key->slice.bounds[i], &bounds[i]))
            return false;
    j->position = node->position;
    return op_slice(j, &object, bounds, out);
}

static bool call_spread(struct jinja *j, struct scope *scope, const struct call_args *args,
                        struct call *call)
{
    struct value spread;
    struct list *items;
    if (args->star) {
        if (!eval(j, scope, args->star, &spread) || !value_items(j, &spread, &items))
            return false;
        if (items->len > JINJA_MAX_SPREAD)
            return jinja_fail(j, "too many arguments in a call");
        struct value *all = jinja_alloc_array(j, call->n_args + items->len, sizeof *all);
        if (!all)
            return false;
        memcpy(all, call->args, call->n_args * sizeof *all);
        for (size_t i = 0; i < items->len; i++)
            all[call->n_args++] = items->items[i];
        call->args = all;
    }
    if (!args->star_star)
        return true;
    if (!eval(j, scope, args->star_star, &spread))
        return false;
    if (spread.type != V_DICT)
        return jinja_fail(j, "argument after ** must be a mapping, not %s",
                          value_type_name(&spread));
    struct keyword *all = jinja_alloc_array(j, call->n_keywords + spread.dict->len, sizeof *all);
    if (!all)
        return false;
    memcpy(all, call->keywords, call->n_keywords * sizeof *all);
    for (size_t i = 0; i < spread.dict->len; i++) {
        if (spread.dict->entries[i].key.type != V_STRING)
            return jinja_fail(j, "keywords must be strings");
        all[call->n_keywords++] = (struct keyword){spread.dict->entries[i].key.text,
                                                   spread.dict->entries[i].value};
    }
    call->keywords = all;
    return true;
}

bool eval_args(struct jinja *j, struct scope *scope, const struct call_args *args,
               struct call *call)
{
    *call = (struct call){0};
    size_t n_keywords = args->keywords.count / 2;
    call->args = jinja_alloc_array(j, args->positional.count, sizeof *call->args);
    call->keywords = jinja_alloc_array(j, n_keywords, sizeof *call->keywords);
    if (!call->args || !call->keywords)
        return false;
    for (const struct node *arg = args->positional.first; arg; arg = arg->next)
        if (!eval(j, scope, arg, &call->args[call->n_args++]))
            return false;
    for (const struct node *arg = args->keywords.first; arg; arg = arg->next->next) {
        struct keyword *keyword = &call->keywords[call->n_keywords++];
        keyword->name = arg->constant.text;
        if (!eval(j, scope, arg->next, &keyword->value))
            return false;
    }
    return (!args->star && !args->star_star) || call_spread(j, scope, args, call);
}

static bool eval_call(struct jinja *j, struct scope *scope, const struct node *node,
                      struct value *out)
{
    const struct node *callee = node->call.callee;
    struct value target;
    struct call call;
    if (callee->kind == NODE_ATTRIBUTE) { /* a method: no bound object is made */
        struct method method = {0};
        if (!eval(j, scope, callee->attribute.object, &method.self))
            return false;
        j->position = callee->position;
        method.entry = method_find(method.self.type, callee->attribute.name);
        if (method.entry && method.entry->run) {
            if (!eval_args(j, scope, &node->call.args, &call))
                return false;
            j->position = node->position;
            return method_call(j, &method, &call, out);
        }
        if (!value_attribute(j, &method.self, callee->attribute.name, &target))
            return false;
    } else if (!eval(j, scope, callee, &target)) {
        return false;
    }
    if (!eval_args(j, scope, &node->call.args, &call))
        return false;
    j->position = node->position;
    return value_call(j, &target, &call, out);
}

static bool apply_filter(struct jinja *j, struct scope *scope, const struct node *node,
                         const struct value *self, struct value *out)
{
    struct call call;
    if (!node->call.filter) {
        j->position = node->position;
        return jinja_fail(j, "No filter named '%.*s' found.", (int)node->call.name->len,
                          node->call.name->data);
    }
    if (!eval_args(j, scope, &node->call.args, &call))
        return false;
    j->position = node->position;
    return filter_call(j, node->call.filter, self, &call, out);
}

bool eval_block_filter(struct jinja *j, struct scope *scope, const struct node *filter,
                       const struct value *text, struct value *out)
{
    struct value self = *text;
    if (filter->call.callee && !eval_block_filter(j, scope, filter->call.callee, text, &self))
        return false;
    return apply_filter(j, scope, filter, &self, out);
}

static bool eval_test(struct jinja *j, struct scope *scope, const struct node *node,
                      struct value *out)
{
    struct value self;
    struct call call;
    bool result;
    if (!eval(j, scope, node->call.callee, &self))
        return false;
    j->position = node->position;
    if (!node->call.test)
        return jinja_fail(j, "No test named '%.*s' found.", (int)node->call.name->len,
                          node->call.name->data);
    if (!eval_args(j, scope, &node->call.args, &call) ||
        !test_call(j, node->call.test, &self, &call, &result))
        return false;
    *out = value_bool(result);
    return true;
}

static bool compare(struct jinja *j, enum compare_op op, const struct value *a,
                    const struct value *b, bool *result)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    int order;
    switch (op) {
    case CMP_EQ: *result = value_equal(j, a, b); return !j->failed;
    case CMP_NE: *result = !value_equal(j, a, b); return !j->failed;
    case CMP_IN: return value_contains(j, b, a, result);
    case CMP_NOT_IN:
        if (!value_contains(j, b, a, result))
            return false;
        *result = !*result;
        return true;
    default:
        if (!value_order(j, a, b, names[op], &order))
            return false;
        *result = op == CMP_LT   ? order < 0
                  : op == CMP_LE ? order <= 0
                  : op == CMP_GT ? order > 0
                                 : order >= 0;
        return true;
    }
}

static bool eval_compare(struct jinja *j, struct scope *scope, const struct node *node,
                         struct value *out)
{
    struct value left, right;
    bool result = true;
    if (!eval(j, scope, node->compare.first, &left))
        return false;
    for (const struct node *rest = node->compare.rest.first; rest && result; rest = rest->next) {
        if (!eval(j, scope, rest->compare.first, &right))
            return false;
        j->position = node->position;
        if (!compare(j, rest->op, &left, &right, &result))
            return false;
        left = right;
    }
    *out = value_bool(result);
    return true;
}

static bool eval_concat(struct jinja *j, struct scope *scope, const struct node *node,
                        struct value *out)
{
    struct builder b = {0};
    for (const struct node *item = node->items.first; item; item = item->next) {
        struct value value;
        const struct text *text = eval(j, scope, item, &value) ? value_str(j, &value) : NULL;
        if (!text)
            return false;
        builder_add_text(j, &b, text);
    }
    return value_set_text(builder_text(j, &b), out);
}

static bool eval_condition(struct jinja *j, struct scope *scope, const struct node *node,
                           struct value *out)
{
    struct value test;
    if (!eval(j, scope, node->condition.test, &test))
        return false;
    if (value_true(&test))
        return eval(j, scope, node->condition.then, out);
    if (node->condition.otherwise)
        return eval(j, scope, node->condition.otherwise, out);
    return value_undefined_if(j, node->position, out);
}

static bool eval_unary(struct jinja *j, struct scope *scope, const struct node *node,
                       struct value *out)
{
    struct value operand;
    if (!eval(j, scope, node->binary.left, &operand))
        return false;
    j->position = node->position;
    if (node->kind == NODE_NOT) {
        *out = value_bool(!value_true(&operand));
        return true;
    }
    if (node->kind == NODE_NEGATE)
        return op_negate(j, &operand, out);
    if (operand.type == V_UNDEFINED)
        return jinja_fail_undefined(j, &operand);
    if (!value_is_number(&operand))
        return jinja_fail(j, "bad operand type for unary +: '%s'", value_type_name(&operand));
    *out = operand.type == V_BOOL ? value_int(operand.boolean) : operand;
    return true;
}

/* a + b + c + ...: strings are joined in one step, without intermediate results. Other values, and
 * a string that grows in place, are added one by one from the left. */
static bool eval_sum(struct jinja *j, struct scope *scope, const struct node *node,
                     struct value *out)
{
    enum { MAX_TERMS = 16 };
    const struct node *sums[MAX_TERMS];
    struct value terms[MAX_TERMS];
    size_t n = 0;
    while (n + 1 < MAX_TERMS && node->kind == NODE_BINARY && node->op == OP_ADD) {
        sums[n++] = node;
        node = node->binary.left;
    }
    if (!eval(j, scope, node, &terms[0]))
        return false;
    bool join = n > 1 && terms[0].type == V_STRING && !terms[0].text->markup &&
                !text_extends(terms[0].text);
    for (size_t i = 1; i <= n; i++) {
        if (!eval(j, scope, sums[n - i]->binary.right, &terms[i]))
            return false;
        join = join && terms[i].type == V_STRING && !terms[i].text->markup;
    }
    if (join) {
        struct builder b = {0};
        size_t len = 0;
        for (size_t i = 0; i <= n; i++)
            len += terms[i].text->len;
        if (!builder_reserve(j, &b, len))
            return false;
        for (size_t i = 0; i <= n; i++)
            builder_add_text(j, &b, terms[i].text);
        return value_set_text(builder_text(j, &b), out);
    }
    *out = terms[0];
    for (size_t i = 1; i <= n; i++) {
        struct value left = *out;
        j->position = sums[n - i]->position;
        if (!op_binary(j, OP_ADD, &left, &terms[i], out))
            return false;
    }
    return true;
}

static bool eval_binary(struct jinja *j, struct scope *scope, const struct node *node,
                        struct value *out)
{
    struct value left, right;
    if (node->kind == NODE_BINARY && node->op == OP_ADD)
        return eval_sum(j, scope, node, out);
    if (!eval(j, scope, node->binary.left, &left))
        return false;
    if (node->kind != NODE_BINARY) {
        if (value_true(&left) == (node->kind == NODE_AND))
            return eval(j, scope, node->binary.right, out);
        *out = left;
        return true;
    }
    if (!eval(j, scope, node->binary.right, &right))
        return false;
    j->position = node->position;
    return op_binary(j, node->op, &left, &right, out);
}

static bool eval_other(struct jinja *j, struct scope *scope, const struct node *node,
                       struct value *out)
{
    struct value operand;
    switch (node->kind) {
    case NODE_LIST:
    case NODE_TUPLE: return eval_items(j, scope, node, out);
    case NODE_DICT: return eval_dict(j, scope, node, out);
    case NODE_ATTRIBUTE:
        if (!eval(j, scope, node->attribute.object, &operand))
            return false;
        j->position = node->position;
        return value_attribute(j, &operand, node->attribute.name, out);
    case NODE_ITEM: return eval_item(j, scope, node, out);
    case NODE_CALL: return eval_call(j, scope, node, out);
    case NODE_FILTER:
        return eval(j, scope, node->call.callee, &operand) &&
               apply_filter(j, scope, node, &operand, out);
    case NODE_TEST: return eval_test(j, scope, node, out);
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_PLUS: return eval_unary(j, scope, node, out);
    case NODE_AND:
    case NODE_OR:
    case NODE_BINARY: return eval_binary(j, scope, node, out);
    case NODE_CONCAT: return eval_concat(j, scope, node, out);
    case NODE_COMPARE: return eval_compare(j, scope, node, out);
    case NODE_CONDITION: return eval_condition(j, scope, node, out);
    default: return jinja_fail(j, "a slice must stand alone in its brackets");
    }
}

bool eval(struct jinja *j, struct scope *scope, const struct node *node, struct value *out)
{
    if (node->kind == NODE_CONST) {
        *out = node->constant;
        return true;
    }
    if (node->kind == NODE_NAME)
        return eval_name(j, scope, node, out);
    if (!jinja_step(j, 1))
        return false;
    if (++j->depth > JINJA_MAX_DEPTH) {
        j->position = node->position;
        return jinja_fail(j, "maximum recursion depth exceeded");
    }
    bool ok = eval_other(j, scope, node, out);
    j->depth--;
    return ok;
}
