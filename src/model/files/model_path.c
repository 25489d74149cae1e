/* Finds the model for a path that the user gave; see model_path.h. Only inspects the file system,
 * and opens nothing except some of Hugging Face's small files. */
#include "model/files/model_path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/byte_view.h"
#include "base/file.h"

#define EXPECTED "a GGUF file, or a directory with config.json and *.safetensors"
#define CACHED   "models--"

enum { MAX_REF_BYTES = 256 };

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Where the last component of the path's first `len` bytes begins. */
static size_t last_part(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len;
}

static void cut(struct strbuf *path, size_t len)
{
    while (len > 1 && path->data[len - 1] == '/')
        len--;
    path->len = len;
    path->data[len] = '\0';
}

/* Replaces a cache directory by the snapshot of its main branch. */
static int enter_snapshot(struct strbuf *path, struct error *err)
{
    struct strbuf file = STRBUF_INIT, hash = STRBUF_INIT;
    strbuf_addf(&file, "%s/snapshots", strbuf_str(path));
    if (is_directory(strbuf_str(&file))) {
        strbuf_clear(&file);
        strbuf_addf(&file, "%s/refs/main", strbuf_str(path));
        if (file_read(strbuf_str(&file), MAX_REF_BYTES, &hash, err)) {
            strbuf_free(&file);
            return -1;
        }
        strbuf_addf(path, "/snapshots/%.*s", (int)strcspn(strbuf_str(&hash), "/\r\n"),
                    strbuf_str(&hash));
    }
    strbuf_free(&file);
    strbuf_free(&hash);
    return 0;
}

/* The path does not exist. Often it is not a path at all, but another program's model name or a
 * URL. */
static int not_there(const char *given, int reason, struct error *err)
{
    bool is_name = strchr(given, ':') || (*given != '/' && *given != '.' &&
                                          (strchr(given, '/') || !string_ends(given, ".gguf")));
    return error_set(err, ERROR_IO, "%.200s: %s; expected %s%s", given, strerror(reason), EXPECTED,
                     is_name ? " (radish does not download models)" : "");
}

int model_path_find(struct strbuf *out, const char *given, struct error *err)
{
    struct stat st;
    strbuf_adds(out, given);
    if (out->failed)
        return error_set(err, ERROR_MEMORY, "no memory for a path");
    if (stat(given, &st) != 0)
        return not_there(given, errno, err);
    cut(out, out->len);
    size_t part = last_part(out->data, out->len);
    const char *name = out->data + part;
    if (S_ISDIR(st.st_mode))
        return strncmp(name, CACHED, strlen(CACHED)) == 0 ? enter_snapshot(out, err) : 0;
    if (string_ends(name, ".json") || string_ends(name, ".safetensors")) {
        if (part == 0)
            strcpy(out->data, "."); /* "a.json" has room for it */
        cut(out, part == 0 ? 1 : part);
    }
    return 0;
}

void model_path_name(char *name, size_t size, const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = last_part(path, end);
    const char *above = "/snapshots/";
    size_t n = strlen(above);
    if (begin >= n && memcmp(path + begin - n, above, n) == 0) {
        size_t first = last_part(path, begin - n);
        if (strncmp(path + first, CACHED, strlen(CACHED)) == 0) {
            end = begin - n;
            begin = first + strlen(CACHED);
            for (size_t i = begin; i + 2 < end; i++)
                if (path[i] == '-' && path[i + 1] == '-')
                    begin = i + 2;
        }
    }
    snprintf(name, size, "%.*s", (int)(end - begin), path + begin);
    if (string_ends(name, ".gguf"))
        name[strlen(name) - strlen(".gguf")] = '\0';
}
