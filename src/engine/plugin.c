/* Finds and loads engines in shared objects; see plugin.h. */
#include "engine/plugin.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static const char *const folders[] = {"", "/../lib/radish"}; /* from the program's folder */

bool plugin_find(const char *folder, const char *name, struct strbuf *path)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        strbuf_clear(path);
        strbuf_addf(path, "%s%s/radish-%s.so", folder, folders[i], name);
        if (!path->failed && access(strbuf_str(path), F_OK) == 0)
            return true;
    }
    return false;
}

static int ops_check(const struct engine_plugin *ops, const char *path, struct error *err)
{
    if (!ops)
        return error_set(err, ERROR_FORMAT,
                         "%s is not a plug-in of radish: it has no symbol " PLUGIN_SYMBOL, path);
    if (ops->abi != ENGINE_ABI)
        return error_set(err, ERROR_FORMAT,
                         "%s was built for another radish: its engine interface has version %u, "
                         "and this radish has %u. Build or install both from one source",
                         path, ops->abi, (uint32_t)ENGINE_ABI);
    if (ops->layout != PLUGIN_LAYOUT)
        return error_set(err, ERROR_FORMAT,
                         "%s was built for another radish: its data has layout %u, and this "
                         "radish's has %u. Build or install both from one source",
                         path, ops->layout, PLUGIN_LAYOUT);
    return 0;
}

int plugin_load(struct plugin *p, const char *path, struct error *err)
{
    *p = (struct plugin){dlopen(path, RTLD_NOW | RTLD_LOCAL), NULL};
    if (!p->library)
        return error_set(err, ERROR_FORMAT, "the plug-in cannot be loaded: %s", dlerror());
    const struct engine_plugin *ops = dlsym(p->library, PLUGIN_SYMBOL);
    if (ops_check(ops, path, err)) {
        plugin_close(p);
        return -1;
    }
    p->ops = ops;
    return 0;
}

/* The folder of this program. */
static void program_folder(char *out, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", out, size - 1);
    out[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
}

bool plugin_exists(const char *name)
{
    char folder[4096];
    struct strbuf path = STRBUF_INIT;
    program_folder(folder, sizeof folder);
    bool found = plugin_find(folder, name, &path);
    strbuf_free(&path);
    return found;
}

int plugin_open(struct plugin *p, const char *name, struct error *err)
{
    char folder[4096];
    struct strbuf path = STRBUF_INIT;
    *p = (struct plugin){0};
    program_folder(folder, sizeof folder);
    const char *last = strrchr(folder, '/');
    int failed = plugin_find(folder, name, &path)
                     ? plugin_load(p, strbuf_str(&path), err)
                     : error_set(err, ERROR_UNSUPPORTED,
                                 "radish-%s.so is neither in %s nor in %.*s/lib/radish: `make %s` "
                                 "in radish's source folder builds it",
                                 name, folder, last ? (int)(last - folder) : 0, folder, name);
    strbuf_free(&path);
    return failed;
}

void plugin_close(struct plugin *p)
{
    if (p->library)
        dlclose(p->library);
    *p = (struct plugin){0};
}
