#ifndef RADISH_GRAMMAR_TEXTS_H
#define RADISH_GRAMMAR_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Grammars that tests write as text, and the texts that they take. */
enum texts_kind { TEXTS_GBNF, TEXTS_REGEX, TEXTS_SCHEMA, TEXTS_CANONICAL, TEXTS_LENIENT };

struct grammar_texts;

/* Fails the test if the source is not a grammar. */
struct grammar_texts *texts_open(enum texts_kind kind, const char *source);
void texts_close(struct grammar_texts *t);
bool texts_take(struct grammar_texts *t, const char *text);
/* Walks at random through masks of the vocabulary of single bytes until the text ends. Checks that
 * no mask is empty and that what a mask allows is accepted. The text is valid until the next. */
const char *texts_sample(struct grammar_texts *t, unsigned seed);

/* The error of a source that is not a grammar, or that matches nothing; fails the test if the
 * source is a grammar. */
struct error texts_error(enum texts_kind kind, const char *source, size_t len);

/* Opens a grammar, checks that it takes the first texts and none of the others, and closes it. */
#define CHECK_TEXTS(kind, source, taken, refused)                                                  \
    texts_check(__FILE__, __LINE__, kind, source, taken, refused)
#define TEXTS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define NO_TEXTS                                                                                   \
    (const char *const[])                                                                          \
    {                                                                                              \
        NULL                                                                                       \
    }
void texts_check(const char *file, int line, enum texts_kind kind, const char *source,
                 const char *const *taken, const char *const *refused);

/* The message contains `what`, and the code is `code`. */
#define CHECK_ERROR(kind, source, code_, what)                                                     \
    do {                                                                                           \
        struct error err_ = texts_error(kind, source, strlen(source));                             \
        if (!strstr(err_.message, what) || err_.code != (code_))                                   \
            test_fail(__FILE__, __LINE__, "error %d: %s", (int)err_.code, err_.message);           \
    } while (0)

#endif
