/* Fills in the one error type. Long messages are truncated. A new message may contain the one that
 * the same error holds, to add context to it. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct error *e, enum error_code code, size_t position, const char *format,
                 va_list args)
{
    if (!e)
        return;
    char message[sizeof e->message];
    vsnprintf(message, sizeof message, format, args);
    e->code = code;
    e->position = position;
    memcpy(e->message, message, sizeof message);
}

int error_set(struct error *e, enum error_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(e, code, ERROR_NO_POSITION, format, args);
    va_end(args);
    return -1;
}

int error_set_at(struct error *e, enum error_code code, size_t position, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(e, code, position, format, args);
    va_end(args);
    return -1;
}
