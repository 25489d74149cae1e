/* Decides whether a value is allowed (enum and const are checked against the other keywords), and
 * whether any value is (which keeps the schemas of a oneOf disjoint). Both err on the safe side: a
 * doubtful value is not allowed, a doubtful set is not empty. In proofs (n_probing), where the
 * values of an enum decide, a doubtful value therefore counts as allowed. */
#include "prompt/schema/json_schema_internal.h"

#include <string.h>

/* A doubtful number of items does not fit. */
static bool contains_fits(struct schema_walker *w, const struct json *value,
                          const struct schema_facets *f)
{
    struct schema_contains c;
    uint32_t n = 0;
    if (!schema_array_contains(w, f, &c) || !c.item)
        return !w->failed;
    struct schema_set set = schema_set_new(w, 1);
    schema_set_add(&set, c.item);
    json_each (element, value)
        n += schema_is_valid(w, element, &set);
    return c.max == GRAMMAR_NO_MAX && n >= c.min;
}

static bool array_fits(struct schema_walker *w, const struct json *value,
                       const struct schema_facets *f)
{
    size_t index = 0;
    if (value->count < f->min_items || value->count > f->max_items)
        return false;
    if (!w->n_probing && !w->is_lenient && !contains_fits(w, value, f))
        return false;
    if (schema_array_is_unique(f))
        json_each (element, value)
            for (const struct json *other = element->next; other; other = other->next)
                if (!schema_step(w, 1) || json_values_equal(element, other))
                    return false;
    json_each (element, value) {
        struct schema_set set;
        if (!schema_item_set(w, f->set, index++, &set) || !schema_is_valid(w, element, &set))
            return false;
    }
    return true;
}

static bool object_fits(struct schema_walker *w, const struct json *value,
                        const struct schema_facets *f)
{
    struct schema_name *names;
    size_t n;
    if (value->count < f->min_members || value->count > f->max_members ||
        !schema_names(w, f->set, &names, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        json_each (member, value)
            found |= member->key_len == names[i].len &&
                     memcmp(member->key, names[i].bytes, names[i].len) == 0;
        if (names[i].required && !found)
            return false;
    }
    json_each (member, value) {
        struct schema_set set;
        if (!schema_property_set(w, f, member->key, member->key_len, &set) ||
            !schema_is_valid(w, member, &set))
            return false;
    }
    return true;
}

bool schema_fits(struct schema_walker *w, const struct json *value, const struct schema_facets *f)
{
    if (!schema_step(w, 1))
        return false;
    switch (value->type) {
    case JSON_NULL: return f->types & TYPE_NULL;
    case JSON_BOOL: return f->types & TYPE_BOOLEAN;
    case JSON_NUMBER: return f->types & TYPE_NUMBER && schema_number_is_valid(w, f, value);
    case JSON_STRING:
        return f->types & TYPE_STRING && schema_string_is_valid(w, f, value->text, value->text_len);
    case JSON_ARRAY: return f->types & TYPE_ARRAY && array_fits(w, value, f);
    default: return f->types & TYPE_OBJECT && object_fits(w, value, f);
    }
}

static bool is_among_values(struct schema_walker *w, const struct json *value,
                            const struct schema_facets *f)
{
    for (size_t i = 0; i < f->n_values && schema_step(w, 1); i++)
        if (json_values_equal(f->values[i], value))
            return true;
    return !f->has_values;
}

bool schema_is_valid(struct schema_walker *w, const struct json *value,
                     const struct schema_set *set)
{
    struct schema_alternatives alternatives;
    if (!schema_expand(w, set, &alternatives))
        return false;
    for (size_t i = 0; i < alternatives.n; i++) {
        struct schema_facets f;
        if (!schema_facets(w, &alternatives.sets[i], &f))
            return false;
        if (f.types & TYPE_ARRAY && value->type == JSON_ARRAY && !schema_array_check(w, &f))
            return false;
        if (f.types & TYPE_OBJECT && value->type == JSON_OBJECT && !schema_object_check(w, &f))
            return false;
        if (is_among_values(w, value, &f) && schema_fits(w, value, &f))
            return true;
    }
    return false;
}

/* ---- emptiness ----------------------------------------------------------------------------- */

static bool object_is_empty(struct schema_walker *w, const struct schema_facets *f, unsigned depth)
{
    struct schema_name *names;
    size_t n, n_required = 0;
    if (f->min_members > f->max_members)
        return true;
    if (!schema_names(w, f->set, &names, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        struct schema_set set;
        n_required += names[i].required;
        if (names[i].required && schema_property_set(w, f, names[i].bytes, names[i].len, &set) &&
            schema_is_empty(w, &set, depth - 1))
            return true;
    }
    return n_required > f->max_members;
}

static bool array_is_empty(struct schema_walker *w, const struct schema_facets *f, unsigned depth)
{
    if (f->min_items > f->max_items)
        return true;
    for (size_t i = 0; i < f->min_items && i < 8; i++) {
        struct schema_set set;
        if (schema_item_set(w, f->set, i, &set) && schema_is_empty(w, &set, depth - 1))
            return true;
    }
    return false;
}

static bool strings_are_empty(struct schema_walker *w, const struct schema_facets *f)
{
    if (f->min_length > f->max_length)
        return true;
    /* Our formats are narrower than the real ones, so they prove nothing. Neither do patterns that
     * cannot be read or combined, and those must not end the walk. */
    struct error *err = w->err;
    bool failed = w->failed;
    const struct text_dfa *all = NULL;
    size_t n = 0;
    for (const struct string_rule *rule = f->rules; rule; rule = rule->next)
        n += !rule->is_format && !rule->is_negated;
    if (n < 2)
        return false;
    w->err = &w->ignored;
    for (const struct string_rule *rule = f->rules; rule && !w->failed; rule = rule->next) {
        if (rule->is_format || rule->is_negated)
            continue;
        const struct text_dfa *dfa = schema_rule_dfa(w, rule);
        all = all && dfa ? text_dfa_combine(&w->arena, all, dfa, TEXT_AND, &w->ignored) : dfa;
        if (!all)
            break;
        schema_step(w, 1000 + all->n_edges);
    }
    bool empty = !w->failed && all && text_dfa_is_empty(all);
    w->err = err;
    w->failed = failed;
    return empty;
}

static bool facets_are_empty(struct schema_walker *w, const struct schema_facets *f, unsigned depth)
{
    if (f->has_values) {
        for (size_t i = 0; i < f->n_values; i++)
            if (schema_fits(w, f->values[i], f) || w->failed)
                return false;
        return true;
    }
    if (f->types & (TYPE_NULL | TYPE_BOOLEAN))
        return false;
    return (!(f->types & TYPE_NUMBER) || schema_number_is_empty(f)) &&
           (!(f->types & TYPE_STRING) || strings_are_empty(w, f)) &&
           (!(f->types & TYPE_ARRAY) || array_is_empty(w, f, depth)) &&
           (!(f->types & TYPE_OBJECT) || object_is_empty(w, f, depth));
}

bool schema_alternatives_are_empty(struct schema_walker *w,
                                   const struct schema_alternatives *alternatives, unsigned depth)
{
    if (alternatives->is_partial)
        return false;
    for (size_t i = 0; i < alternatives->n; i++) {
        struct schema_facets f;
        if (alternatives->sets[i].n == 0 || depth == 0 ||
            !schema_facets(w, &alternatives->sets[i], &f) || !facets_are_empty(w, &f, depth))
            return false;
    }
    return !w->failed;
}

bool schema_is_empty(struct schema_walker *w, const struct schema_set *set, unsigned depth)
{
    struct schema_alternatives alternatives;
    if (schema_set_is_never(set))
        return true;
    if (depth == 0)
        return false;
    w->n_probing++;
    bool empty = schema_expand(w, set, &alternatives) &&
                 schema_alternatives_are_empty(w, &alternatives, depth);
    w->n_probing--;
    return empty;
}
