#ifndef RADISH_BASE_LOG_H
#define RADISH_BASE_LOG_H

#include <stdbool.h>

/* The one logger: a line on stderr for each call, safe from any thread.
 * The level comes from --log-level, else from RADISH_LOG, else it is the command's own. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
void log_set_default(enum log_level level); /* before the first line; info if not called */
bool log_parse_level(const char *name,
                     enum log_level *level); /* "error", "warn", "info", "debug" */
bool log_enabled(enum log_level level);
enum log_level log_get_level(void);

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, __VA_ARGS__);                                                     \
    } while (0)

#endif
