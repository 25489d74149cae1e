/* An example of a config file for `radish serve`: every option with its help, as comments. */
#include "cli_doc.h"

#include <string.h>

enum { LINE_WIDTH = 98 };

/* Writes text as comments, wrapped at spaces. */
static void comment(FILE *out, const char *text)
{
    int column = 0;
    for (const char *at = text; *at;) {
        int len = (int)strcspn(at, " ");
        if (column && column + 1 + len > LINE_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column ? " " : "# ", len, at);
        at += len + (at[len] == ' ');
    }
    fputc('\n', out);
}

/* The choice that the help text calls the default: "info (default)" or "auto (default: ...)". */
static const char *default_choice(const struct option *o)
{
    for (int i = 0; o->choices[i]; i++) {
        char phrase[64];
        snprintf(phrase, sizeof phrase, "%s (default", o->choices[i]);
        if (strstr(o->help, phrase))
            return o->choices[i];
    }
    return o->choices[0];
}

/* Writes the default, if the help text has it as one word: "(default 8080; ...)". Otherwise writes
 * what --help calls the value. */
static void value_write(FILE *out, const struct option *o)
{
    const char *mark = strstr(o->help, "(default ");
    const char *word = mark ? mark + strlen("(default ") : "";
    size_t len = strcspn(word, " ):;");
    if (o->type == OPTION_CHOICE)
        fputs(default_choice(o), out);
    else if (len && word[len] && word[len] != ' ')
        fprintf(out, "%.*s", (int)len, word);
    else
        fputs(o->value, out);
}

void example_config_write(FILE *out)
{
    fputs(
        "# Options of `radish serve`, one a line, by their long names; radish-serve(1) describes\n"
        "# the format. All are comments here, which show the default, or what the value is.\n"
        "#\n"
        "# A change needs a restart, except in files of keys and certificates, which SIGHUP\n"
        "# reads again.\n"
        "#\n"
        "# The least to set is the model. To be reached from other machines, set also a host,\n"
        "# such as 0.0.0.0, and a file of keys.\n",
        out);
    struct option_walk walk = {.command = &command_serve};
    for (const struct option *o; (o = option_next(&walk));) {
        struct option_name name;
        if (!option_long_name(o, &name) || strncmp(name.text, "config", (size_t)name.len) == 0)
            continue;
        fputc('\n', out);
        comment(out, o->help);
        fprintf(out, "#%.*s", name.len, name.text);
        if (o->type != OPTION_FLAG) {
            fputs(" = ", out);
            value_write(out, o);
        }
        fputc('\n', out);
    }
}
