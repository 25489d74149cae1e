/* One write() per line, so that lines of different threads never mix. Control characters are shown
 * as '?', so that text from a client can neither forge a log line nor command a terminal.
 *
 * The lock is held while a line is written, so that no other thread fills the room that was found
 * for it. Waiting for room is limited, see log.h. */
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

enum { LEVEL_UNSET = -1 };
static atomic_int current_level = LEVEL_UNSET, default_level = LOG_INFO, current_format = LOG_TEXT;

enum { MESSAGE_BYTES = 1000, LINE_BYTES = 4096, REPEATS = 8 };
#define SECOND_NS UINT64_C(1000000000)
#define REPEAT_NS (10 * SECOND_NS)
#define WAIT_NS   (SECOND_NS / 10) /* for room, in a second */

/* A warning of the last seconds. */
struct repeat {
    uint64_t began_ns; /* 0: unused */
    uint32_t n;        /* how often it came again */
    char message[MESSAGE_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock: */
static struct repeat repeats[REPEATS];
static uint64_t n_lost, window_ns, waited_ns;

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

void log_set_format(enum log_format format)
{
    atomic_store(&current_format, (int)format);
}

enum log_format log_get_format(void)
{
    return (enum log_format)atomic_load_explicit(&current_format, memory_order_relaxed);
}

/* ---- writing lines ------------------------------------------------------------------------ */

/* Waits until stderr has room for a line, as long as this may take. A file always has room. */
static bool has_room(void)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) != 0)
        return true; /* or it is broken, which is no reason to wait */
    const uint64_t began_ns = clock_now_ns();
    if (began_ns - window_ns > SECOND_NS) {
        window_ns = began_ns;
        waited_ns = 0;
    }
    if (waited_ns >= WAIT_NS)
        return false;
    const uint64_t rest_ns = WAIT_NS - waited_ns;
    const int n = poll(&out, 1, (int)(rest_ns / 1000000) + 1);
    waited_ns += clock_now_ns() - began_ns;
    return n > 0;
}

/* Appends "12:34:56.789 warn  ", or what begins a line of JSON. */
static size_t line_begin(char line[LINE_BYTES], enum log_level level)
{
    const bool is_json = log_get_format() == LOG_JSON;
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    if (is_json)
        gmtime_r(&now.tv_sec, &tm);
    else
        localtime_r(&now.tv_sec, &tm);
    size_t used = strftime(line, LINE_BYTES, is_json ? "{\"time\":\"%FT%H:%M:%S" : "%H:%M:%S", &tm);
    const char *format = is_json ? ".%03ldZ\",\"level\":\"%s\"," : ".%03ld %-5s ";
    return used + (size_t)snprintf(line + used, LINE_BYTES - used, format, now.tv_nsec / 1000000,
                                   level_names[level]);
}

static void line_send(char line[LINE_BYTES], size_t used)
{
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* if this fails, there is nowhere to report it */
}

static size_t append(char line[LINE_BYTES], size_t used, const char *bytes, size_t len)
{
    const size_t room = LINE_BYTES - 16 - used; /* what ends the line still fits */
    len = len < room ? len : room;
    memcpy(line + used, bytes, len);
    return used + len;
}

/* A message is UTF-8 without control characters, so only two need an escape. */
static void message_write(enum log_level level, const char *message)
{
    char line[LINE_BYTES];
    size_t used = line_begin(line, level);
    if (log_get_format() == LOG_TEXT) {
        line_send(line, append(line, used, message, strlen(message)));
        return;
    }
    used = append(line, used, "\"message\":\"", 11);
    for (size_t rest = strlen(message), n; rest; message += n, rest -= n) {
        n = utf8_valid_prefix(message, rest);
        assert(n > 0);
        if (*message == '"' || *message == '\\')
            used = append(line, used, "\\", 1);
        used = append(line, used, message, n);
    }
    line_send(line, append(line, used, "\"}", 2));
}

/* Makes sure that a line can be written; if not, it counts as lost. */
static bool line_may_begin(void)
{
    char text[80];
    if (!has_room()) {
        n_lost++;
        return false;
    }
    if (n_lost) {
        snprintf(text, sizeof text, "log lines lost, because nobody read them: %llu",
                 (unsigned long long)n_lost);
        n_lost = 0;
        message_write(LOG_WARN, text);
        return line_may_begin();
    }
    return true;
}

/* ---- repeated warnings -------------------------------------------------------------------- */

static void repeat_end(struct repeat *r, uint64_t now_ns)
{
    char text[MESSAGE_BYTES + 64];
    if (r->n && line_may_begin()) {
        snprintf(text, sizeof text, "%s (repeated %u time%s in %.0f s)", r->message, r->n,
                 r->n == 1 ? "" : "s", (double)(now_ns - r->began_ns) * 1e-9);
        message_write(LOG_WARN, text);
    }
    r->began_ns = 0;
}

static void repeats_expire(uint64_t now_ns)
{
    for (int i = 0; i < REPEATS; i++)
        if (repeats[i].began_ns && now_ns - repeats[i].began_ns >= REPEAT_NS)
            repeat_end(&repeats[i], now_ns);
}

/* True if the message is only counted. */
static bool is_repeated(const char *message, uint64_t now_ns)
{
    struct repeat *oldest = &repeats[0];
    for (int i = 0; i < REPEATS; i++) {
        struct repeat *r = &repeats[i];
        if (r->began_ns && strcmp(r->message, message) == 0) {
            r->n++;
            return true;
        }
        if (r->began_ns < oldest->began_ns)
            oldest = r;
    }
    if (oldest->began_ns)
        repeat_end(oldest, now_ns);
    oldest->began_ns = now_ns;
    oldest->n = 0;
    snprintf(oldest->message, sizeof oldest->message, "%s", message);
    return false;
}

void log_repeats(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REPEATS; i++)
        if (repeats[i].began_ns)
            repeat_end(&repeats[i], clock_now_ns());
    pthread_mutex_unlock(&lock);
}

/* ---- logging ------------------------------------------------------------------------------ */

/* Makes each byte of a control character '?', and each that is not UTF-8. */
static void message_clean(char *message)
{
    for (size_t rest = strlen(message), n; rest; message += n, rest -= n) {
        n = utf8_valid_prefix(message, rest);
        const uint32_t code = n ? utf8_decode(message, n) : 0;
        const bool is_control = code < ' ' || (code >= 0x7f && code < 0xa0);
        n = n ? n : 1;
        if (is_control)
            memset(message, '?', n);
    }
}

void log_write(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    const int saved_errno = errno; /* callers may still need it */
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    message_clean(message);
    pthread_mutex_lock(&lock);
    const uint64_t now_ns = clock_now_ns();
    repeats_expire(now_ns);
    if (!(level == LOG_WARN && is_repeated(message, now_ns)) && line_may_begin())
        message_write(level, message);
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}

void log_members(enum log_level level, const char *members, size_t len)
{
    char line[LINE_BYTES];
    if (!log_enabled(level))
        return;
    pthread_mutex_lock(&lock);
    repeats_expire(clock_now_ns());
    size_t used = line_begin(line, level);
    if (used + len + 16 < sizeof line && line_may_begin())
        line_send(line, append(line, append(line, used, members, len), "}", 1));
    pthread_mutex_unlock(&lock);
}
