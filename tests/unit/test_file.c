/* Reading whole files: existing ones, ones that are too long, and things that are not files. */
#include "test.h"
#include "test_files.h"

#include "base/file.h"

static void write_file(char *path, size_t size, const char *content)
{
    snprintf(path, size, "%s/file", test_scratch_dir());
    test_file_write_text(path, content);
}

TEST(file, reads_all_of_it)
{
    char path[256];
    struct strbuf out = STRBUF_INIT;
    struct error err;
    write_file(path, sizeof path, "radish");
    CHECK_INT(file_read(path, 0, &out, &err), 0);
    CHECK_STR(strbuf_str(&out), "radish");
    strbuf_clear(&out);
    CHECK_INT(file_read(path, 6, &out, &err), 0);
    strbuf_free(&out);
}

TEST(file, refuses_with_the_path)
{
    char path[256];
    struct strbuf out = STRBUF_INIT;
    struct error err;
    write_file(path, sizeof path, "radish");
    CHECK(file_read(path, 5, &out, &err) && err.code == ERROR_LIMIT && strstr(err.message, path));
    strbuf_clear(&out);
    CHECK(file_read("build/nothing", 0, &out, &err) && err.code == ERROR_IO);
    CHECK(strstr(err.message, "build/nothing"));
    CHECK(file_read(test_scratch_dir(), 0, &out, &err) && err.code == ERROR_IO);
    strbuf_free(&out);
}
