/* Completion for bash. It needs no package: bash's own words are enough. */
#include "cli_doc.h"

static void names_write(FILE *out, const struct option *o, const char *between)
{
    struct option_name name;
    for (size_t at = 0, is_first = 1; option_name_next(o, &at, &name); is_first = 0)
        fprintf(out, "%s%s%.*s", is_first ? "" : between, name.dashes, name.len, name.text);
}

/* One case for each option with a value: what may follow it. */
static void values_write(FILE *out, const struct command *command)
{
    struct option_walk walk = {.command = command};
    for (const struct option *o; (o = option_next(&walk));) {
        enum value_kind kind = option_value_kind(o);
        if (kind == VALUE_NONE)
            continue;
        fputs("                ", out);
        names_write(out, o, " | ");
        fputs(") kind=", out);
        if (kind == VALUE_CHOICE) {
            fputs("words words='", out);
            choices_write(out, o, " ");
            fputs("' ;;\n", out);
        } else {
            fputs(kind == VALUE_FILE ? "file ;;\n" : "free ;;\n", out);
        }
    }
}

static void command_write(FILE *out, const struct command *command)
{
    fprintf(out, "        %s)\n            options='--help", command->name);
    struct option_walk walk = {.command = command};
    for (const struct option *o; (o = option_next(&walk));) {
        fputc(' ', out);
        names_write(out, o, " ");
    }
    fputs("'\n            case $prev in\n", out);
    values_write(out, command);
    fputs("            esac\n", out);
    if (command->max_operands)
        fputs("            [ -n \"$kind\" ] || kind=operand\n", out);
    fputs("            ;;\n", out);
}

static void commands_write(FILE *out)
{
    for (int i = 0; command_list[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", command_list[i]->name);
}

void bash_write(FILE *out)
{
    fputs("# bash completion for radish. Written by tools/cli_doc from the program's tables.\n"
          "_radish()\n"
          "{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local options='' words='' kind='' commands='",
          out);
    commands_write(out);
    fputs("'\n"
          "    # bash splits --name=value at the equals sign.\n"
          "    [ \"$cur\" != = ] || cur=''\n"
          "    [ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        kind=words words=\"$commands help version --help --version\"\n"
          "    else\n"
          "        case ${COMP_WORDS[1]} in\n"
          "        help) kind=words words=$commands ;;\n",
          out);
    for (int i = 0; command_list[i]; i++)
        command_write(out, command_list[i]);
    fputs("        esac\n"
          "    fi\n"
          "    case $kind in\n"
          "    words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
          "    free) ;;\n"
          "    *)\n"
          "        if [ \"$kind\" != file ] && [ \"${cur:0:1}\" = - ]; then\n"
          "            mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
          "        elif [ -n \"$kind\" ]; then\n"
          "            compopt -o filenames 2>/dev/null\n"
          "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "        fi ;;\n"
          "    esac\n"
          "}\n"
          "complete -F _radish radish\n",
          out);
}
