/* Calls: binding arguments to parameters, macros, and global functions. A lazy filter does not run
 * when it is called: its result is an iterator that runs it on first use. */
#include "prompt/jinja/ast.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool signature_bind(struct jinja *j, const char *name, const struct signature *signature,
                    const struct call *call, struct value *args)
{
    size_t n_params = 0;
    while (n_params < BUILTIN_MAX_PARAMS && signature->params[n_params])
        n_params++;
    for (size_t i = 0; i < BUILTIN_MAX_PARAMS; i++)
        args[i] = i < call->n_args && i < n_params ? call->args[i]
                                                   : (struct value){.type = V_MISSING};
    if (signature->variadic)
        return true;
    if (call->n_args > n_params)
        return jinja_fail(j, "%s() takes at most %zu arguments (%zu given)", name, n_params,
                          call->n_args);
    for (size_t k = 0; k < call->n_keywords; k++) {
        const struct keyword *keyword = &call->keywords[k];
        size_t i = 0;
        while (i < n_params && !text_is(keyword->name, signature->params[i]))
            i++;
        if (i == n_params)
            return jinja_fail(j, "%s() got an unexpected keyword argument '%.*s'", name,
                              (int)keyword->name->len, keyword->name->data);
        if (args[i].type != V_MISSING)
            return jinja_fail(j, "%s() got multiple values for argument '%s'", name,
                              signature->params[i]);
        args[i] = keyword->value;
    }
    for (size_t i = 0; i < signature->n_required; i++)
        if (args[i].type == V_MISSING)
            return jinja_fail(j, "%s() missing required argument: '%s'", name,
                              signature->params[i]);
    return true;
}

bool argument_int(struct jinja *j, const struct value *arg, int64_t fallback, int64_t *out)
{
    *out = fallback;
    return arg->type == V_MISSING || arg->type == V_NONE || value_to_index(j, arg, out);
}

bool argument_text(struct jinja *j, const struct value *arg, const char *what,
                   const struct text **out)
{
    if (arg->type == V_MISSING || arg->type == V_NONE)
        return true;
    if (arg->type != V_STRING)
        return jinja_fail(j, "%s must be str, not %s", what, value_type_name(arg));
    *out = arg->text;
    return true;
}

bool filter_call(struct jinja *j, const struct filter *filter, const struct value *self,
                 struct call *call, struct value *out)
{
    struct value args[BUILTIN_MAX_PARAMS];
    if (!signature_bind(j, filter->name, &filter->signature, call, args))
        return false;
    if (!filter->lazy)
        return filter->run(j, self, args, call, out);
    struct iterator *it = jinja_alloc(j, sizeof *it);
    struct value *kept = jinja_alloc_array(j, 1 + BUILTIN_MAX_PARAMS, sizeof *kept);
    struct call *kept_call = jinja_alloc(j, sizeof *kept_call);
    if (!it || !kept || !kept_call)
        return false;
    kept[0] = *self;
    memcpy(kept + 1, args, sizeof args);
    *kept_call = *call;
    *it = (struct iterator){
        .filter = filter, .args = kept, .call = kept_call, .type_name = "generator"};
    *out = (struct value){.type = V_ITERATOR, .iterator = it};
    return true;
}

bool iterator_force(struct jinja *j, struct iterator *it)
{
    if (!it->filter)
        return true;
    const struct filter *filter = it->filter;
    struct value result;
    it->filter = NULL;
    it->items = list_new(j, 0);
    if (++j->depth > JINJA_MAX_DEPTH) /* iterators over iterators over ... */
        return jinja_fail(j, "maximum recursion depth exceeded");
    bool ok = it->items && filter->run(j, &it->args[0], it->args + 1, it->call, &result) &&
              value_items(j, &result, &it->items);
    j->depth--;
    return ok;
}

bool test_call(struct jinja *j, const struct test *test, const struct value *self,
               const struct call *call, bool *result)
{
    if (call->n_args != test->n_args || call->n_keywords)
        return jinja_fail(j, "test '%s' takes %u argument(s), %zu given", test->name, test->n_args,
                          call->n_args + call->n_keywords);
    return test->run(j, self, call->args, result);
}

bool method_call(struct jinja *j, const struct method *method, const struct call *call,
                 struct value *out)
{
    struct value args[BUILTIN_MAX_PARAMS];
    const struct method_entry *entry = method->entry;
    return signature_bind(j, entry->name, &entry->signature, call, args) &&
           entry->run(j, &method->self, args, call, out);
}

/* Macros */

bool macro_new(struct jinja *j, struct scope *scope, const struct signature_node *signature,
               struct value *out)
{
    struct macro *macro = jinja_alloc(j, sizeof *macro);
    if (!macro)
        return false;
    *macro = (struct macro){.signature = signature, .scope = scope};
    *out = (struct value){.type = V_MACRO, .macro = macro};
    return true;
}

bool macro_attribute(struct jinja *j, const struct macro *macro, const struct text *name,
                     struct value *out)
{
    *out = (struct value){.type = V_MISSING};
    if (text_is(name, "name"))
        *out = value_text(macro->signature->name);
    if (!text_is(name, "arguments"))
        return true;
    struct list *list = list_new(j, macro->signature->params.count);
    if (!list)
        return false;
    for (const struct node *p = macro->signature->params.first; p; p = p->next)
        list->items[list->len++] = value_text(p->name.text);
    *out = value_tuple(list);
    return true;
}

/* Binds keyword arguments to unset parameters, `caller` or `kwargs`; others are errors. */
static bool macro_keywords(struct jinja *j, const struct signature_node *s, const struct call *call,
                           struct value *slots, size_t n_given)
{
    struct dict *rest = s->uses_kwargs ? dict_new(j, 0) : NULL;
    if (s->uses_kwargs) {
        if (!rest)
            return false;
        slots[s->kwargs_slot] = (struct value){.type = V_DICT, .dict = rest};
    }
    for (size_t k = 0; k < call->n_keywords; k++) {
        const struct keyword *keyword = &call->keywords[k];
        size_t i = 0;
        const struct node *param = s->params.first;
        for (; param && !text_equal(param->name.text, keyword->name); param = param->next)
            i++;
        if (param && i >= n_given) {
            slots[i] = keyword->value;
        } else if (s->uses_caller && text_is(keyword->name, "caller")) {
            slots[s->caller_slot] = keyword->value;
        } else if (rest) {
            struct value key = value_text(keyword->name);
            if (!dict_set(j, rest, &key, &keyword->value))
                return false;
        } else {
            return jinja_fail(j, "macro '%.*s' takes no keyword argument '%.*s'", (int)s->name->len,
                              s->name->data, (int)keyword->name->len, keyword->name->data);
        }
    }
    if (s->uses_caller && slots[s->caller_slot].type == V_MISSING)
        return value_undefined_hint(j, "No caller defined", &slots[s->caller_slot]);
    return true;
}

static bool macro_positional(struct jinja *j, const struct signature_node *s,
                             const struct call *call, struct value *slots, size_t *n_given)
{
    *n_given = call->n_args < s->params.count ? call->n_args : s->params.count;
    for (size_t i = 0; i < *n_given; i++)
        slots[i] = call->args[i];
    if (!s->uses_varargs) {
        if (call->n_args > s->params.count)
            return jinja_fail(j, "macro '%.*s' takes not more than %zu argument(s)",
                              (int)s->name->len, s->name->data, s->params.count);
        return true;
    }
    struct list *rest = list_new(j, call->n_args - *n_given);
    if (!rest)
        return false;
    for (size_t i = *n_given; i < call->n_args; i++)
        rest->items[rest->len++] = call->args[i];
    slots[s->varargs_slot] = value_tuple(rest);
    return true;
}

static bool macro_defaults(struct jinja *j, const struct signature_node *s, struct scope *scope)
{
    const struct node *value = s->defaults.first, *param = s->params.first;
    size_t first = s->params.count - s->defaults.count;
    for (size_t i = 0; i < s->params.count; i++, param = param->next) {
        const struct node *fallback = i >= first ? value : NULL;
        value = fallback ? fallback->next : value;
        if (scope->slots[i].type != V_MISSING)
            continue;
        if (fallback) {
            if (!eval(j, scope, fallback, &scope->slots[i]))
                return false;
            continue;
        }
        struct builder b = {0};
        builder_adds(j, &b, "parameter '");
        builder_add_text(j, &b, param->name.text);
        builder_adds(j, &b, "' was not provided");
        builder_add(j, &b, "", 1, RENDER_TEMPLATE);
        const struct text *hint = builder_text(j, &b);
        if (!hint || !value_undefined_hint(j, hint->data, &scope->slots[i]))
            return false;
    }
    return true;
}

bool macro_call(struct jinja *j, const struct macro *macro, const struct call *call,
                struct value *out)
{
    const struct signature_node *s = macro->signature;
    struct scope *scope = scope_enter(j, macro->scope, &s->layout);
    size_t n_given;
    if (!scope || !macro_positional(j, s, call, scope->slots, &n_given) ||
        !macro_keywords(j, s, call, scope->slots, n_given) || !macro_defaults(j, s, scope))
        return false;
    struct builder caught = {0}, *outer = j->out;
    j->out = &caught;
    enum flow flow = exec_nodes(j, scope, &s->body);
    j->out = outer;
    return flow != FLOW_FAILED && value_set_text(builder_text(j, &caught), out);
}

bool value_call(struct jinja *j, const struct value *callee, struct call *call, struct value *out)
{
    switch (callee->type) {
    case V_UNDEFINED: return jinja_fail_undefined(j, callee);
    case V_FUNCTION: return callee->function->run(j, call, out);
    case V_METHOD: return method_call(j, callee->method, call, out);
    case V_MACRO: return macro_call(j, callee->macro, call, out);
    case V_LOOP: return loop_call(j, callee->loop, call, out);
    case V_JOINER:
        if (callee->joiner->used)
            *out = value_text(callee->joiner->separator);
        else if (!value_set_string(j, "", out))
            return false;
        callee->joiner->used = true;
        return true;
    default: return jinja_fail(j, "'%s' object is not callable", value_type_name(callee));
    }
}

/* Functions */

static bool call_bind(struct jinja *j, const char *name, const struct call *call,
                      struct signature signature, struct value *args)
{
    return signature_bind(j, name, &signature, call, args);
}

static bool function_range(struct jinja *j, const struct call *call, struct value *out)
{
    int64_t bounds[3] = {0, 0, 1};
    if (call->n_args < 1 || call->n_args > 3 || call->n_keywords)
        return jinja_fail(j, "range expected 1 to 3 arguments, got %zu", call->n_args);
    for (size_t i = 0; i < call->n_args; i++)
        if (!value_to_index(j, &call->args[i], &bounds[call->n_args == 1 ? 1 : i]))
            return false;
    int64_t start = bounds[0], stop = bounds[1], step = bounds[2];
    if (step == 0)
        return jinja_fail(j, "range() arg 3 must not be zero");
    uint64_t span = step > 0 ? (start < stop ? (uint64_t)stop - (uint64_t)start : 0)
                             : (start > stop ? (uint64_t)start - (uint64_t)stop : 0);
    uint64_t size = step > 0 ? (uint64_t)step : -(uint64_t)step;
    uint64_t count = span / size + (span % size != 0);
    if (count > JINJA_MAX_RANGE)
        return jinja_fail(j, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          JINJA_MAX_RANGE);
    struct range *range = jinja_alloc(j, sizeof *range);
    if (!range || !(range->items = list_new(j, count)))
        return false;
    range->start = start;
    range->stop = stop;
    range->step = step;
    for (uint64_t i = 0; i < count; i++)
        range->items->items[range->items->len++] = value_int(
            (int64_t)((uint64_t)start + i * (uint64_t)step));
    *out = (struct value){.type = V_RANGE, .range = range};
    return jinja_step(j, count / 8);
}

/* dict(...) and namespace(...): a mapping or pairs, then keywords. */
static bool make_dict(struct jinja *j, const struct call *call, struct dict **out)
{
    struct dict *dict = *out = dict_new(j, call->n_keywords);
    if (!dict)
        return false;
    if (call->n_args > 1)
        return jinja_fail(j, "dict expected at most 1 argument, got %zu", call->n_args);
    if (call->n_args == 1 && call->args[0].type == V_DICT) {
        const struct dict *from = call->args[0].dict;
        for (size_t i = 0; i < from->len; i++)
            if (!dict_set(j, dict, &from->entries[i].key, &from->entries[i].value))
                return false;
    } else if (call->n_args == 1) {
        struct list *pairs, *pair;
        if (!value_items(j, &call->args[0], &pairs))
            return false;
        for (size_t i = 0; i < pairs->len; i++) {
            if (!value_items(j, &pairs->items[i], &pair))
                return false;
            if (pair->len != 2)
                return jinja_fail(j,
                                  "dictionary update sequence element #%zu has length %zu; 2 is"
                                  " required",
                                  i, pair->len);
            if (!dict_set(j, dict, &pair->items[0], &pair->items[1]))
                return false;
        }
    }
    for (size_t i = 0; i < call->n_keywords; i++) {
        struct value key = value_text(call->keywords[i].name);
        if (!dict_set(j, dict, &key, &call->keywords[i].value))
            return false;
    }
    return true;
}

static bool function_dict(struct jinja *j, const struct call *call, struct value *out)
{
    out->type = V_DICT;
    return make_dict(j, call, &out->dict);
}

static bool function_namespace(struct jinja *j, const struct call *call, struct value *out)
{
    out->type = V_NAMESPACE;
    return make_dict(j, call, &out->dict);
}

static bool function_raise(struct jinja *j, const struct call *call, struct value *out)
{
    struct value args[BUILTIN_MAX_PARAMS];
    *out = value_none();
    if (!call_bind(j, "raise_exception", call, (struct signature){{"message"}, 1, false}, args))
        return false;
    const struct text *message = value_str(j, &args[0]);
    return message && jinja_raise(j, message);
}

static bool function_strftime(struct jinja *j, const struct call *call, struct value *out)
{
    struct value args[BUILTIN_MAX_PARAMS];
    if (!call_bind(j, "strftime_now", call, (struct signature){{"format"}, 1, false}, args))
        return false;
    if (args[0].type != V_STRING)
        return jinja_fail(j, "strftime() argument 1 must be str, not %s",
                          value_type_name(&args[0]));
    struct builder b = {0};
    builder_add_text(j, &b, args[0].text);
    builder_add(j, &b, "", 1, RENDER_TEMPLATE);
    const struct text *format = builder_text(j, &b);
    if (!format)
        return false;
    if (format->len > 1000)
        return jinja_fail(j, "the format of strftime_now is too long");
    time_t now = (time_t)j->now_unix;
    struct tm tm;
    char text[4096];
    size_t len = gmtime_r(&now, &tm) ? strftime(text, sizeof text, format->data, &tm) : 0;
    return value_set_text(text_new(j, text, len, text_source(args[0].text)), out);
}

static bool function_cycler(struct jinja *j, const struct call *call, struct value *out)
{
    if (call->n_args == 0)
        return jinja_fail(j, "at least one item has to be provided");
    struct cycler *cycler = jinja_alloc(j, sizeof *cycler);
    if (!cycler || !(cycler->items = list_new(j, call->n_args)))
        return false;
    for (size_t i = 0; i < call->n_args; i++)
        cycler->items->items[cycler->items->len++] = call->args[i];
    *out = (struct value){.type = V_CYCLER, .cycler = cycler};
    return true;
}

static bool function_joiner(struct jinja *j, const struct call *call, struct value *out)
{
    struct value args[BUILTIN_MAX_PARAMS];
    if (!call_bind(j, "joiner", call, (struct signature){{"sep"}, 0, false}, args))
        return false;
    struct joiner *joiner = jinja_alloc(j, sizeof *joiner);
    if (!joiner)
        return false;
    joiner->separator = args[0].type == V_MISSING ? text_new(j, ", ", 2, RENDER_TEMPLATE)
                                                  : value_str(j, &args[0]);
    *out = (struct value){.type = V_JOINER, .joiner = joiner};
    return joiner->separator != NULL;
}

const struct function *function_find(const char *name, size_t len)
{
    static const struct function functions[] = {
        {"range", function_range},           {"dict", function_dict},
        {"namespace", function_namespace},   {"raise_exception", function_raise},
        {"strftime_now", function_strftime}, {"cycler", function_cycler},
        {"joiner", function_joiner},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strlen(functions[i].name) == len && memcmp(functions[i].name, name, len) == 0)
            return &functions[i];
    return NULL;
}
