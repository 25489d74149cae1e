/* The rooms of src/: every folder with files in it is a room and has a rank. A file includes its
 * own room and rooms of a lower rank. cache/ and engine/ do not reach each other at all, through
 * whatever headers. A base name belongs to one room. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "test.h"

/* From top to bottom, as in docs/design.md. Rooms of one rank do not see each other. */
static const struct room {
    const char *path;
    int rank;
} rooms[] = {
    {"cli/chat", 18},      {"cli", 17},
    {"cli/terminal", 1},

    {"serve", 16},         {"serve/completion", 15},
    {"serve/writers", 14}, {"serve/request", 14},
    {"serve/api", 13},     {"serve/http", 12},

    {"prompt", 11},        {"prompt/answer", 10},
    {"prompt/schema", 9},  {"prompt/grammar", 8},
    {"prompt/jinja", 8},   {"prompt/tokenizer", 8},
    {"prompt/unicode", 7},

    {"sched", 6},

    {"engine/cpu", 6},     {"engine/cpu/kernels", 5},
    {"engine/cuda", 6},    {"engine/mock", 6},
    {"engine", 4},

    {"model/convert", 4},  {"model", 3},
    {"model/files", 2},    {"model/quant", 1},

    {"cache", 1},

    {"base", 0},
};
enum { N_ROOMS = sizeof rooms / sizeof *rooms };

enum { MAX_FILES = 2048, MAX_INCLUDES = 16384, MAX_PATH = 128 };

struct source {
    char path[MAX_PATH]; /* below src/ */
    int parent;          /* while reach is computed: who includes it; itself for a start */
};

struct include {
    int from, to; /* sources; `to` is -1 if there is no such file */
    int line;
    char name[MAX_PATH];
};

static struct source sources[MAX_FILES];
static struct include includes[MAX_INCLUDES];
static int n_sources, n_includes;

/* ---- the rules ---------------------------------------------------------------------------- */

/* The room whose folder the file is in, or NULL. */
static const struct room *room_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    for (size_t i = 0; i < N_ROOMS; i++)
        if (strlen(rooms[i].path) == len && strncmp(rooms[i].path, path, len) == 0)
            return &rooms[i];
    return NULL;
}

static bool may_include(const char *file, const char *included)
{
    const struct room *from = room_of(file), *to = room_of(included);
    return from && to && (from == to || to->rank < from->rank);
}

static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && path[len] == '/';
}

static void check_rooms(struct strbuf *problems)
{
    for (int i = 0; i < n_sources; i++)
        if (!room_of(sources[i].path))
            strbuf_addf(problems, "src/%s: its folder is not in the table of rooms\n",
                        sources[i].path);
}

static void check_includes(struct strbuf *problems)
{
    for (int i = 0; i < n_includes; i++) {
        const struct include *in = &includes[i];
        const char *path = sources[in->from].path;
        const struct room *from = room_of(path), *to = room_of(in->name);
        if (!from || may_include(path, in->name))
            continue;
        strbuf_addf(problems, "src/%s:%d: may not include \"%s\": ", path, in->line, in->name);
        if (to)
            strbuf_addf(problems, "%s has rank %d, %s has %d\n", to->path, to->rank, from->path,
                        from->rank);
        else
            strbuf_addf(problems, "that names no room\n");
    }
}

/* "cache/a.c > cache/a.h > base/b.h" */
static void add_way(struct strbuf *out, int source)
{
    if (sources[source].parent != source) {
        add_way(out, sources[source].parent);
        strbuf_adds(out, " > ");
    }
    strbuf_adds(out, sources[source].path);
}

/* Names every include that lets the files below `from` see a header below `to`. */
static void check_reach(struct strbuf *problems, const char *from, const char *to)
{
    for (int i = 0; i < n_sources; i++)
        sources[i].parent = is_below(sources[i].path, from) ? i : -1;
    for (bool grew = true; grew;) {
        grew = false;
        for (int i = 0; i < n_includes; i++) {
            const struct include *in = &includes[i];
            if (in->to < 0 || sources[in->from].parent < 0 || sources[in->to].parent >= 0)
                continue;
            if (is_below(sources[in->to].path, to))
                continue;
            sources[in->to].parent = in->from;
            grew = true;
        }
    }
    for (int i = 0; i < n_includes; i++) {
        const struct include *in = &includes[i];
        if (sources[in->from].parent < 0 || !is_below(in->name, to))
            continue;
        strbuf_addf(problems, "src/%s:%d: lets %s/ reach \"%s\": ", sources[in->from].path,
                    in->line, from, in->name);
        add_way(problems, in->from);
        strbuf_addf(problems, " > %s\n", in->name);
    }
}

/* Where a path's base name begins, and its length without the suffix. */
static const char *base_name(const char *path, int *len)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *len = (int)(strrchr(name, '.') - name);
    return name;
}

static void check_names(struct strbuf *problems)
{
    for (int i = 0; i < n_sources; i++) {
        for (int k = 0; k < i; k++) {
            int len, other_len;
            const char *name = base_name(sources[i].path, &len);
            const char *other = base_name(sources[k].path, &other_len);
            if (len != other_len || strncmp(name, other, (size_t)len) != 0)
                continue;
            if (room_of(sources[i].path) != room_of(sources[k].path))
                strbuf_addf(problems, "src/%s: has the base name of src/%s\n", sources[i].path,
                            sources[k].path);
        }
    }
}

/* ---- reading the tree --------------------------------------------------------------------- */

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

static void read_file(const char *root, const char *path)
{
    char full[2048], line[1024];
    snprintf(full, sizeof full, "%s/%s", root, path);
    FILE *file = fopen(full, "r");
    CHECK(file && n_sources < MAX_FILES && strlen(path) < MAX_PATH);
    strcpy(sources[n_sources].path, path);
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        const char *name = included_name(line);
        if (!name)
            continue;
        CHECK(n_includes < MAX_INCLUDES && strlen(name) < MAX_PATH);
        struct include *in = &includes[n_includes++];
        *in = (struct include){.from = n_sources, .to = -1, .line = number};
        strcpy(in->name, name);
    }
    n_sources++;
    fclose(file);
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads every C file below a folder of the root; "" is the root itself. */
static void read_folder(const char *root, const char *folder)
{
    char full[2048], path[1024];
    struct dirent **entries;
    snprintf(full, sizeof full, "%s/%s", root, folder);
    int n = scandir(full, &entries, NULL, compare_entries);
    CHECK(n >= 0);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        size_t len = strlen(name);
        struct stat info;
        snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
        snprintf(full, sizeof full, "%s/%s", root, path);
        if (name[0] == '.' || stat(full, &info) != 0)
            len = 0;
        else if (S_ISDIR(info.st_mode))
            read_folder(root, path);
        if (len > 2 && (strcmp(name + len - 2, ".c") == 0 || strcmp(name + len - 2, ".h") == 0))
            read_file(root, path);
        free(entries[i]);
    }
    free(entries);
}

static void read_tree(const char *root)
{
    n_sources = n_includes = 0;
    read_folder(root, "");
    for (int i = 0; i < n_includes; i++)
        for (int k = 0; k < n_sources && includes[i].to < 0; k++)
            if (strcmp(includes[i].name, sources[k].path) == 0)
                includes[i].to = k;
}

static void check_tree(struct strbuf *problems)
{
    check_rooms(problems);
    check_includes(problems);
    check_reach(problems, "cache", "engine");
    check_reach(problems, "engine", "cache");
    check_names(problems);
}

/* ---- the tests ---------------------------------------------------------------------------- */

TEST(layers, the_rule)
{
    CHECK(may_include("cli/main.c", "base/log.h"));
    CHECK(may_include("sched/plan.c", "cache/prefix_tree.h"));
    CHECK(may_include("engine/cpu/x.c", "engine/engine.h"));
    CHECK(may_include("prompt/jinja/x.c", "prompt/jinja/value.h"));
    CHECK(!may_include("engine/x.c", "engine/cpu/kernels/kernels.h"));
    CHECK(!may_include("engine/cpu/x.c", "engine/mock/mock_engine.h"));
    CHECK(!may_include("prompt/jinja/x.c", "prompt/grammar/grammar.h"));
    CHECK(!may_include("prompt/jinja/x.c", "prompt/prompt.h"));
    CHECK(!may_include("base/log.c", "model/model.h"));
    CHECK(!may_include("cache/x.c", "engine/engine.h"));
    CHECK(!may_include("cache/x.c", "model/quant/quant.h"));
    CHECK(!may_include("sched/x.c", "prompt/tokenizer/tokenizer.h"));
    CHECK(!may_include("cache/x.c", "page_pool.h")); /* always with its room */
    CHECK(!may_include("other/x.c", "base/log.h"));
    CHECK(!may_include("cache/x.c", "caches/log.h"));
    CHECK(!may_include("prompt/x.c", "prompt/jinja/deeper/value.h"));
}

/* The table of rooms, against the folders and the map in docs/design.md. */
static void check_table(struct strbuf *problems)
{
    struct strbuf map = STRBUF_INIT, row = STRBUF_INIT;
    CHECK_INT(file_read("docs/design.md", 1 << 20, &map, NULL), 0);
    for (size_t i = 0; i < N_ROOMS; i++) {
        int n = 0;
        for (int k = 0; k < n_sources; k++)
            n += room_of(sources[k].path) == &rooms[i];
        if (n == 0)
            strbuf_addf(problems, "src/%s: in the table of rooms, but empty\n", rooms[i].path);
        strbuf_clear(&row);
        strbuf_addf(&row, "\n| `%s` | ", rooms[i].path);
        if (!strstr(strbuf_str(&map), strbuf_str(&row)))
            strbuf_addf(problems, "docs/design.md: its map has no row for %s\n", rooms[i].path);
    }
    strbuf_free(&map);
    strbuf_free(&row);
}

TEST(layers, every_file_keeps_to_its_room)
{
    struct stat info;
    struct strbuf problems = STRBUF_INIT;
    if (stat("src/base/log.h", &info) != 0)
        SKIP("not run from the root of the source tree");
    read_tree("src");
    CHECK(n_sources > 100 && n_includes > 500);
    check_tree(&problems);
    check_table(&problems);
    fputs(strbuf_str(&problems), stderr);
    size_t len = problems.len;
    strbuf_free(&problems);
    CHECK_INT(len, 0);
}

static void write_source(const char *root, const char *path, const char *text)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    CHECK(file && fputs(text, file) >= 0);
    fclose(file);
}

/* A source tree with one fault of each kind. */
TEST(layers, what_is_wrong_is_found)
{
    static const char want[] =
        "src/attic/old.c: its folder is not in the table of rooms\n"
        "src/top.c: its folder is not in the table of rooms\n"
        "src/base/bridge.h:2: may not include \"engine/engine.h\": engine has rank 4, base has 0\n"
        "src/cache/tree.c:3: may not include \"tree.h\": that names no room\n"
        "src/prompt/jinja/lex.c:1: may not include \"prompt/grammar/lex.h\": prompt/grammar has "
        "rank 8, prompt/jinja has 8\n"
        "src/base/bridge.h:2: lets cache/ reach \"engine/engine.h\": "
        "cache/tree.h > base/deep.h > base/bridge.h > engine/engine.h\n"
        "src/engine/cpu/cpu.c:2: lets engine/ reach \"cache/tree.h\": "
        "engine/cpu/cpu.c > cache/tree.h\n"
        "src/prompt/jinja/lex.c: has the base name of src/prompt/grammar/lex.h\n";
    struct strbuf problems = STRBUF_INIT;
    char root[512];
    snprintf(root, sizeof root, "%s/rooms", test_scratch_dir());
    mkdir(root, 0700);
    write_source(root, "attic/old.c", "int old;\n");
    write_source(root, "top.c", "#include \"base/bridge.h\"\n");
    write_source(root, "base/bridge.h", "\n # include \"engine/engine.h\"\n");
    write_source(root, "base/deep.h", "#include \"base/bridge.h\"\n");
    write_source(root, "cache/tree.h", "#include \"base/deep.h\"\n");
    write_source(root, "cache/tree.c", "#include \"cache/tree.h\"\n\n#include \"tree.h\"\n");
    write_source(root, "engine/engine.h", "#include <stdint.h>\n");
    write_source(root, "engine/cpu/cpu.c",
                 "#include \"engine/engine.h\"\n#include \"cache/tree.h\"\n");
    write_source(root, "prompt/grammar/lex.h", "#include \"base/bridge.h\"\n");
    write_source(root, "prompt/jinja/lex.c", "#include \"prompt/grammar/lex.h\"\n");
    read_tree(root);
    check_tree(&problems);
    CHECK_STR(strbuf_str(&problems), want);
    strbuf_free(&problems);
}
