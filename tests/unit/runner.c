/* Runs the table of cases: all of them, or those whose "suite.name" contains an argument.
 * Prints failures and skips, then "SUITE: N passed, N failed, N skipped".
 *
 * For tools: --list prints the names of all cases; --listed FILE runs the cases that a file names,
 * one a line, in that order, prints each name before it begins and stops at the first failure. */
#include "test.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct test_case *cases;
static const struct test_case *running;
static jmp_buf case_end;
static char scratch[4096]; /* created when a case first asks for it, removed at the end */
enum { CASE_FAILED = 1, CASE_SKIPPED };

void test_register(struct test_case *test)
{
    struct test_case **at = &cases;
    while (*at && (strcmp((*at)->suite, test->suite) <= 0))
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

const char *test_name(void)
{
    return running->name;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    longjmp(case_end, CASE_FAILED);
}

void test_skip(const char *why)
{
    fprintf(stderr, "skipped: %s\n", why);
    longjmp(case_end, CASE_SKIPPED);
}

const char *test_shared_path(const char *relative)
{
    static char path[4096];
    const char *root = getenv("RADISH_SHARED");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *test_model_path(void)
{
    static char path[4096];
    const char *given = getenv("RADISH_TEST_MODEL");
    const char *home = getenv("HOME");
    if (given)
        snprintf(path, sizeof path, "%s", given);
    else
        snprintf(path, sizeof path, "%s/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *test_scratch_dir(void)
{
    const char *build = getenv("RADISH_BUILD");
    if (scratch[0])
        return scratch;
    snprintf(scratch, sizeof scratch, "%s/scratch.XXXXXX", build ? build : "build");
    if (!mkdtemp(scratch))
        test_fail(__FILE__, __LINE__, "cannot make %s", scratch);
    return scratch;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static const char *full_name(const struct test_case *test)
{
    static char name[256];
    snprintf(name, sizeof name, "%s.%s", test->suite, test->name);
    return name;
}

static bool wanted(const struct test_case *test, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(full_name(test), argv[i]))
            return true;
    return argc < 2;
}

/* In a separate function, so that the longjmp does not lose anything in main. */
static int case_run(const struct test_case *test)
{
    running = test;
    int end = setjmp(case_end);
    if (end == 0)
        test->run();
    return end;
}

/* Freed memory is quarantined for the next 32 MiB, not 256: a large process is slow to fork and
 * takes a fault for every new page. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=32";
}

static int n_ended[3]; /* passed, CASE_FAILED, CASE_SKIPPED */

/* A failed case leaves its memory behind, which servers that later cases fork would report as their
 * own. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return n_ended[CASE_FAILED] > 0;
}

static void case_count(const struct test_case *test)
{
    int end = case_run(test);
    n_ended[end]++;
    if (end)
        fprintf(stderr, "%s %s\n", end == CASE_FAILED ? "FAILED" : "skipped", full_name(test));
}

static void list(void)
{
    for (const struct test_case *test = cases; test; test = test->next)
        puts(full_name(test));
}

/* A name that is not in the table is a failure. */
static void run_listed(const char *path)
{
    char name[256];
    FILE *names = fopen(path, "re");
    if (!names)
        return;
    while (n_ended[CASE_FAILED] == 0 && fgets(name, sizeof name, names)) {
        name[strcspn(name, "\n")] = '\0';
        puts(name);
        fflush(stdout);
        const struct test_case *test = cases;
        while (test && strcmp(full_name(test), name) != 0)
            test = test->next;
        if (test)
            case_count(test);
        else
            n_ended[CASE_FAILED]++;
    }
    fclose(names);
}

int test_main(const char *suite, int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--listed") == 0)
        run_listed(argv[2]);
    else
        for (const struct test_case *test = cases; test; test = test->next)
            if (wanted(test, argc, argv))
                case_count(test);
    if (scratch[0])
        nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    printf("%s: %d passed, %d failed, %d skipped\n", suite, n_ended[0], n_ended[CASE_FAILED],
           n_ended[CASE_SKIPPED]);
    return n_ended[CASE_FAILED] || n_ended[0] + n_ended[CASE_SKIPPED] == 0;
}
