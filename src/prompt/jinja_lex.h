#ifndef RADISH_PROMPT_JINJA_LEX_H
#define RADISH_PROMPT_JINJA_LEX_H

#include "prompt/jinja_value.h"

enum token_type {
    TOKEN_END,
    TOKEN_DATA, /* text outside tags, whitespace control applied */
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    /* operators */
    TOKEN_ADD,
    TOKEN_SUB,
    TOKEN_DIV,
    TOKEN_FLOORDIV,
    TOKEN_MUL,
    TOKEN_MOD,
    TOKEN_POW,
    TOKEN_TILDE,
    TOKEN_LBRACKET,
    TOKEN_RBRACKET,
    TOKEN_LPAREN,
    TOKEN_RPAREN,
    TOKEN_LBRACE,
    TOKEN_RBRACE,
    TOKEN_EQ,
    TOKEN_NE,
    TOKEN_GT,
    TOKEN_GE,
    TOKEN_LT,
    TOKEN_LE,
    TOKEN_ASSIGN,
    TOKEN_DOT,
    TOKEN_COLON,
    TOKEN_PIPE,
    TOKEN_COMMA,
    TOKEN_SEMICOLON,
};

struct token {
    enum token_type type;
    uint32_t position;
    const char *data; /* data, name: in the source; string: with its escapes undone */
    size_t len;
    int64_t integer;
    double real;
};

struct token_array {
    struct token *tokens; /* the last one is TOKEN_END */
    size_t len, capacity;
};

/* Cuts a template (newlines already \n) into tokens. Their strings go into `arena`, because the
 * tree takes them over; the tokens themselves into `scratch`. */
int jinja_lex(struct arena *arena, struct arena *scratch, const char *source, size_t len,
              struct token_array *out, struct error *err);
/* How messages call a kind of token: "end of print statement", "+", ... */
const char *jinja_token_name(enum token_type type);
__attribute__((format(printf, 5, 6))) int jinja_syntax_error(struct error *err, const char *source,
                                                             size_t len, size_t position,
                                                             const char *format, ...);

#endif
