#ifndef RADISH_TOOLS_CLI_DOC_H
#define RADISH_TOOLS_CLI_DOC_H

#include <stdio.h>

#include "cli/command.h"

/* Writes what describes the command line, from the tables of options that the program itself uses:
 *
 *     man/man1/radish.1, radish-serve.1, ...        man.c
 *     completions/radish.bash, _radish, radish.fish  completion_*.c
 *     radish.conf                                    example_config.c
 */
void man_write_overview(FILE *out);
void man_write_command(FILE *out, const struct command *command);
void bash_write(FILE *out);
void zsh_write(FILE *out);
void fish_write(FILE *out);
/* A config file for `radish serve`, in which everything is a comment. */
void example_config_write(FILE *out);

/* A walk over the options that --help shows. Begin with {.command = ...}. */
struct option_walk {
    const struct command *command;
    size_t table, row;
};

/* NULL at the end. */
const struct option *option_next(struct option_walk *walk);

/* One of an option's names. */
struct option_name {
    const char *text; /* [len] without dashes, unless it has to be written exactly so */
    int len;
    const char *dashes;
};

/* The names in turn, the long ones first. `*at` begins at 0; false at the end. */
bool option_name_next(const struct option *o, size_t *at, struct option_name *out);
/* The first name; false if it is no long name without dashes of its own. */
bool option_long_name(const struct option *o, struct option_name *out);

/* What a shell offers for an option's value. */
enum value_kind { VALUE_NONE, VALUE_FREE, VALUE_FILE, VALUE_CHOICE };
enum value_kind option_value_kind(const struct option *o);
/* Writes the choices with this between them. */
void choices_write(FILE *out, const struct option *o, const char *between);

#endif
