/* The files of a model; see checkpoint.h. Read-only once open, except that the thread that loads
 * the model marks what is used and copies data that is not aligned. checkpoint_gguf.c and
 * checkpoint_directory.c find the files; checkpoint_config.c and checkpoint_names.c interpret a
 * directory; checkpoint_weight.c, checkpoint_scales.c and checkpoint_raw.c make weights. */
#include "model/files/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "model/files/checkpoint_files.h"

enum { HASH_SAMPLES = 64, HASH_SAMPLE_BYTES = 256 };

int checkpoint_refuse(const struct checkpoint *c, struct error *err, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(err, ERROR_FORMAT, "%s: %s", c->path, what);
}

int checkpoint_no_memory(const struct checkpoint *c, struct error *err)
{
    return error_set(err, ERROR_MEMORY, "%s: no memory for its list of tensors", c->path);
}

int checkpoint_reserve(struct checkpoint_files *f, size_t n, struct error *err)
{
    size_t n_slots = 8;
    while (n_slots < 2 * n)
        n_slots *= 2;
    f->slot_mask = n_slots - 1;
    f->slots = calloc(n_slots, sizeof *f->slots);
    f->c.tensors = calloc(n + 1, sizeof *f->c.tensors);
    return f->slots && f->c.tensors ? 0 : checkpoint_no_memory(&f->c, err);
}

/* The slot that holds the name, or the empty slot where it belongs. */
static uint32_t *name_slot(const struct checkpoint_files *f, const char *name)
{
    for (size_t i = hash_bytes(name, strlen(name));; i++) {
        uint32_t *slot = &f->slots[i & f->slot_mask];
        if (*slot == 0 || strcmp(f->c.tensors[*slot - 1].name, name) == 0)
            return slot;
    }
}

int checkpoint_index(struct checkpoint_files *f, struct error *err)
{
    for (size_t i = 0; i < f->c.n_tensors; i++) {
        const char *name = f->c.tensors[i].name;
        uint32_t *slot = name_slot(f, name);
        if (*slot)
            return checkpoint_refuse(&f->c, err, "the tensor %s is in two of its files",
                                     shown_name(name, strlen(name)).text);
        *slot = (uint32_t)i + 1;
    }
    return 0;
}

struct checkpoint_tensor *checkpoint_lookup(const struct checkpoint_files *f, const char *name)
{
    uint32_t slot = *name_slot(f, name);
    return slot ? &f->c.tensors[slot - 1] : NULL;
}

static int open_path(struct checkpoint_files *f, const char *path, struct error *err)
{
    static const char expected[] = "a GGUF file, or a directory with config.json and *.safetensors";
    struct stat st;
    if (stat(path, &st) != 0)
        return error_set(err, ERROR_IO, "%s: %s; expected %s", path, strerror(errno), expected);
    if (S_ISDIR(st.st_mode))
        return checkpoint_open_directory(f, path, err);
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_IO, "%s: not a regular file; expected %s", path, expected);
    size_t len = strlen(path), suffix = strlen(".safetensors");
    if (len > suffix && strcmp(path + len - suffix, ".safetensors") == 0)
        return error_set(
            err, ERROR_IO,
            "%s: this is one file of a model; give its directory, which must also have config.json",
            path);
    return checkpoint_open_gguf(f, path, err);
}

int checkpoint_open(struct checkpoint **out, const char *path, struct error *err)
{
    struct checkpoint_files *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return error_set(err, ERROR_MEMORY, "%s: no memory", path);
    f->c.path = strdup(path);
    int rc = f->c.path ? open_path(f, path, err)
                       : error_set(err, ERROR_MEMORY, "%s: no memory", path);
    if (rc)
        checkpoint_close(&f->c);
    else
        *out = &f->c;
    return rc;
}

void checkpoint_close(struct checkpoint *c)
{
    struct checkpoint_files *f = (struct checkpoint_files *)c;
    if (!f)
        return;
    for (size_t i = 0; i < f->n_ggufs; i++)
        gguf_close(&f->ggufs[i]);
    for (size_t i = 0; i < f->n_shards; i++)
        safetensors_close(&f->shards[i]);
    for (size_t i = 0; i < f->n_raws; i++)
        model_file_close(&f->raws[i]);
    free(f->ggufs);
    free(f->shards);
    free(f->raws);
    free(f->slots);
    arena_free(&f->memory);
    free(c->tensors);
    free(c->path);
    free(f);
}

struct shape_text checkpoint_shape_text(const struct checkpoint *c, const uint64_t *dims,
                                        uint32_t n_dims)
{
    struct shape_text s;
    int at = 0;
    for (uint32_t i = 0; i < n_dims; i++)
        at += snprintf(s.text + at, sizeof s.text - (size_t)at, "%s%" PRIu64, i ? ", " : "[",
                       dims[c->kind == CHECKPOINT_GGUF ? n_dims - 1 - i : i]);
    snprintf(s.text + at, sizeof s.text - (size_t)at, "]");
    return s;
}

int checkpoint_refuse_shape(const struct checkpoint *c, const struct checkpoint_tensor *t,
                            uint64_t rows, uint64_t cols, struct error *err)
{
    uint64_t expected[2] = {rows, cols};
    bool is_vector = rows == 1;
    return checkpoint_refuse(c, err, "the tensor %s has the shape %s, expected %s",
                             shown_name(t->name, strlen(t->name)).text,
                             checkpoint_shape_text(c, t->dims, t->n_dims).text,
                             checkpoint_shape_text(c, expected + is_vector, 2 - is_vector).text);
}

int checkpoint_check(const struct checkpoint *c, struct error *err)
{
    const struct checkpoint_files *f = (const struct checkpoint_files *)c;
    for (size_t i = 0; i < f->n_ggufs; i++)
        if (gguf_check(&f->ggufs[i], err))
            return -1;
    for (size_t i = 0; i < f->n_shards; i++)
        if (model_file_check(&f->shards[i].file, err))
            return -1;
    for (size_t i = 0; i < f->n_raws; i++)
        if (model_file_check(&f->raws[i], err))
            return -1;
    return 0;
}

/* What settles the files one after the other. */
struct settling {
    const struct file_part *parts; /* of all files */
    size_t n_parts;
    struct file_part *own; /* [n_parts] of one file */
    bool keeps_files;
    struct error *err;
};

/* Selects a file's own parts. */
static size_t own_parts(const struct settling *s, const uint8_t *file, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i].bytes >= file && s->parts[i].bytes < file + len)
            s->own[n++] = s->parts[i];
    return n;
}

static int settle_file(const struct settling *s, struct model_file *file)
{
    size_t n = own_parts(s, file->bytes, file->len);
    return model_file_settle(file, s->own, n, s->keeps_files, s->err);
}

static int settle_all(const struct settling *s, struct checkpoint_files *f)
{
    for (size_t i = 0; i < f->n_ggufs; i++) {
        struct gguf *g = &f->ggufs[i];
        if (gguf_settle(g, s->own, own_parts(s, g->map, g->map_bytes), s->keeps_files, s->err))
            return -1;
    }
    for (size_t i = 0; i < f->n_shards; i++)
        if (settle_file(s, &f->shards[i].file))
            return -1;
    for (size_t i = 0; i < f->n_raws; i++)
        if (settle_file(s, &f->raws[i]))
            return -1;
    return 0;
}

int checkpoint_settle(struct checkpoint *c, const struct file_part *parts, size_t n_parts,
                      bool keeps_files, struct error *err)
{
    struct settling s = {parts, n_parts, calloc(n_parts + 1, sizeof *parts), keeps_files, err};
    int rc = s.own ? settle_all(&s, (struct checkpoint_files *)c) : checkpoint_no_memory(c, err);
    free(s.own);
    return rc;
}

/* Hashes samples spread over a file, to distinguish files with the same names and shapes. */
static uint64_t hash_file(uint64_t h, const uint8_t *bytes, size_t len, int64_t mtime_ns,
                          size_t n_samples)
{
    size_t n = len < HASH_SAMPLE_BYTES ? len : HASH_SAMPLE_BYTES;
    h = hash_pair(hash_pair(h, len), (uint64_t)mtime_ns);
    for (size_t i = 0; i < n_samples; i++) {
        size_t at = (size_t)((double)(len - n) * (double)i / (double)(n_samples - 1));
        h = hash_pair(h, hash_bytes(bytes + at, n));
    }
    return h;
}

uint64_t checkpoint_hash(const struct checkpoint *c)
{
    const struct checkpoint_files *f = (const struct checkpoint_files *)c;
    uint64_t h = hash_pair(hash_pair(c->kind, c->n_tensors), f->config_hash);
    /* Each sample touches a page, so the total is limited; but every file gets its first and last.
     */
    size_t n_samples = HASH_SAMPLES / (f->n_ggufs + f->n_shards + f->n_raws);
    n_samples = n_samples < 2 ? 2 : n_samples;
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        h = hash_pair(h, hash_bytes(t->name, strlen(t->name)));
        h = hash_pair(h, hash_bytes(t->dims, sizeof t->dims) ^ t->type);
    }
    for (size_t i = 0; i < f->n_ggufs; i++)
        h = hash_file(h, f->ggufs[i].map, f->ggufs[i].map_bytes, f->ggufs[i].mtime_ns, n_samples);
    for (size_t i = 0; i < f->n_shards; i++)
        h = hash_file(h, f->shards[i].file.bytes, f->shards[i].file.len, f->shards[i].file.mtime_ns,
                      n_samples);
    for (size_t i = 0; i < f->n_raws; i++)
        h = hash_file(h, f->raws[i].bytes, f->raws[i].len, f->raws[i].mtime_ns, n_samples);
    return h;
}
