/* The radish program: finds the command and runs it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/byte_view.h"
#include "base/log.h"
#include "base/map_guard.h"
#include "cli/command.h"
#include "cli/foreign_options.h"

static void help_print(FILE *out)
{
    fprintf(out, "radish " RADISH_VERSION
                 ": serves language models and never computes the same prefix twice\n\n"
                 "usage: radish COMMAND [OPTIONS]\n\n");
    for (int i = 0; command_list[i]; i++)
        fprintf(out, "  %-10s %s\n", command_list[i]->name, command_list[i]->summary);
    fprintf(out, "\n`radish COMMAND --help` lists the options of a command.\n"
                 "example: radish serve -m model.gguf --port 8080\n");
}

/* A failed write, such as to a full disk or a closed file, is a failure too. */
static int status_with_output(int status)
{
    if ((fflush(stdout) || ferror(stdout)) && status == EXIT_OK) {
        fprintf(stderr, "radish: cannot write the output\n");
        return EXIT_FAILED;
    }
    return status;
}

/* NULL if none is close. */
static const char *command_nearest(const char *name)
{
    for (int i = 0; command_list[i]; i++)
        if (name_is_near(name, name_distance(name, command_list[i]->name)))
            return command_list[i]->name;
    return NULL;
}

/* A model's name or path where a command should be. */
static bool is_model(const char *name)
{
    return string_ends(name, ".gguf") || access(name, F_OK) == 0;
}

static int command_unknown(const char *name)
{
    const char *advice = foreign_command_advice(name), *nearest = command_nearest(name);
    if (name[0] == '-') {
        fprintf(stderr,
                "radish: '%s' is an option; give a command first, such as radish serve -m PATH\n",
                name);
    } else if (advice) {
        fprintf(stderr, "radish: unknown command '%s': %s\n", name, advice);
    } else if (nearest) {
        fprintf(stderr, "radish: unknown command '%s': did you mean %s?\n", name, nearest);
    } else if (is_model(name)) {
        fprintf(stderr, "radish: unknown command '%s': did you mean radish serve -m %s?\n", name,
                name);
    } else {
        fprintf(stderr, "radish: unknown command '%s'\n\n", name);
        help_print(stderr);
        return EXIT_USAGE;
    }
    fprintf(stderr, "try: radish --help\n");
    return EXIT_USAGE;
}

static int command_start(const char *name, int argc, char **argv)
{
    for (int i = 0; command_list[i]; i++)
        if (strcmp(command_list[i]->name, name) == 0)
            return command_list[i]->run(command_list[i], argc, argv);
    return command_unknown(name);
}

static int program_run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    bool wants_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
                      strcmp(name, "help") == 0;
    if (wants_help && argc > 2)
        return command_start(argv[2], 1, (char *[]){"--help"});
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0)
        return command_version();
    if (!wants_help && argc > 1)
        return command_start(name, argc - 2, argv + 2);
    help_print(wants_help ? stdout : stderr);
    return wants_help ? EXIT_OK : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    map_guard_install();
    log_set_default(LOG_WARN); /* a person is reading; the server logs more */
    return status_with_output(program_run(argc, argv));
}
