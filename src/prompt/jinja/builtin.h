#ifndef RADISH_PROMPT_JINJA_BUILTIN_H
#define RADISH_PROMPT_JINJA_BUILTIN_H

#include "prompt/jinja/value.h"

/* What templates can call: filters, tests, functions, and methods of Python's types. Each table
 * entry names its parameters. The caller binds them; omitted ones are V_MISSING. A `variadic` entry
 * reads the call itself. */
enum { BUILTIN_MAX_PARAMS = 5 };

struct signature {
    const char *params[BUILTIN_MAX_PARAMS]; /* after the value itself; NULL ends them */
    unsigned n_required;
    bool variadic;
};

struct filter {
    const char *name;
    bool (*run)(struct jinja *j, const struct value *self, const struct value *args,
                const struct call *call, struct value *out);
    struct signature signature;
    bool lazy; /* returns an iterator, which runs the filter when it is used */
};

struct test {
    const char *name;
    bool (*run)(struct jinja *j, const struct value *self, const struct value *args, bool *result);
    unsigned n_args;
};

struct function {
    const char *name;
    bool (*run)(struct jinja *j, const struct call *call, struct value *out);
};

/* A method of a type. `run` NULL: a method that changes its object, which the sandbox forbids. */
struct method_entry {
    const char *name;
    enum value_type type;
    bool (*run)(struct jinja *j, const struct value *self, const struct value *args,
                const struct call *call, struct value *out);
    struct signature signature;
};

struct method { /* bound to its object */
    const struct method_entry *entry;
    struct value self;
};

const struct filter *filter_find(const char *name, size_t len);
const struct test *test_find(const char *name, size_t len);
const struct function *function_find(const char *name, size_t len);
const struct method_entry *method_find(enum value_type type, const struct text *name);

bool filter_call(struct jinja *j, const struct filter *filter, const struct value *self,
                 struct call *call, struct value *out);
bool test_call(struct jinja *j, const struct test *test, const struct value *self,
               const struct call *call, bool *result);
bool method_call(struct jinja *j, const struct method *method, const struct call *call,
                 struct value *out);
/* Runs an iterator's pending filter. */
bool iterator_force(struct jinja *j, struct iterator *it);

/* Binds a call's arguments to the signature's parameters: args[BUILTIN_MAX_PARAMS]. */
bool signature_bind(struct jinja *j, const char *name, const struct signature *signature,
                    const struct call *call, struct value *args);
/* Converts an argument to the wanted type; V_MISSING and none give the default. */
bool argument_int(struct jinja *j, const struct value *arg, int64_t fallback, int64_t *out);
bool argument_text(struct jinja *j, const struct value *arg, const char *what,
                   const struct text **out);

/* The tables are in several files, by subject. */
extern const struct filter text_filters[], sequence_filters[];
extern const size_t n_text_filters, n_sequence_filters;
extern const struct method_entry string_methods[], container_methods[];
extern const size_t n_string_methods, n_container_methods;

/* sequences.c: stable sort by key; `scratch` also has room for n items. */
struct sort_item {
    struct value key, item;
};
bool items_sort(struct jinja *j, struct sort_item *items, struct sort_item *scratch, size_t n,
                bool reverse);

/* tojson.c */
bool filter_tojson(struct jinja *j, const struct value *self, const struct value *args,
                   const struct call *call, struct value *out);

/* string_format.c: "..." % values, and "...".format(...) */
bool format_percent(struct jinja *j, const struct text *format, const struct value *values,
                    struct value *out);
bool format_braces(struct jinja *j, const struct text *format, const struct call *call,
                   struct value *out);

/* strings.c: shared by filters and methods */
enum strip_side { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
const struct text *string_strip(struct jinja *j, const struct text *t, const struct text *chars,
                                int sides);
const struct text *string_replace(struct jinja *j, const struct text *t, const struct text *from,
                                  const struct text *to, int64_t count);
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_SWAP };
const struct text *string_case(struct jinja *j, const struct text *t, enum letter_case how);
struct list *string_split_lines(struct jinja *j, const struct text *t, bool keep_ends);
const struct text *string_join(struct jinja *j, const struct text *separator,
                               const struct list *items);
const struct text *string_pad(struct jinja *j, const struct text *t, int64_t width, char align,
                              const struct text *fill);
bool string_is(const struct text *t, bool (*is)(uint32_t)); /* each character; false if empty */
bool string_has_case(const struct text *t, bool upper);     /* isupper(), islower() */

/* loop.c, call.c: objects whose attributes depend on the evaluator */
bool loop_attribute(struct jinja *j, struct loop *loop, const struct text *name,
                    struct value *out); /* V_MISSING: none */
bool loop_cycle(struct jinja *j, const struct value *self, const struct value *args,
                const struct call *call, struct value *out);
bool loop_changed(struct jinja *j, const struct value *self, const struct value *args,
                  const struct call *call, struct value *out);
bool macro_attribute(struct jinja *j, const struct macro *macro, const struct text *name,
                     struct value *out);
bool value_call(struct jinja *j, const struct value *callee, struct call *call, struct value *out);

#endif
