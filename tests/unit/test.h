#ifndef RADISH_TEST_H
#define RADISH_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One test binary, one table of cases. TEST(suite, name) adds its case to the table before main; a
 * failed CHECK prints where and what, ends the case and fails the run. SKIP gives a reason. */
struct test_case {
    const char *suite, *name;
    void (*run)(void);
    struct test_case *next;
};

void test_register(struct test_case *test);
/* Runs the cases that the arguments name; the exit status. `suite` is for the summary. */
int test_main(const char *suite, int argc, char **argv);
const char *test_name(void); /* of the case that runs */
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void test_skip(const char *why) __attribute__((noreturn));
/* A path below the folder of shared test data, or NULL if it does not exist. */
const char *test_shared_path(const char *relative);
/* The default model (RADISH_TEST_MODEL, or where `make` keeps it), or NULL if it does not exist. */
const char *test_model_path(void);
/* This run's own folder, for files that a case writes. */
const char *test_scratch_dir(void);

#define TEST(suite_, name_)                                                                        \
    static void test_##suite_##_##name_(void);                                                     \
    __attribute__((constructor)) static void register_##suite_##_##name_(void)                     \
    {                                                                                              \
        static struct test_case test = {#suite_, #name_, test_##suite_##_##name_, NULL};           \
        test_register(&test);                                                                      \
    }                                                                                              \
    static void test_##suite_##_##name_(void)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_fail(__FILE__, __LINE__, "%s", #condition);                                       \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #got, got_, want_);         \
    } while (0)
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (strcmp(got_, want_) != 0)                                                              \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #got, got_, want_);     \
    } while (0)
#define SKIP(why) test_skip(why)

#endif
