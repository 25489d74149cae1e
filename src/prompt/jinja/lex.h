#ifndef RADISH_PROMPT_JINJA_LEX_H
#define RADISH_PROMPT_JINJA_LEX_H

#include "prompt/jinja/value.h"

enum lexeme_type {
    LEXEME_END,
    LEXEME_DATA, /* text outside tags, whitespace control applied */
    LEXEME_BLOCK_BEGIN,
    LEXEME_BLOCK_END,
    LEXEME_PRINT_BEGIN,
    LEXEME_PRINT_END,
    LEXEME_NAME,
    LEXEME_STRING,
    LEXEME_INT,
    LEXEME_FLOAT,
    /* operators */
    LEXEME_ADD,
    LEXEME_SUB,
    LEXEME_DIV,
    LEXEME_FLOORDIV,
    LEXEME_MUL,
    LEXEME_MOD,
    LEXEME_POW,
    LEXEME_TILDE,
    LEXEME_LBRACKET,
    LEXEME_RBRACKET,
    LEXEME_LPAREN,
    LEXEME_RPAREN,
    LEXEME_LBRACE,
    LEXEME_RBRACE,
    LEXEME_EQ,
    LEXEME_NE,
    LEXEME_GT,
    LEXEME_GE,
    LEXEME_LT,
    LEXEME_LE,
    LEXEME_ASSIGN,
    LEXEME_DOT,
    LEXEME_COLON,
    LEXEME_PIPE,
    LEXEME_COMMA,
    LEXEME_SEMICOLON,
};

struct lexeme {
    enum lexeme_type type;
    uint32_t position;
    const char *data; /* data, name: in the source; string: unescaped */
    size_t len;
    int64_t integer;
    double real;
};

struct lexeme_array {
    struct lexeme *lexemes; /* the last one is LEXEME_END */
    size_t len, capacity;
};

/* Splits a template (with \n newlines) into lexemes. Their strings are in `arena`, because the tree
 * keeps them; the lexemes themselves are in `scratch`. */
int jinja_lex(struct arena *arena, struct arena *scratch, const char *source, size_t len,
              struct lexeme_array *out, struct error *err);
/* The name of a lexeme type in messages: "end of print statement", "+", ... */
const char *jinja_lexeme_name(enum lexeme_type type);
__attribute__((format(printf, 5, 6))) int jinja_syntax_error(struct error *err, const char *source,
                                                             size_t len, size_t position,
                                                             const char *format, ...);

#endif
