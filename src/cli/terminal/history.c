/* Several chats may share one file: each appends an entry with a single write, and the next chat to
 * open the file sees them all. Entries that cannot be written are lost; the chat continues. */
#include "cli/terminal/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

enum { READ_MAX_BYTES = 64 << 20 };

static void item_add(struct history *h, const char *text, size_t len)
{
    if (!len || len > HISTORY_MAX_ENTRY_BYTES || memchr(text, '\0', len))
        return;
    if (h->n && strlen(h->items[h->n - 1]) == len && memcmp(h->items[h->n - 1], text, len) == 0)
        return;
    if (h->n == HISTORY_MAX) {
        free(h->items[0]);
        memmove(h->items, h->items + 1, --h->n * sizeof *h->items);
    }
    char **items = realloc(h->items, (h->n + 1) * sizeof *items);
    if (!items)
        return;
    h->items = items;
    if ((items[h->n] = strndup(text, len)))
        h->n++;
}

static void line_write(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n' || *text == '\\')
            strbuf_addc(out, '\\');
        strbuf_addc(out, *text == '\n' ? 'n' : *text);
    }
    strbuf_addc(out, '\n');
}

static void line_read(struct history *h, const char *line, size_t len, struct strbuf *text)
{
    strbuf_clear(text);
    for (size_t i = 0; i < len; i++) {
        bool is_escape = line[i] == '\\' && i + 1 < len;
        i += is_escape;
        strbuf_addc(text, is_escape && line[i] == 'n' ? '\n' : line[i]);
    }
    if (utf8_is_valid(strbuf_str(text), text->len))
        item_add(h, strbuf_str(text), text->len);
}

static int write_all(int fd, const struct strbuf *out)
{
    ssize_t n = write(fd, strbuf_str(out), out->len);
    return n == (ssize_t)out->len ? 0 : -1;
}

/* Replaces the file with the latest entries in memory, up to half the maximum file size. */
static void file_rewrite(const struct history *h)
{
    struct strbuf out = STRBUF_INIT, path = STRBUF_INIT;
    size_t bytes = 0, first = h->n;
    while (first > 0 && (bytes += strlen(h->items[first - 1]) + 1) < HISTORY_MAX_FILE_BYTES / 2)
        first--;
    for (size_t i = first; i < h->n; i++)
        line_write(&out, h->items[i]);
    strbuf_addf(&path, "%s.%d", h->path, (int)getpid());
    int fd = open(strbuf_str(&path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        int failed = write_all(fd, &out);
        if (close(fd) || failed || rename(strbuf_str(&path), h->path))
            unlink(strbuf_str(&path));
    }
    strbuf_free(&out);
    strbuf_free(&path);
}

/* Checks the file without blocking on a FIFO, and makes it private. A file that does not exist yet
 * is fine. */
static int file_check(const char *path, bool *exists, struct error *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), failed = 0;
    *exists = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info))
        failed = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        failed = error_set(err, ERROR_INPUT, "%s: not a regular file", path);
    else if (info.st_uid != geteuid())
        failed = error_set(err, ERROR_INPUT, "%s: owned by another user", path);
    else if (info.st_mode & 077 && fchmod(fd, 0600))
        failed = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return failed;
}

int history_open(struct history *h, const char *path, struct error *err)
{
    struct strbuf file = STRBUF_INIT, text = STRBUF_INIT;
    bool exists;
    int failed = file_check(path, &exists, err);
    if (!failed && exists)
        failed = file_read(path, READ_MAX_BYTES, &file, err);
    size_t n_lines = 0;
    for (size_t at = 0; !failed && at < file.len; n_lines++) {
        const char *line = file.data + at, *end = memchr(line, '\n', file.len - at);
        size_t len = end ? (size_t)(end - line) : file.len - at;
        line_read(h, line, len, &text);
        at += len + 1;
    }
    if (!failed && !(h->path = strdup(path)))
        failed = error_set(err, ERROR_MEMORY, "no memory for the history");
    if (!failed && (file.len > HISTORY_MAX_FILE_BYTES || n_lines > 2 * HISTORY_MAX))
        file_rewrite(h);
    strbuf_free(&file);
    strbuf_free(&text);
    return failed;
}

void history_add(struct history *h, const char *text)
{
    size_t before = h->n;
    const char *last = before ? h->items[before - 1] : NULL;
    item_add(h, text, strlen(text));
    bool is_added = h->n && h->items[h->n - 1] != last;
    if (!h->path || !is_added)
        return;
    struct strbuf out = STRBUF_INIT;
    line_write(&out, text);
    int fd = open(h->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write_all(fd, &out)) { /* disk full: stop trying */
            free(h->path);
            h->path = NULL;
        }
        close(fd);
    }
    strbuf_free(&out);
}

size_t history_find(const struct history *h, const char *text, size_t from, int step)
{
    for (size_t i = from; step < 0 ? i-- > 0 : i<h->n; i += step> 0)
        if (strcasestr(h->items[i], text))
            return i;
    return h->n;
}

void history_close(struct history *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->items[i]);
    free(h->items);
    free(h->path);
    *h = (struct history){0};
}
