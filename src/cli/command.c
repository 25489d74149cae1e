/* What all commands share: help, option parsing, and failure messages. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

#include "cli/config_file.h"
#include "cli/engines.h"

static const char *config_path;

const struct option command_config_options[] = {
    STRING("config", &config_path, "FILE",
           "read options from this file: lines as `port = 9000`; the command line wins"),
    {0},
};

const char *command_config_path(void)
{
    return config_path;
}

int command_version(void)
{
    struct strbuf engines = STRBUF_INIT;
    engines_describe(&engines, NULL);
    printf("radish " RADISH_VERSION "\nengines: %s\n", strbuf_str(&engines));
    strbuf_free(&engines);
    return EXIT_OK;
}

static int command_help(const struct command *command, const struct option_set *set)
{
    printf("radish %s: %s\n\nusage: radish %s %s\n\n", command->name, command->summary,
           command->name, command->usage);
    args_print_options(set);
    if (command->notes)
        printf("\n%s", command->notes);
    printf("\nexample: %s\n", command->example);
    return EXIT_OK;
}

bool command_parse(const struct command *command, struct option_set *set, int argc, char **argv,
                   int *status)
{
    struct error err;
    *set = (struct option_set){.max_operands = command->max_operands,
                               .operand_hint = command->operand_hint};
    memcpy(set->tables, command->tables, sizeof set->tables);
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool wants_help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (wants_help || strcmp(argv[i], "--version") == 0) {
            *status = wants_help ? command_help(command, set) : command_version();
            return false;
        }
    }
    if (args_parse(set, argc, argv, &err)) {
        *status = command_fail(command, &err, EXIT_USAGE);
        return false;
    }
    if (!config_path || config_file_read(config_path, set, &err) == 0)
        return true;
    *status = command_fail_option(command, &err);
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
