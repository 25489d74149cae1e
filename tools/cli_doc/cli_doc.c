/* cli_doc DIR: writes man pages, completions and an example of a config file into DIR; see
 * cli_doc.h. `make man` runs it. */
#include "cli_doc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const struct option *option_next(struct option_walk *walk)
{
    struct option_set set = {.max_operands = 0};
    memcpy(set.tables, walk->command->tables, sizeof set.tables);
    while (walk->table < OPTION_TABLES && set.tables[walk->table]) {
        const struct option *o = &set.tables[walk->table][walk->row++];
        if (o->names && args_is_shown(&set, o))
            return o;
        if (!o->names) {
            walk->table++;
            walk->row = 0;
        }
    }
    return NULL;
}

bool option_name_next(const struct option *o, size_t *at, struct option_name *out)
{
    const char *text = o->names + *at;
    if (!*text)
        return false;
    *out = (struct option_name){.text = text, .len = (int)strcspn(text, " ")};
    out->dashes = text[0] == '-' ? "" : out->len == 1 ? "-" : "--";
    *at += (size_t)out->len + (text[out->len] == ' ');
    return true;
}

bool option_long_name(const struct option *o, struct option_name *out)
{
    size_t at = 0;
    return option_name_next(o, &at, out) && strcmp(out->dashes, "--") == 0;
}

enum value_kind option_value_kind(const struct option *o)
{
    if (o->type == OPTION_FLAG)
        return VALUE_NONE;
    if (o->type == OPTION_CHOICE)
        return VALUE_CHOICE;
    bool is_file = strstr(o->value, "FILE") || strstr(o->value, "PATH") || strstr(o->value, "DIR");
    return is_file ? VALUE_FILE : VALUE_FREE;
}

void choices_write(FILE *out, const struct option *o, const char *between)
{
    for (int i = 0; o->choices[i]; i++)
        fprintf(out, "%s%s", i ? between : "", o->choices[i]);
}

static void fail(const char *path)
{
    perror(path);
    exit(1);
}

static FILE *file_begin(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    if (!out)
        fail(path);
    return out;
}

static void file_end(FILE *out)
{
    if (ferror(out) || fclose(out))
        fail("cli_doc");
}

static void file_write(const char *dir, const char *name, void (*write)(FILE *out))
{
    FILE *out = file_begin(dir, name);
    write(out);
    file_end(out);
}

int main(int argc, char **argv)
{
    static const char *const folders[] = {"", "/man", "/man/man1", "/completions"};
    if (argc != 2) {
        fprintf(stderr, "usage: cli_doc DIR\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s%s", argv[1], folders[i]);
        mkdir(path, 0755); /* if that fails, so does opening a file in it */
    }
    file_write(argv[1], "man/man1/radish.1", man_write_overview);
    for (int i = 0; command_list[i]; i++) {
        char name[128];
        snprintf(name, sizeof name, "man/man1/radish-%s.1", command_list[i]->name);
        FILE *out = file_begin(argv[1], name);
        man_write_command(out, command_list[i]);
        file_end(out);
    }
    file_write(argv[1], "completions/radish.bash", bash_write);
    file_write(argv[1], "completions/_radish", zsh_write);
    file_write(argv[1], "completions/radish.fish", fish_write);
    file_write(argv[1], "radish.conf", example_config_write);
    return 0;
}
