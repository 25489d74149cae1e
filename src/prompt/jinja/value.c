/* Python's values: truth, equality, order, membership, and the lookup of obj.name and obj[key].
 * obj.name looks for a method first and a key second, obj["name"] the other way round, so only the
 * second can reach a dict's member "items". */
#include "prompt/jinja/value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "prompt/jinja/builtin.h"
#include "prompt/unicode/unicode.h"

struct value value_bool(bool boolean)
{
    return (struct value){.type = V_BOOL, .boolean = boolean};
}

struct value value_int(int64_t integer)
{
    return (struct value){.type = V_INT, .integer = integer};
}

struct value value_real(double real)
{
    return (struct value){.type = V_FLOAT, .real = real};
}

struct value value_text(const struct text *text)
{
    return (struct value){.type = V_STRING, .text = text};
}

struct value value_list(struct list *list)
{
    return (struct value){.type = V_LIST, .list = list};
}

struct value value_tuple(struct list *list)
{
    return (struct value){.type = V_TUPLE, .list = list};
}

struct value value_none(void)
{
    return (struct value){.type = V_NONE};
}

bool value_set_text(const struct text *text, struct value *out)
{
    *out = value_text(text);
    return text != NULL;
}

bool value_set_string(struct jinja *j, const char *string, struct value *out)
{
    return value_set_text(text_new(j, string, strlen(string), RENDER_TEMPLATE), out);
}

static bool undefined_new(struct jinja *j, struct undefined made, struct value *out)
{
    struct undefined *u = jinja_alloc(j, sizeof *u);
    if (!u)
        return false;
    *u = made;
    *out = (struct value){.type = V_UNDEFINED, .undefined = u};
    return true;
}

bool value_undefined_name(struct jinja *j, const struct text *name, struct value *out)
{
    return undefined_new(j, (struct undefined){.name = name}, out);
}

bool value_undefined_key(struct jinja *j, const struct value *object, const struct value *key,
                         struct value *out)
{
    return undefined_new(j, (struct undefined){.object = *object, .key = *key}, out);
}

bool value_undefined_hint(struct jinja *j, const char *hint, struct value *out)
{
    return undefined_new(j, (struct undefined){.hint = hint}, out);
}

bool value_undefined_if(struct jinja *j, uint32_t position, struct value *out)
{
    return undefined_new(j, (struct undefined){.inline_if = true, .key = value_int(position)}, out);
}

const char *value_type_name(const struct value *v)
{
    switch (v->type) {
    case V_MISSING:
    case V_UNDEFINED: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT:
    case V_BIGINT: return "int";
    case V_FLOAT: return "float";
    case V_STRING: return v->text->markup ? "Markup" : "str";
    case V_LIST: return "list";
    case V_TUPLE: return "tuple";
    case V_DICT: return "dict";
    case V_VIEW: return v->view->type_name;
    case V_RANGE: return "range";
    case V_ITERATOR: return v->iterator->type_name;
    case V_NAMESPACE: return "Namespace";
    case V_LOOP: return "LoopContext";
    case V_MACRO: return "Macro";
    case V_FUNCTION: return "function";
    case V_METHOD: return "builtin_function_or_method";
    case V_CYCLER: return "Cycler";
    case V_JOINER: return "Joiner";
    }
    return "object";
}

bool value_true(const struct value *v)
{
    switch (v->type) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return v->boolean;
    case V_INT: return v->integer != 0;
    case V_FLOAT: return v->real != 0;
    case V_STRING: return v->text->len != 0;
    case V_LIST:
    case V_TUPLE: return v->list->len != 0;
    case V_DICT: return v->dict->len != 0;
    case V_VIEW: return v->view->items->len != 0;
    case V_RANGE: return v->range->items->len != 0;
    default: return true;
    }
}

bool value_is_number(const struct value *v)
{
    return v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL || v->type == V_BIGINT;
}

double value_to_real(const struct value *v)
{
    switch (v->type) {
    case V_FLOAT: return v->real;
    case V_BOOL: return v->boolean;
    case V_BIGINT: return strtod(v->text->data, NULL);
    default: return (double)v->integer;
    }
}

bool value_to_index(struct jinja *j, const struct value *v, int64_t *out)
{
    if (v->type == V_UNDEFINED)
        return jinja_fail_undefined(j, v);
    if (v->type != V_INT && v->type != V_BOOL)
        return jinja_fail(j, "'%s' object cannot be interpreted as an integer", value_type_name(v));
    *out = v->type == V_INT ? v->integer : v->boolean;
    return true;
}

static bool number_equal(const struct value *a, const struct value *b)
{
    if (a->type == V_BIGINT && b->type == V_BIGINT)
        return text_equal(a->text, b->text);
    if (a->type == V_FLOAT || b->type == V_FLOAT || a->type == V_BIGINT || b->type == V_BIGINT)
        return value_to_real(a) == value_to_real(b);
    int64_t left = a->type == V_INT ? a->integer : a->boolean;
    return left == (b->type == V_INT ? b->integer : b->boolean);
}

static bool list_equal(struct jinja *j, const struct list *a, const struct list *b)
{
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++)
        if (!value_equal(j, &a->items[i], &b->items[i]))
            return false;
    return true;
}

static bool dict_equal(struct jinja *j, const struct dict *a, const struct dict *b)
{
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++) {
        const struct value *other = dict_find(j, b, &a->entries[i].key);
        if (!other || !value_equal(j, &a->entries[i].value, other))
            return false;
    }
    return true;
}

bool value_equal(struct jinja *j, const struct value *a, const struct value *b)
{
    if (value_is_number(a) && value_is_number(b))
        return number_equal(a, b);
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STRING:
        return a->text == b->text ||
               (a->text->len == b->text->len && jinja_step(j, a->text->len / 64) &&
                memcmp(a->text->data, b->text->data, a->text->len) == 0);
    case V_LIST:
    case V_TUPLE:
    case V_DICT: {
        if (a->list == b->list)
            return true;
        if (!jinja_step(j, 1) || ++j->depth > JINJA_MAX_DEPTH)
            return jinja_fail(j, "maximum recursion depth exceeded in comparison");
        bool equal = a->type == V_DICT ? dict_equal(j, a->dict, b->dict)
                                       : list_equal(j, a->list, b->list);
        j->depth--;
        return equal;
    }
    case V_RANGE: return list_equal(j, a->range->items, b->range->items);
    case V_METHOD:
        return a->method->entry == b->method->entry && a->method->self.list == b->method->self.list;
    default: return a->list == b->list; /* the same object */
    }
}

static bool list_order(struct jinja *j, const struct list *a, const struct list *b, const char *op,
                       int *order)
{
    for (size_t i = 0; i < a->len && i < b->len; i++) {
        if (value_equal(j, &a->items[i], &b->items[i]))
            continue;
        if (!jinja_step(j, 1) || ++j->depth > JINJA_MAX_DEPTH)
            return jinja_fail(j, "maximum recursion depth exceeded in comparison");
        bool ok = value_order(j, &a->items[i], &b->items[i], op, order);
        j->depth--;
        return ok;
    }
    *order = a->len < b->len ? -1 : a->len > b->len;
    return !j->failed;
}

bool value_order(struct jinja *j, const struct value *a, const struct value *b, const char *op,
                 int *order)
{
    if (a->type == V_UNDEFINED || b->type == V_UNDEFINED)
        return jinja_fail_undefined(j, a->type == V_UNDEFINED ? a : b);
    if (value_is_number(a) && value_is_number(b)) {
        if (number_equal(a, b)) {
            *order = 0;
        } else if (a->type == V_INT && b->type == V_INT) {
            *order = a->integer < b->integer ? -1 : 1;
        } else {
            double x = value_to_real(a), y = value_to_real(b);
            *order = x < y ? -1 : 1;
        }
        return true;
    }
    if (a->type == V_STRING && b->type == V_STRING) {
        *order = text_order(a->text, b->text);
        return jinja_step(j, (a->text->len < b->text->len ? a->text->len : b->text->len) / 64);
    }
    if (a->type == b->type && (a->type == V_LIST || a->type == V_TUPLE))
        return list_order(j, a->list, b->list, op, order);
    return jinja_fail(j, "'%s' not supported between instances of '%s' and '%s'", op,
                      value_type_name(a), value_type_name(b));
}

static bool string_contains(struct jinja *j, const struct text *container, const struct value *item,
                            bool *found)
{
    if (item->type != V_STRING)
        return jinja_fail(j, "'in <string>' requires string as left operand, not %s",
                          value_type_name(item));
    *found = text_find(container, item->text, 0) != SIZE_MAX;
    return jinja_step(j, container->len / 64);
}

bool value_contains(struct jinja *j, const struct value *container, const struct value *item,
                    bool *found)
{
    *found = false;
    if (container->type == V_STRING)
        return string_contains(j, container->text, item, found);
    if (container->type == V_DICT) {
        if (!value_is_hashable(j, item))
            return jinja_fail(j, "unhashable type: '%s'", value_type_name(item));
        *found = dict_find(j, container->dict, item) != NULL;
        return !j->failed;
    }
    if (!value_is_iterable(container))
        return jinja_fail(j, "argument of type '%s' is not iterable", value_type_name(container));
    struct list *items;
    if (!value_items(j, container, &items))
        return false;
    for (size_t i = 0; i < items->len && !*found; i++) {
        *found = value_equal(j, &items->items[i], item);
        if (!jinja_step(j, 1))
            return false;
    }
    return !j->failed;
}

bool value_length(struct jinja *j, const struct value *v, size_t *len)
{
    switch (v->type) {
    case V_UNDEFINED: *len = 0; return true;
    case V_STRING: *len = text_chars(v->text); return true;
    case V_LIST:
    case V_TUPLE: *len = v->list->len; return true;
    case V_DICT: *len = v->dict->len; return true;
    case V_VIEW: *len = v->view->items->len; return true;
    case V_RANGE: *len = v->range->items->len; return true;
    case V_LOOP: {
        struct value count;
        const struct text name = {.data = "length", .len = 6};
        if (!loop_attribute(j, v->loop, &name, &count))
            return false;
        *len = (size_t)count.integer;
        return true;
    }
    default: return jinja_fail(j, "object of type '%s' has no len()", value_type_name(v));
    }
}

bool value_is_iterable(const struct value *v)
{
    switch (v->type) {
    case V_UNDEFINED:
    case V_STRING:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_VIEW:
    case V_RANGE:
    case V_ITERATOR: return true;
    default: return false;
    }
}

static struct list *string_chars(struct jinja *j, const struct text *t)
{
    struct list *list = list_new(j, text_chars(t));
    uint32_t code;
    for (size_t at = 0, width; list && at < t->len; at += width) {
        width = unicode_next(t->data + at, t->len - at, &code);
        struct value item = value_text(
            text_with_markup(j, text_slice(j, t, at, at + width), false));
        if (!item.text || !list_add(j, list, &item))
            return NULL;
    }
    return list;
}

bool value_items(struct jinja *j, const struct value *v, struct list **items)
{
    switch (v->type) {
    case V_LIST:
    case V_TUPLE: *items = v->list; return true;
    case V_VIEW: *items = v->view->items; return true;
    case V_RANGE: *items = v->range->items; return true;
    case V_UNDEFINED: *items = list_new(j, 0); return *items != NULL;
    case V_STRING: *items = string_chars(j, v->text); return *items != NULL;
    case V_DICT: {
        *items = list_new(j, v->dict->len);
        for (size_t i = 0; *items && i < v->dict->len; i++)
            (*items)->items[(*items)->len++] = v->dict->entries[i].key;
        return *items != NULL;
    }
    case V_ITERATOR: {
        if (!iterator_force(j, v->iterator) || !(*items = list_new(j, 0)))
            return false;
        struct iterator *it = v->iterator;
        if (it->at < it->items->len)
            **items = (struct list){.items = it->items->items + it->at,
                                    .len = it->items->len - it->at};
        it->at = it->items->len;
        return true;
    }
    default: return jinja_fail(j, "'%s' object is not iterable", value_type_name(v));
    }
}

static bool undefined_unsafe(struct jinja *j, const struct value *object, const struct text *name,
                             struct value *out)
{
    struct builder b = {0};
    builder_adds(j, &b, "access to attribute '");
    builder_add_text(j, &b, name);
    builder_adds(j, &b, "' of '");
    builder_adds(j, &b, value_type_name(object));
    builder_adds(j, &b, "' object is unsafe.");
    builder_add(j, &b, "", 1, RENDER_TEMPLATE);
    const struct text *hint = builder_text(j, &b);
    return hint && value_undefined_hint(j, hint->data, out);
}

/* What Python's getattr() finds: methods and properties. V_MISSING: not found. */
static bool own_attribute(struct jinja *j, const struct value *object, const struct text *name,
                          struct value *out)
{
    *out = (struct value){.type = V_MISSING};
    if (object->type == V_LOOP)
        return loop_attribute(j, object->loop, name, out);
    if (object->type == V_MACRO)
        return macro_attribute(j, object->macro, name, out);
    if (object->type == V_NAMESPACE) {
        const struct value *found = dict_find_text(object->dict, name->data, name->len);
        if (found)
            *out = *found;
        return true;
    }
    if (object->type == V_TUPLE && object->list->is_group && text_is(name, "grouper"))
        *out = object->list->items[0];
    else if (object->type == V_TUPLE && object->list->is_group && text_is(name, "list"))
        *out = object->list->items[1];
    else if (object->type == V_CYCLER && text_is(name, "current"))
        *out = object->cycler->items->items[object->cycler->at];
    if (out->type != V_MISSING)
        return true;
    if (name->len > 4 && memcmp(name->data, "__", 2) == 0 &&
        memcmp(name->data + name->len - 2, "__", 2) == 0)
        return undefined_unsafe(j, object, name, out);
    const struct method_entry *entry = method_find(object->type, name);
    if (!entry)
        return true;
    if (!entry->run)
        return undefined_unsafe(j, object, name, out);
    struct method *method = jinja_alloc(j, sizeof *method);
    if (!method)
        return false;
    *method = (struct method){.entry = entry, .self = *object};
    *out = (struct value){.type = V_METHOD, .method = method};
    return true;
}

bool value_attribute(struct jinja *j, const struct value *object, const struct text *name,
                     struct value *out)
{
    if (object->type == V_UNDEFINED)
        return jinja_fail_undefined(j, object);
    if (!own_attribute(j, object, name, out))
        return false;
    if (out->type != V_MISSING)
        return true;
    if (object->type == V_DICT) {
        const struct value *found = dict_find_text(object->dict, name->data, name->len);
        if (found) {
            *out = *found;
            return true;
        }
    }
    struct value key = value_text(name);
    return value_undefined_key(j, object, &key, out);
}

static const struct list *indexable(const struct value *v)
{
    if (v->type == V_LIST || v->type == V_TUPLE)
        return v->list;
    return v->type == V_RANGE ? v->range->items : NULL;
}

bool value_item(struct jinja *j, const struct value *object, const struct value *key,
                struct value *out)
{
    if (object->type == V_UNDEFINED)
        return jinja_fail_undefined(j, object);
    *out = (struct value){.type = V_MISSING};
    if (object->type == V_DICT && value_is_hashable(j, key)) {
        const struct value *found = dict_find(j, object->dict, key);
        if (found)
            *out = *found;
    } else if (key->type == V_INT || key->type == V_BOOL) {
        int64_t index = key->type == V_INT ? key->integer : key->boolean;
        const struct list *list = indexable(object);
        int64_t len = list                       ? (int64_t)list->len
                      : object->type == V_STRING ? (int64_t)text_chars(object->text)
                                                 : 0;
        index = index < 0 ? index + len : index;
        if (index >= 0 && index < len && list) {
            *out = list->items[index];
        } else if (index >= 0 && index < len) {
            const struct text *t = object->text;
            size_t from = text_offset(t, (size_t)index);
            uint32_t code;
            size_t width = unicode_next(t->data + from, t->len - from, &code);
            if (!jinja_step(j, from / 64))
                return false;
            return value_set_text(text_slice(j, t, from, from + width), out);
        }
    }
    if (out->type == V_MISSING && key->type == V_STRING &&
        !own_attribute(j, object, key->text, out))
        return false;
    return out->type != V_MISSING || value_undefined_key(j, object, key, out);
}

bool value_path(struct jinja *j, const struct value *object, const struct value *path,
                struct value *out)
{
    *out = *object;
    if (path->type == V_NONE || path->type == V_MISSING)
        return true;
    if (path->type != V_STRING)
        return value_item(j, object, path, out);
    const struct text *t = path->text;
    for (size_t from = 0, to; from <= t->len; from = to + 1) {
        const char *dot = from < t->len ? memchr(t->data + from, '.', t->len - from) : NULL;
        to = dot ? (size_t)(dot - t->data) : t->len;
        struct value key = value_text(text_slice(j, t, from, to)), whole = *out;
        if (!key.text)
            return false;
        bool digits = to > from && to - from <= 18;
        for (size_t i = from; i < to; i++)
            digits = digits && t->data[i] >= '0' && t->data[i] <= '9';
        if (digits)
            key = value_int(strtoll(t->data + from, NULL, 10));
        if (!value_item(j, &whole, &key, out))
            return false;
    }
    return true;
}

struct list *list_new(struct jinja *j, size_t capacity)
{
    struct list *list = jinja_alloc(j, sizeof *list);
    if (!list || capacity == 0)
        return list;
    list->items = jinja_alloc_array(j, capacity, sizeof *list->items);
    list->capacity = capacity;
    return list->items ? list : NULL;
}

bool list_add(struct jinja *j, struct list *list, const struct value *item)
{
    if (list->len == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        struct value *items = jinja_alloc_array(j, capacity, sizeof *items);
        if (!items)
            return false;
        if (list->len)
            memcpy(items, list->items, list->len * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->len++] = *item;
    return true;
}

struct value list_pair(struct jinja *j, const struct value *a, const struct value *b)
{
    struct list *list = list_new(j, 2);
    if (!list)
        return (struct value){.type = V_MISSING};
    list->items[0] = *a;
    list->items[1] = *b;
    list->len = 2;
    return value_tuple(list);
}
