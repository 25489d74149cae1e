#ifndef RADISH_CLI_COMMAND_H
#define RADISH_CLI_COMMAND_H

#include "cli/args.h"

/* cli/ holds the commands, one cmd_*.c each, and what only they use: options, the terminal,
 * traces, benchmarks. */

/* The commands. Each gets the arguments after its name and returns the exit status: 0, 1 for a
 * failure, 2 for a usage error, 130 after Ctrl-C, as in shells. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

struct command {
    const char *name;
    const char *summary; /* one line for `radish --help` */
    const char *usage;   /* what follows the name, and an example */
    const char *example;
    const char *notes;                          /* more lines for --help; NULL: none */
    const struct option *tables[OPTION_TABLES]; /* its options, as in struct option_set */
    size_t max_operands;
    const char *operand_hint; /* for an argument too many; see args.h */
    int (*run)(const struct command *command, int argc, char **argv);
    bool has_default_model; /* without -m it uses the one that `make chat` downloads */
};

extern const struct command command_serve, command_chat, command_run, command_bench, command_info,
    command_tokenize, command_render, command_logits, command_replay, command_quantize;
/* All of them in the order of `radish --help`, up to a NULL. */
extern const struct command *const command_list[];
/* --config FILE, for commands that may read options from a file. */
extern const struct option command_config_options[];

/* Prints the version; returns the exit status. */
int command_version(void);
/* Parses a command's options into a new set, first from the command line, then from the file of
 * --config. True: continue. False: exit with *status (help, the version or an error was printed).
 */
bool command_parse(const struct command *command, struct option_set *set, int argc, char **argv,
                   int *status);
/* The file of --config; NULL: none was given. */
const char *command_config_path(void);
/* Prints "radish NAME: message" to stderr and returns `status`. */
int command_fail(const struct command *command, const struct error *err, int status);
/* The same for errors that an option's value can cause: ERROR_INPUT is a usage error. */
int command_fail_option(const struct command *command, const struct error *err);

#endif
