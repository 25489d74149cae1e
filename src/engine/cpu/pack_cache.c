/* The file of packed weights; see pack_cache.h. All threads of the pool read pieces; the file is
 * written by one thread in the background.
 *
 * No version number needs manual updates. One panel of every matrix is packed again and compared
 * with the file, so a build that packs differently, or a model whose weights changed under the same
 * date, never uses old panels. */
#include "engine/cpu/pack_cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/cpu/kernels/matmul_internal.h"

enum {
    FILE_VERSION = 1, /* of the head and the entries; the panels are checked by comparing */
    DATA_ALIGN = 4096,
    CHUNK_BYTES = 256 << 10, /* read, then checked while in the core's own cache */
    IN_FLIGHT = 4,           /* pieces that the disk may lag behind the writer */
};

#define FILE_MAGIC ((uint64_t)0x646b636170646172u) /* "radpackd", and this machine's byte order */
#define LEAST_FREE ((uint64_t)1 << 30)             /* bytes that must stay free on the disk */
#define SUFFIX     ".radish-packed"
#define OTHER      "it belongs to another model or another version of radish"

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t n_matrices, n_pieces;
    uint32_t reserved;
    uint64_t model_bytes;
    int64_t model_mtime_ns; /* of a single file; with several it is part of their hash */
    uint64_t model_hash;    /* of all before the tensors' data; several files: checkpoint_hash */
    uint64_t file_bytes;
    uint64_t checksum; /* of everything up to the first matrix, with 0 here */
};

struct entry {
    uint32_t format, rows, cols;
    uint32_t reserved;
    uint64_t panel_bytes, size_bytes;
    uint64_t offset;
};

struct pack_cache {
    const struct weight_store *store;
    char *path, *temporary_path;
    uid_t model_owner;
    mode_t model_mode;   /* only those who may read the model may read this */
    int fd;              /* of a usable file, else -1 */
    size_t head_bytes;   /* head, entries and checksums */
    struct head *head;   /* [head_bytes] all three, as in the file */
    struct entry *table; /* [n_matrices] part of `head` */
    uint64_t *checksums; /* [n_pieces] part of `head` */
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- checksums ---------------------------------------------------------------------------- */

/* Eight sums side by side, because a single one would wait for its own multiplications. With
 * everything else fixed, a lane is a one-to-one function of each word, so a single flipped bit is
 * always detected. */
struct checksum {
    uint64_t lanes[8];
};

static void checksum_add(struct checksum *c, const void *bytes, size_t len)
{
    uint64_t lanes[8];
    memcpy(lanes, c->lanes, sizeof lanes);
    for (const uint8_t *p = bytes; len; p += sizeof lanes) {
        uint64_t words[8] = {0};
        size_t n = len < sizeof words ? len : sizeof words;
        memcpy(words, p, n);
        for (int i = 0; i < 8; i++) {
            uint64_t mixed = (lanes[i] ^ words[i]) * 0x9e3779b97f4a7c15u;
            lanes[i] = mixed << 31 | mixed >> 33;
        }
        len -= n;
    }
    memcpy(c->lanes, lanes, sizeof lanes);
}

static uint64_t checksum_end(const struct checksum *c, uint64_t len)
{
    uint64_t all = hash_mix(len);
    for (int i = 0; i < 8; i++)
        all = hash_mix(all ^ c->lanes[i]);
    return all;
}

static uint64_t checksum_bytes(const void *bytes, size_t len)
{
    struct checksum c = {{0}};
    checksum_add(&c, bytes, len);
    return checksum_end(&c, len);
}

static uint64_t head_checksum(const struct head *head, size_t head_bytes)
{
    struct head first = *head;
    first.checksum = 0;
    return hash_pair(checksum_bytes(&first, sizeof first),
                     checksum_bytes(head + 1, head_bytes - sizeof *head));
}

/* ---- the expected contents ---------------------------------------------------------------- */

static uint64_t model_hash(const struct gguf *g)
{
    size_t len = g->map_bytes;
    for (size_t i = 0; i < g->n_tensors; i++) {
        size_t at = (size_t)((const uint8_t *)g->tensors[i].data - g->map);
        len = at < len ? at : len;
    }
    return checksum_bytes(g->map, len);
}

static bool is_one_file(const struct checkpoint *c)
{
    return c->kind == CHECKPOINT_GGUF && c->file_bytes <= c->gguf->map_bytes;
}

static void head_make(struct pack_cache *c, const struct stat *model)
{
    const struct weight_store *s = c->store;
    bool one_file = is_one_file(s->checkpoint);
    size_t end = c->head_bytes;
    for (uint32_t i = 0; i < s->n_matrices; i++) {
        const struct packed_matrix *m = s->matrices[i];
        size_t offset = round_up(end, DATA_ALIGN);
        c->table[i] = (struct entry){.format = m->format,
                                     .rows = m->rows,
                                     .cols = m->cols,
                                     .panel_bytes = m->panel_bytes,
                                     .size_bytes = m->bytes,
                                     .offset = offset};
        end = offset + m->bytes;
    }
    *c->head = (struct head){
        .magic = FILE_MAGIC,
        .version = FILE_VERSION,
        .n_matrices = s->n_matrices,
        .n_pieces = s->n_pieces,
        .model_bytes = one_file ? (uint64_t)model->st_size : s->checkpoint->file_bytes,
        .model_mtime_ns = one_file
                              ? model->st_mtim.tv_sec * (int64_t)1000000000 + model->st_mtim.tv_nsec
                              : 0,
        .model_hash = one_file ? model_hash(s->checkpoint->gguf) : checkpoint_hash(s->checkpoint),
        .file_bytes = end};
}

static char *path_with(const char *path, const char *suffix)
{
    char *all;
    return asprintf(&all, "%s%s", path, suffix) < 0 ? NULL : all;
}

/* The mode for the cache of a directory: the permissions that all its weight files have in common.
 */
static mode_t directory_mode(const char *path, mode_t mode)
{
    DIR *dir = opendir(path);
    if (!dir)
        return 0600;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        struct stat st;
        if (!dot || (strcmp(dot, ".safetensors") != 0 && strcmp(dot, ".bin") != 0))
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0)
            mode &= st.st_mode;
    }
    closedir(dir);
    return mode;
}

/* Finds out who owns the model, who may read it, and how the file's name begins. */
static int describe_model(struct pack_cache *c, struct stat *model, char **prefix,
                          struct error *err)
{
    const struct checkpoint *checkpoint = c->store->checkpoint;
    bool is_gguf = checkpoint->kind == CHECKPOINT_GGUF;
    const char *path = is_gguf ? checkpoint->gguf->path : checkpoint->path;
    path = path ? path : "";
    if (stat(path, model) != 0)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    if (is_gguf
            ? !S_ISREG(model->st_mode) || (uint64_t)model->st_size != checkpoint->gguf->map_bytes
            : !S_ISDIR(model->st_mode))
        return error_set(err, ERROR_IO, "%s: it was replaced while it was open", path);
    /* What is packed is the file as it was opened. The date of a later one would vouch for it. */
    int64_t mtime_ns = model->st_mtim.tv_sec * (int64_t)1000000000 + model->st_mtim.tv_nsec;
    if (is_gguf && checkpoint->gguf->mtime_ns && mtime_ns != checkpoint->gguf->mtime_ns)
        return error_set(err, ERROR_IO, "%s: it has changed since it was opened", path);
    c->model_owner = model->st_uid;
    c->model_mode = model->st_mode & 0666;
    char *raw = is_gguf ? NULL : path_with(path, "/bin_weights");
    if (!is_gguf)
        c->model_mode = directory_mode(path, c->model_mode);
    if (raw && checkpoint->kind == CHECKPOINT_BIN)
        c->model_mode = directory_mode(raw, c->model_mode);
    free(raw);
    *prefix = path_with(path, is_gguf ? "" : "/model");
    return 0;
}

static int describe(struct pack_cache *c, struct error *err)
{
    const struct weight_store *s = c->store;
    struct stat model;
    char *prefix = NULL;
    if (describe_model(c, &model, &prefix, err))
        return -1;
    c->head_bytes = sizeof *c->head + s->n_matrices * sizeof *c->table +
                    s->n_pieces * sizeof *c->checksums;
    c->path = prefix ? path_with(prefix, SUFFIX) : NULL;
    c->temporary_path = prefix ? path_with(prefix, SUFFIX ".tmp") : NULL;
    free(prefix);
    c->head = calloc(1, c->head_bytes);
    if (!c->path || !c->temporary_path || !c->head)
        return error_set(err, ERROR_MEMORY, "no memory for the cache of packed weights");
    c->table = (struct entry *)(c->head + 1);
    c->checksums = (uint64_t *)(c->table + s->n_matrices);
    head_make(c, &model);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

static int read_all(int fd, void *to, size_t len, uint64_t offset, struct error *err)
{
    for (uint8_t *p = to; len;) {
        ssize_t n = pread(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, ERROR_IO, "it cannot be read: %s", strerror(errno));
        if (n == 0)
            return error_set(err, ERROR_FORMAT, "it ends too early");
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Compares the file's head, entries and checksums with ours. */
static int head_check(const struct pack_cache *c, const struct head *found, uint64_t file_bytes,
                      struct error *err)
{
    const struct head *own = c->head;
    if (found->version != own->version || found->n_matrices != own->n_matrices ||
        found->n_pieces != own->n_pieces)
        return error_set(err, ERROR_FORMAT, OTHER);
    if (head_checksum(found, c->head_bytes) != found->checksum)
        return error_set(err, ERROR_FORMAT, "its header is damaged");
    if (found->model_bytes != own->model_bytes || found->model_mtime_ns != own->model_mtime_ns ||
        found->model_hash != own->model_hash)
        return error_set(err, ERROR_FORMAT, "the model has changed");
    if (found->file_bytes != own->file_bytes ||
        memcmp(found + 1, own + 1, own->n_matrices * sizeof *c->table) != 0)
        return error_set(err, ERROR_FORMAT, OTHER);
    if (file_bytes != own->file_bytes)
        return error_set(err, ERROR_FORMAT, "it has %llu bytes; expected %llu",
                         (unsigned long long)file_bytes, (unsigned long long)own->file_bytes);
    return 0;
}

/* Those who cannot change the model must not be able to change the file that replaces it. */
static int file_check(const struct pack_cache *c, int fd, struct stat *st, struct error *err)
{
    if (fstat(fd, st) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (!S_ISREG(st->st_mode))
        return error_set(err, ERROR_FORMAT, "it is not a regular file");
    if (st->st_uid != geteuid() && st->st_uid != c->model_owner && st->st_uid != 0)
        return error_set(err, ERROR_FORMAT, "it belongs to another user");
    return 0;
}

static int content_check(struct pack_cache *c, int fd, struct error *err)
{
    struct stat st;
    uint64_t magic;
    if (file_check(c, fd, &st, err))
        return -1;
    if (st.st_size < (off_t)sizeof magic || read_all(fd, &magic, sizeof magic, 0, err) ||
        magic != FILE_MAGIC)
        return error_set(err, ERROR_FORMAT, "it is not a file of packed weights");
    /* A shorter file has another number of matrices, or was truncated. */
    size_t len = (size_t)st.st_size < c->head_bytes ? (size_t)st.st_size : c->head_bytes;
    struct head *found = calloc(1, c->head_bytes);
    if (!found)
        return error_set(err, ERROR_MEMORY, "no memory to read it");
    int rc = read_all(fd, found, len, 0, err) || head_check(c, found, (uint64_t)st.st_size, err);
    if (rc == 0)
        memcpy(c->head, found, c->head_bytes);
    free(found);
    return rc ? -1 : 0;
}

int pack_cache_open(struct pack_cache **out, const struct weight_store *store,
                    enum pack_cache_state *state, struct error *err)
{
    struct pack_cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, ERROR_MEMORY, "no memory for the cache of packed weights");
    *c = (struct pack_cache){.store = store, .fd = -1};
    if (describe(c, err)) {
        pack_cache_close(c);
        return -1;
    }
    *out = c;
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && content_check(c, fd, err) == 0) {
        c->fd = fd;
        *state = PACK_CACHE_USABLE;
        return 0;
    }
    *state = fd < 0 && errno == ENOENT ? PACK_CACHE_ABSENT : PACK_CACHE_BAD;
    if (fd < 0)
        error_set(err, ERROR_IO, "%s", strerror(errno));
    else
        close(fd);
    return 0;
}

void pack_cache_close(struct pack_cache *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c->path);
    free(c->temporary_path);
    free(c->head);
    free(c);
}

const char *pack_cache_path(const struct pack_cache *c)
{
    return c->path;
}

/* Packs one panel of each matrix from the model and compares it with the file. */
static int sample_check(const struct pack_cache *c, const struct weight_piece *piece,
                        struct error *err)
{
    const struct packed_matrix *m = c->store->matrices[piece->matrix];
    uint32_t panel = (uint32_t)(hash_mix(piece->matrix) % m->n_panels);
    if (panel < piece->panel_begin || panel >= piece->panel_end)
        return 0;
    uint8_t *packed = aligned_alloc(PACK_ALIGN, m->panel_bytes);
    if (!packed)
        return error_set(err, ERROR_MEMORY, "no memory to check it");
    memset(packed, 0, m->panel_bytes);
    int failed = matrix_fill(m, c->store->weights[piece->matrix], panel, panel + 1, packed, err);
    if (!failed && memcmp(packed, matrix_panel(m, panel), m->panel_bytes) != 0)
        failed = error_set(err, ERROR_FORMAT, OTHER);
    free(packed);
    return failed;
}

/* The address of a piece's bytes in its matrix, and their number. */
static uint8_t *piece_bytes(const struct pack_cache *c, const struct weight_piece *piece,
                            size_t *begin, size_t *len)
{
    const struct packed_matrix *m = c->store->matrices[piece->matrix];
    *begin = piece->panel_begin * m->panel_bytes;
    *len = (piece->panel_end - piece->panel_begin) * m->panel_bytes;
    return m->data + *begin;
}

int pack_cache_read(const struct pack_cache *c, uint32_t index, struct error *err)
{
    assert(c->fd >= 0);
    const struct weight_piece *piece = &c->store->pieces[index];
    size_t begin, len;
    uint8_t *to = piece_bytes(c, piece, &begin, &len);
    uint64_t offset = c->table[piece->matrix].offset + begin;
    struct checksum sum = {{0}};
    for (size_t done = 0; done < len;) {
        size_t n = len - done < CHUNK_BYTES ? len - done : CHUNK_BYTES;
        if (read_all(c->fd, to + done, n, offset + done, err))
            return -1;
        checksum_add(&sum, to + done, n);
        done += n;
    }
    if (checksum_end(&sum, len) != c->checksums[index])
        return error_set(err, ERROR_FORMAT, "its weights are damaged");
    return sample_check(c, piece, err);
}

/* ---- writing ------------------------------------------------------------------------------ */

static int write_all(int fd, const void *from, size_t len, uint64_t offset, struct error *err)
{
    for (const uint8_t *p = from; len;) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, ERROR_IO, "%s", strerror(errno));
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Opens the file under its temporary name, for this process alone. A process that is killed leaves
 * it behind, and the next one takes it over; the lock tells whether anyone is still writing. */
static int temporary_open(const struct pack_cache *c, struct error *err)
{
    struct stat opened, named;
    int fd = open(c->temporary_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  0600);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &opened) != 0 ||
        stat(c->temporary_path, &named) != 0 || opened.st_ino != named.st_ino) {
        /* The second case: another process has just finished and renamed it. */
        close(fd);
        return error_set(err, ERROR_IO, "another process is writing it");
    }
    if (!S_ISREG(opened.st_mode) || ftruncate(fd, 0) != 0) {
        close(fd);
        return error_set(err, ERROR_IO, "%s is in the way", c->temporary_path);
    }
    return fd;
}

static int space_reserve(const struct pack_cache *c, int fd, struct error *err)
{
    struct statvfs disk;
    uint64_t bytes = c->head->file_bytes;
    if (fstatvfs(fd, &disk) != 0)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    if ((uint64_t)disk.f_bavail * disk.f_frsize < bytes + LEAST_FREE)
        return error_set(err, ERROR_IO, "it needs %llu MiB and would leave less than %llu MiB free",
                         (unsigned long long)bytes >> 20, (unsigned long long)LEAST_FREE >> 20);
    /* Not every file system supports this; there, a full disk is noticed only when it is full. */
    if (fallocate(fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return error_set(err, ERROR_IO, "%s", strerror(errno));
    return ftruncate(fd, (off_t)bytes) ? error_set(err, ERROR_IO, "%s", strerror(errno)) : 0;
}

/* Starts writing this piece to disk and waits for an earlier one, so that neither the final sync
 * nor a stopping process has to wait for gigabytes. */
static void disk_keep_up(const struct pack_cache *c, int fd, uint32_t index)
{
    size_t begin, len;
    const struct weight_piece *piece = &c->store->pieces[index];
    piece_bytes(c, piece, &begin, &len);
    sync_file_range(fd, (off_t)(c->table[piece->matrix].offset + begin), (off_t)len,
                    SYNC_FILE_RANGE_WRITE);
    if (index < IN_FLIGHT)
        return;
    piece = &c->store->pieces[index - IN_FLIGHT];
    piece_bytes(c, piece, &begin, &len);
    sync_file_range(fd, (off_t)(c->table[piece->matrix].offset + begin), (off_t)len,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                        SYNC_FILE_RANGE_WAIT_AFTER);
}

static int content_write(struct pack_cache *c, int fd, const atomic_bool *stop, struct error *err)
{
    if (space_reserve(c, fd, err))
        return -1;
    for (uint32_t i = 0; i < c->store->n_pieces; i++) {
        const struct weight_piece *piece = &c->store->pieces[i];
        size_t begin, len;
        const uint8_t *from = piece_bytes(c, piece, &begin, &len);
        if (atomic_load(stop))
            return error_set(err, ERROR_CANCELED, "there was no time to write it");
        c->checksums[i] = checksum_bytes(from, len);
        if (write_all(fd, from, len, c->table[piece->matrix].offset + begin, err))
            return -1;
        disk_keep_up(c, fd, i);
    }
    c->head->checksum = head_checksum(c->head, c->head_bytes);
    if (write_all(fd, c->head, c->head_bytes, 0, err))
        return -1;
    return fdatasync(fd) ? error_set(err, ERROR_IO, "%s", strerror(errno)) : 0;
}

int pack_cache_write(struct pack_cache *c, const atomic_bool *stop, struct error *err)
{
    int fd = temporary_open(c, err);
    if (fd < 0)
        return -1;
    int rc = content_write(c, fd, stop, err);
    if (rc == 0 && (fchmod(fd, c->model_mode) != 0 || rename(c->temporary_path, c->path) != 0))
        rc = error_set(err, ERROR_IO, "%s", strerror(errno));
    if (rc)
        unlink(c->temporary_path);
    close(fd);
    return rc;
}

void pack_cache_remove(const struct pack_cache *c)
{
    uint64_t magic = 0;
    struct stat st;
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (file_check(c, fd, &st, NULL) == 0 && read_all(fd, &magic, sizeof magic, 0, NULL) == 0 &&
        magic == FILE_MAGIC)
        unlink(c->path);
    close(fd);
}

/* bench_pack measures 4.4 to 5.9 GB/s for one thread that reads, whatever the type, and 0.7 to 5.8
 * for one that packs: reading is 2.6 to 6.6 times as fast for Q5_0, Q5_1, Q3_K, Q5_K and Q6_K, and
 * less than twice as fast for all others. Packing scales with the number of cores; reading only
 * until memory bandwidth is used up. The file is a second copy of the model on disk, so it must at
 * least halve the time. */
bool pack_cache_pays(uint64_t pack_ns, size_t size_bytes, uint32_t n_threads)
{
    const uint64_t least_ns = 1000000000;
    const double bytes_per_ns = 4.4;
    const uint32_t most_readers = 4;
    double readers = n_threads < most_readers ? n_threads : most_readers;
    double read_ns = (double)size_bytes / (bytes_per_ns * readers);
    return pack_ns > least_ns && (double)pack_ns > 2 * read_ns;
}
