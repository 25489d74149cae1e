#ifndef RADISH_TEST_DEATH_H
#define RADISH_TEST_DEATH_H

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* Runs a statement in a child process, silently: true if it ended by abort(), as asserts do. */
#define CHECK_ABORTS(statement)                                                                    \
    do {                                                                                           \
        fflush(NULL);                                                                              \
        pid_t child_ = fork();                                                                     \
        CHECK(child_ >= 0);                                                                        \
        if (child_ == 0) {                                                                         \
            close(STDERR_FILENO);                                                                  \
            signal(SIGABRT, SIG_DFL);                                                              \
            statement;                                                                             \
            _exit(0);                                                                              \
        }                                                                                          \
        int status_ = 0;                                                                           \
        CHECK(waitpid(child_, &status_, 0) == child_);                                             \
        if (!WIFSIGNALED(status_) || WTERMSIG(status_) != SIGABRT)                                 \
            test_fail(__FILE__, __LINE__, "%s does not abort", #statement);                        \
    } while (0)

/* A check that must fail, and whose log line nobody needs to see: evaluated in a child process. */
#define CHECK_SAYS_NO(expression)                                                                  \
    do {                                                                                           \
        fflush(NULL);                                                                              \
        pid_t child_ = fork();                                                                     \
        CHECK(child_ >= 0);                                                                        \
        if (child_ == 0) {                                                                         \
            close(STDERR_FILENO);                                                                  \
            _exit((expression) ? 1 : 0);                                                           \
        }                                                                                          \
        int status_ = -1;                                                                          \
        CHECK(waitpid(child_, &status_, 0) == child_);                                             \
        if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0)                                      \
            test_fail(__FILE__, __LINE__, "%s is true", #expression);                              \
    } while (0)

#endif
