/* Compiles JSON Schema to a grammar: the main walk. Rules are defined from a list of tasks, not by
 * recursion, so no schema, however deep or recursive, can overflow the stack. Runs on a worker
 * thread; all work is bounded, because schemas come from clients. The grammar may be narrower than
 * the schema, never wider; an unsupported keyword is an error. */
#include "prompt/schema/json_schema_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    MEMO_SLOTS = 1 << 15,
    RULES_MAX = MEMO_SLOTS / 2,
    STEPS_MAX = 4000000,
    BUILDER_MAX = 900000, /* grammar_builder_size */
    ARENA_MAX_BYTES = 256 << 20,
    POINTER_MAX_BYTES = 200, /* of a place in a message */
};

/* The rule of a set: found by the nodes in it. */
struct schema_memo {
    struct schema_memo *next;
    uint64_t hash;
    const struct json **nodes; /* sorted */
    size_t n;
    bool flag;
    grammar_expr rule;
};

struct schema_task {
    struct schema_task *next;
    struct schema_set set;
    grammar_expr rule;
};

/* ---- errors and limits --------------------------------------------------------------------- */

static void place_write(struct strbuf *out, const struct schema_place *place)
{
    const struct schema_place *path[2 * JSON_MAX_DEPTH + 2];
    size_t n = 0;
    for (; place && place->parent && n < sizeof path / sizeof *path; place = place->parent)
        path[n++] = place;
    strbuf_addc(out, '#');
    while (n--) {
        if (!path[n]->token) {
            strbuf_addf(out, "/%zu", path[n]->index);
            continue;
        }
        strbuf_addc(out, '/');
        for (size_t i = 0; i < path[n]->len; i++) {
            char c = path[n]->token[i];
            if (c == '~' || c == '/')
                strbuf_adds(out, c == '~' ? "~0" : "~1");
            else
                strbuf_addc(out, c && (unsigned char)c < 0x20 ? '?' : c);
        }
    }
}

static void fail_write(struct schema_walker *w, enum error_code code,
                       const struct schema_place *place, const char *keyword, const char *what)
{
    if (w->failed)
        return;
    struct strbuf at = STRBUF_INIT;
    place_write(&at, place);
    if (keyword)
        strbuf_addf(&at, "/%s", keyword);
    const char *text = strbuf_str(&at);
    size_t skip = at.len > POINTER_MAX_BYTES ? at.len - POINTER_MAX_BYTES : 0;
    while ((text[skip] & 0xc0) == 0x80) /* not in the middle of a character */
        skip++;
    error_set(w->err, code, "%s%s: %s", skip ? "..." : "", text + skip, what);
    if (place && place->node && w->err)
        w->err->position = place->node->position;
    strbuf_free(&at);
    w->failed = true;
}

bool schema_fail(struct schema_walker *w, const struct schema_place *place, const char *keyword,
                 const char *format, ...)
{
    char what[240];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    fail_write(w, ERROR_INPUT, place, keyword, what);
    return false;
}

bool schema_fail_limit(struct schema_walker *w, const struct schema_place *place, const char *what)
{
    fail_write(w, ERROR_LIMIT, place, NULL, what);
    return false;
}

bool schema_step(struct schema_walker *w, size_t n)
{
    w->n_steps += n;
    if (w->n_steps > STEPS_MAX)
        schema_fail_limit(w, w->root_place, "this schema takes too long to make a grammar of");
    if (w->arena.failed)
        schema_fail_limit(w, w->root_place, "this schema needs too much memory");
    if (grammar_builder_size(w->b) > BUILDER_MAX)
        schema_fail_limit(w, w->root_place, "the grammar of this schema is too large");
    return !w->failed;
}

/* ---- places, items and sets ---------------------------------------------------------------- */

static struct schema_place *place_new(struct schema_walker *w, struct schema_place place)
{
    struct schema_place *p = arena_alloc(&w->arena, sizeof *p);
    if (p)
        *p = place;
    else
        schema_step(w, 1);
    return p;
}

struct schema_place *schema_place_key(struct schema_walker *w, const struct schema_place *parent,
                                      const struct json *node)
{
    return place_new(w, (struct schema_place){parent, node, node->key, node->key_len, 0});
}

struct schema_place *schema_place_index(struct schema_walker *w, const struct schema_place *parent,
                                        const struct json *node, size_t index)
{
    return place_new(w, (struct schema_place){parent, node, NULL, 0, index});
}

static const struct schema_item *item_new(struct schema_walker *w, const struct json *node,
                                          const struct schema_place *place)
{
    struct schema_item *item = place ? arena_alloc(&w->arena, sizeof *item) : NULL;
    if (item)
        *item = (struct schema_item){node, place, NULL};
    else
        schema_step(w, 1);
    return item;
}

const struct schema_item *schema_member(struct schema_walker *w, const struct schema_item *parent,
                                        const struct json *node)
{
    return parent ? item_new(w, node, schema_place_key(w, parent->place, node)) : NULL;
}

const struct schema_item *schema_element(struct schema_walker *w, const struct schema_item *parent,
                                         const struct json *node, size_t index)
{
    return parent ? item_new(w, node, schema_place_index(w, parent->place, node, index)) : NULL;
}

const struct schema_item *schema_child(struct schema_walker *w, const struct schema_item *item,
                                       const char *keyword)
{
    const struct json *node = json_get(item->node, keyword);
    return node ? schema_member(w, item, node) : NULL;
}

struct schema_set schema_set_new(struct schema_walker *w, size_t capacity)
{
    struct schema_set set = {arena_alloc_array(&w->arena, capacity + 1, sizeof *set.items), 0};
    if (!set.items)
        schema_step(w, 1);
    return set;
}

bool schema_set_has(const struct schema_set *set, const struct json *node)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->items[i]->node == node)
            return true;
    return false;
}

void schema_set_add(struct schema_set *set, const struct schema_item *item)
{
    if (!item || !set->items || schema_set_has(set, item->node))
        return;
    if (item->node->type == JSON_BOOL && item->node->boolean)
        return;
    if (item->node->type == JSON_OBJECT && !item->node->first)
        return;
    set->items[set->n++] = item;
}

bool schema_set_is_never(const struct schema_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->items[i]->node->type == JSON_BOOL)
            return true; /* `true` is never added */
    return false;
}

/* ---- rules --------------------------------------------------------------------------------- */

static int node_compare(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const struct json *const *)a;
    uintptr_t y = (uintptr_t) * (const struct json *const *)b;
    return (x > y) - (x < y);
}

/* Whether unevaluatedProperties of a schema in the set sees all others of it: what it means
 * depends on that, so it belongs to the rule's identity. */
static bool set_flag(const struct schema_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        if (!json_get(set->items[i]->node, "unevaluatedProperties"))
            continue;
        for (size_t j = 0; j < set->n; j++) {
            const struct schema_item *up = set->items[j];
            while (up && up->node != set->items[i]->node)
                up = up->from;
            if (!up)
                return true;
        }
    }
    return false;
}

/* The rule of an alternative; a new one is put on the list of tasks. */
static grammar_expr rule_get(struct schema_walker *w, const struct schema_set *set)
{
    const struct json **nodes = arena_alloc_array(&w->arena, set->n, sizeof *nodes);
    if (!schema_step(w, set->n) || !nodes)
        return GRAMMAR_NONE;
    for (size_t i = 0; i < set->n; i++)
        nodes[i] = set->items[i]->node;
    qsort(nodes, set->n, sizeof *nodes, node_compare);
    bool flag = set_flag(set);
    uint64_t hash = hash_pair(hash_bytes(nodes, set->n * sizeof *nodes), flag);
    struct schema_memo **slot = &w->memo[hash % MEMO_SLOTS];
    for (struct schema_memo *m = *slot; m; m = m->next)
        if (m->hash == hash && m->n == set->n && m->flag == flag &&
            memcmp(m->nodes, nodes, set->n * sizeof *nodes) == 0)
            return m->rule;
    struct schema_memo *memo = arena_alloc(&w->arena, sizeof *memo);
    struct schema_task *task = arena_alloc(&w->arena, sizeof *task);
    if (!memo || !task)
        return schema_step(w, 1), GRAMMAR_NONE;
    if (++w->n_rules > RULES_MAX) {
        schema_fail_limit(w, set->items[0]->place, "too many combinations of schemas");
        return GRAMMAR_NONE;
    }
    *memo = (struct schema_memo){*slot, hash, nodes, set->n, flag, grammar_rule(w->b)};
    *slot = memo;
    *task = (struct schema_task){NULL, *set, memo->rule};
    *w->last_task = task;
    w->last_task = &task->next;
    return memo->rule;
}

grammar_expr schema_value(struct schema_walker *w, const struct schema_set *set)
{
    struct schema_alternatives alternatives;
    if (w->failed || !schema_expand(w, set, &alternatives))
        return GRAMMAR_NONE;
    if (alternatives.n == 0)
        return grammar_never(w->b);
    grammar_expr *parts = arena_alloc_array(&w->arena, alternatives.n, sizeof *parts);
    if (!parts)
        return schema_step(w, 1), GRAMMAR_NONE;
    for (size_t i = 0; i < alternatives.n; i++)
        parts[i] = alternatives.sets[i].n ? rule_get(w, &alternatives.sets[i]) : w->text.value;
    return alternatives.n == 1 ? parts[0] : grammar_choice(w->b, parts, alternatives.n);
}

/* The values that enum and const name, as far as the other keywords allow them. */
static grammar_expr values_write(struct schema_walker *w, const struct schema_facets *f)
{
    grammar_expr *parts = arena_alloc_array(&w->arena, f->n_values + 1, sizeof *parts);
    size_t n = 0;
    for (size_t i = 0; parts && i < f->n_values && schema_step(w, 1); i++)
        if (schema_fits(w, f->values[i], f))
            parts[n++] = json_text_value(&w->text, f->values[i]);
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

static grammar_expr alternative_write(struct schema_walker *w, const struct schema_set *set)
{
    struct schema_facets f;
    if (!schema_facets(w, set, &f))
        return GRAMMAR_NONE;
    if (f.types & TYPE_ARRAY && !schema_array_check(w, &f))
        return GRAMMAR_NONE;
    if (f.types & TYPE_OBJECT && !schema_object_check(w, &f))
        return GRAMMAR_NONE;
    if (f.has_values)
        return values_write(w, &f);
    grammar_expr parts[6];
    size_t n = 0;
    if (f.types & TYPE_OBJECT)
        parts[n++] = schema_object(w, &f);
    if (f.types & TYPE_ARRAY)
        parts[n++] = schema_array(w, &f);
    if (f.types & TYPE_STRING)
        parts[n++] = schema_string(w, &f);
    if (f.types & TYPE_NUMBER)
        parts[n++] = schema_number(w, &f);
    if (f.types & TYPE_BOOLEAN)
        parts[n++] = w->text.boolean;
    if (f.types & TYPE_NULL)
        parts[n++] = w->text.null;
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static bool walker_init(struct schema_walker *w, struct grammar_builder *b, const struct json *root,
                        enum json_style style, enum json_schema_mode mode, struct error *err)
{
    static const struct json never = {.type = JSON_BOOL};
    *w = (struct schema_walker){
        .b = b, .root = root, .err = err, .is_lenient = mode == SCHEMA_LENIENT};
    w->arena.limit_bytes = ARENA_MAX_BYTES;
    w->last_task = &w->tasks;
    w->memo = arena_alloc_array(&w->arena, MEMO_SLOTS, sizeof *w->memo);
    w->root_place = place_new(w, (struct schema_place){.node = root});
    w->never = item_new(w, &never, w->root_place);
    if (!w->memo || w->failed)
        return schema_step(w, 1);
    json_text_init(&w->text, b, &w->arena, style);
    return schema_index_resources(w);
}

/* Where the schema stands below the root, if it does: messages begin there. */
static const struct schema_place *place_find(struct schema_walker *w, const struct schema_place *at,
                                             const struct json *schema)
{
    if (at->node == schema)
        return at;
    if (at->node->type != JSON_OBJECT && at->node->type != JSON_ARRAY)
        return NULL;
    size_t index = 0;
    json_each (child, at->node) {
        const struct schema_place *place = at->node->type == JSON_OBJECT
                                               ? schema_place_key(w, at, child)
                                               : schema_place_index(w, at, child, index++);
        const struct schema_place *found = place && schema_step(w, 1) ? place_find(w, place, schema)
                                                                      : NULL;
        if (found || w->failed)
            return found;
    }
    return NULL;
}

grammar_expr json_schema_add(struct grammar_builder *b, const struct json *schema,
                             const struct json *root, enum json_style style,
                             enum json_schema_mode mode, struct error *err)
{
    struct schema_walker w;
    grammar_expr out = GRAMMAR_NONE;
    if (walker_init(&w, b, root, style, mode, err)) {
        const struct schema_place *place = place_find(&w, w.root_place, schema);
        struct schema_set set = schema_set_new(&w, 1);
        schema_set_add(&set, item_new(&w, schema, place ? place : w.root_place));
        out = schema_value(&w, &set);
        for (struct schema_task *task = w.tasks; task && !w.failed; task = task->next)
            if (schema_step(&w, 1))
                grammar_define(b, task->rule, alternative_write(&w, &task->set));
        schema_step(&w, 0);
    }
    if (!w.failed && out == GRAMMAR_NONE)
        schema_fail_limit(&w, w.root_place, "the grammar of this schema is too large");
    arena_free(&w.arena);
    return w.failed ? GRAMMAR_NONE : out;
}
