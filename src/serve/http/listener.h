#ifndef RADISH_SERVE_HTTP_LISTENER_H
#define RADISH_SERVE_HTTP_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strbuf.h"

/* The sockets on which a server listens: TCP ports, Unix sockets, and sockets that were already
 * open when the program began. They are opened before the model is loaded, so that a busy port
 * fails at once. */
enum { HTTP_MAX_LISTENERS = 16, UNIX_PATH_SIZE = 108 };

struct http_listener {
    int fd;
    bool is_unix;
    char path[UNIX_PATH_SIZE]; /* of a Unix socket; "": none */
    bool owns_path;            /* removed when the listener is closed, */
    dev_t device;              /* if it is still this file */
    ino_t inode;
};

struct http_listeners {
    struct http_listener items[HTTP_MAX_LISTENERS];
    size_t n;
};

/* Each adds a non-blocking socket. */
/* `host`: a name or an address, also [::1]; `port` 0: any free one. */
int http_listen(struct http_listeners *ls, const char *host, uint16_t port, struct error *err);
/* A file that an earlier server left behind is replaced. `mode`: who may connect, such as 0660.
 * Changes the umask for a moment, so no other thread may be creating files. */
int http_listen_unix(struct http_listeners *ls, const char *path, mode_t mode, struct error *err);
/* A socket that somebody else has opened. It is closed if it cannot be used. */
int http_listen_inherited(struct http_listeners *ls, int fd, struct error *err);

/* Duplicates the sockets; the copies do not remove files. */
int http_listeners_copy(struct http_listeners *out, const struct http_listeners *from,
                        struct error *err);
void http_listener_close(struct http_listener *l);
void http_listeners_close(struct http_listeners *ls);

/* True if only this machine can reach them: all are on loopback, or Unix sockets. */
bool http_listeners_are_local(const struct http_listeners *ls);
/* Appends "http://127.0.0.1:8080, unix:/run/radish.sock". TLS is for TCP only. */
void http_listeners_write(const struct http_listeners *ls, bool has_tls, struct strbuf *out);
/* The path in "unix:PATH" and in a name that ends with ".sock", as llama-server has it; NULL: the
 * value is no Unix socket. */
const char *unix_path_of(const char *host);

#endif
