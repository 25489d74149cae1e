/* Messages on stderr; each case writes them in a child process, whose stderr is a pipe. */
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

enum { CAPTURE_BYTES = 1 << 20 };

/* Runs `say` in a child and returns all its output; the caller frees it. */
static char *capture(void (*say)(void))
{
    int ends[2], status;
    char *text = calloc(1, CAPTURE_BYTES);
    size_t used = 0;
    CHECK(text && pipe(ends) == 0);
    fcntl(ends[1], F_SETPIPE_SZ, CAPTURE_BYTES); /* so that the child need not wait */
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        say();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + used, CAPTURE_BYTES - 1 - used)) > 0;)
        used += (size_t)got;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return text;
}

/* "12:34:56.789 warn  text" */
static void check_line(const char *line, const char *level, const char *text)
{
    static const char pattern[] = "dd:dd:dd.ddd ";
    for (size_t i = 0; i < sizeof pattern - 1; i++)
        CHECK(pattern[i] == 'd' ? isdigit((unsigned char)line[i]) : line[i] == pattern[i]);
    char rest[64];
    snprintf(rest, sizeof rest, "%-5s %s\n", level, text);
    CHECK(strncmp(line + sizeof pattern - 1, rest, strlen(rest)) == 0);
}

static void say_one(void)
{
    log_set_level(LOG_INFO);
    log_warn("number %d", 7);
}

TEST(log, a_line_has_time_level_and_text)
{
    char *text = capture(say_one);
    check_line(text, "warn", "number 7");
    CHECK(strchr(text, '\n')[1] == '\0');
    free(text);
}

static void say_all(void)
{
    log_error("e");
    log_warn("w");
    log_info("i");
    log_debug("d");
}

static void say_all_at_warn(void)
{
    log_set_level(LOG_WARN);
    say_all();
}

static void say_all_at_debug(void)
{
    log_set_level(LOG_DEBUG);
    say_all();
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

TEST(log, the_level_decides)
{
    char *text = capture(say_all_at_warn);
    CHECK_INT(count_lines(text), 2);
    check_line(text, "error", "e");
    check_line(strchr(text, '\n') + 1, "warn", "w");
    free(text);
    text = capture(say_all_at_debug);
    CHECK_INT(count_lines(text), 4);
    free(text);
}

TEST(log, levels_have_names)
{
    enum log_level level;
    CHECK(log_parse_level("error", &level) && level == LOG_ERROR);
    CHECK(log_parse_level("warn", &level) && level == LOG_WARN);
    CHECK(log_parse_level("info", &level) && level == LOG_INFO);
    CHECK(log_parse_level("debug", &level) && level == LOG_DEBUG);
    level = LOG_WARN;
    CHECK(!log_parse_level("", &level) && !log_parse_level("Error", &level));
    CHECK(!log_parse_level("debugx", &level));
    CHECK_INT(level, LOG_WARN);
}

static void say_long(void)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    log_set_level(LOG_INFO);
    log_info("%s", text);
    log_info("next");
}

TEST(log, a_long_line_is_cut_and_still_a_line)
{
    char *text = capture(say_long);
    char *end = strchr(text, '\n');
    CHECK(end && end - text > 500 && end - text < 1100);
    CHECK(end[-1] == 'x');
    check_line(end + 1, "info", "next");
    CHECK_INT(count_lines(text), 2);
    free(text);
}

static void say_hostile(void)
{
    log_set_level(LOG_INFO);
    log_info("GET /\r\n00:00:00.000 error \x1b[31mforged\x7f caf\xc3\xa9 \xc2\x9b"
             "2J \x9b");
}

TEST(log, a_message_cannot_forge_a_line)
{
    char *text = capture(say_hostile);
    CHECK_INT(count_lines(text), 1);
    check_line(text, "info", "GET /??00:00:00.000 error ?[31mforged? caf\xc3\xa9 ??2J ?");
    free(text);
}

static void say_with_errno(void)
{
    log_set_level(LOG_INFO);
    errno = ENOENT;
    close(STDERR_FILENO);
    log_info("nobody hears this");
    _exit(errno == ENOENT ? 0 : 1);
}

TEST(log, errno_is_left_alone)
{
    free(capture(say_with_errno));
}

enum { THREADS = 4, LINES = 200 };

static void *say_many(void *arg)
{
    for (int i = 0; i < LINES; i++)
        log_info("thread %c %0100d", *(const char *)arg, i);
    return NULL;
}

static void say_from_threads(void)
{
    pthread_t threads[THREADS];
    log_set_level(LOG_INFO);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, say_many, &"abcd"[i]) != 0)
            _exit(1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

TEST(log, lines_of_threads_do_not_mix)
{
    char *text = capture(say_from_threads);
    int next[THREADS] = {0};
    CHECK_INT(count_lines(text), THREADS * LINES);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char who;
        int number;
        *end = '\0';
        CHECK(sscanf(line, "%*s info thread %c %d", &who, &number) == 2);
        CHECK(who >= 'a' && who < 'a' + THREADS);
        CHECK_INT(number, next[who - 'a']++);
        CHECK_INT(strlen(line), strlen("00:00:00.000 info  thread a ") + 100);
    }
    free(text);
}

static void say_in_json(void)
{
    static const char members[] = "\"status\":200";
    log_set_level(LOG_INFO);
    log_set_format(LOG_JSON);
    log_info("a \"quoted\" back\\slash and a\nline");
    log_members(LOG_INFO, members, sizeof members - 1);
    log_members(LOG_DEBUG, members, sizeof members - 1);
}

TEST(log, json_lines)
{
    char *text = capture(say_in_json);
    static const char time[] = "{\"time\":\"dddd-dd-ddTdd:dd:dd.dddZ\",";
    CHECK_INT(count_lines(text), 2);
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        for (size_t i = 0; i < sizeof time - 1; i++)
            CHECK(i >= 9 && time[i] == 'd' ? isdigit((unsigned char)line[i]) : line[i] == time[i]);
    CHECK(strstr(text, "Z\",\"level\":\"info\",\"message\":\"a \\\"quoted\\\" back\\\\slash and "
                       "a?line\"}\n"));
    CHECK(strstr(text, "Z\",\"level\":\"info\",\"status\":200}\n"));
    free(text);
}

static void say_again_and_again(void)
{
    log_set_level(LOG_INFO);
    for (int i = 0; i < 38; i++) {
        log_warn("too many %s", "flies");
        log_info("all is well");
    }
    log_error("too many flies"); /* errors are always written */
    log_error("too many flies");
    log_warn("one of its kind");
    log_repeats();
    log_repeats();
    log_warn("too many flies");
}

TEST(log, repeated_warnings_are_counted)
{
    char *text = capture(say_again_and_again);
    CHECK_INT(count_lines(text), 1 + 38 + 2 + 1 + 1 + 1);
    CHECK(strstr(text, "warn  too many flies (repeated 37 times in 0 s)\n"));
    CHECK(strstr(text, "error too many flies\n") && strstr(text, "warn  one of its kind\n"));
    free(text);
}

static void say_many_kinds(void)
{
    log_set_level(LOG_INFO);
    for (int i = 0; i < 100; i++)
        log_warn("kind %d", i / 2);
}

TEST(log, many_kinds_of_warnings_lose_none)
{
    char *text = capture(say_many_kinds);
    CHECK_INT(count_lines(text), 50 + 42); /* the last eight have not been counted out */
    CHECK(strstr(text, "kind 49\n") && strstr(text, "kind 0 (repeated 1 time in 0 s)\n"));
    free(text);
}

/* A pipe that nobody reads must not hold up the callers. */
TEST(log, a_full_pipe_does_not_block)
{
    enum { MANY = 3000 };
    int ends[2], kept = dup(STDERR_FILENO);
    static char text[1 << 18];
    CHECK(kept >= 0 && pipe(ends) == 0);
    log_set_level(LOG_INFO);
    dup2(ends[1], STDERR_FILENO);
    const uint64_t began_ns = clock_now_ns();
    for (int i = 0; i < MANY; i++)
        log_info("line %d %0100d", i, 0);
    const uint64_t took_ns = clock_now_ns() - began_ns;
    ssize_t got = read(ends[0], text, sizeof text);
    log_info("the reader is back");
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    CHECK(got > 4096 && (got += read(ends[0], text + got, sizeof text - 1 - (size_t)got)) > 4096);
    close(ends[0]);
    close(kept);
    log_set_level(LOG_ERROR);
    CHECK(took_ns < 1000000000);
    const char *lost = strstr(text, "log lines lost, because nobody read them: ");
    CHECK(lost && strstr(lost, "the reader is back\n"));
    CHECK_INT(count_lines(text) - 2 + atoi(strchr(lost, ':') + 2), MANY);
}
