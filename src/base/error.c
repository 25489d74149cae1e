/* Filling in the one error type. Messages that are too long are cut, never overrun. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static void fill(struct error *e, enum error_code code, size_t position, const char *format,
                 va_list args)
{
    if (!e)
        return;
    e->code = code;
    e->position = position;
    vsnprintf(e->message, sizeof e->message, format, args);
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
