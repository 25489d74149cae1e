/* radish: the program. Finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"

static const struct command *const commands[] = {
    &command_serve,    &command_chat,   &command_run,    &command_bench,  &command_info,
    &command_tokenize, &command_render, &command_logits, &command_replay, &command_quantize,
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help_print(FILE *out)
{
    fprintf(out,
            "radish " RADISH_VERSION ": serves language models, and computes no prefix twice\n\n"
            "usage: radish COMMAND [OPTIONS]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`radish help COMMAND` lists the options of a command.\n"
                 "example: radish serve -m model.gguf --port 8080\n");
}

static int version_print(void)
{
    printf("radish " RADISH_VERSION "\n");
    return EXIT_OK;
}

static int command_help(const struct command *command, const struct option_set *set)
{
    printf("radish %s: %s\n\nusage: radish %s %s\n\n", command->name, command->summary,
           command->name, command->usage);
    args_print_options(set);
    printf("\nexample: %s\n", command->example);
    return EXIT_OK;
}

bool command_parse(const struct command *command, struct option_set *set, int argc, char **argv,
                   int *status)
{
    struct error err;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool wants_help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (wants_help || strcmp(argv[i], "--version") == 0) {
            *status = wants_help ? command_help(command, set) : version_print();
            return false;
        }
    }
    if (args_parse(set, argc, argv, &err) == 0)
        return true;
    *status = command_fail(command, &err, EXIT_USAGE);
    return false;
}

int command_fail(const struct command *command, const struct error *err, int status)
{
    fprintf(stderr, "radish %s: %s\n", command->name, err->message);
    if (status == EXIT_USAGE)
        fprintf(stderr, "try: radish %s --help\n", command->name);
    return status;
}

int command_fail_option(const struct command *command, const struct error *err)
{
    return command_fail(command, err, err->code == ERROR_INPUT ? EXIT_USAGE : EXIT_FAILED);
}

/* What could not be written is a failure too: a full disk, a closed file. */
static int status_with_output(int status)
{
    if ((fflush(stdout) || ferror(stdout)) && status == EXIT_OK) {
        fprintf(stderr, "radish: the output could not be written\n");
        return EXIT_FAILED;
    }
    return status;
}

static int command_start(const char *name, int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i]->run(commands[i], argc, argv);
    fprintf(stderr, "radish: unknown command '%s'\n\n", name);
    help_print(stderr);
    return EXIT_USAGE;
}

static int program_run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    bool wants_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
                      strcmp(name, "help") == 0;
    if (wants_help && argc > 2)
        return command_start(argv[2], 1, (char *[]){"--help"});
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0)
        return version_print();
    if (!wants_help && argc > 1)
        return command_start(name, argc - 2, argv + 2);
    help_print(wants_help ? stdout : stderr);
    return wants_help ? EXIT_OK : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    log_set_default(LOG_WARN); /* a person reads along; the server says more */
    return status_with_output(program_run(argc, argv));
}
