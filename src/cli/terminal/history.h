#ifndef RADISH_CLI_TERMINAL_HISTORY_H
#define RADISH_CLI_TERMINAL_HISTORY_H

#include <stddef.h>

#include "base/error.h"

/* What was typed before, the oldest first, and the file that keeps it: a line for each entry, with
 * \n and \\ for newlines and backslashes. Only its owner may read the file. Zero-initialise it. */
enum { HISTORY_MAX = 1000, HISTORY_MAX_FILE_BYTES = 1 << 20, HISTORY_MAX_ENTRY_BYTES = 64 << 10 };

struct history {
    char **items;
    size_t n;
    char *path; /* NULL: kept in memory only */
};

/* Reads the file and appends to it from now on; it need not be there yet. A file that has grown
 * over its bounds is written anew with the latest entries. */
int history_open(struct history *h, const char *path, struct error *err);
/* Adds an entry, unless it is empty, as the last one, or too long to be typed. */
void history_add(struct history *h, const char *text);
/* The newest entry before `from` (with step 1: the oldest from it on) that contains the text,
 * whatever the case of ASCII letters; h->n if there is none. */
size_t history_find(const struct history *h, const char *text, size_t from, int step);
void history_close(struct history *h);

#endif
