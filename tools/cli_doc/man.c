/* Man pages: one for the program, and one for each command. */
#include "cli_doc.h"

#include <string.h>

/* Writes text for roff: a dash stays a dash, `code` is bold. */
static void roff(FILE *out, const char *text)
{
    bool is_bold = false, is_line_start = true;
    for (const char *c = text; *c; c++) {
        if (is_line_start && (*c == '.' || *c == '\''))
            fputs("\\&", out);
        is_line_start = *c == '\n';
        if (*c == '`')
            fputs((is_bold = !is_bold) ? "\\fB" : "\\fR", out);
        else if (*c == '\\')
            fputs("\\e", out);
        else if (*c == '-')
            fputs("\\-", out);
        else
            fputc(*c, out);
    }
}

static void header(FILE *out, const char *page, const char *name, const char *summary)
{
    fputs(".\\\" Written by tools/cli_doc from the program's tables: do not edit.\n", out);
    fprintf(out, ".TH %s 1 \"\" \"radish " RADISH_VERSION "\" \"User Commands\"\n", page);
    fputs(".SH NAME\n", out);
    roff(out, name);
    fputs(" \\- ", out);
    roff(out, summary);
    fputc('\n', out);
}

static void paragraph(FILE *out, const char *text)
{
    fputs(".PP\n", out);
    roff(out, text);
    fputc('\n', out);
}

/* A list entry with a bold name and a text. */
static void entry(FILE *out, const char *name, const char *text)
{
    fputs(".TP\n.B ", out);
    roff(out, name);
    fputc('\n', out);
    roff(out, text);
    fputc('\n', out);
}

/* Lines as they stand, indented. */
static void verbatim(FILE *out, const char *text)
{
    fputs(".RS 4\n.nf\n", out);
    roff(out, text);
    fputs("\n.fi\n.RE\n", out);
}

static void option_write(FILE *out, const struct option *o)
{
    struct option_name name;
    fputs(".TP\n", out);
    for (size_t at = 0, is_first = 1; option_name_next(o, &at, &name); is_first = 0) {
        char text[96];
        snprintf(text, sizeof text, "%s`%s%.*s`", is_first ? "" : ", ", name.dashes, name.len,
                 name.text);
        roff(out, text);
    }
    if (o->value) {
        fputs(" \\fI", out);
        roff(out, o->value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    roff(out, o->help);
    if (o->type == OPTION_CHOICE) {
        fputs(" (one of ", out);
        choices_write(out, o, ", ");
        fputc(')', out);
    }
    fputs(".\n", out);
}

static void exit_status_write(FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    entry(out, "0", "Success.");
    entry(out, "1", "A failure, which a message on standard error explains.");
    entry(out, "2", "A usage error: an option or an argument is wrong.");
    entry(out, "130", "Ended by Ctrl-C.");
}

static void environment_write(FILE *out)
{
    fputs(".SH ENVIRONMENT\n", out);
    entry(out, "RADISH_LOG",
          "How much to log, unless `--log-level` says so: error, warn, info or "
          "debug.");
    entry(out, "NO_COLOR", "If it is set and not empty, output on a terminal has no colours.");
    entry(out, "HOME, XDG_CACHE_HOME",
          "Where the default model is: "
          "`$XDG_CACHE_HOME/radish` or `~/.cache/radish`.");
}

void man_write_overview(FILE *out)
{
    header(out, "RADISH", "radish", "serves language models and computes no prefix twice");
    fputs(".SH SYNOPSIS\n.B radish\n.I COMMAND\n.RI [ OPTIONS ]\n", out);
    fputs(".SH DESCRIPTION\n", out);
    roff(out, "radish serves language models over the APIs of OpenAI, llama-server and Ollama. It "
              "keeps what it has computed in a radix tree of tokens, so that a prompt that begins "
              "as an earlier one is computed only from where the two part.\n");
    paragraph(out, "Each command has a page of its own, and `radish COMMAND --help` lists its "
                   "options.");
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; command_list[i]; i++) {
        char page[64], text[256];
        snprintf(page, sizeof page, "radish-%s(1)", command_list[i]->name);
        snprintf(text, sizeof text, "%s.", command_list[i]->summary);
        text[0] = (char)(text[0] >= 'a' && text[0] <= 'z' ? text[0] - 'a' + 'A' : text[0]);
        entry(out, page, text);
    }
    exit_status_write(out);
    environment_write(out);
    fputs(".SH EXAMPLES\n", out);
    verbatim(out, "radish serve -m model.gguf --port 8080");
    fputs(".PP\n", out);
    verbatim(out, "radish chat -m model.gguf");
}

static bool reads_config(const struct command *command)
{
    for (int t = 0; t < OPTION_TABLES; t++)
        if (command->tables[t] == command_config_options)
            return true;
    return false;
}

static void config_write(FILE *out)
{
    fputs(".SH CONFIG FILE\n", out);
    roff(out, "A file given with `--config` has options by their long names, one a line. The = may "
              "be left out. A # at the start of a line or after white space begins a comment. A "
              "flag is `on` or `off`; without a value, it is on. To give several values of a "
              "repeatable option, repeat the line. A value in double quotes keeps white space "
              "and #; there are no escapes.\n");
    fputs(".PP\n", out);
    verbatim(out, "# A comment.\nport = 9000\nstrict-fields\nallowed-host = a.example\n"
                  "allowed-host = b.example");
    paragraph(out, "The command line wins over the file; repeatable options take the values of "
                   "both. Relative paths are relative to the current directory.");
}

static void serve_write(FILE *out)
{
    fputs(".SH SIGNALS\n", out);
    entry(out, "SIGTERM, SIGINT",
          "No new requests are accepted; answers in progress have "
          "`--shutdown-grace` seconds to finish. A second signal ends them "
          "at once.");
    entry(out, "SIGHUP",
          "Reads the files of keys and certificates again. Other options need a "
          "restart.");
    fputs(".SH FILES\n", out);
    entry(out, "/etc/radish/radish.conf",
          "The config file of the service that the Debian package installs.");
    entry(out, "/var/lib/radish", "The home of that service, for models.");
}

void man_write_command(FILE *out, const struct command *command)
{
    char page[64], name[64];
    snprintf(name, sizeof name, "radish-%s", command->name);
    snprintf(page, sizeof page, "%s", name);
    for (char *c = page; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    header(out, page, name, command->summary);
    fprintf(out, ".SH SYNOPSIS\n.B radish %s\n", command->name);
    roff(out, command->usage);
    fputs(
        "\n.SH OPTIONS\nNames may be written with one dash or two, and values after a space or an "
        "equals sign.\n",
        out);
    struct option_walk walk = {.command = command};
    for (const struct option *o; (o = option_next(&walk));)
        option_write(out, o);
    if (command->notes) {
        fputs(".SH NOTES\n", out);
        verbatim(out, command->notes);
    }
    if (reads_config(command))
        config_write(out);
    if (command == &command_serve)
        serve_write(out);
    exit_status_write(out);
    fputs(".SH EXAMPLE\n", out);
    verbatim(out, command->example);
    fputs(".SH SEE ALSO\n.BR radish (1)\n", out);
}
