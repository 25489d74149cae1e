#ifndef RADISH_CLI_CONFIG_FILE_H
#define RADISH_CLI_CONFIG_FILE_H

#include "cli/args.h"

/* Options in a file, one a line, by their long names:
 *
 *     # a comment
 *     port = 9000                  # "port 9000" is the same
 *     cache-size = 2GiB
 *     strict-fields                # a flag: also "strict-fields = on" or "= off"
 *     allowed-host = a.example     # repeatable options are repeated
 *     allowed-host = b.example
 *     alias = " a # b "            # quotes keep white space and #; nothing inside is special
 *
 * Options that the command line has set keep their values, so parse that first. Errors begin with
 * "FILE, line N: ". */
int config_file_read(const char *path, struct option_set *set, struct error *err);

#endif
