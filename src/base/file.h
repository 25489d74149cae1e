#ifndef RADISH_BASE_FILE_H
#define RADISH_BASE_FILE_H

#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Appends all of a file, or of standard input for "-", to `out`. A file longer than `limit_bytes`
 * (0: no limit) is an error. */
int file_read(const char *path, size_t limit_bytes, struct strbuf *out, struct error *err);

#endif
