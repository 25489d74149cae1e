#ifndef RADISH_FUZZ_H
#define RADISH_FUZZ_H

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include "test.h"

/* Lets fuzzers use builders of the unit tests without the test runner. Include it once. A failed
 * check means a bug in the fuzzer or in the code it fuzzes. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    abort();
}

/* In memory if possible, because every input rewrites the files. */
const char *test_scratch_dir(void)
{
    static char in_memory[] = "/dev/shm/radish-fuzz.XXXXXX", on_disk[] = "/tmp/radish-fuzz.XXXXXX";
    static const char *dir;
    if (!dir)
        dir = mkdtemp(in_memory);
    if (!dir)
        dir = mkdtemp(on_disk);
    if (!dir)
        abort();
    return dir;
}

#endif
