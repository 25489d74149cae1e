/* Maps the files of a model; see model_file.h. Read-only once open, any thread, except that the
 * thread that loads the model copies and settles it. Copies are read from the file, never from the
 * mapping: where a file was cut short, that gives an error instead of a signal. */
#include "model/files/model_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/map_guard.h"

enum { SHOWN_BYTES = 80, LEAST_COPY_BYTES = 1 << 20 };

static int file_begin(struct model_file *f, const char *path, struct error *err)
{
    *f = (struct model_file){.path = strdup(path), .fd = -1};
    return f->path ? 0 : error_set(err, ERROR_MEMORY, "%s: no memory", path);
}

/* Rejects the small pointer that a clone without Git LFS has instead of a large file. */
static int refuse_pointer(const struct model_file *f, struct error *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    size_t len = sizeof pointer - 1;
    if (f->len < len || memcmp(f->bytes, pointer, len) != 0)
        return 0;
    return error_set(err, ERROR_FORMAT,
                     "%s: a Git LFS pointer, not the file itself; run \"git lfs pull\" where it was"
                     " cloned, or download it",
                     f->path);
}

static int64_t mtime_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int file_map(struct model_file *f, struct error *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return error_set(err, ERROR_IO, "%s: %s", f->path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return error_set(err, ERROR_IO, "%s: a directory, not a file", f->path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_IO, "%s: not a regular file", f->path);
    if (st.st_size == 0)
        return error_set_at(err, ERROR_FORMAT, 0, "%s: the file is empty", f->path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED)
        return error_set(err, ERROR_IO, "%s: cannot map it: %s", f->path, strerror(errno));
    f->bytes = map;
    f->len = (size_t)st.st_size;
    f->mtime_ns = mtime_of(&st);
    f->is_mapped = true;
    map_guard_add(f->bytes, f->len, f->path);
    return refuse_pointer(f, err);
}

/* A model in many small files may need more of them at once than a process may open by default. */
static bool allow_more_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int model_file_open(struct model_file *f, const char *path, struct error *err)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* do not block on a FIFO */
    if (file_begin(f, path, err))
        return -1;
    f->fd = open(path, flags);
    if (f->fd < 0 && errno == EMFILE && allow_more_files())
        f->fd = open(path, flags);
    int rc = f->fd < 0 ? error_set(err, ERROR_IO, "%s: %s", path, strerror(errno))
                       : file_map(f, err);
    if (rc)
        model_file_close(f);
    return rc;
}

int model_file_open_memory(struct model_file *f, const char *path, const void *bytes, size_t len,
                           struct error *err)
{
    if (file_begin(f, path, err))
        return -1;
    f->bytes = bytes;
    f->len = len;
    return 0;
}

void model_file_close(struct model_file *f)
{
    if (f->is_mapped) {
        map_guard_remove(f->bytes);
        munmap((void *)(uintptr_t)f->bytes, f->len);
    }
    if (f->path && f->fd >= 0)
        close(f->fd);
    free(f->path);
    *f = (struct model_file){0};
}

/* ---- copies -------------------------------------------------------------------------------- */

static size_t page_floor(size_t offset)
{
    return offset & ~((size_t)sysconf(_SC_PAGESIZE) - 1);
}

static size_t page_ceil(size_t offset)
{
    return page_floor(offset + (size_t)sysconf(_SC_PAGESIZE) - 1);
}

static int read_all(const struct model_file *f, size_t begin, size_t end, uint8_t *to,
                    struct error *err)
{
    while (begin < end) {
        ssize_t n = pread(f->fd, to, end - begin, (off_t)begin);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, ERROR_IO, "%s: %s", f->path, strerror(errno));
        if (n == 0)
            return error_set(err, ERROR_IO, "%s: it was cut short while it was read", f->path);
        to += n;
        begin += (size_t)n;
    }
    return 0;
}

/* Puts memory with the file's bytes in the place of whole pages of the mapping. */
static int pages_copy(const struct model_file *f, size_t begin, size_t end, struct error *err)
{
    uint8_t *to = mmap((void *)(uintptr_t)(f->bytes + begin), end - begin, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (to == MAP_FAILED)
        return error_set(err, ERROR_MEMORY, "%s: no memory for %zu MiB of it", f->path,
                         (end - begin) >> 20);
    huge_pages_wish(to, end - begin);
    if (read_all(f, begin, end < f->len ? end : f->len, to, err))
        return -1;
    mprotect(to, end - begin, PROT_READ);
    return 0;
}

int model_file_copy(struct model_file *f, size_t end, struct error *err)
{
    if (!f->is_mapped || end <= f->n_copied)
        return 0;
    assert(end <= f->len && f->fd >= 0);
    size_t least = f->n_copied + (f->n_copied > LEAST_COPY_BYTES ? f->n_copied : LEAST_COPY_BYTES);
    size_t to = page_ceil(end > least ? end : least), most = page_ceil(f->len);
    to = to < most ? to : most;
    if (pages_copy(f, f->n_copied, to, err))
        return -1;
    f->n_copied = to;
    return 0;
}

/* ---- settling ------------------------------------------------------------------------------ */

int model_file_check(const struct model_file *f, struct error *err)
{
    struct stat st;
    if (!f->is_mapped || f->fd < 0)
        return 0;
    if (fstat(f->fd, &st) != 0)
        return error_set(err, ERROR_IO, "%s: %s", f->path, strerror(errno));
    if ((size_t)st.st_size < f->len)
        return error_set(err, ERROR_IO, "%s: it was cut short while it was read", f->path);
    if ((size_t)st.st_size != f->len || mtime_of(&st) != f->mtime_ns)
        return error_set(err, ERROR_IO,
                         "%s: it changed while it was read; try again when it is complete",
                         f->path);
    return 0;
}

static int part_compare(const void *a, const void *b)
{
    const struct file_part *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Ends access to pages; their addresses stay taken, so that a late reader fails at once. */
static int pages_drop(const struct model_file *f, size_t begin, size_t end, struct error *err)
{
    if (begin >= end)
        return 0;
    void *at = mmap((void *)(uintptr_t)(f->bytes + begin), end - begin, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return at == MAP_FAILED
               ? error_set(err, ERROR_MEMORY, "%s: cannot unmap it: %s", f->path, strerror(errno))
               : 0;
}

/* The pages of a part from `from` on, which may be none. */
static size_t part_begin(const struct model_file *f, const struct file_part *part, size_t from)
{
    size_t begin = page_floor((size_t)(part->bytes - f->bytes));
    return begin > from ? begin : from;
}

static size_t part_end(const struct model_file *f, const struct file_part *part)
{
    return page_ceil((size_t)(part->bytes - f->bytes) + part->len);
}

static int parts_copy(const struct model_file *f, const struct file_part *parts, size_t n_parts,
                      struct error *err)
{
    size_t at = f->n_copied;
    for (size_t i = 0; i < n_parts; i++) {
        size_t begin = part_begin(f, &parts[i], at), end = part_end(f, &parts[i]);
        assert(parts[i].bytes >= f->bytes && parts[i].len <= f->len &&
               (size_t)(parts[i].bytes - f->bytes) <= f->len - parts[i].len);
        if (begin < end && pages_copy(f, begin, end, err))
            return -1;
        at = begin < end ? end : at;
    }
    return 0;
}

static int others_drop(const struct model_file *f, const struct file_part *parts, size_t n_parts,
                       struct error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < n_parts; i++) {
        size_t begin = part_begin(f, &parts[i], at), end = part_end(f, &parts[i]);
        if (pages_drop(f, at, begin, err))
            return -1;
        at = begin < end ? end : at;
    }
    return pages_drop(f, at, page_ceil(f->len), err);
}

int model_file_settle(struct model_file *f, struct file_part *parts, size_t n_parts,
                      bool keeps_file, struct error *err)
{
    if (!f->is_mapped || f->fd < 0)
        return 0;
    if (n_parts)
        qsort(parts, n_parts, sizeof *parts, part_compare);
    if (parts_copy(f, parts, n_parts, err) || model_file_check(f, err))
        return -1;
    if (keeps_file)
        return 0;
    if (others_drop(f, parts, n_parts, err))
        return -1;
    close(f->fd);
    f->fd = -1;
    return 0;
}

struct shown_name shown_name(const char *bytes, size_t len)
{
    struct shown_name s;
    size_t n = len < SHOWN_BYTES ? len : SHOWN_BYTES;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        s.text[i] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    strcpy(s.text + n, len > n ? "..." : "");
    return s;
}
