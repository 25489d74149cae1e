#ifndef RADISH_BASE_NEAREST_H
#define RADISH_BASE_NEAREST_H

#include <stddef.h>

/* The name that a misspelt one was meant to be: offer all there are, then look at `best`. */
struct nearest {
    const char *given;
    const char *best; /* NULL: none is near */
    size_t distance;
};

/* Near is what differs by a letter or two (more in longer names), or begins with what was given.
 * Case, and '_' for '-', do not count. */
void nearest_offer(struct nearest *n, const char *name);

#endif
