/* One write() per line, so that lines of different threads never mix. Control characters are shown
 * as '?', so that text from a client cannot forge a log line. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

enum { LEVEL_UNSET = -1 };
static atomic_int current_level = LEVEL_UNSET, default_level = LOG_INFO;

bool log_parse_level(const char *name, enum log_level *level)
{
    for (int i = LOG_ERROR; i <= LOG_DEBUG; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

void log_set_level(enum log_level level)
{
    atomic_store(&current_level, (int)level);
}

void log_set_default(enum log_level level)
{
    atomic_store(&default_level, (int)level);
}

static int level_get(void)
{
    int level = atomic_load_explicit(&current_level, memory_order_relaxed);
    if (level != LEVEL_UNSET)
        return level;
    enum log_level parsed = (enum log_level)atomic_load(&default_level);
    const char *name = getenv("RADISH_LOG");
    if (name)
        log_parse_level(name, &parsed);
    /* A level that was set in the meantime wins. */
    if (!atomic_compare_exchange_strong(&current_level, &level, (int)parsed))
        return level;
    return (int)parsed;
}

enum log_level log_get_level(void)
{
    return (enum log_level)level_get();
}

bool log_enabled(enum log_level level)
{
    return (int)level <= level_get();
}

void log_write(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    const int saved_errno = errno; /* callers may still need it */
    char line[1024];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t used = strftime(line, sizeof line, "%H:%M:%S", &tm);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%03ld %-5s ", now.tv_nsec / 1000000,
                             level_names[level]);
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (wrote > 0)
        used += (size_t)wrote;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* if this fails, there is nowhere to report it */
    errno = saved_errno;
}
