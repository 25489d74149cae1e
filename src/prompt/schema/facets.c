/* Combines the constraints of the schemas of one alternative: types, values, bounds. Unsupported
 * keywords are rejected here, unless they have no effect on any remaining type. */
#include "prompt/schema/json_schema_internal.h"

#include <string.h>

bool json_values_equal(const struct json *a, const struct json *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case JSON_NULL: return true;
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: {
        struct decimal x, y;
        if (decimal_parse(a->text, a->text_len, &x) && decimal_parse(b->text, b->text_len, &y))
            return decimal_compare(&x, &y) == 0;
        return a->number == b->number;
    }
    case JSON_STRING: return byte_view_equal(json_bytes(a), json_bytes(b));
    default: break;
    }
    if (a->count != b->count)
        return false;
    const struct json *other = b->first;
    json_each (child, a) {
        if (a->type == JSON_OBJECT) {
            other = b->first;
            while (other && (other->key_len != child->key_len ||
                             memcmp(other->key, child->key, child->key_len) != 0))
                other = other->next;
        }
        if (!other || !json_values_equal(child, other))
            return false;
        other = other->next;
    }
    return true;
}

/* ---- types and values ---------------------------------------------------------------------- */

static bool type_by_name(struct schema_walker *w, const struct schema_item *item,
                         const struct json *name, unsigned *types)
{
    static const struct {
        const char *name;
        unsigned types;
    } known[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_equals(name, known[i].name)) {
            *types |= known[i].types;
            return true;
        }
    return schema_fail(w, item->place, "type",
                       "must be null, boolean, integer, number, string, array or object, or an "
                       "array of these");
}

static bool types_read(struct schema_walker *w, const struct schema_item *item,
                       struct schema_facets *f)
{
    const struct json *type = json_get(item->node, "type");
    if (!type)
        return true;
    unsigned types = 0;
    if (type->type == JSON_ARRAY) {
        json_each (name, type)
            if (!type_by_name(w, item, name, &types))
                return false;
    } else if (!type_by_name(w, item, type, &types)) {
        return false;
    }
    f->types &= types;
    return true;
}

/* Keeps only the values that are also in a list of `n` (the children of an enum, or one const); the
 * first list is kept completely. */
static bool values_keep(struct schema_walker *w, struct schema_facets *f, const struct json *first,
                        size_t n)
{
    const struct json **kept = arena_alloc_array(&w->arena, n + f->n_values + 1, sizeof *kept);
    size_t n_kept = 0;
    if (!kept)
        return schema_step(w, 1);
    for (const struct json *v = first; !f->has_values && n_kept < n; v = v->next)
        kept[n_kept++] = v;
    for (size_t i = 0; i < f->n_values; i++) {
        const struct json *v = first;
        if (!schema_step(w, n))
            return false;
        for (size_t j = 0; j < n; j++, v = v->next)
            if (json_values_equal(v, f->values[i])) {
                kept[n_kept++] = f->values[i];
                break;
            }
    }
    f->values = kept;
    f->n_values = n_kept;
    f->has_values = true;
    return true;
}

static bool values_read(struct schema_walker *w, const struct schema_item *item,
                        struct schema_facets *f)
{
    const struct json *list = json_get(item->node, "enum");
    if (list && list->type != JSON_ARRAY)
        return schema_fail(w, item->place, "enum", "must be an array of values");
    if (list && !values_keep(w, f, list->first, list->count))
        return false;
    const struct json *value = json_get(item->node, "const");
    return !value || values_keep(w, f, value, 1);
}

static unsigned value_types(const struct json *value)
{
    static const unsigned types[] = {TYPE_NULL,   TYPE_BOOLEAN, TYPE_NUMBER,
                                     TYPE_STRING, TYPE_ARRAY,   TYPE_OBJECT};
    return types[value->type];
}

/* ---- keywords ------------------------------------------------------------------------------ */

static bool size_read(struct schema_walker *w, const struct schema_item *item, const char *keyword,
                      uint32_t *out, bool *found)
{
    const struct json *value = json_get(item->node, keyword);
    uint64_t size;
    *found = false;
    if (!value)
        return true;
    if (!json_to_uint64(value, &size)) {
        if (value->type == JSON_NUMBER && value->number >= 4294967295.0)
            size = UINT32_MAX;
        else
            return schema_fail(w, item->place, keyword, "must be an integer that is not negative");
    }
    *out = size >= GRAMMAR_NO_MAX ? GRAMMAR_NO_MAX : (uint32_t)size;
    *found = true;
    return true;
}

static bool size_range_read(struct schema_walker *w, const struct schema_item *item,
                            const char *min_keyword, const char *max_keyword, uint32_t *min,
                            uint32_t *max)
{
    uint32_t size;
    bool found;
    if (!size_read(w, item, min_keyword, &size, &found))
        return false;
    if (found && size > *min)
        *min = size;
    if (!size_read(w, item, max_keyword, &size, &found))
        return false;
    if (found && size < *max)
        *max = size;
    return true;
}

/* Keywords that our grammars cannot enforce, with the types that they affect. */
static bool refused_check(struct schema_walker *w, const struct schema_set *set,
                          const struct schema_item *item, unsigned types)
{
    static const struct {
        const char *keyword;
        unsigned types;
        int neutral;       /* the boolean without effect, or -1 */
        bool is_rewritten; /* if possible, by rewrite.c */
    } refused[] = {
        {"not", TYPE_ANY, 0, true},
        {"dependentRequired", TYPE_OBJECT, -1, true},
        {"dependentSchemas", TYPE_OBJECT, -1, true},
        {"dependencies", TYPE_OBJECT, -1, true},
        {"unevaluatedItems", TYPE_ARRAY, 1, false},
        {"$dynamicRef", TYPE_ANY, -1, false},
        {"$recursiveRef", TYPE_ANY, -1, false},
        {"extends", TYPE_ANY, -1, false},
        {"disallow", TYPE_ANY, -1, false},
        {"divisibleBy", TYPE_NUMBER, -1, false},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct json *value = json_get(item->node, refused[i].keyword);
        if (!value || !(types & refused[i].types))
            continue;
        bool is_dependency = refused[i].types == TYPE_OBJECT;
        if (is_dependency && json_is(value, JSON_OBJECT) && !value->first)
            continue; /* empty: no effect */
        if (json_is(value, JSON_BOOL) && refused[i].neutral == (value->boolean ? 1 : 0))
            continue;
        if (refused[i].is_rewritten && schema_rewrite(w, item, refused[i].keyword))
            continue;
        if (w->failed)
            return false;
        if (strcmp(refused[i].keyword, "unevaluatedItems") == 0 && set->n == 1 &&
            !json_get(item->node, "contains"))
            continue; /* nothing else evaluates items: the same as `items` after the prefix */
        return schema_refuse(w, item->place, NULL, "'%s' is not supported", refused[i].keyword);
    }
    if (json_get(item->node, "if") &&
        (json_get(item->node, "then") || json_get(item->node, "else")) &&
        !schema_rewrite(w, item, "if"))
        return schema_refuse(w, item->place, NULL, "'if' is not supported");
    return true;
}

static bool item_read(struct schema_walker *w, const struct schema_item *item,
                      struct schema_facets *f)
{
    if (item->node->type == JSON_BOOL) {
        f->types = 0;
        return true;
    }
    return types_read(w, item, f) && values_read(w, item, f) &&
           size_range_read(w, item, "minLength", "maxLength", &f->min_length, &f->max_length) &&
           size_range_read(w, item, "minItems", "maxItems", &f->min_items, &f->max_items) &&
           size_range_read(w, item, "minProperties", "maxProperties", &f->min_members,
                           &f->max_members) &&
           schema_string_facets(w, item, f) && schema_number_facets(w, item, f);
}

bool schema_facets(struct schema_walker *w, const struct schema_set *set, struct schema_facets *out)
{
    *out = (struct schema_facets){.set = set,
                                  .types = TYPE_ANY,
                                  .max_length = GRAMMAR_NO_MAX,
                                  .max_items = GRAMMAR_NO_MAX,
                                  .max_members = GRAMMAR_NO_MAX};
    for (size_t i = 0; i < set->n; i++)
        if (!schema_step(w, 1) || !item_read(w, set->items[i], out))
            return false;
    if (w->is_lenient)
        schema_number_relax(out);
    if (out->has_values) {
        unsigned types = 0;
        for (size_t i = 0; i < out->n_values; i++)
            types |= value_types(out->values[i]);
        out->types &= types;
    }
    for (size_t i = 0; i < set->n && !w->n_probing && !w->is_lenient; i++)
        if (!refused_check(w, set, set->items[i], out->types))
            return false;
    return true;
}
