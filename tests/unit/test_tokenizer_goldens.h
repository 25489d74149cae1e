#ifndef RADISH_TEST_TOKENIZER_GOLDENS_H
#define RADISH_TEST_TOKENIZER_GOLDENS_H

#include <stdlib.h>

#include "test.h"

/* Reads the files that tools/make_tokenizer_goldens.py writes: lines of fields with tabs between,
 * in which %XX stands for a byte. Tests run in the repository's root. */
enum { GOLDEN_MAX_FIELDS = 4 };

struct goldens {
    FILE *file;
    char *line;
    size_t capacity;
};

struct golden {
    int n;
    char *fields[GOLDEN_MAX_FIELDS]; /* NUL-terminated, and may hold NULs */
    size_t lens[GOLDEN_MAX_FIELDS];
};

static inline struct goldens goldens_open(const char *path)
{
    struct goldens g = {.file = fopen(path, "r")};
    CHECK(g.file != NULL);
    return g;
}

static inline void goldens_close(struct goldens *g)
{
    fclose(g->file);
    free(g->line);
}

static inline size_t golden_unescape(char *text)
{
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        char hex[3] = {0};
        if (*p == '%') {
            memcpy(hex, p + 1, 2);
            text[n++] = (char)strtoul(hex, NULL, 16);
            p += 2;
        } else {
            text[n++] = *p;
        }
    }
    text[n] = '\0';
    return n;
}

/* The next line, or false at the end. The fields are good until the next call. */
static inline bool golden_next(struct goldens *g, struct golden *out)
{
    ssize_t len = getline(&g->line, &g->capacity, g->file);
    if (len <= 0)
        return false;
    CHECK(g->line[len - 1] == '\n');
    g->line[len - 1] = '\0';
    *out = (struct golden){0};
    for (char *field = g->line; field; out->n++) {
        CHECK(out->n < GOLDEN_MAX_FIELDS);
        out->fields[out->n] = field;
        char *tab = strchr(field, '\t');
        if (tab)
            *tab = '\0';
        field = tab ? tab + 1 : NULL;
    }
    for (int i = 0; i < out->n; i++)
        out->lens[i] = golden_unescape(out->fields[i]);
    return true;
}

#endif
