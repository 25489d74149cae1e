/* Compiles JSON Schema to a grammar: the main walk. Rules are defined from a list of tasks, not by
 * recursion, so no schema, however deep or recursive, can overflow the stack. Runs on a worker
 * thread; all work is bounded, because schemas come from clients. The grammar may be narrower than
 * the schema, never wider; an unsupported keyword is an error.
 *
 * A rule that cannot be enforced does not end the walk. It may be one branch of an anyOf that has
 * others. So each rule keeps a list of the values it uses. When all rules are written, failures
 * spread from rule to rule:
 *
 *   rule    fails if its own keywords do, or one of its values does
 *   value   fails if all of its alternatives do, or all but null
 */
#include "prompt/schema/json_schema_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/task.h"

enum {
    MEMO_SLOTS = 1 << 15,
    RULES_MAX = MEMO_SLOTS / 2,
    STEPS_MAX = 4000000,
    BUILDER_MAX = 900000, /* grammar_builder_size */
    ARENA_MAX_BYTES = 256 << 20,
    POINTER_MAX_BYTES = 200, /* for a place in a message */
};

/* The rule of a set, found by its nodes. */
struct schema_memo {
    struct schema_memo *next;
    uint64_t hash;
    const struct json **nodes; /* sorted */
    size_t n;
    bool flag;
    grammar_expr rule, body;
    unsigned types;             /* of its values */
    struct schema_use *uses;    /* in its body */
    const struct error *reason; /* why it cannot be enforced; NULL: it can */
};

/* A value in the body of a rule. */
struct schema_use {
    struct schema_use *next;
    struct schema_memo **alternatives; /* NULL: any value */
    size_t n;
    bool needs_all; /* no alternative may be omitted */
};

struct schema_task {
    struct schema_task *next;
    struct schema_set set;
    struct schema_memo *memo;
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

static const struct schema_place *place_find(struct schema_walker *w, const struct schema_place *at,
                                             const struct json *schema);

/* The place in the client's document. Schemas made by rewrite.c have none, but parts shared with
 * the document keep their position in it. */
static const struct schema_place *place_own(struct schema_walker *w,
                                            const struct schema_place *place)
{
    bool is_own = true;
    while (place && place->parent && schema_is_made(w, place->node))
        place = place->parent;
    for (const struct schema_place *p = place; p && p->parent; p = p->parent)
        is_own &= !schema_is_made(w, p->node) &&
                  p->parent->node->type == (p->token ? JSON_OBJECT : JSON_ARRAY);
    const struct schema_place *found = is_own ? NULL : place_find(w, w->root_place, place->node);
    return found ? found : place;
}

static void fail_write(struct schema_walker *w, enum error_code code,
                       const struct schema_place *place, const char *keyword, const char *what)
{
    if (w->failed)
        return;
    struct strbuf at = STRBUF_INIT;
    place = place_own(w, place);
    if (w->failed)
        return; /* the limit on work was already reached */
    place_write(&at, place);
    if (keyword)
        strbuf_addf(&at, "/%s", keyword);
    const char *text = strbuf_str(&at);
    size_t skip = at.len > POINTER_MAX_BYTES ? at.len - POINTER_MAX_BYTES : 0;
    while ((text[skip] & 0xc0) == 0x80) /* do not start inside a character */
        skip++;
    error_set(w->err, code, "%s%s: %s", skip ? "..." : "", text + skip, what);
    if (place && place->node)
        w->err->position = place->node->position;
    strbuf_free(&at);
    w->failed = true;
    w->is_refusal = false;
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

bool schema_refuse(struct schema_walker *w, const struct schema_place *place, const char *keyword,
                   const char *format, ...)
{
    char what[240];
    va_list args;
    if (w->failed)
        return false;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    fail_write(w, ERROR_INPUT, place, keyword, what);
    w->is_refusal = true;
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
    if (!task_goes_on(16 * n))
        schema_fail_limit(w, w->root_place, "the work was stopped");
    if (w->n_steps > STEPS_MAX)
        schema_fail_limit(w, w->root_place, "this schema takes too long to compile");
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

/* True if unevaluatedProperties of a schema in the set sees all the others. Its meaning depends on
 * that, so this is part of the rule's identity. */
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

/* The rule of an alternative; a new one is added to the list of tasks. */
static struct schema_memo *rule_get(struct schema_walker *w, const struct schema_set *set)
{
    const struct json **nodes = arena_alloc_array(&w->arena, set->n, sizeof *nodes);
    if (!schema_step(w, set->n) || !nodes)
        return NULL;
    for (size_t i = 0; i < set->n; i++)
        nodes[i] = set->items[i]->node;
    qsort(nodes, set->n, sizeof *nodes, node_compare);
    bool flag = set_flag(set);
    uint64_t hash = hash_pair(hash_bytes(nodes, set->n * sizeof *nodes), flag);
    struct schema_memo **slot = &w->memo[hash % MEMO_SLOTS];
    for (struct schema_memo *m = *slot; m; m = m->next)
        if (m->hash == hash && m->n == set->n && m->flag == flag &&
            memcmp(m->nodes, nodes, set->n * sizeof *nodes) == 0)
            return m;
    struct schema_memo *memo = arena_alloc(&w->arena, sizeof *memo);
    struct schema_task *task = arena_alloc(&w->arena, sizeof *task);
    if (!memo || !task)
        return schema_step(w, 1), NULL;
    if (++w->n_rules > RULES_MAX) {
        schema_fail_limit(w, set->items[0]->place, "too many combinations of schemas");
        return NULL;
    }
    *memo = (struct schema_memo){.next = *slot,
                                 .hash = hash,
                                 .nodes = nodes,
                                 .n = set->n,
                                 .flag = flag,
                                 .rule = grammar_rule(w->b),
                                 .types = TYPE_ANY};
    *slot = memo;
    *task = (struct schema_task){NULL, *set, memo};
    *w->last_task = task;
    w->last_task = &task->next;
    return memo;
}

bool schema_pass_over(struct schema_walker *w)
{
    if (!w->failed || !w->is_lenient || w->err->code != ERROR_INPUT)
        return false;
    w->failed = false;
    return true;
}

grammar_expr schema_value(struct schema_walker *w, const struct schema_set *set)
{
    struct schema_alternatives alternatives;
    if (w->failed)
        return GRAMMAR_NONE;
    if (!schema_expand(w, set, &alternatives))
        return w->n_rules && schema_pass_over(w) ? w->text.value : GRAMMAR_NONE;
    size_t n = alternatives.n;
    if (n == 0)
        return grammar_never(w->b);
    grammar_expr *parts = arena_alloc_array(&w->arena, n, sizeof *parts);
    struct schema_memo **memos = arena_alloc_array(&w->arena, n, sizeof *memos);
    struct schema_use *use = arena_alloc(&w->arena, sizeof *use);
    if (!parts || !memos || !use)
        return schema_step(w, 1), GRAMMAR_NONE;
    for (size_t i = 0; i < n; i++) {
        memos[i] = alternatives.sets[i].n ? rule_get(w, &alternatives.sets[i]) : NULL;
        if (w->failed)
            return GRAMMAR_NONE;
        parts[i] = memos[i] ? memos[i]->rule : w->text.value;
    }
    *use = (struct schema_use){*w->uses, memos, n, alternatives.is_rewritten};
    *w->uses = use;
    return n == 1 ? parts[0] : grammar_choice(w->b, parts, n);
}

/* The values of enum and const that the other keywords allow. */
static grammar_expr values_write(struct schema_walker *w, const struct schema_facets *f)
{
    grammar_expr *parts = arena_alloc_array(&w->arena, f->n_values + 1, sizeof *parts);
    size_t n = 0;
    for (size_t i = 0; parts && i < f->n_values && schema_step(w, 1); i++)
        if (schema_fits(w, f->values[i], f))
            parts[n++] = json_text_value(&w->text, f->values[i]);
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

static grammar_expr alternative_write(struct schema_walker *w, const struct schema_set *set,
                                      unsigned *types)
{
    struct schema_facets f;
    bool ok = schema_facets(w, set, &f);
    *types = f.types;
    if (!ok)
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

/* ---- what cannot be enforced --------------------------------------------------------------- */

/* Any value of these types. */
static grammar_expr types_write(struct schema_walker *w, unsigned types)
{
    const grammar_expr texts[] = {w->text.object, w->text.array,   w->text.string,
                                  w->text.number, w->text.boolean, w->text.null};
    static const unsigned bits[] = {TYPE_OBJECT,   TYPE_ARRAY,   TYPE_STRING,
                                    TYPE_FRACTION, TYPE_BOOLEAN, TYPE_NULL};
    grammar_expr parts[7];
    size_t n = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        if (types & bits[i])
            parts[n++] = texts[i];
    if ((types & TYPE_NUMBER) == TYPE_INTEGER)
        parts[n++] = w->text.integer;
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}

static void task_run(struct schema_walker *w, const struct schema_task *task)
{
    struct schema_memo *memo = task->memo;
    if (!schema_step(w, 1))
        return;
    w->uses = &memo->uses;
    memo->body = alternative_write(w, &task->set, &memo->types);
    if (schema_pass_over(w)) {
        memo->body = types_write(w, memo->types);
        memo->uses = NULL;
    } else if (w->failed && w->is_refusal) {
        struct error *reason = arena_alloc(&w->arena, sizeof *reason);
        if (!reason) {
            w->failed = false;
            schema_step(w, 1);
            return;
        }
        *reason = w->failure;
        memo->reason = reason;
        w->failed = false;
    }
}

/* Why a value cannot be enforced; NULL: it can. It is not enough if only null is left: an optional
 * value would then always be absent, and nobody would know why. */
static const struct error *use_reason(const struct schema_use *use)
{
    const struct error *first = NULL;
    bool is_useful = false;
    for (size_t i = 0; i < use->n; i++) {
        const struct schema_memo *memo = use->alternatives[i];
        if (memo && memo->reason)
            first = first ? first : memo->reason;
        else
            is_useful |= !memo || memo->types & ~(unsigned)TYPE_NULL;
    }
    return is_useful && !use->needs_all ? NULL : first;
}

static const struct error *uses_reason(const struct schema_use *use)
{
    const struct error *reason = NULL;
    for (; use; use = use->next) { /* from the last to the first in the schema */
        const struct error *one = use_reason(use);
        reason = one ? one : reason;
    }
    return reason;
}

/* Propagates reasons until nothing changes. */
static void reasons_spread(struct schema_walker *w)
{
    for (bool changed = true; changed && !w->failed;) {
        changed = false;
        for (struct schema_task *task = w->tasks; task && schema_step(w, 1); task = task->next) {
            struct schema_memo *memo = task->memo;
            if (!memo->reason)
                changed |= (memo->reason = uses_reason(memo->uses)) != NULL;
        }
    }
}

/* Writes all rules that `uses` lead to; omits what cannot be enforced, if it may be omitted. */
static void tasks_run(struct schema_walker *w, struct schema_use **uses)
{
    bool is_refused = false;
    for (struct schema_task *task = w->tasks; task && !w->failed; task = task->next) {
        task_run(w, task);
        is_refused |= task->memo->reason != NULL;
    }
    if (is_refused && !w->failed)
        reasons_spread(w);
    const struct error *reason = w->failed ? NULL : uses_reason(*uses);
    if (reason) {
        w->failure = *reason;
        w->failed = true;
    }
    for (struct schema_task *task = w->tasks; task && !w->failed; task = task->next)
        grammar_define(w->b, task->memo->rule,
                       task->memo->reason ? grammar_never(w->b) : task->memo->body);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static bool walker_init(struct schema_walker *w, struct grammar_builder *b, const struct json *root,
                        enum json_style style, enum json_schema_mode mode)
{
    static const struct json never = {.type = JSON_BOOL};
    *w = (struct schema_walker){.b = b, .root = root, .is_lenient = mode == SCHEMA_LENIENT};
    w->err = &w->failure;
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

/* The place of the schema below the root, if it is there; messages start with it. */
static const struct schema_place *place_find(struct schema_walker *w, const struct schema_place *at,
                                             const struct json *schema)
{
    if (at->node == schema || (schema->position && at->node->position == schema->position &&
                               at->node->type == schema->type))
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
    struct schema_use *uses = NULL;
    grammar_expr out = GRAMMAR_NONE;
    if (walker_init(&w, b, root, style, mode)) {
        const struct schema_place *place = place_find(&w, w.root_place, schema);
        struct schema_set set = schema_set_new(&w, 1);
        schema_set_add(&set, item_new(&w, schema, place ? place : w.root_place));
        w.uses = &uses;
        out = schema_value(&w, &set);
        tasks_run(&w, &uses);
        schema_step(&w, 0);
    }
    if (!w.failed && out == GRAMMAR_NONE)
        schema_fail_limit(&w, w.root_place, "the grammar of this schema is too large");
    if (w.failed && err)
        *err = w.failure;
    arena_free(&w.arena);
    return w.failed ? GRAMMAR_NONE : out;
}
