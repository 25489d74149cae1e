#ifndef RADISH_MODEL_FILES_MODEL_FILE_H
#define RADISH_MODEL_FILES_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A model's file, mapped read-only; and names from such files, made safe for messages. */
struct model_file {
    char *path;
    const uint8_t *bytes;
    size_t len;
    int64_t mtime_ns; /* when it was last written; 0: from memory */
    bool is_mapped;   /* `bytes` must be unmapped on close */
};

/* Refuses a file that is not regular, is empty, or is a Git LFS pointer. */
int model_file_open(struct model_file *f, const char *path, struct error *err);
/* The same from memory, which the caller owns and which outlives `f`; `path` is only a name. */
int model_file_open_memory(struct model_file *f, const char *path, const void *bytes, size_t len,
                           struct error *err);
void model_file_close(struct model_file *f); /* also after a failed open, and twice */

/* An untrusted name, made short and free of terminal control characters. */
struct shown_name {
    char text[84];
};

struct shown_name shown_name(const char *bytes, size_t len);

#endif
