#ifndef RADISH_PROMPT_JINJA_VALUE_H
#define RADISH_PROMPT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "prompt/jinja/chat_template.h"

/* The values of templates, which behave like Python's. They live in the arena of one rendering and
 * are immutable (transformers' sandbox forbids changes, too), except namespaces, iterators, cyclers
 * and joiners.
 *
 * Strings remember where their bytes come from (enum render_source in chat_template.h):
 *
 *   text  "<|im_start|>user\n" + message.content + "<|im_end|>"
 *   runs  [-------template----][-----message 3-----][--template--]
 *
 * A text is an immutable view; `runs` is NULL if all of it comes from one source. `+` extends a
 * text in place if a builder made it and it still ends where the builder ends, so that a long chain
 * of additions copies each byte about once. The last run of a view may end past its len. */
struct builder {
    char *data;
    size_t len, capacity;
    bool is_output; /* the rendering itself: its data comes from malloc, and no text points into it
                     */
    struct render_segment *runs;
    size_t n_runs, runs_capacity;
};

struct text {
    const char *data;
    size_t len;
    size_t n_chars; /* SIZE_MAX: not counted yet */
    const struct render_segment *runs;
    size_t n_runs;
    struct builder *builder; /* the one that made it, or NULL */
    int32_t source;          /* when runs is NULL */
    bool markup;             /* made by `safe` or `escape`: + escapes what it adds */
};

enum value_type {
    V_MISSING, /* no value: an unset variable, an omitted argument */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIGINT, /* an integer of the context beyond 64 bits: text, for printing only */
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW, /* dict.keys(), values(), items() */
    V_RANGE,
    V_ITERATOR, /* replaces Python's generators: a list made on first use */
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_FUNCTION,
    V_METHOD,
    V_CYCLER,
    V_JOINER,
};

struct value {
    enum value_type type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct text *text;
        struct undefined *undefined;
        struct list *list;
        struct dict *dict; /* also of a namespace */
        struct view *view;
        struct range *range;
        struct iterator *iterator;
        struct loop *loop;
        struct macro *macro;
        const struct function *function;
        struct method *method;
        struct cycler *cycler;
        struct joiner *joiner;
    };
};

struct list {
    struct value *items;
    size_t len, capacity;
    bool is_group; /* a tuple made by groupby: has .grouper and .list */
};

/* Ordered. Up to 8 entries are searched linearly, more through an open-addressing index. */
struct dict {
    struct dict_entry {
        struct value key, value;
    } * entries;
    size_t len, capacity;
    uint32_t *index; /* entry number + 1, 0 for empty; NULL while small */
    size_t index_mask;
};

struct view {
    struct list *items;
    const char *type_name; /* "dict_items", ... */
};

struct range {
    struct list *items;
    int64_t start, stop, step;
};

/* Filters such as map and select run when their result is first used, as generators do, and raise
 * their errors there. */
struct iterator {
    const struct filter *filter; /* pending, with `args`; NULL: `items` is ready */
    struct value *args;
    struct call *call;
    struct list *items;
    size_t at; /* the next item; earlier ones are consumed */
    const char *type_name;
};

struct undefined {
    const struct text *name; /* of the variable or attribute; NULL: `key` is used */
    struct value key;
    const char *hint;    /* if not NULL, the whole message */
    struct value object; /* the attribute's object; V_MISSING for a variable */
    bool inline_if;      /* an `if` without `else`; the key is its position in the source */
};

struct cycler {
    struct list *items;
    size_t at;
};

struct joiner {
    const struct text *separator;
    bool used;
};

/* Positional and keyword arguments of a call. */
struct call {
    struct value *args;
    size_t n_args;
    struct keyword {
        const struct text *name;
        struct value value;
    } * keywords;
    size_t n_keywords;
};

struct scope;

/* One rendering. An error is set once, by jinja_fail, and then every function returns false. */
struct jinja {
    struct arena *arena;
    const struct chat_template *chat_template;
    struct dict *context;
    int64_t now_unix;
    struct builder *out; /* the output: the rendering, or a macro's or set block's text */
    uint64_t steps;
    unsigned depth;
    uint32_t position; /* of the evaluator in the source, for messages */
    bool failed;
    struct error *err;
};

enum {
    JINJA_MAX_MEMORY_BYTES = 256 << 20,
    JINJA_MAX_OUTPUT_BYTES = 64 << 20,
    JINJA_MAX_STEPS = 50 * 1000 * 1000,
    JINJA_MAX_DEPTH = 1000,   /* nested evaluations: bounds the C stack */
    JINJA_MAX_RANGE = 100000, /* as in the sandbox that transformers uses */
    JINJA_MAX_SPREAD = 10000, /* positional arguments out of *args */
};

/* Errors. Each returns false, for `return jinja_fail(...)`. */
__attribute__((format(printf, 2, 3))) bool jinja_fail(struct jinja *j, const char *format, ...);
bool jinja_fail_undefined(struct jinja *j, const struct value *v); /* says what is undefined */
bool jinja_fail_memory(struct jinja *j);
bool jinja_raise(struct jinja *j, const struct text *message); /* raise_exception's message */
bool jinja_step(struct jinja *j, size_t cost);                 /* counts; false past the limit */
void *jinja_alloc(struct jinja *j, size_t size);               /* NULL: failed */
void *jinja_alloc_array(struct jinja *j, size_t count, size_t size);

/* text.c */
bool builder_reserve(struct jinja *j, struct builder *b,
                     size_t extra); /* the first time exactly that */
void builder_add(struct jinja *j, struct builder *b, const char *bytes, size_t len, int32_t source);
void builder_adds(struct jinja *j, struct builder *b, const char *string); /* template's */
void builder_add_code(struct jinja *j, struct builder *b, uint32_t code, int32_t source);
void builder_add_slice(struct jinja *j, struct builder *b, const struct text *t, size_t from,
                       size_t to);
void builder_add_text(struct jinja *j, struct builder *b, const struct text *t);
void builder_add_escaped(struct jinja *j, struct builder *b, const struct text *t); /* HTML */
const struct text *builder_text(struct jinja *j, const struct builder *b); /* NULL: failed */
const struct text *text_new(struct jinja *j, const char *bytes, size_t len, int32_t source);
const struct text *text_view(struct jinja *j, const char *bytes, size_t len, int32_t source);
const struct text *text_slice(struct jinja *j, const struct text *t, size_t from, size_t to);
const struct text *text_concat(struct jinja *j, const struct text *a, const struct text *b);
bool text_extends(const struct text *t); /* + can add to it in place */
const struct text *text_with_markup(struct jinja *j, const struct text *t, bool markup);
const struct text *text_escaped(struct jinja *j, const struct text *t);
int32_t text_source(const struct text *t);              /* RENDER_TEMPLATE only if all of it is */
int32_t source_mix(int32_t a, int32_t b);               /* of a text made from both */
size_t text_chars(const struct text *t);                /* length as Python counts it */
size_t text_offset(const struct text *t, size_t index); /* byte offset of a character */
bool text_is(const struct text *t, const char *string);
bool text_equal(const struct text *a, const struct text *b);
int text_order(const struct text *a, const struct text *b);
size_t text_find(const struct text *t, const struct text *needle, size_t from); /* or SIZE_MAX */

/* value.c */
struct value value_bool(bool boolean);
struct value value_int(int64_t integer);
struct value value_real(double real);
struct value value_text(const struct text *text);
struct value value_list(struct list *list);
struct value value_tuple(struct list *list);
struct value value_none(void);
bool value_set_text(const struct text *text, struct value *out); /* false when text is NULL */
bool value_set_string(struct jinja *j, const char *string, struct value *out);
bool value_undefined_name(struct jinja *j, const struct text *name, struct value *out);
bool value_undefined_key(struct jinja *j, const struct value *object, const struct value *key,
                         struct value *out);
bool value_undefined_hint(struct jinja *j, const char *hint, struct value *out);
bool value_undefined_if(struct jinja *j, uint32_t position, struct value *out);
bool value_from_json(struct jinja *j, const struct json *json, int32_t source, unsigned depth,
                     struct value *out);
struct dict *context_from_json(struct jinja *j, const struct json *context);

const char *value_type_name(const struct value *v); /* Python's: "str", "NoneType", ... */
bool value_true(const struct value *v);
bool value_is_number(const struct value *v); /* int, float or bool, as in arithmetic */
double value_to_real(const struct value *v);
bool value_to_index(struct jinja *j, const struct value *v, int64_t *out); /* int or bool */
bool value_equal(struct jinja *j, const struct value *a, const struct value *b);
/* -1, 0 or 1; fails where Python's `<` does, with `op` in the message. */
bool value_order(struct jinja *j, const struct value *a, const struct value *b, const char *op,
                 int *order);
bool value_contains(struct jinja *j, const struct value *container, const struct value *item,
                    bool *found);
bool value_length(struct jinja *j, const struct value *v, size_t *len);
/* The items that a loop over `v` sees; those of an iterator are consumed. */
bool value_items(struct jinja *j, const struct value *v, struct list **items);
bool value_is_iterable(const struct value *v);
/* obj.name and obj[key], with the sandbox's rules. If it is missing, the result is an undefined
 * value. */
bool value_attribute(struct jinja *j, const struct value *object, const struct text *name,
                     struct value *out);
bool value_item(struct jinja *j, const struct value *object, const struct value *key,
                struct value *out);
/* Looks up "a.b.0" in an object, as in filters with attribute=... */
bool value_path(struct jinja *j, const struct value *object, const struct value *path,
                struct value *out);

struct list *list_new(struct jinja *j, size_t capacity);
bool list_add(struct jinja *j, struct list *list, const struct value *item);
struct value list_pair(struct jinja *j, const struct value *a, const struct value *b);
struct dict *dict_new(struct jinja *j, size_t capacity);
bool dict_set(struct jinja *j, struct dict *dict, const struct value *key,
              const struct value *value);
struct value *dict_find(struct jinja *j, const struct dict *dict, const struct value *key);
struct value *dict_find_text(const struct dict *dict, const char *bytes, size_t len);
bool value_is_hashable(struct jinja *j, const struct value *key);
bool dict_view(struct jinja *j, const struct dict *dict, const char *type_name, struct value *out);

/* print.c */
const struct text *value_str(struct jinja *j, const struct value *v);  /* Python's str() */
const struct text *value_repr(struct jinja *j, const struct value *v); /* Python's repr() */
void real_repr(double real, char out[32]);

/* ops.c */
enum binary_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
bool op_binary(struct jinja *j, enum binary_op op, const struct value *a, const struct value *b,
               struct value *out);
bool op_negate(struct jinja *j, const struct value *v, struct value *out);
bool op_slice(struct jinja *j, const struct value *object, const struct value bounds[3],
              struct value *out);
bool op_round(struct jinja *j, const struct value *number, int64_t digits, struct value *out);

#endif
