/* Methods of dict, list, tuple, loop and cycler, and the lookup of all methods. Methods that would
 * change their object have no function: transformers' sandbox forbids them, so a template that uses
 * them must fail here, too. */
#include "prompt/jinja/builtin.h"

#include <string.h>

#define METHOD(name)                                                                               \
    static bool name(struct jinja *j, const struct value *self, const struct value *args,          \
                     const struct call *call, struct value *out)
#define UNUSED (void)j, (void)self, (void)args, (void)call

METHOD(dict_get)
{
    UNUSED;
    if (!value_is_hashable(j, &args[0]))
        return jinja_fail(j, "unhashable type: '%s'", value_type_name(&args[0]));
    const struct value *found = dict_find(j, self->dict, &args[0]);
    *out = found ? *found : args[1].type == V_MISSING ? value_none() : args[1];
    return !j->failed;
}

METHOD(dict_items)
{
    UNUSED;
    return dict_view(j, self->dict, "dict_items", out);
}

METHOD(dict_keys)
{
    UNUSED;
    return dict_view(j, self->dict, "dict_keys", out);
}

METHOD(dict_values)
{
    UNUSED;
    return dict_view(j, self->dict, "dict_values", out);
}

METHOD(copy)
{
    UNUSED;
    *out = *self; /* immutable, so it is its own copy */
    return true;
}

METHOD(list_index)
{
    UNUSED;
    int64_t start, stop, len = (int64_t)self->list->len;
    if (!argument_int(j, &args[1], 0, &start) || !argument_int(j, &args[2], len, &stop))
        return false;
    start = start < 0 ? (start + len < 0 ? 0 : start + len) : start;
    stop = stop < 0 ? stop + len : stop > len ? len : stop;
    for (int64_t i = start; i < stop; i++) {
        if (value_equal(j, &self->list->items[i], &args[0])) {
            *out = value_int(i);
            return true;
        }
        if (!jinja_step(j, 1))
            return false;
    }
    return jinja_fail(j, self->type == V_LIST ? "the value is not in list"
                                              : "tuple.index(x): x not in tuple");
}

METHOD(list_count)
{
    UNUSED;
    int64_t count = 0;
    for (size_t i = 0; i < self->list->len && jinja_step(j, 1); i++)
        count += value_equal(j, &self->list->items[i], &args[0]);
    *out = value_int(count);
    return !j->failed;
}

METHOD(cycler_next)
{
    UNUSED;
    struct cycler *cycler = self->cycler;
    *out = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->len;
    return true;
}

METHOD(cycler_reset)
{
    UNUSED;
    self->cycler->at = 0;
    *out = value_none();
    return true;
}

#define NO_PARAMS                                                                                  \
    {                                                                                              \
        {0}, 0, false                                                                              \
    }
#define FORBIDDEN(type, name)                                                                      \
    {                                                                                              \
        name, type, NULL, NO_PARAMS                                                                \
    }

const struct method_entry container_methods[] = {
    {"get", V_DICT, dict_get, {{"key", "default"}, 1, false}},
    {"items", V_DICT, dict_items, NO_PARAMS},
    {"keys", V_DICT, dict_keys, NO_PARAMS},
    {"values", V_DICT, dict_values, NO_PARAMS},
    {"copy", V_DICT, copy, NO_PARAMS},
    FORBIDDEN(V_DICT, "clear"),
    FORBIDDEN(V_DICT, "pop"),
    FORBIDDEN(V_DICT, "popitem"),
    FORBIDDEN(V_DICT, "setdefault"),
    FORBIDDEN(V_DICT, "update"),
    {"index", V_LIST, list_index, {{"value", "start", "stop"}, 1, false}},
    {"count", V_LIST, list_count, {{"value"}, 1, false}},
    {"copy", V_LIST, copy, NO_PARAMS},
    FORBIDDEN(V_LIST, "append"),
    FORBIDDEN(V_LIST, "clear"),
    FORBIDDEN(V_LIST, "extend"),
    FORBIDDEN(V_LIST, "insert"),
    FORBIDDEN(V_LIST, "pop"),
    FORBIDDEN(V_LIST, "remove"),
    FORBIDDEN(V_LIST, "reverse"),
    FORBIDDEN(V_LIST, "sort"),
    {"index", V_TUPLE, list_index, {{"value", "start", "stop"}, 1, false}},
    {"count", V_TUPLE, list_count, {{"value"}, 1, false}},
    {"cycle", V_LOOP, loop_cycle, {{0}, 0, true}},
    {"changed", V_LOOP, loop_changed, {{0}, 0, true}},
    {"next", V_CYCLER, cycler_next, NO_PARAMS},
    {"reset", V_CYCLER, cycler_reset, NO_PARAMS},
};
const size_t n_container_methods = sizeof container_methods / sizeof container_methods[0];

const struct method_entry *method_find(enum value_type type, const struct text *name)
{
    bool is_string = type == V_STRING;
    const struct method_entry *table = is_string ? string_methods : container_methods;
    size_t n = is_string ? n_string_methods : n_container_methods;
    for (size_t i = 0; i < n && name->len; i++)
        if (table[i].type == type && table[i].name[0] == name->data[0] &&
            text_is(name, table[i].name))
            return &table[i];
    return NULL;
}
