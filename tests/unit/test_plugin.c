#include "engine/plugin.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "fake_driver.h"
#include "test.h"

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    fclose(file);
}

TEST(plugin, a_good_one_works)
{
    struct plugin p;
    struct plugin_options options = {0};
    struct plugin_device *device;
    struct model model = {.weight_bytes = 100};
    struct engine_limits limits = {.max_rows = 7};
    struct engine *engine;
    struct error err;
    uint64_t bytes;
    CHECK_INT(plugin_load(&p, fake_path("radish-good.so"), &err), 0);
    CHECK_STR(p.ops->name, "fake");
    CHECK_INT(p.ops->find(&device, &options, &err), 0);
    CHECK_STR(device->name, "Fake device");
    CHECK_INT(p.ops->measure(device, &err), 0);
    CHECK(device->free_bytes < device->total_bytes);
    CHECK_INT(p.ops->needs(&bytes, &model, &limits, &err), 0);
    CHECK_INT(bytes, 107);
    CHECK_INT(p.ops->open(&engine, &model, &limits, &options, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    p.ops->release(device);
    plugin_close(&p);
    CHECK(!p.library && !p.ops);
    plugin_close(&p);
}

static void check_refused(const char *path, const char *message)
{
    struct plugin p;
    struct error err;
    char want[8192];
    CHECK_INT(plugin_load(&p, path, &err), -1);
    CHECK_INT(err.code, ERROR_FORMAT);
    snprintf(want, sizeof want, "%s%s", path, message);
    CHECK_STR(err.message, want);
    CHECK(!p.library && !p.ops);
}

TEST(plugin, bad_ones_are_refused)
{
    char message[256];
    struct plugin p;
    struct error err;
    snprintf(message, sizeof message,
             " was built for another radish: its engine interface has version 999, and this radish "
             "has %d. Build or install both from one source",
             ENGINE_ABI);
    check_refused(fake_path("radish-abi.so"), message);
    snprintf(
        message, sizeof message,
        " was built for another radish: its data has layout 1, and this radish's has %u. Build "
        "or install both from one source",
        PLUGIN_LAYOUT);
    check_refused(fake_path("radish-layout.so"), message);
    check_refused(fake_path("radish-symbol.so"),
                  " is not a plug-in of radish: it has no symbol radish_engine_plugin");
    char path[512];
    snprintf(path, sizeof path, "%s/radish-text.so", test_scratch_dir());
    write_text(path, "not a shared object\n");
    CHECK_INT(plugin_load(&p, path, &err), -1);
    CHECK_INT(err.code, ERROR_FORMAT);
    CHECK(strstr(err.message, "the plug-in cannot be loaded: ") == err.message);
    CHECK(strstr(err.message, path));
}

TEST(plugin, is_found_beside_the_program_or_in_lib)
{
    struct strbuf path = STRBUF_INIT;
    char root[512], bin[600], file[800];
    snprintf(root, sizeof root, "%s/prefix", test_scratch_dir());
    mkdir(root, 0700);
    snprintf(bin, sizeof bin, "%s/lib", root);
    mkdir(bin, 0700);
    snprintf(bin, sizeof bin, "%s/lib/radish", root);
    mkdir(bin, 0700);
    snprintf(bin, sizeof bin, "%s/bin", root);
    mkdir(bin, 0700);
    CHECK(!plugin_find(bin, "cuda", &path));
    snprintf(file, sizeof file, "%s/lib/radish/radish-cuda.so", root);
    write_text(file, "");
    CHECK(plugin_find(bin, "cuda", &path));
    snprintf(file, sizeof file, "%s/../lib/radish/radish-cuda.so", bin);
    CHECK_STR(strbuf_str(&path), file);
    snprintf(file, sizeof file, "%s/radish-cuda.so", bin);
    write_text(file, "");
    CHECK(plugin_find(bin, "cuda", &path)); /* this one first */
    CHECK_STR(strbuf_str(&path), file);
    CHECK(!plugin_find(bin, "other", &path));
    strbuf_free(&path);
}

TEST(plugin, one_that_is_not_there)
{
    struct plugin p;
    struct error err;
    CHECK_INT(plugin_open(&p, "none", &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK(strstr(err.message, "radish-none.so is neither in ") == err.message);
    CHECK(strstr(err.message, "/lib/radish: ") && !strstr(err.message, ".."));
    CHECK(!p.ops && !plugin_exists("none"));
}
