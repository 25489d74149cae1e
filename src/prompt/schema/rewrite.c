/* Rewrites conditional and negative keywords as alternatives: each becomes lists of schemas, of
 * which one must hold, and is then treated as anyOf.
 *
 *   {"not": {"type": "string"}}             any of  {"type": ["null", "boolean", ...]}
 *   {"if": A, "then": B, "else": C}         any of  A and B | not A and C
 *   {"dependentRequired": {"a": ["b"]}}     any of  no object | no "a" | "a" and "b"
 *
 * Negation is supported for types, values, bounds, sizes, patterns, and properties and items with
 * such schemas. A negation may allow less than it should, never more: 1.5 is not an integer, but
 * "not an integer" still excludes it. Keywords that cannot be negated are left out if others can:
 * {"required": ["a"], "propertyNames": N} is violated at least where "a" is absent. Rewritten
 * schemas are memoised, so that the same node always gives the same ones. Keywords that begin with
 * "$not" are internal, and mean nothing in a client's schema: see `schema_is_made`. */
#include "prompt/schema/json_schema_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEGATE_DEPTH = 12,
    NEGATE_NODES = 8192, /* JSON values that one negation makes */
    NEGATE_VALUES = 512,
    NEGATE_NUMBERS = 16,
};

struct schema_rewrite {
    const struct json *node;
    const char *keyword;
    const struct json *lists; /* NULL: it cannot be rewritten */
    bool is_partial;          /* some values are lost */
    struct schema_rewrite *next;
};

bool schema_is_made(const struct schema_walker *w, const struct json *node)
{
    return node->position == 0 && node != w->root;
}

/* ---- making schemas ------------------------------------------------------------------------ */

static struct json *make(struct schema_walker *w, enum json_type type)
{
    struct json *node = json_new(&w->arena, type);
    w->n_negating++;
    schema_step(w, 1);
    return node;
}

static struct json *share(struct schema_walker *w, const struct json *node)
{
    struct json *copy = json_share(&w->arena, node);
    w->n_negating++;
    if (copy) {
        copy->next = NULL;
        copy->key = NULL;
        copy->key_len = 0;
    }
    return copy;
}

static void put(struct schema_walker *w, struct json *parent, const char *key, struct json *child)
{
    json_append(&w->arena, parent, key, child);
}

static struct json *make_number(struct schema_walker *w, uint64_t value)
{
    char text[24];
    struct json *node = make(w, JSON_NUMBER);
    if (!node)
        return NULL;
    node->text_len = (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    node->text = arena_copy(&w->arena, text, node->text_len);
    node->number = (double)value;
    return node->text ? node : NULL;
}

static const char *const type_names[] = {"null", "boolean", "number", "string", "array", "object"};

/* A schema of all types but these, which are bits by enum json_type; NULL: there are none. */
static struct json *make_types_without(struct schema_walker *w, unsigned without)
{
    struct json *schema = make(w, JSON_OBJECT), *list = make(w, JSON_ARRAY);
    for (unsigned i = 0; i < 6; i++)
        if (!(without >> i & 1))
            put(w, list, NULL, json_new_string(&w->arena, type_names[i], strlen(type_names[i])));
    put(w, schema, "type", list);
    return list && list->first ? schema : NULL;
}

static struct json *make_type(struct schema_walker *w, const char *type, const char *key,
                              struct json *value)
{
    struct json *schema = make(w, JSON_OBJECT);
    put(w, schema, "type", json_new_string(&w->arena, type, strlen(type)));
    put(w, schema, key, value);
    return schema;
}

static struct json *make_named(struct schema_walker *w, const char *name, size_t len,
                               struct json *value)
{
    struct json *properties = make(w, JSON_OBJECT);
    if (!properties || !value)
        return NULL;
    value->key = name;
    value->key_len = len;
    json_link(properties, value);
    return properties;
}

/* Objects without that property. */
static struct json *make_absent(struct schema_walker *w, const char *name, size_t len)
{
    return make_type(w, "object", "properties",
                     make_named(w, name, len, json_new_bool(&w->arena, false)));
}

/* Objects that have it. */
static struct json *make_required(struct schema_walker *w, const char *name, size_t len)
{
    struct json *list = make(w, JSON_ARRAY);
    put(w, list, NULL, json_new_string(&w->arena, name, len));
    return make_type(w, "object", "required", list);
}

/* ---- what a schema does not allow ---------------------------------------------------------- */

static struct json *negate(struct schema_walker *w, const struct schema_item *item, unsigned depth);

static bool types_negate(struct schema_walker *w, const struct json *type, struct json *out)
{
    unsigned types = 0;
    bool is_number = false;
    const struct json *name = type->type == JSON_ARRAY ? type->first : type;
    for (; name; name = type->type == JSON_ARRAY ? name->next : NULL) {
        unsigned bit = json_equals(name, "integer") ? 1u << JSON_NUMBER : 0;
        for (unsigned i = 0; i < 6; i++)
            bit |= json_equals(name, type_names[i]) ? 1u << i : 0;
        types |= bit;
        is_number |= json_equals(name, "number");
        if (!bit)
            return false;
    }
    w->is_partial |= types >> JSON_NUMBER & 1 && !is_number; /* fractions are no integers */
    put(w, out, NULL, make_types_without(w, types));
    return true;
}

static int number_order(const void *a, const void *b)
{
    struct decimal x, y;
    const struct json *one = *(const struct json *const *)a;
    const struct json *other = *(const struct json *const *)b;
    if (!decimal_parse(one->text, one->text_len, &x) ||
        !decimal_parse(other->text, other->text_len, &y))
        return (one->number > other->number) - (one->number < other->number);
    return decimal_compare(&x, &y);
}

/* Numbers below the least of those in the list, between two of them, and above the greatest; of
 * many, only the first and the last of these. */
static void numbers_negate(struct schema_walker *w, const struct json *first, size_t n,
                           struct json *out)
{
    const struct json **sorted = arena_alloc_array(&w->arena, n, sizeof *sorted);
    size_t n_sorted = 0;
    if (!sorted)
        return;
    for (size_t i = 0; i < n; i++, first = first->next)
        if (first->type == JSON_NUMBER)
            sorted[n_sorted++] = first;
    qsort(sorted, n_sorted, sizeof *sorted, number_order);
    w->is_partial |= n_sorted > NEGATE_NUMBERS;
    for (size_t i = 0; i <= n_sorted; i++) {
        if (i > 0 && i < n_sorted && n_sorted > NEGATE_NUMBERS)
            continue;
        struct json *schema = make(w, JSON_OBJECT);
        put(w, schema, "type", json_new_string(&w->arena, "number", 6));
        if (i > 0)
            put(w, schema, "exclusiveMinimum", share(w, sorted[i - 1]));
        if (i < n_sorted)
            put(w, schema, "exclusiveMaximum", share(w, sorted[i]));
        put(w, out, NULL, schema);
    }
}

/* Values that are none of these: `n` of them, linked from `first`. */
static bool values_negate(struct schema_walker *w, const struct json *first, size_t n,
                          struct json *out)
{
    unsigned types = 0;
    size_t counts[6] = {0};
    const struct json *last[6] = {0};
    struct json *strings = make(w, JSON_ARRAY);
    const struct json *v = first;
    bool are_empty[6] = {true, true, true, true, true, true};
    if (n > NEGATE_VALUES || !strings)
        return false;
    for (size_t i = 0; i < n; i++, v = v->next) {
        types |= 1u << v->type;
        counts[v->type]++;
        are_empty[v->type] &= !v->first;
        if (v->type == JSON_STRING)
            put(w, strings, NULL, share(w, v));
        if (v->type != JSON_BOOL || !last[v->type])
            last[v->type] = v;
        else if (last[JSON_BOOL]->boolean != v->boolean)
            counts[JSON_BOOL] = SIZE_MAX / 2; /* both */
    }
    put(w, out, NULL, make_types_without(w, types));
    if (counts[JSON_BOOL] && counts[JSON_BOOL] < SIZE_MAX / 2) {
        struct json *other = make(w, JSON_OBJECT);
        put(w, other, "const", json_new_bool(&w->arena, !last[JSON_BOOL]->boolean));
        put(w, out, NULL, other);
    }
    if (counts[JSON_NUMBER])
        numbers_negate(w, first, n, out);
    if (counts[JSON_STRING])
        put(w, out, NULL, make_type(w, "string", "$notEnum", strings));
    w->is_partial |= !are_empty[JSON_ARRAY] || !are_empty[JSON_OBJECT];
    if (counts[JSON_ARRAY] && are_empty[JSON_ARRAY])
        put(w, out, NULL, make_type(w, "array", "minItems", make_number(w, 1)));
    if (counts[JSON_OBJECT] && are_empty[JSON_OBJECT])
        put(w, out, NULL, make_type(w, "object", "minProperties", make_number(w, 1)));
    return true;
}

/* The opposite of a bound of `schema`. Draft 4 has a boolean beside "minimum" or "maximum" that
 * makes it exclusive. Sets *found if the keyword is a bound. */
static bool bound_negate(struct schema_walker *w, const struct json *schema,
                         const struct json *member, struct json *out, bool *found)
{
    static const struct {
        const char *keyword, *opposite;
        const char *exclusive,
            *inclusive; /* draft 4: the boolean, and the opposite if it is true */
    } bounds[] = {{"minimum", "exclusiveMaximum", "exclusiveMinimum", "maximum"},
                  {"maximum", "exclusiveMinimum", "exclusiveMaximum", "minimum"},
                  {"exclusiveMinimum", "maximum", NULL, NULL},
                  {"exclusiveMaximum", "minimum", NULL, NULL}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (strcmp(member->key, bounds[i].keyword) != 0)
            continue;
        *found = true;
        if (!bounds[i].exclusive && member->type == JSON_BOOL)
            return true; /* draft 4: part of the bound beside it */
        if (member->type != JSON_NUMBER)
            return false;
        const struct json *exclusive = bounds[i].exclusive ? json_get(schema, bounds[i].exclusive)
                                                           : NULL;
        bool is_exclusive = json_is(exclusive, JSON_BOOL) && exclusive->boolean;
        put(w, out, NULL,
            make_type(w, "number", is_exclusive ? bounds[i].inclusive : bounds[i].opposite,
                      share(w, member)));
        return true;
    }
    return true;
}

/* The opposite of a size. */
static bool size_negate(struct schema_walker *w, const struct json *member, struct json *out,
                        bool *found)
{
    static const struct {
        const char *keyword, *type, *opposite;
        bool is_max;
    } sizes[] = {{"minLength", "string", "maxLength", false},
                 {"maxLength", "string", "minLength", true},
                 {"minItems", "array", "maxItems", false},
                 {"maxItems", "array", "minItems", true},
                 {"minProperties", "object", "maxProperties", false},
                 {"maxProperties", "object", "minProperties", true}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(member->key, sizes[i].keyword) != 0)
            continue;
        uint64_t size;
        *found = true;
        if (!json_to_uint64(member, &size) || size >= UINT32_MAX)
            return false;
        if (sizes[i].is_max || size > 0) /* no size is below 0 */
            put(w, out, NULL,
                make_type(w, sizes[i].type, sizes[i].opposite,
                          make_number(w, sizes[i].is_max ? size + 1 : size - 1)));
        return true;
    }
    return true;
}

static bool properties_negate(struct schema_walker *w, const struct schema_item *properties,
                              struct json *out, unsigned depth)
{
    if (properties->node->type != JSON_OBJECT)
        return false;
    json_each (member, properties->node) {
        const struct schema_item *item = schema_member(w, properties, member);
        struct json *any = item ? negate(w, item, depth - 1) : NULL;
        if (!any)
            return false;
        if (!any->first)
            continue; /* it allows everything, or cannot be negated */
        struct json *schema = make_required(w, member->key, member->key_len);
        struct json *value = make(w, JSON_OBJECT);
        put(w, value, "anyOf", any);
        put(w, schema, "properties", make_named(w, member->key, member->key_len, value));
        put(w, out, NULL, schema);
    }
    return true;
}

/* allOf: one of them does not hold. anyOf: none of them does. */
static bool list_negate(struct schema_walker *w, const struct schema_item *list, bool is_all,
                        struct json *out, unsigned depth)
{
    struct json *all = make(w, JSON_ARRAY);
    size_t index = 0;
    if (list->node->type != JSON_ARRAY || !all)
        return false;
    json_each (node, list->node) {
        const struct schema_item *item = schema_element(w, list, node, index++);
        struct json *any = item ? negate(w, item, depth - 1) : NULL;
        if (!any)
            return false;
        if (!is_all) {
            struct json *schema = make(w, JSON_OBJECT);
            if (any->first)
                put(w, schema, "anyOf", any);
            put(w, all, NULL, any->first ? schema : json_new_bool(&w->arena, false));
            continue;
        }
        for (struct json *one = any->first, *next; one; one = next) {
            next = one->next;
            one->next = NULL;
            put(w, out, NULL, one);
        }
    }
    if (!is_all) {
        struct json *schema = make(w, JSON_OBJECT);
        put(w, schema, "allOf", all);
        put(w, out, NULL, schema);
    }
    return true;
}

/* Whether a keyword restricts the allowed values. */
static bool is_assertion(const char *key)
{
    static const char *const known[] = {"type",
                                        "enum",
                                        "const",
                                        "multipleOf",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "items",
                                        "prefixItems",
                                        "additionalItems",
                                        "unevaluatedItems",
                                        "minItems",
                                        "maxItems",
                                        "uniqueItems",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "properties",
                                        "patternProperties",
                                        "additionalProperties",
                                        "unevaluatedProperties",
                                        "propertyNames",
                                        "required",
                                        "minProperties",
                                        "maxProperties",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "$ref",
                                        "$dynamicRef",
                                        "$recursiveRef",
                                        "extends",
                                        "disallow",
                                        "divisibleBy"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    return strncmp(key, "$not", 4) == 0;
}

/* Whether unevaluatedProperties would count a schema's properties; below `not` it must not. */
static bool evaluates(const struct schema_walker *w, const struct json *schema)
{
    static const char *const keywords[] = {
        "properties",           "patternProperties", "allOf",       "anyOf", "oneOf", "$ref", "if",
        "additionalProperties", "dependentSchemas",  "dependencies"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (w->has_unevaluated && json_get(schema, keywords[i]))
            return true;
    return false;
}

/* The opposite of `items` is an array with an item that the schema does not allow; the opposite of
 * `contains` is an array of such items only. `keyword` is the one that says so. */
static bool items_negate(struct schema_walker *w, const struct schema_item *child,
                         const char *keyword, struct json *out, unsigned depth)
{
    struct json *any = negate(w, child, depth - 1), *schema = make(w, JSON_OBJECT);
    if (!any)
        return false;
    bool is_never = !any->first;
    if (!is_never)
        put(w, schema, "anyOf", any);
    if (!is_never || strcmp(keyword, "items") == 0)
        put(w, out, NULL,
            make_type(w, "array", keyword, is_never ? json_new_bool(&w->arena, false) : schema));
    return true;
}

static bool names_negate(struct schema_walker *w, const struct json *required, struct json *out)
{
    json_each (name, required)
        if (name->type == JSON_STRING)
            put(w, out, NULL, make_absent(w, name->text, name->text_len));
    return required->type == JSON_ARRAY;
}

/* Adds schemas that violate one keyword. False: it cannot be negated, or not completely. */
static bool member_negate(struct schema_walker *w, const struct schema_item *item,
                          const struct json *member, struct json *out, unsigned depth)
{
    const char *key = member->key;
    bool found = false;
    if (!is_assertion(key))
        return true;
    if (!bound_negate(w, item->node, member, out, &found) || !size_negate(w, member, out, &found))
        return false;
    if (found)
        return true;
    if (strcmp(key, "type") == 0)
        return types_negate(w, member, out);
    if (strcmp(key, "const") == 0)
        return values_negate(w, member, 1, out);
    if (strcmp(key, "enum") == 0)
        return member->type == JSON_ARRAY && values_negate(w, member->first, member->count, out);
    if (strcmp(key, "required") == 0)
        return names_negate(w, member, out);
    const struct schema_item *child = schema_member(w, item, member);
    if (!child)
        return false;
    if (strcmp(key, "properties") == 0)
        return properties_negate(w, child, out, depth);
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "allOf") == 0)
        return list_negate(w, child, key[1] == 'l', out, depth);
    if (strcmp(key, "oneOf") == 0) { /* "none of them"; "two of them" has no schema */
        w->is_partial = true;
        return list_negate(w, child, false, out, depth);
    }
    if (strcmp(key, "not") == 0 && !evaluates(w, member)) {
        put(w, out, NULL, share(w, member));
        return true;
    }
    if (strcmp(key, "pattern") == 0 && member->type == JSON_STRING) {
        put(w, out, NULL, make_type(w, "string", "$notPattern", share(w, member)));
        return true;
    }
    if (strcmp(key, "items") == 0 && member->type == JSON_OBJECT && !w->has_unevaluated &&
        !json_get(item->node, "prefixItems"))
        return items_negate(w, child, "contains", out, depth);
    if (strcmp(key, "contains") == 0 && !w->has_unevaluated &&
        !json_get(item->node, "minContains") && !json_get(item->node, "maxContains"))
        return items_negate(w, child, "items", out, depth);
    return false;
}

/* Schemas of which one holds for each value, and none for a value that the schema allows. Keywords
 * that cannot be negated are left out: then some values are missing, and the walker's `is_partial`
 * is set. NULL: an error, or the negation has become too large. */
static struct json *negate(struct schema_walker *w, const struct schema_item *item, unsigned depth)
{
    if (!schema_step(w, 1) || w->n_negating > NEGATE_NODES)
        return NULL;
    struct json *out = make(w, JSON_ARRAY);
    if (item->node->type == JSON_BOOL) {
        if (!item->node->boolean)
            put(w, out, NULL, json_new_bool(&w->arena, true));
        return out;
    }
    const struct json *ref = json_get(item->node, "$ref");
    if (depth == 0 || item->node->type != JSON_OBJECT) {
        w->is_partial = true;
        return out;
    }
    if (ref) { /* keywords beside it count in some drafts only */
        const struct schema_item *target = schema_resolve(w, item, ref);
        w->is_partial |= item->node->count > 1;
        return target ? negate(w, target, depth - 1) : NULL;
    }
    json_each (member, item->node)
        w->is_partial |= !member_negate(w, item, member, out, depth);
    return w->failed || w->arena.failed ? NULL : out;
}

/* The same, but NULL also if no keyword can be negated. */
static struct json *negate_all(struct schema_walker *w, const struct schema_item *item)
{
    w->n_negating = 0;
    struct json *out = negate(w, item, NEGATE_DEPTH);
    bool is_small = w->n_negating <= NEGATE_NODES;
    return out && is_small && (out->first || !w->is_partial) ? out : NULL;
}

/* ---- keywords ------------------------------------------------------------------------------ */

/* {"allOf": [a, b]}, either of which may be NULL; they are shared. */
static struct json *make_both(struct schema_walker *w, const struct json *a, const struct json *b)
{
    struct json *schema = make(w, JSON_OBJECT), *all = make(w, JSON_ARRAY);
    if (a)
        put(w, all, NULL, share(w, a));
    if (b)
        put(w, all, NULL, share(w, b));
    put(w, schema, "allOf", all);
    return schema;
}

static bool conditions_rewrite(struct schema_walker *w, const struct schema_item *item,
                               struct json *lists)
{
    const struct schema_item *condition = schema_child(w, item, "if");
    struct json *otherwise = condition ? negate_all(w, condition) : NULL;
    struct json *list = make(w, JSON_ARRAY);
    if (!otherwise || !list)
        return false;
    put(w, list, NULL, make_both(w, condition->node, json_get(item->node, "then")));
    json_each (node, otherwise)
        put(w, list, NULL, make_both(w, node, json_get(item->node, "else")));
    put(w, lists, NULL, list);
    return true;
}

/* What must hold where a property is present: required names, or a schema. */
static bool dependency_rewrite(struct schema_walker *w, const struct json *member,
                               struct json *lists)
{
    struct json *list = make(w, JSON_ARRAY);
    struct json *present = make_required(w, member->key, member->key_len);
    put(w, list, NULL, make_types_without(w, 1u << JSON_OBJECT));
    put(w, list, NULL, make_absent(w, member->key, member->key_len));
    if (member->type == JSON_ARRAY) {
        struct json *names = present ? present->last : NULL;
        json_each (name, member) {
            if (name->type != JSON_STRING)
                return false;
            put(w, names, NULL, share(w, name));
        }
        put(w, list, NULL, present);
    } else if (member->type == JSON_OBJECT || member->type == JSON_BOOL) {
        put(w, list, NULL, make_both(w, present, member));
    } else {
        return false;
    }
    put(w, lists, NULL, list);
    return true;
}

static bool keyword_rewrite(struct schema_walker *w, const struct schema_item *item,
                            const char *keyword, struct json *lists)
{
    const struct json *value = json_get(item->node, keyword);
    if (strcmp(keyword, "if") == 0)
        return conditions_rewrite(w, item, lists);
    if (strcmp(keyword, "not") == 0) {
        const struct schema_item *child = schema_child(w, item, keyword);
        struct json *any = child ? negate_all(w, child) : NULL;
        put(w, lists, NULL, any);
        return any != NULL;
    }
    if (!json_is(value, JSON_OBJECT))
        return false;
    json_each (member, value)
        if (!dependency_rewrite(w, member, lists))
            return false;
    return true;
}

static const struct schema_rewrite *rewrite_find(const struct schema_walker *w,
                                                 const struct json *node, const char *keyword)
{
    const struct schema_rewrite *r = w->rewrites;
    while (r && (r->node != node || strcmp(r->keyword, keyword) != 0))
        r = r->next;
    return r;
}

static const struct json *rewrite_keep(struct schema_walker *w, const struct json *node,
                                       const char *keyword, const struct json *lists)
{
    struct schema_rewrite *r = arena_alloc(&w->arena, sizeof *r);
    if (!r)
        return schema_step(w, 1), NULL;
    *r = (struct schema_rewrite){node, keyword, lists, w->is_partial, w->rewrites};
    w->rewrites = r;
    return w->failed ? NULL : lists;
}

const struct json *schema_rewrite(struct schema_walker *w, const struct schema_item *item,
                                  const char *keyword)
{
    const struct schema_rewrite *known = rewrite_find(w, item->node, keyword);
    if (known)
        return known->lists;
    w->is_partial = false;
    struct json *lists = make(w, JSON_ARRAY);
    bool can = lists && keyword_rewrite(w, item, keyword, lists);
    return rewrite_keep(w, item->node, keyword, can ? lists : NULL);
}

const struct json *schema_negate(struct schema_walker *w, const struct schema_item *item)
{
    const struct schema_rewrite *known = rewrite_find(w, item->node, "");
    if (known)
        return known->lists;
    w->is_partial = false;
    return rewrite_keep(w, item->node, "", negate_all(w, item));
}

bool schema_rewrite_is_partial(const struct schema_walker *w, const struct schema_item *item,
                               const char *keyword)
{
    const struct schema_rewrite *known = rewrite_find(w, item->node, keyword);
    return known && known->is_partial;
}

const struct schema_item *schema_negated_item(struct schema_walker *w,
                                              const struct schema_item *item)
{
    const struct json *list = schema_negate(w, item);
    if (!list || !list->first)
        return list ? w->never : NULL;
    /* The list is kept with the schema around it, so that this is always the same node. */
    const struct schema_rewrite *known = rewrite_find(w, item->node, "!");
    struct schema_item *out = arena_alloc(&w->arena, sizeof *out);
    const struct json *node = known ? known->lists : NULL;
    if (!known) {
        struct json *schema = make(w, JSON_OBJECT);
        put(w, schema, "anyOf", share(w, list));
        node = rewrite_keep(w, item->node, "!", schema);
    }
    if (!out || !node)
        return schema_step(w, 1), NULL;
    *out = (struct schema_item){node, item->place, NULL};
    return out;
}
