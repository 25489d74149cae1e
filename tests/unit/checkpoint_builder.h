#ifndef RADISH_TEST_CHECKPOINT_BUILDER_H
#define RADISH_TEST_CHECKPOINT_BUILDER_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "model/files/checkpoint.h"
#include "test.h"
#include "test_files.h"

/* Writes safetensors files and directories for tests; broken ones, too, because header and data are
 * plain text and bytes until they are put together. */
struct st_builder {
    struct strbuf header; /* members of the JSON object, with their commas */
    struct strbuf data;
};

/* A tensor with data: bytes that count up, small floats for F32. `shape`: "[2, 3]". */
static inline void st_add(struct st_builder *b, const char *name, const char *dtype,
                          const char *shape, size_t bytes)
{
    size_t begin = b->data.len;
    for (size_t i = 0; i < bytes / 4 && strcmp(dtype, "F32") == 0; i++) {
        float value = 0.25f * (float)(i % 9);
        strbuf_add(&b->data, &value, sizeof value);
    }
    while (b->data.len < begin + bytes)
        strbuf_addc(&b->data, (char)(b->data.len * 37 % 101));
    strbuf_addf(&b->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                b->header.len ? "," : "", name, dtype, shape, begin, b->data.len);
}

/* A file with the given header, valid or not. */
static inline void st_file(struct strbuf *out, const char *header, size_t len, const char *data,
                           size_t data_len)
{
    uint64_t n = len;
    strbuf_clear(out);
    strbuf_add(out, &n, sizeof n);
    strbuf_add(out, header, len);
    strbuf_add(out, data, data_len);
    CHECK(!out->failed);
}

/* The file of what was added, its data `shift` bytes off a multiple of 8; empties the builder. */
static inline void st_finish(struct st_builder *b, size_t shift, struct strbuf *out)
{
    struct strbuf header = STRBUF_INIT;
    strbuf_addf(&header, "{%s}", strbuf_str(&b->header));
    while ((header.len - shift) % 8)
        strbuf_addc(&header, ' ');
    st_file(out, strbuf_str(&header), header.len, strbuf_str(&b->data), b->data.len);
    strbuf_free(&header);
    strbuf_free(&b->header);
    strbuf_free(&b->data);
}

/* The path of a file below the test's own directory, which is created; one result at a time. */
static inline const char *dir_path(const char *dir, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/checkpoint-%s", test_scratch_dir(), dir);
    mkdir(path, 0700);
    size_t at = strlen(path);
    for (const char *slash = strchr(name, '/'); slash; slash = NULL) {
        snprintf(path + at, sizeof path - at, "/%.*s", (int)(slash - name), name);
        mkdir(path, 0700);
    }
    snprintf(path + at, sizeof path - at, "%s%s", *name ? "/" : "", name);
    return path;
}

static inline void dir_write(const char *dir, const char *name, const void *bytes, size_t len)
{
    test_file_write(dir_path(dir, name), bytes, len);
}

static inline void dir_text(const char *dir, const char *name, const char *text)
{
    dir_write(dir, name, text, strlen(text));
}

/* Writes what was added as a file, and empties the builder. */
static inline void dir_tensors(const char *dir, const char *name, struct st_builder *b)
{
    struct strbuf file = STRBUF_INIT;
    st_finish(b, 0, &file);
    dir_write(dir, name, file.data, file.len);
    strbuf_free(&file);
}

/* Checkpoints of such directories. */
static inline struct checkpoint *open_dir(const char *dir)
{
    struct checkpoint *c;
    struct error err = {0};
    if (checkpoint_open(&c, dir_path(dir, ""), &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return c;
}

static inline void check_refused(const char *path, const char *why)
{
    struct checkpoint *c = NULL;
    struct error err = {0};
    if (checkpoint_open(&c, path, &err) == 0)
        test_fail(__FILE__, __LINE__, "%s opened, expected \"%s\"", path, why);
    CHECK(c == NULL);
    if (!strstr(err.message, why) || !strstr(err.message, test_scratch_dir()))
        test_fail(__FILE__, __LINE__, "\"%s\", expected \"%s\"", err.message, why);
    CHECK(strchr(err.message, '\n') == NULL);
}

static inline void check_dir_refused(const char *dir, const char *why)
{
    check_refused(dir_path(dir, ""), why);
}

/* A directory with config.json and one file of what was added. */
static inline struct checkpoint *open_tensors(const char *dir, const char *config,
                                              struct st_builder *b)
{
    dir_text(dir, "config.json", config);
    dir_tensors(dir, "model.safetensors", b);
    return open_dir(dir);
}

static inline void check_weight_refused(struct checkpoint *c, const char *name, uint32_t rows,
                                        uint32_t cols, const char *why)
{
    struct weight w;
    struct error err = {0};
    CHECK_INT(checkpoint_weight(c, name, rows, cols, &w, &err), -1);
    if (!strstr(err.message, why) || !strstr(err.message, c->path))
        test_fail(__FILE__, __LINE__, "\"%s\", expected \"%s\"", err.message, why);
}

static inline struct weight get_weight(struct checkpoint *c, const char *name, uint32_t rows,
                                       uint32_t cols)
{
    struct weight w;
    struct error err = {0};
    int rc = checkpoint_weight(c, name, rows, cols, &w, &err);
    if (rc)
        test_fail(__FILE__, __LINE__, "%s: %d, %s", name, rc, err.message);
    CHECK_INT(w.cols, cols);
    CHECK(w.data != NULL);
    return w;
}

static inline size_t count_unused(const struct checkpoint *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_tensors; i++)
        n += !c->tensors[i].is_used && !c->tensors[i].is_ignored;
    return n;
}

#endif
