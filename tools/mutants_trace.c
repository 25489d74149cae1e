/* Records which code a run of the unit tests reaches, for mutants.py: code compiled with
 * -fsanitize-coverage=trace-pc calls __sanitizer_cov_trace_pc at the start of every basic block.
 * The offsets of the blocks in the executable go to the file named by MUTANTS_TRACE, as 32-bit
 * numbers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

extern char __executable_start[], etext[];

static unsigned char *seen; /* [bytes of code]; shared with the children that tests fork */

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    if (seen)
        seen[(char *)__builtin_return_address(0) - __executable_start] = 1;
}

__attribute__((constructor)) static void trace_begin(void)
{
    void *map = mmap(NULL, (size_t)(etext - __executable_start), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = map == MAP_FAILED ? NULL : map;
}

__attribute__((destructor)) static void trace_end(void)
{
    const char *path = getenv("MUTANTS_TRACE");
    FILE *out = path && seen ? fopen(path, "wb") : NULL;
    if (!out)
        return;
    for (uint32_t i = 0; i < (uint32_t)(etext - __executable_start); i++)
        if (seen[i])
            fwrite(&i, sizeof i, 1, out);
    fclose(out);
}
