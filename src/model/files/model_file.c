/* Maps the files of a model; see model_file.h. Read-only once open, any thread. If another program
 * truncates a mapped file, reading its pages ends the process with SIGBUS; nothing here can
 * prevent that. */
#include "model/files/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_BYTES = 80 };

static int file_begin(struct model_file *f, const char *path, struct error *err)
{
    *f = (struct model_file){.path = strdup(path)};
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

static int file_map(struct model_file *f, int fd, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set(err, ERROR_IO, "%s: %s", f->path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return error_set(err, ERROR_IO, "%s: a directory, not a file", f->path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_IO, "%s: not a regular file", f->path);
    if (st.st_size == 0)
        return error_set_at(err, ERROR_FORMAT, 0, "%s: the file is empty", f->path);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return error_set(err, ERROR_IO, "%s: cannot map it: %s", f->path, strerror(errno));
    f->bytes = map;
    f->len = (size_t)st.st_size;
    f->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    f->is_mapped = true;
    return refuse_pointer(f, err);
}

int model_file_open(struct model_file *f, const char *path, struct error *err)
{
    if (file_begin(f, path, err))
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a FIFO */
    int rc = fd < 0 ? error_set(err, ERROR_IO, "%s: %s", path, strerror(errno))
                    : file_map(f, fd, err);
    if (fd >= 0)
        close(fd);
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
    if (f->is_mapped)
        munmap((void *)(uintptr_t)f->bytes, f->len);
    free(f->path);
    *f = (struct model_file){0};
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
