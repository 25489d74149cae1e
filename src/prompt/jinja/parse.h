#ifndef RADISH_PROMPT_JINJA_PARSE_H
#define RADISH_PROMPT_JINJA_PARSE_H

#include "prompt/jinja/ast.h"
#include "prompt/jinja/lex.h"

/* One parse. `failed` is sticky: after an error every function immediately returns NULL or
 * false. */
struct parser {
    struct chat_template *t;
    const struct lexeme *lexeme; /* the current one; never read past LEXEME_END */
    unsigned depth;
    unsigned loops; /* enclosing loops that `break` could leave */
    bool failed;
    struct error *err;
};

int jinja_parse(struct chat_template *t, const struct lexeme *lexemes, struct error *err);

/* Shared by parse.c (statements) and parse_expr.c. */
__attribute__((format(printf, 3, 4))) void *parse_fail(struct parser *p, const struct lexeme *at,
                                                       const char *format, ...);
bool lexeme_is_name(const struct lexeme *lexeme, const char *name);
bool parse_skip(struct parser *p, enum lexeme_type type);
bool parse_skip_name(struct parser *p, const char *name);
const struct lexeme *parse_expect(struct parser *p, enum lexeme_type type);
bool parse_expect_name(struct parser *p, const char *name);
struct node *node_new(struct parser *p, enum node_kind kind, uint32_t position);
/* Updates the parent's height from a child's. False: too high, or child is NULL. */
bool node_over(struct parser *p, struct node *parent, const struct node *child);
bool nodes_add(struct parser *p, struct node *parent, struct nodes *nodes, struct node *child);
const struct text *parse_text(struct parser *p, const char *data, size_t len);

enum tuple_flags {
    TUPLE_NO_CONDITION = 1,
    TUPLE_TARGET = 2,
    TUPLE_NAMESPACE = 4,
    TUPLE_PARENS = 8
};
struct node *parse_expression(struct parser *p, bool with_condition);
struct node *parse_tuple(struct parser *p, int flags, const char *end_name);
struct node *parse_primary(struct parser *p, bool with_namespace);
bool parse_call_args(struct parser *p, struct node *call);
/* A chain of filters; the first is applied to `inner`. */
struct node *parse_filter(struct parser *p, struct node *inner);

#endif
