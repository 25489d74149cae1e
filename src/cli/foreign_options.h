#ifndef RADISH_CLI_FOREIGN_OPTIONS_H
#define RADISH_CLI_FOREIGN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Options of llama-server, vLLM and Ollama that radish does not have, by the name without dashes.
 * Returns what to do instead, a whole sentence, or NULL for a name that none of them has. There may
 * be several, since commands have different options: `nth` counts from 0. */
const char *foreign_option_advice(const char *name, size_t nth);

/* The same for commands, such as Ollama's `pull`. */
const char *foreign_command_advice(const char *name);

/* The number of letters to insert, delete, replace or swap to turn one name into the other. */
size_t name_distance(const char *a, const char *b);
/* Whether `given` is likely a typing error for `name`, which is that far away. */
bool name_is_near(const char *given, size_t distance);

#endif
