/* A file under src/ includes only its own layer and the layers below it. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "test.h"

/* From top to bottom. Layers of one height do not see each other. */
static const struct {
    const char *name;
    int height;
} layers[] = {
    {"cli", 7},   {"serve", 6},  {"prompt", 5}, {"sched", 4},
    {"cache", 3}, {"engine", 3}, {"model", 2},  {"base", 1},
};

/* The layer that a path below src/ begins with, or -1. */
static int layer_of(const char *path)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        size_t len = strlen(layers[i].name);
        if (strncmp(path, layers[i].name, len) == 0 && path[len] == '/')
            return (int)i;
    }
    return -1;
}

static bool may_include(const char *file, const char *included)
{
    int from = layer_of(file), to = layer_of(included);
    return from >= 0 && to >= 0 && (from == to || layers[to].height < layers[from].height);
}

TEST(layers, the_rule)
{
    CHECK(may_include("cli/main.c", "base/log.h"));
    CHECK(may_include("sched/plan.c", "cache/prefix_tree.h"));
    CHECK(may_include("engine/cpu/x.c", "engine/engine.h"));
    CHECK(!may_include("base/log.c", "model/model.h"));
    CHECK(!may_include("cache/x.c", "engine/engine.h"));
    CHECK(!may_include("engine/x.c", "cache/page_pool.h"));
    CHECK(!may_include("sched/x.c", "prompt/tokenizer/tokenizer.h"));
    CHECK(!may_include("cache/x.c", "page_pool.h")); /* always with its layer */
    CHECK(!may_include("other/x.c", "base/log.h"));
    CHECK(!may_include("cache/x.c", "caches/log.h"));
}

/* The quoted name of an #include line, cut out of it; NULL for any other line. */
static char *included_name(char *line)
{
    line += strspn(line, " \t");
    if (*line++ != '#')
        return NULL;
    line += strspn(line, " \t");
    if (strncmp(line, "include", 7) != 0)
        return NULL;
    line += 7 + strspn(line + 7, " \t");
    if (*line != '"')
        return NULL;
    char *end = strchr(line + 1, '"');
    if (end)
        *end = '\0';
    return end ? line + 1 : NULL;
}

static int check_file(const char *path)
{
    char line[1024];
    int n_included = 0;
    FILE *file = fopen(path, "r");
    CHECK(file);
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        char *name = included_name(line);
        n_included += name != NULL;
        if (name && !may_include(path + strlen("src/"), name))
            test_fail(path, number, "may not include \"%s\"", name);
    }
    fclose(file);
    return n_included;
}

/* Checks every C file below a folder; returns how many includes it saw. */
static int check_folder(const char *folder)
{
    int n_included = 0;
    DIR *dir = opendir(folder);
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[1024];
        struct stat info;
        size_t len = strlen(entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        CHECK(snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path);
        CHECK_INT(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode))
            n_included += check_folder(path);
        else if (len > 2 && (strcmp(entry->d_name + len - 2, ".c") == 0 ||
                             strcmp(entry->d_name + len - 2, ".h") == 0))
            n_included += check_file(path);
    }
    closedir(dir);
    return n_included;
}

TEST(layers, every_file_includes_downwards)
{
    struct stat info;
    if (stat("src/base/log.h", &info) != 0)
        SKIP("not run from the root of the source tree");
    CHECK(check_folder("src") > 50);
}
