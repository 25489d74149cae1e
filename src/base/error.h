#ifndef RADISH_BASE_ERROR_H
#define RADISH_BASE_ERROR_H

#include <stddef.h>

/* base/ holds what any C program could use: errors, strings, memory, JSON, threads, the machine.
 * Nothing here knows models, prompts or requests. */

/* The one error type. A function that can fail takes `struct error *` last and returns 0 or -1
 * (or a pointer or NULL); on failure it has filled the error in. Our own bugs are asserts. */
enum error_code {
    ERROR_NONE = 0,
    ERROR_IO,       /* a file, a socket, the system: the message names the path */
    ERROR_MEMORY,   /* no memory */
    ERROR_FORMAT,   /* a file is not what it claims to be: path, what is wrong, at which offset */
    ERROR_INPUT,    /* the client sent something wrong: position says where, if it is known */
    ERROR_LIMIT,    /* a stated limit was exceeded */
    ERROR_FAILED,   /* the engine failed */
    ERROR_CANCELED, /* the caller asked to stop */
    ERROR_UNSUPPORTED, /* the engine has no such operation */
    ERROR_DEVICE,      /* the device is lost, with everything on it */
};

#define ERROR_NO_POSITION ((size_t)-1)

struct error {
    enum error_code code;
    size_t position; /* byte offset into the input, or ERROR_NO_POSITION */
    char message[480];
};

/* Both fill `e` (which may be NULL) and return -1, so that `return error_set(...)` reads well. */
__attribute__((format(printf, 3, 4))) int error_set(struct error *e, enum error_code code,
                                                    const char *format, ...);
__attribute__((format(printf, 4, 5))) int error_set_at(struct error *e, enum error_code code,
                                                       size_t position, const char *format, ...);

#endif
