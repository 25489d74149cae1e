#ifndef RADISH_PROMPT_SCHEMA_JSON_SCHEMA_INTERNAL_H
#define RADISH_PROMPT_SCHEMA_JSON_SCHEMA_INTERNAL_H

#include "prompt/grammar/text_dfa.h"
#include "prompt/schema/json_schema.h"
#include "prompt/schema/json_text.h"

/* Shared by the files of this room.
 *
 * The unit of work is not a schema but a set of schemas that must all hold: allOf and $ref add
 * schemas to the set. A set is expanded into alternatives (anyOf, oneOf) whose schemas have only
 * direct keywords left; one alternative is one grammar rule. The schema of a property or an item is
 * again a set: what each schema says about it.
 *
 *   {"allOf": [A, B], "properties": P}       set {S}  ──expand──►  {S, A, B} ──► one rule
 *   {"anyOf": [A, B], "type": T}             set {S}  ──expand──►  {S, A} | {S, B}
 *   value of "x" in {S, A, B}                set {S.properties.x, A.additionalProperties, ...}
 *
 * So every combination is a set of nodes of the document. There are finitely many, and rules are
 * memoised by set, so recursion ends. */

/* The place of a schema in the document, for messages and for resolving relative references. */
struct schema_place {
    const struct schema_place *parent;
    const struct json *node;
    const char *token; /* the key; NULL: an index */
    size_t len, index;
};

/* A schema of a set. `from` is the schema whose $ref, allOf, anyOf or oneOf added it. */
struct schema_item {
    const struct json *node; /* an object or a boolean */
    const struct schema_place *place;
    const struct schema_item *from;
};

struct schema_set {
    const struct schema_item **items;
    size_t n;
};

struct schema_alternatives {
    struct schema_set *sets; /* none: no value is allowed */
    size_t n;
    bool is_partial;   /* in a proof: not all are listed */
    bool is_rewritten; /* some come from if, not or a dependency, not from anyOf or oneOf */
};

struct schema_memo;
struct schema_task;
struct schema_use;
struct schema_resource;
struct schema_hint;
struct schema_pattern;
struct schema_rewrite;

struct schema_walker {
    struct grammar_builder *b;
    struct json_text text;
    struct arena arena;
    const struct json *root;
    const struct schema_place *root_place;
    struct error failure;
    struct error *err;         /* &failure, */
    struct error ignored;      /* ... or this while a failure only ends a proof */
    bool failed;               /* and `err` says why */
    bool is_refusal;           /* the failure is a keyword that cannot be enforced */
    bool is_lenient;           /* unsupported keywords are ignored */
    bool is_old_draft;         /* $schema names a draft before 2019-09 */
    bool has_unevaluated;      /* unevaluatedProperties or unevaluatedItems is in the document */
    bool is_partial;           /* the negation at hand does not allow all that it should */
    unsigned n_negating;       /* JSON values that this negation has made; bounded */
    unsigned n_probing;        /* > 0: no grammar is built, unsupported keywords are not errors */
    size_t n_steps;            /* work done so far; bounded */
    struct schema_memo **memo; /* [SCHEMA_MEMO_SLOTS] rules by their sets */
    size_t n_rules;
    struct schema_task *tasks, **last_task; /* rules still to be defined */
    struct schema_use **uses;               /* the values of the rule being written */
    struct schema_resource *resources;      /* the root and everything with a $id */
    struct schema_hint *hints;              /* schemas about one property each */
    struct schema_pattern *patterns;        /* automata of patterns, by their text */
    struct schema_rewrite *rewrites;        /* keywords as alternatives */
    const struct schema_item *never;        /* the schema `false` */
    const struct schema_item *filled;       /* ... of arrays with items; NULL: not yet */
    struct json_text *single;               /* texts of which each value has one; NULL: not yet */
};

/* ---- json_schema.c: the walk ----------------------------------------------------------------- */

/* All three set the error, prefixed with the place as a JSON pointer, and return false.
 * schema_fail is for schemas that are wrong. schema_refuse is for those that are right but cannot
 * be enforced: an anyOf then goes on without that branch. */
__attribute__((format(printf, 4, 5))) bool schema_fail(struct schema_walker *w,
                                                       const struct schema_place *place,
                                                       const char *keyword, const char *format,
                                                       ...);
__attribute__((format(printf, 4, 5))) bool schema_refuse(struct schema_walker *w,
                                                         const struct schema_place *place,
                                                         const char *keyword, const char *format,
                                                         ...);
bool schema_fail_limit(struct schema_walker *w, const struct schema_place *place, const char *what);
/* In lenient mode: clears a failure that is not a limit, and returns true. */
bool schema_pass_over(struct schema_walker *w);
/* Counts work; false: the limit is reached. */
bool schema_step(struct schema_walker *w, size_t n);

struct schema_place *schema_place_key(struct schema_walker *w, const struct schema_place *parent,
                                      const struct json *node);
struct schema_place *schema_place_index(struct schema_walker *w, const struct schema_place *parent,
                                        const struct json *node, size_t index);
/* The value of a schema's keyword; below it, the schema at a key or an index. */
const struct schema_item *schema_child(struct schema_walker *w, const struct schema_item *item,
                                       const char *keyword);
const struct schema_item *schema_member(struct schema_walker *w, const struct schema_item *parent,
                                        const struct json *node);
const struct schema_item *schema_element(struct schema_walker *w, const struct schema_item *parent,
                                         const struct json *node, size_t index);
/* Adds `item` to a set that has room for it, unless it has no effect. */
void schema_set_add(struct schema_set *set, const struct schema_item *item);
struct schema_set schema_set_new(struct schema_walker *w, size_t capacity);
bool schema_set_has(const struct schema_set *set, const struct json *node);
/* True if the set contains the schema `false`. */
bool schema_set_is_never(const struct schema_set *set);

/* The values that all schemas of the set allow. */
grammar_expr schema_value(struct schema_walker *w, const struct schema_set *set);

/* ---- ref.c ----------------------------------------------------------------------------------- */

bool schema_index_resources(struct schema_walker *w);
/* Resolves a $ref; NULL: failed, with the error set. */
const struct schema_item *schema_resolve(struct schema_walker *w, const struct schema_item *item,
                                         const struct json *ref);

/* ---- expand.c -------------------------------------------------------------------------------- */

bool schema_expand(struct schema_walker *w, const struct schema_set *set,
                   struct schema_alternatives *out);

/* ---- rewrite.c ------------------------------------------------------------------------------- */

/* Rewrites not, if, dependentRequired, dependentSchemas or dependencies of a schema as an array of
 * arrays of schemas: of each array, one must hold. NULL: it cannot be expressed, or an error. */
const struct json *schema_rewrite(struct schema_walker *w, const struct schema_item *item,
                                  const char *keyword);
/* An array of schemas: where any of them holds, `item` does not. NULL as above. */
const struct json *schema_negate(struct schema_walker *w, const struct schema_item *item);
/* Whether a rewrite, or a negation (""), leaves out values for which there is no schema. */
bool schema_rewrite_is_partial(const struct schema_walker *w, const struct schema_item *item,
                               const char *keyword);
/* The same as one schema. */
const struct schema_item *schema_negated_item(struct schema_walker *w,
                                              const struct schema_item *item);
/* Whether the node was made by a rewrite, and is not part of the document. */
bool schema_is_made(const struct schema_walker *w, const struct json *node);

/* ---- facets.c -------------------------------------------------------------------------------- */

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are not integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ANY = 127,
};

/* An exact number: 0.DIGITS times 10 to the power of `point`, without leading or trailing zeros.
 * The digits are not copied: they stay in the text of the number. */
struct decimal {
    bool negative;
    uint32_t n; /* digits; 0: the number is 0 */
    int64_t point;
    const char *digits; /* the first one */
    uint32_t dot;       /* number of digits before the text's point */
};

struct number_bound {
    bool is_set, exclusive;
    struct decimal value;
    struct decimal plain; /* the same for numbers without an exponent; stricter if it is large */
};

/* A pattern or a format, as a regular expression that matches whole texts. */
struct string_rule {
    const char *text; /* the expression, which identifies the rule */
    size_t len;
    bool is_format;
    bool is_negated;          /* texts must not match it */
    const struct json *names; /* not NULL: the texts themselves, instead of an expression */
    const struct schema_item *item;
    struct string_rule *next;
};

/* The combined constraints of all schemas of an alternative. */
struct schema_facets {
    const struct schema_set *set;
    unsigned types;
    bool has_values; /* enum, const: only these, still to be checked */
    const struct json **values;
    size_t n_values;
    /* strings */
    uint32_t min_length, max_length;
    struct string_rule *rules;
    /* numbers */
    struct number_bound low, high;
    uint64_t multiple;                /* multipleOf is multiple * 10^-decimals; 0: any number */
    int decimals;                     /* may be negative */
    const struct schema_item *unheld; /* has unsupported bounds or multipleOf */
    /* arrays and objects */
    uint32_t min_items, max_items, min_members, max_members;
    const struct schema_item *unevaluated; /* has unevaluatedProperties: false */
};

bool schema_facets(struct schema_walker *w, const struct schema_set *set,
                   struct schema_facets *out);

/* ---- number.c -------------------------------------------------------------------------------- */

/* False: the exponent is too large even for this. */
bool decimal_parse(const char *text, size_t len, struct decimal *out);
int decimal_compare(const struct decimal *a, const struct decimal *b);
bool schema_number_facets(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f);
/* Lenient: leaves out a multipleOf or a bound that cannot be held to. */
void schema_number_relax(struct schema_facets *f);
bool schema_number_is_valid(const struct schema_walker *w, const struct schema_facets *f,
                            const struct json *value);
bool schema_number_is_empty(const struct schema_facets *f);
/* Whether there are certainly this many integers. */
bool schema_integers_suffice(const struct schema_facets *f, uint32_t n);
/* False, with the error set: the bounds or multipleOf are not supported. */
bool schema_number_check(struct schema_walker *w, const struct schema_facets *f);
grammar_expr schema_number(struct schema_walker *w, const struct schema_facets *f);

/* ---- string.c, format.c ---------------------------------------------------------------------- */

const char *schema_format_regex(const char *name); /* NULL: unknown, an annotation */
bool schema_string_facets(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f);
/* The automaton of a pattern or a format; memoised. */
const struct text_dfa *schema_rule_dfa(struct schema_walker *w, const struct string_rule *rule);
const struct text_dfa *schema_pattern_dfa(struct schema_walker *w, const struct schema_item *item,
                                          const char *text, size_t len);
/* The automaton of all strings that the set allows; for property names. */
const struct text_dfa *schema_strings_dfa(struct schema_walker *w, const struct schema_set *set);
bool schema_string_is_valid(struct schema_walker *w, const struct schema_facets *f,
                            const char *text, size_t len);
grammar_expr schema_string(struct schema_walker *w, const struct schema_facets *f);

/* ---- array.c, object.c ----------------------------------------------------------------------- */

/* The set of schemas for an item, or for the value of a property. */
bool schema_item_set(struct schema_walker *w, const struct schema_set *set, size_t index,
                     struct schema_set *out);
bool schema_array_is_unique(const struct schema_facets *f); /* uniqueItems is true */
struct schema_contains {
    const struct schema_item *owner;
    const struct schema_item *item; /* NULL: none that has an effect */
    uint32_t min, max;
};
bool schema_array_contains(struct schema_walker *w, const struct schema_facets *f,
                           struct schema_contains *out);
bool schema_array_check(struct schema_walker *w, const struct schema_facets *f);
grammar_expr schema_array(struct schema_walker *w, const struct schema_facets *f);

struct schema_name {
    const char *bytes;
    size_t len;
    bool required;
};
/* All property names that the set mentions, those of `properties` first. */
bool schema_names(struct schema_walker *w, const struct schema_set *set, struct schema_name **out,
                  size_t *n);
bool schema_property_set(struct schema_walker *w, const struct schema_facets *f, const char *name,
                         size_t len, struct schema_set *out);
/* Both fail, with the error set, if something is not supported. */
bool schema_object_check(struct schema_walker *w, struct schema_facets *f);
grammar_expr schema_object(struct schema_walker *w, const struct schema_facets *f);

/* ---- valid.c --------------------------------------------------------------------------------- */

/* Whether all schemas of a set allow the value. */
bool schema_is_valid(struct schema_walker *w, const struct json *value,
                     const struct schema_set *set);
bool schema_fits(struct schema_walker *w, const struct json *value, const struct schema_facets *f);
/* True only if it is certain that no value is allowed. */
bool schema_is_empty(struct schema_walker *w, const struct schema_set *set, unsigned depth);
bool schema_alternatives_are_empty(struct schema_walker *w,
                                   const struct schema_alternatives *alternatives, unsigned depth);

#endif
