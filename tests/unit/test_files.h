#ifndef RADISH_TEST_FILES_H
#define RADISH_TEST_FILES_H

#include <stdlib.h>

#include "test.h"

/* The bytes of a file, followed by a NUL; the caller frees them. */
static inline void *test_file_read(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        test_fail(__FILE__, __LINE__, "cannot open %s", path);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    *len = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*len + 1);
    CHECK(bytes && fread(bytes, 1, *len, file) == *len);
    bytes[*len] = '\0';
    fclose(file);
    return bytes;
}

static inline void test_file_write(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, len, file) != len || fclose(file) != 0)
        test_fail(__FILE__, __LINE__, "cannot write %s", path);
}

static inline void test_file_write_text(const char *path, const char *text)
{
    test_file_write(path, text, strlen(text));
}

#endif
