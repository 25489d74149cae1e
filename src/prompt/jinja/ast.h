#ifndef RADISH_PROMPT_JINJA_AST_H
#define RADISH_PROMPT_JINJA_AST_H

#include "prompt/jinja/builtin.h"

/* A parsed template: a tree in the template's own arena, read-only once made.
 *
 *   source ─lex─► lexemes ─parse─► tree of nodes ─resolve─► the same, each name with its place
 *
 * Jinja decides at compile time, not at run time, which variable a name means; scope.c does the
 * same. A scope is a loop's body, a macro, a `with` or a block's text; an `if` is not a scope. A
 * name's place is (hops, slot): go up that many scopes and take that variable. */
enum node_kind {
    /* expressions */
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE, /* only inside NODE_ITEM */
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEGATE,
    NODE_PLUS,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,
    NODE_CONCAT,
    NODE_COMPARE,
    NODE_CONDITION,
    /* statements */
    NODE_DATA,
    NODE_PRINT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_GENERATION,
    NODE_BREAK,
    NODE_CONTINUE,
    /* what `set` assigns to, besides names and tuples */
    NODE_NAMESPACE_REF,
};

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

/* A list of nodes is chained through `next`. */
struct nodes {
    struct node *first, *last;
    size_t count;
};

struct call_args {
    struct nodes positional;
    struct nodes keywords; /* NODE_NAME for the name, then its value */
    struct node *star, *star_star;
};

struct place {
    uint16_t hops, slot;
};

/* What a scope does with its variables when it is entered. */
enum load_action {
    LOAD_PARAMETER, /* set by the code that enters the scope */
    LOAD_CONTEXT,   /* from the context or the global functions */
    LOAD_OUTER,     /* starts with the value of the variable outside */
    LOAD_NOTHING,   /* unset */
};

struct scope_layout {
    struct scope_load {
        const struct text *name;
        enum load_action action;
        struct place outer; /* seen from inside the scope */
    } * loads;              /* one for each slot */
    size_t n_slots;
};

struct signature_node { /* of a macro or a call block */
    const struct text *name;
    struct nodes params;   /* NODE_NAME */
    struct nodes defaults; /* of the last parameters */
    struct nodes body;
    struct scope_layout layout; /* params first, then caller, kwargs, varargs where used */
    bool uses_caller, uses_kwargs, uses_varargs;
    uint16_t caller_slot, kwargs_slot, varargs_slot;
};

struct node {
    enum node_kind kind;
    uint8_t op;      /* enum binary_op or compare_op */
    uint16_t height; /* of the tree below: bounds recursion */
    uint32_t position;
    struct node *next;
    union {
        struct value constant; /* also NODE_DATA: a string */
        struct {
            const struct text *text;
            struct place place;
        } name;
        struct nodes items; /* list, tuple, concat, print; dict: key, value, key, ... */
        struct {
            struct node *object;
            const struct text *name;
        } attribute; /* also NODE_NAMESPACE_REF, whose object is a NODE_NAME */
        struct {
            struct node *object, *key;
        } item;
        struct {
            struct node *bounds[3]; /* NULL: omitted */
        } slice;
        struct {
            struct node *callee; /* of a filter or test: its operand, NULL for the block's text */
            struct call_args args;
            const struct filter *filter; /* NULL: unknown, fails when reached */
            const struct test *test;
            const struct text *name;
        } call;
        struct {
            struct node *left, *right;
        } binary; /* and, or, +, ...; not, - and + use left only */
        struct {
            struct node *first;
            struct nodes rest; /* NODE_COMPARE: op, and the operand in its `first` */
        } compare;
        struct {
            struct node *test, *then, *otherwise;
        } condition;
        struct {
            struct node *test;
            struct nodes body, elifs, otherwise; /* each elif is a NODE_IF */
        } branch;
        struct {
            struct node *target, *iterable, *test;
            struct nodes body, otherwise;
            struct scope_layout body_layout, test_layout, else_layout;
            uint16_t loop_slot;
            bool recursive;
        } loop;
        struct {
            struct node *target, *value; /* set block: value is a chain of filters or NULL */
            struct nodes body;
            struct scope_layout layout;
        } set; /* also filter block (value only), with (targets in items) and generation */
        struct {
            struct signature_node *signature;
            struct node *call;  /* call block */
            struct place place; /* macro: the variable with its name */
        } macro;
        struct {
            struct nodes targets, values, body;
            struct scope_layout layout;
        } with;
    };
};

struct chat_template {
    struct arena arena;
    const char *source; /* newlines normalised to \n */
    size_t len;
    struct nodes body;
    struct scope_layout layout;
};

enum {
    JINJA_MAX_SOURCE_BYTES = 4 << 20,
    JINJA_MAX_HEIGHT = 500,       /* of the tree: nesting of blocks and expressions */
    JINJA_MAX_PARSE_DEPTH = 1500, /* calls of the parser, about three for each bracket */
    JINJA_MAX_SLOTS = 1024,       /* variables in one scope */
};

unsigned jinja_line(const struct chat_template *t, size_t position); /* counts from 1 */

/* scope.c: assigns every name its place. -1: out of memory, or too many names. */
int jinja_resolve(struct chat_template *t, struct error *err);

/* eval.c */
struct scope {
    struct scope *parent;
    struct value *slots;
};

enum flow { FLOW_FAILED, FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

bool eval(struct jinja *j, struct scope *scope, const struct node *node, struct value *out);
bool eval_args(struct jinja *j, struct scope *scope, const struct call_args *args,
               struct call *call);
struct scope *scope_enter(struct jinja *j, struct scope *parent, const struct scope_layout *layout);
bool scope_load(struct jinja *j, struct scope *scope, const struct scope_layout *layout);
/* Applies a chain of filters to a block's text. */
bool eval_block_filter(struct jinja *j, struct scope *scope, const struct node *filter,
                       const struct value *text, struct value *out);
bool scope_assign(struct jinja *j, struct scope *scope, const struct node *target,
                  const struct value *value);

/* exec.c */
enum flow exec_nodes(struct jinja *j, struct scope *scope, const struct nodes *nodes);

/* loop.c */
enum flow exec_for(struct jinja *j, struct scope *scope, const struct node *node);
bool loop_call(struct jinja *j, struct loop *loop, const struct call *call, struct value *out);

/* call.c */
struct macro {
    const struct signature_node *signature;
    struct scope *scope; /* where the macro was defined */
};
bool macro_new(struct jinja *j, struct scope *scope, const struct signature_node *signature,
               struct value *out);
bool macro_call(struct jinja *j, const struct macro *macro, const struct call *call,
                struct value *out);

#endif
