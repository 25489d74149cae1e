/* Reads whole files into memory. */
#include "base/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int file_read(const char *path, size_t limit_bytes, struct strbuf *out, struct error *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!in)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    char chunk[65536];
    out->limit = limit_bytes;
    errno = 0;
    bool is_too_long = false;
    /* Reading past the end would make a terminal ask again. */
    while (!feof(in) && !ferror(in) && !out->failed) {
        size_t n = fread(chunk, 1, sizeof chunk, in);
        is_too_long = limit_bytes && n > limit_bytes - out->len;
        strbuf_add(out, chunk, n);
    }
    int reason = ferror(in) ? errno : 0;
    if (in != stdin)
        fclose(in);
    if (reason)
        return error_set(err, ERROR_IO, "%s: cannot read it: %s", path, strerror(reason));
    if (is_too_long)
        return error_set(err, ERROR_LIMIT, "%s: it has more than %zu bytes", path, limit_bytes);
    if (out->failed)
        return error_set(err, ERROR_MEMORY, "%s: no memory to read it", path);
    return 0;
}
