/* Arrays: items by their place, then all others, in number between minItems and maxItems. */
#include "prompt/schema/json_schema_internal.h"

enum {
    PREFIX_MAX = 1024,
    INLINE_PARTS = 16, /* items that stand inside one another without a rule */
};

/* The array of schemas for the first items: prefixItems, or items in its older form. */
static const struct schema_item *prefix_get(struct schema_walker *w, const struct schema_item *item)
{
    const struct json *prefix = json_get(item->node, "prefixItems");
    if (json_is(prefix, JSON_ARRAY))
        return schema_child(w, item, "prefixItems");
    return json_is(json_get(item->node, "items"), JSON_ARRAY) ? schema_child(w, item, "items")
                                                              : NULL;
}

static const struct json *prefix_node(const struct json *schema)
{
    const struct json *prefix = json_get(schema, "prefixItems");
    if (json_is(prefix, JSON_ARRAY))
        return prefix;
    prefix = json_get(schema, "items");
    return json_is(prefix, JSON_ARRAY) ? prefix : NULL;
}

static size_t prefix_length(const struct schema_set *set)
{
    size_t length = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct json *prefix = prefix_node(set->items[i]->node);
        if (prefix && prefix->count > length)
            length = prefix->count;
    }
    return length;
}

bool schema_item_set(struct schema_walker *w, const struct schema_set *set, size_t index,
                     struct schema_set *out)
{
    *out = schema_set_new(w, set->n);
    for (size_t i = 0; i < set->n && schema_step(w, 1); i++) {
        const struct schema_item *item = set->items[i];
        const struct json *prefix = prefix_node(item->node);
        if (prefix && index < prefix->count) {
            const struct json *node = prefix->first;
            for (size_t j = 0; j < index; j++)
                node = node->next;
            schema_set_add(out, schema_element(w, prefix_get(w, item), node, index));
            continue;
        }
        bool old_form = prefix && !json_get(item->node, "prefixItems");
        schema_set_add(out, schema_child(w, item, old_form ? "additionalItems" : "items"));
    }
    return !w->failed;
}

bool schema_array_check(struct schema_walker *w, const struct schema_facets *f)
{
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        const struct json *prefix = json_get(item->node, "prefixItems");
        if (prefix && prefix->type != JSON_ARRAY)
            return schema_fail(w, item->place, "prefixItems", "must be an array of schemas");
        const struct json *unique = json_get(item->node, "uniqueItems");
        if (json_is(unique, JSON_BOOL) && unique->boolean && f->max_items > 1 && !w->is_lenient)
            return schema_fail(w, item->place, NULL, "'uniqueItems' is not supported");
        prefix = prefix_node(item->node);
        if (prefix && prefix->count > PREFIX_MAX)
            return schema_fail_limit(w, item->place, "too many schemas for single items");
    }
    return true;
}

/* `comma` in front of every item but the first. */
static grammar_expr with_comma(struct schema_walker *w, grammar_expr item)
{
    return grammar_pair(w->b, w->text.comma, item);
}

/* The items from the first on; those behind the prefix are `rest`. Written from the end, where
 * everything behind item i is optional from minItems on. */
static grammar_expr items_write(struct schema_walker *w, const struct schema_facets *f,
                                size_t n_prefix, grammar_expr rest)
{
    uint32_t min = f->min_items > n_prefix ? f->min_items - (uint32_t)n_prefix : 0;
    uint32_t max = f->max_items == GRAMMAR_NO_MAX ? GRAMMAR_NO_MAX
                                                  : f->max_items - (uint32_t)n_prefix;
    if (n_prefix == 0) {
        uint32_t more = max == GRAMMAR_NO_MAX ? max : max - 1;
        return grammar_pair(w->b, rest,
                            grammar_repeat(w->b, with_comma(w, rest), min ? min - 1 : 0, more));
    }
    grammar_expr behind = rest == GRAMMAR_NONE || max == 0
                              ? grammar_empty(w->b)
                              : grammar_repeat(w->b, with_comma(w, rest), min, max);
    for (size_t i = n_prefix; i-- > 0;) {
        struct schema_set set;
        if (!schema_item_set(w, f->set, i, &set))
            return GRAMMAR_NONE;
        grammar_expr item = schema_value(w, &set);
        behind = grammar_pair(w->b, i ? with_comma(w, item) : item, behind);
        if (i && i >= f->min_items)
            behind = grammar_optional(w->b, behind);
        if (i % INLINE_PARTS == INLINE_PARTS - 1) {
            grammar_expr rule = grammar_rule(w->b);
            grammar_define(w->b, rule, behind);
            behind = rule;
        }
    }
    return behind;
}

grammar_expr schema_array(struct schema_walker *w, const struct schema_facets *f)
{
    size_t n_prefix = prefix_length(f->set);
    struct schema_set set;
    if (f->min_items > f->max_items)
        return grammar_never(w->b);
    if (!schema_item_set(w, f->set, n_prefix, &set))
        return GRAMMAR_NONE;
    if (n_prefix == 0 && set.n == 0 && f->min_items == 0 && f->max_items == GRAMMAR_NO_MAX)
        return w->text.array;
    grammar_expr parts[2];
    size_t n = 0;
    if (f->min_items == 0)
        parts[n++] = json_text_empty(&w->text, '[', ']');
    if (f->max_items > 0) {
        grammar_expr rest = schema_value(w, &set);
        if (n_prefix > f->max_items)
            n_prefix = f->max_items;
        parts[n++] = json_text_brackets(&w->text, '[', ']', items_write(w, f, n_prefix, rest));
    }
    return grammar_choice(w->b, parts, n);
}
