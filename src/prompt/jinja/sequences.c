/* Filters on sequences. Generators in Jinja are lazy filters here: see call.c. */
#include "prompt/jinja/builtin.h"

#include <string.h>

#define FILTER(name)                                                                               \
    static bool name(struct jinja *j, const struct value *self, const struct value *args,          \
                     const struct call *call, struct value *out)
#define UNUSED (void)j, (void)self, (void)args, (void)call

FILTER(filter_length)
{
    UNUSED;
    size_t len;
    if (!value_length(j, self, &len))
        return false;
    *out = value_int((int64_t)len);
    return true;
}

FILTER(filter_list)
{
    UNUSED;
    struct list *items, *list;
    if (!value_items(j, self, &items) || !(list = list_new(j, items->len)))
        return false;
    if (items->len)
        memcpy(list->items, items->items, items->len * sizeof *items->items);
    list->len = items->len;
    *out = value_list(list);
    return jinja_step(j, list->len / 8);
}

FILTER(filter_first)
{
    UNUSED;
    struct list *items;
    if (self->type == V_ITERATOR) { /* consumes one item only */
        struct iterator *it = self->iterator;
        if (!iterator_force(j, it))
            return false;
        if (it->at < it->items->len) {
            *out = it->items->items[it->at++];
            return true;
        }
    } else {
        if (!value_items(j, self, &items))
            return false;
        if (items->len) {
            *out = items->items[0];
            return true;
        }
    }
    return value_undefined_hint(j, "No first item, sequence was empty.", out);
}

static bool is_reversible(const struct value *v)
{
    return v->type == V_LIST || v->type == V_TUPLE || v->type == V_STRING || v->type == V_RANGE ||
           v->type == V_DICT || v->type == V_VIEW || v->type == V_UNDEFINED;
}

FILTER(filter_last)
{
    UNUSED;
    struct list *items;
    if (!is_reversible(self))
        return jinja_fail(j, "'%s' object is not reversible", value_type_name(self));
    if (!value_items(j, self, &items))
        return false;
    if (items->len == 0)
        return value_undefined_hint(j, "No last item, sequence was empty.", out);
    *out = items->items[items->len - 1];
    return true;
}

FILTER(filter_reverse)
{
    UNUSED;
    if (self->type == V_STRING) {
        struct value bounds[3] = {{.type = V_MISSING}, {.type = V_MISSING}, value_int(-1)};
        return op_slice(j, self, bounds, out);
    }
    struct list *items, *list;
    struct iterator *it = jinja_alloc(j, sizeof *it);
    if (!it || !value_items(j, self, &items) || !(list = list_new(j, items->len)))
        return false;
    for (size_t i = items->len; i-- > 0;)
        list->items[list->len++] = items->items[i];
    if (self->type == V_ITERATOR) {
        *out = value_list(list);
        return true;
    }
    *it = (struct iterator){.items = list, .type_name = "list_reverseiterator"};
    *out = (struct value){.type = V_ITERATOR, .iterator = it};
    return jinja_step(j, list->len / 8);
}

/* args: d, attribute */
FILTER(filter_join)
{
    UNUSED;
    static const struct text empty = {.data = "", .source = RENDER_TEMPLATE};
    struct list *items;
    const struct text *separator = args[0].type == V_MISSING ? &empty : value_str(j, &args[0]);
    if (!separator || !value_items(j, self, &items))
        return false;
    if (args[1].type != V_MISSING && args[1].type != V_NONE) {
        struct list *parts = list_new(j, items->len);
        for (size_t i = 0; parts && i < items->len; i++)
            if (!value_path(j, &items->items[i], &args[1], &parts->items[parts->len++]))
                return false;
        if (!(items = parts))
            return false;
    }
    separator = text_with_markup(j, separator, false);
    return separator && value_set_text(string_join(j, separator, items), out);
}

FILTER(filter_items)
{
    UNUSED;
    if (self->type == V_UNDEFINED) {
        struct list *none = list_new(j, 0);
        *out = value_list(none);
        return none != NULL;
    }
    if (self->type != V_DICT)
        return jinja_fail(j, "Can only get item pairs from a mapping.");
    return dict_view(j, self->dict, "dict_items", out);
}

static bool list_result(struct jinja *j, struct list **list, struct value *out)
{
    *list = list_new(j, 0);
    *out = value_list(*list);
    return *list != NULL;
}

/* map(attribute=..., default=...), or map('filter', args...) */
FILTER(filter_map)
{
    UNUSED;
    struct list *items, *list;
    struct value attribute = {.type = V_MISSING}, fallback = {.type = V_NONE};
    const struct filter *filter = NULL;
    struct call inner = *call;
    if (!value_true(self))
        return list_result(j, &list, out);
    for (size_t i = 0; i < call->n_keywords && call->n_args == 0; i++) {
        const struct keyword *keyword = &call->keywords[i];
        if (text_is(keyword->name, "attribute"))
            attribute = keyword->value;
        else if (text_is(keyword->name, "default"))
            fallback = keyword->value;
        else
            return jinja_fail(j, "Unexpected keyword argument '%.*s'", (int)keyword->name->len,
                              keyword->name->data);
    }
    if (attribute.type == V_MISSING) {
        if (call->n_args == 0 || call->args[0].type != V_STRING)
            return jinja_fail(j, "map requires a filter argument");
        const struct text *name = call->args[0].text;
        if (!(filter = filter_find(name->data, name->len)))
            return jinja_fail(j, "No filter named '%.*s'.", (int)name->len, name->data);
        inner.args++;
        inner.n_args--;
    }
    if (!value_items(j, self, &items) || !list_result(j, &list, out))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        struct value mapped;
        if (!jinja_step(j, 1) ||
            !(filter ? filter_call(j, filter, &items->items[i], &inner, &mapped)
                     : value_path(j, &items->items[i], &attribute, &mapped)))
            return false;
        if (!filter && mapped.type == V_UNDEFINED && fallback.type != V_NONE)
            mapped = fallback;
        if (!list_add(j, list, &mapped))
            return false;
    }
    return true;
}

/* select, reject, selectattr, rejectattr: [attribute,] [test, args...] */
static bool select_items(struct jinja *j, const struct value *self, const struct call *call,
                         bool by_attribute, bool wanted, struct value *out)
{
    struct list *items, *list;
    const struct test *test = NULL;
    struct call inner = *call;
    if (!value_true(self))
        return list_result(j, &list, out);
    if (by_attribute && call->n_args == 0)
        return jinja_fail(j, "Missing parameter for attribute name");
    size_t skip = by_attribute;
    if (call->n_args > skip) {
        const struct value *name = &call->args[skip++];
        if (name->type != V_STRING || !(test = test_find(name->text->data, name->text->len)))
            return jinja_fail(j, "No test named '%.*s'.",
                              name->type == V_STRING ? (int)name->text->len : 1,
                              name->type == V_STRING ? name->text->data : "?");
    }
    inner.args += skip;
    inner.n_args -= skip;
    if (!value_items(j, self, &items) || !list_result(j, &list, out))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        struct value subject = items->items[i];
        if (!jinja_step(j, 1) ||
            (by_attribute && !value_path(j, &items->items[i], &call->args[0], &subject)))
            return false;
        bool pass = value_true(&subject);
        if (test && !test_call(j, test, &subject, &inner, &pass))
            return false;
        if (pass == wanted && !list_add(j, list, &items->items[i]))
            return false;
    }
    return true;
}

FILTER(filter_select)
{
    UNUSED;
    return select_items(j, self, call, false, true, out);
}

FILTER(filter_reject)
{
    UNUSED;
    return select_items(j, self, call, false, false, out);
}

FILTER(filter_selectattr)
{
    UNUSED;
    return select_items(j, self, call, true, true, out);
}

FILTER(filter_rejectattr)
{
    UNUSED;
    return select_items(j, self, call, true, false, out);
}

/* Lower-cases strings and keeps other values: sorting compares these by default. */
static bool fold_case(struct jinja *j, struct value *v, bool case_sensitive)
{
    if (case_sensitive || v->type != V_STRING)
        return true;
    return value_set_text(string_case(j, v->text, CASE_LOWER), v);
}

/* A merge sort, because comparisons may fail. */
bool items_sort(struct jinja *j, struct sort_item *items, struct sort_item *scratch, size_t n,
                bool reverse)
{
    if (n < 2)
        return true;
    size_t half = n / 2, a = 0, b = half, at = 0;
    if (!items_sort(j, items, scratch, half, reverse) ||
        !items_sort(j, items + half, scratch, n - half, reverse) || !jinja_step(j, n))
        return false;
    while (a < half && b < n) {
        int order;
        const struct value *low = reverse ? &items[a].key : &items[b].key;
        const struct value *high = reverse ? &items[b].key : &items[a].key;
        if (!value_order(j, low, high, "<", &order))
            return false;
        scratch[at++] = order < 0 ? items[b++] : items[a++];
    }
    while (a < half)
        scratch[at++] = items[a++];
    while (b < n)
        scratch[at++] = items[b++];
    memcpy(items, scratch, n * sizeof *items);
    return true;
}

static struct sort_item *sort_items(struct jinja *j, const struct list *list)
{
    struct sort_item *items = jinja_alloc_array(j, list->len * 2, sizeof *items);
    for (size_t i = 0; items && i < list->len; i++)
        items[i].item = items[i].key = list->items[i];
    return items;
}

static bool sorted(struct jinja *j, struct sort_item *items, size_t n, bool reverse,
                   struct value *out)
{
    struct list *list = list_new(j, n);
    if (!list || !items_sort(j, items, items + n, n, reverse))
        return false;
    for (size_t i = 0; i < n; i++)
        list->items[list->len++] = items[i].item;
    *out = value_list(list);
    return true;
}

/* The sort key of an item: a list of its comma-separated attributes, or of the item itself. As in
 * jinja2 it is always a list, because comparing lists skips equal items, so that None can be
 * sorted. */
static bool sort_key(struct jinja *j, const struct value *item, const struct value *attribute,
                     bool case_sensitive, struct value *key)
{
    struct list *parts = list_new(j, 2);
    const struct text *t = attribute->type == V_STRING ? attribute->text : NULL;
    const char *data = t ? t->data : "";
    size_t len = t ? t->len : 0;
    for (size_t from = 0, to; parts && from <= len; from = to + 1) {
        const char *comma = from < len ? memchr(data + from, ',', len - from) : NULL;
        to = comma ? (size_t)(comma - data) : len;
        struct value path = *attribute, part;
        if (t)
            path = value_text(text_slice(j, t, from, to));
        if ((t && !path.text) || !value_path(j, item, &path, &part) ||
            !fold_case(j, &part, case_sensitive) || !list_add(j, parts, &part))
            return false;
    }
    *key = value_list(parts);
    return parts != NULL;
}

/* args: reverse, case_sensitive, attribute */
FILTER(filter_sort)
{
    UNUSED;
    struct list *list;
    struct sort_item *items;
    if (!value_items(j, self, &list) || !(items = sort_items(j, list)))
        return false;
    for (size_t i = 0; i < list->len; i++)
        if (!sort_key(j, &list->items[i], &args[2], value_true(&args[1]), &items[i].key))
            return false;
    return sorted(j, items, list->len, value_true(&args[0]), out);
}

/* args: case_sensitive, by, reverse */
FILTER(filter_dictsort)
{
    UNUSED;
    struct value view;
    const struct text *by = NULL;
    if (self->type != V_DICT)
        return self->type == V_UNDEFINED
                   ? jinja_fail_undefined(j, self)
                   : jinja_fail(j, "'%s' object has no attribute 'items'", value_type_name(self));
    if (!argument_text(j, &args[1], "by", &by) || !dict_view(j, self->dict, "dict_items", &view))
        return false;
    bool by_value = by && text_is(by, "value");
    if (by && !by_value && !text_is(by, "key"))
        return jinja_fail(j, "You can only sort by either \"key\" or \"value\"");
    const struct list *list = view.view->items;
    struct sort_item *items = sort_items(j, list);
    for (size_t i = 0; items && i < list->len; i++) {
        items[i].key = list->items[i].list->items[by_value];
        if (!fold_case(j, &items[i].key, value_true(&args[0])))
            return false;
    }
    return items && sorted(j, items, list->len, value_true(&args[2]), out);
}

/* args: case_sensitive, attribute */
FILTER(filter_unique)
{
    UNUSED;
    struct list *items, *list;
    struct dict *seen = dict_new(j, 0);
    struct value none = value_none();
    if (!seen || !value_items(j, self, &items) || !list_result(j, &list, out))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        struct value key;
        size_t n = seen->len;
        if (!jinja_step(j, 1) || !value_path(j, &items->items[i], &args[1], &key) ||
            !fold_case(j, &key, value_true(&args[0])) || !dict_set(j, seen, &key, &none))
            return false;
        if (seen->len > n && !list_add(j, list, &items->items[i]))
            return false;
    }
    return true;
}

static bool extreme(struct jinja *j, const struct value *self, const struct value *args, int sign,
                    struct value *out)
{
    struct list *items;
    struct value best;
    if (!value_items(j, self, &items))
        return false;
    if (items->len == 0)
        return value_undefined_hint(j, "No aggregated item, sequence was empty.", out);
    for (size_t i = 0; i < items->len; i++) {
        struct value key;
        int order = sign;
        if (!jinja_step(j, 1) || !value_path(j, &items->items[i], &args[1], &key) ||
            !fold_case(j, &key, value_true(&args[0])) ||
            (i && !value_order(j, &key, &best, sign < 0 ? "<" : ">", &order)))
            return false;
        if (order == sign) {
            best = key;
            *out = items->items[i];
        }
    }
    return true;
}

FILTER(filter_min)
{
    UNUSED;
    return extreme(j, self, args, -1, out);
}

FILTER(filter_max)
{
    UNUSED;
    return extreme(j, self, args, 1, out);
}

/* args: attribute, start */
FILTER(filter_sum)
{
    UNUSED;
    struct list *items;
    struct value total = args[1].type == V_MISSING ? value_int(0) : args[1];
    if (total.type == V_STRING)
        return jinja_fail(j, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!value_items(j, self, &items))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        struct value item, sum;
        if (!jinja_step(j, 1) || !value_path(j, &items->items[i], &args[0], &item) ||
            !op_binary(j, OP_ADD, &total, &item, &sum))
            return false;
        total = sum;
    }
    *out = total;
    return true;
}

/* args: linecount, fill_with */
FILTER(filter_batch)
{
    UNUSED;
    struct list *items, *list, *row = NULL;
    int64_t size;
    if (!value_to_index(j, &args[0], &size) || !value_items(j, self, &items) ||
        !list_result(j, &list, out))
        return false;
    if (size > JINJA_MAX_RANGE)
        return jinja_fail(j, "batch: %lld items in a row are too many", (long long)size);
    for (size_t i = 0; i < items->len; i++) {
        if (!row || (int64_t)row->len == size) {
            struct value rows = value_list(row = list_new(j, 0));
            if (!row || !list_add(j, list, &rows))
                return false;
        }
        if (!list_add(j, row, &items->items[i]) || !jinja_step(j, 1))
            return false;
    }
    bool fill = row && args[1].type != V_MISSING && args[1].type != V_NONE;
    while (fill && (int64_t)row->len < size)
        if (!list_add(j, row, &args[1]))
            return false;
    return true;
}

/* args: slices, fill_with */
FILTER(filter_slice)
{
    UNUSED;
    struct list *items, *list;
    int64_t slices;
    if (!value_to_index(j, &args[0], &slices) || !value_items(j, self, &items) ||
        !list_result(j, &list, out))
        return false;
    if (slices <= 0 || slices > JINJA_MAX_RANGE)
        return jinja_fail(j, "slice: the number of slices must be 1 to %d", JINJA_MAX_RANGE);
    size_t each = items->len / (size_t)slices, extra = items->len % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices; i++) {
        struct list *part = list_new(j, each + 2);
        struct value value = value_list(part);
        if (!part || !list_add(j, list, &value) || !jinja_step(j, 1 + each / 8))
            return false;
        for (size_t n = each + (i < extra); n > 0; n--)
            part->items[part->len++] = items->items[at++];
        if (i >= extra && args[1].type != V_MISSING && args[1].type != V_NONE)
            part->items[part->len++] = args[1];
    }
    return true;
}

/* args: attribute, default, case_sensitive */
FILTER(filter_groupby)
{
    UNUSED;
    struct list *items, *list, *group = NULL;
    struct sort_item *sortable;
    if (!value_items(j, self, &items) || !(sortable = sort_items(j, items)) ||
        !list_result(j, &list, out))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        struct value *key = &sortable[i].key;
        if (!value_path(j, &items->items[i], &args[0], key))
            return false;
        if (key->type == V_UNDEFINED && args[1].type != V_MISSING && args[1].type != V_NONE)
            *key = args[1];
        if (!fold_case(j, key, value_true(&args[2])))
            return false;
    }
    if (!items_sort(j, sortable, sortable + items->len, items->len, false))
        return false;
    for (size_t i = 0; i < items->len; i++) {
        if (i == 0 || !value_equal(j, &sortable[i].key, &sortable[i - 1].key)) {
            struct value key, members = value_list(group = list_new(j, 0));
            if (!group || !value_path(j, &sortable[i].item, &args[0], &key))
                return false;
            if (key.type == V_UNDEFINED && args[1].type != V_MISSING)
                key = args[1];
            struct value pair = list_pair(j, &key, &members);
            if (pair.type == V_MISSING || !list_add(j, list, &pair))
                return false;
            pair.list->is_group = true;
        }
        if (!list_add(j, group, &sortable[i].item))
            return false;
    }
    return true;
}

const struct filter sequence_filters[] = {
    {"length", filter_length, {{0}, 0, false}, false},
    {"count", filter_length, {{0}, 0, false}, false},
    {"list", filter_list, {{0}, 0, false}, false},
    {"first", filter_first, {{0}, 0, false}, false},
    {"last", filter_last, {{0}, 0, false}, false},
    {"reverse", filter_reverse, {{0}, 0, false}, false},
    {"join", filter_join, {{"d", "attribute"}, 0, false}, false},
    {"items", filter_items, {{0}, 0, false}, true},
    {"map", filter_map, {{0}, 0, true}, true},
    {"select", filter_select, {{0}, 0, true}, true},
    {"reject", filter_reject, {{0}, 0, true}, true},
    {"selectattr", filter_selectattr, {{0}, 0, true}, true},
    {"rejectattr", filter_rejectattr, {{0}, 0, true}, true},
    {"sort", filter_sort, {{"reverse", "case_sensitive", "attribute"}, 0, false}, false},
    {"dictsort", filter_dictsort, {{"case_sensitive", "by", "reverse"}, 0, false}, false},
    {"unique", filter_unique, {{"case_sensitive", "attribute"}, 0, false}, true},
    {"min", filter_min, {{"case_sensitive", "attribute"}, 0, false}, false},
    {"max", filter_max, {{"case_sensitive", "attribute"}, 0, false}, false},
    {"sum", filter_sum, {{"attribute", "start"}, 0, false}, false},
    {"batch", filter_batch, {{"linecount", "fill_with"}, 1, false}, true},
    {"slice", filter_slice, {{"slices", "fill_with"}, 1, false}, true},
    {"groupby", filter_groupby, {{"attribute", "default", "case_sensitive"}, 1, false}, false},
};
const size_t n_sequence_filters = sizeof sequence_filters / sizeof sequence_filters[0];
