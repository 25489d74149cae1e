#ifndef RADISH_BASE_MAP_GUARD_H
#define RADISH_BASE_MAP_GUARD_H

#include <stddef.h>

/* Mapped files that may be cut short while they are read. The system then sends SIGBUS. With the
 * guard installed, a file that was told to it ends the process with a line on stderr and exit
 * status 1 instead of a crash; any other SIGBUS crashes as before. */

/* Installs the handler, for the whole process. */
void map_guard_install(void);
/* Tells it about a mapping, until map_guard_remove. Without memory to remember it, a file that is
 * cut short crashes the process. */
void map_guard_add(const void *begin, size_t len, const char *path);
void map_guard_remove(const void *begin);

#endif
