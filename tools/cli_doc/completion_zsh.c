/* Completion for zsh, by _arguments. */
#include "cli_doc.h"

#include <string.h>

/* Writes text for single quotes, and for the brackets of _arguments. */
static void quoted(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr("[]\\:", *c))
            fputc('\\', out);
        fputc(*c, out);
    }
}

/* One name of an option: '--name=[help]:VALUE:what to offer'. */
static void spec_write(FILE *out, const struct option *o, const struct option_name *name)
{
    enum value_kind kind = option_value_kind(o);
    fprintf(out, " \\\n            '%s%s%.*s%s[", o->type == OPTION_LIST ? "*" : "", name->dashes,
            name->len, name->text,
            kind != VALUE_NONE && strcmp(name->dashes, "--") == 0 ? "=" : "");
    quoted(out, o->help);
    fputc(']', out);
    if (kind != VALUE_NONE) {
        fputc(':', out);
        quoted(out, o->value);
        fputc(':', out);
    }
    if (kind == VALUE_FILE)
        fputs("_files", out);
    if (kind == VALUE_CHOICE) {
        fputc('(', out);
        choices_write(out, o, " ");
        fputc(')', out);
    }
    fputc('\'', out);
}

static void command_write(FILE *out, const struct command *command)
{
    struct option_name name;
    fprintf(out, "    %s)\n        _arguments \\\n            '(- *)--help[show the options]'",
            command->name);
    struct option_walk walk = {.command = command};
    for (const struct option *o; (o = option_next(&walk));)
        for (size_t at = 0; option_name_next(o, &at, &name);)
            spec_write(out, o, &name);
    if (command->max_operands)
        fputs(" \\\n            '*:file:_files'", out);
    fputs("\n        ;;\n", out);
}

void zsh_write(FILE *out)
{
    fputs("#compdef radish\n"
          "# zsh completion for radish. Written by tools/cli_doc from the program's tables.\n"
          "_radish() {\n"
          "    local -a commands=(\n",
          out);
    for (int i = 0; command_list[i]; i++) {
        fprintf(out, "        '%s:", command_list[i]->name);
        quoted(out, command_list[i]->summary);
        fputs("'\n", out);
    }
    fputs("        'help:show the commands, or the options of one'\n"
          "    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $words[1] in\n"
          "    help) _describe command commands ;;\n",
          out);
    for (int i = 0; command_list[i]; i++)
        command_write(out, command_list[i]);
    fputs("    esac\n"
          "}\n"
          "if [ \"$funcstack[1]\" = _radish ]; then\n"
          "    _radish \"$@\"\n"
          "else\n"
          "    compdef _radish radish\n"
          "fi\n",
          out);
}
