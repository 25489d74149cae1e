/* Objects. Members come in the order in which the schema names them, followed by unnamed ones, so
 * that a grammar can enforce required members and count. Additional keys cannot be just any string:
 * they must differ from the named ones, or a second "a" with any value could follow the first. They
 * are written without escapes, so that each has one spelling.
 *
 *   named members:  from (i, c) - before the i-th name with c members written -
 *                   with it to (i + 1, c + 1), or without it to (i + 1, c) if it is optional
 */
#include "prompt/schema/json_schema_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    NAMES_MAX = 4096,
    STATES_MAX = 16384, /* (i, c) */
    INLINE_PARTS = 16,  /* nested members without a rule */
};

/* ---- names --------------------------------------------------------------------------------- */

static bool name_equals(const struct schema_name *a, const char *bytes, size_t len)
{
    return a->len == len && memcmp(a->bytes, bytes, len) == 0;
}

static bool name_add(struct schema_walker *w, struct schema_name *names, size_t *n,
                     const char *bytes, size_t len, bool required)
{
    if (!schema_step(w, 1 + *n / 64))
        return false;
    for (size_t i = 0; i < *n; i++)
        if (name_equals(&names[i], bytes, len)) {
            names[i].required |= required;
            return true;
        }
    names[(*n)++] = (struct schema_name){bytes, len, required};
    return true;
}

static bool required_check(struct schema_walker *w, const struct schema_item *item,
                           const struct json *required)
{
    bool ok = required->type == JSON_ARRAY;
    json_each (name, required)
        ok &= name->type == JSON_STRING;
    return ok || schema_fail(w, item->place, "required", "must be an array of strings");
}

bool schema_names(struct schema_walker *w, const struct schema_set *set, struct schema_name **out,
                  size_t *n)
{
    size_t capacity = 1;
    *n = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct json *properties = json_get(set->items[i]->node, "properties");
        const struct json *required = json_get(set->items[i]->node, "required");
        if (properties && properties->type != JSON_OBJECT)
            return schema_fail(w, set->items[i]->place, "properties",
                               "must be an object of schemas");
        if (required && !required_check(w, set->items[i], required))
            return false;
        capacity += (properties ? properties->count : 0) + (required ? required->count : 0);
    }
    if (capacity > NAMES_MAX)
        return schema_fail_limit(w, set->items[0]->place, "too many properties");
    *out = arena_alloc_array(&w->arena, capacity, sizeof **out);
    if (!*out)
        return schema_step(w, 1);
    for (int pass = 0; pass < 2; pass++) /* all properties first, then other required names */
        for (size_t i = 0; i < set->n; i++) {
            const struct json *list = json_get(set->items[i]->node,
                                               pass ? "required" : "properties");
            for (const struct json *e = list ? list->first : NULL; e; e = e->next)
                if (!name_add(w, *out, n, pass ? e->text : e->key, pass ? e->text_len : e->key_len,
                              pass))
                    return false;
        }
    return true;
}

/* ---- values by name ------------------------------------------------------------------------ */

static const struct json *property_node(const struct json *schema, const char *name, size_t len)
{
    const struct json *properties = json_get(schema, "properties");
    if (json_is(properties, JSON_OBJECT))
        json_each (member, properties)
            if (member->key_len == len && memcmp(member->key, name, len) == 0)
                return member;
    return NULL;
}

/* Adds what one schema says about the value of a name. `matched`: it has a schema for the name, or
 * for a pattern that the name matches. */
static bool property_add(struct schema_walker *w, const struct schema_item *item, const char *name,
                         size_t len, struct schema_set *out, bool *matched)
{
    const struct json *node = property_node(item->node, name, len);
    *matched = node != NULL;
    if (node)
        schema_set_add(out, schema_member(w, schema_child(w, item, "properties"), node));
    const struct schema_item *patterns = schema_child(w, item, "patternProperties");
    for (node = patterns ? patterns->node->first : NULL; node; node = node->next) {
        const struct text_dfa *dfa = schema_pattern_dfa(w, item, node->key, node->key_len);
        if (!dfa && schema_pass_over(w))
            continue;
        if (!dfa)
            return false;
        if (!text_dfa_accepts(dfa, name, len))
            continue;
        schema_set_add(out, schema_member(w, patterns, node));
        *matched = true;
    }
    if (!*matched)
        schema_set_add(out, schema_child(w, item, "additionalProperties"));
    return !w->failed;
}

static size_t patterns_count(const struct schema_set *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct json *patterns = json_get(set->items[i]->node, "patternProperties");
        n += patterns ? patterns->count : 0;
    }
    return n;
}

bool schema_property_set(struct schema_walker *w, const struct schema_facets *f, const char *name,
                         size_t len, struct schema_set *out)
{
    const struct schema_set *set = f->set;
    *out = schema_set_new(w, 2 * set->n + patterns_count(set) + 1);
    bool any_matched = false;
    for (size_t i = 0; i < set->n && schema_step(w, 1); i++) {
        const struct schema_item *item = set->items[i];
        bool matched;
        if (!property_add(w, item, name, len, out, &matched))
            return false;
        any_matched |= matched && !schema_is_made(w, item->node); /* `not` evaluates nothing */
        const struct schema_item *names = schema_child(w, item, "propertyNames");
        if (!names || w->n_probing)
            continue;
        struct schema_set name_set = schema_set_new(w, 1);
        schema_set_add(&name_set, names);
        const struct text_dfa *dfa = schema_strings_dfa(w, &name_set);
        if (!dfa)
            return false;
        if (!text_dfa_accepts(dfa, name, len))
            schema_set_add(out, w->never);
    }
    if (f->unevaluated && !any_matched)
        schema_set_add(out, w->never);
    return !w->failed;
}

/* ---- what cannot be enforced --------------------------------------------------------------- */

static bool unevaluated_check(struct schema_walker *w, struct schema_facets *f,
                              const struct schema_item *item)
{
    const struct json *value = json_get(item->node, "unevaluatedProperties");
    if (!value || (value->type == JSON_BOOL && value->boolean))
        return true;
    bool sees_all = value->type == JSON_BOOL;
    for (size_t i = 0; i < f->set->n && sees_all; i++) {
        const struct schema_item *up = f->set->items[i];
        while (up && up->node != item->node)
            up = up->from;
        sees_all = up != NULL;
    }
    if (!sees_all && w->is_lenient)
        return true;
    if (!sees_all)
        return schema_refuse(w, item->place, NULL,
                             "'unevaluatedProperties' is not supported here, only false in the "
                             "outermost schema of an object");
    f->unevaluated = item;
    return true;
}

bool schema_object_check(struct schema_walker *w, struct schema_facets *f)
{
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        const struct json *patterns = json_get(item->node, "patternProperties");
        if (patterns && patterns->type != JSON_OBJECT)
            return schema_fail(w, item->place, "patternProperties", "must be an object of schemas");
        if (!unevaluated_check(w, f, item))
            return false;
    }
    return true;
}

/* ---- keys that are not named --------------------------------------------------------------- */

/* A pattern of patternProperties, unique by its text. */
struct key_pattern {
    const char *text;
    size_t len;
    const struct text_dfa *dfa;
};

struct keys {
    struct key_pattern *patterns;
    size_t n_patterns;
    const struct text_dfa *allowed; /* NULL: all except the names */
    const struct text_dfa *names;   /* those of the schema, which other keys must differ from */
};

static int name_compare(const void *a, const void *b)
{
    return byte_view_compare(*(const struct byte_view *)a, *(const struct byte_view *)b);
}

static const struct text_dfa *combine(struct schema_walker *w, const struct schema_facets *f,
                                      const struct text_dfa *a, const struct text_dfa *b,
                                      enum text_operation operation)
{
    struct error err = {0};
    if (!a || !b || w->failed)
        return NULL;
    const struct text_dfa *out = text_dfa_combine(&w->arena, a, b, operation, &err);
    if (!out)
        schema_fail_limit(w, f->set->items[0]->place, err.message);
    else
        schema_step(w, 1000 + out->n_edges);
    return out;
}

static bool patterns_collect(struct schema_walker *w, const struct schema_facets *f, struct keys *k)
{
    k->patterns = arena_alloc_array(&w->arena, patterns_count(f->set) + 1, sizeof *k->patterns);
    if (!k->patterns)
        return schema_step(w, 1);
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        const struct json *patterns = json_get(item->node, "patternProperties");
        for (const struct json *p = patterns ? patterns->first : NULL; p; p = p->next) {
            size_t j = 0;
            while (j < k->n_patterns && (k->patterns[j].len != p->key_len ||
                                         memcmp(k->patterns[j].text, p->key, p->key_len) != 0))
                j++;
            if (j < k->n_patterns)
                continue;
            const struct text_dfa *dfa = schema_pattern_dfa(w, item, p->key, p->key_len);
            if (!dfa && schema_pass_over(w))
                continue;
            if (!dfa)
                return false;
            k->patterns[k->n_patterns++] = (struct key_pattern){p->key, p->key_len, dfa};
        }
    }
    return true;
}

static bool keys_init(struct schema_walker *w, const struct schema_facets *f,
                      const struct schema_name *names, size_t n, struct keys *k)
{
    struct error err = {0};
    *k = (struct keys){0};
    struct byte_view *sorted = arena_alloc_array(&w->arena, n + 1, sizeof *sorted);
    if (!sorted || !patterns_collect(w, f, k))
        return schema_step(w, 1);
    for (size_t i = 0; i < n; i++)
        sorted[i] = (struct byte_view){names[i].bytes, names[i].len};
    qsort(sorted, n, sizeof *sorted, name_compare);
    k->names = text_dfa_from_names(&w->arena, sorted, n, &err);
    if (!k->names)
        return schema_fail_limit(w, f->set->items[0]->place, err.message);
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *rule = schema_child(w, f->set->items[i], "propertyNames");
        if (!rule)
            continue;
        struct schema_set set = schema_set_new(w, 1);
        schema_set_add(&set, rule);
        const struct text_dfa *dfa = schema_strings_dfa(w, &set);
        k->allowed = k->allowed ? combine(w, f, k->allowed, dfa, TEXT_AND) : dfa;
        if (!k->allowed)
            return false;
    }
    return !w->failed;
}

/* The keys that match only the pattern `only`, or no pattern (k->n_patterns), and are not names. */
static grammar_expr keys_write(struct schema_walker *w, const struct schema_facets *f,
                               const struct keys *k, size_t only, size_t n_names)
{
    struct error err = {0};
    if (!k->n_patterns && !k->allowed && !n_names)
        return json_text_quoted(&w->text, w->text.key_characters);
    const struct text_dfa *dfa = only < k->n_patterns ? k->patterns[only].dfa : k->allowed;
    if (!dfa)
        dfa = text_dfa_from_lengths(&w->arena, 0, REGEX_NO_MAX, &err);
    else if (only < k->n_patterns && k->allowed)
        dfa = combine(w, f, dfa, k->allowed, TEXT_AND);
    dfa = combine(w, f, dfa, k->names, TEXT_AND_NOT);
    for (size_t i = 0; i < k->n_patterns && dfa; i++)
        if (i != only)
            dfa = combine(w, f, dfa, k->patterns[i].dfa, TEXT_AND_NOT);
    if (!dfa)
        return schema_step(w, 1), GRAMMAR_NONE;
    return json_text_quoted(&w->text, text_dfa_to_grammar(w->b, &w->arena, dfa, TEXT_JSON_KEY));
}

/* The set of schemas for the values of those keys. */
static bool keys_value_set(struct schema_walker *w, const struct schema_facets *f,
                           const struct keys *k, size_t only, struct schema_set *out)
{
    *out = schema_set_new(w, f->set->n + 1);
    bool any_matched = false;
    for (size_t i = 0; i < f->set->n; i++) {
        const struct schema_item *item = f->set->items[i];
        const struct schema_item *patterns = only < k->n_patterns
                                                 ? schema_child(w, item, "patternProperties")
                                                 : NULL;
        const struct json *node = patterns ? patterns->node->first : NULL;
        while (node && (node->key_len != k->patterns[only].len ||
                        memcmp(node->key, k->patterns[only].text, node->key_len) != 0))
            node = node->next;
        any_matched |= node != NULL;
        schema_set_add(out, node ? schema_member(w, patterns, node)
                                 : schema_child(w, item, "additionalProperties"));
    }
    if (f->unevaluated && !any_matched)
        schema_set_add(out, w->never);
    return !w->failed;
}

/* True if the schema names properties and does not mention others. */
static bool names_all(const struct schema_walker *w, const struct schema_facets *f, size_t n_names)
{
    static const char *const others[] = {"additionalProperties", "patternProperties",
                                         "propertyNames", "unevaluatedProperties"};
    bool has_names = false;
    for (size_t i = 0; i < f->set->n; i++) {
        const struct json *node = f->set->items[i]->node;
        has_names |= json_get(node, "properties") && !schema_is_made(w, node);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            if (json_get(node, others[k]))
                return false;
    }
    return has_names && f->min_members <= n_names;
}

/* A member whose key the schema does not name; GRAMMAR_NONE: not allowed. */
static grammar_expr other_member(struct schema_walker *w, const struct schema_facets *f,
                                 const struct schema_name *names, size_t n)
{
    struct keys k;
    if (names_all(w, f, n))
        return GRAMMAR_NONE;
    if (!keys_init(w, f, names, n, &k))
        return GRAMMAR_NONE;
    grammar_expr *parts = arena_alloc_array(&w->arena, k.n_patterns + 1, sizeof *parts);
    size_t count = 0;
    for (size_t i = 0; parts && i <= k.n_patterns && !w->failed; i++) {
        struct schema_set set;
        if (!keys_value_set(w, f, &k, i, &set))
            return GRAMMAR_NONE;
        if (schema_set_is_never(&set))
            continue;
        grammar_expr key = keys_write(w, f, &k, i, n);
        parts[count++] = json_text_member(&w->text, key, schema_value(w, &set));
    }
    if (!count || w->failed)
        return GRAMMAR_NONE;
    grammar_expr rule = grammar_rule(w->b);
    grammar_define(w->b, rule, grammar_choice(w->b, parts, count));
    return rule;
}

/* ---- members ------------------------------------------------------------------------------- */

struct members {
    struct schema_walker *w;
    const struct schema_name *names;
    grammar_expr *values; /* of the names; GRAMMAR_NONE: not allowed */
    size_t n, n_required;
    size_t first_required; /* the first required name; n: none */
    grammar_expr other;
    uint32_t min, max;
    uint32_t cap; /* the highest count, which means "this many or more" */
};

/* What may follow all named members after c members; at least one member in total. */
static grammar_expr others_write(const struct members *m, uint32_t c)
{
    struct grammar_builder *b = m->w->b;
    uint32_t needed = c < m->min ? m->min - c : 0;
    uint32_t room = m->max == GRAMMAR_NO_MAX ? GRAMMAR_NO_MAX : m->max - c;
    if (m->other == GRAMMAR_NONE || room == 0)
        return needed || !c ? grammar_never(b) : grammar_empty(b);
    if (needed > 1)
        return grammar_never(b); /* they might have the same key and count as one */
    grammar_expr more = grammar_pair(b, m->w->text.comma, m->other);
    if (c)
        return grammar_repeat(b, more, needed, room);
    uint32_t left = room == GRAMMAR_NO_MAX ? room : room - 1;
    return grammar_pair(b, m->other, grammar_repeat(b, more, 0, left));
}

/* One state, from the states of the next name, `next`, by count. */
static grammar_expr state_write(const struct members *m, size_t i, uint32_t c,
                                const grammar_expr *next)
{
    struct grammar_builder *b = m->w->b;
    uint32_t above = c < m->cap ? c + 1 : c;
    bool possible = m->values[i] != GRAMMAR_NONE && (m->max == GRAMMAR_NO_MAX || c < m->max);
    if (!possible)
        return m->names[i].required ? grammar_never(b) : next[c];
    grammar_expr member = json_text_member(
        &m->w->text, json_text_string(&m->w->text, m->names[i].bytes, m->names[i].len),
        m->values[i]);
    if (c)
        member = grammar_pair(b, m->w->text.comma, member);
    if (m->names[i].required)
        return grammar_pair(b, member, next[above]);
    if (above == c)
        return grammar_pair(b, grammar_optional(b, member), next[c]);
    return grammar_either(b, grammar_pair(b, member, next[above]), next[c]);
}

/* True if two states lead to (i, c), so that it must be a rule to be written only once. Some other
 * states are rules too, to keep expressions shallow. */
static bool state_is_rule(const struct members *m, size_t i, uint32_t c)
{
    if (m->cap > 1)
        return i > 0;
    return i % INLINE_PARTS == INLINE_PARTS - 1 ||
           (i > 0 && c == 1 && i <= m->first_required + 1 && m->first_required > 0);
}

/* All members, at least one: from the last name to the first, with a row entry for each count. */
static grammar_expr members_write(const struct members *m)
{
    struct schema_walker *w = m->w;
    grammar_expr *rows = arena_alloc_array(&w->arena, 2 * ((size_t)m->cap + 1), sizeof *rows);
    if (!rows)
        return schema_step(w, 1), GRAMMAR_NONE;
    grammar_expr *next = rows, *here = rows + m->cap + 1;
    for (uint32_t c = 0; c <= m->cap; c++)
        next[c] = others_write(m, c);
    for (size_t i = m->n; i-- > 0;) {
        if (!schema_step(w, m->cap))
            return GRAMMAR_NONE;
        /* After the first required name the count is not 0, and it never exceeds the names so
         * far. */
        for (uint32_t c = i > m->first_required; c <= m->cap && c <= i; c++) {
            here[c] = state_write(m, i, c, next);
            if (!state_is_rule(m, i, c))
                continue;
            grammar_expr rule = grammar_rule(w->b);
            grammar_define(w->b, rule, here[c]);
            here[c] = rule;
        }
        grammar_expr *swap = next;
        next = here;
        here = swap;
    }
    return next[0];
}

static bool members_init(struct schema_walker *w, const struct schema_facets *f, struct members *m)
{
    struct schema_name *names;
    *m = (struct members){.w = w, .min = f->min_members, .max = f->max_members};
    if (!schema_names(w, f->set, &names, &m->n))
        return false;
    m->names = names;
    m->values = arena_alloc_array(&w->arena, m->n + 1, sizeof *m->values);
    if (!m->values)
        return schema_step(w, 1);
    m->first_required = m->n;
    for (size_t i = 0; i < m->n; i++) {
        struct schema_set set;
        if (!schema_property_set(w, f, names[i].bytes, names[i].len, &set))
            return false;
        if (names[i].required && !m->n_required++)
            m->first_required = i;
        if (!schema_set_is_never(&set))
            m->values[i] = schema_value(w, &set);
    }
    m->other = other_member(w, f, names, m->n);
    if (m->min <= m->n_required)
        m->min = 0; /* the required names are enough */
    if (m->other != GRAMMAR_NONE && m->min > m->n + 1 && w->is_lenient)
        m->min = 0;
    if (m->other != GRAMMAR_NONE && m->min > m->n + 1)
        return schema_refuse(
            w, f->set->items[0]->place, NULL,
            "'minProperties' is not supported here: keys that the schema does not name may be "
            "equal, so they cannot be counted");
    if (m->max >= m->n && m->other == GRAMMAR_NONE)
        m->max = GRAMMAR_NO_MAX; /* there cannot be more */
    m->cap = m->max != GRAMMAR_NO_MAX ? m->max : m->min > 1 ? m->min : 1;
    if (m->max != GRAMMAR_NO_MAX && m->n == 0)
        m->cap = 1;
    if (m->max != GRAMMAR_NO_MAX && m->cap > m->n + 1)
        m->cap = (uint32_t)m->n + 1;
    return !w->failed;
}

grammar_expr schema_object(struct schema_walker *w, const struct schema_facets *f)
{
    struct members m;
    if (f->min_members > f->max_members)
        return grammar_never(w->b);
    if (!members_init(w, f, &m))
        return GRAMMAR_NONE;
    if ((m.n + 1) * ((size_t)m.cap + 1) > STATES_MAX) {
        schema_refuse(
            w, f->set->items[0]->place, NULL,
            "'minProperties' and 'maxProperties' are not supported with so many properties");
        return GRAMMAR_NONE;
    }
    grammar_expr parts[2];
    size_t n = 0;
    if (m.n_required == 0 && m.min == 0)
        parts[n++] = json_text_empty(&w->text, '{', '}');
    if (f->max_members > 0)
        parts[n++] = json_text_brackets(&w->text, '{', '}', members_write(&m));
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}
