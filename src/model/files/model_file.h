#ifndef RADISH_MODEL_FILES_MODEL_FILE_H
#define RADISH_MODEL_FILES_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A file of a model, mapped read-only, and names from such files as messages show them. */
struct model_file {
    char *path;
    const uint8_t *bytes;
    size_t len;
    int64_t mtime_ns; /* when it was last written; 0: from memory */
    bool is_mapped;   /* the bytes are ours to unmap */
};

/* Refuses what is not a regular file, is empty, or is what Git LFS leaves in a file's place. */
int model_file_open(struct model_file *f, const char *path, struct error *err);
/* The same from memory, which stays the caller's and outlives `f`; `path` only names it. */
int model_file_open_memory(struct model_file *f, const char *path, const void *bytes, size_t len,
                           struct error *err);
void model_file_close(struct model_file *f); /* also after a failed open, and twice */

/* A name that anyone may have written: short, with nothing in it that a terminal would obey. */
struct shown_name {
    char text[84];
};

struct shown_name shown_name(const char *bytes, size_t len);

#endif
