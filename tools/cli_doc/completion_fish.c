/* Completion for fish: a line for each option of each command. */
#include "cli_doc.h"

#include <string.h>

/* Writes text in single quotes. */
static void quoted(FILE *out, const char *text)
{
    fputc('\'', out);
    for (const char *c = text; *c; c++)
        fprintf(out, "%s%c", *c == '\'' || *c == '\\' ? "\\" : "", *c);
    fputc('\'', out);
}

static void option_write(FILE *out, const struct command *command, const struct option *o)
{
    enum value_kind kind = option_value_kind(o);
    struct option_name name;
    fprintf(out, "complete -c radish -n '__fish_seen_subcommand_from %s'", command->name);
    for (size_t at = 0; option_name_next(o, &at, &name);)
        fprintf(out, " %s %.*s",
                name.dashes[0] == '\0' ? "-o"
                : name.len == 1        ? "-s"
                                       : "-l",
                name.len - (name.text[0] == '-'), name.text + (name.text[0] == '-'));
    if (kind == VALUE_FILE) {
        fputs(" -r -F", out);
    } else if (kind == VALUE_FREE) {
        fputs(" -x", out);
    } else if (kind == VALUE_CHOICE) {
        fputs(" -x -a '", out);
        choices_write(out, o, " ");
        fputc('\'', out);
    }
    fputs(" -d ", out);
    quoted(out, o->help);
    fputc('\n', out);
}

void fish_write(FILE *out)
{
    fputs("# fish completion for radish. Written by tools/cli_doc from the program's tables.\n"
          "complete -c radish -f\n",
          out);
    for (int i = 0; command_list[i]; i++) {
        const struct command *command = command_list[i];
        fprintf(out, "complete -c radish -n __fish_use_subcommand -a %s -d ", command->name);
        quoted(out, command->summary);
        fprintf(out,
                "\ncomplete -c radish -n '__fish_seen_subcommand_from help' -a %s\n"
                "complete -c radish -n '__fish_seen_subcommand_from %s' -l help -d 'show the "
                "options'\n",
                command->name, command->name);
        if (command->max_operands)
            fprintf(out, "complete -c radish -n '__fish_seen_subcommand_from %s' -F\n",
                    command->name);
        struct option_walk walk = {.command = command};
        for (const struct option *o; (o = option_next(&walk));)
            option_write(out, command, o);
    }
    fputs("complete -c radish -n __fish_use_subcommand -a help -d 'show the commands, or the "
          "options of one'\n",
          out);
}
