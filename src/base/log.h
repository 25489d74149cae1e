#ifndef RADISH_BASE_LOG_H
#define RADISH_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* The one logger: a line on stderr for each call, safe from any thread.
 * The level comes from --log-level, else from RADISH_LOG, else it is the command's own.
 *
 *   text  12:34:56.789 warn  the queue is full
 *   JSON  {"time":"2026-11-19T12:34:56.789Z","level":"warn","message":"the queue is full"}
 *
 * A warning that comes again within 10 s is counted, not written: "... (repeated 37
 * times in 10 s)" follows when they are over.
 *
 * If stderr is a pipe or a terminal that nobody reads, callers wait for it for at most a tenth of
 * the time. Lines that do not fit are lost, and their number is logged once there is room again. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_TEXT, LOG_JSON };

void log_set_level(enum log_level level);
void log_set_default(enum log_level level); /* before the first line; info if not called */
bool log_parse_level(const char *name,
                     enum log_level *level); /* "error", "warn", "info", "debug" */
bool log_enabled(enum log_level level);
enum log_level log_get_level(void);
void log_set_format(enum log_format format);
enum log_format log_get_format(void);

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

/* A line of JSON with the caller's members, such as `"status":200`, instead of a message. */
void log_members(enum log_level level, const char *members, size_t len);
/* Writes what repeated warnings are still to say. */
void log_repeats(void);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)

#endif
