/* Opens a directory as a checkpoint: finds the files of the model, and lists all their tensors. It
 * searches in the order of transformers: model.safetensors, then the index and its shards, then MLX
 * files without an index, then raw files, then a lone GGUF file. A directory is often an incomplete
 * download, so each way of being incomplete has its own message. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/byte_view.h"
#include "base/file.h"
#include "base/json.h"
#include "model/files/checkpoint_files.h"

enum { MAX_FILES = 1 << 16, MAX_INDEX_BYTES = 100 * 1000 * 1000 };

static const char index_name[] = "model.safetensors.index.json";

/* Names of files, sorted, without the directory. */
struct listing {
    const char **names;
    size_t n;
};

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* DIR/NAME in the checkpoint's memory, or NULL. */
static char *join(struct checkpoint_files *f, const char *directory, const char *name)
{
    size_t len = strlen(directory) + 1 + strlen(name);
    char *path = arena_alloc(&f->memory, len + 1);
    if (path)
        snprintf(path, len + 1, "%s/%s", directory, name);
    return path;
}

/* Skips hidden names: "._model.safetensors" and the like are not part of a model. */
static int list_directory(struct checkpoint_files *f, const char *path, struct listing *out,
                          struct error *err)
{
    *out = (struct listing){0};
    DIR *dir = opendir(path);
    if (!dir)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    size_t room = 0;
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        if (out->n == room) {
            room = room ? 2 * room : 64;
            const char **grown = arena_alloc_array(&f->memory, room, sizeof *grown);
            if (grown && out->n)
                memcpy(grown, out->names, out->n * sizeof *grown);
            out->names = grown;
        }
        if (out->names)
            out->names[out->n++] = arena_copy(&f->memory, entry->d_name, strlen(entry->d_name));
        if (f->memory.failed)
            rc = checkpoint_no_memory(&f->c, err);
        else if (out->n > MAX_FILES)
            rc = checkpoint_refuse(&f->c, err, "a directory with more than %d files", MAX_FILES);
    }
    closedir(dir);
    if (rc == 0 && out->n)
        qsort(out->names, out->n, sizeof *out->names, name_compare);
    return rc;
}

static bool has_name(const struct listing *l, const char *name)
{
    return l->n && bsearch(&name, l->names, l->n, sizeof *l->names, name_compare) != NULL;
}

/* The names of `l` with the given prefix and suffix, in the checkpoint's memory. */
static struct listing select_names(struct checkpoint_files *f, const struct listing *l,
                                   const char *prefix, const char *suffix)
{
    struct listing selected = {arena_alloc_array(&f->memory, l->n + 1, sizeof *l->names), 0};
    for (size_t i = 0; i < l->n && selected.names; i++)
        if (string_starts(l->names[i], prefix) && string_ends(l->names[i], suffix))
            selected.names[selected.n++] = l->names[i];
    return selected;
}

/* The index's "weight_map", in the checkpoint's memory until it is closed. */
static const struct json *read_index(struct checkpoint_files *f, struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    struct error why = {0};
    const char *path = join(f, f->c.path, index_name);
    const struct json *index = NULL;
    if (!path)
        checkpoint_no_memory(&f->c, err);
    else if (file_read(path, MAX_INDEX_BYTES, &text, err) == 0) {
        index = json_parse_file(&f->memory, strbuf_str(&text), text.len, &why);
        if (!index)
            error_set(err, ERROR_FORMAT, "%s: %s", path, why.message);
        else if (!json_is(json_get(index, "weight_map"), JSON_OBJECT))
            error_set(err, ERROR_FORMAT, "%s: it has no weight_map", path);
    }
    strbuf_free(&text);
    const struct json *map = json_get(index, "weight_map");
    return json_is(map, JSON_OBJECT) ? map : NULL;
}

/* The files that the index names, each once. */
static int index_files(struct checkpoint_files *f, const struct json *map, struct listing *out,
                       struct error *err)
{
    struct listing all = {arena_alloc_array(&f->memory, map->count + 1, sizeof *all.names), 0};
    if (!all.names)
        return checkpoint_no_memory(&f->c, err);
    json_each (entry, map) {
        if (entry->type != JSON_STRING || strlen(entry->text) != entry->text_len ||
            strchr(entry->text, '/') || !string_ends(entry->text, ".safetensors"))
            return checkpoint_refuse(
                &f->c, err,
                "%s places the tensor %s in a file that is not named like a safetensors file",
                index_name, shown_name(entry->key, entry->key_len).text);
        all.names[all.n++] = entry->text;
    }
    if (all.n == 0)
        return checkpoint_refuse(&f->c, err, "%s names no files", index_name);
    qsort(all.names, all.n, sizeof *all.names, name_compare);
    *out = (struct listing){all.names, 0};
    for (size_t i = 0; i < all.n; i++)
        if (out->n == 0 || strcmp(out->names[out->n - 1], all.names[i]) != 0)
            out->names[out->n++] = all.names[i];
    return 0;
}

static int check_shards(struct checkpoint_files *f, const struct listing *l,
                        const struct listing *shards, struct error *err)
{
    for (size_t i = 0; i < shards->n; i++)
        if (!has_name(l, shards->names[i]))
            return checkpoint_refuse(
                &f->c, err, "%s is missing, but %s lists it; is the download incomplete?",
                shown_name(shards->names[i], strlen(shards->names[i])).text, index_name);
    return 0;
}

/* For names like model-00002-of-00003.safetensors, checks that all of them exist. */
static int check_numbers(struct checkpoint_files *f, const struct listing *shards,
                         struct error *err)
{
    for (size_t i = 0; i < shards->n; i++) {
        const char *of = strstr(shards->names[i], "-of-");
        unsigned long count = of ? strtoul(of + 4, NULL, 10) : 0;
        if (count > 0 && count != shards->n)
            return checkpoint_refuse(
                &f->c, err,
                "it has %zu of the %lu files that %s belongs to; is the download incomplete?",
                shards->n, count, shown_name(shards->names[i], strlen(shards->names[i])).text);
    }
    return 0;
}

static int open_shards(struct checkpoint_files *f, const struct listing *shards, struct error *err)
{
    size_t n = 0;
    f->shards = calloc(shards->n, sizeof *f->shards);
    if (!f->shards)
        return checkpoint_no_memory(&f->c, err);
    for (size_t i = 0; i < shards->n; i++) {
        const char *path = join(f, f->c.path, shards->names[i]);
        if (!path)
            return checkpoint_no_memory(&f->c, err);
        if (safetensors_open(&f->shards[i], path, err))
            return -1;
        f->n_shards++;
        n += f->shards[i].n_tensors;
        f->c.file_bytes += f->shards[i].file.len;
    }
    if (checkpoint_reserve(f, n, err))
        return -1;
    for (size_t i = 0; i < f->n_shards; i++) {
        const struct safetensors *s = &f->shards[i];
        memcpy(f->c.tensors + f->c.n_tensors, s->tensors, s->n_tensors * sizeof *s->tensors);
        f->c.n_tensors += s->n_tensors;
    }
    return checkpoint_index(f, err);
}

/* The file that holds a tensor. */
static const struct safetensors *shard_of(const struct checkpoint_files *f,
                                          const struct checkpoint_tensor *t)
{
    const uint8_t *data = t->data;
    for (size_t i = 0; i < f->n_shards; i++)
        if (data >= f->shards[i].file.bytes &&
            data < f->shards[i].file.bytes + f->shards[i].file.len)
            return &f->shards[i];
    return NULL;
}

static int check_index(const struct checkpoint_files *f, const struct json *map, struct error *err)
{
    json_each (entry, map) {
        const struct checkpoint_tensor *t = checkpoint_lookup(f, entry->key);
        const struct safetensors *shard = t ? shard_of(f, t) : NULL;
        const char *slash = shard ? strrchr(shard->file.path, '/') : NULL;
        bool is_empty = t && t->size_bytes == 0; /* so it has no address */
        if (!is_empty && (!slash || strcmp(slash + 1, entry->text) != 0))
            return checkpoint_refuse(&f->c, err, "the tensor %s is not in %s, where %s places it",
                                     shown_name(entry->key, entry->key_len).text,
                                     shown_name(entry->text, entry->text_len).text, index_name);
    }
    return 0;
}

/* Opens the files of a directory with an index. */
static int open_indexed(struct checkpoint_files *f, const struct listing *l, struct error *err)
{
    struct listing shards;
    const struct json *map = read_index(f, err);
    return !map || index_files(f, map, &shards, err) || check_shards(f, l, &shards, err) ||
                   open_shards(f, &shards, err) || check_index(f, map, err)
               ? -1
               : 0;
}

/* Opens the files of a directory without an index: MLX's, or a single file of any name. */
static int open_unindexed(struct checkpoint_files *f, const struct listing *l,
                          const struct listing *all, struct error *err)
{
    static const char *const prefixes[] = {"model", "weights"};
    struct listing shards = {NULL, 0};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && shards.n == 0; i++)
        shards = select_names(f, l, prefixes[i], ".safetensors");
    if (shards.n == 0 && has_name(l, "consolidated.safetensors"))
        return checkpoint_refuse(&f->c, err,
                                 "consolidated.safetensors uses Mistral's own tensor names, which "
                                 "radish does not read; get model*.safetensors as well");
    if (shards.n == 0 && all->n == 1)
        shards = *all;
    if (shards.n == 0)
        return checkpoint_refuse(
            &f->c, err,
            "none of its %zu safetensors files is named model.safetensors or model-00001-of-...",
            all->n);
    return check_numbers(f, &shards, err) || open_shards(f, &shards, err) ? -1 : 0;
}

static int open_safetensors(struct checkpoint_files *f, const struct listing *l,
                            const struct listing *all, struct error *err)
{
    static const char *one = "model.safetensors";
    f->c.kind = CHECKPOINT_SAFETENSORS;
    if (!has_name(l, "config.json"))
        return checkpoint_refuse(
            &f->c, err, "config.json is missing%s",
            has_name(l, "adapter_config.json") ? "; this is an adapter, not a model"
            : has_name(l, "params.json")
                ? "; this is Mistral's own layout; get the version for transformers"
            : has_name(l, "model_index.json") ? "; this is a pipeline of diffusers"
                                              : " beside its safetensors");
    if (checkpoint_read_config(f, err))
        return -1;
    int rc = has_name(l, one)          ? open_shards(f, &(struct listing){&one, 1}, err)
             : has_name(l, index_name) ? open_indexed(f, l, err)
                                       : open_unindexed(f, l, all, err);
    return rc ? -1 : checkpoint_read_names(f, err);
}

/* Every file of bin_weights is a tensor; the caller that asks for it knows its shape. */
static int open_raw_files(struct checkpoint_files *f, struct error *err)
{
    struct listing l;
    const char *path = join(f, f->c.path, "bin_weights");
    f->c.kind = CHECKPOINT_BIN;
    if (!path)
        return checkpoint_no_memory(&f->c, err);
    if (checkpoint_read_config(f, err) || list_directory(f, path, &l, err))
        return -1;
    l = select_names(f, &l, "", ".bin");
    if (l.n == 0)
        return error_set(err, ERROR_IO, "%s: no files with weights (*.bin) in it", path);
    f->raws = calloc(l.n, sizeof *f->raws);
    if (!f->raws || checkpoint_reserve(f, l.n, err))
        return checkpoint_no_memory(&f->c, err);
    for (size_t i = 0; i < l.n; i++) {
        const char *file = join(f, path, l.names[i]);
        if (!file)
            return checkpoint_no_memory(&f->c, err);
        if (model_file_open(&f->raws[i], file, err) || checkpoint_add_raw(f, l.names[i], err))
            return -1;
    }
    return checkpoint_index(f, err) || checkpoint_read_names(f, err) ? -1 : 0;
}

/* Opens a single GGUF file, or the first part of a split one. Image projectors are not models. */
static int open_lone_gguf(struct checkpoint_files *f, const struct listing *l, struct error *err)
{
    struct listing ggufs = select_names(f, l, "", ".gguf");
    size_t n = 0;
    for (size_t i = 0; i < ggufs.n; i++)
        if (!strstr(ggufs.names[i], "mmproj"))
            ggufs.names[n++] = ggufs.names[i];
    if (n == 0)
        return 1;
    unsigned long parts = 1;
    const char *of = strstr(ggufs.names[0], "-00001-of-");
    if (of)
        parts = strtoul(of + strlen("-00001-of-"), NULL, 10);
    if (n > 1 && n != parts)
        return checkpoint_refuse(&f->c, err, "it has %zu GGUF files; give one of them, such as %s",
                                 n, shown_name(ggufs.names[0], strlen(ggufs.names[0])).text);
    const char *path = join(f, f->c.path, ggufs.names[0]);
    return path ? checkpoint_open_gguf(f, path, err) : checkpoint_no_memory(&f->c, err);
}

static int refuse_directory(const struct checkpoint_files *f, const struct listing *l,
                            struct error *err)
{
    for (size_t i = 0; i < l->n; i++)
        if ((string_starts(l->names[i], "pytorch_model") && string_ends(l->names[i], ".bin")) ||
            string_ends(l->names[i], ".pth") || string_ends(l->names[i], ".pt"))
            return checkpoint_refuse(&f->c, err,
                                     "its weights (%s) are in PyTorch's format, which radish does "
                                     "not read; convert them to safetensors",
                                     shown_name(l->names[i], strlen(l->names[i])).text);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->names[i], "config.json") == 0)
            return checkpoint_refuse(&f->c, err,
                                     "config.json is there, but no weights; expected *.safetensors"
                                     " or bin_weights/*.bin beside it");
    return checkpoint_refuse(&f->c, err,
                             "no model in this directory; expected a GGUF file, or config.json with"
                             " *.safetensors or bin_weights/*.bin");
}

int checkpoint_open_directory(struct checkpoint_files *f, const char *path, struct error *err)
{
    struct listing l;
    if (list_directory(f, path, &l, err))
        return -1;
    struct listing all = select_names(f, &l, "", ".safetensors");
    if (all.n || has_name(&l, index_name))
        return open_safetensors(f, &l, &all, err);
    if (has_name(&l, "config.json") && has_name(&l, "bin_weights"))
        return open_raw_files(f, err);
    int rc = open_lone_gguf(f, &l, err);
    return rc == 1 ? refuse_directory(f, &l, err) : rc;
}
