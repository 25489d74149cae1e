/* Expands a set of schemas into its alternatives. $ref and allOf add schemas to a branch, anyOf and
 * oneOf split it.
 *
 *   branch:  seen ─► S, A, ...     schemas whose keywords hold in it
 *            pending ─► B, ...     not examined yet
 *            choices ─► anyOf, ... to be split at when nothing is pending
 *
 * oneOf requires exactly one of its schemas to hold. A branch is kept disjoint from each other
 * branch in one of these ways: by a proof that no value is allowed by both, by omitting a property
 * that the other requires, by requiring a property whose values tell them apart, or by negating the
 * other (rewrite.c). If none works, oneOf is rejected. */
#include "prompt/schema/json_schema_internal.h"

#include <string.h>

enum {
    ALTERNATIVES_MAX = 512, /* of one set */
    PROOF_MAX = 64,         /* ... in a proof: with more there is none */
    SET_MAX = 256,          /* schemas in one branch */
    PROOF_DEPTH = 4,        /* how far into properties proofs look */
    PARTS_MAX = 16,         /* schemas that $ref and allOf lead to, searched for hints, */
    PARTS_DEPTH = 6,        /* ... and how far */
    HINTS_MAX = 16,         /* properties that are tried to tell two schemas apart */
};

struct item_link {
    const struct schema_item *item;
    const struct item_link *next;
};

/* An anyOf or oneOf at which a branch is still to be split. */
struct choice_link {
    const struct schema_item *list; /* the array */
    const struct schema_item *owner;
    bool exclusive;
    const struct choice_link *next;
};

struct branch {
    const struct item_link *seen, *pending;
    const struct choice_link *choices;
    size_t n_seen;
    struct branch *next;
};

struct set_link {
    struct schema_set set;
    struct set_link *next;
};

struct expansion {
    struct schema_walker *w;
    struct branch *stack;
    struct set_link *first, **last; /* the alternatives so far */
    size_t n;
    bool too_many;     /* of them, in a proof */
    bool is_rewritten; /* see schema_alternatives */
    /* A schema with a keyword that lost values when it was rewritten. */
    const struct schema_item *partial;
    const char *partial_keyword;
    /* A oneOf that has lost values to keep two of its schemas apart. */
    const struct choice_link *overlap;
    size_t overlap_first, overlap_second;
};

static bool expand(struct expansion *x, struct branch *first, struct schema_alternatives *out);

/* A schema that asks for one property or forbids it; the same for the same name, so that sets stay
 * few. */
struct schema_hint {
    const struct schema_item *item;
    const char *name;
    size_t len;
    bool present;
    struct schema_hint *next;
};

static void *alloc(struct schema_walker *w, size_t size)
{
    void *p = arena_alloc(&w->arena, size);
    if (!p)
        schema_step(w, 1);
    return p;
}

static const struct item_link *link_add(struct schema_walker *w, const struct item_link *list,
                                        const struct schema_item *item)
{
    struct item_link *link = alloc(w, sizeof *link);
    if (!link)
        return NULL;
    *link = (struct item_link){item, list};
    return link;
}

static const struct schema_item *item_from(struct schema_walker *w, const struct schema_item *item,
                                           const struct schema_item *from)
{
    struct schema_item *copy = item ? alloc(w, sizeof *copy) : NULL;
    if (copy)
        *copy = (struct schema_item){item->node, item->place, from};
    return copy;
}

/* ---- one schema of a branch ---------------------------------------------------------------- */

static bool made_choice_add(struct expansion *x, struct branch *b, const struct schema_item *owner,
                            const struct json *list)
{
    struct choice_link *choice = alloc(x->w, sizeof *choice);
    struct schema_item *item = alloc(x->w, sizeof *item);
    if (!choice || !item)
        return false;
    *item = (struct schema_item){list, owner->place, NULL};
    *choice = (struct choice_link){item, owner, false, b->choices};
    b->choices = choice;
    return true;
}

static bool choice_add(struct expansion *x, struct branch *b, const struct schema_item *item,
                       const char *keyword, bool exclusive)
{
    const struct schema_item *list = schema_child(x->w, item, keyword);
    if (!list)
        return !x->w->failed;
    if (list->node->type != JSON_ARRAY || !list->node->first)
        return schema_fail(x->w, item->place, keyword, "must be a non-empty array of schemas");
    struct choice_link *choice = alloc(x->w, sizeof *choice);
    if (!choice)
        return false;
    *choice = (struct choice_link){list, item, exclusive, b->choices};
    b->choices = choice;
    return true;
}

/* Keywords that are alternatives in disguise. Where they cannot be rewritten, facets.c rejects
 * them, or ignores them if it may. */
static bool rewrites_add(struct expansion *x, struct branch *b, const struct schema_item *item)
{
    static const char *const keywords[] = {"not", "dependentRequired", "dependentSchemas",
                                           "dependencies", "if"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords && !x->w->is_lenient; i++) {
        if (!json_get(item->node, keywords[i]) ||
            (strcmp(keywords[i], "if") == 0 && !json_get(item->node, "then") &&
             !json_get(item->node, "else")))
            continue;
        const struct json *lists = schema_rewrite(x->w, item, keywords[i]);
        if (lists && schema_rewrite_is_partial(x->w, item, keywords[i])) {
            if (x->w->n_probing)
                continue; /* a proof must not miss a value */
            x->partial = item;
            x->partial_keyword = keywords[i];
        }
        x->is_rewritten |= lists != NULL;
        for (const struct json *list = lists ? lists->first : NULL; list; list = list->next)
            if (!made_choice_add(x, b, item, list))
                return false;
    }
    return !x->w->failed;
}

static bool all_add(struct expansion *x, struct branch *b, const struct schema_item *item)
{
    const struct schema_item *list = schema_child(x->w, item, "allOf");
    if (!list)
        return !x->w->failed;
    if (list->node->type != JSON_ARRAY)
        return schema_fail(x->w, item->place, "allOf", "must be an array of schemas");
    /* What is pending is taken from the front: the schemas go there in their own order. */
    const struct item_link *rest = b->pending;
    const struct item_link **link = &b->pending;
    size_t index = 0;
    json_each (node, list->node) {
        struct item_link *added = alloc(x->w, sizeof *added);
        const struct schema_item *child = item_from(x->w, schema_element(x->w, list, node, index++),
                                                    item);
        if (!added || !child)
            return false;
        *added = (struct item_link){child, rest};
        *link = added;
        link = &added->next;
    }
    return true;
}

static bool ref_add(struct expansion *x, struct branch *b, const struct schema_item *item)
{
    const struct json *ref = json_get(item->node, "$ref");
    if (!ref)
        return true;
    const struct schema_item *target = schema_resolve(x->w, item, ref);
    target = item_from(x->w, target, item);
    return target && (b->pending = link_add(x->w, b->pending, target));
}

/* True if nothing is left of a schema once the keywords above are taken from it. */
static bool says_nothing(const struct json *node)
{
    static const char *const taken[] = {
        "$ref",      "allOf",       "anyOf",   "oneOf",    "$defs",      "definitions",
        "title",     "description", "default", "examples", "deprecated", "readOnly",
        "writeOnly", "$comment",    "$schema", "$id",      "id",         "$anchor"};
    json_each (member, node) {
        bool found = false;
        for (size_t i = 0; i < sizeof taken / sizeof *taken && !found; i++)
            found = strlen(taken[i]) == member->key_len &&
                    memcmp(taken[i], member->key, member->key_len) == 0;
        if (!found)
            return false;
    }
    return true;
}

static bool item_take(struct expansion *x, struct branch *b, const struct schema_item *item)
{
    const struct json *node = item->node;
    if (node->type != JSON_OBJECT && node->type != JSON_BOOL)
        return schema_fail(x->w, item->place, NULL, "a schema must be an object or a boolean");
    for (const struct schema_item *up = item->from; up; up = up->from)
        if (up->node == node)
            return schema_fail(x->w, item->place, NULL, "this schema's $ref leads back to itself");
    for (const struct item_link *link = b->seen; link; link = link->next)
        if (link->item->node == node)
            return true;
    if (node->type == JSON_BOOL && node->boolean)
        return true;
    /* Validators of older drafts ignore what is beside $ref: a proof must not rely on it. */
    if (x->w->n_probing && x->w->is_old_draft && json_get(node, "$ref"))
        return ref_add(x, b, item);
    if (++b->n_seen > SET_MAX)
        return schema_fail_limit(x->w, item->place, "too many schemas must hold together");
    b->seen = link_add(x->w, b->seen, item);
    if (!b->seen || !schema_step(x->w, b->n_seen))
        return false;
    return node->type == JSON_BOOL ||
           (ref_add(x, b, item) && all_add(x, b, item) && choice_add(x, b, item, "oneOf", true) &&
            choice_add(x, b, item, "anyOf", false) && rewrites_add(x, b, item));
}

/* ---- oneOf --------------------------------------------------------------------------------- */

/* True if it is certain that the branch and these schemas (any of which may be NULL) together allow
 * no value. The branch's remaining choices are ignored, which only makes a proof harder. */
static bool branch_is_empty(struct schema_walker *w, const struct branch *b,
                            const struct schema_item *one, const struct schema_item *other,
                            const struct schema_item *third)
{
    struct branch first = {.seen = b->seen, .n_seen = b->n_seen};
    const struct schema_item *more[] = {third, other, one};
    for (size_t i = 0; i < 3; i++)
        if (more[i] && !(first.pending = link_add(w, first.pending, more[i])))
            return false;
    struct expansion x = {.w = w};
    struct schema_alternatives alternatives;
    w->n_probing++;
    bool empty = expand(&x, &first, &alternatives) &&
                 schema_alternatives_are_empty(w, &alternatives, PROOF_DEPTH);
    w->n_probing--;
    return empty && !w->failed;
}

/* The schema of objects that must have, or must not have, the property of that name. */
static const struct schema_item *hint_get(struct schema_walker *w, const char *name, size_t len,
                                          bool present)
{
    for (struct schema_hint *h = w->hints; h; h = h->next)
        if (h->present == present && h->len == len && memcmp(h->name, name, len) == 0)
            return h->item;
    struct schema_hint *h = alloc(w, sizeof *h);
    struct schema_item *item = alloc(w, sizeof *item);
    struct json *schema = json_new(&w->arena, JSON_OBJECT);
    struct json *list = json_new(&w->arena, present ? JSON_ARRAY : JSON_OBJECT);
    struct json *entry = present ? json_new_string(&w->arena, name, len)
                                 : json_new_bool(&w->arena, false);
    if (!h || !item || !schema || !list || !entry)
        return schema_step(w, 1), NULL;
    entry->key = name;
    entry->key_len = len;
    json_link(list, entry);
    json_append(&w->arena, schema, present ? "required" : "properties", list);
    json_append(&w->arena, schema, "type", json_new_string(&w->arena, "object", 6));
    *item = (struct schema_item){schema, w->root_place, NULL};
    *h = (struct schema_hint){item, name, len, present, w->hints};
    w->hints = h;
    return item;
}

/* The schemas that a schema consists of: itself, and what $ref and allOf lead to. */
struct parts {
    const struct json *nodes[PARTS_MAX];
    size_t n;
};

static void parts_collect(struct expansion *x, const struct schema_item *item, unsigned depth,
                          struct parts *out)
{
    if (!item || out->n == PARTS_MAX || depth == 0 || item->node->type != JSON_OBJECT)
        return;
    out->nodes[out->n++] = item->node;
    const struct json *ref = json_get(item->node, "$ref");
    if (ref)
        parts_collect(x, schema_resolve(x->w, item, ref), depth - 1, out);
    const struct schema_item *all = schema_child(x->w, item, "allOf");
    size_t index = 0;
    if (all && all->node->type == JSON_ARRAY)
        json_each (node, all->node)
            parts_collect(x, schema_element(x->w, all, node, index++), depth - 1, out);
}

static bool parts_require(const struct parts *parts, const char *name, size_t len)
{
    for (size_t i = 0; i < parts->n; i++) {
        const struct json *required = json_get(parts->nodes[i], "required");
        if (json_is(required, JSON_ARRAY))
            json_each (r, required)
                if (r->type == JSON_STRING && r->text_len == len && memcmp(r->text, name, len) == 0)
                    return true;
    }
    return false;
}

static bool parts_have(const struct parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->n; i++)
        if (json_get(json_get(parts->nodes[i], "properties"), name))
            return true;
    return false;
}

/* Whether a hint keeps `one` apart from `other`, and does not make `one` itself impossible. */
static bool hint_works(struct expansion *x, const struct branch *b, const struct schema_item *one,
                       const struct schema_item *other, const struct schema_item *hint)
{
    return hint && branch_is_empty(x->w, b, one, other, hint) &&
           !branch_is_empty(x->w, b, one, hint, NULL);
}

/* Forbids a property that `there` requires. */
static const struct schema_item *hint_absent(struct expansion *x, const struct branch *b,
                                             const struct schema_item *one,
                                             const struct schema_item *other,
                                             const struct parts *here, const struct parts *there)
{
    for (size_t i = 0; i < there->n; i++) {
        const struct json *required = json_get(there->nodes[i], "required");
        if (!json_is(required, JSON_ARRAY))
            continue;
        json_each (name, required) {
            if (name->type != JSON_STRING || parts_require(here, name->text, name->text_len))
                continue;
            const struct schema_item *hint = hint_get(x->w, name->text, name->text_len, false);
            if (hint_works(x, b, one, other, hint) || x->w->failed)
                return hint;
        }
    }
    return NULL;
}

/* Requires a property whose values differ (`is_shared`), or that `there` does not allow. */
static const struct schema_item *hint_present(struct expansion *x, const struct branch *b,
                                              const struct schema_item *one,
                                              const struct schema_item *other,
                                              const struct parts *here, const struct parts *there,
                                              bool is_shared)
{
    size_t n_tried = 0;
    for (size_t i = 0; i < here->n; i++) {
        const struct json *properties = json_get(here->nodes[i], "properties");
        if (!json_is(properties, JSON_OBJECT))
            continue;
        json_each (property, properties) {
            if (parts_require(here, property->key, property->key_len) ||
                parts_have(there, property->key) != is_shared || ++n_tried > HINTS_MAX)
                continue;
            const struct schema_item *hint = hint_get(x->w, property->key, property->key_len, true);
            if (hint_works(x, b, one, other, hint) || x->w->failed)
                return hint;
        }
    }
    return NULL;
}

/* The schema of arrays that are not empty. */
static const struct schema_item *filled_get(struct schema_walker *w)
{
    if (w->filled)
        return w->filled;
    struct json *schema = json_new(&w->arena, JSON_OBJECT);
    struct json *least = json_new(&w->arena, JSON_NUMBER);
    struct schema_item *item = alloc(w, sizeof *item);
    if (!schema || !least || !item)
        return schema_step(w, 1), NULL;
    least->text = "1";
    least->text_len = 1;
    least->number = 1;
    json_append(&w->arena, schema, "minItems", least);
    json_append(&w->arena, schema, "type", json_new_string(&w->arena, "array", 5));
    *item = (struct schema_item){schema, w->root_place, NULL};
    return w->filled = item;
}

static bool parts_have_items(const struct parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        if (json_get(parts->nodes[i], "items") || json_get(parts->nodes[i], "prefixItems"))
            return true;
    return false;
}

/* A schema that keeps `one` apart from `other`. NULL: none was found, or an error. */
static const struct schema_item *hint_find(struct expansion *x, const struct branch *b,
                                           const struct schema_item *one,
                                           const struct schema_item *other)
{
    struct parts here = {.n = 0}, there = {.n = 0};
    parts_collect(x, one, PARTS_DEPTH, &here);
    parts_collect(x, other, PARTS_DEPTH, &there);
    const struct schema_item *hint = NULL;
    if (!x->w->failed)
        hint = hint_absent(x, b, one, other, &here, &there);
    for (int is_shared = 1; is_shared >= 0 && !hint && !x->w->failed; is_shared--)
        hint = hint_present(x, b, one, other, &here, &there, is_shared);
    if (hint || x->w->failed || !parts_have_items(&here) || !parts_have_items(&there))
        return hint;
    return hint_works(x, b, one, other, filled_get(x->w)) ? x->w->filled : NULL;
}

static bool overlap_refuse(struct expansion *x, const struct choice_link *choice, size_t a,
                           size_t b)
{
    return schema_refuse(x->w, choice->owner->place, "oneOf",
                         "schemas %zu and %zu may both match the same value, so 'oneOf' is "
                         "not supported here: use 'anyOf'",
                         a < b ? a : b, a < b ? b : a);
}

/* Keeps `b`, which has chosen `one`, apart from the other schemas of a oneOf. */
static bool exclusive_add(struct expansion *x, const struct branch *before, struct branch *b,
                          const struct choice_link *choice, const struct schema_item *one,
                          size_t index)
{
    /* A proof that more is impossible covers this too. */
    if (x->w->n_probing || x->w->is_lenient)
        return true;
    size_t i = 0;
    json_each (node, choice->list->node) {
        const struct schema_item *other = schema_element(x->w, choice->list, node, i);
        if (i++ == index)
            continue;
        if (!other)
            return false;
        bool apart = branch_is_empty(x->w, before, one, other, NULL);
        const struct schema_item *hint = apart ? NULL : hint_find(x, before, one, other);
        const struct json *negated = apart || hint ? NULL : schema_negate(x->w, other);
        if (x->w->failed)
            return false;
        if (negated && schema_rewrite_is_partial(x->w, other, "") &&
            branch_is_empty(x->w, before, one, schema_negated_item(x->w, other), NULL))
            negated = NULL; /* this negation would leave nothing */
        if (x->w->failed || (negated && !made_choice_add(x, b, other, negated)))
            return false;
        if (!apart && !hint && !negated)
            return overlap_refuse(x, choice, index, i - 1);
        if (negated && !x->overlap) {
            x->overlap = choice;
            x->overlap_first = index;
            x->overlap_second = i - 1;
        }
        if (hint && !(b->pending = link_add(x->w, b->pending, hint)))
            return false;
    }
    return true;
}

/* ---- splitting ----------------------------------------------------------------------------- */

/* One branch for each schema of a choice; the first of them comes to the top of the stack. */
static bool branch_split(struct expansion *x, const struct branch *b)
{
    const struct choice_link *choice = b->choices;
    struct branch **link = &x->stack, *rest = x->stack;
    size_t index = 0;
    json_each (node, choice->list->node) {
        const struct schema_item *one = item_from(
            x->w, schema_element(x->w, choice->list, node, index), choice->owner);
        struct branch *split = alloc(x->w, sizeof *split);
        if (!one || !split)
            return false;
        *split = *b;
        split->choices = choice->next;
        split->pending = link_add(x->w, NULL, one);
        split->next = rest;
        if (!split->pending ||
            (choice->exclusive && !exclusive_add(x, b, split, choice, one, index)))
            return false;
        *link = split;
        link = &split->next;
        if (++index > ALTERNATIVES_MAX)
            return schema_fail_limit(x->w, choice->owner->place, "too many alternatives");
    }
    return true;
}

/* A branch with nothing left to do is an alternative, unless its types contradict each other. */
static bool branch_finish(struct expansion *x, const struct branch *b)
{
    struct schema_set set = schema_set_new(x->w, b->n_seen);
    if (x->w->failed)
        return false;
    const struct item_link *links[SET_MAX + 1];
    size_t n = 0;
    for (const struct item_link *link = b->seen; link; link = link->next)
        links[n++] = link;
    while (n--) /* in the order in which they were found */
        if (links[n]->item->node->type == JSON_BOOL || !says_nothing(links[n]->item->node))
            schema_set_add(&set, links[n]->item);
    if (set.n) {
        struct schema_facets f;
        x->w->n_probing++;
        bool ok = schema_facets(x->w, &set, &f);
        x->w->n_probing--;
        if (!ok)
            return false;
        if (!f.types)
            return true;
    }
    if (x->w->n_probing && x->n == PROOF_MAX) {
        x->too_many = true;
        return true;
    }
    if (x->n == ALTERNATIVES_MAX)
        return schema_fail_limit(x->w, set.n ? set.items[0]->place : x->w->root_place,
                                 "too many alternatives of anyOf and oneOf together");
    struct set_link *link = alloc(x->w, sizeof *link);
    if (!link)
        return false;
    link->set = set;
    *x->last = link;
    x->last = &link->next;
    x->n++;
    return true;
}

static bool expand(struct expansion *x, struct branch *first, struct schema_alternatives *out)
{
    x->last = &x->first;
    x->stack = first;
    while (x->stack && !x->too_many) {
        struct branch *b = x->stack;
        x->stack = b->next;
        while (b->pending) {
            const struct schema_item *item = b->pending->item;
            b->pending = b->pending->next;
            if (!item_take(x, b, item))
                return false;
        }
        if (!(b->choices ? branch_split(x, b) : branch_finish(x, b)))
            return false;
    }
    *out = (struct schema_alternatives){
        arena_alloc_array(&x->w->arena, x->n + 1, sizeof *out->sets), 0, x->too_many,
        x->is_rewritten};
    if (!out->sets)
        return schema_step(x->w, 1);
    for (const struct set_link *link = x->first; link; link = link->next)
        out->sets[out->n++] = link->set;
    return true;
}

bool schema_expand(struct schema_walker *w, const struct schema_set *set,
                   struct schema_alternatives *out)
{
    struct branch first = {0};
    struct expansion x = {.w = w};
    for (size_t i = set->n; i-- > 0;) /* a list that grows at its front: the last first */
        if (!(first.pending = link_add(w, first.pending, set->items[i])))
            return false;
    if (!expand(&x, &first, out))
        return false;
    if (out->n == 0 && x.overlap && !schema_is_empty(w, set, PROOF_DEPTH))
        return overlap_refuse(&x, x.overlap, x.overlap_first, x.overlap_second);
    if (out->n == 0 && x.partial && !w->n_probing)
        return schema_refuse(w, x.partial->place, NULL, "'%s' is not supported here",
                             x.partial_keyword);
    return true;
}
