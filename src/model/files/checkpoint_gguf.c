/* Opens a GGUF file, or all parts of a split one, as a checkpoint: NAME-00001-of-00003.gguf and so
 * on; any part can be given. The first part has the settings, and each has its own tensors. Parts
 * are found by name and identified by their keys. Both are checked, because files get renamed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/files/checkpoint_files.h"

enum { MAX_PARTS = 9999 };

/* Scales of activations, which radish does not use. */
static bool is_foreign(struct byte_view name)
{
    static const char end[] = ".input_scale";
    size_t n = sizeof end - 1;
    return name.len > n && memcmp(name.bytes + name.len - n, end, n) == 0;
}

/* A tensor's entry, with its dimensions in Hugging Face's order. */
static void add_tensor(struct checkpoint_files *f, const struct gguf_tensor *from)
{
    struct checkpoint_tensor *t = &f->c.tensors[f->c.n_tensors++];
    *t = (struct checkpoint_tensor){
        .name = arena_copy(&f->memory, from->name.bytes, from->name.len),
        .type = from->type,
        .n_dims = from->n_dims,
        .dims = {1, 1, 1, 1},
        .data = from->data,
        .size_bytes = from->size_bytes,
        .is_ignored = is_foreign(from->name),
    };
    for (uint32_t i = 0; i < from->n_dims; i++)
        t->dims[i] = from->dims[from->n_dims - 1 - i];
}

static int add_tensors(struct checkpoint_files *f, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_ggufs; i++)
        n += f->ggufs[i].n_tensors;
    if (checkpoint_reserve(f, n, err))
        return -1;
    for (size_t i = 0; i < f->n_ggufs; i++)
        for (size_t k = 0; k < f->ggufs[i].n_tensors; k++)
            add_tensor(f, &f->ggufs[i].tensors[k]);
    return f->memory.failed ? checkpoint_no_memory(&f->c, err) : checkpoint_index(f, err);
}

/* A part's number, from 0, and the number of parts; false: the file is not split. */
static bool split_keys(const struct gguf *g, uint64_t *no, uint64_t *count)
{
    *no = *count = 0;
    gguf_get_u64(g, "split.no", no);
    return gguf_get_u64(g, "split.count", count) && *count > 1;
}

/* The length of NAME in a path that ends like part `no` of `count`; 0 if it does not. */
static size_t split_stem(const char *path, uint64_t no, uint64_t count)
{
    char suffix[64];
    size_t len = strlen(path);
    size_t n = (size_t)snprintf(suffix, sizeof suffix, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf",
                                no + 1, count);
    return len > n && strcmp(path + len - n, suffix) == 0 ? len - n : 0;
}

static int open_part(struct checkpoint_files *f, const char *path, uint64_t no, uint64_t count,
                     struct error *err)
{
    struct gguf *g = &f->ggufs[f->n_ggufs];
    uint64_t its_no, its_count;
    if (gguf_open(g, path, err)) {
        struct error why = *err;
        return error_set(err, why.code, "%s (part %" PRIu64 " of %" PRIu64 ")", why.message, no + 1,
                         count);
    }
    f->n_ggufs++;
    if (!split_keys(g, &its_no, &its_count) || its_no != no || its_count != count)
        return error_set(err, ERROR_FORMAT,
                         "%s: its metadata says part %" PRIu64 " of %" PRIu64
                         ", its name part %" PRIu64 " of %" PRIu64,
                         path, its_no + 1, its_count ? its_count : 1, no + 1, count);
    return 0;
}

/* Opens all parts in order, given one of them. */
static int open_parts(struct checkpoint_files *f, const char *path, uint64_t count, size_t stem,
                      struct error *err)
{
    f->ggufs = calloc(count, sizeof *f->ggufs);
    char *part = malloc(strlen(path) + 1);
    int rc = f->ggufs && part ? 0 : checkpoint_no_memory(&f->c, err);
    for (uint64_t no = 0; rc == 0 && no < count; no++) {
        snprintf(part, strlen(path) + 1, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)stem,
                 path, no + 1, count);
        rc = open_part(f, part, no, count, err);
    }
    free(part);
    return rc;
}

static int check_tensor_count(const struct checkpoint_files *f, struct error *err)
{
    uint64_t told;
    if (gguf_get_u64(f->c.gguf, "split.tensors.count", &told) && told != f->c.n_tensors)
        return checkpoint_refuse(&f->c, err,
                                 "its parts have %zu tensors, but split.tensors.count is %" PRIu64,
                                 f->c.n_tensors, told);
    return 0;
}

int checkpoint_open_gguf(struct checkpoint_files *f, const char *path, struct error *err)
{
    struct gguf given;
    uint64_t no, count;
    f->c.kind = CHECKPOINT_GGUF;
    if (gguf_open(&given, path, err))
        return -1;
    int rc;
    if (!split_keys(&given, &no, &count)) {
        f->ggufs = malloc(sizeof *f->ggufs);
        rc = f->ggufs ? 0 : checkpoint_no_memory(&f->c, err);
        if (rc == 0)
            f->ggufs[f->n_ggufs++] = given;
        else
            gguf_close(&given);
    } else {
        size_t stem = no < count && count <= MAX_PARTS ? split_stem(path, no, count) : 0;
        gguf_close(&given);
        rc = stem ? open_parts(f, path, count, stem, err)
                  : checkpoint_refuse(&f->c, err,
                                      "it is part %" PRIu64 " of %" PRIu64
                                      " but is not named NAME-%05" PRIu64 "-of-%05" PRIu64
                                      ".gguf, so the other parts cannot be found",
                                      no + 1, count, no + 1, count);
    }
    if (rc)
        return -1;
    f->c.gguf = &f->ggufs[0];
    for (size_t i = 0; i < f->n_ggufs; i++)
        f->c.file_bytes += f->ggufs[i].map_bytes;
    return add_tensors(f, err) || (f->n_ggufs > 1 && check_tensor_count(f, err)) ? -1 : 0;
}
