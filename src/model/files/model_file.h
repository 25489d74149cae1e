#ifndef RADISH_MODEL_FILES_MODEL_FILE_H
#define RADISH_MODEL_FILES_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A model's file, mapped read-only; and names from such files, made safe for messages.
 *
 * A mapping shows what others write into the file, so nobody may read it for longer than it takes
 * to load. What is needed longer, and headers, which must not change after they were checked, are
 * copied to memory at their place in the mapping:
 *
 *   while loading   [ memory: the header ][ file ..................................... ]
 *   once settled    [ nothing           ][ memory: what is kept ][ nothing .......... ]
 */
struct model_file {
    char *path;
    const uint8_t *bytes;
    size_t len;
    int64_t mtime_ns; /* when it was last written; 0: from memory */
    bool is_mapped;   /* `bytes` must be unmapped on close */
    int fd;           /* the file, until it is settled; unused if it is from memory */
    size_t n_copied;  /* bytes at the front that are in memory, in whole pages */
};

/* Bytes of a file that are kept. */
struct file_part {
    const uint8_t *bytes;
    size_t len;
};

/* Refuses a file that is not regular, is empty, or is a Git LFS pointer. */
int model_file_open(struct model_file *f, const char *path, struct error *err);
/* The same from memory, which the caller owns and which outlives `f`; `path` is only a name. */
int model_file_open_memory(struct model_file *f, const char *path, const void *bytes, size_t len,
                           struct error *err);
void model_file_close(struct model_file *f); /* also after a failed open, and twice */

/* Copies the file to memory up to `end`, and some more. Nothing else may read that part of it now.
 */
int model_file_copy(struct model_file *f, size_t end, struct error *err);
/* Fails if the file has changed since it was opened. A file that was deleted or replaced has not,
 * nor has one that is settled. */
int model_file_check(const struct model_file *f, struct error *err);
/* Ends the use of the file: copies the given parts to memory, checks the file, and lets go of it.
 * Nothing but those parts can be read afterwards; they stay where they are. `keeps_file`: the rest
 * stays mapped. Sorts `parts`, which must be inside the file. */
int model_file_settle(struct model_file *f, struct file_part *parts, size_t n_parts,
                      bool keeps_file, struct error *err);

/* An untrusted name, made short and free of terminal control characters. */
struct shown_name {
    char text[84];
};

struct shown_name shown_name(const char *bytes, size_t len);

#endif
