/* Arrays: the first items each have their own schema, the rest share one; minItems and maxItems
 * bound their number. */
#include "prompt/schema/json_schema_internal.h"

enum {
    PREFIX_MAX = 1024,
    INLINE_PARTS = 16, /* nested items without a rule */
    CONTAINS_MAX = 64,
    UNIQUE_MAX = 128,     /* most values of items that must all differ, */
    UNIQUE_ANY_ORDER = 6, /* ... and of those in any order */
    UNIQUE_ITEMS = 1024,  /* most items that are remembered */
    UNIQUE_DIGITS = 15,   /* of fractions; all doubles keep so many */
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
        const char *others = old_form ? "additionalItems" : "items";
        if (!json_get(item->node, others))
            others = "unevaluatedItems";
        schema_set_add(out, schema_child(w, item, others));
    }
    return !w->failed;
}

/* `comma` before every item except the first. */
static grammar_expr with_comma(struct schema_walker *w, grammar_expr item)
{
    return grammar_pair(w->b, w->text.comma, item);
}

/* ---- uniqueItems --------------------------------------------------------------------------- */

static bool item_is_unique(const struct schema_item *item)
{
    const struct json *unique = json_get(item->node, "uniqueItems");
    return json_is(unique, JSON_BOOL) && unique->boolean;
}

/* Adds a value unless an equal one already exists. */
static bool unique_add(struct schema_walker *w, const struct json **values, size_t *n,
                       const struct json *value)
{
    for (size_t i = 0; i < *n; i++)
        if (json_values_equal(values[i], value))
            return true;
    if (*n == UNIQUE_MAX || !value || !schema_step(w, 1 + *n))
        return false;
    values[(*n)++] = value;
    return true;
}

/* All possible values of an item, each once, if they are few. */
static bool unique_values(struct schema_walker *w, const struct schema_facets *f,
                          const struct json ***out, size_t *n)
{
    struct schema_set set;
    struct schema_alternatives alternatives;
    *n = 0;
    *out = arena_alloc_array(&w->arena, UNIQUE_MAX, sizeof **out);
    if (!*out || prefix_length(f->set) || !schema_item_set(w, f->set, 0, &set) || !set.n ||
        !schema_expand(w, &set, &alternatives))
        return false;
    for (size_t i = 0; i < alternatives.n; i++) {
        struct schema_facets item;
        if (!alternatives.sets[i].n || !schema_facets(w, &alternatives.sets[i], &item))
            return false;
        for (size_t k = 0; k < item.n_values; k++)
            if (schema_fits(w, item.values[k], &item) && !unique_add(w, *out, n, item.values[k]))
                return false;
        if (item.has_values)
            continue;
        if (item.types & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN))
            return false;
        if (item.types & TYPE_NULL && !unique_add(w, *out, n, json_new(&w->arena, JSON_NULL)))
            return false;
        for (int b = 0; b < 2 && item.types & TYPE_BOOLEAN; b++)
            if (!unique_add(w, *out, n, json_new_bool(&w->arena, b)))
                return false;
    }
    return !w->failed;
}

/* The items that are not in `taken`, in any order, after `count` others. One rule for each set of
 * values. */
static grammar_expr unique_any_order(struct schema_walker *w, const struct schema_facets *f,
                                     const grammar_expr *texts, size_t n, unsigned taken,
                                     grammar_expr *rules)
{
    if (rules[taken] != GRAMMAR_NONE)
        return rules[taken];
    grammar_expr rule = rules[taken] = grammar_rule(w->b), parts[UNIQUE_ANY_ORDER + 1];
    uint32_t count = 0;
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i++)
        count += taken >> i & 1;
    if (count >= f->min_items && count > 0)
        parts[n_parts++] = grammar_empty(w->b);
    for (size_t i = 0; i < n && count < f->max_items; i++) {
        if (taken >> i & 1)
            continue;
        grammar_expr item = count ? grammar_pair(w->b, w->text.comma, texts[i]) : texts[i];
        parts[n_parts++] = grammar_pair(w->b, item,
                                        unique_any_order(w, f, texts, n, taken | 1u << i, rules));
    }
    grammar_define(w->b, rule,
                   n_parts ? grammar_choice(w->b, parts, n_parts) : grammar_never(w->b));
    return rule;
}

/* At least one item, in the schema's order. Built from the last to the first, for each number of
 * items before it (counted as far as minItems and maxItems need). */
static grammar_expr unique_in_order(struct schema_walker *w, const struct schema_facets *f,
                                    const grammar_expr *texts, size_t n)
{
    bool has_max = f->max_items < n;
    uint32_t cap = has_max ? f->max_items : f->min_items > 1 ? f->min_items : 1;
    grammar_expr rows[2][UNIQUE_MAX + 2];
    if (cap > n)
        return grammar_never(w->b);
    for (uint32_t c = 0; c <= cap; c++)
        rows[n % 2][c] = c && c >= f->min_items ? grammar_empty(w->b) : grammar_never(w->b);
    for (size_t i = n; i-- > 0 && schema_step(w, cap);) {
        const grammar_expr *next = rows[(i + 1) % 2];
        for (uint32_t c = 0; c <= cap; c++) {
            grammar_expr with = grammar_never(w->b);
            uint32_t more = c < cap ? c + 1 : c;
            if (c < cap || !has_max)
                with = grammar_sequence(
                    w->b,
                    (grammar_expr[]){c ? w->text.comma : grammar_empty(w->b), texts[i], next[more]},
                    3);
            grammar_expr rule = rows[i % 2][c] = grammar_rule(w->b);
            grammar_define(w->b, rule, grammar_either(w->b, with, next[c]));
        }
    }
    return rows[0][0];
}

static grammar_expr unique_remember(struct schema_walker *w, const struct schema_facets *f);

/* Distinct items with few possible values; in any order if they are very few. */
static grammar_expr unique_write(struct schema_walker *w, const struct schema_facets *f)
{
    const struct json **values;
    size_t n;
    grammar_expr texts[UNIQUE_MAX], rules[1 << UNIQUE_ANY_ORDER] = {GRAMMAR_NONE};
    if (!unique_values(w, f, &values, &n))
        return unique_remember(w, f);
    for (size_t i = 0; i < n; i++)
        texts[i] = json_text_value(&w->text, values[i]);
    grammar_expr items = n <= UNIQUE_ANY_ORDER ? unique_any_order(w, f, texts, n, 0, rules)
                                               : unique_in_order(w, f, texts, n);
    grammar_expr parts[2] = {json_text_brackets(&w->text, '[', ']', items)};
    if (f->min_items == 0)
        parts[1] = json_text_empty(&w->text, '[', ']');
    return grammar_choice(w->b, parts, f->min_items == 0 ? 2 : 1);
}

/* Any number of items of one type: the matcher remembers them. */
static bool unique_item(struct schema_walker *w, const struct schema_facets *f,
                        struct schema_facets *item)
{
    struct schema_set set;
    struct schema_alternatives alternatives;
    if (w->failed || prefix_length(f->set) || f->min_items > UNIQUE_ITEMS ||
        !schema_item_set(w, f->set, 0, &set) || !set.n || !schema_expand(w, &set, &alternatives) ||
        alternatives.n != 1 || !alternatives.sets[0].n)
        return false;
    if (!schema_facets(w, &alternatives.sets[0], item) || item->has_values)
        return false;
    bool is_bound = item->low.is_set || item->high.is_set || item->multiple;
    switch (item->types) {
    case TYPE_STRING:
        if (item->rules)
            return f->min_items <= 1; /* the number of values is unknown */
        return item->max_length > 0 || f->min_items <= 1;
    case TYPE_INTEGER: return !item->unheld && schema_integers_suffice(item, f->min_items);
    case TYPE_NUMBER: return !item->unheld && !is_bound;
    default: return false;
    }
}

/* A number without an exponent and without trailing zeros. Fractions have no more digits than
 * doubles keep: a reader that takes them as doubles must not find two of them equal. */
static grammar_expr unique_number(struct schema_walker *w)
{
    struct grammar_builder *b = w->b;
    grammar_expr nonzero = grammar_digits(b, '1', '9', 1, 1), fractions[UNIQUE_DIGITS];
    for (uint32_t n = 0; n < UNIQUE_DIGITS; n++) { /* digits before the point; none: a zero */
        grammar_expr whole = n ? grammar_pair(b, nonzero, grammar_digits(b, '0', '9', n - 1, n - 1))
                               : grammar_text(b, "0");
        fractions[n] = grammar_sequence(
            b,
            (grammar_expr[]){whole, grammar_text(b, "."),
                             grammar_digits(b, '0', '9', 0, UNIQUE_DIGITS - n - 1), nonzero},
            4);
    }
    return grammar_either(b, w->text.integer,
                          grammar_pair(b, grammar_optional(b, grammar_text(b, "-")),
                                       grammar_choice(b, fractions, UNIQUE_DIGITS)));
}

/* Each value has one text, so items differ if their texts do. */
static grammar_expr unique_text(struct schema_walker *w, const struct schema_facets *item)
{
    if (!w->single) {
        w->single = arena_alloc(&w->arena, sizeof *w->single);
        if (!w->single)
            return schema_step(w, 1), GRAMMAR_NONE;
        json_text_init(w->single, w->b, &w->arena, JSON_CANONICAL);
    }
    struct json_text text = w->text;
    w->text = *w->single;
    grammar_expr e = item->types == TYPE_STRING    ? schema_string(w, item)
                     : item->types == TYPE_INTEGER ? schema_number(w, item)
                                                   : unique_number(w);
    w->text = text;
    return e;
}

static grammar_expr unique_remember(struct schema_walker *w, const struct schema_facets *f)
{
    struct schema_facets item;
    if (!unique_item(w, f, &item))
        return GRAMMAR_NONE;
    uint32_t max = f->max_items < UNIQUE_ITEMS ? f->max_items : UNIQUE_ITEMS;
    grammar_expr one = grammar_distinct(w->b, DISTINCT_ITEM, unique_text(w, &item));
    grammar_expr more = grammar_distinct(w->b, DISTINCT_MORE, with_comma(w, one));
    grammar_expr all = grammar_pair(
        w->b, one, grammar_repeat(w->b, more, f->min_items > 1 ? f->min_items - 1 : 0, max - 1));
    grammar_expr parts[2] = {
        grammar_distinct(w->b, DISTINCT_LIST, json_text_brackets(&w->text, '[', ']', all))};
    if (f->min_items == 0)
        parts[1] = json_text_empty(&w->text, '[', ']');
    return grammar_choice(w->b, parts, f->min_items == 0 ? 2 : 1);
}

bool schema_array_is_unique(const struct schema_facets *f)
{
    for (size_t i = 0; i < f->set->n; i++)
        if (item_is_unique(f->set->items[i]))
            return true;
    return false;
}

/* ---- contains ------------------------------------------------------------------------------ */

bool schema_array_contains(struct schema_walker *w, const struct schema_facets *f,
                           struct schema_contains *out)
{
    *out = (struct schema_contains){.max = GRAMMAR_NO_MAX};
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        if (!json_get(item->node, "contains"))
            continue;
        const struct json *min = json_get(item->node, "minContains");
        const struct json *max = json_get(item->node, "maxContains");
        uint64_t low = 1, high = GRAMMAR_NO_MAX;
        if ((min && !json_to_uint64(min, &low)) || (max && !json_to_uint64(max, &high)))
            return schema_fail(w, item->place, min ? "minContains" : "maxContains",
                               "must be an integer that is not negative");
        if (low == 0 && high >= GRAMMAR_NO_MAX)
            continue;
        if (out->item || low > CONTAINS_MAX)
            return schema_refuse(w, item->place, NULL,
                                 "'contains' is not supported here: an array may have only one, "
                                 "with a 'minContains' of up to %d",
                                 CONTAINS_MAX);
        out->owner = item;
        out->item = schema_child(w, item, "contains");
        out->min = (uint32_t)low;
        out->max = high < GRAMMAR_NO_MAX ? (uint32_t)high : GRAMMAR_NO_MAX;
    }
    return !w->failed;
}

static bool contains_check(struct schema_walker *w, const struct schema_facets *f)
{
    struct schema_contains c;
    if (f->has_values || w->is_lenient)
        return true;
    if (!schema_array_contains(w, f, &c) || !c.item)
        return !w->failed;
    if (prefix_length(f->set) || (schema_array_is_unique(f) && f->max_items > 1))
        return schema_refuse(w, c.owner->place, NULL,
                             "'contains' is not supported beside 'prefixItems' or 'uniqueItems'");
    if (c.max != GRAMMAR_NO_MAX && !schema_negate(w, c.item) && !w->failed)
        return schema_refuse(w, c.owner->place, NULL, "'maxContains' is not supported here");
    return !w->failed;
}

/* Items after a first one. */
static grammar_expr repeat_more(struct schema_walker *w, grammar_expr item, uint32_t min,
                                uint32_t max)
{
    return grammar_repeat(w->b, with_comma(w, item), min, max);
}

/* Items of which some must match `contains`: these come first, except for a single one, which may
 * be anywhere. */
static grammar_expr contains_write(struct schema_walker *w, const struct schema_facets *f,
                                   const struct schema_contains *c)
{
    struct schema_set items, contained, others;
    if (!schema_item_set(w, f->set, 0, &items))
        return GRAMMAR_NONE;
    contained = schema_set_new(w, items.n + 1);
    others = schema_set_new(w, items.n + 1);
    for (size_t i = 0; i < items.n; i++) {
        schema_set_add(&contained, items.items[i]);
        schema_set_add(&others, items.items[i]);
    }
    schema_set_add(&contained, c->item);
    if (c->max != GRAMMAR_NO_MAX)
        schema_set_add(&others, schema_negated_item(w, c->item));
    if (w->failed)
        return GRAMMAR_NONE;
    grammar_expr yes = schema_value(w, &contained), no = schema_value(w, &others);
    bool is_free = f->max_items == GRAMMAR_NO_MAX && f->min_items <= c->min;
    if (c->min > c->max || c->min > f->max_items)
        return grammar_never(w->b);
    if (c->min == 1 && c->max == GRAMMAR_NO_MAX && is_free)
        return grammar_sequence(
            w->b,
            (grammar_expr[]){
                grammar_repeat(w->b, grammar_pair(w->b, no, w->text.comma), 0, GRAMMAR_NO_MAX), yes,
                repeat_more(w, no, 0, GRAMMAR_NO_MAX)},
            3);
    uint32_t least = f->min_items > c->min ? f->min_items - c->min : 0;
    uint32_t most = f->max_items == GRAMMAR_NO_MAX ? f->max_items : f->max_items - c->min;
    grammar_expr parts[2];
    size_t n = 0;
    if (c->min == 0 && most > 0)
        parts[n++] = grammar_pair(
            w->b, no,
            repeat_more(w, no, least ? least - 1 : 0, most == GRAMMAR_NO_MAX ? most : most - 1));
    uint32_t more = is_free && c->max != GRAMMAR_NO_MAX ? c->max : c->min;
    if (more > 0)
        parts[n++] = grammar_sequence(
            w->b,
            (grammar_expr[]){yes, repeat_more(w, yes, c->min ? c->min - 1 : 0, more - 1),
                             repeat_more(w, no, least, most)},
            3);
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

static grammar_expr contains_array(struct schema_walker *w, const struct schema_facets *f,
                                   const struct schema_contains *c)
{
    grammar_expr parts[2];
    size_t n = 0;
    if (f->min_items == 0 && c->min == 0)
        parts[n++] = json_text_empty(&w->text, '[', ']');
    if (f->max_items > 0)
        parts[n++] = json_text_brackets(&w->text, '[', ']', contains_write(w, f, c));
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

/* ---- items --------------------------------------------------------------------------------- */

bool schema_array_check(struct schema_walker *w, const struct schema_facets *f)
{
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        const struct json *prefix = json_get(item->node, "prefixItems");
        if (prefix && prefix->type != JSON_ARRAY)
            return schema_fail(w, item->place, "prefixItems", "must be an array of schemas");
        const struct json **values;
        size_t n;
        struct schema_facets one;
        if (item_is_unique(item) && f->max_items > 1 && !f->has_values && !w->is_lenient &&
            !unique_values(w, f, &values, &n) && !unique_item(w, f, &one))
            return schema_refuse(
                w, item->place, NULL,
                "'uniqueItems' is not supported here: items must be strings, integers or unbounded "
                "numbers, with enough values for 'minItems', or have up to %d possible values "
                "(enum, const, boolean, null), or 'maxItems' must be 1",
                UNIQUE_MAX);
        prefix = prefix_node(item->node);
        if (prefix && prefix->count > PREFIX_MAX)
            return schema_fail_limit(w, item->place,
                                     "too many schemas in 'prefixItems' or 'items'");
    }
    return contains_check(w, f);
}

/* All items; those after the prefix are `rest`. Written from the end: everything after item i is
 * optional from minItems on. */
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
    grammar_expr tail = rest == GRAMMAR_NONE || max == 0
                            ? grammar_empty(w->b)
                            : grammar_repeat(w->b, with_comma(w, rest), min, max);
    for (size_t i = n_prefix; i-- > 0;) {
        struct schema_set set;
        if (!schema_item_set(w, f->set, i, &set))
            return GRAMMAR_NONE;
        grammar_expr item = schema_value(w, &set);
        tail = grammar_pair(w->b, i ? with_comma(w, item) : item, tail);
        if (i && i >= f->min_items)
            tail = grammar_optional(w->b, tail);
        if (i % INLINE_PARTS == INLINE_PARTS - 1) {
            grammar_expr rule = grammar_rule(w->b);
            grammar_define(w->b, rule, tail);
            tail = rule;
        }
    }
    return tail;
}

grammar_expr schema_array(struct schema_walker *w, const struct schema_facets *f)
{
    size_t n_prefix = prefix_length(f->set);
    struct schema_set set;
    if (f->min_items > f->max_items)
        return grammar_never(w->b);
    struct schema_contains contains = {0};
    if (!w->is_lenient && !schema_array_contains(w, f, &contains))
        return GRAMMAR_NONE;
    if (contains.item)
        return contains_array(w, f, &contains);
    if (f->max_items > 1 && !w->is_lenient && schema_array_is_unique(f))
        return unique_write(w, f);
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
