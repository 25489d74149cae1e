/* The history file: what it keeps, its bounds, and files that are not one. */
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/terminal/history.h"

static const char *file_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", test_scratch_dir(), name);
    remove(path);
    return path;
}

static void file_write(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, len, f) == len && fclose(f) == 0);
}

TEST(history, entries_come_back_in_order)
{
    const char *path = file_path("history");
    struct history h = {0}, again = {0};
    CHECK_INT(history_open(&h, path, NULL), 0);
    history_add(&h, "one");
    history_add(&h, "one"); /* repeated: once */
    history_add(&h, "two\nlines \\n and a backslash\\");
    history_add(&h, "");
    CHECK_INT(h.n, 2);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    CHECK_INT(history_open(&again, path, NULL), 0);
    CHECK_INT(again.n, 2);
    CHECK_STR(again.items[0], "one");
    CHECK_STR(again.items[1], "two\nlines \\n and a backslash\\");
    history_close(&h);
    history_close(&again);
}

TEST(history, it_is_bounded)
{
    const char *path = file_path("history");
    struct history h = {0};
    char text[32], *huge = calloc(1, HISTORY_MAX_ENTRY_BYTES + 2);
    CHECK_INT(history_open(&h, path, NULL), 0);
    for (int i = 0; i < 2 * HISTORY_MAX + 5; i++) {
        snprintf(text, sizeof text, "entry %d", i);
        history_add(&h, text);
    }
    memset(huge, 'x', HISTORY_MAX_ENTRY_BYTES + 1);
    history_add(&h, huge);
    free(huge);
    CHECK_INT(h.n, HISTORY_MAX);
    CHECK_STR(h.items[HISTORY_MAX - 1], "entry 2004");
    history_close(&h);
    CHECK_INT(history_open(&h, path, NULL), 0); /* writes the file anew */
    history_close(&h);
    struct strbuf file = STRBUF_INIT;
    CHECK_INT(file_read(path, 0, &file, NULL), 0);
    size_t n_lines = 0;
    for (size_t i = 0; i < file.len; i++)
        n_lines += file.data[i] == '\n';
    CHECK_INT(n_lines, HISTORY_MAX);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    strbuf_free(&file);
}

TEST(history, files_that_something_else_wrote)
{
    static const char bytes[] = "good\n\xff\xfe\nwith\0nul\n\\\ntail without an end";
    const char *path = file_path("history");
    struct history h = {0};
    struct error err;
    file_write(path, bytes, sizeof bytes - 1);
    CHECK_INT(history_open(&h, path, &err), 0);
    CHECK_INT(h.n, 3);
    CHECK_STR(h.items[0], "good");
    CHECK_STR(h.items[1], "\\");
    CHECK_STR(h.items[2], "tail without an end");
    history_close(&h);
    CHECK_INT(history_open(&h, test_scratch_dir(), &err), -1); /* a folder */
    history_close(&h);
}

TEST(history, a_search_goes_both_ways)
{
    struct history h = {0};
    history_add(&h, "Why is the sky blue?");
    history_add(&h, "And the sea?");
    history_add(&h, "THE end");
    CHECK_INT(history_find(&h, "the", 3, -1), 2);
    CHECK_INT(history_find(&h, "the", 2, -1), 1);
    CHECK_INT(history_find(&h, "the", 0, -1), 3);
    CHECK_INT(history_find(&h, "the", 1, 1), 1);
    CHECK_INT(history_find(&h, "moon", 3, -1), 3);
    history_close(&h);
}

TEST(history, only_a_private_regular_file_is_used)
{
    struct history h = {0};
    struct stat info;
    const char *path = file_path("history_wide");
    file_write(path, "one\n", 4);
    CHECK_INT(chmod(path, 0644), 0);
    CHECK_INT(history_open(&h, path, NULL), 0);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    history_close(&h);
    path = file_path("history_fifo");
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(history_open(&h, path, NULL), -1); /* and does not wait for a writer */
    remove(path);
}
